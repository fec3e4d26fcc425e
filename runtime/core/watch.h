/* watch.h - signs of life, and the end of a job that has stopped moving. */
#ifndef LPLAN_RUNTIME_CORE_WATCH_H
#define LPLAN_RUNTIME_CORE_WATCH_H

#include "runtime/core/self.h"

/* Rank 0 removes what an earlier run under the same --log left in DIR/failure: until all ranks know
 * it gone, one that fails would take it for the word of another. */
void lp_watch_clear(LpSelf *self);

/* Starts a thread that writes DIR/rank-N.status (under --log) and ends the process should the
 * rank's own thread be stuck inside a call while it waits. */
void lp_watch_start(LpSelf *self);
void lp_watch_stop(LpSelf *self);

/* Where the rank is now. Reaches the status file at once: it outlives a killed rank. */
void lp_watch_at(LpSelf *self, const char *text);
void lp_watch_step(LpSelf *self, int64_t step);

/* The waiter's own verdict: `doing` has not moved for `waited_s`, world rank `peer` (or -1) has not
 * answered. One rank of the job prints one line; all end with 124. */
#if defined(__GNUC__)
__attribute__((noreturn))
#endif
void lp_watch_give_up(LpSelf *self, const char *doing, int peer, double waited_s);

/* Prints `text` after "lplan: ", leaves it in DIR/failure for the launcher, and ends all ranks. */
#if defined(__GNUC__)
__attribute__((noreturn))
#endif
void lp_watch_end(LpSelf *self, int code, const char *text);

#endif
