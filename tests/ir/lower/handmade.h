/* handmade.h - plans for tests, choice by choice, and their Programs compared with the un-placed
 * graph. */
#ifndef LPLAN_TESTS_IR_LOWER_HANDMADE_H
#define LPLAN_TESTS_IR_LOWER_HANDMADE_H

#include "ir/lower/program.h"
#include "tests/ir/nets.h"

/* A plan of one stage under the fp64 recipe: everything Replicate, everything kept where it is made
 * (handmade_keep). Sequences and their number are the net's. */
Plan *handmade_plan(Arena *arena, const Net *net, const Mesh *mesh, int micro_batches);
/* The choice of a node, a word an atom: a letter of its signature, "R", or "+k", its k-th linear
 * set. Backward nodes have choices of their own: name each. */
void handmade_choose(ClassPlan *plan, const Graph *graph, const char *node, const char *words);
void handmade_home(ClassPlan *plan, const Net *net, const Graph *graph, const char *param,
                   const char *place);
/* Saves every forward value as its maker makes it: call it after the choices. */
void handmade_keep(ClassPlan *plan, const Net *net, const Graph *graph, const Mesh *mesh);
NodeId handmade_node(const Graph *graph, const char *name);

/* Lowers the plan, shows that the static proof holds, runs two optimizer steps in two orders, and
 * gives the largest relative error of loss, gradient norm and parameters against eval_net;
 * *ret_what is where. Infinite on a fault. */
double handmade_error(Arena *arena, const Plan *plan, const Net *net, uint64_t seed,
                      const char **ret_what);

#endif
