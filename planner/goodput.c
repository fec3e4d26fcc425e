/* goodput.c - Daly's model of checkpoints and failures, and the normal model of jitter.
 *
 * All figures are estimates; a cluster file does not say how often its devices fail.
 * Failures: the 54 days of pre-training of Llama 3 405B on 16,384 devices had 419 unexpected
 * interruptions (The Llama 3 Herd of Models, section 3.3.4): one in 50,000 device hours.
 * Checkpoints: for time to write d, time to restart r and mean time between failures m, the best
 * interval is sqrt(2 d m) (Young 1974), with Daly's higher orders (A higher order estimate of the
 * optimum checkpoint interval, 2006), whose closed form of the run's length gives the goodput. */
#include "planner/goodput.h"

#include <math.h>

/* A domain of devices writes so fast; a job is back after so long. */
static const double domain_bytes_per_s = 2e9, restart_s = 600, device_hours = 50000;
/* Clocks, temperature, other traffic: a healthy device's step deviates by about so much. */
static const double jitter = 0.01;

/* Blom's approximation: the quantile at (n - 3/8) / (n + 1/4). */
double normal_max(int64_t n)
{
    double below = ((double)n - 0.375) / ((double)n + 0.25), low = -1, high = 10;
    for (int i = 0; i < 60 && n > 1; i++) {
        double middle = (low + high) / 2;
        if (0.5 * erfc(-middle / sqrt(2)) < below)
            low = middle;
        else
            high = middle;
    }
    return n > 1 ? (low + high) / 2 : 0;
}

static double daly_interval(double write_s, double mtbf_s)
{
    if (write_s >= 2 * mtbf_s)
        return mtbf_s;
    double ratio = write_s / (2 * mtbf_s);
    return sqrt(2 * write_s * mtbf_s) * (1 + sqrt(ratio) / 3 + ratio / 9) - write_s;
}

static void fill_checkpoint(const Assessment *it, Goodput *ret)
{
    const Plan *plan = it->plan;
    const Recipe *recipe = recipe_by_name(plan->job.recipe);
    int64_t params = net_param_count(it->net);
    ret->checkpoint_bytes = params * (2 + recipe->has_master) * dtype_bytes(recipe->master) +
                            (recipe->has_master ? 0 : params * dtype_bytes(recipe->weight));
    ret->writers = plan->state_atoms
                       ? plan->ranks
                       : plan->ranks / mesh_extent(&plan->mesh, role_atoms(&plan->mesh, ROLE_DP));
    int domain = plan->cluster->level[0].width, domains = (ret->writers + domain - 1) / domain;
    ret->write_s = (double)ret->checkpoint_bytes / (domain_bytes_per_s * domains);
}

Goodput goodput_of(const Assessment *it)
{
    Goodput out = {.device_hours = device_hours, .restart_s = restart_s, .jitter = jitter};
    fill_checkpoint(it, &out);
    double step_s = (double)it->step_ns / 1e9, mtbf = device_hours * 3600 / it->plan->ranks;
    out.mtbf_s = mtbf;
    out.interval_s = fmax(daly_interval(out.write_s, mtbf), step_s);
    out.interval_steps = (int64_t)fmax(1, floor(out.interval_s / step_s));
    out.goodput = out.interval_s /
                  (mtbf * exp(restart_s / mtbf) * expm1((out.interval_s + out.write_s) / mtbf));
    out.slowest = jitter * normal_max(it->plan->ranks);
    double compute = (double)it->times->stage[it->busiest].spent_ns[SPENT_COMPUTE];
    out.slowest_ns = (int64_t)(compute * out.slowest);
    return out;
}
