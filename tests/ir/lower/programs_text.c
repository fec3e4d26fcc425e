/* programs_text.c - schedules and Programs as text for compare_programs.py.
 *
 * Reads one request a line. "schedule KIND P M" prints the schedule as CSV. "program KIND P M HOP
 * F0.. B0.." builds a small model's Program whose rows take these times, and prints a line for
 * every entry of every stage, then the rings. A dot ends each answer. */
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

static void put_schedule(Arena *arena, ScheduleKind kind, int p, int m)
{
    Schedule *schedule = schedule_make(arena, diag_new(arena), kind, p, 1, m);
    Diag *diag = diag_new(arena);
    Str text = str_new(arena);
    if (!schedule_check(schedule, diag))
        diag_print(diag, stderr, false);
    schedule_put_csv(&text, schedule);
    fputs(text.at, stdout);
}

static void put_program(Arena *arena, ScheduleKind kind, int p, int m, const RowTimes *times)
{
    PlanCase what = {.model = model_with_layers(arena, tiny_llama, 2 * p),
                     .ranks = p,
                     .batch = m,
                     .sequence = 4};
    what.pins = arena_printf(arena, "pp=%d,mbs=1,schedule=%s", p, schedule_text[kind]);
    Program *program = program_timed(arena, &what, times);
    for (int s = 0; s < p; s++) {
        const StageProgram *stage = &program->stage[s];
        for (int i = 0; i < stage->table.n; i++) {
            const Entry *entry = &stage->table.at[i];
            if (entry->kind == ENTRY_COMPUTE)
                printf("%d C %s %d %d %d\n", s, part_text[entry->part], entry->micro, entry->first,
                       entry->last);
            else if (entry->kind == ENTRY_SEND || entry->kind == ENTRY_RECV)
                printf("%d %s %s %d %d\n", s, entry->kind == ENTRY_SEND ? "S" : "R",
                       entry->message == MSG_ACTIVATION ? "act" : "grad", entry->micro,
                       entry->peer);
            else
                printf("%d %s\n", s, entry_text[entry->kind]);
        }
        for (int k = 0; k < RING_COUNT; k++)
            printf("%d ring %s %d\n", s, ring_text[k], stage->chunk[0].ring[k].n);
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
        int p = next_int(), m = next_int();
        if (str_eq(what, "schedule")) {
            put_schedule(arena, kind, p, m);
        } else {
            RowTimes times = {.hop = next_int()};
            for (int part = PART_F; part <= PART_B; part++) {
                int64_t *length = ARENA_ARRAY(arena, int64_t, p);
                for (int s = 0; s < p; s++)
                    length[s] = next_int();
                times.time[part] = length;
            }
            put_program(arena, kind, p, m, &times);
        }
        puts(".");
        fflush(stdout);
        arena_free(arena);
    }
    return 0;
}
