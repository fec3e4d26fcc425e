/* check_owner.c - the static proof of the end of a step: who owns which element in the norm, who
 * updates it, and over which ranges its collectives run.
 *
 * Ranges follow in closed form from the mesh: after the moves of a path a rank holds the block of
 * the flat bucket that its index along the atoms scattered so far names. The walk computes them
 * move by move; both must agree on every rank. */
#include "ir/lower/check_in.h"
#include "ir/lower/state.h"

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

/* The same of {loss, norm2} of a step, of which there may be several on their way. */
static bool is_pair(const Trace *trace, const TraceStep *step, const Operand *operand, int first,
                    int count)
{
    const StageProgram *stage = trace->stage;
    int width = dtype_bytes(trace->program->recipe->gradient);
    int slot = trace->program->flows ? step->round % (stage->lag + 2) : 0;
    int64_t at = stage->scalars + 64 * SCALAR_COUNT + PAIR_BYTES * slot;
    return operand->address == at + first * width && operand->bytes == count * width;
}

/* Where a home that is cut along a list has the group's element 0, as this rank's block of the
 * bucket counts. */
static int64_t home_at(const Trace *trace, const Bucket *bucket, const AtomList *list,
                       int64_t address, int width)
{
    int64_t before = bucket->begin / list_extent(&trace->program->plan->mesh, list);
    return address + (before - block_of(trace, bucket, list).begin) * width;
}

static int64_t gradient_at(const Trace *trace, const Bucket *bucket, const Group *group)
{
    int width = dtype_bytes(trace->program->recipe->gradient);
    if (group->far_gradients) /* at work on the device */
        return bucket->gradient[MEMORY_HBM] -
               block_of(trace, bucket, &group->gradient_share).begin * width;
    return home_at(trace, bucket, &group->gradient_share, group->gradient, width);
}

/* Where an update leaves a bucket's weights: the buffer for uses, or the next version's slot. */
static int64_t stepped_to(const Trace *trace, const TraceStep *step, const Bucket *bucket,
                          const Group *group)
{
    return group->far ? weight_buffer_at(trace, bucket, 0)
                      : weight_home_at(trace, bucket, group, step->round + 1);
}

/* Where the optimizer finds a bucket's weights, and where it leaves them: elsewhere, as the last
 * operand, where they have versions. */
static bool is_stepped(const Trace *trace, const TraceStep *step, const Bucket *bucket,
                       const Group *group, Range range, int operands)
{
    int width = dtype_bytes(trace->program->recipe->weight);
    bool apart = trace->stage->delay > 0 && !group->far;
    const Operand *operand = &trace->operands.at[step->operand];
    int64_t to = stepped_to(trace, step, bucket, group); /* to which far ones were brought */
    int64_t from = group->far ? to : weight_home_at(trace, bucket, group, step->round);
    return step->operands == operands + apart && operand[0].read && operand[0].write == !apart &&
           is_range(&operand[0], from, range, width) &&
           (!apart || (operand[operands].write && is_range(&operand[operands], to, range, width)));
}

/* A path with where it begins and ends: the cut it starts from, the base of what its moves read,
 * and of what its first or last collective and those after it write. */
typedef struct Way {
    const Path *path;
    AtomList start;
    int64_t from, to;
    int cross, width; /* the move that reads at `from` and writes at `to` */
    Stream stream;
} Way;

static bool way_of(const Trace *trace, const TraceStep *step, const Bucket *bucket,
                   const Group *group, Way *ret)
{
    int gradient = dtype_bytes(trace->program->recipe->gradient),
        weight = dtype_bytes(trace->program->recipe->weight);
    int64_t sums = gradient_at(trace, bucket, group),
            home = weight_home_at(trace, bucket, group, 0);
    AtomList none = {0};
    int last = group->scatter.n - 1;
    if (on_path(step, &group->scatter)) {
        int64_t buffer = bucket->buffer - bucket->begin * gradient;
        bool crosses = group->scatter.move[last].kind != MOVE_SLICE;
        *ret = (Way){&group->scatter, none,           buffer, crosses ? sums : buffer, last,
                     gradient,        STREAM_GRADIENT};
    } else if (on_path(step, &group->reduce)) {
        *ret =
            (Way){&group->reduce, group->gradient_share, sums, sums, 0, gradient, STREAM_GRADIENT};
    } else if (on_path(step, &group->gather)) {
        home += slot_of_version(trace->stage, step->round + 1);
        *ret = (Way){&group->gather, group->share, home, home, 0, weight, STREAM_GRADIENT};
    } else if (on_path(step, &group->fetch)) {
        int64_t whole =
            weight_buffer_at(trace, bucket, trace->operands.at[step->operand + 1].address);
        home = group->far ? whole : home + slot_of_version(trace->stage, version_read(trace, step));
        int first = 0; /* ranks that hold the same may each bring a part of it */
        while (group->fetch.move[first].kind == MOVE_SLICE)
            first++;
        *ret = (Way){&group->fetch, group->weight_share, home, whole, first, weight, STREAM_WEIGHT};
    } else {
        return false;
    }
    return true;
}

static bool check_flat_move(Check *check, const Trace *trace, const TraceStep *step,
                            const Bucket *bucket, const Group *group)
{
    Way way;
    if (!way_of(trace, step, bucket, group, &way))
        return misplaced(check, trace, step, "this move is not on its bucket's path");
    int at = (int)(step->move - way.path->move);
    AtomList before = scattered(way.path, way.start, at),
             after = scattered(way.path, way.start, at + 1);
    const Operand *operand = &trace->operands.at[step->operand];
    Range from = block_of(trace, bucket, &before), to = block_of(trace, bucket, &after);
    if (step->stream != way.stream || step->operands != 2 || !operand[0].read || operand[0].write ||
        !operand[1].write || operand[1].read || step->elements != from.count ||
        !is_range(&operand[0], at <= way.cross ? way.from : way.to, from, way.width) ||
        !is_range(&operand[1], at < way.cross ? way.from : way.to, to, way.width))
        return misplaced(check, trace, step,
                         "runs over other elements than this rank's block of the bucket");
    return true;
}

/* A buffer and the gradients' home meet on this rank's block, in the direction of the path. */
static bool check_fold(Check *check, const Trace *trace, const TraceStep *step,
                       const Bucket *bucket, const Group *group)
{
    Range own = block_of(trace, bucket, &group->gradient_share);
    int width = dtype_bytes(trace->program->recipe->gradient), last = group->scatter.n - 1;
    bool ahead = last >= 0 && group->scatter.move[last].kind != MOVE_SLICE;
    int64_t home = gradient_at(trace, bucket, group),
            buffer = bucket->buffer - bucket->begin * width;
    const Operand *operand = &trace->operands.at[step->operand];
    const Entry *entry = &trace->stage->table.at[step->entry];
    bool first = entry[entry->braids].first; /* of two rows in one the second adds */
    bool good = group->buffered && step->operands == 2 && step->first == (first && !ahead) &&
                !(first && ahead) && operand[1].read == !step->first &&
                is_range(&operand[0], ahead ? home : buffer, own, width) &&
                is_range(&operand[1], ahead ? buffer : home, own, width);
    return good || misplaced(check, trace, step,
                             "adds other elements than this rank's block of the bucket");
}

static bool check_sumsq(Check *check, Owners *owners, const Trace *trace, const TraceStep *step,
                        const Bucket *bucket, const Group *group)
{
    Range share = block_of(trace, bucket, &group->share);
    if (step->from_element != share.begin || (step->count != 0 && step->count != share.count) ||
        step->operands != 2 ||
        !is_pair(trace, step, &trace->operands.at[step->operand + 1], 1, 1) ||
        !is_range(&trace->operands.at[step->operand], gradient_at(trace, bucket, group),
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
    Range state = {0, share.count};
    const Operand *operand = &trace->operands.at[step->operand];
    bool good = group->rate > 0 && *at == 0 && step->from_element == share.begin &&
                step->count == share.count &&
                is_stepped(trace, step, bucket, group, share, 2 + (group->master != NONE)) &&
                is_range(&operand[1], gradient_at(trace, bucket, group), share,
                         dtype_bytes(recipe->gradient)) &&
                (group->master == NONE ||
                 is_range(&operand[2],
                          state_at_update(trace->program, trace->stage, step->bucket, FIELD_MASTER),
                          state, dtype_bytes(recipe->master)));
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
    Range moment = {own.begin - share.begin, own.count};
    int64_t field[FIELD_COUNT];
    for (int f = 0; f < FIELD_COUNT; f++)
        field[f] = state_at_update(trace->program, trace->stage, step->bucket, (StateField)f);
    bool good = group->rate == 0 && group->matrix == NONE && own.count > 0 &&
                own.begin == share.begin + *at && *at + own.count <= share.count;
    *at += own.count;
    good = good && is_stepped(trace, step, bucket, group, own, 7 + (group->master != NONE)) &&
           is_range(&operand[1], field[FIELD_MOMENT1], moment, state) &&
           is_range(&operand[2], field[FIELD_MOMENT2], moment, state) &&
           is_range(&operand[3], gradient_at(trace, bucket, group), own,
                    dtype_bytes(recipe->gradient)) &&
           is_scalar(trace, &operand[4], SCALAR_COEF, 0, 1) &&
           is_scalar(trace, &operand[5], SCALAR_LR, 0, 1) &&
           is_scalar(trace, &operand[6], SCALAR_STEP, 0, 1) &&
           (group->master == NONE || is_range(&operand[7], field[FIELD_MASTER], moment, state));
    if (!good)
        return misplaced(check, trace, step,
                         "updates other elements than the next of this rank's share of the bucket");
    if (!same_decay(group, own, step->decay))
        return misplaced(check, trace, step,
                         "decays weights that the model does not decay, or the other way round");
    return true;
}

/* The next instruction of a whole matrix's step: of the next matrix of this rank's share. The one
 * that writes the weight ends it; padding behind the bucket's matrices is nobody's. *inst: how many
 * of this matrix came before. */
static bool check_matrix(Check *check, const Trace *trace, const TraceStep *step,
                         const Bucket *bucket, const Group *group, int64_t *at, int *inst)
{
    const Recipe *recipe = trace->program->recipe;
    Range share = block_of(trace, bucket, &group->share), own = {step->from_element, step->count};
    bool good = group->matrix != NONE && own.count == group->unit &&
                own.begin == share.begin + *at && *at + own.count <= share.count &&
                own.begin + own.count <= bucket->begin + bucket->filled &&
                step->body == trace->program->matrices.at[group->matrix].body &&
                *inst < step->body->backward.n && step->inst == &step->body->backward.at[*inst];
    bool steps = false;
    for (int k = 0; good && k < step->inst->outs; k++) {
        const Copy *copy = &step->body->copies.at[step->inst->out[k]];
        steps |= copy->home == HOME_ACC && copy->param == MATRIX_WEIGHT;
    }
    bool publishes = steps && group->master != NONE;
    if (good)
        good = step->operands == step->inst->ins + step->inst->outs + publishes &&
               (!publishes ||
                is_range(&trace->operands.at[step->operand + step->operands - 1],
                         stepped_to(trace, step, bucket, group), own, dtype_bytes(recipe->weight)));
    if (!good)
        return misplaced(check, trace, step,
                         "steps another matrix than the next of this rank's share of the bucket");
    *at += steps ? own.count : 0;
    *inst = steps ? 0 : *inst + 1;
    return true;
}

/* Elements that this rank updates of a bucket: its share, of whole matrices without the padding. */
static int64_t updated_elements(const Trace *trace, const Bucket *bucket, const Group *group)
{
    Range share = block_of(trace, bucket, &group->share);
    int64_t left = bucket->begin + bucket->filled - share.begin;
    if (group->matrix == NONE || left > share.count)
        return share.count;
    return left > 0 ? left : 0;
}

static bool check_tied(Check *check, const Trace *trace, const TraceStep *step,
                       const Bucket *bucket, const Group *group)
{
    Range share = block_of(trace, bucket, &group->share);
    int width = dtype_bytes(trace->program->recipe->gradient);
    const Operand *operand = &trace->operands.at[step->operand];
    if (step->peer != group->tied_stage || step->elements != share.count || step->operands != 2 ||
        !is_range(&operand[0], gradient_at(trace, bucket, group), share, width) ||
        !is_range(&operand[1], gradient_at(trace, bucket, group), share, width))
        return misplaced(check, trace, step,
                         "adds other elements than this rank's share of the tied bucket");
    return true;
}

/* {loss, norm2, losses beside it}: this rank's terms, the world's sums, the clip coefficient;
 * `number`: of the loss. */
static bool check_scalars(Check *check, const Trace *trace, const TraceStep *step, int number)
{
    const Operand *operand = &trace->operands.at[step->operand];
    bool good = step->operands == 2;
    int numbers = 1 + net_losses(trace->program->net);
    if (step->kind == STEP_OWN_LOSS)
        good = good && is_scalar(trace, &operand[0], SCALAR_LOSS, number, 1) &&
               is_pair(trace, step, &operand[1], number == 0 ? 0 : number + 1, 1);
    else if (step->kind == STEP_WORLD)
        good = good && step->elements == numbers && is_pair(trace, step, &operand[0], 0, numbers) &&
               is_pair(trace, step, &operand[1], 0, numbers);
    else
        good = good && is_pair(trace, step, &operand[0], 1, 1) &&
               is_scalar(trace, &operand[1], SCALAR_COEF, 0, 1);
    return good || misplaced(check, trace, step, "works on other numbers than it should");
}

/* What one optimizer step does to a bucket. */
typedef struct Seen {
    int moves, sums, ties, hops;
    int brought, returned;                /* of weights that live elsewhere */
    int came, left;                       /* hops of gradients that do */
    int scatters, folds, clears, fetches; /* of all micro-batches */
    int insts;                            /* of a matrix that is being stepped */
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

/* What each micro-batch does to a bucket happens as often as there are micro-batches. */
static bool check_seen_rows(Check *check, const Trace *trace, int round, int b, const Seen *seen)
{
    const StageProgram *stage = trace->stage;
    const Bucket *bucket = &stage->buckets.at[b];
    const Group *group = &stage->groups.at[bucket->group];
    int micros = trace->whole ? trace->program->plan->micro_batches : 1,
        last = group->scatter.n - 1;
    bool ahead = last >= 0 && group->scatter.move[last].kind != MOVE_SLICE;
    int fetches = count_moves(&group->fetch);
    if (seen->scatters == micros * count_moves(&group->scatter) &&
        seen->folds == (group->buffered ? micros - ahead : 0) &&
        seen->clears == (group->buffered ? micros : 1) * bucket->gaps.n &&
        (fetches ? seen->fetches > 0 && seen->fetches % fetches == 0 : seen->fetches == 0))
        return true;
    return check_fault(check,
                       "stage %d, rank %d, step %d: the gradients of bucket %d are scattered %d "
                       "times and folded %d times in %d micro-batches",
                       stage->index, trace->coordinate, round, b, seen->scatters, seen->folds,
                       micros);
}

/* Gradients that live elsewhere come and go as often as they should. */
static bool check_seen_sums(Check *check, const Trace *trace, int round, int b, const Seen *seen)
{
    int came = sums_hops_due(trace, b, true), left = sums_hops_due(trace, b, false);
    if (seen->came == came && seen->left == left)
        return true;
    return check_fault(check,
                       "rank %d (stage %d), step %d: the gradients of bucket %d make %d of %d hops "
                       "from where they live and %d of %d there",
                       trace_rank(trace), trace->stage->index, round, b, seen->came, came,
                       seen->left, left);
}

static bool check_seen(Check *check, const Trace *trace, int round, Seen *seen, SeenOnce *once)
{
    const StageProgram *stage = trace->stage;
    bool good = true;
    if (once->losses != net_losses(trace->program->net) || once->worlds != 1 ||
        once->clips != !trace->program->flows)
        good = check_fault(check,
                           "rank %d (stage %d), step %d: losses are counted %d times, {loss, norm} "
                           "summed over the world %d "
                           "times and clipping decided %d times",
                           trace_rank(trace), stage->index, round, once->losses, once->worlds,
                           once->clips);
    for (int b = 0; b < stage->buckets.n; b++) {
        const Bucket *bucket = &stage->buckets.at[b];
        const Group *group = &stage->groups.at[bucket->group];
        int64_t share = updated_elements(trace, bucket, group);
        int moves = count_moves(&group->reduce) + count_moves(&group->gather);
        int hops = group->far ? (int)trace->program->plan->memory[KEPT_WEIGHTS] : 0;
        if (seen[b].returned != hops || (seen[b].brought > 0) != group->far ||
            (group->far && seen[b].brought % hops != 0))
            good = check_fault(
                check,
                "rank %d (stage %d), step %d: the weights of bucket %d come %d times "
                "from where they live and go there %d times",
                trace_rank(trace), stage->index, round, b, seen[b].brought, seen[b].returned);
        if (seen[b].hops != state_hops_due(group))
            good = check_fault(check,
                               "rank %d (stage %d), step %d: the state of bucket %d makes %d of "
                               "its %d hops",
                               trace_rank(trace), stage->index, round, b, seen[b].hops,
                               state_hops_due(group));
        if (seen[b].moves != moves || seen[b].sums != 1 ||
            seen[b].ties != (group->tied_stage != NONE) || seen[b].updated != share)
            good = check_fault(
                check,
                "rank %d (stage %d), step %d: bucket %d is moved %d of %d times, counted in the "
                "norm %d times, "
                "summed over tied stages %d times, and %lld of its %lld elements are updated",
                trace_rank(trace), stage->index, round, b, seen[b].moves, moves, seen[b].sums,
                seen[b].ties, (long long)seen[b].updated, (long long)share);
        good &= check_seen_rows(check, trace, round, b, &seen[b]);
        good &= check_seen_sums(check, trace, round, b, &seen[b]);
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
                (LossOwner){once->losses, stage->index, trace->coordinate};
        return check_scalars(check, trace, step, once->losses++);
    }
    if (step->kind == STEP_WORLD ||
        (step->node && step->node == &program->optimizer->nodes.at[program->clip])) {
        once->worlds += step->kind == STEP_WORLD;
        once->clips += step->kind != STEP_WORLD;
        return check_scalars(check, trace, step, 0);
    }
    if (step->bucket == NONE)
        return step->kind != STEP_MOVE || (step->inst && step->move == &step->inst->move) ||
               misplaced(check, trace, step, "runs another move than its instruction");
    if (step->bucket < 0 || step->bucket >= stage->buckets.n)
        return misplaced(check, trace, step, "belongs to no bucket");
    const Bucket *bucket = &stage->buckets.at[step->bucket];
    const Group *group = &stage->groups.at[bucket->group];
    Seen *here = &seen[step->bucket];
    if (step->inst)
        return check_matrix(check, trace, step, bucket, group, &here->updated, &here->insts);
    if (step->kind == STEP_CLEAR) {
        here->clears++;
        return true; /* only of padding: its bytes say so */
    }
    if (step->kind == STEP_ACCUMULATE) {
        here->folds++;
        return check_fold(check, trace, step, bucket, group);
    }
    if (step->kind == STEP_MOVE) {
        *(on_path(step, &group->scatter) ? &here->scatters
          : on_path(step, &group->fetch) ? &here->fetches
                                         : &here->moves) += 1;
        return check_flat_move(check, trace, step, bucket, group);
    }
    if (step_carries_weights(trace, step)) {
        *(step_leaves(trace, step) ? &here->returned : &here->brought) += 1;
        const char *what = weights_misplaced(trace, step);
        return !what || misplaced(check, trace, step, what);
    }
    if (step->kind == STEP_COPY && step_sums(trace, step)) {
        *(step_leaves(trace, step) ? &here->left : &here->came) += 1;
        const char *what = sums_misplaced(trace, step);
        return !what || misplaced(check, trace, step, what);
    }
    if (step->kind == STEP_COPY) {
        here->hops++;
        const char *what = state_misplaced(trace, step);
        return !what || misplaced(check, trace, step, what);
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
    int buckets = trace->stage->buckets.n + 1; /* Steps of several rounds may be mixed */
    Seen *seen = ARENA_ARRAY(scratch, Seen, trace->rounds * buckets);
    SeenOnce *once = ARENA_ARRAY(scratch, SeenOnce, trace->rounds);
    bool good = true;
    for (int i = 0; i < trace->steps.n; i++) {
        const TraceStep *step = &trace->steps.at[i];
        good &=
            add_step(check, owners, trace, step, &seen[step->round * buckets], &once[step->round]);
    }
    for (int r = 0; r < trace->rounds; r++)
        good &= check_seen(check, trace, r, &seen[r * buckets], &once[r]);
    arena_free(scratch);
    return good;
}
