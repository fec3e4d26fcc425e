/* prove.c - image, machine, oracle, comparison. */
#include "ir/lower/prove.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "ir/base/rng.h"
#include "ir/eval.h"
#include "ir/lower/execute.h"
#include "ir/lower/image.h"

ProveOptions prove_default(void)
{
    return (ProveOptions){
        .rounds = 2, .orders = 3, .mutations = true, .seed = 1, .tolerance = 1e-10};
}

typedef struct Trial {
    Arena *arena;
    const Plan *plan;
    const Net *net;
    int rounds;
    double lr;
    double **param;      /* initial */
    EvalBatch *batch;    /* rounds * micros */
    const int *delay;    /* [stages] steps by which weights are stale, or NULL */
    double *loss, *norm; /* oracle, per round; net_losses of it */
    double *evaluated;   /* oracle: losses of an evaluation before each round */
    double ***want;      /* oracle: parameters after each round */
} Trial;

/* Gains and biases around where they start, everything random: nothing is symmetric. */
static void make_params(Trial *trial, uint64_t seed)
{
    const Net *net = trial->net;
    trial->param = ARENA_ARRAY(trial->arena, double *, net->params.n);
    for (int p = 0; p < net->params.n; p++) {
        const Param *info =
            &net->classes.at[net->params.at[p].class]->params.at[net->params.at[p].param];
        int64_t n = eval_param_elements(net, p);
        trial->param[p] = ARENA_ARRAY(trial->arena, double, n);
        for (int64_t i = 0; i < n; i++) {
            double noise = rng_normal(seed, (uint64_t)p, (uint64_t)i);
            trial->param[p][i] = info->init == INIT_ONES ? 1 + 0.2 * noise : 0.3 * noise;
        }
    }
}

/* Does the first row of a step have no tokens? Where it is one of two, a rank or a micro-batch
 * would then have nothing to add to what the other has, and a sum that is forgotten would not show.
 */
static bool has_empty_row(const Trial *trial)
{
    return trial->net->dims.at[trial->net->batch].extent * trial->plan->micro_batches > 2;
}

/* Uneven masks: each micro-batch has its own share of valid tokens. The weight of a token is mask /
 * valid tokens of the whole step. */
static void make_batches(Trial *trial, uint64_t seed)
{
    const Net *net = trial->net;
    int micros = trial->plan->micro_batches;
    int64_t batch = net->dims.at[net->batch].extent, sequence = net->dims.at[net->sequence].extent;
    int64_t vocabulary = 1, tokens = batch * sequence;
    for (int c = 0; c < net->classes.n; c++)
        for (int n = 0; n < net->classes.at[c]->nodes.n; n++) {
            const Node *node = &net->classes.at[c]->nodes.at[n];
            for (int l = 0; l < node->sig.letters && node->ins == 2; l++)
                if ((node->sig.base >> l & 1) &&
                    net->classes.at[c]->values.at[node->in[0]].kind == VALUE_DATA)
                    vocabulary = net->dims.at[node->sig.dim[l]].used;
        }
    trial->batch = ARENA_ARRAY(trial->arena, EvalBatch, trial->rounds * micros);
    for (int r = 0; r < trial->rounds; r++) {
        double valid = 0;
        double *data[DATA_COUNT];
        for (int d = 0; d < DATA_COUNT; d++)
            data[d] = ARENA_ARRAY(trial->arena, double, tokens *micros);
        for (int64_t i = 0; i < tokens * micros; i++) {
            uint64_t stream = 1000 + (uint64_t)r;
            data[DATA_IDS][i] =
                (double)(rng_u64(seed, stream, (uint64_t)(3 * i)) % (uint64_t)vocabulary);
            data[DATA_LABELS][i] =
                (double)(rng_u64(seed, stream, (uint64_t)(3 * i + 1)) % (uint64_t)vocabulary);
            double share = 0.9 - 0.3 * (double)(i / tokens % 3);
            bool mask = rng_unit(seed, stream, (uint64_t)(3 * i + 2)) < share &&
                        (i >= sequence || !has_empty_row(trial));
            data[DATA_WEIGHT][i] = mask;
            valid += mask;
            /* about every fourth token begins a document */
            int64_t at = i % sequence;
            bool begins = at == 0 || rng_u64(seed, stream + 500, (uint64_t)i) % 4 == 0;
            data[DATA_STARTS][i] = begins ? (double)at : data[DATA_STARTS][i - 1];
            for (int ahead = 1; ahead <= MOST_AHEAD; ahead++) {
                uint64_t r = rng_u64(seed, stream + 500 + (uint64_t)ahead, (uint64_t)i);
                data[data_labels(ahead)][i] = (double)(r / 8 % (uint64_t)vocabulary);
                data[data_weight(ahead)][i] = mask && r % 4;
            }
        }
        for (int64_t i = 0; i < tokens * micros; i++)
            for (int ahead = 0; ahead <= MOST_AHEAD; ahead++)
                data[data_weight(ahead)][i] /= valid > 0 ? valid : 1;
        for (int m = 0; m < micros; m++) {
            EvalBatch *at = &trial->batch[r * micros + m];
            for (int d = 0; d < DATA_COUNT; d++)
                at->data[d] = data[d] + m * tokens;
            at->seed = seed;
            at->sample = (r * micros + m) * batch;
        }
    }
}

/* The parameters that forward and backward of a step read: those with which an earlier step began,
 * each as many steps ago as its stage says. */
static void read_params(const Trial *trial, int round, double *const *newest, const double **ret)
{
    const Plan *plan = trial->plan;
    for (int p = 0; p < trial->net->params.n; p++) {
        int chunk = 0, link = trial->net->params.at[p].link[0];
        while (link >= plan->first_link[chunk + 1])
            chunk++;
        int delay = trial->delay ? trial->delay[plan->holder[chunk]] : 0;
        int version = round > delay ? round - delay : 0;
        ret[p] = version == round ? newest[p]
                 : version == 0   ? trial->param[p]
                                  : trial->want[version - 1][p];
    }
}

/* Nothing is dropped, and the newest weights are read. */
static void evaluate(const Trial *trial, int round, const double *const *param)
{
    int micros = trial->plan->micro_batches;
    EvalBatch *batch = ARENA_ARRAY(trial->arena, EvalBatch, micros);
    for (int m = 0; m < micros; m++) {
        batch[m] = trial->batch[round * micros + m];
        batch[m].evaluates = true;
    }
    eval_net_losses(trial->net, param, batch, micros,
                    &trial->evaluated[round * net_losses(trial->net)]);
}

/* The un-lowered graph, step by step. */
static void run_oracle(Trial *trial)
{
    const Net *net = trial->net;
    const Job *job = &trial->plan->job;
    int params = net->params.n, micros = trial->plan->micro_batches;
    double **set[4];
    for (int k = 0; k < 4; k++) {
        set[k] = ARENA_ARRAY(trial->arena, double *, params);
        for (int p = 0; p < params; p++)
            set[k][p] = ARENA_ARRAY(trial->arena, double, eval_param_elements(net, p));
    }
    for (int p = 0; p < params; p++)
        memcpy(set[0][p], trial->param[p], (size_t)eval_param_elements(net, p) * sizeof(double));
    EvalAdam adam = {job->beta1, job->beta2, job->eps, job->decay, job->clip, job->muon, true};
    int losses = net_losses(net);
    trial->loss = ARENA_ARRAY(trial->arena, double, trial->rounds *losses);
    trial->evaluated = ARENA_ARRAY(trial->arena, double, trial->rounds *losses);
    trial->norm = ARENA_ARRAY(trial->arena, double, trial->rounds);
    trial->want = ARENA_ARRAY(trial->arena, double **, trial->rounds);
    const double **read = ARENA_ARRAY(trial->arena, const double *, params);
    for (int r = 0; r < trial->rounds; r++) {
        for (int p = 0; p < params; p++)
            memset(set[3][p], 0, (size_t)eval_param_elements(net, p) * sizeof(double));
        read_params(trial, r, set[0], read);
        if (losses > 1)
            eval_net_losses(net, read, &trial->batch[r * micros], micros, &trial->loss[r * losses]);
        evaluate(trial, r, (const double *const *)set[0]);
        trial->loss[r * losses] = eval_net(net, read, &trial->batch[r * micros], micros, set[3]);
        trial->norm[r] = eval_step(net, &adam, trial->lr, r + 1, set[0], set[1], set[2],
                                   (const double *const *)set[3]);
        trial->want[r] = ARENA_ARRAY(trial->arena, double *, params);
        for (int p = 0; p < params; p++) {
            size_t bytes = (size_t)eval_param_elements(net, p) * sizeof(double);
            trial->want[r][p] = arena_alloc(trial->arena, bytes);
            memcpy(trial->want[r][p], set[0][p], bytes);
        }
    }
}

static void note(ProveReport *report, double error, const char *what)
{
    if (isnan(error))
        error = INFINITY;
    if (error > report->max_error || !report->worst) {
        report->max_error = error > report->max_error ? error : report->max_error;
        report->worst = what;
    }
}

/* One run of the machine, compared with the oracle: the largest relative error; infinite on a
 * fault. */
static double compare(Machine *machine, const Trial *trial, uint64_t order,
                      const Mutation *mutation, double tolerance, ProveReport *report)
{
    const char *fault;
    machine_restart(machine);
    if (!machine_run(machine, trial->batch, trial->rounds, trial->lr, order, mutation, &fault)) {
        if (!report->fault)
            report->fault = fault;
        note(report, INFINITY, "a fault");
        return report->max_error;
    }
    for (int r = 0; r < trial->rounds; r++) {
        double norm = sqrt(machine_norm2(machine, r));
        for (int k = 0, n = net_losses(trial->net); k < n; k++)
            note(report, machine_relative(machine_loss(machine, r, k), trial->loss[r * n + k]),
                 "loss");
        note(report, machine_relative(norm, trial->norm[r]), "gradient norm");
        if (mutation && report->max_error > tolerance)
            return report->max_error; /* the run may have ended here */
    }
    int evaluations = !report->evaluates ? 0 : machine_flows(machine) ? 1 : trial->rounds;
    for (int k = 0; k < evaluations * net_losses(trial->net); k++)
        note(report, machine_relative(machine_evaluated(machine, 0, k), trial->evaluated[k]),
             "loss of an evaluation");
    for (int p = 0; p < trial->net->params.n; p++)
        note(report, machine_param_error(machine, p, trial->want[trial->rounds - 1][p]),
             trial->net->params.at[p].name);
    return report->max_error;
}

/* What the last bit of the weights makes of a trial: the largest relative difference of two runs of
 * the oracle, of which one begins with every weight up or down by half a unit or so. Steps that
 * follow each other may be steep; rounding is then seen larger than it is made. */
static double last_bit_error(const Trial *trial, uint64_t seed)
{
    const Net *net = trial->net;
    Trial other = *trial;
    other.param = ARENA_ARRAY(trial->arena, double *, net->params.n);
    for (int p = 0; p < net->params.n; p++) {
        int64_t n = eval_param_elements(net, p);
        other.param[p] = ARENA_ARRAY(trial->arena, double, n);
        for (int64_t i = 0; i < n; i++)
            other.param[p][i] =
                trial->param[p][i] *
                (1 + DBL_EPSILON * (2 * rng_unit(seed, (uint64_t)p, (uint64_t)i) - 1));
    }
    run_oracle(&other);
    double most = 0;
    for (int r = 0; r < trial->rounds; r++) {
        most = fmax(most, machine_relative(other.norm[r], trial->norm[r]));
        for (int k = 0, n = net_losses(net); k < n; k++)
            most = fmax(most, machine_relative(other.loss[r * n + k], trial->loss[r * n + k]));
    }
    for (int p = 0; p < net->params.n; p++) {
        const double *got = other.want[trial->rounds - 1][p],
                     *want = trial->want[trial->rounds - 1][p];
        double scale = 1e-30, apart = 0;
        for (int64_t i = 0; i < eval_param_elements(net, p); i++) {
            scale = fmax(scale, fabs(want[i]));
            apart = fmax(apart, fabs(got[i] - want[i]));
        }
        most = fmax(most, apart / scale);
    }
    return most;
}

/* The error up to which a plan is equal: what was asked for, but where rounding alone comes near to
 * that, some times what the last bit of the weights makes. No fault is as small as the cap. */
static double fair_tolerance(const Trial *trial, const ProveOptions *options, ProveReport *report)
{
    enum { SEEDS = 3 };
    if (report->max_error <= options->tolerance || report->fault || isinf(report->max_error))
        return options->tolerance;
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        report->last_bit = fmax(report->last_bit, last_bit_error(trial, seed));
    return fmax(options->tolerance, fmin(8 * report->last_bit, 1e-6));
}

static void count_reach(const Program *program, ProveReport *report)
{
    bool op[OP_COUNT] = {false};
    for (int s = 0; s < program->stages; s++) {
        Arena *scratch = arena_new("reach");
        Walk *walk = walk_begin(scratch, program, s, 0, 1);
        for (const Step *step; (step = walk_next(walk)) != NULL;) {
            report->steps += mesh_ranks(&program->plan->mesh);
            if (step->move)
                report->reached_moves[step->move->kind]++;
            if (step->node)
                op[step->node->op] = true;
            for (int i = 0; step->inst && i < step->inst->nodes; i++)
                op[step->body->graph->nodes.at[step->inst->node[i]].op] = true;
        }
        arena_free(scratch);
    }
    for (int i = 0; i < OP_COUNT; i++)
        report->reached_ops += op[i];
}

static void count_memory(const Machine *machine, ProveReport *report)
{
    for (int s = 0; s < report->stages; s++)
        for (int m = 0; m < MEMORY_COUNT; m++) {
            int64_t touched = machine_touched(machine, s, (Memory)m);
            int64_t layout = machine_laid_out(machine, s, (Memory)m);
            if (touched > report->touched_bytes[m])
                report->touched_bytes[m] = touched;
            if (layout > report->layout_bytes[m])
                report->layout_bytes[m] = layout;
        }
}

static bool run_mutations(Arena *arena, Machine *machine, const Trial *trial, double tolerance,
                          ProveReport *report)
{
    bool good = true;
    int sites = machine_sites(machine, MUTATE_NONE);
    machine_expect(machine, trial->norm, tolerance);
    for (int i = 0; i < sites; i++) {
        Mutation mutation = machine_site(machine, i);
        ProveReport own = {0};
        double error = compare(machine, trial, 0, &mutation, tolerance, &own);
        MutationReport row = {machine_site_name(arena, machine, &mutation),
                              machine_equivalent(machine, &mutation), error, false};
        if (!row.equivalent && error <= tolerance && mutation.kind == MUTATE_SKIP) {
            mutation.poison = true;
            ProveReport again = {0};
            if (compare(machine, trial, 0, &mutation, tolerance, &again) <= tolerance)
                row.equivalent = "what others give reaches no result, not even as NaN";
        }
        row.good = row.equivalent ? error <= tolerance : error > tolerance;
        report->tried++;
        report->equivalent += row.equivalent != NULL;
        report->caught += !row.equivalent && row.good;
        good &= row.good;
        vec_push(arena, &report->mutations) = row;
    }
    return good;
}

bool prove_numeric(Arena *arena, Diag *diag, const Plan *plan, const Net *net,
                   const ProveOptions *options, ProveReport *ret)
{
    *ret = (ProveReport){0};
    Net *small;
    Plan *image = plan_image(arena, diag, plan, net, &small);
    if (!image)
        return false;
    /* clip is active: the norm of such random weights is far above it */
    image->job.clip = image->job.clip > 0 ? 0.05 : image->job.clip;
    /* nearly linear in the gradient: else one that is small would be judged by its rounding */
    image->job.eps = image->job.eps > 1 ? image->job.eps : 1;
    /* of a matrix that is small as a whole, less than of an element: all of it counts */
    image->job.muon.eps = image->job.muon.eps > 1e-2 ? image->job.muon.eps : 1e-2;
    const Program *program = program_build(arena, image, small, NULL, NULL);
    const int *delay = plan_rows(arena, diag, image)->delay;
    Trial trial = {.arena = arena,
                   .plan = image,
                   .net = small,
                   .rounds = options->rounds + program_rounds(program) - 2,
                   /* where nothing is clipped, gradients as they come would throw weights far */
                   .lr = image->job.clip > 0 ? 1 : 1.0 / 16,
                   .delay = delay};
    make_params(&trial, options->seed);
    make_batches(&trial, options->seed);
    run_oracle(&trial);
    Machine *machine = machine_new(arena, program);
    machine_set_params(machine, (const double *const *)trial.param);
    ret->ranks = image->ranks;
    ret->stages = image->stages;
    ret->micros = image->micro_batches;
    ret->params = small->params.n;
    ret->rounds = trial.rounds;
    ret->empty_row = has_empty_row(&trial);
    ret->clips = image->job.clip > 0;
    ret->flows = program->flows;
    for (int order = 0; order <= options->orders; order++)
        compare(machine, &trial, (uint64_t)order, NULL, options->tolerance, ret);
    Machine *evaluating = machine_new_evaluating(arena, program);
    machine_set_params(evaluating, (const double *const *)trial.param);
    ret->evaluates = true;
    for (int order = 0; order <= (options->orders > 0); order++)
        compare(evaluating, &trial, (uint64_t)order, NULL, options->tolerance, ret);
    ret->evaluates = false;
    count_memory(machine, ret);
    count_reach(program, ret);
    if (!ret->fault && trial.norm[0] < 1e-9)
        ret->fault = "the image has no gradient: to be equal says nothing";
    double tolerance = fair_tolerance(&trial, options, ret);
    ret->equal = !ret->fault && ret->max_error <= tolerance;
    bool good = ret->equal;
    if (good && options->mutations)
        good = run_mutations(arena, machine, &trial, tolerance, ret);
    return good;
}
