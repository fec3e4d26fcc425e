/* optimizer.c - builds the optimizer's graphs. */
#include "ir/optimizer.h"

#include <math.h>

Optimizer optimizer_make(Arena *arena, const AdamW *adamw)
{
    Net *net = ARENA_NEW(arena, Net);
    net->arena = arena;
    net->name = "optimizer";
    DimId flat = net_add_dim(net, "e", DIM_OTHER, 1);
    Graph *graph = net_add_class(net, "optimizer");
    static const char *const tensor[4] = {"weight", "moment1", "moment2", "gradient"};
    static const char *const scalar[4] = {"coefficient", "lr", "step", "norm2"};
    ValueId in[8];
    for (int i = 0; i < 4; i++)
        in[i] = graph_value(graph, VALUE_INPUT, tensor[i], 1, &flat);
    for (int i = 0; i < 4; i++)
        in[4 + i] = graph_value(graph, VALUE_INPUT, scalar[i], 0, NULL);
    Attrs clip = {0}, step = {0};
    clip.clip.max_norm = adamw->clip;
    step.adamw.beta1 = adamw->beta1;
    step.adamw.beta2 = adamw->beta2;
    step.adamw.eps = adamw->eps;
    step.adamw.decay = adamw->decay;
    Optimizer optimizer = {.graph = graph};
    optimizer.norm2 = graph_node(graph, OP_SUMSQ, "norm2_share", "e->", NULL, &in[3], 1);
    optimizer.clip = graph_node(graph, OP_CLIP, "clip", "->", &clip, &in[7], 1);
    optimizer.sign =
        graph_node(graph, OP_SIGN, "sign", "e,e->e", NULL, (ValueId[]){in[0], in[3]}, 2);
    optimizer.step = graph_node(graph, OP_ADAMW, "adamw", "e,e,e,e,,,->e,e,e", &step, in, 7);
    return optimizer;
}

/* ---- whole matrices ---- */

Muon muon_default(void)
{
    return (Muon){
        .steps = 5, .momentum = 0.95, .eps = 1e-7, .nesterov = true, .rate = 1, .match_rms = true};
}

/* Some node finds its rows by index (experts, a table): they are things apart, not one matrix. */
static bool is_indexed(const Graph *graph, ValueId id, int axis)
{
    for (int n = 0; n < graph->nodes.n; n++) {
        const Node *node = &graph->nodes.at[n];
        for (int k = 0; k < node->ins; k++)
            if (node->in[k] == id && (node->sig.base >> node->sig.in[k][axis] & 1))
                return true;
    }
    return false;
}

bool param_is_matrix(const Graph *graph, int param, MatrixShape *ret)
{
    const Param *info = &graph->params.at[param];
    *ret = (MatrixShape){0};
    if (graph->chain_in == NONE || graph->chain_out == NONE || !info->decay || info->stored < 2)
        return false;
    int sides = 0, axis = 0;
    for (int d = 0; d < info->stored; d++) {
        if (is_indexed(graph, info->value, axis) && sides == 0)
            ret->stack += info->group[d];
        else if (sides++ == 0)
            ret->rows = info->group[d];
        else
            ret->cols = info->group[d];
        axis += info->group[d];
    }
    return sides == 2 && ret->rows <= MAX_SIDE && ret->cols <= MAX_SIDE;
}

enum { ROWS, COLS, SIDES, LETTERS = 3 };

typedef struct Sheet {
    Arena *arena;
    Graph *graph;
    MatrixShape shape;
    int64_t elements[SIDES]; /* of a side */
    /* Of a side's axes, and twice more, for products that set a side against itself. */
    char letter[SIDES][LETTERS][MAX_SIDE + 1];
} Sheet;

static ValueId put(Sheet *sheet, OpId op, const char *name, const char *sig, const Attrs *attrs,
                   ValueId a, ValueId b, ValueId c)
{
    const ValueId in[3] = {a, b, c};
    NodeId node = graph_node(sheet->graph, op, graph_fresh_name(sheet->graph, name), sig, attrs, in,
                             b == NONE   ? 1
                             : c == NONE ? 2
                                         : 3);
    return graph_out(sheet->graph, node);
}

static ValueId put_scaled(Sheet *sheet, const char *name, const char *sig, double factor, ValueId x)
{
    Attrs attrs = {.scale = {.factor = factor}};
    return put(sheet, OP_SCALE, name, sig, &attrs, x, NONE, NONE);
}

/* x := a x + (b g + c g g) x, g the smaller one of x x' and x' x. The coefficients are Jordan's. */
static ValueId put_round(Sheet *sheet, ValueId x)
{
    static const double a = 3.4445, b = -4.7750, c = 2.0315;
    Arena *arena = sheet->arena;
    bool wide = sheet->elements[ROWS] <= sheet->elements[COLS];
    const char *own = sheet->letter[!wide][0], *twin = sheet->letter[!wide][1],
               *third = sheet->letter[!wide][2], *other = sheet->letter[wide][0];
    const char *matrix = arena_printf(arena, "%s%s", wide ? own : other, wide ? other : own);
    const char *turned = arena_printf(arena, "%s%s", wide ? twin : other, wide ? other : twin);
    const char *gram = arena_printf(arena, "%s%s", own, twin);
    ValueId g = put(sheet, OP_EINSUM, "gram",
                    arena_printf(arena, "%s,%s->%s", matrix, turned, gram), NULL, x, x, NONE);
    ValueId g2 =
        put(sheet, OP_EINSUM, "square",
            arena_printf(arena, "%s%s,%s%s->%s", own, third, third, twin, gram), NULL, g, g, NONE);
    const char *scale = arena_printf(arena, "%s->%s", gram, gram);
    ValueId linear = put_scaled(sheet, "linear", scale, b, g);
    ValueId quadratic = put_scaled(sheet, "quadratic", scale, c, g2);
    ValueId sum =
        put(sheet, OP_ADD, "polynomial", arena_printf(arena, "%s,%s->%s", gram, gram, gram), NULL,
            linear, quadratic, NONE);
    /* the sum is symmetric: its axes may be read either way */
    const char *sig = wide ? arena_printf(arena, "%s,%s->%s", gram, turned, matrix)
                           : arena_printf(arena, "%s,%s%s->%s", turned, twin, own, matrix);
    ValueId turn = put(sheet, OP_EINSUM, "turn", sig, NULL, wide ? sum : x, wide ? x : sum, NONE);
    ValueId kept = put_scaled(sheet, "kept", arena_printf(arena, "%s->%s", matrix, matrix), a, x);
    return put(sheet, OP_ADD, "round", arena_printf(arena, "%s,%s->%s", matrix, matrix, matrix),
               NULL, kept, turn, NONE);
}

/* The dims of one side. */
static void put_side(Sheet *sheet, int side, int axes, const Net *net, const DimId *own,
                     DimId *ret_dim)
{
    static const char *const name[SIDES] = {"row", "column"};
    Net *sides = sheet->graph->net;
    sheet->elements[side] = 1;
    for (int copy = 0; copy < LETTERS; copy++)
        for (int a = 0; a < axes; a++) {
            int64_t extent = net->dims.at[own[a]].extent;
            DimId dim =
                net_add_dim(sides, arena_printf(sheet->arena, "%s%d_%d", name[side], a, copy),
                            DIM_OTHER, extent);
            if (copy == 0) {
                ret_dim[a] = dim;
                sheet->elements[side] *= extent;
            } else {
                sides->dims.at[dim].twin_of = (DimId)(ret_dim[a] + 1);
            }
            sheet->letter[side][copy][a] = sides->dims.at[dim].letter;
        }
}

static void put_operands(Sheet *sheet, const Net *net, const Value *value, ValueId *ret)
{
    static const char *const name[MATRIX_OPERANDS] = {"weight",      "moment", "gradient",
                                                      "coefficient", "lr",     "decay"};
    DimId dim[2 * MAX_SIDE];
    const MatrixShape *shape = &sheet->shape;
    put_side(sheet, ROWS, shape->rows, net, &value->dim[shape->stack], dim);
    put_side(sheet, COLS, shape->cols, net, &value->dim[shape->stack + shape->rows],
             dim + shape->rows);
    for (int k = 0; k < MATRIX_OPERANDS; k++)
        ret[k] = graph_value(sheet->graph, VALUE_PARAM, name[k],
                             k < MATRIX_COEF ? shape->rows + shape->cols : 0, dim);
}

Graph *matrix_step(Arena *arena, const Net *net, const Graph *graph, int param, const Muon *muon)
{
    Sheet sheet = {.arena = arena};
    if (!param_is_matrix(graph, param, &sheet.shape))
        BUG("parameter %s is no matrix", graph->params.at[param].name);
    sheet.graph = net_add_class(net_new(arena, "matrix"), "matrix");
    ValueId in[MATRIX_OPERANDS];
    put_operands(&sheet, net, &graph->values.at[graph->params.at[param].value], in);
    const char *all = arena_printf(arena, "%s%s", sheet.letter[ROWS][0], sheet.letter[COLS][0]);
    const char *pair = arena_printf(arena, "%s,%s->%s", all, all, all);
    Attrs momentum = {.momentum = {.momentum = muon->momentum}};
    const char *blend = arena_printf(arena, "%s,%s,->%s", all, all, all);
    ValueId moment = put(&sheet, OP_MOMENTUM, "moment_after", blend, &momentum, in[MATRIX_MOMENT],
                         in[MATRIX_GRADIENT], in[MATRIX_COEF]);
    ValueId x = moment;
    if (muon->nesterov)
        x = put(&sheet, OP_MOMENTUM, "ahead", blend, &momentum, moment, in[MATRIX_GRADIENT],
                in[MATRIX_COEF]);
    /* by its Frobenius norm: no singular value is above one */
    ValueId square = put(&sheet, OP_MUL, "square_of", pair, NULL, x, x, NONE);
    ValueId norm2 =
        put(&sheet, OP_REDUCE, "norm2", arena_printf(arena, "%s->", all), NULL, square, NONE, NONE);
    Attrs inverse = {.curve = {.kind = CURVE_RSQRT, .a = 1, .b = muon->eps * muon->eps}};
    ValueId factor = put(&sheet, OP_CURVE, "factor", "->", &inverse, norm2, NONE, NONE);
    ValueId spread = put(&sheet, OP_BROADCAST, "factors", arena_printf(arena, "->%s", all), NULL,
                         factor, NONE, NONE);
    x = put(&sheet, OP_MUL, "unit", pair, NULL, x, spread, NONE);
    for (int i = 0; i < muon->steps; i++)
        x = put_round(&sheet, x);
    double rows = (double)sheet.elements[ROWS], cols = (double)sheet.elements[COLS];
    double match = muon->match_rms ? 0.2 * sqrt(fmax(rows, cols)) : sqrt(fmax(1, rows / cols));
    Attrs descend = {.descend = {.ratio = muon->rate * match}};
    const ValueId last[4] = {in[MATRIX_WEIGHT], x, in[MATRIX_LR], in[MATRIX_DECAY]};
    NodeId step = graph_node(sheet.graph, OP_DESCEND, "weight_after",
                             arena_printf(arena, "%s,%s,,->%s", all, all, all), &descend, last, 4);
    sheet.graph->params.at[MATRIX_WEIGHT].grad = graph_out(sheet.graph, step);
    sheet.graph->params.at[MATRIX_MOMENT].grad = moment;
    for (int n = 0; n < sheet.graph->nodes.n; n++) {
        Node *node = &sheet.graph->nodes.at[n];
        node->seg = SEG_BACKWARD;
        node->flow = FLOW_WEIGHT;
    }
    for (int v = 0; v < sheet.graph->values.n; v++)
        sheet.graph->values.at[v].wide = true;
    return sheet.graph;
}
