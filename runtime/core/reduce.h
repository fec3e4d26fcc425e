/* reduce.h - the arithmetic of reductions, always in member order. */
#ifndef LPLAN_RUNTIME_CORE_REDUCE_H
#define LPLAN_RUNTIME_CORE_REDUCE_H

#include "runtime/lp.h"

/* dst = ((x0 + x1) + x2) + ..., x_me = own, the other `members - 1` inputs at others + slot *
 * stride_bytes in member order. dst may be own. */
void lp_reduce(void *dst, const void *own, int me, const void *others, int64_t stride_bytes,
               int members, int64_t count, LpDtype dtype, LpOp op);

#endif
