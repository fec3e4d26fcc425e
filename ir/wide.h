/* wide.h - which values keep fp32 where a recipe stores its values in 16 bits.
 *
 * Statistics of rows (sums, maxima, log-sum-exps), what is computed of them alone, sums over tokens
 * (gradients of parameters), scores that choose experts, and the weights of the loss. The rest is
 * as wide as the recipe says. */
#ifndef LPLAN_IR_WIDE_H
#define LPLAN_IR_WIDE_H

#include "ir/graph.h"

/* Marks the outputs of the last node; behind a choice also the scores it was made from and what
 * already reads them. */
void graph_widen(Graph *graph);
/* Is a sum over this letter of the node one over tokens, hence wide? (wide.c's rule for values,
 * of a sum that does not come about inside one kernel.) */
bool letter_counts_tokens(const Graph *graph, const Node *node, int letter);

#endif
