/* model_loss.c - what training alone needs of a model file, expanded to nodes: the loss, dropout.
 */
#include <string.h>

#include "ir/model_reader.h"

/* With smoothing each word has a share e / V of the target: the picked logit becomes
 * (1 - e) z[label] + e mean z. */
static ValueId smoothed(Reader *r, ValueId pick, ValueId z, double share)
{
    if (share == 0)
        return pick;
    const char *zl = model_letters(r, z), *rl = model_letters(r, pick);
    Shape x = model_shape_of(r, z);
    double words = (double)r->net->dims.at[x.dim[x.axes - 1]].used;
    Attrs rest = {.scale = {.factor = 1 - share}}, each = {.scale = {.factor = share / words}};
    const char *same = arena_printf(r->arena, "%s->%s", rl, rl);
    ValueId sum =
        model_node(r, OP_VSUM, "loss.vsum", arena_printf(r->arena, "%s->%s", zl, rl), NULL, &z, 1);
    ValueId mean = model_node(r, OP_SCALE, "loss.mean", same, &each, &sum, 1);
    ValueId mine = model_node(r, OP_SCALE, "loss.mine", same, &rest, &pick, 1);
    return model_node(r, OP_ADD, "loss.target", arena_printf(r->arena, "%s,%s->%s", rl, rl, rl),
                      NULL, (ValueId[]){mine, mean}, 2);
}

/* z-loss, c sum weight (log Z)^2: known by its gradient at log Z, 2 c weight log Z. */
static ValueId with_z(Reader *r, ValueId sum, ValueId max, ValueId weight, double c)
{
    const char *rl = model_letters(r, sum);
    const char *two = arena_printf(r->arena, "%s,%s->%s", rl, rl, rl);
    const char *one = arena_printf(r->arena, "%s->%s", rl, rl);
    Attrs log = {.act = {.kind = ACT_LOG}}, twice = {.scale = {.factor = 2 * c}};
    ValueId part = model_node(r, OP_ACT, "loss.log", one, &log, &sum, 1);
    ValueId all = model_node(r, OP_ADD, "loss.lse", two, NULL, (ValueId[]){part, max}, 2);
    ValueId scaled = model_node(r, OP_SCALE, "loss.z", one, &twice, &all, 1);
    ValueId by = model_node(r, OP_MUL, "loss.z_grad", two, NULL, (ValueId[]){scaled, weight}, 2);
    vec_push(r->arena, &r->graph->seeds) = (Seed){all, by};
    return all;
}

/* log softmax and pick, as graph: m = max z, Z = sum exp(z - m), nll = log Z + m - z[label], loss =
 * sum nll * weight. */
bool model_read_cross_entropy(Reader *r, Json op)
{
    ValueId z;
    double smoothing = 0, z_loss = 0;
    if (!model_number(r, op, "smoothing", 0, 0.999, &smoothing) ||
        !model_number(r, op, "z", 0, 1e3, &z_loss))
        return false;
    if (!model_float(r, json_get(op, "in"), &z))
        return false;
    Graph *graph = r->graph;
    Shape x = model_shape_of(r, z);
    if (x.axes != 3 || x.dim[0] != r->net->batch || x.dim[1] != r->net->sequence) {
        json_fail(json_get(op, "in"), "cross_entropy reads [b, s, v], \"%s\" is %s",
                  graph->values.at[z].name, model_value_shape(r, z));
        diag_help(r->diag, "project to one vocabulary dim first");
        return false;
    }
    if (graph->loss != NONE) {
        json_fail(op, "a second cross_entropy in this block");
        diag_help(r->diag, "keep one loss");
        return false;
    }
    DimId row[2] = {r->net->batch, r->net->sequence};
    ValueId labels = graph_value(graph, VALUE_DATA, data_text[DATA_LABELS], 2, row);
    ValueId weight = graph->data[DATA_WEIGHT]; /* a router of this block may have asked for it */
    if (weight == NONE)
        weight = graph_value(graph, VALUE_DATA, data_text[DATA_WEIGHT], 2, row);
    const char *zl = model_letters(r, z), *rl = model_letters(r, labels);
    NodeId max, sum, pick, nll, loss;
    const char *sig = arena_printf(r->arena, "%s->%s", zl, rl);
    if (!model_emit(r, op, OP_VMAX, "loss.max", sig, NULL, &z, 1, &max))
        return false;
    ValueId m = graph_out(graph, max);
    sig = arena_printf(r->arena, "%s,%s->%s", zl, rl, rl);
    if (!model_emit(r, op, OP_SUMEXP, "loss.sumexp", sig, NULL, (ValueId[]){z, m}, 2, &sum))
        return false;
    sig = arena_printf(r->arena, "%s,%s->%s", rl, zl, rl);
    if (!model_emit(r, op, OP_PICK, "loss.pick", sig, NULL, (ValueId[]){labels, z}, 2, &pick))
        return false;
    ValueId three[3] = {graph_out(graph, sum), m,
                        smoothed(r, graph_out(graph, pick), z, smoothing)};
    if (z_loss > 0)
        with_z(r, three[0], m, weight, z_loss);
    sig = arena_printf(r->arena, "%s,%s,%s->%s", rl, rl, rl, rl);
    if (!model_emit(r, op, OP_NLL, "loss.nll", sig, NULL, three, 3, &nll))
        return false;
    sig = arena_printf(r->arena, "%s,%s->", rl, rl);
    if (!model_emit(r, op, OP_EINSUM, "loss", sig, NULL, (ValueId[]){graph_out(graph, nll), weight},
                    2, &loss))
        return false;
    graph->loss = graph_out(graph, loss);
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
