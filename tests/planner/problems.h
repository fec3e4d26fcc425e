/* problems.h - what the planner's tests plan: example models on example clusters, and small random
 * problems. */
#ifndef LPLAN_TESTS_PLANNER_PROBLEMS_H
#define LPLAN_TESTS_PLANNER_PROBLEMS_H

#include "ir/base/rng.h"
#include "planner/search.h"

/* A stream of random numbers: the same seed throws the same. */
typedef struct Dice {
    uint64_t seed, next;
} Dice;
int64_t dice(Dice *dice, int64_t low, int64_t high); /* both included */

/* A model of examples/models on a preset; fails the test when it cannot be read. */
Problem *problem_example(Arena *arena, const char *model, const char *cluster, int devices,
                         int64_t batch, int64_t sequence, const char *recipe);
/* A small Llama of two to `most_layers` layers on a random machine with little memory: 2 to 8
 * devices in two link levels. */
Problem *problem_random(Arena *arena, Dice *rng, int most_layers);
/* A small Mixtral on such a machine, with four or eight experts in each of up to `most_layers`. */
Problem *problem_sparse(Arena *arena, Dice *rng, int most_layers);
/* A small Llama on such a machine, with memory for sequences that are long enough to be cut. */
Problem *problem_long(Arena *arena, Dice *rng, int most_layers);
/* A small Llama of many layers on a line of 8 devices, each with all the memory it wants. */
Problem *problem_deep(Arena *arena, int layers, bool tied, int64_t batch);
/* Complete pins of a text. */
Pins pins_given(const Problem *problem, const char *text);
void problem_free(Problem *problem); /* its model document; the arena is the caller's */

#endif
