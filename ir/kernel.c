/* kernel.c - the rows of kernels.def as numbers: FLOPs and scratch bytes of one launch. */
#include "ir/graph.h"

enum { TRAFFIC_once = false, TRAFFIC_twice = true };

const KernelInfo kernel_info[FORM_COUNT] = {
#define KERNEL(id, flops, bytes, workspace, sm_percent, in_place)                                  \
    [FORM_##id] = {#id, flops, TRAFFIC_##bytes, WORKSPACE_##workspace, sm_percent, in_place == 1},
#include "ir/kernels.def"
#undef KERNEL
};

/* An op that ids address touches one row of its table per id, not all of them. */
static bool addressed(OpId op)
{
    return op == OP_LOOKUP || op == OP_SCATTER || op == OP_PICK || op == OP_EXPERT ||
           op == OP_EXPERT_DW;
}

/* Heads whose values have a width of their own: scores and their gradients run over d, the rest
 * over the values' width; one letter for both is the table's figure. */
static int64_t two_width_flops(const Node *node, const int64_t extent[MAX_LETTERS], uint16_t width)
{
    bool backward = op_info[node->op].form == FORM_attention_grad;
    int64_t sum = 0, pairs = 1;
    for (int l = 0; l < node->sig.letters; l++) {
        bool in_query = false;
        for (int a = 0; a < MAX_AXES; a++)
            in_query = in_query || node->sig.in[0][a] == l;
        if (!(width >> l & 1))
            pairs = extent_product(pairs, extent[l]);
        else
            sum += extent_product(!backward ? 2 : in_query ? 6 : 4, extent[l]);
    }
    return extent_product(pairs, sum);
}

/* a x b / c, without b more in between than the result has. */
static int64_t part_of(int64_t a, int64_t b, int64_t c)
{
    return extent_product(a / c, b) + a % c * b / c;
}

/* Of rows that were cut by whom they name, an even share of all: their room is larger. */
static int64_t of_room(const Net *net, const Node *node, const int64_t extent[MAX_LETTERS],
                       int routed, int64_t flops)
{
    int naming = node_naming_letter(net, node);
    int64_t each = extent[naming], ranks = letter_extent(net, node, naming) / each;
    int64_t choices = letter_extent(net, node, routed), most = choices < each ? choices : each;
    int64_t least = part_of(flops, choices, ranks * most);
    int64_t even = net->room_percent ? part_of(flops, 100, net->room_percent) : 0;
    return least > even ? least : even;
}

/* Of the work of all experts the part of those in a block: choices fall on all alike. */
static int64_t of_experts(const Net *net, const Node *node, const int64_t extent[MAX_LETTERS],
                          int64_t flops)
{
    int naming = node_naming_letter(net, node);
    for (int l = 0; l < node->sig.letters && naming != NONE; l++)
        if (net->dims.at[node->sig.dim[l]].kind == DIM_ROUTED &&
            extent[naming] < letter_extent(net, node, naming))
            return of_room(net, node, extent, l, flops);
    for (int l = 0; l < node->sig.letters; l++) {
        int64_t all = letter_extent(net, node, l);
        if ((node->sig.base >> l & 1) && extent[l] < all)
            return part_of(flops, extent[l], all);
    }
    return flops;
}

int64_t node_flops_local(const Net *net, const Node *node, const int64_t extent[MAX_LETTERS])
{
    Form form = op_info[node->op].form;
    uint16_t width = node->sig.nosplit & (uint16_t)~node->sig.base;
    if ((form == FORM_attention || form == FORM_attention_grad) && (width & (width - 1)))
        return two_width_flops(node, extent, width);
    int64_t flops = kernel_info[op_info[node->op].form].flops;
    for (int l = 0; l < node->sig.letters; l++) {
        if (addressed(node->op) && (node->sig.base >> l & 1))
            continue;
        flops = extent_product(flops, extent[l]);
    }
    if (node->late) /* of a round that no even router has */
        return 0;
    if (form == FORM_expert || form == FORM_expert_dw)
        flops = of_experts(net, node, extent, flops);
    return flops;
}

int64_t node_flops(const Net *net, const Node *node)
{
    int64_t extent[MAX_LETTERS];
    for (int l = 0; l < node->sig.letters; l++)
        extent[l] = letter_extent(net, node, l);
    return node_flops_local(net, node, extent);
}

/* Mirrors LP_ATTENTION_FORWARD_FLOATS and LP_ATTENTION_BACKWARD_FLOATS of
 * templates/host/attention_tile.h; a test compares. */
enum { TILE_QUERIES = 64, TILE_KEYS = 128, TILE_PAD = 16 };

static int64_t padded(int64_t width)
{
    return (width + TILE_PAD - 1) / TILE_PAD * TILE_PAD;
}

/* d is the width of queries and keys, e that of values. */
static int64_t attention_floats(int64_t d, int64_t e)
{
    return padded(d) * TILE_QUERIES + padded(e) * (TILE_QUERIES + TILE_KEYS) +
           TILE_QUERIES * (TILE_KEYS + 4);
}

static int64_t attention_grad_floats(int64_t d, int64_t e)
{
    return padded(d) * (3 * TILE_QUERIES + TILE_KEYS) + padded(e) * (2 * TILE_QUERIES) +
           TILE_QUERIES * (2 * TILE_KEYS + 2);
}

/* Mirrors LP_EXPERT_FLOATS of templates/host/expert.c: a tile of rows of what is read and of what
 * is made, and the choices sorted by expert. */
enum { EXPERT_TILE = 128 };

static int64_t operand_elements(const int8_t *letter, int axes, const int64_t extent[MAX_LETTERS])
{
    int64_t n = 1;
    for (int a = 0; a < axes; a++)
        n = extent_product(n, extent[letter[a]]);
    return n;
}

static int64_t expert_floats(const Graph *graph, const Node *node,
                             const int64_t extent[MAX_LETTERS])
{
    const Value *choice = &graph->values.at[node->in[0]], *values = graph->values.at;
    int64_t tokens = operand_elements(node->sig.in[0], choice->axes - 1, extent);
    int64_t choices = operand_elements(node->sig.in[0], choice->axes, extent);
    int made = node->op == OP_EXPERT ? NONE : 1;
    int64_t wide = made == NONE
                       ? operand_elements(node->sig.out[0], values[node->out[0]].axes, extent)
                       : operand_elements(node->sig.in[1], values[node->in[1]].axes, extent);
    int read = node->op == OP_EXPERT ? 1 : 2;
    int64_t narrow = operand_elements(node->sig.in[read], values[node->in[read]].axes, extent);
    bool shared = true;
    for (int a = 0; a < values[node->in[read]].axes; a++)
        shared = shared && node->sig.in[read][a] != node->sig.in[0][choice->axes - 1];
    int64_t experts = 1;
    for (int l = 0; l < node->sig.letters; l++) {
        if (node->sig.base >> l & 1)
            experts = extent[l];
    }
    int64_t row = wide / choices + narrow / (shared ? tokens : choices);
    return extent_product(EXPERT_TILE, row) + choices + experts + 1;
}

int64_t node_workspace_bytes(const Graph *graph, const Node *node,
                             const int64_t extent[MAX_LETTERS], int threads)
{
    /* Queries, keys and values come first in both attention ops, their widths last. */
    int width = node->sig.in[0][graph->values.at[node->in[0]].axes - 1], value = width;
    if (node->ins > 2)
        value = node->sig.in[2][graph->values.at[node->in[2]].axes - 1];
    switch (kernel_info[op_info[node->op].form].workspace) {
    case WORKSPACE_none:
        return 0;
    case WORKSPACE_attention:
        return (int64_t)sizeof(float) * threads * attention_floats(extent[width], extent[value]);
    case WORKSPACE_attention_grad:
        return (int64_t)sizeof(float) * threads *
               attention_grad_floats(extent[width], extent[value]);
    case WORKSPACE_expert:
        return (int64_t)sizeof(float) * expert_floats(graph, node, extent);
    }
    return 0;
}
