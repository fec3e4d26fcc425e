/* check.c - the static proof: walks every rank and hands its trace to the parts. */
#include "ir/lower/check.h"

#include <string.h>

#include "ir/base/num.h"
#include "ir/lower/check_in.h"

/* All ranks are walked in full while this many Steps suffice for it. */
enum { FULL_STEPS = 100000 };

bool check_fault(Check *check, const char *format, ...)
{
    check->report->faults++;
    va_list args;
    va_start(args, format);
    const char *text = arena_vprintf(check->arena, format, args);
    va_end(args);
    return diag_error(check->diag, NO_SPAN, "%s", text);
}

/* ---- traces ---- */

bool step_is_collective(const TraceStep *step)
{
    return step->kind == STEP_MOVE && step->move->kind <= MOVE_PERMUTE;
}

bool step_crosses(const TraceStep *step)
{
    return step->kind == STEP_SEND || step->kind == STEP_RECV || step->kind == STEP_TIED ||
           step->kind == STEP_WORLD;
}

static void put_step(Arena *arena, Trace *trace, const Step *step)
{
    vec_push(arena, &trace->steps) = (TraceStep){
        step->kind,     step->stream,      step->seq,      step->round,    step->turn,
        step->entry,    step->link,        step->micro,    step->bucket,   step->peer,
        step->message,  step->boundary,    step->first,    step->decay,    step->body,
        step->inst,     step->node,        step->move,     step->elements, step->from_element,
        step->count,    trace->operands.n, step->operands, trace->waits.n, step->waits,
        step->evaluates};
    for (int k = 0; k < step->operands; k++)
        vec_push(arena, &trace->operands) = step->operand[k];
    for (int k = 0; k < step->waits; k++)
        vec_push(arena, &trace->waits) = step->wait[k];
}

Trace *trace_take(Check *check, Arena *arena, const Program *program, int stage, int coordinate,
                  bool whole)
{
    Trace *trace = ARENA_NEW(arena, Trace);
    *trace = (Trace){.program = program,
                     .stage = &program->stage[stage],
                     .coordinate = coordinate,
                     .rounds = check->rounds,
                     .whole = whole};
    Arena *scratch = check->walk;
    arena_reset(scratch);
    Walk *walk = (check->evaluates ? walk_begin_evaluating : walk_begin)(scratch, program, stage,
                                                                         coordinate, check->rounds);
    Step *changed = check->tap ? ARENA_NEW(scratch, Step) : NULL;
    for (const Step *step; (step = walk_next(walk)) != NULL;) {
        if (check->tap) {
            *changed = *step;
            if (!check->tap->step(check->tap->context, changed))
                continue;
            step = changed;
        }
        put_step(arena, trace, step);
    }
    return trace;
}

static const char *what_of(const TraceStep *step)
{
    if (step->move)
        return move_text[step->move->kind];
    if (step->node)
        return step->node->name;
    if (step->inst && step->inst->kind == INST_KERNEL)
        return step->body->graph->nodes.at[step->inst->node[step->inst->nodes - 1]].name;
    return step_text[step->kind];
}

int trace_rank(const Trace *trace)
{
    return trace->stage->index * mesh_ranks(&trace->program->plan->mesh) + trace->coordinate;
}

const char *trace_name(Arena *arena, const Trace *trace, const TraceStep *step)
{
    Str text = str_new(arena);
    str_putf(&text, "rank %d (stage %d) %s#%lld %s", trace_rank(trace), trace->stage->index,
             stream_text[step->stream], (long long)step->seq, what_of(step));
    if (step->body && step->link != NONE)
        str_putf(&text, ", %s (link %d)", step->body->graph->name,
                 trace->stage->link[step->link].link);
    if (step->bucket != NONE)
        str_putf(&text, ", bucket %d", step->bucket);
    if (step->micro != NONE)
        str_putf(&text, ", micro-batch %d", step->micro);
    str_putf(&text, ", step %d", step->round);
    return text.at;
}

/* ---- the rows of one micro-batch ---- */

static bool is_kept(const Entry *entry)
{
    return entry->micro == NONE || entry->micro == 0;
}

/* The same Program with one micro-batch only: every Step that a coordinate changes is in it, and
 * the rows it keeps are first and last at once. */
static Program *one_micro(Arena *arena, const Program *program)
{
    Program *small = ARENA_NEW(arena, Program);
    *small = *program;
    small->stage = ARENA_ARRAY(arena, StageProgram, program->stages);
    for (int s = 0; s < program->stages; s++) {
        StageProgram *stage = &small->stage[s];
        *stage = program->stage[s];
        stage->table.at = NULL;
        stage->table.n = stage->table.cap = 0;
        for (int i = 0; i < program->stage[s].table.n; i++) {
            Entry entry = program->stage[s].table.at[i];
            if (!is_kept(&entry))
                continue;
            entry.first = entry.last = entry.kind == ENTRY_COMPUTE && entry.part != PART_I;
            entry.braids = entry.braided = false; /* one micro-batch runs beside none */
            vec_push(arena, &stage->table) = entry;
        }
    }
    return small;
}

/* ---- the run ---- */

static void count(Check *check, const Trace *trace)
{
    check->report->steps += trace->steps.n;
    check->report->events += trace->waits.n;
    check->report->operands += trace->operands.n;
}

static bool check_coordinates(Check *check, const Program *small, Owners *owners, const Trace *zero,
                              const RegionList *regions)
{
    int ranks = mesh_ranks(&check->program->plan->mesh), s = zero->stage->index;
    bool full = (int64_t)zero->steps.n * ranks <= FULL_STEPS, good = true;
    check->report->full = full ? ranks : 1;
    Arena *first_arena = arena_new("first");
    const Trace *first = zero;
    if (!full && ranks > 1)
        first = trace_take(check, first_arena, small, s, 0, false);
    Absences absences = {0};
    Arena *scratch = arena_new("trace");
    int c = 1;
    for (; c < ranks && good; c++) {
        arena_reset(scratch);
        const Trace *trace = trace_take(check, scratch, full ? check->program : small, s, c, full);
        count(check, trace);
        good &= check_same_communication(check, first, trace, &absences);
        good &= owners_add(check, owners, trace);
        good &= check_bytes(check, trace, regions, NULL);
    }
    if (c == ranks) /* all were asked */
        good &= check_absences(check, first, &absences);
    arena_free(scratch);
    arena_free(first_arena);
    return good;
}

/* All stages together repeat after the common multiple of their periods. */
static void add_period(Check *check, const Trace *trace, const Period *period)
{
    CheckReport *report = check->report;
    bool first = trace->stage->index == 0;
    if (period->micros == 0 || (!first && report->period == 0)) {
        report->period = report->periodic_from = 0;
        return;
    }
    int micro = trace->stage->table.at[period->to].micro + 1;
    report->period = first ? period->micros : (int)num_multiple(report->period, period->micros);
    report->periodic_from = micro > report->periodic_from ? micro : report->periodic_from;
}

static bool check_stage(Check *check, const Program *small, Owners *owners, int s,
                        CrossingList *ret_crossings)
{
    const StageProgram *stage = &check->program->stage[s];
    Arena *scratch = arena_new("stage");
    RegionList regions = regions_of(scratch, check->program, stage);
    const Trace *trace = trace_take(check, scratch, check->program, s, 0, true);
    count(check, trace);
    take_crossings(check->arena, trace, ret_crossings);
    bool good = check_groups(check, trace);
    good &= owners_add(check, owners, trace);
    Period period = {0};
    good &= check_bytes(check, trace, &regions, &period);
    add_period(check, trace, &period);
    if (good) /* else they would say the same once more */
        good &= check_coordinates(check, small, owners, trace, &regions);
    arena_free(scratch);
    return good;
}

static void fill_report(Check *check)
{
    const Program *program = check->program;
    CheckReport *report = check->report;
    report->stages = program->stages;
    report->coordinates = mesh_ranks(&program->plan->mesh);
    for (int s = 0; s < program->stages; s++)
        if (program->stage[s].arena_bytes > report->arena_bytes)
            report->arena_bytes = program->stage[s].arena_bytes;
}

static bool check_all(Check *check)
{
    const Program *program = check->program;
    bool good = check_chain(check);
    for (int c = 0; c < program->bodies; c++)
        good &= check_body(check, program->body[c]);
    for (int s = 0; s < program->stages; s++)
        good &= check_layout(check, &program->stage[s]);
    if (!good)
        return false; /* the walk relies on these */
    const Program *small = one_micro(check->arena, program);
    Owners *owners = owners_new(check);
    CrossingList *crossings = ARENA_ARRAY(check->arena, CrossingList, program->stages);
    for (int s = 0; s < program->stages; s++)
        good &= check_stage(check, small, owners, s, &crossings[s]);
    if (good)
        good = owners_check(check, owners);
    if (!check_messages(check, crossings))
        return false;
    return check_deadlock(check, crossings) && good;
}

static Check check_begin(Arena *arena, const Program *program, int optimizer_steps,
                         const CheckTap *tap, Diag *diag, CheckReport *ret)
{
    *ret = (CheckReport){0};
    return (Check){arena, program,           optimizer_steps,    tap,  diag,
                   ret,   arena_new("walk"), arena_new("cells"), false};
}

static void check_end(Check *check)
{
    arena_free(check->walk);
    arena_free(check->cells);
}

bool program_check_tapped(Arena *arena, const Program *program, int optimizer_steps,
                          const CheckTap *tap, Diag *diag, CheckReport *ret)
{
    Check check = check_begin(arena, program, optimizer_steps, tap, diag, ret);
    fill_report(&check);
    bool good = check_all(&check);
    check_end(&check);
    return good;
}

bool program_check(Arena *arena, const Program *program, int optimizer_steps, Diag *diag,
                   CheckReport *ret)
{
    return program_check_tapped(arena, program, optimizer_steps, NULL, diag, ret);
}

/* Evaluations change what ranks do between steps, not what a step does: who owns what, and whether
 * all is updated, the steps alone show. */
static bool check_evaluations(Check *check)
{
    const Program *program = check->program;
    CrossingList *crossings = ARENA_ARRAY(check->arena, CrossingList, program->stages);
    int ranks = mesh_ranks(&program->plan->mesh);
    bool good = true;
    for (int s = 0; s < program->stages; s++) {
        Arena *scratch = arena_new("stage"), *other = arena_new("trace");
        RegionList regions = regions_of(scratch, program, &program->stage[s]);
        const Trace *first = trace_take(check, scratch, program, s, 0, true);
        count(check, first);
        take_crossings(check->arena, first, &crossings[s]);
        good &= check_groups(check, first) && check_bytes(check, first, &regions, NULL);
        bool full = (int64_t)first->steps.n * ranks <= FULL_STEPS;
        Absences absences = {0};
        for (int c = 1; c < (full ? ranks : 1) && good; c++) {
            arena_reset(other);
            const Trace *trace = trace_take(check, other, program, s, c, true);
            count(check, trace);
            good &= check_same_communication(check, first, trace, &absences) &&
                    check_bytes(check, trace, &regions, NULL);
        }
        good = good && check_absences(check, first, &absences);
        arena_free(other);
        arena_free(scratch);
    }
    return check_messages(check, crossings) && check_deadlock(check, crossings) && good;
}

bool program_check_evaluating(Arena *arena, const Program *program, int optimizer_steps,
                              const CheckTap *tap, Diag *diag, CheckReport *ret)
{
    Check check = check_begin(arena, program, optimizer_steps, tap, diag, ret);
    check.evaluates = true;
    bool good = check_evaluations(&check);
    check_end(&check);
    return good;
}

bool stage_check_bytes(const Program *program, int stage, int coordinate, int optimizer_steps,
                       const CheckTap *tap, Diag *diag, CheckReport *ret)
{
    Arena *scratch = arena_new("bytes");
    Check check = check_begin(scratch, program, optimizer_steps, tap, diag, ret);
    RegionList regions = regions_of(scratch, program, &program->stage[stage]);
    const Trace *trace = trace_take(&check, scratch, program, stage, coordinate, true);
    count(&check, trace);
    bool good = check_bytes(&check, trace, &regions, NULL);
    check_end(&check);
    arena_free(scratch);
    return good;
}

Period stage_period(const Program *program, int stage)
{
    Period period = {0};
    CheckReport report;
    Arena *scratch = arena_new("period");
    Check check = check_begin(scratch, program, 1, NULL, diag_new(scratch), &report);
    RegionList regions = regions_of(scratch, program, &program->stage[stage]);
    bool good = check_bytes(&check, trace_take(&check, scratch, program, stage, 0, true), &regions,
                            &period);
    check_end(&check);
    arena_free(scratch);
    return good ? period : (Period){0};
}
