/* attention_cases.h - attention on made up tensors, judged by the definition in double. */
#ifndef TESTS_TEMPLATES_ATTENTION_CASES_H
#define TESTS_TEMPLATES_ATTENTION_CASES_H

#include <stdint.h>

#include "tests/templates/attention_reference.h"

enum { Q, K, V, O, L, DOUT, DELTA, DQ, DK, DV, TENSORS };

/* Gap floats stand between the rows of every tensor and must keep their value. */
#define GAP_VALUE 1234.5f

typedef struct Case {
    LpAttention a;
    int gap;
    float *x[TENSORS];
    double *y[TENSORS];
    long rows[TENSORS], width[TENSORS], stride[TENSORS];
} Case;

double uniform(uint64_t *state); /* in [-1, 1) */
void *room(size_t bytes);        /* aligned to 64 */

/* Makes the tensors of c->a, whose e is d where it is 0, and fills in the strides. */
void case_open(Case *c, uint64_t seed);
void case_close(Case *c);
/* y of the outputs by the definition. */
void case_reference(Case *c);
/* Largest difference of x and y over the largest magnitude, at least 0.5: gradients that are 0 by
 * cancellation keep the error of their terms. Gaps must be untouched. */
double case_error(const Case *c, int tensor);
/* Opens, runs, judges o, l, dq, dk and dv, and closes. */
void case_check(Case *c, void (*run)(Case *c), double tolerance);

#endif
