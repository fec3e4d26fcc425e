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
        bool there;
    } rung[LADDER_RUNGS] = {
        {"data parallel", &pins.zero, 0, true},
        {"+ ZeRO-1", &pins.zero, 1, true},
        {"+ ZeRO-2 and 3", &pins.zero, -1, true},
        {"+ tensor parallel", &pins.tp, -1, true},
        {"+ sequence parallel", &pins.sp, -1, true},
        {"+ pipeline", &pins.pp, -1, true},
        {"+ recompute", &pins.recompute, -1, true},
        {"+ expert parallel", &pins.ep, -1, problem->routed != NULL},
        {"+ context parallel", &pins.cp, -1, problem->job.sequence >= LONG_SEQUENCE},
        {"+ offload", pins.home, -1, problem->offload != MEMORY_HBM}};
    int rungs = 0;
    for (int k = 0; k < KEPT_COUNT; k++)
        pins.home[k] = MEMORY_HBM;
    for (int i = 0; i < LADDER_RUNGS; i++) {
        if (!rung[i].there)
            continue;
        for (int k = 0; k < (rung[i].pin == pins.home ? KEPT_COUNT : 1); k++)
            rung[i].pin[k] = rung[i].free;
        /* ranks of cp may leave the fastest domain */
        SearchLimits limits = {.inside = pins.cp == 1};
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
