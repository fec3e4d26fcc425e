/* model_router.c - experts of a model file, expanded to nodes: scores, choices, weights, and the
 * linears whose weights the choices pick. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ir/model_reader.h"

enum { SCORE_SOFTMAX, SCORE_SIGMOID };

typedef struct Router {
    Json op;
    const char *stem;
    ValueId logits;
    Shape rows; /* logits without their experts */
    DimId experts, k;
    int score;
    bool after; /* scores are taken of the chosen logits alone */
    bool renormalise;
    double epsilon, scale, capacity, balance, z, bias_rate;
    int by_sequence; /* balance of each sequence, not of the micro-batch */
    int by_chance;   /* the second choice */
    Attr_topk topk;
    const char *row, *all, *few; /* letters: [A], [A e], [A k] */
} Router;

static bool router_attrs(Reader *r, Router *a)
{
    static const char *const scores[] = {"softmax", "sigmoid"};
    int words = 0, by = GROUP_MAX;
    const char *const *word = op_words_group(&words);
    a->scale = 1;
    Json op = a->op;
    if (!json_word(model_attribute(r, op, "score"), scores, 2, &a->score) ||
        !model_flag(r, op, "after", &a->after) ||
        !model_flag(r, op, "renormalise", &a->renormalise) ||
        !model_number(r, op, "epsilon", 0, 1, &a->epsilon) ||
        !model_number(r, op, "scale", -1e6, 1e6, &a->scale) ||
        !model_number(r, op, "capacity", DBL_MIN, 1e6, &a->capacity) ||
        !model_number(r, op, "balance", 0, 1e6, &a->balance) ||
        !model_number(r, op, "z", 0, 1e6, &a->z) ||
        !model_number(r, op, "bias_rate", 0, 1e3, &a->bias_rate) ||
        !model_whole(r, op, "groups", 1, 1 << 20, &a->topk.groups) ||
        !model_whole(r, op, "kept", 1, 1 << 20, &a->topk.kept))
        return false;
    static const char *const over[] = {"batch", "sequence"};
    Json of = model_attribute(r, op, "balance_over");
    if (model_present(of) && !json_word(of, over, 2, &a->by_sequence))
        return false;
    static const char *const second[] = {"all", "random"};
    Json kept = model_attribute(r, op, "second");
    if (model_present(kept) && !json_word(kept, second, 2, &a->by_chance))
        return false;
    Json at = model_attribute(r, op, "by");
    if (model_present(at) && !json_word(at, word, words, &by))
        return false;
    a->topk.by = (GroupScore)by;
    return true;
}

static bool router_fits(Reader *r, const Router *a)
{
    int64_t experts = r->net->dims.at[a->experts].extent, k = r->net->dims.at[a->k].extent;
    int64_t groups = a->topk.groups > 0 ? a->topk.groups : 1;
    int64_t kept = a->topk.groups > 0 ? a->topk.kept : 1;
    if (experts % groups != 0) {
        json_fail(json_get(a->op, "groups"), "%lld experts do not make %lld equal groups",
                  (long long)experts, (long long)groups);
        diag_help(r->diag, "use a divisor of the number of experts");
        return false;
    }
    if (kept < 1 || kept > groups || k > kept * (experts / groups)) {
        json_fail(a->op, "%lld experts are chosen out of %lld groups with %lld experts each",
                  (long long)k, (long long)kept, (long long)(experts / groups));
        diag_help(r->diag, "\"kept\" is 1 to %lld, with as many experts as are chosen",
                  (long long)groups);
        return false;
    }
    return true;
}

/* The dim of the choices becomes routed where experts may live apart. */
static bool router_routes(Reader *r, const Router *a)
{
    Dim *dim = &r->net->dims.at[a->k];
    if (!r->routed)
        return true;
    if (dim->kind == DIM_ROUTED ? dim->among != a->experts : dim->kind != DIM_OTHER) {
        json_fail(json_get(a->op, "k"), "dim %s counts choices among two sets of experts",
                  dim->name);
        diag_help(r->diag, "give this router's choices a dim of their own");
        return false;
    }
    dim->kind = DIM_ROUTED;
    dim->among = a->experts;
    return true;
}

/* Shorter spellings for nodes that the file does not name. */
static const char *named(Reader *r, const Router *a, const char *what)
{
    return arena_printf(r->arena, "%s.%s", a->stem, what);
}

static ValueId map(Reader *r, const Router *a, OpId op, const char *what, const char *letters,
                   const Attrs *attrs, ValueId x)
{
    return model_node(r, op, named(r, a, what), arena_printf(r->arena, "%s->%s", letters, letters),
                      attrs, &x, 1);
}

static ValueId join(Reader *r, const Router *a, OpId op, const char *what, const char *x_letters,
                    ValueId x, const char *y_letters, ValueId y, const char *out)
{
    return model_node(r, op, named(r, a, what),
                      arena_printf(r->arena, "%s,%s->%s", x_letters, y_letters, out), NULL,
                      (ValueId[]){x, y}, 2);
}

static ValueId score(Reader *r, const Router *a, const char *letters, ValueId x)
{
    Attrs sigmoid = {.act = {.kind = ACT_SIGMOID}};
    return a->score == SCORE_SOFTMAX ? map(r, a, OP_SOFTMAX, "scores", letters, NULL, x)
                                     : map(r, a, OP_ACT, "scores", letters, &sigmoid, x);
}

/* How much more than its share an expert was chosen, times the number of experts, so that all
 * numbers are whole: experts x choices - tokens x k. Its sign moves the bias (Wang et al. 2024,
 * Auxiliary-Loss-Free Load Balancing). */
static void seed_bias(Reader *r, const Router *a, ValueId bias, ValueId choice)
{
    const char *e = model_shape_letters(r, &a->experts, 1);
    double experts = (double)r->net->dims.at[a->experts].extent, tokens = 1;
    for (int i = 0; i < a->rows.axes; i++)
        tokens *= (double)r->net->dims.at[a->rows.dim[i]].extent;
    Attrs each = {.scale = {.factor = experts}};
    Attrs share = {.scale = {.factor = -tokens * (double)r->net->dims.at[a->k].extent}};
    ValueId count = model_node(r, OP_TALLY, named(r, a, "taken_by"),
                               arena_printf(r->arena, "%s->%s", a->few, e), NULL, &choice, 1);
    ValueId one = model_node(r, OP_ONES, named(r, a, "one"), arena_printf(r->arena, "->%s", e),
                             NULL, NULL, 0);
    ValueId load = map(r, a, OP_SCALE, "load_all", e, &each, count);
    ValueId even = map(r, a, OP_SCALE, "even", e, &share, one);
    ValueId over = join(r, a, OP_ADD, "over", e, load, e, even, e);
    vec_push(r->arena, &r->graph->seeds) = (Seed){bias, over};
}

/* The experts of each token: the k best by score, a bias of the experts added for the choice only.
 */
static bool choose(Reader *r, const Router *a, ValueId scores, ValueId *ret)
{
    const char *e = model_shape_letters(r, &a->experts, 1);
    ValueId by = scores, bias = NONE;
    if (json_has(a->op, "bias")) {
        Json at = json_get(a->op, "bias");
        Shape shape = {.axes = 1, .dim = {a->experts}};
        int known = r->graph->params.n;
        if (!model_param(r, at, shape, (int[]){1}, 1, INIT_ZEROS, &bias))
            return false;
        if (r->graph->params.n == known) {
            json_fail(at, "parameter \"%s\" is used by another op of the block", model_text(at));
            diag_help(r->diag, "nothing trains the bias of a router: it is a tensor of its own");
            return false;
        }
        Param *param = &r->graph->params.at[r->graph->values.at[bias].out];
        param->decay = false;
        param->rate = a->bias_rate;
        param->frozen = a->bias_rate == 0;
        by = join(r, a, OP_BIAS, "biased", a->all, scores, e, bias, a->all);
    }
    Attrs topk = {.topk = a->topk};
    *ret = model_node(r, OP_TOPK, named(r, a, "best"),
                      arena_printf(r->arena, "%s->%s", a->all, a->few), &topk, &by, 1);
    if (a->bias_rate > 0 && bias != NONE)
        seed_bias(r, a, bias, *ret);
    return true;
}

/* The second choice stays with a probability of twice its part of both shares, in GShard. What the
 * draw decides nothing is differentiated through. */
static bool by_chance(Reader *r, const Router *a, ValueId share, ValueId *choice)
{
    if (!a->by_chance)
        return true;
    if (r->net->dims.at[a->k].extent != 2 ||
        !model_has_dim(a->rows.dim, a->rows.axes, r->net->batch)) {
        json_fail(json_get(a->op, "second"), "a second choice by chance is one of two, of samples");
        diag_help(r->diag, "route values with dim b to \"k\" of 2, or leave \"second\" out");
        return false;
    }
    Attrs draw = {.draw = {.site = model_draw_sites(r->graph)}};
    ValueId word = model_node(r, OP_DRAW, named(r, a, "words"),
                              arena_printf(r->arena, "->%s", a->row), &draw, NULL, 0);
    const char *sig = arena_printf(r->arena, "%s,%s,%s->%s", a->few, a->few, a->row, a->few);
    *choice = model_node(r, OP_CHANCE, named(r, a, "drawn"), sig, NULL,
                         (ValueId[]){*choice, share, word}, 3);
    return true;
}

/* Beyond ceil(factor s k / e) choices of a sequence an expert takes no more. */
static bool limit(Reader *r, const Router *a, ValueId *choice)
{
    if (a->capacity == 0)
        return true;
    if (a->rows.axes != 2 || a->rows.dim[0] != r->net->batch ||
        a->rows.dim[1] != r->net->sequence) {
        json_fail(json_get(a->op, "capacity"), "a capacity counts the tokens of a sequence");
        diag_help(r->diag, "route values of shape [b, s, h]");
        return false;
    }
    double s = (double)r->net->dims.at[r->net->sequence].extent;
    double k = (double)r->net->dims.at[a->k].extent, e = (double)r->net->dims.at[a->experts].extent;
    Attrs attrs = {
        .capacity = {.experts = (int64_t)e, .bound = (int64_t)ceil(a->capacity * s * k / e)}};
    if (attrs.capacity.bound < 1)
        attrs.capacity.bound = 1;
    *choice = map(r, a, OP_CAPACITY, "within", a->few, &attrs, *choice);
    return true;
}

static ValueId weights(Reader *r, const Router *a, ValueId scores, ValueId choice)
{
    ValueId w = join(r, a, OP_TAKE, "taken", a->few, choice, a->all, scores, a->few);
    if (a->after)
        w = score(r, a, a->few, w);
    if (a->renormalise) {
        Attrs recip = {.curve = {.kind = CURVE_RECIP, .a = a->epsilon}};
        ValueId sum = model_node(r, OP_REDUCE, named(r, a, "sum"),
                                 arena_printf(r->arena, "%s->%s", a->few, a->row), NULL, &w, 1);
        ValueId rate = map(r, a, OP_CURVE, "rate", a->row, &recip, sum);
        w = join(r, a, OP_EINSUM, "shares", a->few, w, a->row, rate, a->few);
    }
    if (a->scale != 1) {
        Attrs scale = {.scale = {.factor = a->scale}};
        w = map(r, a, OP_SCALE, "scaled", a->few, &scale, w);
    }
    return w;
}

/* c e sum_e f_e P_e, with f the share of choices and P the mean score of an expert, known by its
 * gradient at the scores (Switch Transformer, Fedus et al. 2022). Both are taken over the tokens of
 * a global micro-batch, or of each sequence (DeepSeek-V3): then no plan changes it. Weighted by the
 * share of the step's tokens, so that all together are one mean. Tokens count by their weight in
 * the loss: padding has none. */
static void seed_balance(Reader *r, const Router *a, ValueId scores, ValueId choice)
{
    const char *e = model_shape_letters(r, &a->experts, 1);
    const char *b = a->by_sequence ? model_shape_letters(r, &r->net->batch, 1) : "";
    const char *of = arena_printf(r->arena, "%s%s", b, e);
    double k = (double)r->net->dims.at[a->k].extent;
    double experts = (double)r->net->dims.at[a->experts].extent;
    Attrs factor = {.scale = {.factor = a->balance * experts / k}};
    Attrs over = {.curve = {.kind = CURVE_RECIP, .a = 1e-30}}; /* of no tokens: nothing */
    ValueId weight = model_data(r, DATA_WEIGHT);
    ValueId ones = model_node(r, OP_ONES, named(r, a, "each"),
                              arena_printf(r->arena, "->%s", a->few), NULL, NULL, 0);
    ValueId chosen = join(r, a, OP_SPREAD, "chosen", a->few, choice, a->few, ones, a->all);
    ValueId count = join(r, a, OP_EINSUM, "count", a->all, chosen, a->row, weight, of);
    ValueId share = model_node(r, OP_REDUCE, named(r, a, "step_share"),
                               arena_printf(r->arena, "%s->%s", a->row, b), NULL, &weight, 1);
    ValueId inverse = map(r, a, OP_CURVE, "per_share", b, &over, share);
    ValueId part = map(r, a, OP_SCALE, "load", of, &factor, count);
    ValueId each = join(r, a, OP_EINSUM, "balance", of, part, b, inverse, of);
    ValueId by = join(r, a, OP_EINSUM, "balance_grad", a->row, weight, of, each, a->all);
    vec_push(r->arena, &r->graph->seeds) = (Seed){scores, by};
}

/* c sum weight (log sum exp logits)^2 (ST-MoE, Zoph et al. 2022). */
static void seed_z(Reader *r, const Router *a)
{
    ValueId weight = model_data(r, DATA_WEIGHT);
    Attrs log = {.act = {.kind = ACT_LOG}}, twice = {.scale = {.factor = 2 * a->z}};
    ValueId max = model_node(r, OP_VMAX, named(r, a, "max"),
                             arena_printf(r->arena, "%s->%s", a->all, a->row), NULL, &a->logits, 1);
    ValueId sum = join(r, a, OP_SUMEXP, "sumexp", a->all, a->logits, a->row, max, a->row);
    ValueId part = map(r, a, OP_ACT, "log", a->row, &log, sum);
    ValueId all = join(r, a, OP_ADD, "lse", a->row, part, a->row, max, a->row);
    ValueId wide = map(r, a, OP_SCALE, "z", a->row, &twice, all);
    ValueId by = join(r, a, OP_MUL, "z_grad", a->row, wide, a->row, weight, a->row);
    vec_push(r->arena, &r->graph->seeds) = (Seed){all, by};
}

/* Terms of the objective beside the loss. */
static bool side_terms(Reader *r, const Router *a, ValueId scores, ValueId choice)
{
    if (a->balance == 0 && a->z == 0)
        return true;
    if (a->rows.axes != 2 || a->rows.dim[0] != r->net->batch ||
        a->rows.dim[1] != r->net->sequence || (a->balance > 0 && a->after)) {
        json_fail(a->op, "balance and z are terms of tokens [b, s] with scores of all experts");
        diag_help(r->diag, "leave out \"balance\" and \"z\", or \"after\"");
        return false;
    }
    if (a->balance > 0)
        seed_balance(r, a, scores, choice);
    if (a->z > 0)
        seed_z(r, a);
    return true;
}

bool model_read_router(Reader *r, Json op)
{
    Router a = {.op = op};
    const char *name[2];
    Json out = json_get(op, "out");
    bool fine = model_float(r, json_get(op, "in"), &a.logits);
    fine = model_dim(r, json_get(op, "k"), &a.k) && fine;
    if (!json_want_array(out) || !fine)
        return false;
    if (json_len(out) != 2) {
        json_fail(out, "a router makes two values: the choices and their weights");
        diag_help(r->diag, "\"out\": [\"choice\", \"share\"]");
        return false;
    }
    if (!model_new_name(r, json_at(out, 0), &name[0]) ||
        !model_new_name(r, json_at(out, 1), &name[1]) || !router_attrs(r, &a))
        return false;
    Shape x = model_shape_of(r, a.logits);
    a.stem = name[1];
    a.experts = x.dim[x.axes - 1];
    a.rows = x;
    a.rows.axes--;
    if (x.axes < 2 || model_has_dim(x.dim, x.axes, a.k)) {
        json_fail(json_get(op, "k"), "the choices need a dim that \"%s\" %s has not",
                  r->graph->values.at[a.logits].name, model_value_shape(r, a.logits));
        diag_help(r->diag, "add a dim with the number of experts that each token takes");
        return false;
    }
    if (!router_fits(r, &a))
        return false;
    if (!router_routes(r, &a))
        return false;
    a.row = model_shape_letters(r, a.rows.dim, a.rows.axes);
    a.all = model_letters(r, a.logits);
    a.few = arena_printf(r->arena, "%s%s", a.row, model_shape_letters(r, &a.k, 1));
    ValueId scores = a.after ? a.logits : score(r, &a, a.all, a.logits), choice;
    if (!choose(r, &a, scores, &choice) || !side_terms(r, &a, scores, choice))
        return false;
    /* shares are settled before an expert refuses: what is refused is lost, not given to others */
    ValueId share = weights(r, &a, scores, choice), kept = choice;
    if (!by_chance(r, &a, share, &kept) || !limit(r, &a, &kept))
        return false;
    if (model_deals(r))
        kept = model_deal(r, kept, r->net->dims.at[a.experts].extent, 0);
    graph_rename(r->graph, kept, name[0]);
    graph_rename(r->graph, share, name[1]);
    model_define(r, kept, json_at(out, 0));
    model_define(r, share, json_at(out, 1));
    return true;
}

/* ---- linears of experts ---- */

/* The dim of the experts that a value chooses among, NONE when it is no choice. */
static DimId experts_of(const Graph *graph, ValueId id)
{
    const Value *value = &graph->values.at[id];
    if (value->kind != VALUE_NODE)
        return NONE;
    const Node *node = &graph->nodes.at[value->made];
    if (node->op == OP_CAPACITY || node->op == OP_DEAL || node->op == OP_CHANCE)
        return experts_of(graph, node->in[0]);
    const Value *scores = &graph->values.at[node->in[0]];
    return node->op == OP_TOPK ? scores->dim[scores->axes - 1] : NONE;
}

static bool choice_of(Reader *r, Json at, ValueId *ret)
{
    if (!model_operand(r, at, ret))
        return false;
    const Value *value = &r->graph->values.at[*ret];
    if (experts_of(r->graph, *ret) != NONE)
        return true;
    json_fail(at, "\"%s\" is no choice of experts", value->name);
    diag_help(r->diag, "name the first result of a router");
    return false;
}

/* A row of the tokens for each of their choices; those of one value are made once. */
static ValueId rows_of_choices(Reader *r, ValueId in, ValueId choice)
{
    const char *name = arena_printf(r->arena, "%s.each", r->graph->values.at[in].name);
    ValueId known = graph_find(r->graph, name);
    Shape x = model_shape_of(r, in), c = model_shape_of(r, choice);
    int tokens = c.axes - 1;
    Shape made = c;
    memcpy(made.dim + c.axes, x.dim + tokens, (size_t)(x.axes - tokens) * sizeof *made.dim);
    made.axes = x.axes + 1;
    if (known != NONE && model_same_shape(model_shape_of(r, known), made))
        return known;
    const char *to = model_shape_letters(r, made.dim, made.axes);
    return model_node(r, OP_BROADCAST, graph_fresh_name(r->graph, name),
                      arena_printf(r->arena, "%s->%s", model_letters(r, in), to), NULL, &in, 1);
}

/* Each choice's row of a table; over several dims it is a product with a one. */
static ValueId expert_bias(Reader *r, const char *out, ValueId choice, ValueId bias,
                           const char *made)
{
    Shape c = model_shape_of(r, choice);
    const char *cl = model_letters(r, choice), *bl = model_letters(r, bias);
    const char *name = arena_printf(r->arena, "%s.bias", out);
    if (r->graph->values.at[bias].axes == 2)
        return model_node(r, OP_LOOKUP, name, arena_printf(r->arena, "%s,%s->%s", cl, bl, made),
                          NULL, (ValueId[]){choice, bias}, 2);
    const char *row = model_shape_letters(r, c.dim, c.axes - (r->routed ? 0 : 1));
    ValueId ones = model_node(r, OP_ONES, arena_printf(r->arena, "%s.ones", out),
                              arena_printf(r->arena, "->%s", row), NULL, NULL, 0);
    return model_node(r, OP_EXPERT, name, arena_printf(r->arena, "%s,%s,%s->%s", cl, row, bl, made),
                      NULL, (ValueId[]){choice, ones, bias}, 3);
}

bool model_read_expert_linear(Reader *r, Json op)
{
    ValueId in, choice, weight, bias;
    const char *out;
    Shape to, from = {0};
    DimId experts;
    bool fine = model_in_out(r, op, &in, &out);
    fine = choice_of(r, json_get(op, "choice"), &choice) && fine;
    fine = model_dim(r, json_get(op, "experts"), &experts) && fine;
    fine = model_dims(r, json_get(op, "to"), MAX_AXES - 1, &to) && fine;
    if (!fine)
        return false;
    Shape x = model_shape_of(r, in), c = model_shape_of(r, choice);
    DimId routed = experts_of(r->graph, choice);
    if (experts != routed) {
        json_fail(json_get(op, "experts"), "the router has %lld experts of dim %s",
                  (long long)r->net->dims.at[routed].extent, model_dim_name(r, routed));
        diag_help(r->diag, "\"experts\": \"%s\"", model_dim_name(r, routed));
        return false;
    }
    if (json_has(op, "from")) {
        if (!model_dims(r, json_get(op, "from"), MAX_AXES - 1, &from))
            return false;
    } else {
        from = (Shape){.axes = 1, .dim = {x.dim[x.axes - 1]}};
    }
    int rest = x.axes - from.axes;
    bool rows = rest == c.axes || rest == c.axes - 1;
    for (int i = 0; i < from.axes; i++)
        rows = rows && !model_has_dim(c.dim, c.axes, from.dim[i]) && from.dim[i] != experts;
    if (!rows || memcmp(x.dim, c.dim, (size_t)rest * sizeof *x.dim) != 0 ||
        memcmp(x.dim + rest, from.dim, (size_t)from.axes * sizeof *x.dim) != 0) {
        model_mismatch(r, op, "an expert linear reads the tokens of its choices", in, choice);
        diag_help(r->diag, "tokens first, with or without the choices, then the dims of \"from\"");
        return false;
    }
    Shape made = c, w = {.axes = 1, .dim = {experts}};
    if (r->routed && rest == c.axes - 1 && model_axes_fit(r, op, x.axes + 1, "the rows"))
        in = rows_of_choices(r, in, choice);
    if (!model_axes_fit(r, op, c.axes + to.axes, "the output") ||
        !model_axes_fit(r, op, 1 + to.axes + from.axes, "the weight"))
        return false;
    memcpy(made.dim + made.axes, to.dim, (size_t)to.axes * sizeof *made.dim);
    made.axes += to.axes;
    bool transposed = false;
    if (!json_opt_bool(op, "transposed", &transposed))
        return false;
    Shape side[2] = {transposed ? from : to, transposed ? to : from};
    for (int i = 0; i < 2; i++) {
        memcpy(w.dim + w.axes, side[i].dim, (size_t)side[i].axes * sizeof *w.dim);
        w.axes += side[i].axes;
    }
    for (int i = 0; i < to.axes; i++) {
        if (!model_has_dim(x.dim, x.axes, to.dim[i]) && !model_has_dim(w.dim, 1, to.dim[i]) &&
            !model_has_dim(c.dim, c.axes, to.dim[i]))
            continue;
        json_fail(json_get(op, "to"), "dim %s is in the input already",
                  model_dim_name(r, to.dim[i]));
        diag_help(r->diag, "give the output a dim of its own with the same extent");
        return false;
    }
    bool flat = false; /* stored with the experts' rows below each other */
    if (!json_opt_bool(op, "flat", &flat))
        return false;
    int group[3] = {1, side[0].axes, side[1].axes}, joined[2] = {1 + side[0].axes, side[1].axes};
    if (!model_param(r, json_get(op, "weight"), w, flat ? joined : group, flat ? 2 : 3, INIT_NORMAL,
                     &weight))
        return false;
    const char *cl = model_letters(r, choice), *yl = model_shape_letters(r, made.dim, made.axes);
    const char *sig = arena_printf(r->arena, "%s,%s,%s->%s", cl, model_letters(r, in),
                                   model_letters(r, weight), yl);
    ValueId operands[3] = {choice, in, weight};
    if (!json_has(op, "bias"))
        return model_emit_out(r, op, OP_EXPERT, out, sig, NULL, operands, 3);
    NodeId product;
    if (!model_emit(r, op, OP_EXPERT, arena_printf(r->arena, "%s.mm", out), sig, NULL, operands, 3,
                    &product))
        return false;
    Shape b = {.axes = 1 + to.axes, .dim = {experts}};
    memcpy(b.dim + 1, to.dim, (size_t)to.axes * sizeof *b.dim);
    if (!model_param(r, json_get(op, "bias"), b, (int[]){1, to.axes}, 2, INIT_ZEROS, &bias))
        return false;
    ValueId y = graph_out(r->graph, product);
    ValueId add = expert_bias(r, out, choice, bias, yl);
    return model_emit_out(r, op, OP_ADD, out, arena_printf(r->arena, "%s,%s->%s", yl, yl, yl), NULL,
                          (ValueId[]){y, add}, 2);
}

/* What the experts of a token made, added by weight. */
bool model_read_combine(Reader *r, Json op)
{
    ValueId in[2];
    const char *out;
    bool fine = model_floats(r, json_get(op, "in"), 2, in);
    if (!model_new_name(r, json_get(op, "out"), &out) || !fine)
        return false;
    Shape y = model_shape_of(r, in[0]), w = model_shape_of(r, in[1]);
    if (w.axes < 2 || y.axes <= w.axes ||
        memcmp(y.dim, w.dim, (size_t)w.axes * sizeof *y.dim) != 0) {
        model_mismatch(r, json_get(op, "in"), "combine reads [.., k, h] and [.., k]", in[0], in[1]);
        diag_help(r->diag, "the weights are the second result of the router");
        return false;
    }
    if (model_deals(r) && value_routed_axis(r->net, &r->graph->values.at[in[0]]) != NONE)
        return model_combine_rounds(r, op, out, in);
    Shape made = {.axes = y.axes - 1};
    memcpy(made.dim, y.dim, (size_t)(w.axes - 1) * sizeof *y.dim);
    memcpy(made.dim + w.axes - 1, y.dim + w.axes, (size_t)(y.axes - w.axes) * sizeof *y.dim);
    return model_emit_out(r, op, OP_EINSUM, out,
                          arena_printf(r->arena, "%s,%s->%s", model_letters(r, in[0]),
                                       model_letters(r, in[1]),
                                       model_shape_letters(r, made.dim, made.axes)),
                          NULL, in, 2);
}
