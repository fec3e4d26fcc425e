/* kernel.c - the rows of kernels.def as numbers: FLOPs and scratch bytes of one launch. */
#include "ir/graph.h"

enum { TRAFFIC_once = false, TRAFFIC_twice = true };

const KernelInfo kernel_info[FORM_COUNT] = {
#define KERNEL(id, flops, bytes, workspace, sm_percent)                                            \
    [FORM_##id] = {#id, flops, TRAFFIC_##bytes, WORKSPACE_##workspace, sm_percent},
#include "ir/kernels.def"
#undef KERNEL
};

/* An op that ids address touches one row of its table per id, not all of them. */
static bool addressed(OpId op)
{
    return op == OP_LOOKUP || op == OP_SCATTER || op == OP_PICK;
}

int64_t node_flops_local(const Node *node, const int64_t extent[MAX_LETTERS])
{
    int64_t flops = kernel_info[op_info[node->op].form].flops;
    for (int l = 0; l < node->sig.letters; l++) {
        if (addressed(node->op) && (node->sig.base >> l & 1))
            continue;
        flops = extent_product(flops, extent[l]);
    }
    return flops;
}

int64_t node_flops(const Net *net, const Node *node)
{
    int64_t extent[MAX_LETTERS];
    for (int l = 0; l < node->sig.letters; l++)
        extent[l] = letter_extent(net, node, l);
    return node_flops_local(node, extent);
}

/* Mirrors LP_ATTENTION_FORWARD_FLOATS and LP_ATTENTION_BACKWARD_FLOATS of
 * templates/host/attention.c; a test compares. */
enum { TILE_QUERIES = 64, TILE_KEYS = 128, TILE_PAD = 16 };

static int64_t attention_floats(int64_t d)
{
    int64_t width = (d + TILE_PAD - 1) / TILE_PAD * TILE_PAD;
    return width * (2 * TILE_QUERIES + TILE_KEYS) + TILE_QUERIES * (TILE_KEYS + 4);
}

static int64_t attention_grad_floats(int64_t d)
{
    int64_t width = (d + TILE_PAD - 1) / TILE_PAD * TILE_PAD;
    return width * (5 * TILE_QUERIES + TILE_KEYS) + TILE_QUERIES * (2 * TILE_KEYS + 2);
}

int64_t node_workspace_bytes(const Node *node, const int64_t extent[MAX_LETTERS], int threads)
{
    /* The head width is the letter of both forms that neither s, t nor a head is: the last of q. */
    int width = NONE;
    for (int a = 0; a < MAX_AXES && width == NONE; a++) {
        int letter = node->sig.in[0][a];
        bool whole = node->sig.nosplit >> letter & 1;
        if (whole)
            width = letter;
    }
    switch (kernel_info[op_info[node->op].form].workspace) {
    case WORKSPACE_none:
        return 0;
    case WORKSPACE_attention:
        return (int64_t)sizeof(float) * threads * attention_floats(extent[width]);
    case WORKSPACE_attention_grad:
        return (int64_t)sizeof(float) * threads * attention_grad_floats(extent[width]);
    }
    return 0;
}
