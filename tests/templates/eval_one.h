/* eval_one.h - one op of the table on dense operands, by its meaning. */
#ifndef LPLAN_TESTS_TEMPLATES_EVAL_ONE_H
#define LPLAN_TESTS_TEMPLATES_EVAL_ONE_H

#include "ir/eval.h"

typedef struct NamedDim {
    const char *name; /* one letter, which is the dim's letter in signatures */
    int64_t extent;
} NamedDim;

/* The node of `op` with this signature on whole values. origin: the global index where the block of
 * the base letter begins is *origin, or NULL for 0. */
void eval_one(OpId op, const char *sig, const Attrs *attrs, const NamedDim *dims, int n,
              const double *const *in, double *const *out, const int64_t *origin);

#endif
