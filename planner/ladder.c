/* ladder.c - searches the space of each rung. */
#include "planner/ladder.h"

int ladder_climb(Search *search, const Problem *problem, Rung ret[LADDER_RUNGS])
{
    Pins pins = pins_none();
    pins.tp = pins.cp = pins.pp = pins.ep = 1;
    pins.zero = pins.sp = pins.recompute = 0;
    const struct {
        const char *name;
        int *freed;
    } rung[LADDER_RUNGS] = {{"data parallel", NULL},         {"+ ZeRO-1", &pins.zero},
                            {"+ tensor parallel", &pins.tp}, {"+ sequence parallel", &pins.sp},
                            {"+ pipeline", &pins.pp},        {"+ recompute", &pins.recompute},
                            {"+ expert parallel", &pins.ep}};
    int rungs = problem->routed ? LADDER_RUNGS : LADDER_RUNGS - 1;
    for (int i = 0; i < rungs; i++) {
        if (rung[i].freed)
            *rung[i].freed = -1;
        SearchLimits limits = {.inside = true};
        SearchResult result;
        search_run(search, &pins, &limits, &result);
        ret[i] = (Rung){rung[i].name, result.found, result.best, result.tightest};
    }
    return rungs;
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
