/* image.h - a shrunken plan that keeps what matters: the same classes, choices, moves and schedule
 * on few ranks and small primes.
 *
 * Atoms shrink to 2, stages to at most 3, layers to 2 a stage (3 + 2 where stages are uneven),
 * micro-batches keep their relation to the number of stages, each dim becomes the product of its
 * atoms times a prime of its own. The recipe is fp64. At most 64 ranks. */
#ifndef LPLAN_IR_LOWER_IMAGE_H
#define LPLAN_IR_LOWER_IMAGE_H

#include "ir/plan.h"

/* NULL after an error. The image owns a changed copy of the model. */
Plan *plan_image(Arena *arena, Diag *diag, const Plan *plan, const Net *net, Net **ret_net);

#endif
