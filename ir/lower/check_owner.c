/* check_owner.c - the static proof of the end of a step: who owns which element in the norm, who
 * updates it, and over which ranges its collectives run.
 *
 * Ranges follow in closed form from the mesh: after the moves of a path a rank holds the block of
 * the flat bucket that its index along the atoms scattered so far names. The walk computes them
 * move by move; both must agree on every rank. */
#include "ir/lower/check_in.h"

#include <stdlib.h>

/* Elements [begin, end) of one block sequence of a group, counted in the norm by one rank. */
typedef struct Owned {
    int stage, group, block;
    int64_t begin, end;
    int owner_stage, coordinate;
} Owned;

struct Owners {
    VEC(Owned) owned;
    VEC(int) loss; /* coordinates that own the loss, on the stage that has it */
};

Owners *owners_new(Check *check)
{
    return ARENA_NEW(check->arena, Owners);
}

typedef struct Range {
    int64_t begin, count;
} Range;

/* The block of a bucket that a rank holds when it is scattered along `list`. */
static Range block_of(const Trace *trace, const Bucket *bucket, const AtomList *list)
{
    const Mesh *mesh = &trace->program->plan->mesh;
    int64_t count = bucket->elements / list_extent(mesh, list);
    return (Range){bucket->begin + count * list_index(mesh, list, trace->coordinate), count};
}

/* Atoms scattered before and after move `at` of a path that begins with `list`. */
static AtomList scattered(const Path *path, AtomList list, int moves)
{
    for (int i = 0; i < moves; i++) {
        const Move *move = &path->move[i];
        if (move->kind == MOVE_REDUCE_SCATTER || move->kind == MOVE_SLICE)
            for (int k = 0; k < move->atoms.n && list.n < MAX_PER_AXIS; k++)
                list.at[list.n++] = move->atoms.at[k];
        else if (move->kind == MOVE_ALL_GATHER)
            list.n = (int8_t)(list.n > move->atoms.n ? list.n - move->atoms.n : 0);
    }
    return list;
}

static bool misplaced(Check *check, const Trace *trace, const TraceStep *step, const char *what)
{
    return check_fault(check, "%s of rank %d: %s", trace_name(check->arena, trace, step),
                       trace->coordinate, what);
}

static bool is_range(const Operand *operand, int64_t base, Range range, int width)
{
    return operand->address == base + range.begin * width && operand->bytes == range.count * width;
}

static bool is_scalar(const Trace *trace, const Operand *operand, int which, int first, int count)
{
    int width = dtype_bytes(trace->program->recipe->gradient);
    return operand->address == trace->stage->scalars + 64 * which + first * width &&
           operand->bytes == count * width;
}

static bool check_flat_move(Check *check, const Trace *trace, const TraceStep *step,
                            const Bucket *bucket, const Group *group)
{
    const Recipe *recipe = trace->program->recipe;
    bool reduces =
        step->move >= group->reduce.move && step->move < group->reduce.move + group->reduce.n;
    bool gathers =
        step->move >= group->gather.move && step->move < group->gather.move + group->gather.n;
    if (!reduces && !gathers)
        return misplaced(check, trace, step, "this move is not on its bucket's path");
    const Path *path = reduces ? &group->reduce : &group->gather;
    AtomList none = {0}, start = reduces ? none : group->share;
    int at = (int)(step->move - path->move);
    AtomList before = scattered(path, start, at), after = scattered(path, start, at + 1);
    int64_t base = reduces ? group->gradient : group->weight;
    int width = dtype_bytes(reduces ? recipe->gradient : recipe->weight);
    const Operand *operand = &trace->operands.at[step->operand];
    Range from = block_of(trace, bucket, &before), to = block_of(trace, bucket, &after);
    if (step->operands != 2 || !operand[0].read || operand[0].write || !operand[1].write ||
        operand[1].read || step->elements != from.count ||
        !is_range(&operand[0], base, from, width) || !is_range(&operand[1], base, to, width))
        return misplaced(check, trace, step,
                         "runs over other elements than this rank's block of the bucket");
    return true;
}

static bool check_sumsq(Check *check, Owners *owners, const Trace *trace, const TraceStep *step,
                        const Bucket *bucket, const Group *group)
{
    Range share = block_of(trace, bucket, &group->share);
    if (step->from_element != share.begin || (step->count != 0 && step->count != share.count) ||
        step->operands != 2 ||
        !is_scalar(trace, &trace->operands.at[step->operand + 1], SCALAR_PAIR, 1, 1) ||
        !is_range(&trace->operands.at[step->operand], group->gradient,
                  (Range){share.begin, step->count}, dtype_bytes(trace->program->recipe->gradient)))
        return misplaced(check, trace, step,
                         "counts other elements than this rank's share of the bucket");
    if (step->round > 0 || step->count == 0)
        return true;
    AtomList differ = {0};
    for (int a = MAX_ATOMS - 1; a >= 0; a--)
        if ((group->sharded >> a & 1) && differ.n < MAX_PER_AXIS)
            differ.at[differ.n++] = (int8_t)a;
    vec_push(check->arena, &owners->owned) =
        (Owned){trace->stage->index,
                bucket->group,
                list_index(&trace->program->plan->mesh, &differ, trace->coordinate),
                share.begin,
                share.begin + share.count,
                trace->stage->index,
                trace->coordinate};
    return true;
}

/* The same of a bucket that moves by the signs of its gradients. */
static bool check_sign(Check *check, const Trace *trace, const TraceStep *step,
                       const Bucket *bucket, const Group *group, int64_t *at)
{
    const Recipe *recipe = trace->program->recipe;
    Range share = block_of(trace, bucket, &group->share);
    Range state = {bucket->share_begin, share.count};
    const Operand *operand = &trace->operands.at[step->operand];
    bool good = group->rate > 0 && *at == 0 && step->from_element == share.begin &&
                step->count == share.count && step->operands == 2 + (group->master != NONE) &&
                is_range(&operand[0], group->weight, share, dtype_bytes(recipe->weight)) &&
                is_range(&operand[1], group->gradient, share, dtype_bytes(recipe->gradient)) &&
                (group->master == NONE ||
                 is_range(&operand[2], group->master, state, dtype_bytes(recipe->master)));
    *at += step->count;
    return good || misplaced(check, trace, step,
                             "moves other elements than this rank's share of the bucket");
}

/* All real elements of a range have this decay flag. */
static bool same_decay(const Group *group, Range range, bool decay)
{
    for (int k = 0; k < group->members.n; k++) {
        const GroupMember *member = &group->members.at[k];
        if (member->offset < range.begin + range.count &&
            range.begin < member->offset + member->elements && member->decay != decay)
            return false;
    }
    return true;
}

/* *at: how far this bucket's share has been updated. */
static bool check_adamw(Check *check, const Trace *trace, const TraceStep *step,
                        const Bucket *bucket, const Group *group, int64_t *at)
{
    const Recipe *recipe = trace->program->recipe;
    Range share = block_of(trace, bucket, &group->share), own = {step->from_element, step->count};
    const Operand *operand = &trace->operands.at[step->operand];
    int state = dtype_bytes(recipe->master);
    Range moment = {bucket->share_begin + own.begin - share.begin, own.count};
    bool good = group->rate == 0 && own.begin == share.begin + *at && own.count > 0 &&
                *at + own.count <= share.count;
    *at += own.count;
    good = good && step->operands == 7 + (group->master != NONE) &&
           is_range(&operand[0], group->weight, own, dtype_bytes(recipe->weight)) &&
           is_range(&operand[1], group->moment1, moment, state) &&
           is_range(&operand[2], group->moment2, moment, state) &&
           is_range(&operand[3], group->gradient, own, dtype_bytes(recipe->gradient)) &&
           is_scalar(trace, &operand[4], SCALAR_COEF, 0, 1) &&
           is_scalar(trace, &operand[5], SCALAR_LR, 0, 1) &&
           is_scalar(trace, &operand[6], SCALAR_STEP, 0, 1) &&
           (group->master == NONE || is_range(&operand[7], group->master, moment, state));
    if (!good)
        return misplaced(check, trace, step,
                         "updates other elements than the next of this rank's share of the bucket");
    if (!same_decay(group, own, step->decay))
        return misplaced(check, trace, step,
                         "decays weights that the model does not decay, or the other way round");
    return true;
}

static bool check_tied(Check *check, const Trace *trace, const TraceStep *step,
                       const Bucket *bucket, const Group *group)
{
    Range share = block_of(trace, bucket, &group->share);
    int width = dtype_bytes(trace->program->recipe->gradient);
    const Operand *operand = &trace->operands.at[step->operand];
    if (step->peer != group->tied_stage || step->elements != share.count || step->operands != 2 ||
        !is_range(&operand[0], group->gradient, share, width) ||
        !is_range(&operand[1], group->gradient, share, width))
        return misplaced(check, trace, step,
                         "adds other elements than this rank's share of the tied bucket");
    return true;
}

/* {loss, norm2}: this rank's terms, the world's sums, the clip coefficient. */
static bool check_scalars(Check *check, const Trace *trace, const TraceStep *step)
{
    const Operand *operand = &trace->operands.at[step->operand];
    bool good = step->operands == 2;
    if (step->kind == STEP_OWN_LOSS)
        good = good && is_scalar(trace, &operand[0], SCALAR_LOSS, 0, 1) &&
               is_scalar(trace, &operand[1], SCALAR_PAIR, 0, 1);
    else if (step->kind == STEP_WORLD)
        good = good && step->elements == 2 && is_scalar(trace, &operand[0], SCALAR_PAIR, 0, 2) &&
               is_scalar(trace, &operand[1], SCALAR_PAIR, 0, 2);
    else
        good = good && is_scalar(trace, &operand[0], SCALAR_PAIR, 1, 1) &&
               is_scalar(trace, &operand[1], SCALAR_COEF, 0, 1);
    return good || misplaced(check, trace, step, "works on other numbers than it should");
}

/* What one optimizer step does to a bucket. */
typedef struct Seen {
    int moves, sums, ties;
    int64_t updated;
} Seen;

/* What it does once on every rank, whatever the buckets. */
typedef struct SeenOnce {
    int losses, worlds, clips;
} SeenOnce;

static int count_moves(const Path *path)
{
    int n = 0;
    for (int i = 0; i < path->n; i++)
        n += path->move[i].kind != MOVE_SLICE;
    return n;
}

static bool check_seen(Check *check, const Trace *trace, int round, Seen *seen, SeenOnce *once)
{
    const StageProgram *stage = trace->stage;
    bool good = true;
    if (once->losses != 1 || once->worlds != 1 || once->clips != 1)
        good = check_fault(
            check,
            "rank %d (stage %d), step %d: the loss is counted %d times, {loss, norm} "
            "summed over the world %d "
            "times and clipping decided %d times",
            trace_rank(trace), stage->index, round, once->losses, once->worlds, once->clips);
    *once = (SeenOnce){0};
    for (int b = 0; b < stage->buckets.n; b++) {
        const Bucket *bucket = &stage->buckets.at[b];
        const Group *group = &stage->groups.at[bucket->group];
        int64_t share = bucket->elements / list_extent(&trace->program->plan->mesh, &group->share);
        int moves = count_moves(&group->reduce) + count_moves(&group->gather);
        if (seen[b].moves != moves || seen[b].sums != 1 ||
            seen[b].ties != (group->tied_stage != NONE) || seen[b].updated != share)
            good = check_fault(
                check,
                "rank %d (stage %d), step %d: bucket %d is moved %d of %d times, counted in the "
                "norm %d times, "
                "summed over tied stages %d times, and %lld of its %lld elements are updated",
                trace_rank(trace), stage->index, round, b, seen[b].moves, moves, seen[b].sums,
                seen[b].ties, (long long)seen[b].updated, (long long)share);
        seen[b] = (Seen){0};
    }
    return good;
}

static bool add_step(Check *check, Owners *owners, const Trace *trace, const TraceStep *step,
                     Seen *seen, SeenOnce *once)
{
    const Program *program = trace->program;
    const StageProgram *stage = trace->stage;
    if (step->kind == STEP_OWN_LOSS) {
        if (step->count > 0 && step->round == 0)
            vec_push(check->arena, &owners->loss) =
                stage->index * mesh_ranks(&program->plan->mesh) + trace->coordinate;
        once->losses++;
        return check_scalars(check, trace, step);
    }
    if (step->kind == STEP_WORLD ||
        (step->node && step->node == &program->optimizer->nodes.at[program->clip])) {
        once->worlds += step->kind == STEP_WORLD;
        once->clips += step->kind != STEP_WORLD;
        return check_scalars(check, trace, step);
    }
    if (step->bucket == NONE)
        return step->kind != STEP_MOVE || (step->inst && step->move == &step->inst->move) ||
               misplaced(check, trace, step, "runs another move than its instruction");
    if (step->bucket < 0 || step->bucket >= stage->buckets.n)
        return misplaced(check, trace, step, "belongs to no bucket");
    const Bucket *bucket = &stage->buckets.at[step->bucket];
    const Group *group = &stage->groups.at[bucket->group];
    Seen *here = &seen[step->bucket];
    if (step->kind == STEP_MOVE) {
        here->moves++;
        return check_flat_move(check, trace, step, bucket, group);
    }
    if (step->kind == STEP_TIED) {
        here->ties++;
        return check_tied(check, trace, step, bucket, group);
    }
    if (step->node == &program->optimizer->nodes.at[program->sumsq]) {
        here->sums++;
        return check_sumsq(check, owners, trace, step, bucket, group);
    }
    if (step->node == &program->optimizer->nodes.at[program->sign])
        return check_sign(check, trace, step, bucket, group, &here->updated);
    if (step->node == &program->optimizer->nodes.at[program->adamw])
        return check_adamw(check, trace, step, bucket, group, &here->updated);
    return misplaced(check, trace, step, "is no Step of a bucket");
}

bool owners_add(Check *check, Owners *owners, const Trace *trace)
{
    Arena *scratch = arena_new("buckets");
    Seen *seen = ARENA_ARRAY(scratch, Seen, trace->stage->buckets.n + 1);
    SeenOnce once = {0};
    bool good = true;
    for (int i = 0; i < trace->steps.n; i++) {
        const TraceStep *step = &trace->steps.at[i];
        if (i > 0 && step->round != trace->steps.at[i - 1].round)
            good &= check_seen(check, trace, trace->steps.at[i - 1].round, seen, &once);
        good &= add_step(check, owners, trace, step, seen, &once);
    }
    good &= check_seen(check, trace, trace->rounds - 1, seen, &once);
    arena_free(scratch);
    return good;
}

/* ---- all ranks together ---- */

static const Group *group_at(const Program *program, int stage, int group)
{
    return &program->stage[stage].groups.at[group];
}

static bool same_group(const Group *a, const Group *b)
{
    bool same = a->sharded == b->sharded && a->partial == b->partial &&
                a->elements == b->elements && a->members.n == b->members.n &&
                a->share.n == b->share.n && list_set(&a->share) == list_set(&b->share);
    for (int i = 0; same && i < a->share.n; i++)
        same = a->share.at[i] == b->share.at[i];
    for (int k = 0; same && k < a->members.n; k++)
        same = a->members.at[k].net_param == b->members.at[k].net_param &&
               a->members.at[k].offset == b->members.at[k].offset &&
               a->members.at[k].elements == b->members.at[k].elements;
    return same;
}

/* The group of another stage that a tied group is summed with, or NONE. */
static int tied_partner(const Program *program, int stage, int group)
{
    const Group *own = group_at(program, stage, group);
    if (own->tied_stage < 0 || own->tied_stage >= program->stages)
        return NONE;
    for (int g = 0; g < program->stage[own->tied_stage].groups.n; g++) {
        const Group *other = group_at(program, own->tied_stage, g);
        if (other->tied_stage == stage && same_group(own, other))
            return g;
    }
    return NONE;
}

/* Both stages cut a tied group into the same buckets, in the same order. */
static bool same_buckets(const StageProgram *a, int x, const StageProgram *b, int y)
{
    int j = 0;
    for (int i = 0; i < a->buckets.n; i++) {
        const Bucket *one = &a->buckets.at[i];
        if (one->group != x)
            continue;
        while (j < b->buckets.n && b->buckets.at[j].group != y)
            j++;
        if (j == b->buckets.n || b->buckets.at[j].begin != one->begin ||
            b->buckets.at[j].elements != one->elements)
            return false;
        j++;
    }
    while (j < b->buckets.n && b->buckets.at[j].group != y)
        j++;
    return j == b->buckets.n;
}

static bool check_tied_groups(Check *check, Owners *owners)
{
    const Program *program = check->program;
    bool good = true;
    for (int s = 0; s < program->stages; s++)
        for (int g = 0; g < program->stage[s].groups.n; g++) {
            const Group *group = group_at(program, s, g);
            if (group->tied_stage == NONE)
                continue;
            int other = tied_partner(program, s, g);
            if (other == NONE ||
                !same_buckets(&program->stage[s], g, &program->stage[group->tied_stage], other)) {
                good = check_fault(check,
                                   "stage %d: group %d is tied to stage %d, which has none like it",
                                   s, g, group->tied_stage);
                continue;
            }
            for (int i = 0; s > group->tied_stage && i < owners->owned.n;
                 i++) /* both homes count as one */
                if (owners->owned.at[i].owner_stage == s && owners->owned.at[i].group == g) {
                    owners->owned.at[i].stage = group->tied_stage;
                    owners->owned.at[i].group = other;
                }
        }
    return good;
}

static int by_place(const void *a, const void *b)
{
    const Owned *x = a, *y = b;
    if (x->stage != y->stage)
        return x->stage - y->stage;
    if (x->group != y->group)
        return x->group - y->group;
    if (x->block != y->block)
        return x->block - y->block;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->owner_stage != y->owner_stage ? x->owner_stage - y->owner_stage
                                            : x->coordinate - y->coordinate;
}

static const char *parameter_at(const Program *program, const Group *group, int64_t element)
{
    const char *name = "padding";
    for (int k = 0; k < group->members.n && group->members.at[k].offset <= element; k++)
        name = program->net->params.at[group->members.at[k].net_param].name;
    return name;
}

static int owner_rank(const Check *check, const Owned *owned)
{
    return owned->owner_stage * mesh_ranks(&check->program->plan->mesh) + owned->coordinate;
}

/* The owned ranges of every block of one group are all of it, each element once. Returns where the
 * next group begins. */
static int check_tiling(Check *check, const Owners *owners, int stage, int group, int at)
{
    const Group *own = group_at(check->program, stage, group);
    int blocks = mesh_extent(&check->program->plan->mesh, own->sharded);
    int64_t padding = own->elements;
    for (int block = 0; block < blocks; block++) {
        int64_t reached = 0;
        for (; at < owners->owned.n; at++) {
            const Owned *next = &owners->owned.at[at];
            if (next->stage != stage || next->group != group || next->block != block)
                break;
            if (next->begin < reached) {
                const Owned *other = &owners->owned.at[at - 1];
                check_fault(check,
                            "stage %d: elements %lld to %lld of group %d (%s) have two owners in "
                            "the norm, ranks %d and %d",
                            stage, (long long)next->begin, (long long)reached, group,
                            parameter_at(check->program, own, next->begin),
                            owner_rank(check, other), owner_rank(check, next));
            }
            if (next->begin > reached)
                check_fault(check,
                            "stage %d: elements %lld to %lld of group %d (%s) have no owner "
                            "in the norm",
                            stage, (long long)reached, (long long)next->begin, group,
                            parameter_at(check->program, own, reached));
            reached = next->end > reached ? next->end : reached;
        }
        int64_t wanted = own->rate > 0 ? 0 : own->elements;
        if (reached != wanted)
            check_fault(
                check, "stage %d: elements %lld to %lld of group %d (%s) have no owner in the norm",
                stage, (long long)reached, (long long)own->elements, group,
                parameter_at(check->program, own, reached));
    }
    for (int k = 0; k < own->members.n; k++)
        padding -= own->members.at[k].elements;
    check->report->padding += padding * blocks;
    check->report->elements += (own->elements - padding) * blocks;
    return at;
}

static bool check_loss_owner(Check *check, const Owners *owners)
{
    const Program *program = check->program;
    const Mesh *mesh = &program->plan->mesh;
    int ranks = mesh_ranks(mesh), wanted = 0, found = 0;
    for (int s = 0; s < program->stages; s++)
        for (int i = 0; i < program->stage[s].links; i++) {
            const Body *body = program->stage[s].link[i].body;
            if (body->loss == NONE)
                continue;
            AtomSet partial = body->copies.at[body->loss].place.partial;
            wanted += mesh_extent(mesh, partial);
            for (int k = 0; k < owners->loss.n; k++) {
                int coordinate = owners->loss.at[k] % ranks;
                bool alone = owners->loss.at[k] / ranks == s;
                for (int a = 0; a < mesh->n; a++)
                    alone &= (partial >> a & 1) || mesh_coordinate(mesh, coordinate, a) == 0;
                found += alone;
            }
        }
    if (found != wanted || owners->loss.n != wanted)
        return check_fault(check, "the loss has %d terms and %d ranks that count one", wanted,
                           owners->loss.n);
    return true;
}

bool owners_check(Check *check, Owners *owners)
{
    const Program *program = check->program;
    const Net *net = program->net;
    int before = check->report->faults;
    check_tied_groups(check, owners);
    if (owners->owned.n > 0)
        qsort(owners->owned.at, (size_t)owners->owned.n, sizeof owners->owned.at[0], by_place);
    int at = 0;
    for (int s = 0; s < program->stages; s++)
        for (int g = 0; g < program->stage[s].groups.n; g++)
            if (group_at(program, s, g)->tied_stage == NONE ||
                group_at(program, s, g)->tied_stage > s)
                at = check_tiling(check, owners, s, g, at);
    if (at != owners->owned.n)
        check_fault(check, "%d ranges of the norm belong to no group", owners->owned.n - at);
    int64_t elements = 0;
    for (int p = 0; p < net->params.n; p++) {
        const NetParam *param = &net->params.at[p];
        const Graph *graph = net->classes.at[param->class];
        const Param *info = &graph->params.at[param->param];
        bool trained = info->grad != NONE;
        for (int use = 0; use < param->uses; use++)
            trained |=
                net->classes.at[param->use_class[use]]->params.at[param->use_param[use]].grad !=
                NONE;
        elements += trained ? value_elements(net, &graph->values.at[info->value]) : 0;
    }
    if (elements != check->report->elements)
        check_fault(check, "the ranks own %lld elements of parameters, the model trains %lld",
                    (long long)check->report->elements, (long long)elements);
    check_loss_owner(check, owners);
    return check->report->faults == before;
}
