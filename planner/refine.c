/* refine.c - layers that are let off what others pay for memory: bisection over the layers of every
 * stage, by the layout of whole plans. */
#include "planner/refine.h"

#include <string.h>

#include "ir/pin_ranges.h"
#include "planner/parts.h"

/* Layers of a stage, and how many of the last are let off: `fit` do, `over` do not. */
typedef struct Room {
    int begin, end; /* layers */
    int fit, over;
} Room;

typedef struct Refine {
    Problem *problem;
    Pins base;      /* of the plan so far, with its ranges */
    Pins rule;      /* what layers that are let off have instead */
    int64_t budget; /* bytes of a stage */
    int stages;
    Room *room;
} Refine;

/* The pins with as many layers of each stage let off; `probe`: halfway between what fits and what
 * does not. */
static Pins pins_with(const Refine *refine, bool probe)
{
    Pins pins = refine->base;
    PinRange *range = ARENA_ARRAY(refine->problem->arena, PinRange, pins.ranges + refine->stages);
    for (int r = 0; r < pins.ranges; r++)
        range[r] = pins.range[r];
    for (int s = 0; s < refine->stages; s++) {
        const Room *room = &refine->room[s];
        int off = probe ? (room->fit + room->over) / 2 : room->fit;
        if (off > 0)
            range[pins.ranges++] = (PinRange){room->end - off, room->end - 1, refine->rule};
    }
    pins.range = range;
    return pins;
}

static bool undecided(const Refine *refine)
{
    bool any = false;
    for (int s = 0; s < refine->stages; s++)
        any = any || refine->room[s].over - refine->room[s].fit > 1;
    return any;
}

static void decide(const Refine *refine, const Program *program)
{
    for (int s = 0; s < refine->stages; s++) {
        Room *room = &refine->room[s];
        int tried = (room->fit + room->over) / 2;
        if (room->over - room->fit <= 1)
            continue;
        *(program->stage[s].arena_bytes <= refine->budget ? &room->fit : &room->over) = tried;
    }
}

/* Stages share nothing but the time: each is searched by itself, all at once. False when no layer
 * of any has room. */
static bool bisect(Refine *refine)
{
    while (undecided(refine)) {
        Problem own = *refine->problem;
        own.arena = arena_new("refine");
        own.diag = diag_new(own.arena);
        Pins pins = pins_with(refine, true);
        Net *net;
        Plan *plan = plan_make(&own, &pins, NULL, &net);
        if (plan)
            decide(refine, program_build(own.arena, plan, net, NULL, NULL));
        arena_free(own.arena);
        if (!plan)
            return false;
    }
    bool any = false;
    for (int s = 0; s < refine->stages; s++)
        any = any || refine->room[s].fit > 0;
    return any;
}

static void find_rooms(const Plan *plan, const Net *net, Refine *refine)
{
    for (int s = 0; s < refine->stages; s++) {
        int first = plan->first_link[s] > 1 ? plan->first_link[s] : 1,
            end =
                plan->first_link[s + 1] < net->chain.n ? plan->first_link[s + 1] : net->chain.n - 1;
        refine->room[s] = (Room){first - 1, end - 1, 0, end - first + 1};
    }
}

static bool refine_by(Problem *problem, const Pins *rule, Found *found, Plan **plan, Net **net,
                      const Assessment **it)
{
    Refine refine = {.problem = problem,
                     .base = found->pins,
                     .rule = *rule,
                     .budget = (*it)->budget_bytes,
                     .stages = (*plan)->stages,
                     .room = ARENA_ARRAY(problem->arena, Room, (*plan)->stages)};
    find_rooms(*plan, *net, &refine);
    if (!bisect(&refine))
        return false;
    Pins pins = pins_with(&refine, false);
    Net *own_net;
    Plan *own = plan_make(problem, &pins, NULL, &own_net);
    const Assessment *own_it = own ? assess_plan(problem->arena, own, own_net, ASSESS_STEPS) : NULL;
    if (!own || own_it->peak_bytes > own_it->budget_bytes || own_it->step_ns >= (*it)->step_ns)
        return false;
    *found = (Found){pins, own_it->step_ns, own_it->peak_bytes};
    *plan = own;
    *net = own_net;
    *it = own_it;
    return true;
}

bool refine_plan(Problem *problem, Found *found, Plan **plan, Net **net, const Assessment **it)
{
    bool better = false;
    if ((*plan)->chunks != (*plan)->stages || (*net)->chain.n < 3)
        return false;
    if (found->pins.recompute == 1) {
        Pins keeps = pins_none();
        keeps.recompute = 0;
        better = refine_by(problem, &keeps, found, plan, net, it);
    }
    if (found->pins.zero > 1 && found->pins.dp * found->pins.cp > 1) {
        Pins whole = pins_none();
        whole.zero = 1;
        better = refine_by(problem, &whole, found, plan, net, it) || better;
    }
    return better;
}
