/* program.c - a plan becomes a Program: stages, their parameter groups and buckets, and the tables
 * of one global sequence. */
#include "ir/lower/program.h"

#include <stdlib.h>

#include "ir/lower/braid.h"
#include "ir/lower/flow.h"
#include "ir/lower/home.h"
#include "ir/lower/layout.h"
#include "ir/lower/link.h"
#include "ir/lower/matrix_row.h"
#include "ir/lower/spill.h"
#include "ir/lower/walk.h"
#include "ir/optimizer.h"

const char *const entry_text[ENTRY_COUNT] = {"compute", "send",   "recv",  "bucket", "tied",
                                             "total",   "update", "world", "loss"};
const char *const ring_text[RING_COUNT] = {"data",    "saved", "saved_w", "saved_iw", "stays",
                                           "stays_w", "in",    "out",     "grad_in",  "grad_out"};

int ring_slot(const Ring *ring, int micro, bool back)
{
    CHECK(ring->n > 0 && micro >= 0);
    if (ring->sides)
        return back;
    return ring->slot ? ring->slot[micro] : micro % ring->n;
}

static const Graph *class_of(const Program *program, const StageLink *link)
{
    return program->net->classes.at[program->net->chain.at[link->link].class];
}

/* ---- parameter groups
 * --------------------------------------------------------------------------------- */

static int stage_of_link(const Plan *plan, int link)
{
    return plan->holder[plan_chunk_of_link(plan, link)];
}

int chunk_stage(const Program *program, int chunk)
{
    return chunk < 0 || chunk >= program->chunks ? NONE : program->holder[chunk];
}

int chunk_of_stage(const Program *program, int chunk)
{
    if (chunk < 0 || chunk >= program->chunks)
        return NONE;
    int before = 0;
    for (int c = 0; c < chunk; c++)
        before += program->holder[c] == program->holder[chunk];
    return before;
}

int stage_find_link(const StageProgram *stage, int link)
{
    for (int i = 0; i < stage->links; i++)
        if (stage->link[i].link == link)
            return i;
    return NONE;
}

/* Does link a add in a row before link b does? Within a row backward runs the links downwards. */
static bool adds_before(const StageProgram *stage, int a, int b)
{
    int x = stage->chunk[stage->link[a].chunk].first_row,
        y = stage->chunk[stage->link[b].chunk].first_row;
    return x != y ? x < y : a > b;
}

bool link_opens(const StageProgram *stage, int link, int param)
{
    const StageLink *own = &stage->link[link];
    for (int i = 0; own->bucket[param] != NONE && i < stage->links; i++)
        for (int p = 0; p < stage->link[i].body->graph->params.n; p++)
            if (stage->link[i].bucket[p] == own->bucket[param] &&
                stage->link[i].member[p] == own->member[param] && adds_before(stage, i, link))
                return false;
    return true;
}

static int find_net_param(const Net *net, int link, int param, int *ret_use)
{
    for (int i = 0; i < net->params.n; i++)
        for (int use = 0; use < net->params.at[i].uses; use++)
            if (net->params.at[i].link[use] == link && net->params.at[i].use_param[use] == param) {
                *ret_use = use;
                return i;
            }
    BUG("parameter %d of link %d is not in the net", param, link);
}

/* What tells groups apart. */
typedef struct GroupKey {
    AtomSet sharded, partial;
    Homes homes;
    Memory state_home;
    bool far, far_gradients;
    int tied;
    double rate;
    int matrix;
    int64_t unit;
} GroupKey;

static bool same_group(const Group *group, const GroupKey *key)
{
    const Homes *homes = &key->homes;
    return group->sharded == key->sharded && group->partial == key->partial &&
           group->state_home == key->state_home && group->far == key->far &&
           group->far_gradients == key->far_gradients && group->tied_stage == key->tied &&
           group->rate == key->rate && group->matrix == key->matrix && group->unit == key->unit &&
           list_set(&group->share) == (homes->state & ~key->sharded) &&
           list_set(&group->gradient_share) == (homes->gradient & ~key->sharded) &&
           list_set(&group->weight_share) == (homes->weight & ~key->sharded) &&
           group->buffered == (homes->gradient != 0);
}

static Group *group_for(Program *program, StageProgram *stage, const GroupKey *key)
{
    for (int g = 0; g < stage->groups.n; g++)
        if (same_group(&stage->groups.at[g], key))
            return &stage->groups.at[g];
    Group *group = &vec_push(program->arena, &stage->groups);
    *group = (Group){.sharded = key->sharded,
                     .partial = key->partial,
                     .tied_stage = key->tied,
                     .rate = key->rate,
                     .matrix = key->matrix,
                     .unit = key->unit,
                     .state_home = key->state_home,
                     .far = key->far,
                     .far_gradients = key->far_gradients,
                     .buffered = key->homes.gradient != 0,
                     .master = NONE};
    group_cut(group, &key->homes);
    return group;
}

/* Two chunks of the stage use it: their rows lie apart, so it stays whole on the device. */
static bool between_chunks(const Program *program, const StageProgram *stage, const NetParam *param)
{
    int chunk = NONE;
    for (int use = 0; use < param->uses; use++) {
        int own = plan_chunk_of_link(program->plan, param->link[use]);
        if (program->holder[own] != stage->index)
            continue;
        if (chunk != NONE && chunk != own)
            return true;
        chunk = own;
    }
    return false;
}

static void add_members(Program *program, StageProgram *stage, int at)
{
    StageLink *link = &stage->link[at];
    const Graph *graph = class_of(program, link);
    const Memory *memory = program->plan->memory;
    for (int p = 0; p < graph->params.n; p++) {
        if (link->body->acc_copy[p] == NONE)
            continue;
        int use, id = find_net_param(program->net, link->link, p, &use);
        const NetParam *param = &program->net->params.at[id];
        int tied = NONE;
        if (param->uses == 2) {
            int other = stage_of_link(program->plan, param->link[1 - use]);
            if (other == stage->index && use == 1)
                continue; /* the first use of this stage owns the storage */
            if (other != stage->index)
                tied = other;
        }
        const Copy *acc = &link->body->copies.at[link->body->acc_copy[p]];
        GroupKey key = {.sharded = place_sharded(&acc->place),
                        .partial = acc->place.partial,
                        .homes = plan_param_homes(program->plan, param),
                        .tied = tied,
                        .rate = graph->params.at[p].rate};
        key.matrix = program_matrix(program, graph, p, &acc->place, &key.unit);
        key.state_home = home_memory(memory, &key.homes, KEPT_STATE);
        bool alone = !between_chunks(program, stage, param);
        key.far = alone && home_memory(memory, &key.homes, KEPT_WEIGHTS) != MEMORY_HBM;
        key.far_gradients = alone && key.matrix == NONE && tied == NONE &&
                            home_memory(memory, &key.homes, KEPT_GRADIENTS) != MEMORY_HBM;
        Group *group = group_for(program, stage, &key);
        vec_push(program->arena, &group->members) =
            (GroupMember){at, p, id, 0, acc->elements, graph->params.at[p].decay};
    }
}

/* Offsets of the members: link by link, every link's block padded so that any run of links divides
 * by the share. */
static void lay_members(Program *program, Group *group)
{
    int64_t grain = 16 * list_extent(&program->plan->mesh, &group->share), at = 0;
    for (int i = 0; i < group->members.n; i++) {
        GroupMember *member = &group->members.at[i];
        if (i > 0 && member->link != group->members.at[i - 1].link)
            at = (at + grain - 1) / grain * grain;
        member->offset = at;
        at += (member->elements + 15) / 16 * 16;
    }
    group->elements = (at + grain - 1) / grain * grain;
    group->share_elements = group->elements / list_extent(&program->plan->mesh, &group->share);
}

/* Cuts a group into buckets, from the last link (whose gradients are complete first) down. */
static void cut_buckets(Program *program, StageProgram *stage, int g)
{
    const Group *group = &stage->groups.at[g];
    int share = list_extent(&program->plan->mesh, &group->share);
    int64_t limit = program->plan->bucket_bytes / dtype_bytes(program->recipe->gradient),
            end = group->elements;
    for (int i = group->members.n - 1; i >= 0; i--) {
        const GroupMember *member = &group->members.at[i];
        int below = i == 0 ? NONE : group->members.at[i - 1].link;
        bool starts_chunk = i == 0 || stage->link[below].chunk != stage->link[member->link].chunk;
        if (below != member->link && (starts_chunk || end - member->offset >= limit)) {
            vec_push(program->arena, &stage->buckets) =
                (Bucket){.group = g,
                         .begin = member->offset,
                         .elements = end - member->offset,
                         .filled = end - member->offset,
                         .close_link = NONE,
                         .open_link = NONE,
                         .share_begin = member->offset / share,
                         .share_elements = (end - member->offset) / share,
                         .buffer = NONE,
                         .gradient = {NONE, NONE, NONE},
                         .fetch = NONE,
                         .between = NONE};
            end = member->offset;
        }
    }
}

static void make_groups(Program *program, StageProgram *stage, const MovePrice *price)
{
    for (int i = 0; i < stage->links; i++)
        add_members(program, stage, i);
    for (int g = 0; g < stage->groups.n; g++) {
        bool whole = stage->groups.at[g].matrix != NONE;
        if (whole)
            group_lay_matrices(program, stage, g);
        else
            lay_members(program, &stage->groups.at[g]);
        group_find_paths(program->arena, &program->plan->mesh, price, &stage->groups.at[g]);
        if (!whole)
            cut_buckets(program, stage, g);
    }
    stage_find_uses(program, stage);
}

int64_t bucket_block_begin(const Program *program, const Bucket *bucket, const AtomList *list,
                           int coordinate)
{
    const Mesh *mesh = &program->plan->mesh;
    return bucket->begin +
           bucket->elements / list_extent(mesh, list) * list_index(mesh, list, coordinate);
}

int64_t bucket_share_begin(const Program *program, const StageProgram *stage, const Bucket *bucket,
                           int coordinate)
{
    return bucket_block_begin(program, bucket, &stage->groups.at[bucket->group].share, coordinate);
}

/* ---- the sequence
 * ------------------------------------------------------------------------------------- */

typedef struct Event {
    int64_t time;
    int begins; /* ends come before starts */
    int stage, row;
} Event;

static int by_time(const void *a, const void *b)
{
    const Event *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    if (x->begins != y->begins)
        return x->begins - y->begins;
    if (x->stage != y->stage)
        return x->stage - y->stage;
    return x->row - y->row;
}

static void put_entry(Program *program, int stage, Entry entry)
{
    vec_push(program->arena, &program->stage[stage].table) = entry;
}

/* The last link of a bucket to be done, by the rows that are the last of their chunks: of a member
 * that two links add to, the later one. */
static int closing_link(const Program *program, const StageProgram *stage, const Bucket *bucket)
{
    const Group *group = &stage->groups.at[bucket->group];
    int close = NONE;
    for (int i = 0; i < group->members.n; i++) {
        const GroupMember *member = &group->members.at[i];
        const NetParam *param = &program->net->params.at[member->net_param];
        bool inside =
            member->offset >= bucket->begin && member->offset < bucket->begin + bucket->elements;
        for (int use = 0; inside && use < param->uses; use++) {
            int link = stage_find_link(stage, param->link[use]);
            if (link == NONE)
                continue;
            int row = stage->chunk[stage->link[link].chunk].last_row;
            int last = close == NONE ? -1 : stage->chunk[stage->link[close].chunk].last_row;
            if (row > last || (row == last && link < close))
                close = link;
        }
    }
    CHECK(close != NONE);
    return close;
}

/* A row's result enters the producer's list as a send and the consumer's as a receive at one moment
 * of the sequence: every list is a projection of one order, so no two ranks can wait for each other
 * in a circle. */
static void put_messages(Program *program, const Row *row)
{
    bool forward = row->part == PART_F;
    int next = forward ? row->chunk + 1 : row->chunk - 1;
    int from = chunk_stage(program, row->chunk), to = chunk_stage(program, next);
    if (row->part == PART_W || to == NONE || to == from)
        return;
    Entry entry = {.kind = ENTRY_SEND,
                   .part = row->part,
                   .chunk = chunk_of_stage(program, row->chunk),
                   .micro = row->micro,
                   .message = forward ? MSG_ACTIVATION : MSG_GRADIENT,
                   .peer = to};
    put_entry(program, from, entry);
    entry.kind = ENTRY_RECV;
    entry.chunk = chunk_of_stage(program, next);
    entry.peer = from;
    put_entry(program, to, entry);
}

static void close_buckets(Program *program)
{
    for (int s = 0; s < program->stages; s++) {
        const StageProgram *stage = &program->stage[s];
        for (int b = 0; b < stage->buckets.n; b++)
            stage->buckets.at[b].close_link = closing_link(program, stage, &stage->buckets.at[b]);
    }
}

static void put_step_end(Program *program)
{
    for (int stage = 0; stage < program->stages; stage++) {
        const StageProgram *sp = &program->stage[stage];
        for (int peer = 0; peer < program->stages; peer++) /* pairs of stages in one order */
            for (int g = 0; g < sp->groups.n; g++)
                if (sp->groups.at[g].tied_stage == peer)
                    put_entry(program, stage,
                              (Entry){.kind = ENTRY_TIED, .micro = NONE, .index = g, .peer = peer});
        put_entry(program, stage, (Entry){.kind = ENTRY_NORM, .micro = NONE});
        for (int b = 0; b < sp->buckets.n; b++)
            put_entry(program, stage, (Entry){.kind = ENTRY_UPDATE, .micro = NONE, .index = b});
    }
}

static bool fetches(const StageProgram *stage)
{
    bool any = false;
    for (int g = 0; g < stage->groups.n; g++)
        any = any || group_fetches(&stage->groups.at[g]);
    return any;
}

/* A row that turns the direction of the row before it, of the same chunk and step, begins where
 * that one ended; but not where weights for backward lie apart from those for forward. */
static void mark_resumed(Program *program)
{
    for (int s = 0; s < program->stages; s++) {
        const Entry *before = NULL;
        bool holds = fetches(&program->stage[s]) && program->stage[s].pairings.n == 0;
        for (int i = 0; i < program->stage[s].table.n; i++) {
            Entry *entry = &program->stage[s].table.at[i];
            if (entry->kind != ENTRY_COMPUTE)
                continue;
            entry->resumes = holds && before && before->chunk == entry->chunk &&
                             before->ahead == entry->ahead &&
                             (before->part == PART_F) != (entry->part == PART_F);
            before = entry;
        }
    }
}

/* Rows of a chunk so far. */
typedef struct Counts {
    int forwards, weights;
} Counts;

static void put_row(Program *program, const Schedule *schedule, const Event *event, Counts *all)
{
    const Row *row = &schedule->rows[event->stage].at[event->row];
    Counts *counts = &all[row->chunk];
    StageProgram *stage = &program->stage[chunk_stage(program, row->chunk)];
    int own = chunk_of_stage(program, row->chunk), last = program->plan->micro_batches - 1;
    bool forward = row->part == PART_F, adds = row->part == PART_B || row->part == PART_W;
    int nth = forward ? counts->forwards++ : adds ? counts->weights++ : NONE;
    if (adds && nth == 0)
        stage->chunk[own].first_row = stage->table.n;
    if (adds && nth == last)
        stage->chunk[own].last_row = stage->table.n;
    put_entry(program, stage->index,
              (Entry){.kind = ENTRY_COMPUTE,
                      .part = row->part,
                      .chunk = own,
                      .micro = row->micro,
                      .first = nth == 0,
                      .last = nth == last,
                      .braids = schedule_pair(schedule, event->stage, event->row),
                      .braided =
                          event->row > 0 && schedule_pair(schedule, event->stage, event->row - 1)});
}

static void make_tables(Program *program, const Schedule *schedule, const RowTimes *times)
{
    Arena *scratch = arena_new("sequence");
    RowSpan **span;
    schedule_simulate(scratch, schedule, times, &span);
    VEC(Event) events = {0};
    for (int stage = 0; stage < program->stages; stage++)
        for (int i = 0; i < schedule->rows[stage].n; i++) {
            vec_push(scratch, &events) = (Event){span[stage][i].start, 1, stage, i};
            vec_push(scratch, &events) = (Event){span[stage][i].end, 0, stage, i};
        }
    qsort(events.at, (size_t)events.n, sizeof events.at[0], by_time);
    Counts *counts = ARENA_ARRAY(scratch, Counts, program->chunks);
    for (int e = 0; e < events.n; e++) {
        const Event *event = &events.at[e];
        const Row *row = &schedule->rows[event->stage].at[event->row];
        if (event->begins)
            put_row(program, schedule, event, counts);
        else
            put_messages(program, row);
    }
    put_step_end(program);
    arena_free(scratch);
}

/* ---- the optimizer, as graph
 * --------------------------------------------------------------------------- */

static void make_optimizer(Program *program)
{
    const Job *job = &program->plan->job;
    AdamW adamw = {job->beta1, job->beta2, job->eps, job->decay, job->clip};
    Optimizer optimizer = optimizer_make(program->arena, &adamw);
    program->optimizer = optimizer.graph;
    program->sumsq = optimizer.norm2;
    program->clip = optimizer.clip;
    program->adamw = optimizer.step;
    program->sign = optimizer.sign;
}

static void make_bodies(Program *program, const MovePrice *price, bool split, Passes *passes)
{
    const Net *net = program->net;
    const Plan *plan = program->plan;
    program->body = ARENA_ARRAY(program->arena, Body *, net->classes.n);
    program->bodies = net->classes.n;
    for (int c = 0; c < net->classes.n; c++)
        program->body[c] =
            body_lower_passes(program->arena, net, net->classes.at[c], &plan->class[c],
                              &plan -> mesh, program -> recipe, price, split, passes);
}

static void add_chunk(Program *program, StageProgram *stage, int index)
{
    const Plan *plan = program->plan;
    Chunk *chunk = &stage->chunk[stage->chunks];
    *chunk = (Chunk){.index = index, .begin = stage->links};
    for (int link = plan->first_link[index]; link < plan->first_link[index + 1]; link++)
        stage->link[stage->links++] =
            (StageLink){.link = link,
                        .chunk = stage->chunks,
                        .body = program->body[program->net->chain.at[link].class]};
    chunk->end = stage->links;
    stage->chunks++;
}

static void make_stages(Program *program, const MovePrice *price)
{
    const Plan *plan = program->plan;
    program->stage = ARENA_ARRAY(program->arena, StageProgram, plan->stages);
    for (int s = 0; s < plan->stages; s++) {
        StageProgram *stage = &program->stage[s];
        stage->index = s;
        int links = 0, chunks = 0;
        for (int c = 0; c < plan->chunks; c++)
            if (plan->holder[c] == s) {
                links += plan->first_link[c + 1] - plan->first_link[c];
                chunks++;
            }
        stage->link = ARENA_ARRAY(program->arena, StageLink, links + 1);
        stage->chunk = ARENA_ARRAY(program->arena, Chunk, chunks);
        for (int c = 0; c < plan->chunks; c++)
            if (plan->holder[c] == s)
                add_chunk(program, stage, c);
        spill_number(program, stage);
        make_groups(program, stage, price);
    }
}

static void dump_steps(const Program *program, Str *dump)
{
    for (int s = 0; s < program->stages; s++) {
        Arena *scratch = arena_new("dump");
        Walk *walk = walk_begin(scratch, program, s, 0, 1);
        str_putf(dump, "stage %d, coordinate 0\n", s);
        for (const Step *step; (step = walk_next(walk)) != NULL;)
            step_put(dump, program, step);
        arena_free(scratch);
    }
}

/* The lengths say something of every part that the schedule has. */
static bool has_times(const Schedule *schedule, const RowTimes *times)
{
    bool halves = times->time[PART_I] && times->time[PART_W];
    return times->time[PART_F] && (halves || !schedule_splits(schedule)) &&
           (halves || times->time[PART_B]);
}

Program *program_build(Arena *arena, const Plan *plan, const Net *net, const MovePrice *price,
                       const RowTimes *times)
{
    return program_build_passes(arena, plan, net, price, times, NULL);
}

Program *program_build_passes(Arena *arena, const Plan *plan, const Net *net,
                              const MovePrice *price, const RowTimes *times, Passes *passes)
{
    Program *program = ARENA_NEW(arena, Program);
    *program = (Program){.arena = arena,
                         .plan = plan,
                         .net = net,
                         .recipe = recipe_by_name(plan->job.recipe),
                         .stages = plan->stages,
                         .chunks = plan->chunks,
                         .holder = plan->holder,
                         .slack = 1};
    CHECK(program->recipe != NULL);
    MovePrice own_price = link_price(plan->cluster, program->recipe);
    RowTimes own_times = {.hop = plan->hop_ns, .pair = plan->pair_ns};
    for (int part = 0; part < PART_COUNT; part++)
        own_times.time[part] = plan->row_ns[part];
    const Schedule *schedule = plan_rows(arena, diag_new(arena), plan);
    CHECK(schedule != NULL);
    bool known = has_times(schedule, &own_times);
    price = price ? price : &own_price;
    times = times || !known ? times : &own_times;
    Str *dump = pass_dump(passes, PASS_GRAPH, net->name);
    if (dump)
        net_put_text(dump, net);
    if (!pass_begin(passes, PASS_PLACE))
        return NULL;
    make_optimizer(program);
    make_bodies(program, price, schedule_splits(schedule), passes);
    if (!pass_begin(passes, PASS_SCHEDULE))
        return NULL;
    make_stages(program, price);
    program_add_steps(program);
    program->flows = schedule->delay != NULL;
    if (program->flows)
        flow_tables(program, schedule, times);
    else
        make_tables(program, schedule, times);
    program_add_pairings(program);
    mark_resumed(program);
    spill_mark_stays(program);
    flow_put_evaluations(program);
    close_buckets(program);
    dump = pass_dump(passes, PASS_SCHEDULE, "tables");
    if (dump)
        program_put_tables(dump, program);
    if (!pass_begin(passes, PASS_LAYOUT))
        return NULL;
    for (int s = 0; s < plan->stages; s++)
        stage_layout(program, &program->stage[s]);
    dump = pass_dump(passes, PASS_LAYOUT, "stages");
    if (dump)
        program_put_text(dump, program);
    if (!pass_begin(passes, PASS_SYNC))
        return NULL;
    dump = pass_dump(passes, PASS_SYNC, "steps");
    if (dump)
        dump_steps(program, dump);
    return program;
}
