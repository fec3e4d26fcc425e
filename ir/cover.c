/* cover.c - the order of the sequence, and which pairs of its positions meet: the masks of
 * attention as counts.
 */
#include "ir/graph.h"

/* The zigzag of context parallelism (Megatron-LM, Transformer Engine): of the 2n runs of a
 * sequence, shard i of n has runs i and 2n - 1 - i, so that under a causal mask all shards see
 * equally much. */
int64_t dim_position(const Net *net, DimId dim, int64_t place)
{
    if (dim != net->sequence || net->runs == 0)
        return place;
    int64_t length = net->dims.at[dim].extent / net->runs, at = place / length;
    int64_t run = at % 2 == 0 ? at / 2 : net->runs - 1 - at / 2;
    return run * length + place % length;
}

bool node_needs_order(const Net *net, const Node *node)
{
    for (int l = 0; l < node->sig.letters; l++)
        if (node->sig.dim[l] == net->sequence && (node->sig.nosplit >> l & 1) &&
            !(node->sig.base >> l & 1))
            return true;
    return false;
}

/* Neighbouring positions. */
typedef struct Run {
    int64_t begin, n;
} Run;

/* The places from `from` on, as far as their positions are neighbours, `most` at most. */
static Run run_from(const Net *net, int64_t from, int64_t most)
{
    int64_t n = most;
    if (net->runs > 0) {
        int64_t length = net->dims.at[net->sequence].extent / net->runs;
        n = length - from % length;
    }
    return (Run){dim_position(net, net->sequence, from), n < most ? n : most};
}

/* Pairs i < n, j < m with j - i <= d: row i has min(m, d + i + 1) of them, if that is positive. */
static int64_t pairs_below(int64_t n, int64_t m, int64_t d)
{
    int64_t first = d < 0 ? -d : 0;            /* the first row with a pair */
    int64_t full = d + 1 >= m ? 0 : m - 1 - d; /* the first row with all */
    if (first >= n)
        return 0;
    full = full > n ? n : full;
    int64_t part = full - first;
    return part * (d + first + 1) + part * (part - 1) / 2 + (n - full) * m;
}

static int64_t run_pairs(const Attr_attention *mask, Run query, Run key)
{
    int64_t ahead = query.begin - key.begin, pairs = extent_product(query.n, key.n);
    if (mask->causal)
        pairs = pairs_below(query.n, key.n, ahead);
    if (mask->window > 0)
        pairs -= pairs_below(query.n, key.n, ahead - mask->window);
    return pairs;
}

/* The part of a run that lies in one chunk of the sequence. */
static Run part_in(Run run, int64_t begin, int64_t end)
{
    int64_t from = run.begin > begin ? run.begin : begin;
    int64_t to = run.begin + run.n < end ? run.begin + run.n : end;
    return (Run){from, to > from ? to - from : 0};
}

static int64_t mask_pairs(const Attr_attention *mask, Run query, Run key)
{
    int64_t pairs = 0, size = mask->chunk;
    if (size <= 0)
        return run_pairs(mask, query, key);
    for (int64_t begin = query.begin / size * size; begin < query.begin + query.n; begin += size) {
        Run q = part_in(query, begin, begin + size), k = part_in(key, begin, begin + size);
        if (q.n > 0 && k.n > 0)
            pairs += run_pairs(mask, q, k);
    }
    return pairs;
}

int64_t node_pairs(const Net *net, const Node *node, const int64_t origin[MAX_LETTERS],
                   const int64_t extent[MAX_LETTERS])
{
    int s = node->sig.in[0][1], t = node->sig.in[1][1];
    int64_t pairs = 0;
    CHECK(node_crosses(net, node) && op_info[node->op].attrs == ATTRS_attention);
    for (int64_t i = 0; i < extent[s];) {
        Run query = run_from(net, origin[s] + i, extent[s] - i);
        for (int64_t j = 0; j < extent[t];) {
            Run key = run_from(net, origin[t] + j, extent[t] - j);
            pairs += mask_pairs(&node->attrs.attention, query, key);
            j += key.n;
        }
        i += query.n;
    }
    return pairs;
}

WholePairs node_whole_pairs(const Net *net, const Node *node)
{
    int64_t origin[MAX_LETTERS] = {0}, whole[MAX_LETTERS];
    for (int l = 0; l < node->sig.letters; l++)
        whole[l] = letter_extent(net, node, l);
    int64_t rows = whole[node->sig.in[0][1]];
    return (WholePairs){rows, node_pairs(net, node, origin, whole),
                        extent_product(rows, whole[node->sig.in[1][1]])};
}

bool node_only_orders(const Graph *graph, const Node *node)
{
    const Attr_attention *mask = &node->attrs.attention;
    return node_crosses(graph->net, node) && mask->window == 0 && mask->chunk == 0 &&
           attention_slopes(graph, node) == NONE && attention_starts(graph, node) == NONE &&
           attention_words(graph, node) == NONE;
}

Cover node_cover(const Net *net, const Node *node, const int64_t origin[MAX_LETTERS],
                 const int64_t extent[MAX_LETTERS])
{
    int64_t pairs = node_pairs(net, node, origin, extent);
    int64_t all = extent_product(extent[node->sig.in[0][1]], extent[node->sig.in[1][1]]);
    return pairs == 0 ? COVER_EMPTY : pairs == all ? COVER_FULL : COVER_DIAGONAL;
}
