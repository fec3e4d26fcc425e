/* eval_one.c - one op of the table on dense operands, by its meaning. */
#include "tests/templates/eval_one.h"

#include <string.h>

#include "ir/sig.h"
#include "tests/check.h"

void eval_one(OpId op, const char *sig, const Attrs *attrs, const NamedDim *dims, int n,
              const double *const *in, double *const *out, const int64_t *origin)
{
    Arena *arena = arena_new("one op");
    Net *net = net_new(arena, "one");
    for (int i = 0; i < n; i++) {
        DimKind kind = str_eq(dims[i].name, "b")   ? DIM_BATCH
                       : str_eq(dims[i].name, "s") ? DIM_SEQUENCE
                                                   : DIM_OTHER;
        DimId id = net_add_dim(net, dims[i].name, kind, dims[i].extent);
        assert_int_equal(net->dims.at[id].letter, dims[i].name[0]);
    }
    Graph *graph = net_add_class(net, "one");
    SigText text;
    int ins = 1;
    for (const char *c = sig; *c; c++)
        ins += *c == ',';
    assert_null(sig_parse(sig, ins, &text));
    ValueId operand[MAX_IN];
    for (int k = 0; k < text.ins; k++) {
        DimId axes[MAX_AXES];
        for (int a = 0; a < text.axes[k]; a++)
            axes[a] = sig_dim(net, text.letter[k][a]);
        operand[k] =
            graph_value(graph, VALUE_INPUT, arena_printf(arena, "in%d", k), text.axes[k], axes);
        if (op_reads_index(op, &text, k))
            graph->values.at[operand[k]].number = NUM_INDEX;
    }
    NodeId id = graph_node(graph, op, "made", sig, attrs, operand, text.ins);
    const Node *node = &graph->nodes.at[id];
    int64_t extent[MAX_LETTERS] = {0}, begin[MAX_LETTERS] = {0};
    for (int l = 0; l < node->sig.letters; l++) {
        extent[l] = letter_extent(net, node, l);
        if (origin && node->sig.base >> l & 1)
            begin[l] = *origin;
    }
    eval_node(net, graph, node, in, out, extent, begin, NULL);
    arena_free(arena);
}
