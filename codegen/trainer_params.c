/* trainer_params.c - the parameters of the model, and which block of each a rank of a stage holds.
 */
#include "codegen/trainer.h"

#include <stdlib.h>
#include <string.h>

static const char *fill_of(const Param *param)
{
    static const char *const fill[] = {
        [INIT_NORMAL] = "LP_NORMAL", [INIT_ONES] = "LP_ONES", [INIT_ZEROS] = "LP_ZEROS"};
    return fill[param->init];
}

static const Param *param_of(const Trainer *t, const NetParam *param)
{
    return &t->net->classes.at[param->class]->params.at[param->param];
}

/* What files call it: the name with {i} replaced, of letters, digits, dots, '-' and the marks of
 * runtime/lp.h. */
static const char *tensor_name(Trainer *t, const NetParam *param)
{
    return emit_clean(t->arena, param->name, ".-{}[]:");
}

/* ---- rows of fused tensors ---- */

typedef struct Rows {
    const char *name; /* of the stored tensor */
    int64_t from, to;
} Rows;

/* Rows [from, to) of NAME, of a parameter called NAME[from:to]; false for other names. */
static bool rows_of(Trainer *t, const NetParam *param, Rows *ret)
{
    size_t stem;
    if (!param_name_rows(param->name, &stem, &ret->from, &ret->to))
        return false;
    ret->name = arena_strndup(t->arena, param->name, stem);
    return true;
}

/* Extent of the first axis that files see: behind that of {e}. */
static int64_t first_extent(const Trainer *t, const NetParam *net_param)
{
    const Param *param = param_of(t, net_param);
    const Value *value = &t->net->classes.at[net_param->class]->values.at[param->value];
    int d = strstr(net_param->name, "{e}") ? 1 : 0, axis = d ? param->group[0] : 0;
    int64_t extent = d < param->stored;
    for (int k = 0; d < param->stored && k < param->group[d]; k++)
        extent *= t->net->dims.at[value->dim[axis++]].used;
    return extent;
}

/* Rows of one stored tensor must tile it: sorted, each begins where the one before ends. */
static int64_t tiled_up_to(const Rows *all, int n, const char *name)
{
    int64_t at = 0;
    for (bool grew = true; grew;) {
        grew = false;
        for (int i = 0; i < n; i++) {
            if (str_eq(all[i].name, name) && all[i].from == at) {
                at = all[i].to;
                grew = true;
            }
        }
    }
    return at;
}

static void check_rows(Trainer *t)
{
    Rows *all = ARENA_ARRAY(t->arena, Rows, t->net->params.n);
    int n = 0;
    for (int i = 0; i < t->net->params.n; i++) {
        const NetParam *param = &t->net->params.at[i];
        if (!rows_of(t, param, &all[n]))
            continue;
        int64_t extent = first_extent(t, param);
        if (extent != all[n].to - all[n].from) {
            diag_error(t->diag, NO_SPAN, "parameter %s has %lld rows", param->name,
                       (long long)extent);
            diag_help(t->diag, "name as many rows of %s", all[n].name);
        }
        n++;
    }
    for (int i = 0; i < n; i++) {
        int64_t rows = 0, most = 0;
        bool first = true;
        for (int k = 0; k < n; k++) {
            if (!str_eq(all[k].name, all[i].name))
                continue;
            first = first && k >= i;
            rows += all[k].to - all[k].from;
            most = all[k].to > most ? all[k].to : most;
        }
        if (!first || (rows == most && tiled_up_to(all, n, all[i].name) == most))
            continue;
        diag_error(t->diag, NO_SPAN, "the parameters that are rows of %s do not tile its %lld rows",
                   all[i].name, (long long)most);
        diag_help(t->diag, "give every row to one parameter, NAME[from:to]");
    }
}

/* Two places of the model read it: files may have it twice. */
static bool is_tied(const Trainer *t, const NetParam *param)
{
    const Graph *graph = t->net->classes.at[param->class];
    ValueId value = graph->params.at[param->param].value;
    int places = param->uses - 1;
    for (int n = 0; n < graph->nodes.n; n++)
        for (int i = 0; graph->nodes.at[n].seg == SEG_FORWARD && i < graph->nodes.at[n].ins; i++)
            places += graph->nodes.at[n].in[i] == value;
    return places > 1;
}

/* ---- tables ---- */

static void print_tensors(Trainer *t, Emit *out)
{
    emit_comment(out, "Every tensor of the model: name and shape in files, initial values.");
    emit_line(out, "static const LpTensor tensors[] = {");
    out->depth++;
    for (int i = 0; i < t->net->params.n; i++) {
        const NetParam *net_param = &t->net->params.at[i];
        const Param *param = param_of(t, net_param);
        const Value *value = &t->net->classes.at[net_param->class]->values.at[param->value];
        Str dims = str_new(t->arena);
        int axis = 0;
        for (int d = 0; d < param->stored; d++) {
            long long extent = 1;
            for (int k = 0; k < param->group[d]; k++)
                extent *= t->net->dims.at[value->dim[axis++]].used;
            str_putf(&dims, "%s%lld", d ? ", " : "", extent);
        }
        emit_line(out, "{\"%s\", %d, {%s}, %s, %.9g, %s},", tensor_name(t, net_param),
                  param->stored, dims.at, fill_of(param),
                  param->init == INIT_NORMAL ? param->std : 0.0,
                  is_tied(t, net_param) ? "true" : "false");
    }
    out->depth--;
    emit_line(out, "};");
    emit_blank(out);
}

static void print_part_row(Trainer *t, Emit *out, const StageProgram *stage, int g,
                           const GroupMember *member)
{
    const Group *group = &stage->groups.at[g];
    const StageLink *link = &stage->link[member->link];
    const Body *body = link->body;
    const Copy *copy = &body->copies.at[body->param_copy[member->param]];
    const Value *value = &body->graph->values.at[copy->value];
    Str dims = str_new(t->arena), extents = str_new(t->arena), lists = str_new(t->arena);
    for (int a = 0; a < value->axes; a++) {
        const char *comma = a ? ", " : "";
        str_putf(&dims, "%s%lld", comma, (long long)t->net->dims.at[value->dim[a]].used);
        str_putf(&extents, "%s%lld", comma, (long long)copy->local[a]);
        str_putf(&lists, "%s%s", comma, trainer_list(t, &copy->place.shard[a], false));
    }
    AtomSet sharded = place_sharded(&copy->place), rest = 0;
    for (int a = 0; a < t->plan->mesh.n; a++)
        rest |= sharded >> a & 1 ? 0 : (AtomSet)(1u << a);
    AtomList owner = atoms_as_list(rest);
    bool home = group->tied_stage == NONE || stage->index < group->tied_stage;
    emit_comment(out, "%s", tensor_name(t, &t->net->params.at[member->net_param]));
    emit_line(out,
              "{.tensor = %d, .group = %d, .weight = %lldL, .gradient = %lldL, .ndims = %d, .dims "
              "= {%s}, .extent = {%s}, .list = {%s}, .owner = %s, .home = %s%s},",
              member->net_param, g, (long long)link->weight[member->param],
              (long long)link->gradient[member->param], value->axes, dims.at, extents.at, lists.at,
              trainer_list(t, &owner, false), home ? "true" : "false",
              any_cut(t) ? arena_printf(t->arena, ", .offset = %lldL", (long long)member->offset)
                         : "");
}

static void print_part_of(Trainer *t, Emit *out)
{
    emit_comment(out, "A block of this rank, as the runtime's files know it.");
    emit_open_function(out, "static LpPart part_of(State *s, const LpBlock *block, bool gradient)");
    emit_line(out, "LpPart part = {.tensor = block->tensor, .shard = {.ndims = block->ndims}};");
    const char *dtype = dtype_constant(t->program->recipe->weight);
    emit_line(out, "part.dtype = %s%s;",
              str_eq(dtype, "LP_F32") ? "" : "gradient ? LP_F32 : ", dtype);
    emit_line(out, "part.data = arena_at(s, gradient ? block->gradient : block->weight);");
    emit_line(out, "part.owner = block->home && s->index[block->owner] == 0;");
    emit_open(out, "for (int a = 0; a < block->ndims; a++)");
    emit_line(out, "part.shard.dims[a] = block->dims[a];");
    emit_line(out, "part.shard.extent[a] = block->extent[a];");
    emit_line(out, "part.shard.begin[a] = s->index[block->list[a]] * block->extent[a];");
    emit_close(out, "");
    emit_line(out, "return part;");
    emit_close(out, "");
    emit_blank(out);
}

/* A share of a bucket begins and ends anywhere in a block, so it is some boxes of the tensor. */
static void print_moments_of(Trainer *t, Emit *out)
{
    bool master = t->program->recipe->has_master;
    emit_comment(out,
                 "What this rank holds of the moments%s, as the runtime's files know it: "
                 "boxes of its share of each bucket.",
                 master ? " and of the weights that the optimizer steps" : "");
    if (master)
        emit_line(out, "typedef enum { MASTER, MOMENT1, MOMENT2 } Field;");
    emit_open_function(out,
                       "static int moments_of(State *s, const Moments *m, %s, LpPart *ret_parts)",
                       master ? "Field field" : "bool second");
    emit_line(out, "int n = 0;");
    emit_open(out, "for (int b = 0; b < m->bucket_count; b++)");
    emit_line(out, "const LpBucket *bucket = &m->buckets[b];");
    emit_line(out, "const LpGroup *group = &m->groups[bucket->group];");
    if (t->program->matrices.n > 0) {
        emit_line(out, master ? "if (group->matrix && field == MOMENT2)"
                              : "if (group->matrix && second)");
        emit_line(out, "    continue; /* a matrix has one moment */");
    }
    emit_line(out, "const int64_t begin = lp_bucket_share(s->index, m->groups, bucket);");
    emit_line(out, "const int64_t end = begin + bucket->share_elements;");
    if (master)
        emit_line(out, "const int64_t at = field == MASTER ? group->master : field == MOMENT1 ? "
                       "group->moment1 : group->moment2;");
    const char *at = master ? "at" : "second ? group->moment2 : group->moment1";
    emit_line(out, "float *share = (float *)%s + bucket->share_begin;",
              trainer_state_away(t)
                  ? arena_printf(t->arena, "(%s + (%s))", trainer_state_base(t), at)
                  : arena_printf(t->arena, "arena_at(s, %s)", at));
    emit_open(out, "for (int i = 0; i < m->block_count; i++)");
    emit_line(out, "const LpBlock *block = &m->blocks[i];");
    emit_line(out, "LpPart whole = part_of(s, block, %s);", master ? "true" : "false");
    emit_line(out, "const int64_t first = (block->weight - group->weight) / %d;",
              dtype_bytes(t->program->recipe->weight));
    emit_line(out, "const int64_t stop = first + lp_block_elements(block);");
    emit_line(out, "const int64_t from = first > begin ? first : begin;");
    emit_line(out, "const int64_t to = stop < end ? stop : end;");
    emit_line(out, "if (block->group != bucket->group || from >= to)");
    emit_line(out, "    continue;");
    emit_line(out, "whole.owner = group->home && s->index[group->owner] == 0;");
    emit_line(out, "n += lp_part_cut(&whole, from - first, to - first, share + (from - begin), "
                   "ret_parts + n);");
    emit_close(out, "");
    emit_close(out, "");
    emit_line(out, "return n;");
    emit_close(out, "");
    emit_blank(out);
}

/* Boxes of a share: 2 * dims - 1 for each meeting of a block and a bucket, of which a stage has no
 * more than blocks and buckets together. */
static int most_moment_parts(const Trainer *t)
{
    int most = 1;
    for (int s = 0; s < t->program->stages; s++) {
        const StageProgram *stage = &t->program->stage[s];
        int n = stage->buckets.n, axes = 1;
        for (int g = 0; g < stage->groups.n; g++) {
            const Group *group = &stage->groups.at[g];
            n += group->members.n;
            for (int i = 0; i < group->members.n; i++) {
                const GroupMember *member = &group->members.at[i];
                const Body *body = stage->link[member->link].body;
                int copy = body->param_copy[member->param];
                int own = body->graph->values.at[body->copies.at[copy].value].axes;
                axes = own > axes ? own : axes;
            }
        }
        n *= 2 * axes - 1;
        most = n > most ? n : most;
    }
    return most;
}

void trainer_print_moments(Trainer *t, Emit *out)
{
    emit_open(out, "typedef struct Moments");
    emit_line(out, "const LpBlock *blocks;");
    emit_line(out, "const LpGroup *groups;");
    emit_line(out, "const LpBucket *buckets;");
    emit_line(out, "int block_count, bucket_count;");
    emit_close(out, " Moments;");
    emit_blank(out);
    emit_line(out, "static const Moments moments[] = {");
    out->depth++;
    for (int s = 0; s < t->program->stages; s++)
        emit_line(out,
                  "{stage%d_parts, stage%d_groups, stage%d_buckets, LP_COUNT(stage%d_parts), "
                  "LP_COUNT(stage%d_buckets)},",
                  s, s, s, s, s);
    out->depth--;
    emit_line(out, "};");
    emit_line(out, "enum { MAX_MOMENT_PARTS = %d };", most_moment_parts(t));
    emit_blank(out);
    if (any_cut(t))
        trainer_print_boxes(t, out);
    else
        print_moments_of(t, out);
}

void trainer_print_params(Trainer *t, Emit *out)
{
    check_rows(t);
    print_tensors(t, out);
    print_part_of(t, out);
    emit_comment(out, "The block of each tensor that a rank of a stage holds.");
    int most = 1;
    for (int s = 0; s < t->program->stages; s++) {
        const StageProgram *stage = &t->program->stage[s];
        int n = 0;
        emit_line(out, "static const LpBlock stage%d_parts[] = {", s);
        out->depth++;
        for (int g = 0; g < stage->groups.n; g++) {
            const Group *group = &stage->groups.at[g];
            for (int i = 0; i < group->members.n; i++, n++)
                print_part_row(t, out, stage, g, &group->members.at[i]);
        }
        out->depth--;
        emit_line(out, "};");
        most = n > most ? n : most;
    }
    emit_blank(out);
    if (any_cut(t))
        return;
    emit_line(out, "enum { MAX_PARTS = %d };", most);
    emit_blank(out);
    emit_open_function(out, "static int parts_of(State *s, LpPart *ret_parts, bool gradients)");
    emit_line(out, "static const LpBlock *const parts[] = {");
    out->depth++;
    for (int s = 0; s < t->program->stages; s++)
        emit_line(out, "stage%d_parts,", s);
    out->depth--;
    emit_line(out, "};");
    Str counts = str_new(t->arena);
    for (int s = 0; s < t->program->stages; s++)
        str_putf(&counts, "%sLP_COUNT(stage%d_parts)", s ? ", " : "", s);
    emit_line(out, "static const int counts[] = {%s};", counts.at);
    emit_line(out, "const int count = counts[s->rank->stage];");
    emit_open(out, "for (int i = 0; i < count; i++)");
    emit_line(out, "ret_parts[i] = part_of(s, &parts[s->rank->stage][i], gradients);");
    emit_close_slim(out);
    emit_line(out, "return count;");
    emit_close(out, "");
    emit_blank(out);
}
