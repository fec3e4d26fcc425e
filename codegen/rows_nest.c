/* rows_nest.c - any einsum or reduction as a plain loop nest. */
#include "codegen/emit.h"
#include "codegen/rows.h"

typedef struct Nest {
    RowBuilder *b;
    const Node *node;
    int letters;
    int8_t letter[MAX_LETTERS]; /* those the output keeps, in its order, then those it sums over */
    int kept;
    int64_t extent[MAX_LETTERS]; /* by letter */
} Nest;

static void take_letter(Nest *n, int letter, int64_t extent)
{
    for (int i = 0; i < n->letters; i++) {
        if (n->letter[i] == letter)
            return;
    }
    n->extent[letter] = extent;
    n->letter[n->letters++] = (int8_t)letter;
}

static void take_letters(Nest *n, const int8_t *letter, int copy)
{
    const Copy *c = &n->b->body->copies.at[copy];
    int axes = n->b->body->graph->values.at[c->value].axes;
    for (int a = 0; a < axes; a++)
        take_letter(n, letter[a], c->local[a]);
}

static void add_arg(Nest *n, const int8_t *letter, int copy, const char *name, bool out)
{
    RowProgram *p = n->b->program;
    const Copy *c = &n->b->body->copies.at[copy];
    RowArg arg = {.name = name, .copy = copy, .dtype = c->dtype, .out = out, .stored = NONE};
    arg.add = out && c->home == HOME_ACC;
    int64_t stride = 1;
    for (int a = n->b->body->graph->values.at[c->value].axes - 1; a >= 0; a--) {
        int axis = 0;
        while (n->letter[axis] != letter[a])
            axis++;
        arg.stride[axis] = stride;
        arg.rows |= axis < n->kept;
        arg.columns |= axis >= n->kept;
        stride *= c->local[a];
    }
    p->adds |= arg.add;
    vec_push(p->arena, &p->args) = arg;
}

/* Neighbours that every argument steps through together become one axis; axes of one index go. */
static bool joins_next(const RowProgram *p, int a)
{
    if (a + 1 == p->rows || p->axis[a].extent == 1)
        return p->axis[a].extent == 1;
    for (int i = 0; i < p->args.n; i++) {
        const int64_t *stride = p->args.at[i].stride;
        if (a + 1 == p->axes || stride[a] != stride[a + 1] * p->axis[a + 1].extent)
            return false;
    }
    return true;
}

static void drop_axis(RowProgram *p, int a)
{
    if (a + 1 < p->axes && a + 1 != p->rows && p->axis[a].extent != 1)
        p->axis[a + 1].extent *= p->axis[a].extent;
    for (int k = a; k + 1 < p->axes; k++) {
        p->axis[k] = p->axis[k + 1];
        for (int i = 0; i < p->args.n; i++)
            p->args.at[i].stride[k] = p->args.at[i].stride[k + 1];
    }
    for (int i = 0; i < p->args.n; i++)
        p->args.at[i].stride[p->axes - 1] = 0;
    p->rows -= a < p->rows;
    p->axes--;
}

static TermId product(RowBuilder *b, const Node *node, const int64_t offset[2])
{
    TermId term = term_load(b, 0, offset[0]);
    if (node->ins == 2)
        term = term_new(b, TERM_MUL, term, term_load(b, 1, offset[1]), NONE);
    return term;
}

/* A sum over few indices, none of them the output's fastest: columns are those, and each adds up
 * all terms, which are neighbours of nothing. */
static bool folds(const RowProgram *p)
{
    enum { MOST_TERMS = 16, LEAST_COLUMNS = 16 };
    int last = p->rows - 1;
    return last >= 0 && p->rows < p->axes && rows_extent(p, p->rows, p->axes) <= MOST_TERMS &&
           p->axis[last].extent >= LEAST_COLUMNS && p->args.at[p->args.n - 1].stride[last] == 1;
}

static TermId fold(RowBuilder *b, const Node *node)
{
    RowProgram *p = b->program;
    int64_t terms = rows_extent(p, p->rows, p->axes);
    int gone = p->rows, axes = p->axes;
    TermId sum = NONE;
    p->rows--;
    for (int i = 0; i < p->args.n; i++) {
        RowArg *arg = &p->args.at[i];
        arg->columns = arg->stride[p->rows] != 0;
        arg->rows = false;
        for (int a = 0; a < p->rows; a++)
            arg->rows |= arg->stride[a] != 0;
    }
    for (int64_t t = 0; t < terms; t++) {
        int64_t offset[2] = {0}, left = t;
        for (int a = axes - 1; a >= gone; a--) {
            for (int k = 0; k < node->ins; k++)
                offset[k] += left % p->axis[a].extent * p->args.at[k].stride[a];
            left /= p->axis[a].extent;
        }
        TermId term = product(b, node, offset);
        sum = sum == NONE ? term : term_new(b, TERM_ADD, sum, term, NONE);
    }
    p->axes = gone;
    return sum;
}

void rows_nest(RowBuilder *b)
{
    RowProgram *p = b->program;
    const Inst *inst = b->inst;
    Nest n = {.b = b, .node = &b->body->graph->nodes.at[inst->node[0]]};
    take_letters(&n, n.node->sig.out[0], inst->bind_out[0][0]);
    n.kept = n.letters;
    for (int k = 0; k < n.node->ins; k++)
        take_letters(&n, n.node->sig.in[k], inst->bind_in[0][k]);
    p->axes = n.letters;
    p->rows = n.kept;
    for (int a = 0; a < p->axes; a++) {
        char letter[2] = {n.node->sig.letter[n.letter[a]], 0};
        p->axis[a] = (RowAxis){arena_printf(p->arena, "at_%s", emit_ident(p->arena, letter)),
                               n.extent[n.letter[a]]};
    }
    for (int k = 0; k < n.node->ins; k++)
        add_arg(&n, n.node->sig.in[k], inst->bind_in[0][k], role_in(n.node->op, k), false);
    add_arg(&n, n.node->sig.out[0], inst->bind_out[0][0], role_out(n.node->op, 0), true);
    for (int a = p->axes - 1; a >= 0; a--) {
        if (joins_next(p, a))
            drop_axis(p, a);
    }
    TermId term;
    if (folds(p)) {
        term = fold(b, n.node);
    } else {
        for (int i = 0; i < p->args.n && p->rows == p->axes; i++)
            p->args.at[i].columns = false;
        term = product(b, n.node, (const int64_t[2]){0});
        if (p->rows < p->axes)
            term = term_new(b, TERM_SUM, term, NONE, NONE);
    }
    p->outer = p->rows;
    p->args.at[p->args.n - 1].stored = term;
    p->depth = p->terms.at[term].depth;
}
