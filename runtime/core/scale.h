/* scale.h - the state of a loss's dynamic scale. */
#ifndef LPLAN_RUNTIME_CORE_SCALE_H
#define LPLAN_RUNTIME_CORE_SCALE_H

#include "runtime/core/self.h"

/* At the start of a job; a checkpoint may then bring another state. */
void lp_scaler_begin(LpSelf *self);

#endif
