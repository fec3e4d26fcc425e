/* keep.h - values that cost less to make again than to keep. */
#ifndef LPLAN_IR_LOWER_KEEP_H
#define LPLAN_IR_LOWER_KEEP_H

#include "ir/plan.h"

/* Marks KEEP_NONE what backward can remake inside the kernel that reads it: values of nodes without
 * operands, and pointwise values of one operand whose operand is kept anyway and whose readers in
 * backward are all row kernels. */
void plan_keep_cheap(const Graph *graph, ClassPlan *plan);

/* One round towards the set of values that backward reads: a value that is not kept passes its need
 * on to its maker's operands. True while the set grows. */
bool plan_grow_needed(const Graph *graph, const ClassPlan *plan, bool *ret);

#endif
