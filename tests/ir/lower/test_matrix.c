/* test_matrix.c - steps of whole matrices: the graph against Muon by hand, what is a matrix, where
 * its blocks go by price, and shares that end between matrices. */
#include <math.h>
#include <string.h>

#include "ir/base/rng.h"
#include "ir/eval.h"
#include "ir/lower/check.h"
#include "ir/lower/matrix_row.h"
#include "tests/check.h"
#include "tests/ir/lower/plans.h"
#include "tests/ir/tiny_models.h"

enum { SIDE = 64, STEPS = 5 };

typedef struct Dense {
    int rows, cols;
    double at[SIDE][SIDE];
} Dense;

static Dense times(const Dense *a, const Dense *b)
{
    Dense c = {.rows = a->rows, .cols = b->cols};
    for (int i = 0; i < a->rows; i++)
        for (int j = 0; j < b->cols; j++)
            for (int k = 0; k < a->cols; k++)
                c.at[i][j] += a->at[i][k] * b->at[k][j];
    return c;
}

static Dense turned(const Dense *a)
{
    Dense c = {.rows = a->cols, .cols = a->rows};
    for (int i = 0; i < a->rows; i++)
        for (int j = 0; j < a->cols; j++)
            c.at[j][i] = a->at[i][j];
    return c;
}

static double squares(const Dense *a)
{
    double sum = 0;
    for (int i = 0; i < a->rows; i++)
        for (int j = 0; j < a->cols; j++)
            sum += a->at[i][j] * a->at[i][j];
    return sum;
}

/* X (3.4445 - 4.7750 X'X + 2.0315 (X'X)^2), so many times, of X over its norm: always by the
 * columns, which is the same. */
static Dense polar(const Dense *from, int rounds, double eps)
{
    Dense x = *from;
    double norm = sqrt(squares(&x) + eps * eps);
    for (int i = 0; i < x.rows; i++)
        for (int j = 0; j < x.cols; j++)
            x.at[i][j] /= norm;
    for (int round = 0; round < rounds; round++) {
        Dense t = turned(&x), g = times(&t, &x), gg = times(&g, &g);
        for (int i = 0; i < g.rows; i++)
            for (int j = 0; j < g.cols; j++)
                g.at[i][j] = 3.4445 * (i == j) - 4.7750 * g.at[i][j] + 2.0315 * gg.at[i][j];
        x = times(&x, &g);
    }
    return x;
}

typedef struct Hand {
    Dense w, m, o;
} Hand;

static void step_by_hand(Hand *hand, const double *g, const Muon *muon, double coef, double lr,
                         double decay)
{
    Dense u = hand->w;
    for (int i = 0; i < u.rows; i++)
        for (int j = 0; j < u.cols; j++) {
            double own = coef * g[i * u.cols + j], *m = &hand->m.at[i][j];
            *m += (1 - muon->momentum) * (own - *m);
            u.at[i][j] = muon->nesterov ? own + muon->momentum * (*m - own) : *m;
        }
    hand->o = polar(&u, muon->steps, muon->eps);
    double side = hand->w.rows > hand->w.cols ? hand->w.rows : hand->w.cols;
    double long_side = (double)hand->w.rows / hand->w.cols;
    double match = muon->match_rms ? 0.2 * sqrt(side) : sqrt(long_side > 1 ? long_side : 1);
    for (int i = 0; i < u.rows; i++)
        for (int j = 0; j < u.cols; j++)
            hand->w.at[i][j] =
                (1 - lr * decay) * hand->w.at[i][j] - lr * muon->rate * match * hand->o.at[i][j];
}

static void eval_graph(Arena *arena, const Graph *graph, double *const *operand)
{
    static const int64_t origin[MAX_LETTERS] = {0};
    double **value = ARENA_ARRAY(arena, double *, graph->values.n);
    for (int p = 0; p < graph->params.n; p++)
        value[graph->params.at[p].value] = operand[p];
    for (int n = 0; n < graph->nodes.n; n++) {
        const Node *node = &graph->nodes.at[n];
        const double *in[MAX_IN];
        int64_t extent[MAX_LETTERS];
        for (int k = 0; k < node->ins; k++)
            in[k] = value[node->in[k]];
        for (int l = 0; l < node->sig.letters; l++)
            extent[l] = letter_extent(graph->net, node, l);
        double *out =
            ARENA_ARRAY(arena, double, value_elements(graph->net, &graph->values.at[node->out[0]]));
        value[node->out[0]] = out;
        eval_node(graph->net, graph, node, in, &out, extent, origin, NULL);
    }
    for (int p = 0; p < graph->params.n; p++)
        if (graph->params.at[p].grad != NONE)
            memcpy(
                operand[p], value[graph->params.at[p].grad],
                (size_t)value_elements(graph->net, &graph->values.at[graph->params.at[p].value]) *
                    sizeof(double));
}

static void check_steps(Arena *arena, const Net *net, const Graph *class, int param,
                        const Muon *muon)
{
    const Graph *graph = matrix_step(arena, net, class, param, muon);
    MatrixShape shape;
    assert_true(param_is_matrix(class, param, &shape));
    const Value *value = &graph->values.at[graph->params.at[MATRIX_WEIGHT].value];
    Hand hand = {.w = {1, 1, {{0}}}};
    for (int a = 0; a < value->axes; a++)
        *(a < shape.rows ? &hand.w.rows : &hand.w.cols) *=
            (int)graph->net->dims.at[value->dim[a]].extent;
    assert_true(hand.w.rows <= SIDE && hand.w.cols <= SIDE);
    hand.m = hand.w;
    int n = hand.w.rows * hand.w.cols;
    double *w = ARENA_ARRAY(arena, double, n), *m = ARENA_ARRAY(arena, double, n),
           *g = ARENA_ARRAY(arena, double, n), coef = 0.3, lr = 0.05, decay = 0.2;
    for (int i = 0; i < n; i++)
        w[i] = hand.w.at[i / hand.w.cols][i % hand.w.cols] = rng_normal(1, 2, (uint64_t)i);
    for (int s = 0; s < STEPS; s++) {
        for (int i = 0; i < n; i++)
            g[i] = rng_normal(3, (uint64_t)s, (uint64_t)i);
        eval_graph(arena, graph, (double *[]){w, m, g, &coef, &lr, &decay});
        step_by_hand(&hand, g, muon, coef, lr, decay);
        for (int i = 0; i < n; i++) {
            assert_true(fabs(w[i] - hand.w.at[i / hand.w.cols][i % hand.w.cols]) < 1e-11);
            assert_true(fabs(m[i] - hand.m.at[i / hand.w.cols][i % hand.w.cols]) < 1e-12);
        }
        /* five rounds leave every singular value between 0.68 and 1.14 */
        double small = hand.w.rows < hand.w.cols ? hand.w.rows : hand.w.cols;
        if (muon->steps == 5) {
            assert_true(squares(&hand.o) > 0.4 * small);
            assert_true(squares(&hand.o) < 1.3 * small);
        }
    }
}

/* Every matrix of the tiny models: wide, tall, of several axes. */
static void test_steps_are_muons(void **state)
{
    (void)state;
    Arena *arena = arena_new("muon");
    static const char *const models[] = {tiny_llama, tiny_gpt2};
    int seen = 0;
    for (int i = 0; i < 2; i++) {
        PlanCase what = {models[i], NULL, 1, 4, 6, "mbs=1", "fp64 muon", 0};
        Net *net;
        plan_of(arena, &what, &net);
        for (int c = 0; c < net->classes.n; c++)
            for (int p = 0; p < net->classes.at[c]->params.n; p++) {
                MatrixShape shape;
                Muon muon = muon_default();
                if (!param_is_matrix(net->classes.at[c], p, &shape))
                    continue;
                check_steps(arena, net, net->classes.at[c], p, &muon);
                muon = (Muon){3, 0.5, 1e-3, false, 2, false};
                check_steps(arena, net, net->classes.at[c], p, &muon);
                seen++;
            }
    }
    assert_true(seen >= 11);
    arena_free(arena);
}

/* Embeddings, heads, gains and biases are AdamW's. */
static void test_what_is_a_matrix(void **state)
{
    (void)state;
    Arena *arena = arena_new("kinds");
    Net *net;
    PlanCase what = {tiny_llama, NULL, 1, 4, 6, "mbs=1", "fp64 muon", 0};
    plan_of(arena, &what, &net);
    for (int c = 0; c < net->classes.n; c++)
        for (int p = 0; p < net->classes.at[c]->params.n; p++) {
            const char *name = net->classes.at[c]->params.at[p].name;
            MatrixShape shape;
            bool hidden = strstr(name, "proj.weight") != NULL;
            assert_int_equal(param_is_matrix(net->classes.at[c], p, &shape), hidden);
            assert_int_equal(shape.stack, 0);
        }
    arena_free(arena);
}

static int count_moves(const Body *body, MoveKind kind, int64_t *ret_most)
{
    int n = 0;
    for (int i = 0; i < body->backward.n; i++) {
        const Inst *inst = &body->backward.at[i];
        if (inst->kind != INST_MOVE || inst->move.kind != kind)
            continue;
        int64_t elements = body->copies.at[inst->in[0]].elements;
        *ret_most = elements > *ret_most ? elements : *ret_most;
        n++;
    }
    return n;
}

/* Rows cut over tp, columns few: the Gram matrix of the columns is a sum over ranks, and the matrix
 * itself never moves. Nothing says so but prices. */
static void test_tall_blocks_add_up_grams(void **state)
{
    (void)state;
    Arena *arena = arena_new("tall");
    PlanCase what = {"examples/models/llama-3-8b.json", "dgx-h100",  8, 8, 4096,
                     "tp=8,dp=1,pp=1,sp=1,mbs=1",       "bf16 muon", 0};
    const Program *program = program_of(arena, &what);
    int tall = 0;
    for (int k = 0; k < program->matrices.n; k++) {
        const MatrixKey *key = &program->matrices.at[k].key;
        const Body *body = program->matrices.at[k].body;
        int64_t rows = 1, cols = 1, summed = 0, gathered = 0;
        for (int a = 0; a < key->rows + key->cols; a++)
            *(a < key->rows ? &rows : &cols) *= key->extent[a];
        if (key->shard[0].n == 0 || rows <= cols)
            continue;
        int sums = count_moves(body, MOVE_ALL_REDUCE, &summed) +
                   count_moves(body, MOVE_REDUCE_SCATTER, &summed);
        count_moves(body, MOVE_ALL_GATHER, &gathered);
        assert_true(sums >= 5 && summed >= cols * cols / 8);
        assert_true(gathered < rows * cols / 8);
        tall++;
    }
    assert_true(tall >= 1);
    arena_free(arena);
}

/* A share that ended within a matrix would not be owned by anybody. */
static void test_shares_end_between_matrices(void **state)
{
    (void)state;
    Arena *arena = arena_new("shares");
    PlanCase what = {tiny_llama, NULL, 4, 4, 6, "dp=4,zero=1,mbs=1", "fp64 muon", 0};
    Program *program = program_of(arena, &what);
    CheckReport report;
    assert_true(program_check(arena, program, 2, diag_new(arena), &report));
    int whole = 0;
    for (int g = 0; g < program->stage[0].groups.n; g++) {
        const Group *group = &program->stage[0].groups.at[g];
        whole += group->matrix != NONE;
        assert_int_equal(group->share_elements % group->unit, 0);
    }
    assert_true(whole >= 3);
    for (int b = 0; b < program->stage[0].buckets.n; b++) {
        Bucket *bucket = &program->stage[0].buckets.at[b];
        if (program->stage[0].groups.at[bucket->group].matrix == NONE)
            continue;
        int64_t filled = bucket->filled; /* one matrix is forgotten */
        bucket->filled -= program->stage[0].groups.at[bucket->group].unit;
        assert_false(program_check(arena, program, 2, diag_new(arena), &report));
        bucket->filled = filled;
    }
    assert_true(program_check(arena, program, 2, diag_new(arena), &report));
    arena_free(arena);
}

/* One rank cuts its own part out where its group meets for the first time inside a step. */
typedef struct Alone {
    int coordinate;
    bool done;
    Move slice;
} Alone;

static bool slice_alone(void *context, Step *step)
{
    Alone *alone = context;
    if (!alone->done && step->coordinate == alone->coordinate && step->kind == STEP_MOVE &&
        step->bucket != NONE && step->inst && step->move->kind <= MOVE_PERMUTE) {
        alone->done = true;
        alone->slice = *step->move;
        alone->slice.kind = MOVE_SLICE;
        step->move = &alone->slice;
    }
    return true;
}

/* Three matrices of a kind on two owners: the second has one step less, with all of its tp. */
static void test_owners_have_unequal_numbers(void **state)
{
    (void)state;
    Arena *arena = arena_new("owners");
    PlanCase what = {model_with_layers(arena, tiny_llama, 3),
                     NULL,
                     4,
                     4,
                     6,
                     "tp=2,dp=2,zero=1,mbs=1",
                     "fp64 muon",
                     0};
    Program *program = program_of(arena, &what);
    CheckReport report;
    assert_true(program_holds(program, NULL, &report));
    for (int rank = 1; rank < 4; rank++) {
        Alone alone = {.coordinate = rank};
        CheckTap tap = {slice_alone, &alone};
        Diag *diag = diag_new(arena);
        assert_false(program_check_tapped(arena, program, 2, &tap, diag, &report));
        assert_true(alone.done);
        const char *wanted = rank == 1 ? "disagree about what" : "1 of the 2 ranks beside rank 2";
        assert_non_null(strstr(diag_item(diag, 0)->text, wanted));
    }
    arena_free(arena);
}

/* Steps that keep what stands for them: of blocks that end before their matrix's room, whose state
 * is away; of homes over ranks that are no tp in other layers, or are lent to experts. */
static void test_steps_find_their_blocks(void **state)
{
    (void)state;
    static const PlanCase cases[] = {
        {tiny_llama, NULL, 4, 4, 6, "tp=2,dp=2,zero=1,mbs=1,optimizer_home=nvme", "fp64 muon", 0},
        {"tests/e2e/models/moe.json", NULL, 4, 4, 8, "tp=1,dp=4,mbs=1,1:tp=4:dp=1", "fp64 muon", 0},
        {"tests/e2e/models/moe.json", NULL, 4, 4, 8, "tp=2,dp=2,mbs=1,ep=1,etp=4", "fp64 muon", 0},
        {.model = NULL}};
    for (const PlanCase *what = cases; what->model; what++) {
        Arena *arena = arena_new("blocks");
        CheckReport report;
        assert_true(program_holds(program_of(arena, what), NULL, &report));
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_are_muons),
        cmocka_unit_test(test_what_is_a_matrix),
        cmocka_unit_test(test_tall_blocks_add_up_grams),
        cmocka_unit_test(test_shares_end_between_matrices),
        cmocka_unit_test(test_owners_have_unequal_numbers),
        cmocka_unit_test(test_steps_find_their_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
