/* log.c - one line per step on the terminal, one object per step in log.jsonl. Rank 0 only.
 *
 * The first step touches the arena and is slow, so rates of the closing line and the time left are
 * taken from the others. A bar is drawn only when the output is a terminal. */
#include "runtime/core/log.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BAR_CELLS 30

struct LpLog {
    FILE *json; /* NULL without --log */
    bool terminal;
    int64_t steps; /* logged */
    double first_ms, rest_ms;
    double last_loss;
};

void lp_log_open(LpSelf *self)
{
    if (self->rank.index != 0)
        return;
    LpLog *log = lp_new(1, sizeof *log);
    /* mpirun gives its ranks a terminal even when it has none; its caller knows better. */
    log->terminal = strcmp(self->transport->name, "mpi") == 0 ? getenv("LPLAN_TERMINAL") != NULL
                                                              : isatty(STDOUT_FILENO);
    const char *dir = self->rank.options->log;
    if (dir) {
        char path[4096];
        snprintf(path, sizeof path, "%s/log.jsonl", dir);
        log->json = fopen(path, "w");
        if (!log->json)
            lp_fail(1, "%s: %s", path, strerror(errno));
    }
    self->log = log;
    const LpJob *job = self->rank.job;
    if (!self->rank.options->quiet)
        printf(
            "%s  plan %s  %.1f M parameters  %d rank%s (%d stage%s), %s  arena %.2f GiB  data %s\n",
            job->name, job->plan_hash, (double)job->params_total / 1e6, job->ranks,
            job->ranks == 1 ? "" : "s", job->stages, job->stages == 1 ? "" : "s",
            job->ranks == 1 ? "one process" : self->transport->name,
            (double)job->arena_bytes[0] / 1073741824.0, self->rank.options->data);
    fflush(stdout);
}

void lp_log_memory(LpSelf *self, int64_t arena_bytes, int64_t outside_bytes)
{
    if (!self->log || self->rank.options->quiet)
        return;
    printf("memory: arena %.3f GiB, %.3f GiB outside it (measured), of %.2f GiB a device\n",
           (double)arena_bytes / 1073741824.0, (double)outside_bytes / 1073741824.0,
           (double)self->rank.job->device_bytes / 1073741824.0);
    fflush(stdout);
}

void lp_log_lanes(LpSelf *self, int64_t bytes, bool direct)
{
    if (!self->log || self->rank.options->quiet)
        return;
    printf("state: %.3f GiB in a file of each rank, %s\n", (double)bytes / 1073741824.0,
           direct ? "past the page cache (O_DIRECT)"
                  : "through the page cache: the file system has no O_DIRECT");
    fflush(stdout);
}

void lp_log_far(LpSelf *self, const LpFar *far)
{
    static const char *const name[2] = {"the host's memory", "a file"}, *const there[2] = {
                                                                            "resident", "on disk"};
    for (int k = 0; k < 2 && self->log && !self->rank.options->quiet; k++)
        if (far->asked[k] > 0)
            printf("memory: %.2f MiB in %s behind the arena, %.2f MiB %s (measured)\n",
                   far->asked[k] / 1048576.0, name[k], far->found[k] / 1048576.0, there[k]);
    fflush(stdout);
}

/* JSON has no NaN. */
static void json_real(FILE *file, const char *key, double value)
{
    if (isfinite(value))
        fprintf(file, ",\"%s\":%.17g", key, value);
    else
        fprintf(file, ",\"%s\":null", key);
}

static void bar_draw(int64_t done, int64_t steps, double eta_s)
{
    int cells = steps > 0 ? (int)(done * BAR_CELLS / steps) : BAR_CELLS;
    printf("[");
    for (int i = 0; i < BAR_CELLS; i++)
        putchar(i < cells ? '#' : '.');
    printf("] %lld/%lld  %.0f:%02.0f left", (long long)done, (long long)steps, floor(eta_s / 60),
           floor(fmod(eta_s, 60)));
}

void lp_log_step(LpSelf *self, const LpStepFigures *figures)
{
    LpLog *log = self->log;
    if (!log)
        return;
    const LpJob *job = self->rank.job;
    double seconds = figures->ms * 1e-3;
    double tokens_per_s = (double)job->tokens_per_step / seconds;
    double flops = (double)job->flops_per_step / seconds;
    double mfu = job->peak_flops > 0 ? flops / ((double)job->peak_flops * job->ranks) : NAN;
    if (log->steps++ == 0)
        log->first_ms = figures->ms;
    else
        log->rest_ms += figures->ms;
    log->last_loss = figures->loss;
    int64_t steps = self->rank.options->steps;
    double each_ms = log->steps > 1 ? log->rest_ms / (double)(log->steps - 1) : figures->ms;
    double eta_s = (double)(steps - figures->step - 1) * each_ms * 1e-3;
    if (log->json) {
        fprintf(log->json, "{\"step\":%lld", (long long)figures->step);
        json_real(log->json, "loss", figures->loss);
        for (int i = 0; i < self->besides; i++) {
            char key[] = "loss_ahead_0";
            key[sizeof key - 2] = (char)('1' + i);
            json_real(log->json, key, self->beside[i]);
        }
        json_real(log->json, "grad_norm", figures->grad_norm);
        json_real(log->json, "lr", figures->lr);
        if (job->scales_loss)
            fprintf(log->json, ",\"loss_scale\":%.0f,\"skipped\":%s", figures->loss_scale,
                    self->scaler.bad ? "true" : "false");
        json_real(log->json, "ms", figures->ms);
        json_real(log->json, "tokens_per_s", tokens_per_s);
        json_real(log->json, "mfu", mfu);
        fprintf(log->json, ",\"peak_bytes\":%lld}\n", (long long)figures->peak_bytes);
        fflush(log->json);
    }
    if (self->rank.options->quiet)
        return;
    if (log->terminal)
        printf("\r\033[K");
    printf("step %lld/%lld  loss %.6f", (long long)figures->step, (long long)steps, figures->loss);
    for (int i = 0; i < self->besides; i++)
        printf("  ahead %d %.6f", i + 1, self->beside[i]);
    printf("  norm %.4f  lr %.3e  %.1f ms  %.0f tok/s  %.2f GFLOP/s", figures->grad_norm,
           figures->lr, figures->ms, tokens_per_s, flops / job->ranks * 1e-9);
    if (isfinite(mfu))
        printf("  mfu %.1f%%", mfu * 100);
    if (job->scales_loss)
        printf("  scale %.0f%s", figures->loss_scale, self->scaler.bad ? " skipped" : "");
    printf("  peak %.2f GiB  eta %.0f:%02.0f\n", (double)figures->peak_bytes / 1073741824.0,
           floor(eta_s / 60), floor(fmod(eta_s, 60)));
    if (log->terminal && figures->step + 1 < steps)
        bar_draw(figures->step + 1, steps, eta_s);
    fflush(stdout);
}

void lp_log_evaluation(LpSelf *self, int64_t step)
{
    LpLog *log = self->log;
    if (!log)
        return;
    double tokens = self->evaluated_tokens, loss = self->evaluated[0] / tokens;
    if (log->json) {
        fprintf(log->json, "{\"eval_step\":%lld", (long long)step);
        json_real(log->json, "eval_loss", loss);
        for (int k = 1; k < self->evaluated_losses; k++) {
            char key[] = "eval_loss_ahead_0";
            key[sizeof key - 2] = (char)('0' + k);
            json_real(log->json, key, self->evaluated[k] / tokens);
        }
        json_real(log->json, "eval_ppl", exp(loss));
        fprintf(log->json, ",\"eval_tokens\":%.0f,\"eval_batches\":%lld}\n", tokens,
                (long long)self->evaluated_batches);
        fflush(log->json);
    }
    if (self->rank.options->quiet)
        return;
    if (log->terminal)
        printf("\r\033[K");
    printf("eval step %lld  loss %.6f", (long long)step, loss);
    for (int k = 1; k < self->evaluated_losses; k++)
        printf("  ahead %d %.6f", k, self->evaluated[k] / tokens);
    printf("  ppl %.4f  %.0f tokens\n", exp(loss), tokens);
    fflush(stdout);
}

void lp_log_end(LpSelf *self)
{
    LpLog *log = self->log;
    if (!log || log->steps == 0 || self->rank.options->quiet)
        return;
    double ms = log->steps > 1 ? log->rest_ms / (double)(log->steps - 1) : log->first_ms;
    if (log->terminal)
        printf("\r\033[K");
    printf("%lld steps  loss %.6f  %.1f ms/step  %.0f tok/s (without the first step, %.1f ms)\n",
           (long long)log->steps, log->last_loss, ms,
           (double)self->rank.job->tokens_per_step * 1e3 / ms, log->first_ms);
    fflush(stdout);
}

void lp_log_close(LpSelf *self)
{
    LpLog *log = self->log;
    if (log && log->json)
        fclose(log->json);
    free(log);
    self->log = NULL;
}
