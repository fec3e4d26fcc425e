/* params.h - the parameters of a rank, as checkpoints need them. */
#ifndef LPLAN_RUNTIME_IO_PARAMS_H
#define LPLAN_RUNTIME_IO_PARAMS_H

#include "runtime/core/self.h"

/* Fills the parts from a weight file; ends the job (all ranks alike) when it does not fit the
 * model. */
void lp_load_file(const LpSelf *self, const char *path, const LpPart *parts, int count);

/* lp_save of one kind of state, of which tensors may have none (collective). */
void lp_save_state(const char *path, const LpState *state);

#endif
