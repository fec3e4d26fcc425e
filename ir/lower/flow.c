/* flow.c - steps that flow into each other: numbers and versions, and one turn of the steady state,
 * projected to the stages. */
#include "ir/lower/flow.h"

#include <stdlib.h>

int micro_number(const Program *program, int step, int micro)
{
    return program->flows ? step * program->plan->micro_batches + micro : micro;
}

int stage_version(const StageProgram *stage, int step)
{
    return step > stage->delay ? step - stage->delay : 0;
}

int64_t version_offset(const StageProgram *stage, int version)
{
    return stage->versions.stride * ring_slot(&stage->versions, version, false);
}

int loss_in_pair(int number)
{
    return number == 0 ? 0 : 1 + number;
}

int64_t loss_address(const Program *program, const StageProgram *stage, int number)
{
    return stage->scalars + 64 * SCALAR_LOSS + number * dtype_bytes(program->recipe->gradient);
}

int64_t evaluation_address(const Program *program, const StageProgram *stage)
{
    return loss_address(program, stage, 1 + MOST_AHEAD);
}

const Entry *stage_entry(const StageProgram *stage, int entry, bool evaluates)
{
    return evaluates ? &stage->evaluation.at[entry] : &stage->table.at[entry];
}

int64_t pair_address(const StageProgram *stage, int step)
{
    return stage->pair.base + stage->pair.stride * ring_slot(&stage->pair, step, false);
}

int program_rounds(const Program *program)
{
    int most = 0;
    for (int s = 0; s < program->stages; s++)
        most = program->stage[s].delay > most ? program->stage[s].delay : most;
    return 2 + 2 * most;
}

/* ---- the tables ---- */

/* What comes first of what happens at one time: results before what may start with them. */
typedef enum { MOMENT_MESSAGE, MOMENT_END, MOMENT_WORLD, MOMENT_START } MomentKind;

/* An entry and when it is due in turn 0 of the stage that has it. */
typedef struct Moment {
    int64_t time;
    MomentKind kind;
    int stage, row; /* of the schedule: the row that it is, or comes of; ends in their own order */
    Entry entry;
} Moment;

typedef struct Steady {
    Program *program;
    const Schedule *schedule;
    Arena *scratch;
    RowSpan **span;
    int64_t period;
    VEC(Moment) * moments; /* per stage */
} Steady;

static int by_time(const void *a, const void *b)
{
    const Moment *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->stage != y->stage)
        return x->stage - y->stage;
    return x->row - y->row;
}

/* The entry is of step `entry.ahead` and due at `time`. A turn is what lies behind the start of the
 * stage's first row, up to and with the moment when it starts again. */
static void put_moment(Steady *steady, int stage, Moment moment)
{
    if (moment.kind != MOMENT_START) {
        int64_t since = moment.time - steady->span[stage][0].start;
        int64_t turn =
            since > 0 ? (since - 1) / steady->period : (since - steady->period) / steady->period;
        moment.time -= turn * steady->period;
        moment.entry.ahead -= (int)turn;
    }
    vec_push(steady->scratch, &steady->moments[stage]) = moment;
}

/* A result that goes to another stage is a send here and a receive there, at one moment. */
static void put_messages(Steady *steady, int stage, int at)
{
    const Program *program = steady->program;
    const Row *row = &steady->schedule->rows[stage].at[at];
    bool forward = row->part == PART_F;
    int next = forward ? row->chunk + 1 : row->chunk - 1, to = chunk_stage(program, next);
    if (row->part == PART_W || to == NONE || to == stage)
        return;
    Moment moment = {steady->span[stage][at].end,
                     MOMENT_MESSAGE,
                     stage,
                     at,
                     {.kind = ENTRY_SEND,
                      .part = row->part,
                      .chunk = chunk_of_stage(program, row->chunk),
                      .micro = row->micro,
                      .message = forward ? MSG_ACTIVATION : MSG_GRADIENT,
                      .peer = to,
                      .ahead = row->ahead}};
    put_moment(steady, stage, moment);
    moment.entry.kind = ENTRY_RECV;
    moment.entry.chunk = chunk_of_stage(program, next);
    moment.entry.peer = stage;
    put_moment(steady, to, moment);
}

static void put_row(Steady *steady, int stage, int at)
{
    const Row *row = &steady->schedule->rows[stage].at[at];
    Entry entry = {.kind = ENTRY_COMPUTE,
                   .part = row->part,
                   .chunk = chunk_of_stage(steady->program, row->chunk),
                   .micro = row->micro,
                   .ahead = row->ahead};
    put_moment(steady, stage,
               (Moment){steady->span[stage][at].start, MOMENT_START, stage, at, entry});
    put_messages(steady, stage, at);
}

static int64_t stage_end(const Steady *steady, int stage)
{
    return steady->span[stage][steady->schedule->rows[stage].n - 1].end;
}

/* Behind the last row: this rank's share of loss and norm, and the updates. The world's sum comes
 * when the last stage has its share; nobody waits for it. */
static void put_ends(Steady *steady)
{
    int64_t all = 0;
    for (int s = 0; s < steady->program->stages; s++)
        all = stage_end(steady, s) > all ? stage_end(steady, s) : all;
    for (int s = 0; s < steady->program->stages; s++) {
        const StageProgram *stage = &steady->program->stage[s];
        int n = 0;
        Moment end = {
            stage_end(steady, s), MOMENT_END, s, n++, {.kind = ENTRY_NORM, .micro = NONE}};
        put_moment(steady, s, end);
        for (int b = 0; b < stage->buckets.n; b++) {
            end.row = n++;
            end.entry = (Entry){.kind = ENTRY_UPDATE, .micro = NONE, .index = b};
            put_moment(steady, s, end);
        }
        put_moment(steady, s,
                   (Moment){all, MOMENT_WORLD, s, 0, {.kind = ENTRY_WORLD, .micro = NONE}});
    }
}

static bool adds_up(const Entry *entry, bool forward)
{
    return forward ? entry->part == PART_F : entry->part == PART_B || entry->part == PART_W;
}

/* Which rows of a chunk are the first and the last of a step that add to what they add to: the
 * loss, or gradients. */
static void mark_ends(StageProgram *stage, int chunk, bool forward)
{
    int first = NONE, last = NONE;
    Entry *entry = stage->table.at;
    for (int i = 0; i < stage->table.n; i++) {
        if (entry[i].kind != ENTRY_COMPUTE || entry[i].chunk != chunk ||
            !adds_up(&entry[i], forward))
            continue;
        if (first == NONE || entry[i].ahead > entry[first].ahead)
            first = i;
        if (last == NONE || entry[i].ahead <= entry[last].ahead)
            last = i;
    }
    CHECK(first != NONE);
    entry[first].first = entry[last].last = true;
    if (!forward) {
        stage->chunk[chunk].first_row = first;
        stage->chunk[chunk].last_row = last;
    }
}

void flow_tables(Program *program, const Schedule *schedule, const RowTimes *times)
{
    Arena *scratch = arena_new("flow");
    Steady steady = {.program = program, .schedule = schedule, .scratch = scratch};
    steady.period = schedule_steady(scratch, schedule, times, NULL, &steady.span);
    steady.moments = arena_array(scratch, (size_t)program->stages, sizeof *steady.moments);
    for (int s = 0; s < program->stages; s++)
        for (int i = 0; i < schedule->rows[s].n; i++)
            put_row(&steady, s, i);
    put_ends(&steady);
    for (int s = 0; s < program->stages; s++) {
        StageProgram *stage = &program->stage[s];
        qsort(steady.moments[s].at, (size_t)steady.moments[s].n, sizeof(Moment), by_time);
        stage->delay = schedule->delay[s];
        for (int i = 0; i < steady.moments[s].n; i++) {
            const Entry *entry = &steady.moments[s].at[i].entry;
            vec_push(program->arena, &stage->table) = *entry;
            stage->ahead = entry->ahead > stage->ahead ? entry->ahead : stage->ahead;
            stage->lag = -entry->ahead > stage->lag ? -entry->ahead : stage->lag;
        }
        for (int c = 0; c < stage->chunks; c++) {
            mark_ends(stage, c, true);
            mark_ends(stage, c, false);
        }
    }
    arena_free(scratch);
}

void flow_put_evaluations(Program *program)
{
    for (int s = 0; s < program->stages; s++) {
        StageProgram *stage = &program->stage[s];
        for (int turn = -stage->ahead; turn <= stage->lag; turn++)
            for (int i = 0; i < stage->table.n; i++) {
                Entry entry = stage->table.at[i];
                bool row = entry.kind == ENTRY_COMPUTE && entry.part == PART_F,
                     message = (entry.kind == ENTRY_SEND || entry.kind == ENTRY_RECV) &&
                               entry.message == MSG_ACTIVATION;
                if (turn + entry.ahead != 0 || (!row && !message))
                    continue;
                entry.resumes = entry.braids = false;
                entry.stays = row ? stage->chunk[entry.chunk].end : 0; /* nobody reads them */
                entry.ahead = 0;
                vec_push(program->arena, &stage->evaluation) = entry;
            }
        vec_push(program->arena, &stage->evaluation) = (Entry){.kind = ENTRY_LOSS, .micro = NONE};
    }
}
