/* ladder.c - searches the space of each rung. */
#include "planner/ladder.h"

int ladder_climb(Search *search, const Problem *problem, Rung ret[LADDER_RUNGS])
{
    Pins pins = pins_none();
    pins.tp = pins.cp = pins.pp = pins.ep = 1;
    pins.zero = pins.sp = pins.recompute = 0;
    const struct {
        const char *name;
        int *pin, free; /* what the rung sets it to; -1: the search chooses */
    } rung[LADDER_RUNGS] = {
        {"data parallel", &pins.zero, 0},      {"+ ZeRO-1", &pins.zero, 1},
        {"+ ZeRO-2 and 3", &pins.zero, -1},    {"+ tensor parallel", &pins.tp, -1},
        {"+ sequence parallel", &pins.sp, -1}, {"+ pipeline", &pins.pp, -1},
        {"+ recompute", &pins.recompute, -1},  {"+ expert parallel", &pins.ep, -1},
        {"+ offload", pins.home, -1}};
    int rungs = 0;
    for (int k = 0; k < KEPT_COUNT; k++)
        pins.home[k] = MEMORY_HBM;
    for (int i = 0; i < LADDER_RUNGS; i++) {
        bool homes = rung[i].pin == pins.home;
        if (homes ? problem->offload == MEMORY_HBM : rung[i].pin == &pins.ep && !problem->routed)
            continue;
        for (int k = 0; k < (homes ? KEPT_COUNT : 1); k++)
            rung[i].pin[k] = rung[i].free;
        SearchLimits limits = {.inside = true};
        SearchResult result;
        search_run(search, &pins, &limits, &result);
        ret[rungs++] = (Rung){rung[i].name, result.found, result.best, result.tightest};
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
