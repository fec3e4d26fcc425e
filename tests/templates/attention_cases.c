/* attention_cases.c - attention on made up tensors, judged by the definition in double. */
#include "tests/templates/attention_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 9007199254740992.0 * 2.0 - 1.0;
}

void *room(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(p);
    return p;
}

void case_open(Case *c, uint64_t seed)
{
    LpAttention *a = &c->a;
    a->e = a->e == 0 ? a->d : a->e;
    const long q = (long)a->b * a->s;
    const long k = (long)a->b * a->t;
    for (int i = 0; i < TENSORS; i++) {
        const int kv = i == K || i == V || i == DK || i == DV;
        const int scalar = i == L || i == DELTA;
        const int of_value = i == V || i == O || i == DOUT || i == DV;
        c->rows[i] = kv ? k : q;
        c->width[i] = (long)a->g * (kv ? 1 : a->r) * (scalar ? 1 : of_value ? a->e : a->d);
        c->stride[i] = c->width[i] + (scalar ? 0 : c->gap + i);
        c->x[i] = room((size_t)(c->rows[i] * c->stride[i]) * sizeof(float));
        c->y[i] = room((size_t)(c->rows[i] * c->width[i]) * sizeof(double));
        for (long j = 0; j < c->rows[i] * c->stride[i]; j++) {
            c->x[i][j] = GAP_VALUE;
        }
        for (long row = 0; row < c->rows[i]; row++) {
            for (long j = 0; j < c->width[i]; j++) {
                const float value = (float)uniform(&seed) * (i == Q || i == K ? 2.0f : 1.0f);
                c->x[i][row * c->stride[i] + j] = value;
                c->y[i][row * c->width[i] + j] = value;
            }
        }
    }
    a->q_stride = c->stride[Q];
    a->k_stride = c->stride[K];
    a->v_stride = c->stride[V];
    a->o_stride = c->stride[O];
    a->dq_stride = c->stride[DQ];
    a->dk_stride = c->stride[DK];
    a->dv_stride = c->stride[DV];
    a->do_stride = c->stride[DOUT];
}

void case_close(Case *c)
{
    for (int i = 0; i < TENSORS; i++) {
        free(c->x[i]);
        free(c->y[i]);
    }
}

void case_reference(Case *c)
{
    const Reference r = {c->y[Q], c->y[K],  c->y[V],  c->y[DOUT], c->y[O],
                         c->y[L], c->y[DQ], c->y[DK], c->y[DV]};
    reference_attention(&c->a, &r);
}

/* Largest difference over the largest magnitude, at least 0.5: gradients that are 0 by cancellation
 * keep the error of their terms. Gaps must be untouched. */
double case_error(const Case *c, int i)
{
    double worst = 0;
    double size = 0.5;
    for (long row = 0; row < c->rows[i]; row++) {
        const float *x = c->x[i] + row * c->stride[i];
        const double *y = c->y[i] + row * c->width[i];
        for (long j = 0; j < c->width[i]; j++) {
            if (y[j] == -INFINITY) {
                worst = x[j] == -INFINITY ? worst : INFINITY;
                continue;
            }
            const double e = fabs(x[j] - y[j]);
            worst = e <= worst ? worst : e;
            size = fabs(y[j]) > size ? fabs(y[j]) : size;
        }
        for (long j = c->width[i]; j < c->stride[i]; j++) {
            assert_true(x[j] == GAP_VALUE);
        }
    }
    return worst / size;
}

void case_check(Case *c, void (*run)(Case *c), double tolerance)
{
    static const int outputs[] = {O, L, DQ, DK, DV};
    static const char *const names[] = {"o", "l", "dq", "dk", "dv"};
    c->a.scale = c->a.scale == 0.0f ? 1.0f / sqrtf((float)c->a.d) : c->a.scale;
    case_open(c, (uint64_t)c->a.s * 131 + (uint64_t)c->a.d);
    case_reference(c);
    run(c);
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        const double e = case_error(c, outputs[i]);
        if (!(e < tolerance)) {
            fail_msg("b%d s%d t%d g%d r%d d%d e%d causal %d window %d chunk %d cap %g base %ld "
                     "%ld%s%s: %s off by %g",
                     c->a.b, c->a.s, c->a.t, c->a.g, c->a.r, c->a.d, c->a.e, c->a.causal,
                     c->a.window, c->a.chunk, (double)c->a.softcap, c->a.base_q, c->a.base_k,
                     c->a.slopes ? " slopes" : "", c->a.starts ? " starts" : "", names[i], e);
        }
    }
    case_close(c);
}
