/* nets.h - nets for tests: read from text, filled with random numbers, and compared with finite
 * differences. */
#ifndef LPLAN_TESTS_IR_NETS_H
#define LPLAN_TESTS_IR_NETS_H

#include "ir/eval.h"
#include "ir/model.h"
#include "tests/check.h"

/* A model text read; fails the test with the printed errors when it does not read. */
Net *net_from(Arena *arena, const char *text, int64_t batch, int64_t sequence, int64_t pad);

/* Arrays of doubles of every parameter, normal(0.5) plus 1 for gains; and zeros. */
double **net_random_params(Arena *arena, const Net *net, uint64_t seed);
double **net_zero_params(Arena *arena, const Net *net);
/* Random ids and labels, uneven weights that sum to 1 over all micro-batches. */
EvalBatch *net_random_batches(Arena *arena, const Net *net, int micro_batches, uint64_t seed);

/* Values of a graph under test: inputs random, then one segment run with whole blocks. */
double **graph_random_inputs(Arena *arena, const Graph *graph, uint64_t seed);
void graph_run(Arena *arena, const Graph *graph, Segment seg, double **value);

/* |a - b| <= tolerance * scale, else the test fails naming `what`. */
void assert_near(double a, double b, double scale, double tolerance, const char *what);

#endif
