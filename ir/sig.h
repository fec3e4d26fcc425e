/* sig.h - signatures: text, letters, and the match of a concrete signature against an op's pattern.
 */
#ifndef LPLAN_IR_SIG_H
#define LPLAN_IR_SIG_H

#include "ir/graph.h"

enum { SIG_TEXT_MAX = (MAX_IN + MAX_OUT) * (MAX_AXES + 1) + 3 };

/* "bsh,grdh->bsgrd" taken apart; letters are bytes. */
typedef struct SigText {
    int ins, outs;
    int axes[MAX_IN + MAX_OUT]; /* inputs, then outputs from MAX_IN on */
    char letter[MAX_IN + MAX_OUT][MAX_AXES];
} SigText;

/* A dim has the letter, or NONE; 't' is the sequence seen as key positions. */
DimId sig_dim(const Net *net, char letter);
/* The word that says why, or NULL when it is fine. `ins` tells "" (no operand) from one scalar. */
const char *sig_parse(const char *text, int ins, SigText *ret);
void sig_put(Str *str, const SigText *sig);
/* The signature of a node as text taken apart; axis counts come from its values. */
SigText sig_of_node(const Graph *graph, const Node *node);
/* Letters are numbered in order of appearance. Sets nosplit, base and in_out too. NULL when it
 * matches the op's pattern and every letter has a dim; else why not. */
const char *sig_resolve(const Net *net, OpId op, const SigText *text, Sig *ret);
/* Why graph_node would refuse, or NULL with the signature resolved. */
const char *graph_node_fault(const Graph *graph, OpId op, const char *sig, const ValueId *in,
                             int ins, SigText *ret_text, Sig *ret_sig);
/* graph_node with a name for every output; the node is called after the first. */
NodeId graph_node_named(Graph *graph, OpId op, const char *const name[MAX_OUT], const char *sig,
                        const Attrs *attrs, const ValueId *in, int ins);
/* net_collect_params, but says why it cannot instead of ending the program. */
const char *net_collect_fault(Net *net);
/* The attributes of a node of a known op are in range and fit its dims. */
bool node_attrs_fine(const Graph *graph, const Node *node);
/* Operands and results that hold whole numbers: ids, choices of experts, begins of documents. */
bool op_reads_index(OpId op, const SigText *sig, int operand);
bool op_makes_index(OpId op);

#endif
