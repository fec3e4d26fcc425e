/* model_loss.c - what training alone needs of a model file, expanded to nodes: the loss, dropout.
 */
#include <string.h>

#include "ir/model_reader.h"

/* One cross_entropy being read. */
typedef struct Loss {
    const char *stem; /* of the names of its nodes */
    ValueId z, labels,
        share; /* logits, labels, and what an nll counts in the objective: a weight */
    double smoothing, z_loss, factor;
    int64_t ahead;
} Loss;

static const char *named(Reader *r, const Loss *l, const char *word)
{
    return arena_printf(r->arena, "%s.%s", l->stem, word);
}

/* With smoothing each word has a share e / V of the target: the picked logit becomes
 * (1 - e) z[label] + e mean z. */
static ValueId smoothed(Reader *r, const Loss *l, ValueId pick)
{
    if (l->smoothing == 0)
        return pick;
    const char *zl = model_letters(r, l->z), *rl = model_letters(r, pick);
    Shape x = model_shape_of(r, l->z);
    double words = (double)r->net->dims.at[x.dim[x.axes - 1]].used;
    Attrs rest = {.scale = {.factor = 1 - l->smoothing}},
          each = {.scale = {.factor = l->smoothing / words}};
    const char *same = arena_printf(r->arena, "%s->%s", rl, rl);
    ValueId sum = model_node(r, OP_VSUM, named(r, l, "vsum"),
                             arena_printf(r->arena, "%s->%s", zl, rl), NULL, &l->z, 1);
    ValueId mean = model_node(r, OP_SCALE, named(r, l, "mean"), same, &each, &sum, 1);
    ValueId mine = model_node(r, OP_SCALE, named(r, l, "mine"), same, &rest, &pick, 1);
    return model_node(r, OP_ADD, named(r, l, "target"),
                      arena_printf(r->arena, "%s,%s->%s", rl, rl, rl), NULL,
                      (ValueId[]){mine, mean}, 2);
}

/* z-loss, c sum weight (log Z)^2: known by its gradient at log Z, 2 c weight log Z. */
static void seed_z(Reader *r, const Loss *l, ValueId sum, ValueId max)
{
    const char *rl = model_letters(r, sum);
    const char *two = arena_printf(r->arena, "%s,%s->%s", rl, rl, rl);
    const char *one = arena_printf(r->arena, "%s->%s", rl, rl);
    Attrs log = {.act = {.kind = ACT_LOG}}, twice = {.scale = {.factor = 2 * l->z_loss}};
    ValueId part = model_node(r, OP_ACT, named(r, l, "log"), one, &log, &sum, 1);
    ValueId all = model_node(r, OP_ADD, named(r, l, "lse"), two, NULL, (ValueId[]){part, max}, 2);
    ValueId scaled = model_node(r, OP_SCALE, named(r, l, "z"), one, &twice, &all, 1);
    ValueId by =
        model_node(r, OP_MUL, named(r, l, "z_grad"), two, NULL, (ValueId[]){scaled, l->share}, 2);
    vec_push(r->arena, &r->graph->seeds) = (Seed){all, by};
}

static bool loss_is_read(Reader *r, Json op, Loss *l)
{
    if (!model_number(r, op, "smoothing", 0, 0.999, &l->smoothing) ||
        !model_number(r, op, "z", 0, 1e3, &l->z_loss) ||
        !model_whole(r, op, "ahead", 0, MOST_AHEAD, &l->ahead) ||
        !model_number(r, op, "factor", 0, 1e3, &l->factor) ||
        !model_float(r, json_get(op, "in"), &l->z))
        return false;
    Graph *graph = r->graph;
    Shape x = model_shape_of(r, l->z);
    if (x.axes != 3 || x.dim[0] != r->net->batch || x.dim[1] != r->net->sequence) {
        json_fail(json_get(op, "in"), "cross_entropy reads [b, s, v], \"%s\" is %s",
                  graph->values.at[l->z].name, model_value_shape(r, l->z));
        diag_help(r->diag, "project to one vocabulary dim first");
        return false;
    }
    if (l->ahead == 0 && graph->loss != NONE) {
        json_fail(op, "a second cross_entropy in this block");
        diag_help(r->diag, "keep one loss; those of further tokens have \"ahead\"");
        return false;
    }
    if (l->ahead == 0 && l->factor != 1) {
        json_fail(json_get(op, "factor"), "the loss of the next token has no factor");
        diag_help(r->diag, "only losses with \"ahead\" are weighed against it");
        return false;
    }
    l->stem = l->ahead == 0 ? "loss" : arena_printf(r->arena, "ahead%d", (int)l->ahead);
    if (graph_find(graph, named(r, l, "max")) == NONE)
        return true;
    json_fail(op, "a second cross_entropy of these labels in this block");
    diag_help(r->diag, "give each another \"ahead\"");
    return false;
}

/* log softmax and pick, as graph: m = max z, Z = sum exp(z - m), nll = log Z + m - z[label], loss =
 * sum nll * weight. The term of a further token is known by its gradient at the nll, factor *
 * weight: multi-token prediction (DeepSeek-V3 technical report, section 2.2). */
bool model_read_cross_entropy(Reader *r, Json op)
{
    Loss l = {.factor = 1};
    if (!loss_is_read(r, op, &l))
        return false;
    Graph *graph = r->graph;
    l.labels = model_data(r, data_labels((int)l.ahead));
    ValueId weight = l.share = model_data(r, data_weight((int)l.ahead));
    const char *zl = model_letters(r, l.z), *rl = model_letters(r, l.labels);
    Attrs factor = {.scale = {.factor = l.factor}};
    if (l.factor != 1)
        l.share = model_node(r, OP_SCALE, named(r, &l, "share"),
                             arena_printf(r->arena, "%s->%s", rl, rl), &factor, &weight, 1);
    NodeId max, sum, pick, nll, loss;
    const char *sig = arena_printf(r->arena, "%s->%s", zl, rl);
    if (!model_emit(r, op, OP_VMAX, named(r, &l, "max"), sig, NULL, &l.z, 1, &max))
        return false;
    ValueId m = graph_out(graph, max);
    sig = arena_printf(r->arena, "%s,%s->%s", zl, rl, rl);
    if (!model_emit(r, op, OP_SUMEXP, named(r, &l, "sumexp"), sig, NULL, (ValueId[]){l.z, m}, 2,
                    &sum))
        return false;
    sig = arena_printf(r->arena, "%s,%s->%s", rl, zl, rl);
    if (!model_emit(r, op, OP_PICK, named(r, &l, "pick"), sig, NULL, (ValueId[]){l.labels, l.z}, 2,
                    &pick))
        return false;
    ValueId three[3] = {graph_out(graph, sum), m, smoothed(r, &l, graph_out(graph, pick))};
    if (l.z_loss > 0)
        seed_z(r, &l, three[0], m);
    sig = arena_printf(r->arena, "%s,%s,%s->%s", rl, rl, rl, rl);
    if (!model_emit(r, op, OP_NLL, named(r, &l, "nll"), sig, NULL, three, 3, &nll))
        return false;
    sig = arena_printf(r->arena, "%s,%s->", rl, rl);
    if (!model_emit(r, op, OP_EINSUM, l.stem, sig, NULL, (ValueId[]){graph_out(graph, nll), weight},
                    2, &loss))
        return false;
    if (l.ahead == 0) {
        graph->loss = graph_out(graph, loss);
        return true;
    }
    vec_push(r->arena, &graph->seeds) = (Seed){graph_out(graph, nll), l.share};
    vec_push(r->arena, &graph->beside) = graph_out(graph, loss);
    return true;
}

/* Each site of a block draws numbers of its own. */
int64_t model_draw_sites(const Graph *graph)
{
    int64_t n = 0;
    for (int i = 0; i < graph->nodes.n; i++)
        n += op_draws(graph->nodes.at[i].op);
    return n;
}

/* in * mask, the mask made of nothing but where it is: backward makes it again. */
bool model_read_dropout(Reader *r, Json op)
{
    ValueId in;
    const char *out;
    Attrs attrs = {.dropout = {.site = model_draw_sites(r->graph)}};
    bool fine = model_in_out(r, op, &in, &out);
    Json rate = model_attribute(r, op, "rate");
    if (!json_num(rate, 0, 1, &attrs.dropout.rate) || !fine)
        return false;
    if (attrs.dropout.rate <= 0 || attrs.dropout.rate >= 1) {
        json_fail(rate, "a dropout rate of %g", attrs.dropout.rate);
        diag_help(r->diag, "it is more than 0 and less than 1; without dropout remove the op");
        return false;
    }
    Shape x = model_shape_of(r, in);
    if (!model_has_dim(x.dim, x.axes, r->net->batch)) {
        json_fail(json_get(op, "in"), "\"%s\" %s is the same for all samples",
                  r->graph->values.at[in].name, model_value_shape(r, in));
        diag_help(r->diag, "drop out a value that has dim b");
        return false;
    }
    const char *l = model_letters(r, in);
    ValueId mask = model_node(r, OP_DROPOUT, arena_printf(r->arena, "%s.mask", out),
                              arena_printf(r->arena, "->%s", l), &attrs, NULL, 0);
    return model_emit_out(r, op, OP_MUL, out, arena_printf(r->arena, "%s,%s->%s", l, l, l), NULL,
                          (ValueId[]){in, mask}, 2);
}
