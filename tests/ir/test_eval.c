/* test_eval.c - every op: its gradient against finite differences, and its blocks against the
 * whole. */
#include "ir/eval.h"

#include <math.h>
#include <string.h>

#include "tests/ir/nets.h"

/* ---- gradients, op by op ---- */

typedef struct Bench {
    Arena *arena;
    Net *net;
    Graph *graph;
} Bench;

/* b 2, s 3, h 4, g 2, r 3, d 4, c as asked, v 7 of which 5 are used. */
static Bench bench_new(void)
{
    Bench b = {.arena = arena_new("test")};
    b.net = net_new(b.arena, "bench");
    net_add_dim(b.net, "b", DIM_BATCH, 2);
    net_add_dim(b.net, "s", DIM_SEQUENCE, 3);
    static const char *const names[] = {"h", "g", "r", "d", "c", "v", "f"};
    static const int64_t extents[] = {4, 2, 3, 4, 3, 7, 5};
    for (int i = 0; i < 7; i++)
        net_add_dim(b.net, names[i], DIM_OTHER, extents[i]);
    b.net->dims.at[net_dim(b.net, "v")].used = 5;
    b.graph = net_add_class(b.net, "bench");
    return b;
}

static ValueId bench_value(Bench *b, ValueKind kind, const char *name, const char *letters)
{
    DimId dim[MAX_AXES];
    int axes = (int)strlen(letters);
    for (int a = 0; a < axes; a++)
        dim[a] = net_dim(b->net, (char[]){letters[a], '\0'});
    return graph_value(b->graph, kind, name, axes, dim);
}

static ValueId param(Bench *b, const char *name, const char *letters)
{
    return bench_value(b, VALUE_PARAM, name, letters);
}

static ValueId node(Bench *b, OpId op, const char *name, const char *sig, const Attrs *attrs,
                    int ins, ValueId x, ValueId y, ValueId z)
{
    return graph_out(b->graph,
                     graph_node(b->graph, op, name, sig, attrs, (ValueId[]){x, y, z}, ins));
}

/* sum of y * dy, forward run anew. */
static double weighted(Bench *b, double **value, const double *dy)
{
    Arena *arena = arena_new("run");
    double **copy = ARENA_ARRAY(arena, double *, b->graph->values.n);
    memcpy(copy, value, (size_t)b->graph->values.n * sizeof *copy);
    graph_run(arena, b->graph, SEG_FORWARD, copy);
    ValueId out = b->graph->chain_out;
    double sum = 0;
    for (int64_t i = 0; i < value_elements(b->net, &b->graph->values.at[out]); i++)
        sum += copy[out][i] * dy[i];
    arena_free(arena);
    return sum;
}

/* Differentiates y and compares every parameter's gradient; frees the bench. */
static void check_bench(Bench *b, ValueId y)
{
    Graph *graph = b->graph;
    graph->chain_out = y;
    graph_differentiate(graph);
    double **value = graph_random_inputs(b->arena, graph, 3);
    graph_run(b->arena, graph, SEG_FORWARD, value);
    graph_run(b->arena, graph, SEG_BACKWARD, value);
    for (int p = 0; p < graph->params.n; p++) {
        const Param *of = &graph->params.at[p];
        assert_true(of->grad != NONE);
        double *x = value[of->value];
        for (int64_t i = 0; i < value_elements(b->net, &graph->values.at[of->value]); i++) {
            double keep = x[i], step = 1e-4, near, far;
            x[i] = keep + step;
            near = weighted(b, value, value[graph->grad_in]);
            x[i] = keep - step;
            near -= weighted(b, value, value[graph->grad_in]);
            x[i] = keep + 2 * step;
            far = weighted(b, value, value[graph->grad_in]);
            x[i] = keep - 2 * step;
            far -= weighted(b, value, value[graph->grad_in]);
            x[i] = keep;
            assert_near((8 * near - far) / (12 * step), value[of->grad][i],
                        fmax(1, fabs(value[of->grad][i])), 1e-8, of->name);
        }
    }
    arena_free(b->arena);
}

static void test_grad_products(void **state)
{
    (void)state;
    static const char *const sigs[][3] = {
        {"bsh", "grdh", "bsh,grdh->bsgrd"},   {"bsh", "hgrd", "bsh,hgrd->bsgrd"},
        {"bsgrd", "hgrd", "bsgrd,hgrd->bsh"}, {"bsh", "bsf", "bsh,bsf->bhf"},
        {"bsh", "bsh", "bsh,bsh->bs"},        {"bs", "h", "bs,h->bsh"},
    };
    for (size_t i = 0; i < sizeof sigs / sizeof *sigs; i++) {
        Bench b = bench_new();
        ValueId x = param(&b, "x", sigs[i][0]), w = param(&b, "w", sigs[i][1]);
        check_bench(&b, node(&b, OP_EINSUM, "y", sigs[i][2], NULL, 2, x, w, NONE));
    }
}

/* A weight's gradient begins with the operand that its first axis comes from. */
static void test_grad_operand_order(void **state)
{
    (void)state;
    Bench b = bench_new();
    ValueId x = param(&b, "x", "bsh"), w = param(&b, "w", "grdh");
    b.graph->chain_out = node(&b, OP_EINSUM, "y", "bsh,grdh->bsgrd", NULL, 2, x, w, NONE);
    graph_differentiate(b.graph);
    static const char *const want[] = {"bsgrd,grdh->bsh", "bsgrd,bsh->grdh"};
    for (int p = 0; p < 2; p++) {
        Str text = str_new(b.arena);
        ValueId grad = b.graph->params.at[p].grad;
        graph_put_sig(&text, b.graph, &b.graph->nodes.at[b.graph->values.at[grad].made]);
        assert_string_equal(text.at, want[p]);
    }
    arena_free(b.arena);
}

static void test_grad_pointwise(void **state)
{
    (void)state;
    Bench b = bench_new();
    ValueId x = param(&b, "x", "bsh"), z = param(&b, "z", "bsh"), c = param(&b, "c", "h");
    ValueId p = param(&b, "p", "sh");
    ValueId sum = node(&b, OP_ADD, "sum", "bsh,bsh->bsh", NULL, 2, x, z, NONE);
    ValueId product = node(&b, OP_MUL, "product", "bsh,bsh->bsh", NULL, 2, sum, x, NONE);
    Attrs factor = {.scale = {.factor = -0.7}};
    ValueId scaled = node(&b, OP_SCALE, "scaled", "bsh->bsh", &factor, 1, product, NONE, NONE);
    ValueId biased = node(&b, OP_BIAS, "biased", "bsh,h->bsh", NULL, 2, scaled, c, NONE);
    check_bench(&b, node(&b, OP_BIAS, "y", "bsh,sh->bsh", NULL, 2, biased, p, NONE));
}

static void test_grad_act(void **state)
{
    (void)state;
    for (int kind = 0; kind < ACT_KIND_COUNT; kind++) {
        Bench b = bench_new();
        Attrs attrs = {.act = {.kind = (ActKind)kind}};
        ValueId x = param(&b, "x", "bsh");
        check_bench(&b, node(&b, OP_ACT, "y", "bsh->bsh", &attrs, 1, x, NONE, NONE));
    }
}

static void test_grad_norm(void **state)
{
    (void)state;
    for (int kind = 0; kind < NORM_KIND_COUNT; kind++) {
        Bench b = bench_new();
        Attrs attrs = {.norm = {.kind = (NormKind)kind, .eps = 0.1}};
        ValueId x = param(&b, "x", "bsgrd"), g = param(&b, "g", "d");
        check_bench(&b, node(&b, OP_NORM, "y", "bsgrd,d->bsgrd", &attrs, 2, x, g, NONE));
    }
}

static Attrs rope_attrs(RopeScaling scaling, int64_t rotary, bool interleaved)
{
    return (Attrs){.rope = {.theta = 50,
                            .rotary = rotary,
                            .interleaved = interleaved,
                            .scaling = scaling,
                            .factor = 4,
                            .low = 1,
                            .high = 4,
                            .original = 24}};
}

static void test_grad_rope(void **state)
{
    (void)state;
    for (int scaling = 0; scaling < ROPE_SCALING_COUNT; scaling++) {
        for (int how = 0; how < 4; how++) {
            Bench b = bench_new();
            Attrs attrs = rope_attrs((RopeScaling)scaling, how & 1 ? 4 : 2, how & 2);
            ValueId x = param(&b, "x", "bsgrd");
            check_bench(&b, node(&b, OP_ROPE, "y", "bsgrd->bsgrd", &attrs, 1, x, NONE, NONE));
        }
    }
}

/* The inverse turns back, and lengths stay. */
static void test_rope_turns(void **state)
{
    (void)state;
    Bench b = bench_new();
    Attrs attrs = rope_attrs(ROPE_LLAMA3, 4, false), back = attrs;
    back.rope.inverse = 1;
    ValueId x = param(&b, "x", "bsgd");
    ValueId y = node(&b, OP_ROPE, "y", "bsgd->bsgd", &attrs, 1, x, NONE, NONE);
    ValueId z = node(&b, OP_ROPE, "z", "bsgd->bsgd", &back, 1, y, NONE, NONE);
    double **value = graph_random_inputs(b.arena, b.graph, 1);
    graph_run(b.arena, b.graph, SEG_FORWARD, value);
    double moved = 0;
    for (int i = 0; i < 2 * 3 * 2 * 4; i++) {
        assert_near(value[x][i], value[z][i], 1, 1e-14, "turned back");
        moved = fmax(moved, fabs(value[x][i] - value[y][i]));
    }
    assert_true(moved > 0.1);
    /* Position 0 does not turn; position 1 turns pair 0 by one radian (short waves are not
     * stretched here). */
    double c = cos(1), sn = sin(1);
    for (int i = 0; i < 4; i++)
        assert_near(value[x][i], value[y][i], 1, 0, "position 0");
    const double *p = value[x] + 8, *q = value[y] + 8;
    double turns = 24 / (2 * M_PI), ramp = (turns - 1) / 3;
    double rate = (1 - ramp) / 4 + ramp;
    c = cos(rate);
    sn = sin(rate);
    assert_near(q[0], p[0] * c - p[2] * sn, 1, 1e-14, "pair 0, first");
    assert_near(q[2], p[2] * c + p[0] * sn, 1, 1e-14, "pair 0, second");
    arena_free(b.arena);
}

static Attrs attention_attrs(bool causal, int64_t window)
{
    return (Attrs){.attention = {.scale = 0.6, .causal = causal, .window = window}};
}

static void test_grad_attention(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        Bench b = bench_new();
        Attrs attrs = attention_attrs(how > 0, how == 2 ? 2 : 0);
        ValueId q = param(&b, "q", "bsgrd"), k = param(&b, "k", "bsgd"), v = param(&b, "v", "bsgd");
        check_bench(&b,
                    node(&b, OP_ATTENTION, "y", "bsgrd,btgd,btgd->bsgrd,bsgr", &attrs, 3, q, k, v));
    }
}

static void test_grad_split(void **state)
{
    (void)state;
    Bench b = bench_new();
    ValueId x = param(&b, "x", "bscgd");
    NodeId split = graph_node(b.graph, OP_SPLIT, "part", "bscgd->bsgd,bsgd,bsgd", NULL, &x, 1);
    ValueId part[3];
    memcpy(part, b.graph->nodes.at[split].out, sizeof part);
    ValueId m = node(&b, OP_MUL, "m", "bsgd,bsgd->bsgd", NULL, 2, part[0], part[1], NONE);
    check_bench(&b, node(&b, OP_MUL, "y", "bsgd,bsgd->bsgd", NULL, 2, m, part[2], NONE));
}

static void test_grad_lookup(void **state)
{
    (void)state;
    Bench b = bench_new();
    ValueId ids = bench_value(&b, VALUE_DATA, "ids", "bs"), table = param(&b, "table", "vh");
    ValueId at = graph_out(b.graph, graph_node(b.graph, OP_IOTA, "at", "->s", NULL, NULL, 0));
    ValueId places = param(&b, "places", "fh");
    ValueId x = node(&b, OP_LOOKUP, "x", "bs,vh->bsh", NULL, 2, ids, table, NONE);
    ValueId p = node(&b, OP_LOOKUP, "p", "s,fh->sh", NULL, 2, at, places, NONE);
    check_bench(&b, node(&b, OP_BIAS, "y", "bsh,sh->bsh", NULL, 2, x, p, NONE));
}

static void test_grad_cross_entropy(void **state)
{
    (void)state;
    Bench b = bench_new();
    ValueId ids = bench_value(&b, VALUE_DATA, "labels", "bs"), z = param(&b, "z", "bsv");
    ValueId m = node(&b, OP_VMAX, "m", "bsv->bs", NULL, 1, z, NONE, NONE);
    ValueId sum = node(&b, OP_SUMEXP, "sum", "bsv,bs->bs", NULL, 2, z, m, NONE);
    ValueId pick = node(&b, OP_PICK, "pick", "bs,bsv->bs", NULL, 2, ids, z, NONE);
    check_bench(&b, node(&b, OP_NLL, "y", "bs,bs,bs->bs", NULL, 3, sum, m, pick));
}

/* ---- blocks ---- */

/* One node of a graph run on a block per letter `cut`: [begin, begin + extent). Gathers inputs,
 * returns the outputs. */
typedef struct Block {
    double *out[MAX_OUT];
    int64_t n[MAX_OUT];
} Block;

static int sig_letter(const Node *of, char letter)
{
    int l = 0;
    while (of->sig.letter[l] != letter)
        l++;
    return l;
}

/* Copies the block of a whole operand; axes whose letter is `cut` keep [begin, begin + extent). */
static double *cut_block(Bench *b, const Node *of, ValueId id, const int8_t *letters, int cut,
                         int64_t begin, int64_t extent, const double *whole, int64_t *ret_n)
{
    const Value *value = &b->graph->values.at[id];
    int64_t n = 1, index[MAX_AXES] = {0};
    for (int a = 0; a < value->axes; a++)
        n *= letters[a] == cut ? extent : letter_extent(b->net, of, letters[a]);
    double *block = ARENA_ARRAY(b->arena, double, n);
    for (int64_t i = 0; i < n; i++) {
        int64_t offset = 0;
        for (int a = 0; a < value->axes; a++)
            offset = offset * letter_extent(b->net, of, letters[a]) + index[a] +
                     (letters[a] == cut ? begin : 0);
        block[i] = whole ? whole[offset] : 0;
        for (int a = value->axes - 1; a >= 0; a--) {
            int64_t end = letters[a] == cut ? extent : letter_extent(b->net, of, letters[a]);
            if (++index[a] < end)
                break;
            index[a] = 0;
        }
    }
    *ret_n = n;
    return block;
}

static Block run_block(Bench *b, NodeId id, char letter, int64_t begin, int64_t extent,
                       double **value)
{
    const Node *of = &b->graph->nodes.at[id];
    int cut = sig_letter(of, letter);
    int64_t extents[MAX_LETTERS] = {0}, origin[MAX_LETTERS] = {0}, n;
    for (int l = 0; l < of->sig.letters; l++)
        extents[l] = l == cut ? extent : letter_extent(b->net, of, l);
    origin[cut] = begin;
    const double *in[MAX_IN] = {0};
    Block block = {{0}, {0}};
    for (int i = 0; i < of->ins; i++)
        in[i] =
            cut_block(b, of, of->in[i], of->sig.in[i], cut, begin, extent, value[of->in[i]], &n);
    for (int o = 0; o < of->outs; o++)
        block.out[o] =
            cut_block(b, of, of->out[o], of->sig.out[o], cut, begin, extent, NULL, &block.n[o]);
    eval_node(b->net, b->graph, of, in, block.out, extents, origin);
    return block;
}

/* Every output that has the letter is the block of the whole; every other one sums (or maxes) to
 * the whole. */
static void check_blocks(Bench *b, NodeId id, char letter, double **value)
{
    const Node *of = &b->graph->nodes.at[id];
    int cut = sig_letter(of, letter);
    int64_t whole = letter_extent(b->net, of, cut),
            parts[3] = {1, whole - 1 - whole / 3, whole / 3};
    bool max = op_info[of->op].monoid == MONOID_MAX;
    double *merged[MAX_OUT] = {0};
    int64_t begin = 0;
    for (int p = 0; p < 3; begin += parts[p++]) {
        if (parts[p] == 0)
            continue;
        Block block = run_block(b, id, letter, begin, parts[p], value);
        for (int o = 0; o < of->outs; o++) {
            int axes = b->graph->values.at[of->out[o]].axes;
            int64_t n;
            double *want = cut_block(b, of, of->out[o], of->sig.out[o], cut, begin, parts[p],
                                     value[of->out[o]], &n);
            assert_int_equal(n, block.n[o]);
            if (memchr(of->sig.out[o], cut, (size_t)axes)) {
                for (int64_t i = 0; i < n; i++)
                    assert_near(block.out[o][i], want[i], 1, 1e-13, of->name);
                continue;
            }
            if (!merged[o]) {
                merged[o] = block.out[o];
                continue;
            }
            for (int64_t i = 0; i < n; i++)
                merged[o][i] =
                    max ? fmax(merged[o][i], block.out[o][i]) : merged[o][i] + block.out[o][i];
        }
    }
    assert_int_equal(begin, whole);
    for (int o = 0; o < of->outs; o++) {
        for (int64_t i = 0;
             merged[o] && i < value_elements(b->net, &b->graph->values.at[of->out[o]]); i++)
            assert_near(merged[o][i], value[of->out[o]][i], 1, 1e-13, of->name);
    }
}

/* A graph with every op of forward and backward; each is cut along every letter that may be split.
 * t of attention's forward is apart: its parts merge by log-sum-exp. */
static void test_blocks(void **state)
{
    (void)state;
    Bench b = bench_new();
    ValueId ids = bench_value(&b, VALUE_DATA, "ids", "bs"),
            labels = bench_value(&b, VALUE_DATA, "labels", "bs");
    ValueId table = param(&b, "table", "vh"), gain = param(&b, "gain", "h"),
            bias = param(&b, "bias", "h");
    ValueId wq = param(&b, "wq", "grdh"), wk = param(&b, "wk", "cgdh"),
            wo = param(&b, "wo", "vgrd");
    ValueId places = param(&b, "places", "fh");
    Attrs norm = {.norm = {.kind = NORM_LAYER, .eps = 1e-5}}, act = {.act = {.kind = ACT_SILU}};
    Attrs rope = rope_attrs(ROPE_LLAMA3, 4, false), attention = attention_attrs(true, 0);
    Attrs factor = {.scale = {.factor = 0.5}};
    b.net->dims.at[net_dim(b.net, "c")].extent = b.net->dims.at[net_dim(b.net, "c")].used = 2;
    ValueId x = node(&b, OP_LOOKUP, "x", "bs,vh->bsh", NULL, 2, ids, table, NONE);
    ValueId at = graph_out(b.graph, graph_node(b.graph, OP_IOTA, "at", "->s", NULL, NULL, 0));
    ValueId pe = node(&b, OP_LOOKUP, "pe", "s,fh->sh", NULL, 2, at, places, NONE);
    x = node(&b, OP_BIAS, "xp", "bsh,sh->bsh", NULL, 2, x, pe, NONE);
    x = node(&b, OP_NORM, "n", "bsh,h->bsh", &norm, 2, x, gain, NONE);
    x = node(&b, OP_BIAS, "nb", "bsh,h->bsh", NULL, 2, x, bias, NONE);
    ValueId y = node(&b, OP_ACT, "act", "bsh->bsh", &act, 1, x, NONE, NONE);
    y = node(&b, OP_MUL, "mul", "bsh,bsh->bsh", NULL, 2, x, y, NONE);
    y = node(&b, OP_SCALE, "scaled", "bsh->bsh", &factor, 1, y, NONE, NONE);
    x = node(&b, OP_ADD, "add", "bsh,bsh->bsh", NULL, 2, x, y, NONE);
    ValueId q = node(&b, OP_EINSUM, "q", "bsh,grdh->bsgrd", NULL, 2, x, wq, NONE);
    ValueId kv = node(&b, OP_EINSUM, "kv", "bsh,cgdh->bscgd", NULL, 2, x, wk, NONE);
    NodeId split = graph_node(b.graph, OP_SPLIT, "k", "bscgd->bsgd,bsgd", NULL, &kv, 1);
    ValueId k = b.graph->nodes.at[split].out[0], v = b.graph->nodes.at[split].out[1];
    q = node(&b, OP_ROPE, "qr", "bsgrd->bsgrd", &rope, 1, q, NONE, NONE);
    k = node(&b, OP_ROPE, "kr", "bsgd->bsgd", &rope, 1, k, NONE, NONE);
    ValueId a = node(&b, OP_ATTENTION, "a", "bsgrd,btgd,btgd->bsgrd,bsgr", &attention, 3, q, k, v);
    ValueId z = node(&b, OP_EINSUM, "z", "bsgrd,vgrd->bsv", NULL, 2, a, wo, NONE);
    ValueId m = node(&b, OP_VMAX, "m", "bsv->bs", NULL, 1, z, NONE, NONE);
    ValueId sum = node(&b, OP_SUMEXP, "sum", "bsv,bs->bs", NULL, 2, z, m, NONE);
    ValueId pick = node(&b, OP_PICK, "pick", "bs,bsv->bs", NULL, 2, labels, z, NONE);
    b.graph->chain_out = node(&b, OP_NLL, "nll", "bs,bs,bs->bs", NULL, 3, sum, m, pick);
    graph_differentiate(b.graph);
    graph_node(b.graph, OP_SUMSQ, "norm2", "vh->", NULL, &table, 1);
    double **value = graph_random_inputs(b.arena, b.graph, 11);
    graph_run(b.arena, b.graph, SEG_FORWARD, value);
    graph_run(b.arena, b.graph, SEG_BACKWARD, value);
    graph_run(b.arena, b.graph, SEG_FORWARD, value);
    bool seen[OP_COUNT] = {false};
    int cuts = 0;
    for (int n = 0; n < b.graph->nodes.n; n++) {
        const Node *of = &b.graph->nodes.at[n];
        seen[of->op] = true;
        for (int l = 0; l < of->sig.letters; l++) {
            bool keys = of->op == OP_ATTENTION_GRAD && of->sig.letter[l] == 't';
            if ((of->sig.nosplit >> l & 1) && !keys)
                continue;
            check_blocks(&b, n, of->sig.letter[l], value);
            cuts++;
        }
    }
    for (int op = 0; op < OP_COUNT; op++)
        assert_true(seen[op] || op == OP_CLIP || op == OP_ADAMW);
    assert_true(cuts > 100);
    arena_free(b.arena);
}

/* Blocks of keys merge by log-sum-exp; a block that no query sees gives o = 0 and l = -inf. */
static void test_attention_key_blocks(void **state)
{
    (void)state;
    Bench b = bench_new();
    Attrs attrs = attention_attrs(true, 2);
    ValueId q = param(&b, "q", "bsgrd"), k = param(&b, "k", "bsgd"), v = param(&b, "v", "bsgd");
    node(&b, OP_ATTENTION, "a", "bsgrd,btgd,btgd->bsgrd,bsgr", &attrs, 3, q, k, v);
    const Node *of = &b.graph->nodes.at[0];
    double **value = graph_random_inputs(b.arena, b.graph, 5);
    graph_run(b.arena, b.graph, SEG_FORWARD, value);
    Block part[3];
    for (int t = 0; t < 3; t++)
        part[t] = run_block(&b, 0, 't', t, 1, value);
    int rows = 2 * 3 * 2 * 3, hidden = 0;
    for (int row = 0; row < rows; row++) {
        double l = 0;
        for (int t = 0; t < 3; t++) {
            l += exp(part[t].out[1][row]);
            hidden += isinf(part[t].out[1][row]) != 0;
        }
        assert_near(log(l), value[of->out[1]][row], 1, 1e-13, "l");
        for (int i = 0; i < 4; i++) {
            double o = 0;
            for (int t = 0; t < 3; t++) {
                o += exp(part[t].out[1][row]) / l * part[t].out[0][row * 4 + i];
                assert_true(!isinf(part[t].out[1][row]) || part[t].out[0][row * 4 + i] == 0);
            }
            assert_near(o, value[of->out[0]][row * 4 + i], 1, 1e-13, "o");
        }
    }
    /* Query 0 sees key 0, query 1 keys 0 and 1, query 2 keys 1 and 2: four of nine pairs are
     * hidden. */
    assert_int_equal(hidden, 4 * rows / 3);
    arena_free(b.arena);
}

/* Memory that was never written must show, whatever the op. */
static void test_poison_shows(void **state)
{
    (void)state;
    static const struct {
        OpId op;
        const char *sig;
        int ins;
        const char *in[3];
        int poison;
    } cases[] = {
        {OP_VMAX, "bsv->bs", 1, {"bsv"}, 0},
        {OP_LOOKUP, "bs,vh->bsh", 2, {"bs", "vh"}, 0},
        {OP_SCATTER, "bs,bsh->vh", 2, {"bs", "bsh"}, 0},
        {OP_ONEHOT, "bs,bs->bsv", 2, {"bs", "bs"}, 0},
        {OP_PICK, "bs,bsv->bs", 2, {"bs", "bsv"}, 0},
        {OP_CLIP, "->", 1, {""}, 0},
        {OP_ACT, "bsh->bsh", 1, {"bsh"}, 0},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        for (int kind = 0; kind < (cases[c].op == OP_ACT ? ACT_KIND_COUNT : 1); kind++) {
            Bench b = bench_new();
            ValueId in[3];
            static const char *const names[] = {"x", "y", "z"};
            for (int i = 0; i < cases[c].ins; i++) {
                bool ids = i == 0 && cases[c].ins == 2;
                in[i] = bench_value(&b, ids ? VALUE_DATA : VALUE_PARAM, ids ? "ids" : names[i],
                                    cases[c].in[i]);
            }
            Attrs attrs = {0};
            if (cases[c].op == OP_CLIP)
                attrs.clip.max_norm = 1;
            attrs.act.kind = cases[c].op == OP_ACT ? (ActKind)kind : attrs.act.kind;
            graph_node(b.graph, cases[c].op, "out", cases[c].sig, &attrs, in, cases[c].ins);
            double **value = graph_random_inputs(b.arena, b.graph, 2);
            value[in[cases[c].poison]][0] = NAN;
            graph_run(b.arena, b.graph, SEG_FORWARD, value);
            assert_true(isnan(value[b.graph->nodes.at[0].out[0]][0]));
            arena_free(b.arena);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_grad_products),
    cmocka_unit_test(test_grad_operand_order),
    cmocka_unit_test(test_grad_pointwise),
    cmocka_unit_test(test_grad_act),
    cmocka_unit_test(test_grad_norm),
    cmocka_unit_test(test_grad_rope),
    cmocka_unit_test(test_rope_turns),
    cmocka_unit_test(test_grad_attention),
    cmocka_unit_test(test_grad_split),
    cmocka_unit_test(test_grad_lookup),
    cmocka_unit_test(test_grad_cross_entropy),
    cmocka_unit_test(test_blocks),
    cmocka_unit_test(test_attention_key_blocks),
    cmocka_unit_test(test_poison_shows),
};

RUN(tests)
