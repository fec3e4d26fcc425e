/* programs_text.c - schedules and Programs as text for compare_programs.py.
 *
 * Reads one request a line. "schedule KIND P M V" prints the schedule as CSV, and "stuck" when it
 * never ends; V: chunks of a stage. "program KIND P M V HOP F0.. B0.. I0.. W0.." builds a small
 * model's Program whose rows take these times, and prints a line for every entry of every stage,
 * then the rings. A dot ends each answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/ir/lower/plans.h"
#include "tests/ir/tiny_models.h"

static ScheduleKind kind_of(const char *text)
{
    for (int i = 0; i < SCHEDULE_COUNT; i++)
        if (str_eq(text, schedule_text[i]))
            return (ScheduleKind)i;
    fprintf(stderr, "unknown schedule %s\n", text);
    exit(2);
}

static int next_int(void)
{
    const char *word = strtok(NULL, " \n");
    if (!word) {
        fprintf(stderr, "a number is missing\n");
        exit(2);
    }
    return atoi(word);
}

static void put_schedule(Arena *arena, ScheduleKind kind, int p, int m, int v)
{
    Diag *diag = diag_new(arena);
    Schedule *schedule = schedule_make(arena, diag, kind, p, v, m);
    Str text = str_new(arena);
    if (!schedule)
        return;
    schedule_put_csv(&text, schedule);
    fputs(text.at, stdout);
    if (!schedule_check(schedule, diag))
        puts("stuck");
}

static void put_entry(const StageProgram *stage, const Entry *entry)
{
    int s = stage->index, chunk = stage->chunk[entry->chunk].index;
    if (entry->kind == ENTRY_COMPUTE)
        printf("%d C %s %d %d %d %d\n", s, part_text[entry->part], chunk, entry->micro,
               entry->first, entry->last);
    else if (entry->kind == ENTRY_SEND || entry->kind == ENTRY_RECV)
        printf("%d %s %s %d %d %d\n", s, entry->kind == ENTRY_SEND ? "S" : "R",
               entry->message == MSG_ACTIVATION ? "act" : "grad", chunk, entry->micro, entry->peer);
    else
        printf("%d %s\n", s, entry_text[entry->kind]);
}

static void put_program(Arena *arena, ScheduleKind kind, int p, int m, int v, const RowTimes *times)
{
    PlanCase what = {.model = model_with_layers(arena, tiny_llama, 2 * p * v),
                     .ranks = p,
                     .batch = m,
                     .sequence = 4};
    what.pins = arena_printf(arena, "pp=%d,mbs=1,schedule=%s,chunks=%d", p, schedule_text[kind], v);
    Program *program = program_timed(arena, &what, times);
    for (int s = 0; s < p; s++) {
        const StageProgram *stage = &program->stage[s];
        for (int i = 0; i < stage->table.n; i++)
            put_entry(stage, &stage->table.at[i]);
        for (int c = 0; c < stage->chunks; c++)
            for (int k = 0; k < RING_COUNT; k++)
                printf("%d ring %d %s %d\n", s, stage->chunk[c].index, ring_text[k],
                       stage->chunk[c].ring[k].n);
        printf("%d saves_in %d\n", s, stage->link[0].body->saves_in);
    }
}

int main(void)
{
    char line[4096];
    while (fgets(line, sizeof line, stdin)) {
        Arena *arena = arena_new("request");
        const char *what = strtok(line, " \n"), *word = strtok(NULL, " \n");
        if (!what || !word)
            return 2;
        ScheduleKind kind = kind_of(word);
        int p = next_int(), m = next_int(), v = next_int();
        if (str_eq(what, "schedule")) {
            put_schedule(arena, kind, p, m, v);
        } else {
            RowTimes times = {.hop = next_int()};
            for (int part = PART_F; part < PART_COUNT; part++) {
                int64_t *length = ARENA_ARRAY(arena, int64_t, p * v);
                for (int c = 0; c < p * v; c++)
                    length[c] = next_int();
                times.time[part] = length;
            }
            put_program(arena, kind, p, m, v, &times);
        }
        puts(".");
        fflush(stdout);
        arena_free(arena);
    }
    return 0;
}
