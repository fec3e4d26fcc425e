/* test_blocks.c - the columns of ops.def that placements rest on: blocks of an op against the
 * whole, parts of a sum against the sum, and memory that nobody wrote. */
#include <math.h>
#include <string.h>

#include "ir/base/rng.h"
#include "ir/sig.h"
#include "tests/ir/op_cases.h"

enum { PARTS = 3 };

/* An origin that a kernel has no business to read. */
static const int64_t nobody_told = INT64_C(1) << 40;

/* One node's operands, whole or the block that a letter is cut to. */
typedef struct Cut {
    int letter; /* NONE: whole */
    int64_t begin, extent;
} Cut;

static int64_t axis_extent(const OpBench *b, const Node *of, int letter, const Cut *cut)
{
    return letter == cut->letter ? cut->extent : letter_extent(b->net, of, letter);
}

static double *cut_operand(const OpBench *b, const Node *of, ValueId id, const int8_t *letter,
                           const Cut *cut, const double *whole, int64_t *ret_n)
{
    int axes = b->graph->values.at[id].axes;
    int64_t n = 1, index[MAX_AXES] = {0};
    for (int a = 0; a < axes; a++)
        n *= axis_extent(b, of, letter[a], cut);
    double *block = ARENA_ARRAY(b->arena, double, n);
    for (int64_t i = 0; i < n; i++) {
        int64_t offset = 0;
        for (int a = 0; a < axes; a++)
            offset = offset * letter_extent(b->net, of, letter[a]) + index[a] +
                     (letter[a] == cut->letter ? cut->begin : 0);
        block[i] = whole ? whole[offset] : NAN;
        for (int a = axes - 1; a >= 0 && ++index[a] == axis_extent(b, of, letter[a], cut); a--)
            index[a] = 0;
    }
    *ret_n = n;
    return block;
}

typedef struct Block {
    double *out[MAX_OUT];
    int64_t n[MAX_OUT];
} Block;

/* The node on a block; origins are told for base letters only. */
static Block run_block(const OpBench *b, const Node *of, const Cut *cut, double *const *value)
{
    int64_t extent[MAX_LETTERS] = {0}, origin[MAX_LETTERS] = {0}, n;
    for (int l = 0; l < of->sig.letters; l++) {
        extent[l] = axis_extent(b, of, l, cut);
        origin[l] = !(of->sig.base >> l & 1) ? nobody_told : l == cut->letter ? cut->begin : 0;
    }
    const double *in[MAX_IN] = {0};
    Block block = {{0}, {0}};
    for (int i = 0; i < of->ins; i++)
        in[i] = cut_operand(b, of, of->in[i], of->sig.in[i], cut, value[of->in[i]], &n);
    for (int o = 0; o < of->outs; o++)
        block.out[o] = cut_operand(b, of, of->out[o], of->sig.out[o], cut, NULL, &block.n[o]);
    eval_node(b->net, b->graph, of, in, block.out, extent, origin, NULL);
    return block;
}

static void same(const double *x, const double *y, int64_t n, const char *what)
{
    double largest = 1;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(y[i]));
    for (int64_t i = 0; i < n; i++) {
        if (isinf(y[i]) || isnan(y[i]))
            fail_msg("%s: element %lld of the whole is %g", what, (long long)i, y[i]);
        assert_near(x[i], y[i], largest, 1e-12, what);
    }
}

/* Results that have the letter are blocks of the whole; the others sum (or max) to it. */
static void check_cut(const OpBench *b, const Node *of, int letter, double *const *value,
                      const char *what)
{
    int64_t whole = letter_extent(b->net, of, letter), begin = 0;
    int64_t part[PARTS] = {1, whole - 1 - whole / 3, whole / 3};
    bool max = op_info[of->op].monoid == MONOID_MAX;
    Block merged = {{0}, {0}};
    for (int p = 0; p < PARTS; begin += part[p++]) {
        if (part[p] == 0)
            continue;
        Cut cut = {letter, begin, part[p]};
        Block block = run_block(b, of, &cut, value);
        for (int o = 0; o < of->outs; o++) {
            int axes = b->graph->values.at[of->out[o]].axes;
            int64_t n;
            if (memchr(of->sig.out[o], letter, (size_t)axes)) {
                double *want =
                    cut_operand(b, of, of->out[o], of->sig.out[o], &cut, value[of->out[o]], &n);
                same(block.out[o], want, block.n[o], what);
            } else if (!merged.out[o]) {
                merged.out[o] = block.out[o];
                merged.n[o] = block.n[o];
            } else {
                for (int64_t i = 0; i < block.n[o]; i++) {
                    double *to = &merged.out[o][i];
                    *to = max ? fmax(*to, block.out[o][i]) : *to + block.out[o][i];
                }
            }
        }
    }
    assert_int_equal(begin, whole);
    for (int o = 0; o < of->outs; o++) {
        if (merged.out[o])
            same(merged.out[o], value[of->out[o]], merged.n[o], what);
    }
}

/* A block deals its rows out to rounds by itself; whichever way, every row has one of them. */
static void check_deal(const OpBench *b, const Node *of, int letter, double *const *value,
                       const char *what)
{
    int64_t whole = letter_extent(b->net, of, letter), n;
    Cut cut = {letter, whole / 2, whole - whole / 2};
    const double *all = cut_operand(b, of, of->in[0], of->sig.in[0], &cut, value[of->in[0]], &n);
    double *merged = ARENA_ARRAY(b->arena, double, n);
    for (int64_t i = 0; i < n; i++)
        merged[i] = -1;
    for (int r = 0; r < of->attrs.deal.rounds; r++) {
        Node round = *of;
        round.attrs.deal.round = r;
        Block block = run_block(b, &round, &cut, value);
        for (int64_t i = 0; i < n; i++)
            merged[i] += block.out[0][i] + 1; /* -1 where the row has another round */
    }
    same(merged, all, n, what);
}

static void run_case(const OpBench *b)
{
    graph_run(b->arena, b->graph, SEG_FORWARD, b->value);
    graph_run(b->arena, b->graph, SEG_BACKWARD, b->value);
}

static const char *node_text(const OpBench *b, const Node *of)
{
    Str text = str_new(b->arena);
    str_putf(&text, "%s: %s ", op_case_text(b), op_info[of->op].text);
    graph_put_sig(&text, b->graph, of);
    return text.at;
}

/* Keys of attention merge by log-sum-exp, which test_eval shows; those of its gradient by sums. */
static bool may_cut(const Node *of, int letter)
{
    if (of->op == OP_ATTENTION_GRAD && of->sig.letter[letter] == 't')
        return true;
    return !(of->sig.nosplit >> letter & 1);
}

static void test_cuts(void **state)
{
    (void)state;
    int cuts[OP_COUNT] = {0};
    for (int i = 0; i < op_case_count; i++) {
        OpBench b = op_bench(&op_cases[i]);
        run_case(&b);
        for (int n = 0; n < b.graph->nodes.n; n++) {
            const Node *of = &b.graph->nodes.at[n];
            const char *text = node_text(&b, of);
            for (int l = 0; l < of->sig.letters; l++) {
                if (!may_cut(of, l))
                    continue;
                void (*check)(const OpBench *, const Node *, int, double *const *, const char *) =
                    of->op == OP_DEAL ? check_deal : check_cut;
                check(&b, of, l, b.value,
                      arena_printf(b.arena, "%s cut along %c", text, of->sig.letter[l]));
                cuts[of->op]++;
            }
        }
        arena_free(b.arena);
    }
    for (int op = 0; op < OP_COUNT; op++) {
        if (cuts[op] == 0 && op != OP_CLIP) /* a scalar */
            fail_msg("%s was never cut", op_info[op].text);
    }
}

/* ---- linear ---- */

static bool in_set(const char *set, int operand)
{
    for (; *set && *set != '|'; set++) {
        if (*set - '0' == operand)
            return true;
    }
    return false;
}

/* x = first + rest for the operands of one set; the op's results add up likewise. */
static void check_sum(const OpBench *b, const Node *of, const char *set, const char *what)
{
    const Cut whole = {NONE, 0, 0};
    Block part[2];
    for (int p = 0; p < 2; p++) {
        double **value = ARENA_ARRAY(b->arena, double *, b->graph->values.n);
        memcpy(value, b->value, (size_t)b->graph->values.n * sizeof *value);
        for (int i = 0; i < of->ins; i++) {
            ValueId id = of->in[i];
            if (!in_set(set, i))
                continue;
            for (int j = 0; j < of->ins; j++)
                assert_true(in_set(set, j) || of->in[j] != id);
            int64_t n = value_elements(b->net, &b->graph->values.at[id]);
            value[id] = ARENA_ARRAY(b->arena, double, n);
            for (int64_t e = 0; e < n; e++) {
                double first = rng_normal(29, (uint64_t)id, (uint64_t)e);
                value[id][e] = p == 0 ? first : b->value[id][e] - first;
            }
        }
        part[p] = run_block(b, of, &whole, value);
    }
    for (int o = 0; o < of->outs; o++) {
        for (int64_t e = 0; e < part[0].n[o]; e++)
            part[0].out[o][e] += part[1].out[o][e];
        same(part[0].out[o], b->value[of->out[o]], part[0].n[o], what);
    }
}

static void test_sums(void **state)
{
    (void)state;
    bool seen[OP_COUNT] = {false};
    for (int i = 0; i < op_case_count; i++) {
        OpBench b = op_bench(&op_cases[i]);
        run_case(&b);
        for (int n = 0; n < b.graph->nodes.n; n++) {
            const Node *of = &b.graph->nodes.at[n];
            const char *set = op_info[of->op].linear;
            bool twice = of->ins == 2 && of->in[0] == of->in[1];
            if (of->op == OP_EINSUM && of->ins == 1) /* its second factor is one */
                continue;
            for (; *set && !twice; set += strcspn(set, "|") + (strchr(set, '|') != NULL)) {
                check_sum(&b, of, set,
                          arena_printf(b.arena, "%s with partial %s", node_text(&b, of), set));
                seen[of->op] = true;
            }
        }
        arena_free(b.arena);
    }
    for (int op = 0; op < OP_COUNT; op++) {
        if (*op_info[op].linear && !seen[op])
            fail_msg("no sum of %s", op_info[op].text);
    }
}

/* ---- memory that was never written ---- */

/* A shift has the slope 1 wherever it is. */
static bool may_hide(const Node *of, int operand)
{
    return of->op == OP_CURVE_GRAD && of->attrs.curve.kind == CURVE_SHIFT && operand == 0;
}

/* An operand of nothing but NaN shows in some result, whatever the op and the operand. */
static void test_poison_shows(void **state)
{
    (void)state;
    const Cut whole = {NONE, 0, 0};
    for (int i = 0; i < op_case_count; i++) {
        OpBench b = op_bench(&op_cases[i]);
        run_case(&b);
        for (int n = 0; n < b.graph->nodes.n; n++) {
            const Node *of = &b.graph->nodes.at[n];
            for (int in = 0; in < of->ins; in++) {
                ValueId id = of->in[in];
                int64_t count = value_elements(b.net, &b.graph->values.at[id]);
                double *keep = b.value[id];
                b.value[id] = ARENA_ARRAY(b.arena, double, count);
                for (int64_t e = 0; e < count; e++)
                    b.value[id][e] = NAN;
                Block block = run_block(&b, of, &whole, b.value);
                b.value[id] = keep;
                bool shows = false;
                for (int o = 0; o < of->outs; o++) {
                    for (int64_t e = 0; e < block.n[o]; e++)
                        shows = shows || isnan(block.out[o][e]);
                }
                if (!shows && !may_hide(of, in))
                    fail_msg("%s hides that operand %d was never written", node_text(&b, of), in);
            }
        }
        arena_free(b.arena);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_cuts),
    cmocka_unit_test(test_sums),
    cmocka_unit_test(test_poison_shows),
};

RUN(tests)
