/* rows_terms.c - building the terms of a row program: equal terms are one. */
#include "codegen/emit.h"
#include "codegen/rows.h"

const TermInfo term_info[TERM_COUNT] = {
#define TERM(id, arity, type, precedence, text)                                                    \
    [TERM_##id] = {arity, TYPE_##type, precedence, text},
#include "codegen/terms.def"
#undef TERM
};

static const Value *value_of_copy(const Body *body, int copy)
{
    return &body->graph->values.at[body->copies.at[copy].value];
}

const char *rows_free_name(const RowProgram *p, const char *wanted)
{
    const char *name = wanted;
    for (int n = 2;; n++) {
        bool taken = false;
        for (int i = 0; i < p->args.n; i++)
            taken = taken || str_eq(p->args.at[i].name, name);
        for (int i = 0; i < p->bases.n; i++)
            taken = taken || str_eq(p->bases.at[i].name, name);
        if (!taken)
            return name;
        name = arena_printf(p->arena, "%s%d", wanted, n);
    }
}

static TermLevel max_level(TermLevel a, TermLevel b)
{
    return a > b ? a : b;
}

/* Equal terms are one term. */
static TermId term_add(RowBuilder *b, Term term)
{
    RowProgram *p = b->program;
    for (int i = 0; i < p->terms.n; i++) {
        const Term *t = &p->terms.at[i];
        if (t->kind == term.kind && t->of[0] == term.of[0] && t->of[1] == term.of[1] &&
            t->of[2] == term.of[2] && t->number == term.number && t->ref == term.ref &&
            t->extent == term.extent)
            return i;
    }
    vec_push(p->arena, &p->terms) = term;
    return p->terms.n - 1;
}

TermId term_number(RowBuilder *b, double number)
{
    return term_add(
        b,
        (Term){.kind = TERM_CONST, .type = TYPE_REAL, .of = {NONE, NONE, NONE}, .number = number});
}

TermId term_new(RowBuilder *b, TermKind kind, TermId x, TermId y, TermId z)
{
    Term term = {.kind = kind, .type = term_info[kind].type, .of = {x, y, z}};
    for (int k = 0; k < 3 && term.of[k] != NONE; k++) {
        const Term *of = &b->program->terms.at[term.of[k]];
        term.level = max_level(term.level, of->level);
        term.depth = term.depth > of->depth ? term.depth : of->depth;
        if (term_info[kind].type == TYPE_SAME)
            term.type = of->type;
    }
    switch (kind) {
    case TERM_INDEX:
    case TERM_COS:
    case TERM_SIN:
    case TERM_TURNED:
    case TERM_VALID:
        term.level = LEVEL_COLUMN;
        break;
    case TERM_SUM:
    case TERM_MAX:
        term.level = LEVEL_ROW;
        term.depth++;
        break;
    case TERM_TOTAL:
        term.level = LEVEL_TOTAL;
        b->program->totals = true;
        break;
    default:
        break;
    }
    return term_add(b, term);
}

TermId term_named(RowBuilder *b, const char *name, TermId term)
{
    if (!b->program->terms.at[term].name)
        b->program->terms.at[term].name = name;
    return term;
}

TermId term_argument(RowBuilder *b, RowBase base)
{
    RowProgram *p = b->program;
    int at = 0;
    for (; at < p->bases.n; at++) {
        const RowBase *other = &p->bases.at[at];
        if (other->kind == base.kind && other->copy == base.copy && other->axis == base.axis &&
            other->site == base.site)
            break;
    }
    base.name = at == p->bases.n ? rows_free_name(p, base.name) : NULL;
    if (at == p->bases.n)
        vec_push(p->arena, &p->bases) = base;
    return term_add(
        b, (Term){.kind = TERM_BASE, .type = TYPE_INT, .of = {NONE, NONE, NONE}, .ref = at});
}

TermId term_base(RowBuilder *b, int copy, int axis, const char *name)
{
    return term_argument(b,
                         (RowBase){.name = name, .kind = BASE_ORIGIN, .copy = copy, .axis = axis});
}

TermId term_whole(RowBuilder *b, int64_t number)
{
    return term_add(b, (Term){.kind = TERM_WHOLE,
                              .type = TYPE_INT,
                              .of = {NONE, NONE, NONE},
                              .number = (double)number});
}

TermId term_position(RowBuilder *b, DimId dim, TermId place)
{
    const Net *net = b->body->net;
    if (dim != net->sequence || net->runs == 0)
        return place;
    return term_new(b, TERM_POSITION, place, term_whole(b, net->dims.at[dim].extent / net->runs),
                    term_whole(b, net->runs));
}

TermId term_part(RowBuilder *b, int copy, int axis)
{
    const RowProgram *p = b->program;
    DimId dim = value_of_copy(b->body, copy)->dim[axis];
    int at = 0, row = 0;
    while (b->dim[at] != dim)
        at++;
    while (b->last[row] < at)
        row++;
    int64_t below = 1;
    for (int a = at + 1; a <= b->last[row]; a++)
        below *= b->extent[a];
    int begin = row ? b->last[row - 1] + 1 : 0;
    return term_add(b, (Term){.kind = TERM_PART,
                              .type = TYPE_INT,
                              .level = row < p->rows ? LEVEL_ROW : LEVEL_COLUMN,
                              .of = {NONE, NONE, NONE},
                              .number = (double)below,
                              .extent = at > begin ? b->extent[at] : 0,
                              .ref = row});
}

TermId term_place(RowBuilder *b, int copy, int axis)
{
    DimId dim = value_of_copy(b->body, copy)->dim[axis];
    const Dim *at = &b->body->net->dims.at[dim];
    int row = 0;
    while (b->dim[b->last[row]] != dim)
        row++;
    TermId base = term_base(b, copy, axis, arena_printf(b->program->arena, "base_%c", at->letter));
    TermId local = row >= b->program->rows ? term_new(b, TERM_INDEX, NONE, NONE, NONE)
                                           : term_add(b, (Term){.kind = TERM_PLACE,
                                                                .type = TYPE_INT,
                                                                .level = LEVEL_ROW,
                                                                .of = {NONE, NONE, NONE},
                                                                .ref = row});
    return term_position(b, dim, term_new(b, TERM_ADD, local, base, NONE));
}

TermId term_load(RowBuilder *b, int arg, int64_t offset)
{
    const RowArg *a = &b->program->args.at[arg];
    Term term = {.kind = TERM_LOAD,
                 .type = a->dtype == DT_I32 ? TYPE_INT : TYPE_REAL,
                 .of = {NONE, NONE, NONE},
                 .number = (double)offset};
    term.ref = arg;
    term.level = a->columns ? LEVEL_COLUMN : a->rows ? LEVEL_ROW : LEVEL_KERNEL;
    return term_add(b, term);
}

TermId term_at(RowBuilder *b, int copy, TermId index)
{
    int arg = 0;
    while (b->program->args.at[arg].copy != copy)
        arg++;
    const Term *of = &b->program->terms.at[index];
    return term_add(b, (Term){.kind = TERM_AT,
                              .type = TYPE_REAL,
                              .level = LEVEL_ROW,
                              .depth = of->depth,
                              .of = {index, NONE, NONE},
                              .ref = arg});
}

TermId term_of_operand(RowBuilder *b, int node, int operand)
{
    TermId term = b->value[b->inst->bind_in[node][operand]];
    if (term == NONE)
        BUG("%s reads %s before it is made", b->body->graph->nodes.at[b->inst->node[node]].name,
            b->body->copies.at[b->inst->bind_in[node][operand]].name);
    return term;
}
