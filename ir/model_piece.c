/* model_piece.c - what the ops of a model file share: shapes, parameters, operands, nodes. */
#include <string.h>

#include "ir/model_reader.h"

/* FLOPs of a node are at most 10 per element of its letters; beyond this they would pass 2^63. */
static const int64_t max_elements = INT64_C(1) << 59;

Shape model_shape_of(const Reader *r, ValueId id)
{
    const Value *value = &r->graph->values.at[id];
    Shape shape = {.axes = value->axes};
    memcpy(shape.dim, value->dim, sizeof shape.dim);
    return shape;
}

bool model_same_shape(Shape a, Shape b)
{
    return a.axes == b.axes && memcmp(a.dim, b.dim, (size_t)a.axes * sizeof *a.dim) == 0;
}

const char *model_shape_letters(const Reader *r, const DimId *dim, int axes)
{
    char text[MAX_AXES];
    for (int a = 0; a < axes; a++)
        text[a] = r->net->dims.at[dim[a]].letter;
    return arena_strndup(r->arena, text, (size_t)axes);
}

const char *model_letters(const Reader *r, ValueId id)
{
    Shape shape = model_shape_of(r, id);
    return model_shape_letters(r, shape.dim, shape.axes);
}

bool model_has_dim(const DimId *dim, int axes, DimId what)
{
    for (int a = 0; a < axes; a++) {
        if (dim[a] == what)
            return true;
    }
    return false;
}

bool model_axes_fit(Reader *r, Json op, int axes, const char *what)
{
    if (axes <= MAX_AXES)
        return true;
    json_fail(op, "%s has more than %d axes", what, MAX_AXES);
    diag_help(r->diag, "join dims that are not split apart anywhere");
    return false;
}

const char *model_dim_name(const Reader *r, DimId dim)
{
    return r->net->dims.at[dim].name;
}

bool model_check_size(Reader *r, Json op, const Node *node)
{
    int64_t elements = 1;
    for (int l = 0; l < node->sig.letters; l++) {
        int64_t extent = letter_extent(r->net, node, l);
        if (elements > max_elements / extent) {
            json_fail(op, "the op runs over more than 2^59 elements");
            diag_help(r->diag, "make the dims, the batch or the sequence smaller");
            return false;
        }
        elements *= extent;
    }
    return true;
}

bool model_emit(Reader *r, Json op, OpId id, const char *name, const char *sig, const Attrs *attrs,
                const ValueId *in, int ins, NodeId *ret)
{
    *ret = graph_node(r->graph, id, graph_fresh_name(r->graph, name), sig, attrs, in, ins);
    return model_check_size(r, op, &r->graph->nodes.at[*ret]);
}

bool model_emit_out(Reader *r, Json op, OpId id, const char *name, const char *sig,
                    const Attrs *attrs, const ValueId *in, int ins)
{
    NodeId node;
    if (!model_emit(r, op, id, name, sig, attrs, in, ins, &node))
        return false;
    model_define(r, graph_out(r->graph, node), json_get(op, "out"));
    return true;
}

Json model_attribute(const Reader *r, Json op, const char *key)
{
    Json out = json_get(op, "out");
    if (json_is_object(r->each) && json_is_string(out)) {
        Json mine = json_get(r->each, json_string_value(out.value));
        if (json_is_object(mine) && json_has(mine, key))
            return json_get(mine, key);
    }
    return json_get(op, key);
}

const char *model_text(Json at)
{
    return json_is_string(at) ? json_string_value(at.value) : "";
}

bool model_present(Json at)
{
    return at.value && !json_is_null(at.value);
}

/* ---- parameters ---- */

static bool param_text(Reader *r, Json at, const char **ret)
{
    const char *text = NULL;
    if (!json_str(at, &text))
        return false;
    const char *why = param_name_fault(text);
    if (why) {
        json_fail(at, "\"%s\" is no parameter name: %s", text, why);
        diag_help(r->diag, "letters, digits, '_', '.', '-', one {i} for the layer number, {e} for "
                           "the expert, [a:b] for rows of a tensor");
        return false;
    }
    if (r->repeated && !strstr(text, "{i}")) {
        json_fail(at, "parameter \"%s\" of a repeated block has no {i}", text);
        diag_help(r->diag, "write {i} where the layer number stands");
        return false;
    }
    *ret = text;
    return true;
}

/* An identifier with at least one dot: ops of the file cannot name it, so it never collides with
 * theirs. */
static const char *param_value_name(Reader *r, const char *text)
{
    const char *hole = strstr(text, "{i}.");
    if (hole)
        text = hole + strlen("{i}.");
    const char *each = strstr(text, "{e}.");
    if (each)
        text = arena_printf(r->arena, "%.*s%s", (int)(each - text), text, each + strlen("{e}."));
    char *clean = arena_strdup(r->arena, text);
    char *rows = strchr(clean, '[');
    if (rows) /* NAME[a:b] as NAME_a_b */
        clean[strlen(clean) - 1] = '\0';
    for (char *c = clean; *c; c++) {
        if (strchr("-{}[:", *c))
            *c = '_';
    }
    bool own = strchr(clean, '.') && name_is_identifier(clean, true);
    return graph_fresh_name(r->graph, own ? clean : arena_printf(r->arena, "w.%s", clean));
}

bool model_param(Reader *r, Json at, Shape shape, const int *group, int stored, Init init,
                 ValueId *ret)
{
    const char *text = NULL;
    if (!param_text(r, at, &text))
        return false;
    if (model_has_dim(shape.dim, shape.axes, r->net->batch) ||
        model_has_dim(shape.dim, shape.axes, r->net->sequence)) {
        json_fail(at, "parameter \"%s\" would be %s: as large as the job", text,
                  model_shape(r, shape.axes, shape.dim));
        diag_help(r->diag, "b and s come from the job: give the tensor a dim of \"dims\"");
        return false;
    }
    Graph *graph = r->graph;
    for (int p = 0; p < graph->params.n; p++) {
        const Param *known = &graph->params.at[p];
        if (strcmp(known->name, text) != 0)
            continue;
        if (!model_same_shape(model_shape_of(r, known->value), shape) || known->stored != stored ||
            memcmp(known->group, group, (size_t)stored * sizeof *group) != 0) {
            json_fail(at, "parameter \"%s\" is %s here and %s before", text,
                      model_shape(r, shape.axes, shape.dim), model_value_shape(r, known->value));
            diag_help(r->diag, "one name is one tensor: give the second another name");
            return false;
        }
        if (known->frozen || known->rate > 0) {
            json_fail(at, "parameter \"%s\" is not trained by gradients", text);
            diag_help(r->diag, "what another op trains is a tensor of its own");
            return false;
        }
        *ret = known->value;
        return true;
    }
    *ret = graph_value(graph, VALUE_PARAM, param_value_name(r, text), shape.axes, shape.dim);
    Param *param = &graph->params.at[graph->params.n - 1];
    param->name = arena_strdup(r->arena, text);
    param->init = init;
    param->std = init == INIT_NORMAL ? r->init_std : 0;
    param->stored = stored;
    param->decay = stored >= 2;
    memset(param->group, 0, sizeof param->group);
    memcpy(param->group, group, (size_t)stored * sizeof *group);
    vec_push(r->arena, &r->param_at) = at;
    return true;
}

/* A parameter that is loaded and stored with the model, and that nothing reads: {"op": "frozen",
 * "param": NAME, "axes": [[dims of the first stored axis], ...]}. */
bool model_read_frozen(Reader *r, Json op)
{
    Json axes = json_get(op, "axes");
    Shape all = {0}, part;
    int group[MAX_AXES] = {0}, stored = json_len(axes);
    if (!json_want_array(axes))
        return false;
    if (stored < 1 || stored > MAX_AXES) {
        json_fail(axes, "%d stored axes", stored);
        diag_help(r->diag, "1 to %d are possible", MAX_AXES);
        return false;
    }
    for (int i = 0; i < stored; i++) {
        if (!model_dims(r, json_at(axes, i), MAX_AXES - all.axes, &part))
            return false;
        memcpy(all.dim + all.axes, part.dim, (size_t)part.axes * sizeof *part.dim);
        all.axes += part.axes;
        group[i] = part.axes;
    }
    ValueId value;
    if (!model_param(r, json_get(op, "param"), all, group, stored, INIT_NORMAL, &value))
        return false;
    Param *param = &r->graph->params.at[r->graph->values.at[value].out];
    param->frozen = true;
    param->decay = false;
    return true;
}

/* ---- reading pieces ---- */

bool model_dims(Reader *r, Json at, int max, Shape *ret)
{
    if (!json_want_array(at))
        return false;
    int n = json_len(at);
    if (n < 1 || n > max) {
        json_fail(at, "%d dims where 1 to %d are possible", n, max);
        diag_help(r->diag, "a tensor has at most %d axes", MAX_AXES);
        return false;
    }
    ret->axes = n;
    for (int i = 0; i < n; i++) {
        if (!model_dim(r, json_at(at, i), &ret->dim[i]))
            return false;
        if (model_has_dim(ret->dim, i, ret->dim[i])) {
            json_fail(json_at(at, i), "dim %s twice", model_dim_name(r, ret->dim[i]));
            diag_help(r->diag, "give the second use a dim of its own with the same extent");
            return false;
        }
    }
    return true;
}

bool model_float(Reader *r, Json at, ValueId *ret)
{
    if (!model_operand(r, at, ret))
        return false;
    if (r->graph->values.at[*ret].number == NUM_FLOAT)
        return true;
    json_fail(at, "\"%s\" holds whole numbers, not floats", r->graph->values.at[*ret].name);
    diag_help(r->diag, "look them up in a table first: \"op\": \"embedding\"");
    return false;
}

bool model_floats(Reader *r, Json at, int count, ValueId *ret)
{
    if (!json_want_array(at))
        return false;
    if (json_len(at) != count) {
        json_fail(at, "%d operands where the op takes %d", json_len(at), count);
        diag_help(r->diag, "name %d values", count);
        return false;
    }
    bool fine = true;
    for (int i = 0; i < count; i++)
        fine = model_float(r, json_at(at, i), &ret[i]) && fine;
    return fine;
}

bool model_in_out(Reader *r, Json op, ValueId *ret_in, const char **ret_out)
{
    bool fine = model_float(r, json_get(op, "in"), ret_in);
    return model_new_name(r, json_get(op, "out"), ret_out) && fine;
}

bool model_mismatch(Reader *r, Json at, const char *what, ValueId a, ValueId b)
{
    const Graph *graph = r->graph;
    json_fail(at, "%s: \"%s\" is %s, \"%s\" is %s", what, graph->values.at[a].name,
              model_value_shape(r, a), graph->values.at[b].name, model_value_shape(r, b));
    return false;
}

bool model_is_part(Shape whole, Shape part)
{
    int at = 0;
    for (int a = 0; a < whole.axes && at < part.axes; a++)
        at += whole.dim[a] == part.dim[at];
    return at == part.axes;
}

bool model_number(Reader *r, Json op, const char *key, double min, double max, double *ret)
{
    Json at = model_attribute(r, op, key);
    return !model_present(at) || json_num(at, min, max, ret);
}

bool model_whole(Reader *r, Json op, const char *key, int64_t min, int64_t max, int64_t *ret)
{
    Json at = model_attribute(r, op, key);
    return !model_present(at) || json_int(at, min, max, ret);
}

bool model_flag(Reader *r, Json op, const char *key, bool *ret)
{
    Json at = model_attribute(r, op, key);
    return !model_present(at) || json_bool(at, ret);
}

ValueId model_node(Reader *r, OpId id, const char *name, const char *sig, const Attrs *attrs,
                   const ValueId *in, int ins)
{
    return graph_out(
        r->graph, graph_node(r->graph, id, graph_fresh_name(r->graph, name), sig, attrs, in, ins));
}
