/* keep.h - values that cost less to make again than to keep. */
#ifndef LPLAN_IR_LOWER_KEEP_H
#define LPLAN_IR_LOWER_KEEP_H

#include "ir/plan.h"

/* Marks KEEP_NONE what backward can remake inside the kernel that reads it: values of nodes without
 * operands, and pointwise values of one operand whose operand is kept anyway and whose readers in
 * backward are all row kernels. */
void plan_keep_cheap(const Graph *graph, ClassPlan *plan);

#endif
