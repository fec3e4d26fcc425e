/* rows.c - from an instruction of row form to a row program: space, arguments, terms. */
#include "codegen/rows.h"

#include <string.h>

#include "codegen/emit.h"

typedef uint16_t AxisSet; /* of the unmerged space */

/* What decides the cut of the space into rows and columns. */
typedef struct Shape {
    int axes;
    DimId dim[MAX_AXES];
    int64_t extent[MAX_AXES];
    AxisSet columns; /* reduced along, or 0 when nothing is */
    AxisSet totals;  /* reduced over rows */
    AxisSet alone;   /* axes that must not merge: positions, turned columns, index-valued columns */
    AxisSet apart;   /* axes that should not merge with those before them: it costs divisions */
    int turn_axis;   /* positions of a rope, or NONE */
} Shape;

int64_t rows_extent(const RowProgram *program, int begin, int end)
{
    int64_t n = 1;
    for (int a = begin; a < end; a++)
        n *= program->axis[a].extent;
    return n;
}

/* Axis counts by the letters: an operand's unused entries repeat nothing, so they are told by the
 * graph. */
static int operand_axes(const Body *body, ValueId id)
{
    return body->graph->values.at[id].axes;
}

static const Node *node_of(const RowBuilder *b, int i)
{
    return &b->body->graph->nodes.at[b->inst->node[i]];
}

static const Value *value_of_copy(const Body *body, int copy)
{
    return &body->graph->values.at[body->copies.at[copy].value];
}

static int axis_of_dim(const Shape *shape, DimId dim)
{
    for (int a = 0; a < shape->axes; a++) {
        if (shape->dim[a] == dim)
            return a;
    }
    return NONE;
}

/* The widest operand of the instruction; outputs before inputs, so that stores are dense. */
static int widest_copy(const RowBuilder *b)
{
    int best = NONE, best_axes = -1;
    for (int i = 0; i < b->inst->nodes; i++) {
        const Node *node = node_of(b, i);
        for (int k = 0; k < node->outs; k++) {
            int axes = operand_axes(b->body, node->out[k]);
            if (axes > best_axes)
                best = b->inst->bind_out[i][k], best_axes = axes;
        }
        for (int k = 0; k < node->ins; k++) {
            int axes = operand_axes(b->body, node->in[k]);
            if (axes > best_axes)
                best = b->inst->bind_in[i][k], best_axes = axes;
        }
    }
    return best;
}

static AxisSet axes_of_value(const Shape *shape, const Value *value)
{
    AxisSet set = 0;
    for (int a = 0; a < value->axes; a++) {
        int axis = axis_of_dim(shape, value->dim[a]);
        set |= axis == NONE ? 0 : (AxisSet)(1u << axis);
    }
    return set;
}

static AxisSet last_axis(const Shape *shape, const Value *value)
{
    return (AxisSet)(1u << axis_of_dim(shape, value->dim[value->axes - 1]));
}

/* Letters that disappear: a suffix of the space is a reduction along columns, a prefix one over
 * rows. */
static bool add_contraction(Shape *shape, AxisSet all, AxisSet kept)
{
    AxisSet gone = all & (AxisSet)~kept;
    if (!gone)
        return true;
    bool suffix = true, prefix = true;
    for (int a = 0; a + 1 < shape->axes; a++) {
        bool here = gone >> a & 1, next = gone >> (a + 1) & 1;
        suffix = suffix && (!here || next);
        prefix = prefix && (!next || here);
    }
    if (suffix)
        shape->columns |= gone;
    else if (prefix)
        shape->totals |= gone;
    return suffix || prefix;
}

static bool shape_add_node(RowBuilder *b, Shape *shape, int i)
{
    const Body *body = b->body;
    const Node *node = node_of(b, i);
    const Value *in = body->graph->values.at, *x = node->ins ? &in[node->in[0]] : NULL;
    const Value *out = &in[node->out[0]];
    AxisSet all = (AxisSet)((1u << shape->axes) - 1), seen = 0;
    switch (node->op) {
    case OP_NORM:
    case OP_NORM_DX:
    case OP_VMAX:
    case OP_SUMEXP:
    case OP_VSUM:
    case OP_SOFTMAX:
    case OP_SOFTMAX_GRAD:
        shape->columns |= last_axis(shape, x);
        break;
    case OP_PICK:
        shape->columns |= last_axis(shape, &in[node->in[1]]);
        break;
    case OP_NORM_DG:
        shape->columns |= last_axis(shape, x);
        shape->totals |= (AxisSet)(all & ~last_axis(shape, x));
        break;
    case OP_EXPMUL:
    case OP_ONEHOT:
    case OP_VFILL:
    case OP_PLACES:
        shape->alone |= last_axis(shape, out);
        break;
    case OP_IOTA:
    case OP_SLOPES:
        shape->alone |= all;
        break;
    case OP_DROPOUT:
    case OP_DRAW:
        shape->apart |= last_axis(shape, out);
        break;
    case OP_TEMPER:
        shape->alone |= (AxisSet)(1u << axis_of_dim(shape, x->dim[1]));
        break;
    case OP_ROPE:
        shape->turn_axis = axis_of_dim(shape, x->dim[1]);
        shape->alone |= (AxisSet)(1u << shape->turn_axis) | last_axis(shape, x);
        break;
    case OP_EINSUM:
    case OP_REDUCE:
        for (int k = 0; k < node->ins; k++)
            seen |= axes_of_value(shape, &in[node->in[k]]);
        seen |= axes_of_value(shape, out);
        return add_contraction(shape, seen, axes_of_value(shape, out));
    default:
        break;
    }
    return true;
}

/* Elements from one index to the next along each axis of the space. */
static void copy_strides(const Body *body, const Shape *shape, int copy, int64_t ret[MAX_AXES])
{
    const Value *value = value_of_copy(body, copy);
    int64_t stride = 1;
    memset(ret, 0, MAX_AXES * sizeof *ret);
    for (int a = value->axes - 1; a >= 0; a--) {
        int axis = axis_of_dim(shape, value->dim[a]);
        if (axis != NONE)
            ret[axis] = stride;
        stride *= body->copies.at[copy].local[a];
    }
}

static bool shape_covers(const RowBuilder *b, const Shape *shape, int copy)
{
    const Value *value = value_of_copy(b->body, copy);
    AxisSet seen = 0;
    for (int a = 0; a < value->axes; a++) {
        int axis = axis_of_dim(shape, value->dim[a]);
        if (axis == NONE || (seen >> axis & 1) ||
            shape->extent[axis] != b->body->copies.at[copy].local[a])
            return false;
        seen |= (AxisSet)(1u << axis);
    }
    return true;
}

static bool shape_build(RowBuilder *b, Shape *shape)
{
    int wide = widest_copy(b);
    const Value *value = value_of_copy(b->body, wide);
    *shape = (Shape){.axes = value->axes, .turn_axis = NONE};
    for (int a = 0; a < value->axes; a++) {
        shape->dim[a] = value->dim[a];
        shape->extent[a] = b->body->copies.at[wide].local[a];
    }
    for (int i = 0; i < b->inst->nodes; i++) {
        const Node *node = node_of(b, i);
        for (int k = 0; k < node->ins; k++) {
            if (!shape_covers(b, shape, b->inst->bind_in[i][k]))
                return false;
        }
        for (int k = 0; k < node->outs; k++) {
            if (!shape_covers(b, shape, b->inst->bind_out[i][k]))
                return false;
        }
        if (!shape_add_node(b, shape, i))
            return false;
    }
    if (!shape->columns && !shape->totals)
        shape->alone |= shape->apart;
    if (shape->totals) {
        AxisSet rest = (AxisSet)(((1u << shape->axes) - 1) & ~shape->totals);
        if (shape->columns & (AxisSet)~rest)
            return false;
        shape->columns = rest;
    }
    return true;
}

/* May axes a and a+1 be stepped through as one, when those from `begin` to a are one already? An
 * axis of one index says nothing: the last of more before it must fit. */
static bool may_merge(const RowBuilder *b, const Shape *shape, int begin, int a)
{
    int last = a;
    while (last > begin && shape->extent[last] == 1)
        last--;
    AxisSet both = (AxisSet)(3u << a);
    if (shape->alone & both)
        return false;
    bool single = shape->extent[last] == 1;
    if (shape->columns && ((shape->columns >> a & 1) != (shape->columns >> (a + 1) & 1)))
        return false;
    for (int i = 0; i < b->inst->nodes; i++) {
        const Node *node = node_of(b, i);
        for (int k = 0; k < node->ins + node->outs; k++) {
            int copy = k < node->ins ? b->inst->bind_in[i][k] : b->inst->bind_out[i][k - node->ins];
            int64_t stride[MAX_AXES];
            copy_strides(b->body, shape, copy, stride);
            if (!single && stride[last] != stride[a + 1] * shape->extent[a + 1])
                return false;
        }
    }
    return true;
}

/* The letters of the dims an axis was merged from, as an identifier. */
static const char *axis_name(RowBuilder *b, const Shape *shape, int begin, int end)
{
    char text[MAX_AXES + 1] = {0};
    for (int a = begin; a < end; a++)
        text[a - begin] = b->body->net->dims.at[shape->dim[a]].letter;
    return arena_printf(b->program->arena, "at_%s", emit_ident(b->program->arena, text));
}

/* Merges the axes of the shape into those of the program; ret_last[a]: unmerged axis that ends
 * merged axis a. */
static bool merge_axes(RowBuilder *b, const Shape *shape, int ret_last[MAX_AXES])
{
    RowProgram *p = b->program;
    int column_axes = 0;
    for (int begin = 0; begin < shape->axes;) {
        int end = begin + 1;
        while (end < shape->axes && may_merge(b, shape, begin, end - 1))
            end++;
        int64_t extent = 1;
        for (int a = begin; a < end; a++)
            extent *= shape->extent[a];
        column_axes += shape->columns >> begin & 1;
        p->axis[p->axes] = (RowAxis){axis_name(b, shape, begin, end), extent};
        ret_last[p->axes++] = end - 1;
        begin = end;
    }
    p->rows = p->axes;
    if (column_axes || (!shape->totals && p->axes))
        p->rows = p->axes - 1;
    p->outer = p->rows;
    for (int a = 0; shape->turn_axis != NONE && a < p->axes; a++) {
        if (ret_last[a] == shape->turn_axis)
            p->outer = a + 1;
    }
    return column_axes <= 1;
}

static bool inst_lists(const int *list, int n, int copy)
{
    for (int i = 0; i < n; i++) {
        if (list[i] == copy)
            return true;
    }
    return false;
}

bool copy_is_input(const RowBuilder *b, int copy)
{
    return inst_lists(b->inst->in, b->inst->ins, copy) &&
           !inst_lists(b->inst->out, b->inst->outs, copy);
}

static int add_arg(RowBuilder *b, const Shape *shape, const int *last, int copy, const char *name,
                   bool out)
{
    RowProgram *p = b->program;
    for (int i = 0; i < p->args.n; i++) {
        if (p->args.at[i].copy == copy)
            return i;
    }
    int64_t stride[MAX_AXES];
    copy_strides(b->body, shape, copy, stride);
    AxisSet has = axes_of_value(shape, value_of_copy(b->body, copy));
    RowArg arg = {.name = rows_free_name(p, name),
                  .copy = copy,
                  .dtype = b->body->copies.at[copy].dtype,
                  .out = out,
                  .stored = NONE};
    arg.add = out && b->body->copies.at[copy].home == HOME_ACC;
    for (int a = 0; a < p->axes; a++) {
        arg.stride[a] = stride[last[a]];
        if (has >> last[a] & 1) {
            arg.columns |= a >= p->rows;
            arg.rows |= a < p->rows;
        }
    }
    p->adds |= arg.add;
    vec_push(p->arena, &p->args) = arg;
    return p->args.n - 1;
}

/* add_norm_256x768 */
static const char *program_name(const RowBuilder *b)
{
    RowProgram *p = b->program;
    Str name = str_new(p->arena);
    const char *before = NULL;
    for (int i = 0; i < b->inst->nodes && name.n < 32; i++) {
        const char *text = op_info[node_of(b, i)->op].text;
        const Node *node = node_of(b, i);
        if (node->op == OP_ROPE && node->attrs.rope.inverse)
            text = "rope_back";
        if (!str_eq(text, before))
            str_putf(&name, "%s%s", i ? "_" : "", text);
        before = text;
    }
    if (p->rows && p->rows < p->axes)
        str_putf(&name, "_%lldx%lld", (long long)rows_extent(p, 0, p->rows),
                 (long long)rows_extent(p, p->rows, p->axes));
    else
        str_putf(&name, "_%lld", (long long)rows_extent(p, 0, p->axes));
    return name.at;
}

static bool read_behind(const RowBuilder *b, int i, int copy)
{
    for (int j = i + 1; j < b->inst->nodes; j++)
        if (inst_lists(b->inst->bind_in[j], node_of(b, j)->ins, copy))
            return true;
    return false;
}

/* A forward value is what its home would hold, whether this kernel found it there, made it or makes
 * it again: so recomputation, and what is kept, cannot change a bit. Gradients that never leave
 * their kernel are not cut. */
static TermId as_stored(RowBuilder *b, int i, int copy, TermId term)
{
    DType dtype = b->body->copies.at[copy].dtype;
    bool narrow = dtype == DT_BF16 || dtype == DT_F16;
    const Term *made = &b->program->terms.at[term];
    if (!narrow || node_of(b, i)->seg != SEG_FORWARD || made->kind == TERM_LOAD ||
        !read_behind(b, i, copy))
        return term;
    const char *name = made->name;
    term = term_new(b, dtype == DT_BF16 ? TERM_BF16 : TERM_F16, term, NONE, NONE);
    return name ? term_named(b, name, term) : term;
}

static bool build_terms(RowBuilder *b, const Shape *shape, const int *last)
{
    RowProgram *p = b->program;
    const Inst *inst = b->inst;
    for (int i = 0; i < inst->nodes; i++) {
        const Node *node = node_of(b, i);
        for (int k = 0; k < node->ins; k++) {
            int copy = inst->bind_in[i][k];
            if (b->value[copy] == NONE && inst_lists(inst->in, inst->ins, copy))
                b->value[copy] =
                    term_load(b, add_arg(b, shape, last, copy, role_in(node->op, k), false), 0);
        }
        TermId out[MAX_OUT];
        if (!rows_of_node(b, i, out))
            return false;
        for (int k = 0; k < node->outs; k++)
            b->value[inst->bind_out[i][k]] = as_stored(b, i, inst->bind_out[i][k], out[k]);
    }
    for (int i = 0; i < inst->nodes; i++) {
        const Node *node = node_of(b, i);
        for (int k = 0; k < node->outs; k++) {
            int copy = inst->bind_out[i][k];
            if (!inst_lists(inst->out, inst->outs, copy))
                continue;
            int arg = add_arg(b, shape, last, copy, role_out(node->op, k), true);
            TermId term = b->value[copy];
            if (p->terms.at[term].kind == TERM_BF16 || p->terms.at[term].kind == TERM_F16)
                term = p->terms.at[term].of[0]; /* a store rounds */
            p->args.at[arg].stored = term;
            if (p->terms.at[term].depth > p->depth)
                p->depth = p->terms.at[term].depth;
        }
    }
    return true;
}

static RowBuilder builder_new(Arena *arena, const Body *body, const Inst *inst)
{
    RowBuilder b = {.body = body, .inst = inst, .program = ARENA_NEW(arena, RowProgram)};
    b.program->arena = arena;
    b.program->used_base = NONE;
    b.value = ARENA_ARRAY(arena, TermId, body->copies.n + 1);
    for (int i = 0; i < body->copies.n; i++)
        b.value[i] = NONE;
    return b;
}

/* Sums over rows need one run of rows. */
static bool space_fits(RowBuilder *b, Shape *shape, int *ret_last)
{
    return shape_build(b, shape) && merge_axes(b, shape, ret_last) &&
           !(shape->totals && b->program->rows > 1);
}

RowProgram *rows_build(Arena *arena, Diag *diag, const Body *body, const Inst *inst)
{
    RowBuilder b = builder_new(arena, body, inst);
    Shape shape;
    int last[MAX_AXES];
    const Node *node = node_of(&b, 0);
    if (!space_fits(&b, &shape, last)) {
        if (inst->nodes == 1 && (node->op == OP_EINSUM || node->op == OP_REDUCE)) {
            b = builder_new(arena, body, inst);
            rows_nest(&b);
            b.program->name = program_name(&b);
            return b.program;
        }
        diag_error(diag, NO_SPAN,
                   "no row program for %s of %s: its axes are neither rows nor columns", node->name,
                   body->graph->name);
        return NULL;
    }
    b.dim = shape.dim;
    b.extent = shape.extent;
    b.axes = shape.axes;
    b.last = last;
    b.totals = shape.totals;
    b.program->turn.axis = b.program->outer - 1;
    if (!build_terms(&b, &shape, last)) {
        diag_error(diag, NO_SPAN, "no rule that prints an op of %s in %s as rows", node->name,
                   body->graph->name);
        return NULL;
    }
    b.program->name = program_name(&b);
    return b.program;
}
