/* bodies.h - lowered bodies for tests of the printers: a model text on one rank, no planner. */
#ifndef LPLAN_TESTS_CODEGEN_BODIES_H
#define LPLAN_TESTS_CODEGEN_BODIES_H

#include "ir/lower/program.h"
#include "ir/model.h"

/* One stage, one rank, two micro-batches of `batch` sequences; everything saved. */
Program *program_from(Arena *arena, const char *text, int64_t batch, int64_t sequence, int64_t pad);

/* The first in another recipe. */
Program *program_in(Arena *arena, const char *text, const char *recipe, int64_t batch,
                    int64_t sequence, int64_t pad);

/* The same in a pipeline of `stages` ranks, with links spread evenly. */
Program *pipeline_from(Arena *arena, const char *text, int stages, int micro_batches);

/* Every op and attribute that row programs print: all activations, both norms, q/k-norm, partial,
 * interleaved and scaled ropes, learned positions, biases, and a vocabulary that is padded. */
extern const char every_op_model[];
/* Two norms share one gain: its gradient is a sum of two that are no accumulators. */
extern const char twin_gain_model[];

/* Text compiled to a shared object by the system's compiler and opened; fails the test with the
 * compiler's words. */
void *compiled(Arena *arena, const char *text, bool cplusplus);

#endif
