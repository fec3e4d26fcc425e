/* test_bugs.c - the table of bugs that other systems shipped (CONTRACTS 1.14), row by row on the
 * machine: its plans are right, and a fault of its kind is noticed.
 *
 *     test_bugs [--json] [ID...]      all rows, or those; with LPLAN_SITES set, what could be
 * broken
 *
 * A row that ran no plan, or none of whose faults met a plan and was noticed, fails: it would say
 * nothing. A row whose plans all wait for a pin that nobody knows yet says so. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/lower/check.h"
#include "ir/lower/machine.h"
#include "tests/bugs/bug.h"
#include "tests/ir/lower/plans.h"

enum { MAX_SITES = 12 }; /* of one break on one plan */
static const double tolerance = 1e-10;

typedef struct Result {
    json_t *plans, *waits;
    int broken, noticed;
    double error;
    const char *wrong; /* the first thing, or NULL */
} Result;

static void blame(Result *result, const char *text)
{
    if (!result->wrong)
        result->wrong = text;
}

Trial *bug_trial(Arena *arena, const Bug *bug, const char *pins, const char **ret_waits,
                 const char **ret_why)
{
    PlanCase what = {.model = bug->model(arena),
                     .batch = bug->batch,
                     .sequence = bug->sequence,
                     .pins = pins,
                     .recipe =
                         bug->optimizer ? arena_printf(arena, "fp64 %s", bug->optimizer) : "fp64",
                     .bucket_bytes = 500};
    PlanRefusal refusal;
    Net *net;
    *ret_waits = *ret_why = NULL;
    Plan *plan = plan_try(arena, &what, &net, &refusal);
    if (plan)
        return trial_new(arena, plan, net, &bug->spec);
    if (refusal.pin)
        *ret_waits = refusal.pin;
    else if (refusal.model && bug->may_not_read)
        *ret_waits = "the model's op";
    else
        *ret_why = arena_printf(arena, "%s: %s", pins,
                                diag_errors(refusal.diag) ? diag_item(refusal.diag, 0)->text
                                                          : "there is no such plan");
    return NULL;
}

/* ---- one plan is right ---- */

static bool check_static(Arena *arena, const Trial *trial, const char **ret_what)
{
    CheckReport report;
    Diag *diag = diag_new(arena);
    if (program_check(arena, trial->program, 2, diag, &report) &&
        (!trial->spec.evaluates ||
         program_check_evaluating(arena, trial->program, 2, NULL, diag, &report)))
        return true;
    *ret_what = arena_printf(arena, "static proof: %s", diag_item(diag, 0)->text);
    return false;
}

static bool check_plan(Arena *arena, Trial *trial, Result *result, uint64_t *ret_bits,
                       const char **ret_what)
{
    if (!check_static(arena, trial, ret_what))
        return false;
    for (uint64_t order = 0; order < 2; order++) {
        double error = trial_run(trial, order * 17, NULL, ret_what);
        result->error = error > result->error ? error : result->error;
        if (!(error <= tolerance)) {
            *ret_what = arena_printf(arena, "error %.2g at %s", error, *ret_what);
            return false;
        }
        const char *drift = trial_drift(trial);
        if (drift) {
            *ret_what = arena_printf(arena, "ranks hold other bits of %s", drift);
            return false;
        }
        uint64_t bits = trial_bits(trial);
        if (order > 0 && bits != *ret_bits) {
            *ret_what = "another order of Steps gives other bits";
            return false;
        }
        *ret_bits = bits;
    }
    return true;
}

/* ---- its faults ---- */

static bool group_has(const Program *program, const Site *site, const char *member)
{
    if (site->group == NONE || site->stage == NONE)
        return false;
    const Group *group = &program->stage[site->stage].groups.at[site->group];
    for (int k = 0; k < group->members.n; k++)
        if (strstr(program->net->params.at[group->members.at[k].net_param].name, member))
            return true;
    return false;
}

static void run_sites(Arena *arena, Trial *trial, const Break *fault, Result *result)
{
    Machine *machine = trial->machine;
    int done = 0;
    machine_expect(machine, trial->norm, tolerance);
    for (int i = 0; i < machine_sites(machine, MUTATE_NONE) && done < MAX_SITES; i++) {
        Mutation mutation = machine_site(machine, i);
        const Site *site = &machine->sites.at[i];
        const char *name = machine_site_name(arena, machine, &mutation), *where;
        if (mutation.kind != fault->kind || machine_equivalent(machine, &mutation) ||
            (fault->where && !strstr(name, fault->where)) ||
            (fault->member && !group_has(trial->program, site, fault->member)))
            continue;
        done++;
        result->broken++;
        if (trial_run(trial, 0, &mutation, &where) > tolerance)
            result->noticed++;
        else
            blame(result, arena_printf(arena, "not noticed: %s", name));
    }
    machine_expect(machine, NULL, 0);
}

static void run_breaks(Arena *arena, const Bug *bug, Trial *trial, Result *result)
{
    for (int b = 0; b < MAX_BREAKS; b++) {
        const Break *fault = &bug->breaks[b];
        if (fault->kind != MUTATE_NONE)
            run_sites(arena, trial, fault, result);
        if (fault->tap == TAP_NONE)
            continue;
        bool hit;
        const char *said;
        bool caught = tap_caught(trial->program, fault->tap, &hit, &said);
        if (!hit)
            continue;
        result->broken++;
        result->noticed += caught;
        if (!caught)
            blame(result, arena_printf(arena, "fault %d is called: %s", (int)fault->tap, said));
    }
}

/* For who writes a row: what of its plan could be broken. */
static void say_sites(Arena *arena, const Trial *trial)
{
    for (int i = 0; i < machine_sites(trial->machine, MUTATE_NONE); i++) {
        Mutation mutation = machine_site(trial->machine, i);
        const Site *site = &trial->machine->sites.at[i];
        printf("#   %s", machine_site_name(arena, trial->machine, &mutation));
        for (int p = 0; p < trial->net->params.n; p++)
            if (group_has(trial->program, site, trial->net->params.at[p].name))
                printf(" %s", trial->net->params.at[p].name);
        printf("\n");
    }
}

/* ---- a row ---- */

typedef struct First {
    bool known;
    double loss, norm;
    uint64_t bits;
} First;

static void compare_first(Arena *arena, const Bug *bug, const Trial *trial, uint64_t bits,
                          First *first, const char *pins, Result *result)
{
    if (!first->known)
        *first = (First){true, trial->loss[0], trial->norm[0], bits};
    bool near = machine_relative(trial->loss[0], first->loss) <= tolerance &&
                machine_relative(trial->norm[0], first->norm) <= tolerance;
    if (bug->same && !near)
        blame(result,
              arena_printf(arena, "%s: another loss or norm than the first plan's: %g %g", pins,
                           trial->loss[0] - first->loss, trial->norm[0] - first->norm));
    if (bug->bits && bits != first->bits)
        blame(result, arena_printf(arena, "%s: other bits than the first plan's", pins));
}

static void run_plan(const Bug *bug, const char *pins, First *first, Result *result, Arena *keep)
{
    Arena *arena = arena_new("plan");
    const char *waits, *why = NULL;
    bool refused = pins[0] == '!';
    Trial *trial = bug_trial(arena, bug, pins + refused, &waits, &why);
    if (waits) {
        json_array_append_new(result->waits, json_string(waits));
    } else if (refused) {
        json_array_append_new(result->plans, json_string(pins));
        if (trial)
            blame(result, arena_printf(keep, "%s should be refused", pins + 1));
    } else if (!trial) {
        blame(result, arena_strdup(keep, why));
    } else {
        uint64_t bits = 0;
        json_array_append_new(result->plans, json_string(pins));
        if (getenv("LPLAN_SITES"))
            say_sites(arena, trial);
        if (check_plan(arena, trial, result, &bits, &why)) {
            compare_first(keep, bug, trial, bits, first, pins, result);
            run_breaks(arena, bug, trial, result);
            if (result->wrong) /* it may live in this arena */
                result->wrong = arena_printf(keep, "%s: %s", pins, result->wrong);
        } else {
            blame(result, arena_printf(keep, "%s: %s", pins, why));
        }
    }
    arena_free(arena);
}

static json_t *run_row(const Bug *bug, bool *ret_good)
{
    Arena *arena = arena_new("row");
    Result result = {.plans = json_array(), .waits = json_array()};
    First first = {0};
    for (int i = 0; i < MAX_PLANS && bug->plans[i] && !result.wrong; i++)
        run_plan(bug, bug->plans[i], &first, &result, arena);
    bool live = json_array_size(result.plans) > 0;
    const char *what = NULL;
    if (live && bug->extra && !result.wrong) {
        result.broken++;
        if (bug->extra(bug, arena, &what))
            result.noticed++;
        else
            blame(&result, what ? what : "the row's own fault is not noticed");
    }
    if (live && !result.wrong && (result.broken == 0 || result.noticed < result.broken))
        blame(&result, "no fault met a plan: the row says nothing");
    if (!live && !result.wrong && json_array_size(result.waits) == 0)
        blame(&result, "the row has no plan");
    *ret_good = !result.wrong;
    json_t *row = json_pack("{s:s,s:s,s:o,s:o,s:i,s:i,s:f,s:b}", "id", bug->id, "what", bug->what,
                            "plans", result.plans, "waits", result.waits, "broken", result.broken,
                            "noticed", result.noticed, "error",
                            isfinite(result.error) ? result.error : 1e300, "good", *ret_good);
    if (result.wrong)
        json_object_set_new(row, "wrong", json_string(result.wrong));
    arena_free(arena);
    return row;
}

static bool is_asked(const char *id, int argc, char **argv)
{
    bool any = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], id) == 0)
            return true;
        any |= argv[i][0] != '-';
    }
    return !any;
}

static void say(const json_t *row, int number)
{
    const char *wrong = json_string_value(json_object_get(row, "wrong"));
    size_t plans = json_array_size(json_object_get(row, "plans"));
    const json_t *waits = json_object_get(row, "waits");
    printf("%s %d - %s %s: %d plans, %d of %d faults noticed", wrong ? "not ok" : "ok", number,
           json_string_value(json_object_get(row, "id")),
           json_string_value(json_object_get(row, "what")), (int)plans,
           (int)json_integer_value(json_object_get(row, "noticed")),
           (int)json_integer_value(json_object_get(row, "broken")));
    for (size_t i = 0; i < json_array_size(waits); i++)
        printf("%s %s", i ? "," : "; waits for", json_string_value(json_array_get(waits, i)));
    printf("\n");
    if (wrong)
        printf("#   %s\n", wrong);
}

int main(int argc, char **argv)
{
    bool all = true, machine = argc > 1 && strcmp(argv[1], "--json") == 0;
    int number = 0;
    for (int i = 0; i < bug_count; i++) {
        bool good;
        if (!is_asked(bugs[i].id, argc, argv))
            continue;
        json_t *row = run_row(&bugs[i], &good);
        all = all && good;
        number++;
        if (machine) {
            char *text = json_dumps(row, JSON_COMPACT);
            puts(text);
            free(text);
        } else {
            say(row, number);
        }
        fflush(stdout);
        json_decref(row);
    }
    if (!machine)
        printf("1..%d\n", number);
    return all && number > 0 ? 0 : 1;
}
