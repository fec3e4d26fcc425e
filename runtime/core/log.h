/* log.h - one line per step on the terminal, one object per step in log.jsonl. Rank 0 only. */
#ifndef LPLAN_RUNTIME_CORE_LOG_H
#define LPLAN_RUNTIME_CORE_LOG_H

#include "runtime/core/self.h"

typedef struct LpStepFigures {
    int64_t step;
    double loss, grad_norm, lr;
    double loss_scale; /* of the next step */
    double ms;
    int64_t peak_bytes; /* largest resident size of any rank */
} LpStepFigures;

void lp_log_open(LpSelf *self); /* the directory exists: lp_watch_start made it */
void lp_log_step(LpSelf *self, const LpStepFigures *figures);
/* What the rank that needs most needs, before the first step. */
void lp_log_memory(LpSelf *self, int64_t arena_bytes, int64_t outside_bytes);
/* Of an evaluation behind this step; losses as in lp_evaluated, divided by all tokens. */
void lp_log_evaluation(LpSelf *self, int64_t step);
void lp_log_end(LpSelf *self); /* closing line */
void lp_log_close(LpSelf *self);

/* Where state lives that is not in memory: bytes of the file of this rank, and whether it is read
 * and written past the page cache. */
void lp_log_lanes(LpSelf *self, int64_t bytes, bool direct);
/* Bytes of the host's memory and of files behind an arena: asked for, and found to be there. */
typedef struct LpFar {
    double asked[2], found[2];
} LpFar;
void lp_log_far(LpSelf *self, const LpFar *far);

#endif
