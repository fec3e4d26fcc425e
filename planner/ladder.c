/* ladder.c - searches the space of each rung. */
#include "planner/ladder.h"

void ladder_climb(Search *search, Rung ret[LADDER_RUNGS])
{
    static const char *const names[LADDER_RUNGS] = {"data parallel",     "+ ZeRO-1",
                                                    "+ tensor parallel", "+ sequence parallel",
                                                    "+ pipeline",        "+ recompute"};
    Pins pins = pins_none();
    pins.tp = pins.cp = pins.pp = 1;
    pins.zero = pins.sp = pins.recompute = 0;
    for (int i = 0; i < LADDER_RUNGS; i++) {
        int *const freed[LADDER_RUNGS] = {NULL,     &pins.zero, &pins.tp,
                                          &pins.sp, &pins.pp,   &pins.recompute};
        if (freed[i])
            *freed[i] = -1;
        SearchLimits limits = {.inside = true};
        SearchResult result;
        search_run(search, &pins, &limits, &result);
        ret[i] = (Rung){names[i], result.found, result.best, result.tightest};
    }
}

static const char *largest_part(Arena *arena, const Tightest *tightest)
{
    const struct {
        const char *name;
        int64_t bytes;
    } part[] = {{"weights", tightest->weight_bytes},
                {"gradients", tightest->gradient_bytes},
                {"optimizer state", tightest->state_bytes},
                {"activations", tightest->saved_bytes},
                {"temporaries", tightest->transient_bytes}};
    int largest = 0;
    for (int i = 1; i < 5; i++)
        largest = part[i].bytes > part[largest].bytes ? i : largest;
    return arena_printf(arena, "largest: %s %s", part[largest].name,
                        str_gib(arena, part[largest].bytes));
}

char *tightest_text(Arena *arena, const Tightest *tightest)
{
    return arena_printf(arena, "needs %s per device, %s available; %s",
                        str_gib(arena, tightest->bytes), str_gib(arena, tightest->budget_bytes),
                        largest_part(arena, tightest));
}

char *tightest_short(Arena *arena, const Tightest *tightest)
{
    return arena_printf(arena, "needs %s of %s; %s", str_gib(arena, tightest->bytes),
                        str_gib(arena, tightest->budget_bytes), largest_part(arena, tightest));
}
