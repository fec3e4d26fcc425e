/* test_eval.c - what some ops mean, in numbers found by hand or by another way. */
#include "ir/eval.h"

#include <math.h>
#include <string.h>

#include "tests/ir/nets.h"

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
    eval_node(b->net, b->graph, of, in, block.out, extents, origin, NULL);
    return block;
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

/* ---- choices ---- */

static ValueId numbers(Bench *b, const char *name, const char *letters, bool index,
                       const double *from, double **value)
{
    ValueId id = bench_value(b, VALUE_INPUT, name, letters);
    Value *x = &b->graph->values.at[id];
    x->number = index ? NUM_INDEX : NUM_FLOAT;
    int64_t n = value_elements(b->net, x);
    value[id] = ARENA_ARRAY(b->arena, double, n);
    memcpy(value[id], from, (size_t)n * sizeof *from);
    return id;
}

static void expect(const Bench *b, double *const *value, ValueId id, const double *want, int n)
{
    const Value *x = &b->graph->values.at[id];
    assert_int_equal(value_elements(b->net, x), n);
    for (int i = 0; i < n; i++)
        assert_near(value[id][i], want[i], fmax(1, fabs(want[i])), 1e-14, x->name);
}

/* b 1, s 3 tokens, e 4 experts of which k 2 are chosen, h 2 wide. */
static Bench routing_bench(void)
{
    Bench b = {.arena = arena_new("test")};
    b.net = net_new(b.arena, "routing");
    net_add_dim(b.net, "b", DIM_BATCH, 1);
    net_add_dim(b.net, "s", DIM_SEQUENCE, 3);
    static const char *const names[] = {"e", "k", "h", "f"};
    static const int64_t extents[] = {4, 2, 2, 1};
    for (int i = 0; i < 4; i++)
        net_add_dim(b.net, names[i], DIM_OTHER, extents[i]);
    b.graph = net_add_class(b.net, "routing");
    return b;
}

/* The first of equal scores is better; groups likewise; a choice is the best first. */
static void test_ties(void **state)
{
    (void)state;
    static const double score[12] = {1, 3, 3, 3, 0, 0, 0, 0, -1, 2, 2, 5};
    static const struct {
        Attr_topk attrs;
        double want[6];
    } cases[] = {
        {{0}, {1, 2, 0, 1, 3, 1}},
        {{.groups = 2, .kept = 1, .by = GROUP_MAX}, {1, 0, 0, 1, 3, 2}},
        /* groups worth 4 and 6, 0 and 0, 1 and 7 */
        {{.groups = 2, .kept = 1, .by = GROUP_TOP2}, {2, 3, 0, 1, 3, 2}},
        {{.groups = 4, .kept = 3, .by = GROUP_TOP2}, {1, 2, 0, 1, 3, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Bench b = routing_bench();
        double *value[8] = {0};
        Attrs attrs = {.topk = cases[i].attrs};
        ValueId x = numbers(&b, "x", "bse", false, score, value);
        ValueId y = node(&b, OP_TOPK, "y", "bse->bsk", &attrs, 1, x, NONE, NONE);
        graph_run(b.arena, b.graph, SEG_FORWARD, value);
        expect(&b, value, y, cases[i].want, 6);
        arena_free(b.arena);
    }
}

/* An expert takes first choices of all tokens before second ones, then by position; a choice too
 * many is nobody's, and weighs and makes nothing. */
static void test_capacity_overflow(void **state)
{
    (void)state;
    static const double choice[6] = {0, 1, 0, 2, 2, 0}, share[6] = {1, 2, 3, 4, 5, 6};
    static const double one[6] = {0, 1, -1, -1, 2, -1}, two[6] = {0, 1, 0, 2, 2, -1};
    static const double weight[4] = {10, 20, 30, 40}, x[6] = {1, 2, 3, 4, 5, 6};
    for (int bound = 1; bound <= 2; bound++) {
        Bench b = routing_bench();
        double *value[24] = {0};
        Attrs attrs = {.capacity = {.experts = 4, .bound = bound}};
        ValueId c = numbers(&b, "c", "bsk", true, choice, value);
        ValueId scores = bench_value(&b, VALUE_PARAM, "scores", "bse");
        value[scores] = ARENA_ARRAY(b.arena, double, 12);
        for (int i = 0; i < 12; i++)
            value[scores][i] = share[i % 6];
        ValueId tokens = numbers(&b, "x", "bsh", false, x, value);
        ValueId w = bench_value(&b, VALUE_PARAM, "w", "efh");
        value[w] = ARENA_ARRAY(b.arena, double, 8);
        for (int i = 0; i < 8; i++)
            value[w][i] = weight[i / 2];
        ValueId kept = node(&b, OP_CAPACITY, "kept", "bsk->bsk", &attrs, 1, c, NONE, NONE);
        ValueId load = node(&b, OP_TALLY, "load", "bsk->e", NULL, 1, kept, NONE, NONE);
        ValueId taken = node(&b, OP_TAKE, "taken", "bsk,bse->bsk", NULL, 2, kept, scores, NONE);
        ValueId y = node(&b, OP_EXPERT, "y", "bsk,bsh,efh->bskf", NULL, 3, kept, tokens, w);
        b.graph->chain_out = node(&b, OP_EINSUM, "z", "bsk,bskf->bskf", NULL, 2, taken, y, NONE);
        graph_differentiate(b.graph);
        static const double ones[6] = {1, 1, 1, 1, 1, 1};
        value[b.graph->grad_in] = ARENA_ARRAY(b.arena, double, 6);
        memcpy(value[b.graph->grad_in], ones, sizeof ones);
        graph_run(b.arena, b.graph, SEG_FORWARD, value);
        graph_run(b.arena, b.graph, SEG_BACKWARD, value);
        const double *stays = bound == 1 ? one : two;
        expect(&b, value, kept, stays, 6);
        double loads[4] = {0}, made[6], dw[8] = {0}, ds[12] = {0};
        for (int i = 0; i < 6; i++) {
            int token = i / 2, e = (int)stays[i];
            double sum = x[2 * token] + x[2 * token + 1];
            made[i] = e < 0 ? 0 : weight[e] * sum;
            if (e < 0)
                continue;
            loads[e]++;
            for (int h = 0; h < 2; h++)
                dw[2 * e + h] += value[scores][4 * token + e] * x[2 * token + h];
            ds[4 * token + e] += made[i];
        }
        expect(&b, value, load, loads, 4);
        expect(&b, value, y, made, 6);
        /* Expert 3 has no token: no load, and a gradient of exactly zero. */
        assert_true(loads[3] == 0);
        expect(&b, value, b.graph->params.at[1].grad, dw, 8);
        expect(&b, value, b.graph->params.at[0].grad, ds, 12);
        arena_free(b.arena);
    }
}

/* ---- positions ---- */

static void test_positions(void **state)
{
    (void)state;
    Bench b = routing_bench();
    double *value[8] = {0};
    static const double starts[3] = {0, 1, 1};
    Attrs two = {.iota = {.offset = 2}}, temper = {.temper = {.scale = 0.5, .length = 2}};
    ValueId begin = numbers(&b, "begin", "bs", true, starts, value);
    ValueId at = node(&b, OP_PLACES, "at", "bs->bs", NULL, 1, begin, NONE, NONE);
    ValueId behind = node(&b, OP_PLACES, "behind", "bs->bs", &two, 1, begin, NONE, NONE);
    NodeId iota = graph_node(b.graph, OP_IOTA, "iota", "->s", &two, NULL, 0);
    static const double one[3] = {1, 1, 1};
    ValueId x = numbers(&b, "x", "bs", false, one, value);
    ValueId y = node(&b, OP_TEMPER, "y", "bs->bs", &temper, 1, x, NONE, NONE);
    temper.temper.ahead = 1;
    ValueId z = node(&b, OP_TEMPER, "z", "bs->bs", &temper, 1, x, NONE, NONE);
    graph_run(b.arena, b.graph, SEG_FORWARD, value);
    expect(&b, value, at, (double[]){0, 0, 1}, 3);
    expect(&b, value, behind, (double[]){2, 2, 3}, 3);
    expect(&b, value, graph_out(b.graph, iota), (double[]){2, 3, 4}, 3);
    double far = 1 + 0.5 * log(2);
    expect(&b, value, y, (double[]){1, 1, far}, 3);
    expect(&b, value, z, (double[]){1, far, far}, 3);
    arena_free(b.arena);
}

/* The slopes of the paper for 8 heads and of its code for 6 and 12. */
static void test_slopes(void **state)
{
    (void)state;
    static const double eight[8] = {0.5,     0.25,     0.125,     0.0625,
                                    0.03125, 0.015625, 0.0078125, 0.00390625};
    for (int h = 0; h < 8; h++)
        assert_near(alibi_slope(h, 8), eight[h], 1, 1e-16, "8 heads");
    for (int h = 0; h < 8; h++)
        assert_near(alibi_slope(h, 12), eight[h], 1, 1e-16, "12 heads, those of 8");
    for (int h = 8; h < 12; h++)
        assert_near(alibi_slope(h, 12), exp2(-0.5 * (2 * (h - 8) + 1)), 1, 1e-16, "12 heads");
    assert_near(alibi_slope(4, 6), exp2(-1), 1, 1e-16, "6 heads");
    assert_near(alibi_slope(5, 6), exp2(-3), 1, 1e-16, "6 heads");
}

/* ---- packed documents ---- */

enum { PACKED = 7, FIRST = 3, WIDE = 4 };

/* Queries, keys and values of `rows` tokens, turned and attended; begins of documents when packed.
 */
typedef struct Packed {
    Bench bench;
    double *value[64];
    ValueId in[3], out, at;
} Packed;

static Packed packed_bench(int tokens, bool packed, int from, bool biased)
{
    Packed p = {.bench = {.arena = arena_new("test")}};
    Bench *b = &p.bench;
    b->net = net_new(b->arena, "packed");
    net_add_dim(b->net, "b", DIM_BATCH, 1);
    net_add_dim(b->net, "s", DIM_SEQUENCE, tokens);
    net_add_dim(b->net, "g", DIM_OTHER, 2);
    net_add_dim(b->net, "d", DIM_OTHER, WIDE);
    b->graph = net_add_class(b->net, "packed");
    static const char *const names[3] = {"q", "k", "v"};
    Attrs rope = rope_attrs(ROPE_PLAIN, 4, false), attention = attention_attrs(true, 3);
    attention.attention.chunk = 0;
    double begins[PACKED];
    for (int i = 0; i < tokens; i++)
        begins[i] = i < FIRST ? 0 : FIRST;
    ValueId starts = packed ? numbers(b, "starts", "bs", true, begins, p.value) : NONE;
    ValueId turned[3];
    for (int i = 0; i < 3; i++) {
        p.in[i] = bench_value(b, VALUE_PARAM, names[i], "bsgd");
        int n = tokens * 2 * WIDE;
        p.value[p.in[i]] = ARENA_ARRAY(b->arena, double, n);
        for (int e = 0; e < n; e++)
            p.value[p.in[i]][e] = sin(1.7 * (e + from * 2 * WIDE) + i);
        turned[i] =
            i == 2 ? p.in[i]
                   : node(b, OP_ROPE, i == 0 ? "qr" : "kr", packed ? "bsgd,bs->bsgd" : "bsgd->bsgd",
                          &rope, packed ? 2 : 1, p.in[i], starts, NONE);
    }
    ValueId operand[5] = {turned[0], turned[1], turned[2]};
    int ins = 3;
    if (biased)
        operand[ins++] =
            graph_out(b->graph, graph_node(b->graph, OP_SLOPES, "slopes", "->g", NULL, NULL, 0));
    if (packed)
        operand[ins++] = starts;
    const char *sig = arena_printf(b->arena, "bsgd,btgd,btgd%s%s->bsgd,bsg", biased ? ",g" : "",
                                   packed ? ",bs" : "");
    p.out =
        graph_out(b->graph, graph_node(b->graph, OP_ATTENTION, "o", sig, &attention, operand, ins));
    p.at = packed ? node(b, OP_PLACES, "at", "bs->bs", NULL, 1, starts, NONE, NONE)
                  : graph_out(b->graph, graph_node(b->graph, OP_IOTA, "at", "->s", NULL, NULL, 0));
    b->graph->chain_out = p.out;
    graph_differentiate(b->graph);
    int n = tokens * 2 * WIDE;
    double *dy = p.value[b->graph->grad_in] = ARENA_ARRAY(b->arena, double, n);
    for (int e = 0; e < n; e++)
        dy[e] = cos(0.9 * (e + from * 2 * WIDE));
    assert_true(b->graph->values.n <= 64);
    graph_run(b->arena, b->graph, SEG_FORWARD, p.value);
    graph_run(b->arena, b->graph, SEG_BACKWARD, p.value);
    return p;
}

/* Two documents in one row are the two run one by one: results, positions and gradients. */
static void test_packed_documents(void **state)
{
    (void)state;
    for (int biased = 0; biased < 2; biased++) {
        Packed whole = packed_bench(PACKED, true, 0, biased);
        Packed part[2] = {packed_bench(FIRST, false, 0, biased),
                          packed_bench(PACKED - FIRST, false, FIRST, biased)};
        for (int token = 0; token < PACKED; token++) {
            const Packed *p = &part[token >= FIRST];
            int at = token < FIRST ? token : token - FIRST;
            assert_true(whole.value[whole.at][token] == p->value[p->at][at]);
            for (int e = 0; e < 2 * WIDE; e++) {
                int x = token * 2 * WIDE + e, y = at * 2 * WIDE + e;
                assert_near(whole.value[whole.out][x], p->value[p->out][y], 1, 1e-14, "o");
                for (int i = 0; i < 3; i++)
                    assert_near(whole.value[whole.bench.graph->params.at[i].grad][x],
                                p->value[p->bench.graph->params.at[i].grad][y], 1, 1e-13, "grad");
            }
        }
        arena_free(whole.bench.arena);
        arena_free(part[0].bench.arena);
        arena_free(part[1].bench.arena);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_grad_operand_order),
    cmocka_unit_test(test_rope_turns),
    cmocka_unit_test(test_attention_key_blocks),
    cmocka_unit_test(test_ties),
    cmocka_unit_test(test_capacity_overflow),
    cmocka_unit_test(test_positions),
    cmocka_unit_test(test_slopes),
    cmocka_unit_test(test_packed_documents),
};

RUN(tests)
