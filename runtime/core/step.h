/* step.h - the training loop's edges, as the rest of the runtime sees them. */
#ifndef LPLAN_RUNTIME_CORE_STEP_H
#define LPLAN_RUNTIME_CORE_STEP_H

#include "runtime/core/self.h"

/* SIGTERM, SIGINT and SIGUSR1 (which mpirun passes on) ask for the end after the present step. */
void lp_signals_catch(void);

/* Sleeps; true, at once, when such a signal comes meanwhile. A launcher ending the job sends one.
 */
bool lp_pause_ns(int64_t ns);

/* Learning rate of a step: warm-up, then constant or cosine. */
double lp_rate(const LpOptions *options, int64_t step);

#endif
