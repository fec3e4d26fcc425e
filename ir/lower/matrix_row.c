/* matrix_row.c - lays whole matrices side by side, and cuts between them. */
#include "ir/lower/matrix_row.h"

#include <string.h>

#include "ir/base/num.h"
#include "ir/lower/home.h"
#include "ir/lower/state.h"

static int kind_with(Program *program, const Graph *graph, int param, const MatrixKey *key)
{
    const Plan *plan = program->plan;
    for (int k = 0; k < program->matrices.n; k++)
        if (memcmp(&program->matrices.at[k].key, key, sizeof *key) == 0)
            return k;
    Body *body = matrix_body(program->arena, program->net, graph, param, key, &plan->mesh,
                             program->recipe, plan->cluster, &plan->job);
    vec_push(program->arena, &program->matrices) = (MatrixKind){*key, body};
    return program->matrices.n - 1;
}

int program_matrix(Program *program, const Graph *graph, int param, const Placement *home,
                   int64_t *ret_unit)
{
    MatrixKey key;
    int64_t count, elements;
    *ret_unit = 1;
    if (!matrix_key(program->net, graph, param, home, &program->plan->mesh, &program->plan->job,
                    &key, &count, &elements))
        return NONE;
    *ret_unit = matrix_unit(count, elements);
    return kind_with(program, graph, param, &key);
}

static int64_t whole_elements(const Group *group, const GroupMember *member)
{
    return (member->elements + group->unit - 1) / group->unit * group->unit;
}

static int64_t elements_between(const Group *group, int first, int last)
{
    int64_t elements = 0;
    for (int i = first; i <= last; i++)
        elements += whole_elements(group, &group->members.at[i]);
    return elements;
}

/* The first member of a bucket whose last one is `last`: as many links of one chunk as fill it. */
static int bucket_first(const StageProgram *stage, const Group *group, int last, int64_t least)
{
    int64_t elements = 0;
    for (int i = last; i > 0; i--) {
        int own = group->members.at[i].link, below = group->members.at[i - 1].link;
        elements += whole_elements(group, &group->members.at[i]);
        if (below != own &&
            (stage->link[below].chunk != stage->link[own].chunk || elements >= least))
            return i;
    }
    return 0;
}

void group_narrow(const Mesh *mesh, Group *group, int64_t matrices)
{
    AtomList *list[] = {&group->share, &group->gradient_share, &group->weight_share};
    while (list_extent(mesh, &group->share) > matrices)
        group->share.at[--group->share.n] = 0;
    int atoms = group->share.n;
    for (int k = 1; k < 3; k++)
        for (; list[k]->n > atoms; list[k]->n--)
            list[k]->at[list[k]->n - 1] = 0;
}

/* Where the chunk with fewest matrices has fewer than there are ranks, they are dealt to fewer. */
static void narrow_shares(const Program *program, const StageProgram *stage, Group *group)
{
    int64_t fewest = group->unit * (INT64_C(1) << 20);
    for (int last = group->members.n - 1, first; last >= 0; last = first - 1) {
        first = bucket_first(stage, group, last, INT64_MAX);
        int64_t elements = elements_between(group, first, last);
        fewest = elements < fewest ? elements : fewest;
    }
    group_narrow(&program->plan->mesh, group, fewest / group->unit);
}

void group_lay_matrices(Program *program, StageProgram *stage, int g)
{
    Group *group = &stage->groups.at[g];
    narrow_shares(program, stage, group);
    int64_t ranks = list_extent(&program->plan->mesh, &group->share), grain = group->unit * ranks;
    int64_t least =
        num_larger(program->plan->bucket_bytes / dtype_bytes(program->recipe->gradient), grain);
    int begun = stage->buckets.n, first = 0;
    for (int last = group->members.n - 1; last >= 0; last = first - 1) {
        first = bucket_first(stage, group, last, least);
        int64_t filled = elements_between(group, first, last),
                elements = (filled + grain - 1) / grain * grain;
        vec_push(program->arena, &stage->buckets) = (Bucket){.group = g,
                                                             .elements = elements,
                                                             .filled = filled,
                                                             .share_elements = elements / ranks,
                                                             .close_link = NONE,
                                                             .open_link = NONE,
                                                             .buffer = NONE,
                                                             .gradient = {NONE, NONE, NONE},
                                                             .fetch = NONE,
                                                             .between = NONE};
    }
    group->elements = 0;
    for (int b = stage->buckets.n - 1, i = 0; b >= begun; b--) {
        Bucket *bucket = &stage->buckets.at[b];
        bucket->begin = group->elements;
        bucket->share_begin = bucket->begin / ranks;
        for (int64_t at = 0; at < bucket->filled; i++) {
            group->members.at[i].offset = bucket->begin + at;
            at += whole_elements(group, &group->members.at[i]);
        }
        group->elements += bucket->elements;
    }
    group->share_elements = group->elements / ranks;
}

void program_add_steps(Program *program)
{
    int classes = program->bodies;
    program->bodies += program->matrices.n;
    Body **body = ARENA_ARRAY(program->arena, Body *, program->bodies + 1);
    for (int c = 0; c < program->bodies; c++)
        body[c] = c < classes ? program->body[c] : program->matrices.at[c - classes].body;
    program->body = body;
}

bool matrix_is_state(const Group *group, int operand)
{
    return operand == MATRIX_MOMENT || (operand == MATRIX_WEIGHT && group->master != NONE);
}

int64_t matrix_weight(const Program *program, const StageProgram *stage, const Bucket *bucket,
                      int coordinate, int64_t from, int version)
{
    const Group *group = &stage->groups.at[bucket->group];
    int width = dtype_bytes(program->recipe->weight);
    if (group->far)
        return bucket->fetch + (from - bucket->begin) * width;
    return weight_base(program, group, bucket, coordinate) + version_offset(stage, version) +
           from * width;
}

int64_t matrix_operand(const Program *program, const StageProgram *stage, const Bucket *bucket,
                       int coordinate, int64_t from, int operand, int version)
{
    const Group *group = &stage->groups.at[bucket->group];
    const Recipe *recipe = program->recipe;
    int state = dtype_bytes(recipe->master), b = (int)(bucket - stage->buckets.at);
    int64_t at = from - bucket_share_begin(program, stage, bucket, coordinate);
    switch (operand) {
    case MATRIX_WEIGHT:
        if (group->master != NONE)
            return state_address(program, stage, b, FIELD_MASTER, MEMORY_HBM) + at * state;
        return matrix_weight(program, stage, bucket, coordinate, from, version);
    case MATRIX_MOMENT:
        return state_address(program, stage, b, FIELD_MOMENT1, MEMORY_HBM) + at * state;
    case MATRIX_GRADIENT:
        return gradient_base(program, group, bucket, coordinate) +
               from * dtype_bytes(recipe->gradient);
    case MATRIX_COEF:
        return stage->scalars + 64 * SCALAR_COEF;
    case MATRIX_LR:
        return stage->scalars + 64 * SCALAR_LR;
    default:
        return stage->scalars + 64 * SCALAR_STEP + dtype_bytes(recipe->gradient);
    }
}
