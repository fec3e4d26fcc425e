/* model_parts.c - ops that take a dim apart, join one, or copy along some, expanded to nodes. */
#include <string.h>

#include "ir/model_reader.h"
#include "ir/sig.h"

/* "parts": for each name the dims that it has in place of the whole one; all empty when absent. */
static bool read_parts(Reader *r, Json op, int count, Shape ret[MAX_OUT])
{
    Json parts = json_get(op, "parts");
    for (int i = 0; i < count; i++)
        ret[i] = (Shape){0};
    if (!json_has(op, "parts"))
        return true;
    if (!json_want_array(parts))
        return false;
    if (json_len(parts) != count) {
        json_fail(parts, "%d parts for %d names", json_len(parts), count);
        diag_help(r->diag, "list the dims of each part, [] for one without");
        return false;
    }
    for (int i = 0; i < count; i++) {
        Json part = json_at(parts, i);
        if (!json_want_array(part) || (json_len(part) > 0 && !model_dims(r, part, 2, &ret[i])))
            return false;
    }
    return true;
}

/* A value's shape with one axis replaced. */
static bool part_shape(Reader *r, Json op, Shape whole, int axis, Shape part, Shape *ret)
{
    if (!model_axes_fit(r, op, whole.axes - 1 + part.axes, "a part"))
        return false;
    *ret = (Shape){.axes = whole.axes - 1 + part.axes};
    memcpy(ret->dim, whole.dim, (size_t)axis * sizeof *ret->dim);
    memcpy(ret->dim + axis, part.dim, (size_t)part.axes * sizeof *ret->dim);
    memcpy(ret->dim + axis + part.axes, whole.dim + axis + 1,
           (size_t)(whole.axes - 1 - axis) * sizeof *ret->dim);
    for (int i = 0; i < part.axes; i++) {
        if (!model_has_dim(whole.dim, whole.axes, part.dim[i]))
            continue;
        json_fail(op, "dim %s is in the whole already", model_dim_name(r, part.dim[i]));
        diag_help(r->diag, "give the part a dim of its own");
        return false;
    }
    return true;
}

static bool parts_fill(Reader *r, Json op, DimId dim, const Shape *part, int count)
{
    int64_t sum = 0, whole = r->net->dims.at[dim].extent;
    for (int i = 0; i < count; i++) {
        int64_t n = 1;
        for (int a = 0; a < part[i].axes; a++)
            n = extent_product(n, r->net->dims.at[part[i].dim[a]].extent);
        sum += n;
    }
    if (sum == whole)
        return true;
    json_fail(op, "parts of %lld together, dim %s has %lld", (long long)sum, model_dim_name(r, dim),
              (long long)whole);
    diag_help(r->diag, "a part without dims counts one; the parts make up the whole dim");
    return false;
}

static bool split_count(Reader *r, Json at, int *ret)
{
    if (!json_want_array(at))
        return false;
    *ret = json_len(at);
    if (*ret >= 2 && *ret <= MAX_OUT)
        return true;
    json_fail(at, "%d parts", *ret);
    diag_help(r->diag, "2 or %d are possible", MAX_OUT);
    return false;
}

bool model_read_split(Reader *r, Json op)
{
    ValueId in;
    DimId dim;
    int count = 0;
    Shape part[MAX_OUT], made;
    bool fine = model_float(r, json_get(op, "in"), &in);
    fine = model_dim(r, json_get(op, "dim"), &dim) && fine;
    Json out = json_get(op, "out");
    if (!split_count(r, out, &count) || !fine || !read_parts(r, op, count, part))
        return false;
    Shape x = model_shape_of(r, in);
    int axis = 0;
    while (axis < x.axes && x.dim[axis] != dim)
        axis++;
    if (axis == x.axes) {
        json_fail(json_get(op, "dim"), "\"%s\" %s has no dim %s", r->graph->values.at[in].name,
                  model_value_shape(r, in), model_dim_name(r, dim));
        diag_help(r->diag, "split over a dim of the value");
        return false;
    }
    const char *name[MAX_OUT] = {0};
    Str sig = str_new(r->arena);
    str_putf(&sig, "%s->", model_letters(r, in));
    for (int i = 0; i < count; i++) {
        fine = model_new_name(r, json_at(out, i), &name[i]) && fine;
        for (int j = 0; fine && j < i; j++) {
            if (strcmp(name[i], name[j]) == 0)
                fine = json_fail(json_at(out, i), "\"%s\" names two parts", name[i]);
        }
        if (!fine || !part_shape(r, op, x, axis, part[i], &made))
            return false;
        str_putf(&sig, "%s%s", i > 0 ? "," : "", model_shape_letters(r, made.dim, made.axes));
    }
    if (!parts_fill(r, op, dim, part, count))
        return false;
    NodeId node = graph_node_named(r->graph, OP_SPLIT, name, sig.at, NULL, &in, 1);
    for (int i = 0; i < count; i++)
        model_define(r, r->graph->nodes.at[node].out[i], json_at(out, i));
    return model_check_size(r, op, &r->graph->nodes.at[node]);
}

/* The reverse: parts are joined along a dim that none of them has. */
bool model_read_concat(Reader *r, Json op)
{
    ValueId in[MAX_OUT];
    DimId dim;
    int count = 0;
    const char *out;
    Shape part[MAX_OUT], whole = {0}, again;
    bool fine = model_dim(r, json_get(op, "dim"), &dim);
    Json at = json_get(op, "in");
    if (!split_count(r, at, &count) || !fine || !model_floats(r, at, count, in) ||
        !model_new_name(r, json_get(op, "out"), &out) || !read_parts(r, op, count, part))
        return false;
    Shape first = model_shape_of(r, in[0]);
    int axis = first.axes - part[0].axes;
    while (axis > 0 && part[0].axes > 0 && first.dim[axis] != part[0].dim[0])
        axis--;
    int rest = first.axes - axis - part[0].axes;
    if (axis < 0 || model_has_dim(first.dim, first.axes, dim)) {
        json_fail(op,
                  axis < 0 ? "\"%s\" lacks the dims of its part" : "dim %s is in the parts already",
                  axis < 0 ? r->graph->values.at[in[0]].name : model_dim_name(r, dim));
        diag_help(r->diag, "join along a dim of its own");
        return false;
    }
    whole.axes = axis + 1 + rest;
    if (!model_axes_fit(r, op, whole.axes, "the whole"))
        return false;
    memcpy(whole.dim, first.dim, (size_t)axis * sizeof *whole.dim);
    whole.dim[axis] = dim;
    memcpy(whole.dim + axis + 1, first.dim + axis + part[0].axes, (size_t)rest * sizeof *whole.dim);
    Str sig = str_new(r->arena);
    for (int i = 0; i < count; i++) {
        if (!part_shape(r, op, whole, axis, part[i], &again))
            return false;
        if (!model_same_shape(again, model_shape_of(r, in[i]))) {
            json_fail(json_at(at, i), "\"%s\" is %s, the part would be %s",
                      r->graph->values.at[in[i]].name, model_value_shape(r, in[i]),
                      model_shape(r, again.axes, again.dim));
            diag_help(r->diag, "parts differ only in their own dims");
            return false;
        }
        str_putf(&sig, "%s%s", i > 0 ? "," : "", model_letters(r, in[i]));
    }
    if (!parts_fill(r, op, dim, part, count))
        return false;
    str_putf(&sig, "->%s", model_shape_letters(r, whole.dim, whole.axes));
    return model_emit_out(r, op, OP_STACK, out, sig.at, NULL, in, count);
}

bool model_read_broadcast(Reader *r, Json op)
{
    ValueId in;
    const char *out;
    Shape made;
    bool fine = model_in_out(r, op, &in, &out);
    if (!model_dims(r, json_get(op, "dims"), MAX_AXES, &made) || !fine)
        return false;
    if (!model_is_part(made, model_shape_of(r, in))) {
        json_fail(json_get(op, "dims"), "\"%s\" %s is no part of %s", r->graph->values.at[in].name,
                  model_value_shape(r, in), model_shape(r, made.axes, made.dim));
        diag_help(r->diag, "list all dims of the result: those of \"in\" in their order, and the "
                           "new ones");
        return false;
    }
    return model_emit_out(r, op, OP_BROADCAST, out,
                          arena_printf(r->arena, "%s->%s", model_letters(r, in),
                                       model_shape_letters(r, made.dim, made.axes)),
                          NULL, &in, 1);
}
