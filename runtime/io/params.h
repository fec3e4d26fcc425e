/* params.h - the parameters of a rank, as checkpoints need them. */
#ifndef LPLAN_RUNTIME_IO_PARAMS_H
#define LPLAN_RUNTIME_IO_PARAMS_H

#include "runtime/core/self.h"

/* Fills the parts from a weight file; ends the job (all ranks alike) when it does not fit the
 * model. */
void lp_load_file(const LpSelf *self, const char *path, const LpPart *parts, int count);

#endif
