/* attention_reference.h - attention in double by its definition, for the kernels to be judged by.
 */
#ifndef TESTS_TEMPLATES_ATTENTION_REFERENCE_H
#define TESTS_TEMPLATES_ATTENTION_REFERENCE_H

#include "templates/host/attention.c"

/* All arrays dense: q, dq [b][s][g][r][d], o, dout [b][s][g][r][e], k, dk [b][t][g][d], v, dv
 * [b][t][g][e], l [b][s][g][r]. The strides of a are not looked at. Gradients may be NULL together.
 */
typedef struct Reference {
    const double *q, *k, *v, *dout;
    double *o, *l, *dq, *dk, *dv;
} Reference;

void reference_attention(const LpAttention *a, const Reference *x);

#endif
