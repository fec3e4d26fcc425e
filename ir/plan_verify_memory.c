/* plan_verify_memory.c - may what a plan keeps in other memories live there? */
#include "ir/plan_memory.h"
#include "ir/plan_verify_in.h"

/* Weights that live elsewhere are cut as far as what steps them, so that each rank takes home what
 * it has stepped. */
static bool verify_far_weights(const Verify *v)
{
    const Plan *plan = v->plan;
    bool even = true;
    for (int c = 0; c < v->net->classes.n; c++) {
        Homes homes = plan_homes(plan, c);
        bool far = home_memory(plan->memory, &homes, KEPT_WEIGHTS) != MEMORY_HBM;
        even = even && (!far || homes.weight == homes.state);
    }
    if (plan->memory[KEPT_WEIGHTS] == MEMORY_HBM)
        return true;
    bool good = true;
    Json at = at_key(v->file, kept_key[KEPT_WEIGHTS]);
    if (!even) {
        good =
            fault(v, at,
                  SAY(v, "weights in %s must be cut over the ranks that cut the optimizer's state",
                      memory_text[plan->memory[KEPT_WEIGHTS]]));
        diag_help(v->diag, "plan with zero=3 (cut both), or zero=0 (neither)");
    }
    if (schedule_info[plan->schedule].flows && plan_keeps_some(plan, v->net, KEPT_WEIGHTS)) {
        good = fault(v, at,
                     "versions of weights lie in one memory, and some classes keep theirs on "
                     "the device");
        diag_help(v->diag, "plan with one weight_home for all layers, or with schedule=1f1b");
    }
    return good;
}

/* All but state has one home beside the device's. */
static bool verify_two_homes(const Verify *v)
{
    const Plan *plan = v->plan;
    for (int c = 0; c < v->net->classes.n; c++)
        for (int k = KEPT_STATE + 1; k < KEPT_COUNT; k++) {
            Homes homes = plan_homes(plan, c);
            Memory own = home_memory(plan->memory, &homes, (Kept)k);
            if (own == MEMORY_HBM || own == plan->memory[k])
                continue;
            Json class = at_index(at_key(v->file, "classes"), c);
            fault(v, at_key(at_key(class, "cut"), kept_key[k]),
                  SAY(v, "class %s keeps %s in %s, others in %s", v->net->classes.at[c]->name,
                      kept_text[k], memory_text[own], memory_text[plan->memory[k]]));
            diag_help(v->diag, "plan with %s=%s or hbm for these layers", kept_pin[k],
                      memory_text[plan->memory[k]]);
            return false;
        }
    return true;
}

bool verify_memory(const Verify *v)
{
    const Plan *plan = v->plan;
    bool good = verify_two_homes(v);
    for (int k = 0; k < KEPT_COUNT; k++) {
        Memory memory = plan->memory[k];
        if (memory == MEMORY_HBM || !plan->cluster || plan->cluster->store[memory].bytes > 0)
            continue;
        good = fault(v, at_key(v->file, kept_key[k]),
                     SAY(v, "%s: its home is %s, and cluster %s does not say that it has any",
                         kept_text[k], memory_text[memory], plan->cluster->name));
        diag_help(v->diag, "give its file \"memories\", or plan with --pin %s=hbm", kept_pin[k]);
    }
    return good;
}

/* Two rows in one would both need the places of far gradients. */
static bool verify_braid(const Verify *v)
{
    if (!v->plan->braid || v->plan->memory[KEPT_GRADIENTS] == MEMORY_HBM)
        return true;
    fault(v, at_key(v->file, "braid"), "rows that run as one, and gradients in another memory");
    diag_help(v->diag, "plan with --pin braid=0, or gradient_home=hbm");
    return false;
}

/* Steps of whole matrices lie in the scratch of the device. */
static bool verify_far_gradients(const Verify *v)
{
    if (v->plan->memory[KEPT_GRADIENTS] == MEMORY_HBM || v->plan->job.muon.steps == 0)
        return true;
    fault(v, at_key(v->file, kept_key[KEPT_GRADIENTS]),
          "steps of whole matrices find gradients on the device");
    diag_help(v->diag, "plan with --optimizer adamw, or with gradient_home=hbm");
    return false;
}

bool verify_far(const Verify *v)
{
    bool good = verify_far_weights(v);
    good = verify_far_gradients(v) && good;
    return verify_braid(v) && good;
}
