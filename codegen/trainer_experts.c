/* trainer_experts.c - calls of the kernels that choose experts, and of linears of experts. */
#include <string.h>

#include "codegen/trainer_body.h"

/* LP_ROUTE_GROUPS of templates/host/route.c. */
enum { MOST_GROUPS = 64 };

static long long last_extent(const BodyPrinter *p, int copy)
{
    return (long long)body_copy(p, copy)->local[body_value(p, copy)->axes - 1];
}

/* Elements without the last axis. */
static long long rows_of(const BodyPrinter *p, int copy)
{
    return (long long)body_copy(p, copy)->elements / last_extent(p, copy);
}

/* ---- routing ---- */

static void print_topk(BodyPrinter *p, const Node *node, int scores, int choice)
{
    const Attr_topk *a = &node->attrs.topk;
    if (a->groups > MOST_GROUPS) {
        diag_error(p->t->diag, NO_SPAN, "%s of %s chooses among %lld groups of experts", node->name,
                   p->body->graph->name, (long long)a->groups);
        diag_help(p->t->diag, "a trainer knows at most %d", MOST_GROUPS);
    }
    emit_line(p->emit,
              "lp_topk(&(const LpTopk){.rows = %lld, .experts = %lld, .k = %lld, .groups = %lld, "
              ".kept = %lld, .top2 = %d}, %s, %s);",
              rows_of(p, scores), last_extent(p, scores), last_extent(p, choice),
              (long long)(a->groups > 0 ? a->groups : 1), (long long)(a->groups > 0 ? a->kept : 1),
              a->groups > 0 && a->by == GROUP_TOP2, body_reads(p, scores), body_writes(p, choice));
}

static void print_capacity(BodyPrinter *p, const Node *node, int from, int to)
{
    const Attr_capacity *a = &node->attrs.capacity;
    const int64_t *local = body_copy(p, from)->local;
    if (a->experts > p->t->routes.capacity)
        p->t->routes.capacity = a->experts;
    emit_line(p->emit, "lp_capacity(%lld, %lld, %lld, %lld, %lld, %s, %s, s->scratch, s->threads);",
              (long long)local[0], (long long)local[1], (long long)local[2], (long long)a->experts,
              (long long)a->bound, body_reads(p, from), body_writes(p, to));
}

static void print_deal(BodyPrinter *p, const Node *node, int from, int to)
{
    const Attr_deal *a = &node->attrs.deal;
    int64_t rows = body_copy(p, from)->elements;
    if (a->ranks > p->t->routes.capacity)
        p->t->routes.capacity = a->ranks;
    emit_line(p->emit, "lp_deal(%lld, %lld, %lld, %lld, %lld, %lld, %s, %s, s->scratch);",
              (long long)rows, (long long)(a->experts / a->ranks), (long long)a->ranks,
              (long long)deal_bound(a, rows), (long long)a->round, (long long)a->rounds,
              body_reads(p, from), body_writes(p, to));
}

/* One count of everything, or one for each index of the leading axes. */
static void print_tally(BodyPrinter *p, int from, int to)
{
    const Copy *out = body_copy(p, to);
    int last = body_value(p, to)->axes - 1;
    long long experts = last_extent(p, to), rows = out->elements / experts;
    long long each = body_copy(p, from)->elements / rows;
    const char *base = body_origin(p, to, last), *in = body_reads(p, from),
               *count = body_writes(p, to);
    if (rows == 1) {
        emit_line(p->emit, "lp_tally(%lld, %lld, %s, %s, %s);", each, experts, base, in, count);
        return;
    }
    emit_open(p->emit, "for (long i = 0; i < %lld; i++)", rows);
    emit_line(p->emit, "lp_tally(%lld, %lld, %s, %s + i * %lld, %s + i * %lld);", each, experts,
              base, in, each, count, experts);
    emit_close_slim(p->emit);
}

bool trainer_print_route(BodyPrinter *p, const Node *node, const int *in, const int *out)
{
    p->t->routes.used = true;
    for (int k = 0; k < node->ins; k++) {
        if (body_copy(p, in[k])->dtype != DT_I32 && !body_takes(p, node, in[k], false))
            return false;
    }
    if (body_copy(p, out[0])->dtype != DT_I32 && !body_takes(p, node, out[0], false))
        return false;
    switch (node->op) {
    case OP_TOPK:
        print_topk(p, node, in[0], out[0]);
        break;
    case OP_CAPACITY:
        print_capacity(p, node, in[0], out[0]);
        break;
    case OP_DEAL:
        print_deal(p, node, in[0], out[0]);
        break;
    case OP_CHANCE:
        emit_line(p->emit, "lp_chance(%lld, %lld, %s, %s, %s, s->evaluates, %s);",
                  rows_of(p, in[0]), last_extent(p, in[0]), body_reads(p, in[0]),
                  body_reads(p, in[1]), body_reads(p, in[2]), body_writes(p, out[0]));
        break;
    case OP_TALLY:
        print_tally(p, in[0], out[0]);
        break;
    case OP_TAKE:
        emit_line(p->emit, "lp_take(%lld, %lld, %lld, %s, %s, %s);", rows_of(p, in[0]),
                  last_extent(p, in[1]), last_extent(p, in[0]), body_reads(p, in[0]),
                  body_reads(p, in[1]), body_writes(p, out[0]));
        break;
    default:
        emit_line(p->emit, "lp_spread(%lld, %lld, %lld, %s, %s, %s);", rows_of(p, in[0]),
                  last_extent(p, out[0]), last_extent(p, in[0]), body_reads(p, in[0]),
                  body_reads(p, in[1]), body_writes(p, out[0]));
        break;
    }
    return true;
}

/* ---- linears of experts ---- */

typedef struct Linear {
    int choice, x, y, w; /* copies; of the gradient too, where y and w are those of dy and dw */
    const int8_t *x_letter, *y_letter, *w_letter;
    int rest;      /* axes of the choice */
    bool shared;   /* x has no axis of the choices */
    bool to_first; /* weights are [e][to][from] */
} Linear;

static bool letters_equal(const int8_t *a, const int8_t *b, int n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* Which way round the weights are; false when they are neither. */
static bool read_order(const BodyPrinter *p, Linear *l)
{
    int first = l->shared ? l->rest - 1 : l->rest;
    int from = body_value(p, l->x)->axes - first, to = body_value(p, l->y)->axes - l->rest;
    const int8_t *from_letters = l->x_letter + first, *to_letters = l->y_letter + l->rest;
    if (body_value(p, l->w)->axes != 1 + from + to)
        return false;
    l->to_first = letters_equal(l->w_letter + 1, to_letters, to) &&
                  letters_equal(l->w_letter + 1 + to, from_letters, from);
    return l->to_first || (letters_equal(l->w_letter + 1, from_letters, from) &&
                           letters_equal(l->w_letter + 1 + from, to_letters, to));
}

/* Scratch of the linear that needs most. */
static void note_scratch(Trainer *t, int64_t choices, int64_t experts, int64_t from, int64_t to)
{
    enum { TILE = 128 }; /* LP_EXPERT_ROWS */
    int64_t floats = TILE * (from + to) + choices + experts + 1;
    if (floats <= t->routes.scratch_floats)
        return;
    t->routes.choices = choices;
    t->routes.experts = experts;
    t->routes.from = from;
    t->routes.to = to;
    t->routes.scratch_floats = floats;
}

bool trainer_print_expert(BodyPrinter *p, const Node *node, const int *in, const int *out)
{
    bool forward = node->op == OP_EXPERT;
    Linear l = {.choice = in[0],
                .x = forward ? in[1] : in[2],
                .y = forward ? out[0] : in[1],
                .w = forward ? in[2] : out[0],
                .x_letter = forward ? node->sig.in[1] : node->sig.in[2],
                .y_letter = forward ? node->sig.out[0] : node->sig.in[1],
                .w_letter = forward ? node->sig.in[2] : node->sig.out[0],
                .rest = body_value(p, in[0])->axes};
    int x_axes = body_value(p, l.x)->axes, y_axes = body_value(p, l.y)->axes;
    l.shared = x_axes < l.rest || l.x_letter[l.rest - 1] != node->sig.in[0][l.rest - 1];
    if (!read_order(p, &l)) {
        diag_error(p->t->diag, NO_SPAN,
                   "the weights of %s of %s are neither [experts, out, in] nor [experts, in, out]",
                   node->name, p->body->graph->name);
        diag_help(p->t->diag, "order the dims of the weights so");
        return false;
    }
    const Copy *choice = body_copy(p, l.choice);
    long long k = last_extent(p, l.choice), experts = (long long)body_copy(p, l.w)->local[0],
              from =
                  (long long)body_extent(body_copy(p, l.x), l.shared ? l.rest - 1 : l.rest, x_axes),
              to = (long long)body_extent(body_copy(p, l.y), l.rest, y_axes);
    if (!body_takes(p, node, l.x, true) || !body_takes(p, node, l.y, true) ||
        !body_takes(p, node, l.w, forward))
        return false;
    p->t->routes.used = true;
    note_scratch(p->t, choice->elements, experts, from, to);
    emit_line(p->emit, "{");
    p->emit->depth++;
    emit_line(p->emit, "const LpExpert linear = {");
    p->emit->depth++;
    emit_line(p->emit, ".tokens = %lld, .k = %lld, .shared = %d, .experts = %lld, .base = %s,",
              rows_of(p, l.choice), k, l.shared, experts, body_origin(p, l.w, 0));
    emit_line(p->emit, ".from = %lld, .to = %lld, .to_first = %d,", from, to, l.to_first);
    p->emit->depth--;
    emit_line(p->emit, "};");
    if (forward) {
        emit_line(p->emit, "lp_expert_forward(&linear, %s, %s, %s, %s, s->scratch);",
                  body_reads(p, l.choice), body_reads(p, l.x), body_reads(p, l.w),
                  body_writes(p, l.y));
    } else {
        const char *fresh = body_copy(p, l.w)->home == HOME_ACC ? body_first(p, l.w) : "true";
        emit_line(p->emit, "lp_expert_backward(&linear, %s, %s, %s, %s, %s, s->scratch);",
                  body_reads(p, l.choice), body_reads(p, l.y), body_reads(p, l.x),
                  body_writes(p, l.w), fresh);
    }
    emit_close(p->emit, "");
    if (p->t->plan->ranks > 1)
        emit_line(p->emit, "lp_poll();");
    return true;
}

/* ---- around them ---- */

void trainer_print_expert_includes(Trainer *t, Emit *out)
{
    if (t->routes.used)
        emit_text(out, "#include \"templates/host/gemm_real.h\"\n"
                       "#include \"templates/host/route.c\"\n"
                       "#include \"templates/host/expert.c\"\n");
    if (t->routes.rows)
        emit_text(out, "#include \"templates/host/rows.c\"\n");
}

void trainer_print_expert_scratch(Trainer *t, Emit *out)
{
    if (t->routes.capacity)
        emit_line(out, "bytes = lp_larger(bytes, LP_CAPACITY_BYTES(%lldL, s->threads));",
                  (long long)t->routes.capacity);
    if (t->routes.scratch_floats)
        emit_line(out, "bytes = lp_larger(bytes, LP_EXPERT_BYTES(%lldL, %lldL, %lldL, %lldL));",
                  (long long)t->routes.choices, (long long)t->routes.experts,
                  (long long)t->routes.from, (long long)t->routes.to);
}
