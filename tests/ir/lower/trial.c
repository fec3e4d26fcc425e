/* trial.c - plans run at their own size. */
#include "tests/ir/lower/trial.h"

#include <math.h>
#include <string.h>

#include "ir/base/rng.h"
#include "ir/lower/machine.h"
#include "tests/ir/nets.h"

/* ---- data ---- */

static bool counts(const Trial *trial, int64_t sample, int64_t at, int64_t sequence)
{
    static const int64_t first[4] = {1, 7, INT64_MAX, 0};
    switch (trial->spec.mask) {
    case MASK_ONE:
        return sample == 0 && at == 1;
    case MASK_COUNTS:
        return at < first[sample % 4];
    case MASK_PADS:
        return at < sequence - sequence / 3;
    case MASK_ALL:
        return true;
    case MASK_HALF:
        return at >= sequence / 2;
    default:
        return rng_unit(trial->spec.seed, 77 + (uint64_t)sample, (uint64_t)at) <
               0.9 - 0.3 * (double)(sample % 3);
    }
}

/* A number of one token; the same whatever the length of its sequence. */
static double datum(const Trial *trial, int kind, int round, int64_t sample, int64_t at,
                    int64_t sequence, uint64_t words)
{
    uint64_t stream = 1000 * (uint64_t)(round + 1) + (uint64_t)kind;
    uint64_t index = (uint64_t)(4096 * sample + at);
    switch (kind) {
    case DATA_IDS:
    case DATA_LABELS:
        return (double)(rng_u64(trial->spec.seed, stream, index) % words);
    case DATA_WEIGHT:
        return counts(trial, sample, at, sequence);
    default: /* about every fourth token begins a document */
        while (at > 0 && rng_u64(trial->spec.seed, stream, (uint64_t)(4096 * sample + at)) % 4)
            at--;
        return (double)at;
    }
}

static void weigh(Trial *trial, double *const *weight, int micros, int64_t tokens)
{
    double all = 0;
    for (int m = 0; m < micros; m++)
        for (int64_t i = 0; i < tokens; i++)
            all += weight[m][i];
    for (int m = 0; m < micros; m++) {
        double valid = all;
        if (trial->spec.mean_of_means) {
            valid = 0;
            for (int64_t i = 0; i < tokens; i++)
                valid += weight[m][i];
            valid = (valid > 0 ? valid : 1) * micros;
        }
        for (int64_t i = 0; i < tokens; i++)
            weight[m][i] *= (trial->spec.weight_scale > 0 ? trial->spec.weight_scale : 1) / valid;
    }
}

/* A further label is the label of a later token of the sample, and counts as much. */
static void look_ahead(const Net *net, double *const data[DATA_COUNT])
{
    int64_t length = net->dims.at[net->sequence].extent,
            tokens = length * net->dims.at[net->batch].extent;
    for (int ahead = 1; ahead <= MOST_AHEAD; ahead++)
        for (int64_t i = 0; i < tokens; i++) {
            bool there = i % length + ahead < length;
            data[data_labels(ahead)][i] = there ? data[DATA_LABELS][i + ahead] : 0;
            data[data_weight(ahead)][i] = there ? data[DATA_WEIGHT][i + ahead] : 0;
        }
}

static void make_batches(Trial *trial)
{
    const Net *net = trial->net;
    int micros = trial->plan->micro_batches;
    int64_t rows = net->dims.at[net->batch].extent, sequence = net->dims.at[net->sequence].extent;
    uint64_t words = (uint64_t)net->dims.at[net_dim(net, "v")].used;
    double **weight = ARENA_ARRAY(trial->arena, double *, micros);
    trial->batch = ARENA_ARRAY(trial->arena, EvalBatch, trial->spec.rounds * micros);
    for (int r = 0; r < trial->spec.rounds; r++) {
        double *(*data)[DATA_COUNT] = arena_alloc(trial->arena, (size_t)micros * sizeof *data);
        for (int m = 0; m < micros; m++) {
            trial->batch[r * micros + m].sample = (r * micros + m) * rows;
            for (int d = 0; d < DATA_COUNT; d++) {
                double *to = data[m][d] = ARENA_ARRAY(trial->arena, double, rows *sequence);
                for (int64_t i = 0; i < rows * sequence && d < (int)DATA_FURTHER; i++)
                    to[i] =
                        datum(trial, d, r, m * rows + i / sequence, i % sequence, sequence, words);
                trial->batch[r * micros + m].data[d] = to;
                if (d == DATA_WEIGHT)
                    weight[m] = to;
            }
        }
        weigh(trial, weight, micros, rows * sequence);
        for (int m = 0; m < micros; m++)
            look_ahead(net, data[m]);
    }
}

/* ---- the oracle ---- */

static void run_oracle(Trial *trial)
{
    const Job *job = &trial->plan->job;
    const Net *net = trial->net;
    int micros = trial->plan->micro_batches, rounds = trial->spec.rounds;
    double **set[4];
    for (int k = 0; k < 4; k++)
        set[k] = net_zero_params(trial->arena, net);
    for (int p = 0; p < net->params.n; p++)
        memcpy(set[0][p], trial->param[p], (size_t)eval_param_elements(net, p) * sizeof(double));
    EvalAdam adam = {job->beta1, job->beta2, job->eps, job->decay, job->clip, job->muon, true};
    trial->loss = ARENA_ARRAY(trial->arena, double, rounds);
    trial->beside = ARENA_ARRAY(trial->arena, double, rounds *(1 + MOST_AHEAD));
    trial->norm = ARENA_ARRAY(trial->arena, double, rounds);
    trial->want = set[0];
    trial->evaluated = ARENA_ARRAY(trial->arena, double, rounds);
    for (int r = 0; r < rounds; r++) {
        for (int p = 0; p < net->params.n; p++)
            memset(set[3][p], 0, (size_t)eval_param_elements(net, p) * sizeof(double));
        eval_net_losses(net, (const double *const *)set[0], &trial->batch[r * micros], micros,
                        &trial->beside[r * (1 + MOST_AHEAD)]);
        if (trial->spec.evaluates) {
            EvalBatch *batch = ARENA_ARRAY(trial->arena, EvalBatch, micros);
            for (int m = 0; m < micros; m++) {
                batch[m] = trial->batch[r * micros + m];
                batch[m].evaluates = true;
            }
            trial->evaluated[r] = eval_net(net, (const double *const *)set[0], batch, micros, NULL);
        }
        trial->loss[r] =
            eval_net(net, (const double *const *)set[0], &trial->batch[r * micros], micros, set[3]);
        trial->norm[r] = eval_step(net, &adam, trial->lr, r + 1, set[0], set[1], set[2],
                                   (const double *const *)set[3]);
    }
}

static double norm2_of(const Trial *trial, int only)
{
    const Net *net = trial->net;
    Arena *scratch = arena_new("gradients");
    double **grad = net_zero_params(scratch, net), sum = 0;
    eval_net(net, (const double *const *)trial->param, trial->batch, trial->plan->micro_batches,
             grad);
    for (int p = 0; p < net->params.n; p++)
        for (int64_t i = 0; i < eval_param_elements(net, p); i++)
            if (only == p || (only == NONE && eval_param_rate(net, p) == 0))
                sum += grad[p][i] * grad[p][i];
    arena_free(scratch);
    return sum;
}

double trial_param_norm2(const Trial *trial, int net_param)
{
    return norm2_of(trial, net_param);
}

double trial_norm2(const Trial *trial)
{
    return norm2_of(trial, NONE);
}

Trial *trial_new(Arena *arena, Plan *plan, const Net *net, const TrialSpec *spec)
{
    Trial *trial = ARENA_NEW(arena, Trial);
    *trial = (Trial){.arena = arena, .plan = plan, .net = net, .spec = *spec};
    if (trial->spec.rounds == 0)
        trial->spec.rounds = 2;
    plan->job.clip = spec->clip;
    plan->job.eps = 1e4;
    trial->lr = 0.1 * plan->job.eps;
    plan->job.muon.rate /= plan->job.eps; /* steps of matrices are not: their own size, and */
    plan->job.muon.eps = 1e-3;            /* less than the rounding of one with small gradients */
    plan->job.decay = 0.01 / trial->lr;
    trial->param = net_random_params(arena, net, spec->seed);
    for (int p = 0; p < net->params.n; p++) /* norms near 1, so that steps stay small */
        for (int64_t i = 0; i < eval_param_elements(net, p); i++)
            trial->param[p][i] *= 0.7;
    if (spec->prepare)
        spec->prepare(net, trial->param);
    make_batches(trial);
    run_oracle(trial);
    trial->program = program_build(arena, plan, net, NULL, NULL);
    trial->machine =
        (spec->evaluates ? machine_new_evaluating : machine_new)(arena, trial->program);
    return trial;
}

/* ---- runs ---- */

static void note(double error, const char *what, double *worst, const char **ret_what)
{
    if (isnan(error))
        error = INFINITY;
    if (error >= *worst) {
        *worst = error;
        *ret_what = what;
    }
}

double trial_run(Trial *trial, uint64_t order, const Mutation *mutation, const char **ret_what)
{
    Machine *machine = trial->machine;
    const char *fault = NULL;
    double worst = 0;
    *ret_what = "nowhere";
    machine_set_params(machine, (const double *const *)trial->param);
    if (!machine_run(machine, trial->batch, trial->spec.rounds, trial->lr, order, mutation,
                     &fault)) {
        *ret_what = fault;
        return INFINITY;
    }
    for (int r = 0; r < trial->spec.rounds; r++) {
        note(machine_relative(machine_loss(machine, r, 0), trial->loss[r]), "loss", &worst,
             ret_what);
        for (int k = 1; k < net_losses(trial->net); k++)
            note(machine_relative(machine_loss(machine, r, k),
                                  trial->beside[r * (1 + MOST_AHEAD) + k]),
                 "a loss of further tokens", &worst, ret_what);
        note(machine_relative(sqrt(machine_norm2(machine, r)), trial->norm[r]), "gradient norm",
             &worst, ret_what);
        if (trial->spec.evaluates)
            note(machine_relative(machine_evaluated(machine, r, 0), trial->evaluated[r]),
                 "the loss of an evaluation", &worst, ret_what);
    }
    for (int p = 0; p < trial->net->params.n; p++)
        note(machine_param_error(machine, p, trial->want[p]), trial->net->params.at[p].name, &worst,
             ret_what);
    return worst;
}

const char *trial_drift(const Trial *trial)
{
    const Machine *machine = trial->machine;
    Arena *scratch = arena_new("drift");
    const char *drift = NULL;
    for (int p = 0; p < trial->net->params.n && !drift; p++)
        if (!machine_param(machine, p,
                           ARENA_ARRAY(scratch, double, eval_param_elements(trial->net, p))))
            drift = trial->net->params.at[p].name;
    for (int r = 0; r < machine->ranks && !drift; r++) {
        const Rank *first = &machine->rank[0], *rank = &machine->rank[r];
        int64_t a = machine->program->stage[first->stage].scalars,
                b = machine->program->stage[rank->stage].scalars;
        if (memcmp(rank_at(first, a + 64 * SCALAR_COEF), rank_at(rank, b + 64 * SCALAR_COEF),
                   WIDTH))
            drift = "the clip coefficient";
    }
    arena_free(scratch);
    return drift;
}

static uint64_t mix(uint64_t hash, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (hash ^ bits) * UINT64_C(0x100000001b3);
}

uint64_t trial_bits(const Trial *trial)
{
    Arena *scratch = arena_new("bits");
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int r = 0; r < trial->spec.rounds; r++)
        hash = mix(hash, machine_loss(trial->machine, r, 0));
    for (int p = 0; p < trial->net->params.n; p++) {
        const NetParam *use = &trial->net->params.at[p];
        const Graph *graph = trial->net->classes.at[use->class];
        const Value *value = &graph->values.at[graph->params.at[use->param].value];
        int64_t n = eval_param_elements(trial->net, p);
        const Dim *rows = value->axes ? &trial->net->dims.at[value->dim[0]] : NULL;
        double *whole = ARENA_ARRAY(scratch, double, n);
        machine_param(trial->machine, p, whole);
        for (int64_t i = 0; i < (rows ? n / rows->extent * rows->used : n); i++)
            hash = mix(hash, whole[i]);
    }
    arena_free(scratch);
    return hash;
}
