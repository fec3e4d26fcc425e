/* test_nodes.c - every legal choice of every op, executed block by block on virtual ranks, means
 * what the whole op means. */
#include "tests/check.h"

#include <math.h>
#include <string.h>

#include "ir/eval.h"
#include "tests/ir/lower/ranks.h"

typedef struct Case {
    OpId op;
    const char *sig;
    int ids; /* operand of ids, or NONE */
} Case;

static const Case cases[] = {
    {OP_EINSUM, "bsh,fh->bsf", NONE},
    {OP_EINSUM, "bsf,bsh->fh", NONE},
    {OP_EINSUM, "bsgr,hgr->bsh", NONE},
    {OP_EINSUM, "bs,bs->", NONE},
    {OP_ADD, "bsh,bsh->bsh", NONE},
    {OP_BIAS, "bsh,h->bsh", NONE},
    {OP_MUL, "bsf,bsf->bsf", NONE},
    {OP_SCALE, "bsh->bsh", NONE},
    {OP_ACT, "bsf->bsf", NONE},
    {OP_NORM, "bsh,h->bsh", NONE},
    {OP_ROPE, "bsgrd->bsgrd", NONE},
    {OP_ATTENTION, "bsgrd,btgd,btgd->bsgrd,bsgr", NONE},
    {OP_SPLIT, "bscgd->bsgd,bsgd,bsgd", NONE},
    {OP_LOOKUP, "bs,vh->bsh", 0},
    {OP_IOTA, "->s", NONE},
    {OP_VMAX, "bsv->bs", NONE},
    {OP_SUMEXP, "bsv,bs->bs", NONE},
    {OP_PICK, "bs,bsv->bs", 0},
    {OP_NLL, "bs,bs,bs->bs", NONE},
    {OP_REDUCE, "bsh->h", NONE},
    {OP_ACT_GRAD, "bsf,bsf->bsf", NONE},
    {OP_NORM_DX, "bsh,h,bsh->bsh", NONE},
    {OP_NORM_DG, "bsh,bsh->h", NONE},
    {OP_ATTENTION_GRAD, "bsgrd,btgd,btgd,bsgrd,bsgr,bsgr->bsgrd,btgd,btgd", NONE},
    {OP_STACK, "bsgd,bsgd,bsgd->bscgd", NONE},
    {OP_SCATTER, "bs,bsh->vh", 0},
    {OP_EXPMUL, "bsv,bs,bs->bsv", NONE},
    {OP_ONEHOT, "bs,bs->bsv", 0},
    {OP_DIV, "bs,bs->bs", NONE},
    {OP_SUMSQ, "fh->", NONE},
};

/* Extents divide by 4 and by 6 where an axis may take both atoms; v has rows that no id means. */
static Net *case_net(Arena *arena)
{
    Net *net = net_new(arena, "nodes");
    net_add_dim(net, "b", DIM_BATCH, 4);
    net_add_dim(net, "s", DIM_SEQUENCE, 12);
    static const char *const name[] = {"h", "f", "g", "r", "d", "c", "v"};
    static const int64_t extent[] = {6, 12, 6, 2, 4, 3, 12};
    for (int i = 0; i < 7; i++)
        net_add_dim(net, name[i], DIM_OTHER, extent[i]);
    net->dims.at[net_dim(net, "v")].used = 11;
    return net;
}

static NodeId case_node(Net *net, const Case *at)
{
    Graph *graph = net_add_class(net, op_info[at->op].text);
    ValueId in[MAX_IN];
    int ins = 0;
    for (const char *c = at->sig; *c != '-';) {
        DimId dim[MAX_AXES];
        int axes = 0;
        for (; *c != ',' && *c != '-'; c++)
            dim[axes++] = net_dim(net, (char[2]){*c == 't' ? 's' : *c, '\0'});
        bool ids = ins == at->ids;
        const char *name = ids ? "ids" : arena_printf(net->arena, "in%d", ins);
        in[ins++] = graph_value(graph, ids ? VALUE_DATA : VALUE_PARAM, name, axes, dim);
        c += *c == ',';
    }
    Attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    if (at->op == OP_NORM || at->op == OP_NORM_DX || at->op == OP_NORM_DG)
        attrs.norm.eps = 1e-5;
    if (at->op == OP_ROPE)
        attrs.rope = (Attr_rope){.theta = 100, .rotary = 4};
    if (at->op == OP_ATTENTION || at->op == OP_ATTENTION_GRAD)
        attrs.attention = (Attr_attention){.scale = 0.5, .causal = 1};
    if (at->op == OP_SCALE)
        attrs.scale.factor = -1.5;
    return graph_node(graph, at->op, "y", at->sig, &attrs, in, ins);
}

/* Operands that every op takes: away from zero, ids below the used rows. */
static Tensor operand(Arena *arena, const Net *net, const Value *value, Rng *rng)
{
    Tensor tensor = tensor_random(arena, net, value, rng);
    int64_t n = tensor_elements(&tensor);
    for (int64_t i = 0; i < n; i++)
        tensor.at[i] =
            value->number == NUM_INDEX ? (double)rng_draw(rng, 11) : 0.25 + fabs(tensor.at[i]);
    return tensor;
}

static Tensor result(Arena *arena, const Node *node, int k, int axes, const int64_t *extent)
{
    int64_t local[MAX_AXES];
    for (int i = 0; i < axes; i++)
        local[i] = extent[node->sig.out[k][i]];
    return tensor_new(arena, axes, local);
}

/* One block: extents of the letters and, where it is told, the place of the block. */
static void run_block(Arena *arena, const Net *net, const Graph *graph, const Node *node,
                      const Tensor *in, const int64_t *extent, const int64_t *origin, Tensor *ret)
{
    const double *from[MAX_IN];
    double *to[MAX_OUT];
    for (int k = 0; k < node->ins; k++)
        from[k] = in[k].at;
    for (int k = 0; k < node->outs; k++) {
        ret[k] = result(arena, node, k, graph->values.at[node->out[k]].axes, extent);
        to[k] = ret[k].at;
    }
    eval_node(net, graph, node, from, to, extent, origin, NULL);
}

/* Extent and origin of every letter on a rank. Letters without `base` get an origin that nobody may
 * read. */
static void block_letters(const Net *net, const Mesh *mesh, const Node *node,
                          const NodeChoice *choice, int rank, int64_t *ret_extent,
                          int64_t *ret_origin)
{
    for (int l = 0; l < node->sig.letters; l++) {
        AtomList list = {0};
        bool tokens = net->dims.at[node->sig.dim[l]].kind != DIM_OTHER;
        for (int lent = 0; lent < 2; lent++)
            for (int a = mesh->n - 1; a >= 0; a--)
                if (choice->atom[a] == CHOICE_LETTER + l &&
                    (lent == 1) == (!tokens && mesh->atom[a].role != ROLE_TP))
                    list.at[list.n++] = (int8_t)a;
        ret_extent[l] = letter_extent(net, node, l) / list_extent(mesh, &list);
        ret_origin[l] = list_index(mesh, &list, rank) * ret_extent[l];
        if (!(node->sig.base >> l & 1))
            ret_origin[l] = -1000000;
    }
}

/* Runs a choice on all ranks; the worst deviation of any output. */
static double run_choice(const Net *net, const Graph *graph, const Node *node, const Mesh *mesh,
                         const NodeChoice *choice, const Placement *in, const Placement *out,
                         const Tensor *whole_in, const Tensor *whole_out, Rng *rng)
{
    Arena *arena = arena_new("choice");
    Ranks *from = ARENA_ARRAY(arena, Ranks, MAX_IN), *to = ARENA_ARRAY(arena, Ranks, MAX_OUT);
    for (int k = 0; k < node->ins; k++)
        from[k] = ranks_scatter(arena, mesh, &whole_in[k], &in[k], rng);
    for (int k = 0; k < node->outs; k++)
        to[k].n = mesh_ranks(mesh);
    for (int r = 0; r < mesh_ranks(mesh); r++) {
        Tensor local[MAX_IN], made[MAX_OUT];
        int64_t extent[MAX_LETTERS], origin[MAX_LETTERS];
        for (int k = 0; k < node->ins; k++)
            local[k] = from[k].at[r];
        block_letters(net, mesh, node, choice, r, extent, origin);
        run_block(arena, net, graph, node, local, extent, origin, made);
        for (int k = 0; k < node->outs; k++)
            to[k].at[r] = made[k];
    }
    double worst = 0;
    for (int k = 0; k < node->outs; k++)
        worst = fmax(worst, ranks_error(arena, mesh, &to[k], &out[k], &whole_out[k]));
    arena_free(arena);
    return worst;
}

/* The next choice of all atoms in counting order; false after the last. */
static bool choice_next(const Mesh *mesh, const Node *node, NodeChoice *choice)
{
    for (int a = 0; a < mesh->n; a++) {
        int c = choice->atom[a] + 1;
        if (c == CHOICE_LETTER + node->sig.letters)
            c = CHOICE_LINEAR;
        if (c < CHOICE_LINEAR + node_linear_sets(node)) {
            choice->atom[a] = (Choice)c;
            return true;
        }
        choice->atom[a] = CHOICE_REPLICATE;
    }
    return false;
}

static int check_case(Arena *arena, Net *net, const Case *at, const Mesh *mesh, Rng *rng)
{
    NodeId id = case_node(net, at);
    const Graph *graph = net->classes.at[net->classes.n - 1];
    const Node *node = &graph->nodes.at[id];
    Tensor in[MAX_IN], out[MAX_OUT];
    int64_t extent[MAX_LETTERS], origin[MAX_LETTERS] = {0};
    for (int l = 0; l < node->sig.letters; l++)
        extent[l] = letter_extent(net, node, l);
    for (int k = 0; k < node->ins; k++)
        in[k] = operand(arena, net, &graph->values.at[node->in[k]], rng);
    run_block(arena, net, graph, node, in, extent, origin, out);
    NodeChoice choice = {{0}, {0}};
    int legal = 0;
    do {
        Placement pin[MAX_IN], pout[MAX_OUT];
        if (!place_node(mesh, net, graph, node, &choice, pin, pout))
            continue;
        double error = run_choice(net, graph, node, mesh, &choice, pin, pout, in, out, rng);
        if (!(error < 1e-10))
            fail_msg("%s %s: choice %d %d is off by %g", op_info[at->op].text, at->sig,
                     choice.atom[0], choice.atom[1], error);
        legal++;
    } while (choice_next(mesh, node, &choice));
    return legal;
}

static void test_choices(void **state)
{
    (void)state;
    static const int extent[][2] = {{2, 2}, {2, 3}};
    Rng rng = {3, 0};
    int legal = 0;
    for (size_t m = 0; m < 2; m++) {
        Mesh mesh = {.n = 2, .atom = {{extent[m][0], ROLE_TP, 0}, {extent[m][1], ROLE_DP, 0}}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            Arena *arena = arena_new("case");
            int n = check_case(arena, case_net(arena), &cases[i], &mesh, &rng);
            assert_true(n >= 1);
            legal += n;
            arena_free(arena);
        }
    }
    print_message("%d legal choices\n", legal);
}

static bool legal(Arena *arena, const char *sig, OpId op, int c0, int c1, Placement *ret_out)
{
    Net *net = case_net(arena);
    Mesh mesh = {.n = 2, .atom = {{2, ROLE_TP, 0}, {2, ROLE_DP, 0}}};
    NodeId id = case_node(net, &(Case){op, sig, op == OP_PICK ? 0 : NONE});
    const Graph *graph = net->classes.at[0];
    NodeChoice choice = {{(Choice)c0, (Choice)c1}, {0}};
    Placement in[MAX_IN];
    return place_node(&mesh, net, graph, &graph->nodes.at[id], &choice, in, ret_out);
}

/* What must not be legal, and how several atoms on a letter are ordered. */
static void test_rules(void **state)
{
    (void)state;
    Arena *arena = arena_new("rules");
    Placement out[MAX_OUT];
    /* a normed axis is whole; letters are numbered as they appear: b s h */
    assert_false(legal(arena, "bsh,h->bsh", OP_NORM, CHOICE_LETTER + 2, 0, out));
    /* state is never Partial, nor what is not linear */
    assert_false(legal(arena, "bsf->bsf", OP_ACT, CHOICE_LINEAR, 0, out));
    /* a letter that the node lacks; r = 2 does not divide by 4 */
    assert_false(legal(arena, "bsf->bsf", OP_ACT, CHOICE_LETTER + 3, 0, out));
    assert_false(
        legal(arena, "bsgr,hgr->bsh", OP_EINSUM, CHOICE_LETTER + 3, CHOICE_LETTER + 3, out));
    /* a maximum over v and a maximum over v: one monoid; the higher atom is major */
    assert_true(legal(arena, "bsv->bs", OP_VMAX, CHOICE_LETTER + 2, CHOICE_LETTER + 2, out));
    assert_int_equal(out[0].partial, 3);
    assert_int_equal(out[0].monoid, MONOID_MAX);
    assert_true(legal(arena, "bsh,bsh->bsh", OP_ADD, CHOICE_LETTER + 1, CHOICE_LETTER + 1, out));
    assert_int_equal(out[0].shard[1].at[0], 1);
    assert_int_equal(out[0].shard[1].at[1], 0);
    /* a product is linear in either operand, on different atoms too */
    assert_true(legal(arena, "bsf,bsf->bsf", OP_MUL, CHOICE_LINEAR, CHOICE_LINEAR + 1, out));
    assert_int_equal(out[0].partial, 3);
    assert_int_equal(out[0].monoid, MONOID_SUM);
    arena_free(arena);
}

RUN(((const struct CMUnitTest[]){cmocka_unit_test(test_choices), cmocka_unit_test(test_rules)}))
