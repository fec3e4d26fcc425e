/* step.c - the training loop's edges: learning rate, agreement between the ranks, signals.
 *
 * Everything rank-dependent that decides what happens next (a signal, a loss that is not finite)
 * goes through one small all-gather at the end of each step, so no rank takes a branch alone. */
#include "runtime/core/step.h"

#include "runtime/core/lanes.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"
#include "runtime/core/watch.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* The one process-wide variable: a signal handler can reach nothing else. */
static volatile sig_atomic_t signals_seen;

static void signal_note(int signal_number)
{
    if (signals_seen++ > 0)
        _exit(128 + signal_number);
}

void lp_signals_catch(void)
{
    struct sigaction action = {.sa_handler = signal_note, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
}

bool lp_pause_ns(int64_t ns)
{
    int before = signals_seen;
    for (int64_t end_ns = lp_now_ns() + ns; signals_seen == before && lp_now_ns() < end_ns;)
        lp_sleep_ns(10000000);
    return signals_seen > before;
}

double lp_rate(const LpOptions *options, int64_t step)
{
    if (step < options->warmup)
        return options->lr * (double)(step + 1) / (double)options->warmup;
    if (options->schedule == LP_CONSTANT)
        return options->lr;
    int64_t span = options->steps - options->warmup;
    double part = span > 0 ? (double)(step - options->warmup) / (double)span : 0;
    return options->min_lr + (options->lr - options->min_lr) * 0.5 * (1 + cos(acos(-1.0) * part));
}

double lp_lr(int64_t step)
{
    return lp_rate(lp_self->rank.options, step);
}

/* Messages, libraries, data and weights are there; the arena's own bytes are counted whole,
 * whatever part of it has been touched. A device that is too small for both must show before the
 * first step, not in it. Virtual ranks share a process, which is no device. */
static void refuse_too_large(LpSelf *self)
{
    const LpJob *job = self->rank.job;
    self->measured = true;
    if (job->device_bytes <= 0 || (self->rank.options->virtual_ranks && job->ranks > 1))
        return;
    int64_t arena = job->arena_bytes[self->rank.stage];
    int64_t tokens = (int64_t)job->rows * job->seq * job->stages / job->ranks;
    int64_t outside = lp_memory_outside(self->rank.arena, arena, job->vocab, tokens);
    outside -= lp_lanes_resident(self);
    double(*needs)[2] = lp_new((size_t)job->ranks, sizeof *needs);
    needs[self->rank.index][0] = (double)arena;
    needs[self->rank.index][1] = (double)(outside > 0 ? outside : 0);
    LpEvent gathered = {0};
    lp_all_gather(&gathered, LP_WORLD, needs[self->rank.index], needs, 2, LP_F64);
    lp_wait(&gathered);
    int worst = 0;
    for (int i = 1; i < job->ranks; i++)
        if (needs[i][0] + needs[i][1] > needs[worst][0] + needs[worst][1])
            worst = i;
    arena = (int64_t)needs[worst][0];
    outside = (int64_t)needs[worst][1];
    free(needs);
    if (arena + outside > job->device_bytes)
        lp_fail_all(3,
                    "not enough memory: rank %d needs %lld bytes, its arena of %lld and %lld "
                    "measured outside it; the device that this plan was made for has %lld",
                    worst, (long long)(arena + outside), (long long)arena, (long long)outside,
                    (long long)job->device_bytes);
    lp_log_memory(self, arena, outside);
}

void lp_loss_beside(int ahead, double loss)
{
    LpSelf *self = lp_self;
    self->besides = ahead > self->besides ? ahead : self->besides;
    self->beside[ahead - 1] = loss;
}

bool lp_step_begin(int64_t step)
{
    LpSelf *self = lp_self;
    if (self->stop || step >= self->rank.options->steps || self->rank.options->eval_only) {
        self->first_step = step;
        return false;
    }
    if (!self->measured)
        refuse_too_large(self);
    lp_watch_step(self, step);
    self->step_begin_ns = lp_now_ns();
    return true;
}

/* What a rank tells all others at the end of a step. */
typedef struct Tally {
    double loss_share;
    double stop;
    double peak_bytes;
} Tally;

#define TALLY_DOUBLES ((int64_t)(sizeof(Tally) / sizeof(double)))

void lp_step_end(double loss_share, double grad_norm, double lr)
{
    LpSelf *self = lp_self;
    int ranks = self->rank.job->ranks;
    if (!self->tally)
        self->tally = lp_new((size_t)ranks, sizeof(Tally));
    Tally *tally = self->tally;
    tally[self->rank.index] = (Tally){
        .loss_share = loss_share, .stop = signals_seen > 0, .peak_bytes = (double)lp_memory_peak()};
    lp_at("end of step");
    LpEvent gathered = {0};
    lp_all_gather(&gathered, LP_WORLD, &tally[self->rank.index], tally, TALLY_DOUBLES, LP_F64);
    lp_wait(&gathered);
    double loss = 0, peak = 0;
    for (int i = 0; i < ranks; i++) {
        loss += tally[i].loss_share;
        peak = fmax(peak, tally[i].peak_bytes);
        self->stop = self->stop || tally[i].stop > 0;
    }
    int64_t step = atomic_load_explicit(&self->track.step, memory_order_relaxed);
    LpStepFigures figures = {.step = step,
                             .loss = loss,
                             .grad_norm = grad_norm,
                             .lr = lr,
                             .loss_scale = self->scaler.scale,
                             .ms = (double)(lp_now_ns() - self->step_begin_ns) * 1e-6,
                             .peak_bytes = (int64_t)peak};
    lp_log_step(self, &figures);
    /* a step that overflowed was skipped, whatever its loss; with the least scale it is no overflow
     */
    bool skipped = self->scaler.bad && self->scaler.scale > 1;
    if (!isfinite(loss) && !skipped)
        lp_fail_all(1, "the loss of step %lld is %g: lower --lr, or look for bad data",
                    (long long)step, loss);
}

/* ---- evaluation ---- */

bool lp_evaluation_due(int64_t step)
{
    const LpSelf *self = lp_self;
    const LpOptions *options = self->rank.options;
    if (!self->evaluation || step < 0 || options->eval_only)
        return self->evaluation && step < 0 && options->eval_only;
    bool turn = options->eval_every > 0 && (step + 1) % options->eval_every == 0;
    return !self->stop && (turn || step + 1 == options->steps);
}

void lp_evaluation_end(int64_t step)
{
    LpSelf *self = lp_self;
    self->evaluating = false;
    lp_log_evaluation(self, step < 0 ? self->first_step - 1 : step);
}

/* ---- steps that flow into each other ---- */

int lp_flow_begin(int64_t step)
{
    LpSelf *self = lp_self;
    const LpOptions *options = self->rank.options;
    if (self->stop || step >= options->steps || options->eval_only) {
        self->first_step = step;
        return 0;
    }
    if (options->clip > 0)
        lp_fail_all(2, "--clip: this pipeline never drains, so no update can wait for the norm of "
                       "all gradients; plan with another schedule to clip them");
    if (!self->measured)
        refuse_too_large(self);
    int64_t end = options->steps;
    const int64_t stops[] = {options->checkpoint ? options->every : 0,
                             self->evaluation ? options->eval_every : 0};
    for (int i = 0; i < LP_COUNT(stops); i++) {
        int64_t next = stops[i] > 0 ? (step / stops[i] + 1) * stops[i] : end;
        end = next < end ? next : end;
    }
    self->turn = step; /* the first step's time is that of the prologue too */
    self->turn_ns[step % LP_TURNS] = lp_now_ns();
    return end - step < INT_MAX / 2 ? (int)(end - step) : INT_MAX / 2;
}

void lp_flow_turn(int64_t step)
{
    LpSelf *self = lp_self;
    lp_watch_step(self, step);
    if (step > self->turn)
        self->turn_ns[step % LP_TURNS] = lp_now_ns();
    self->turn = step;
}

bool lp_stop_wanted(void)
{
    return signals_seen > 0;
}

void lp_flow_end(int64_t step, double loss, double grad_norm, bool stop)
{
    LpSelf *self = lp_self;
    /* the last step's is that of the drain too */
    int64_t end_ns = step < self->turn ? self->turn_ns[(step + 1) % LP_TURNS] : lp_now_ns();
    self->stop = self->stop || stop;
    LpStepFigures figures = {.step = step,
                             .loss = loss,
                             .grad_norm = grad_norm,
                             .lr = lp_lr(step),
                             .loss_scale = self->scaler.scale,
                             .ms = (double)(end_ns - self->turn_ns[step % LP_TURNS]) * 1e-6,
                             .peak_bytes = (int64_t)lp_memory_peak()};
    lp_log_step(self, &figures);
    if (!isfinite(loss))
        lp_fail_all(1, "the loss of step %lld is %g: lower --lr, or look for bad data",
                    (long long)step, loss);
}
