/* program.c - a plan becomes a Program: stages, their parameter groups and buckets, and the tables
 * of one global sequence. */
#include "ir/lower/program.h"

#include <stdlib.h>

#include "ir/lower/layout.h"
#include "ir/lower/link.h"
#include "ir/lower/walk.h"
#include "ir/optimizer.h"

const char *const entry_text[ENTRY_COUNT] = {"compute", "send",  "recv",  "bucket",
                                             "tied",    "total", "update"};
const char *const ring_text[RING_COUNT] = {"data", "saved", "in", "out", "grad_in", "grad_out"};

static const Graph *class_of(const Program *program, const StageLink *link)
{
    return program->net->classes.at[program->net->chain.at[link->link].class];
}

/* ---- parameter groups
 * --------------------------------------------------------------------------------- */

static int stage_of_link(const Plan *plan, int link)
{
    for (int stage = 0; stage < plan->stages; stage++)
        if (link < plan->first_link[stage + 1])
            return stage;
    BUG("link %d lies beyond the last stage", link);
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

/* The atoms of a set as a list, slowest link major. */
static AtomList list_of(AtomSet atoms)
{
    AtomList list = {0};
    for (int a = MAX_ATOMS - 1; a >= 0; a--)
        if (atoms >> a & 1) {
            CHECK(list.n < MAX_PER_AXIS);
            list.at[list.n++] = (int8_t)a;
        }
    return list;
}

/* Flat buckets move in place, by ranges of axis e: reduced, cut and gathered, and nothing else. */
static int64_t flat_cost(const void *context, const Mesh *mesh, const Move *move, int64_t bytes)
{
    const MovePrice *price = context;
    bool cuts = move->kind == MOVE_REDUCE_SCATTER || move->kind == MOVE_SLICE;
    if (move->kind == MOVE_ALL_REDUCE || (cuts && move->to == 1) ||
        (move->kind == MOVE_ALL_GATHER && move->from == 1))
        return price->cost(price->context, mesh, move, bytes);
    return INT64_MAX / (2 * MAX_MOVES);
}

/* The flat value [c, e] of a group, as a net of its own for the path search. */
static void find_paths(Arena *arena, const Program *program, Group *group, const MovePrice *price)
{
    const Mesh *mesh = &program->plan->mesh;
    AtomList differ = list_of(group->sharded);
    Net *net = ARENA_NEW(arena, Net);
    net->arena = arena;
    net->name = "flat";
    DimId dim[2] = {net_add_dim(net, "c", DIM_OTHER, list_extent(mesh, &differ)),
                    net_add_dim(net, "e", DIM_OTHER, group->elements)};
    Graph *graph = net_add_class(net, "flat");
    ValueId flat = graph_value(graph, VALUE_INPUT, "flat", 2, dim);
    const Value *value = &graph->values.at[flat];
    Placement from = place_replicate(), to = from, home = from;
    from.shard[0] = to.shard[0] = home.shard[0] = differ;
    from.partial = group->partial;
    from.monoid = group->partial ? MONOID_SUM : MONOID_NONE;
    to.shard[1] = group->share;
    MovePrice flat_price = {flat_cost, price, price->element_bytes};
    PathTable *paths = path_table_new(arena, mesh, net, &flat_price);
    if (!path_find(paths, value, &from, &to, &group->reduce) ||
        !path_find(paths, value, &to, &home, &group->gather))
        BUG("no path for the gradients of a group");
}

static bool same_group(const Group *group, AtomSet sharded, AtomSet partial, int tied, double rate)
{
    return group->sharded == sharded && group->partial == partial && group->tied_stage == tied &&
           group->rate == rate;
}

static Group *group_for(Program *program, StageProgram *stage, AtomSet sharded, AtomSet partial,
                        int tied, double rate)
{
    for (int g = 0; g < stage->groups.n; g++)
        if (same_group(&stage->groups.at[g], sharded, partial, tied, rate))
            return &stage->groups.at[g];
    Group *group = &vec_push(program->arena, &stage->groups);
    *group = (Group){
        .sharded = sharded, .partial = partial, .tied_stage = tied, .rate = rate, .master = NONE};
    /* What every rank holds whole is cut first, for nothing; then one scatter cuts the rest. */
    AtomSet share = (AtomSet)(program->plan->state_atoms & ~sharded);
    AtomList scattered = list_of((AtomSet)(share & partial));
    group->share = list_of((AtomSet)(share & ~partial));
    for (int i = 0; i < scattered.n; i++)
        group->share.at[group->share.n++] = scattered.at[i];
    return group;
}

static void add_members(Program *program, StageProgram *stage, int at)
{
    StageLink *link = &stage->link[at];
    const Graph *graph = class_of(program, link);
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
        Group *group = group_for(program, stage, place_sharded(&acc->place), acc->place.partial,
                                 tied, graph->params.at[p].rate);
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
        bool starts_link = i == 0 || group->members.at[i - 1].link != member->link;
        if (starts_link && (i == 0 || end - member->offset >= limit)) {
            vec_push(program->arena, &stage->buckets) = (Bucket){g,
                                                                 member->offset,
                                                                 end - member->offset,
                                                                 member->link,
                                                                 member->offset / share,
                                                                 (end - member->offset) / share};
            end = member->offset;
        }
    }
}

static void make_groups(Program *program, StageProgram *stage, const MovePrice *price)
{
    for (int i = 0; i < stage->links; i++)
        add_members(program, stage, i);
    for (int g = 0; g < stage->groups.n; g++) {
        lay_members(program, &stage->groups.at[g]);
        find_paths(program->arena, program, &stage->groups.at[g], price);
        cut_buckets(program, stage, g);
    }
}

int64_t bucket_share_begin(const Program *program, const StageProgram *stage, const Bucket *bucket,
                           int coordinate)
{
    const Group *group = &stage->groups.at[bucket->group];
    return bucket->begin +
           bucket->share_elements * list_index(&program->plan->mesh, &group->share, coordinate);
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

/* A row's result enters the producer's list as a send and the consumer's as a receive at one moment
 * of the sequence: every list is a projection of one order, so no two ranks can wait for each other
 * in a circle. */
static void put_messages(Program *program, const Row *row)
{
    int to = row->part == PART_F ? row->stage + 1 : row->stage - 1;
    if (to < 0 || to >= program->stages)
        return;
    MsgKind message = row->part == PART_F ? MSG_ACTIVATION : MSG_GRADIENT;
    put_entry(program, row->stage,
              (Entry){.kind = ENTRY_SEND,
                      .part = row->part,
                      .micro = row->micro,
                      .message = message,
                      .peer = to});
    put_entry(program, to,
              (Entry){.kind = ENTRY_RECV,
                      .part = row->part,
                      .micro = row->micro,
                      .message = message,
                      .peer = row->stage});
}

static void put_step_end(Program *program)
{
    for (int stage = 0; stage < program->stages; stage++) {
        const StageProgram *sp = &program->stage[stage];
        for (int g = 0; g < sp->groups.n; g++)
            if (sp->groups.at[g].tied_stage != NONE)
                put_entry(program, stage,
                          (Entry){.kind = ENTRY_TIED,
                                  .micro = NONE,
                                  .index = g,
                                  .peer = sp->groups.at[g].tied_stage});
        put_entry(program, stage, (Entry){.kind = ENTRY_NORM, .micro = NONE});
        for (int b = 0; b < sp->buckets.n; b++)
            put_entry(program, stage, (Entry){.kind = ENTRY_UPDATE, .micro = NONE, .index = b});
    }
}

static void make_tables(Program *program, const RowTimes *times)
{
    Arena *scratch = arena_new("sequence");
    Schedule *schedule = schedule_make(scratch, program->plan->schedule, program->stages,
                                       program->plan->micro_batches);
    RowSpan **span;
    schedule_simulate(scratch, schedule, times, &span);
    VEC(Event) events = {0};
    for (int stage = 0; stage < program->stages; stage++)
        for (int i = 0; i < schedule->rows[stage].n; i++) {
            vec_push(scratch, &events) = (Event){span[stage][i].start, 1, stage, i};
            vec_push(scratch, &events) = (Event){span[stage][i].end, 0, stage, i};
        }
    qsort(events.at, (size_t)events.n, sizeof events.at[0], by_time);
    int *forwards = ARENA_ARRAY(scratch, int, program->stages),
        *backwards = ARENA_ARRAY(scratch, int, program->stages);
    for (int e = 0; e < events.n; e++) {
        const Event *event = &events.at[e];
        const Row *row = &schedule->rows[event->stage].at[event->row];
        if (!event->begins) {
            put_messages(program, row);
            continue;
        }
        int nth = row->part == PART_F ? forwards[event->stage]++ : backwards[event->stage]++;
        put_entry(program, event->stage,
                  (Entry){.kind = ENTRY_COMPUTE,
                          .part = row->part,
                          .micro = row->micro,
                          .first = nth == 0,
                          .last = nth == schedule->micros - 1});
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

static void make_bodies(Program *program, const MovePrice *price, Passes *passes)
{
    const Net *net = program->net;
    const Plan *plan = program->plan;
    program->body = ARENA_ARRAY(program->arena, Body *, net->classes.n);
    for (int c = 0; c < net->classes.n; c++)
        program->body[c] =
            body_lower_passes(program->arena, net, net->classes.at[c], &plan->class[c],
                              &plan -> mesh, program -> recipe, price, passes);
}

static void make_stages(Program *program, const MovePrice *price)
{
    const Plan *plan = program->plan;
    program->stage = ARENA_ARRAY(program->arena, StageProgram, plan->stages);
    for (int s = 0; s < plan->stages; s++) {
        StageProgram *stage = &program->stage[s];
        stage->index = s;
        stage->links = plan->first_link[s + 1] - plan->first_link[s];
        stage->link = ARENA_ARRAY(program->arena, StageLink, stage->links + 1);
        for (int i = 0; i < stage->links; i++) {
            int link = plan->first_link[s] + i;
            stage->link[i] = (StageLink){.link = link,
                                         .body = program->body[program->net->chain.at[link].class]};
        }
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
                         .slack = 1};
    CHECK(program->recipe != NULL);
    MovePrice own_price = link_price(plan->cluster, program->recipe);
    RowTimes own_times = {.time = {[PART_F] = plan->row_ns[0], [PART_B] = plan->row_ns[1]},
                          .hop = plan->hop_ns};
    price = price ? price : &own_price;
    times = times || !plan->row_ns[0] ? times : &own_times;
    Str *dump = pass_dump(passes, PASS_GRAPH, net->name);
    if (dump)
        net_put_text(dump, net);
    if (!pass_begin(passes, PASS_PLACE))
        return NULL;
    make_optimizer(program);
    make_bodies(program, price, passes);
    if (!pass_begin(passes, PASS_SCHEDULE))
        return NULL;
    make_stages(program, price);
    make_tables(program, times);
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
