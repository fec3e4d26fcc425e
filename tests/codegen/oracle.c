/* oracle.c - what a trainer's files should hold, by the evaluator of the model in fp64.
 *
 *     oracle MODEL TOKENS LOSSES GRADS WEIGHTS SEQUENCES LENGTH MICRO_BATCHES LR [DELAYS DRAIN]
 *
 * LOSSES: text, one number a step, as many as were trained. GRADS: the gradients of the first step.
 * WEIGHTS: after the last. Initial weights are those of seed 0. Prints the worst distances.
 * DELAYS: for every link of the chain, by how many steps the weights of forward and backward are
 * older than the newest, "2,2,1,0"; then nothing is clipped. Every DRAIN steps (0: never) they are
 * the newest again. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/eval.h"
#include "ir/model.h"
#include "ir/plan.h"
#include "runtime/io/safetensors.h"
#include "runtime/io/stored.h"

enum { HEADER_WORDS = 256 };

typedef struct Oracle {
    Arena *arena;
    Net *net;
    LpTensor *tensors;
    int64_t rows, length;
    int micros, steps;
    double **param, **grad, **m, **v, *loss;
    int32_t *tokens;
    int *delay; /* per parameter, or NULL */
    int drain;
    double ***after; /* [step] parameters before that step, where there are delays */
} Oracle;

static void fail(const char *what)
{
    fprintf(stderr, "oracle: %s\n", what);
    exit(1);
}

/* As runtime/io/data.c cuts it: sample i is tokens [i length, i length + length]. */
static void tokens_read(Oracle *o, const char *path)
{
    int32_t header[HEADER_WORDS];
    FILE *file = fopen(path, "rb");
    if (!file || fread(header, 4, HEADER_WORDS, file) != HEADER_WORDS)
        fail("no tokens");
    uint16_t *small = ARENA_ARRAY(o->arena, uint16_t, header[2]);
    if (fread(small, 2, (size_t)header[2], file) != (size_t)header[2] ||
        header[2] < o->steps * o->micros * o->rows * o->length + 1)
        fail("too few tokens");
    fclose(file);
    o->tokens = ARENA_ARRAY(o->arena, int32_t, header[2]);
    for (int i = 0; i < header[2]; i++)
        o->tokens[i] = small[i];
}

static EvalBatch batch_of(const Oracle *o, int step, int micro)
{
    EvalBatch batch = {0};
    int64_t n = o->rows * o->length, first = ((int64_t)step * o->micros + micro) * n;
    double *data[DATA_COUNT];
    for (int d = 0; d < DATA_COUNT; d++)
        batch.data[d] = data[d] = ARENA_ARRAY(o->arena, double, n);
    for (int64_t i = 0; i < n; i++) {
        data[DATA_IDS][i] = o->tokens[first + i];
        data[DATA_LABELS][i] = o->tokens[first + i + 1];
        data[DATA_WEIGHT][i] = 1.0 / (double)(n * o->micros);
        for (int ahead = 1; ahead <= MOST_AHEAD; ahead++) {
            bool there = i % o->length + ahead < o->length;
            data[data_labels(ahead)][i] = there ? o->tokens[first + i + 1 + ahead] : 0;
            data[data_weight(ahead)][i] = there ? data[DATA_WEIGHT][i] : 0;
        }
    }
    return batch;
}

/* The table of a trainer, and its initial values. */
static void params_make(Oracle *o)
{
    static const LpFill fill[] = {
        [INIT_NORMAL] = LP_NORMAL, [INIT_ONES] = LP_ONES, [INIT_ZEROS] = LP_ZEROS};
    int n = o->net->params.n;
    o->tensors = ARENA_ARRAY(o->arena, LpTensor, n);
    double ***all[] = {&o->param, &o->grad, &o->m, &o->v};
    for (int k = 0; k < 4; k++)
        *all[k] = ARENA_ARRAY(o->arena, double *, n);
    for (int i = 0; i < n; i++) {
        const NetParam *net_param = &o->net->params.at[i];
        const Graph *graph = o->net->classes.at[net_param->class];
        const Param *param = &graph->params.at[net_param->param];
        const Value *value = &graph->values.at[param->value];
        LpTensor *tensor = &o->tensors[i];
        *tensor = (LpTensor){.name = net_param->name,
                             .ndims = param->stored,
                             .fill = fill[param->init],
                             .std = param->std,
                             .tied = net_param->uses > 1};
        LpShard whole = {.ndims = param->stored};
        for (int d = 0, axis = 0; d < param->stored; d++) {
            tensor->dims[d] = 1;
            for (int k = 0; k < param->group[d]; k++)
                tensor->dims[d] *= o->net->dims.at[value->dim[axis++]].extent;
            whole.dims[d] = whole.extent[d] = tensor->dims[d];
        }
        for (int k = 0; k < 4; k++)
            (*all[k])[i] = ARENA_ARRAY(o->arena, double, lp_tensor_count(tensor));
        /* The trainer begins with these, rounded. */
        float *first = ARENA_ARRAY(o->arena, float, lp_tensor_count(tensor));
        lp_fill_shard(first, LP_F32, &whole, tensor->fill, tensor->std, 0, i);
        for (int64_t e = 0; e < lp_tensor_count(tensor); e++)
            o->param[i][e] = first[e];
    }
}

static double distance(const double *got, const double *want, int64_t n)
{
    double over = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        over += (got[i] - want[i]) * (got[i] - want[i]);
        all += want[i] * want[i];
    }
    return all > 0 ? sqrt(over / all) : sqrt(over);
}

static void compare(const Oracle *o, const char *what, const char *path, double *const *want)
{
    char error[1024];
    int n = o->net->params.n;
    LpStored *stored = lp_stored_new(o->tensors, n, error, sizeof error);
    LpWeights *weights = stored ? lp_weights_open(path, error, sizeof error) : NULL;
    if (!weights)
        fail(error);
    double worst = 0;
    const char *name = "none";
    for (int i = 0; i < n; i++) {
        int64_t count = lp_tensor_count(&o->tensors[i]);
        double *got = ARENA_ARRAY(o->arena, double, count);
        for (int64_t at = 0, run; at < count; at += run) {
            int index;
            int64_t begin;
            run = lp_stored_run(stored, i, at, count - at, &index, &begin);
            const LpEntry *entry = lp_weights_find(weights, stored->tensors[index].name);
            if (!entry || !lp_weights_read_run(weights, entry, begin, run, got, at, LP_F64, NULL,
                                               error, sizeof error))
                fail(stored->tensors[index].name);
        }
        double far = distance(got, want[i], count);
        if (!(far <= worst)) {
            worst = far;
            name = o->tensors[i].name;
        }
    }
    printf("%s %.3e %s\n", what, worst, name);
    lp_weights_close(weights);
    lp_stored_free(stored);
}

static void losses_read(Oracle *o, const char *path)
{
    FILE *file = fopen(path, "r");
    double value;
    VEC(double) losses = {0};
    while (file && fscanf(file, "%lf", &value) == 1)
        vec_push(o->arena, &losses) = value;
    if (!file || losses.n == 0)
        fail("no losses");
    fclose(file);
    o->loss = losses.at;
    o->steps = losses.n / net_losses(o->net);
}

/* Of each parameter's link. */
static void delays_read(Oracle *o, const char *text)
{
    int link[256], n = 0;
    for (const char *at = text; n < 256; at = strchr(at, ',') + 1) {
        link[n++] = atoi(at);
        if (!strchr(at, ','))
            break;
    }
    if (n != o->net->chain.n)
        fail("a delay for every link");
    o->delay = ARENA_ARRAY(o->arena, int, o->net->params.n);
    for (int i = 0; i < o->net->params.n; i++)
        o->delay[i] = link[o->net->params.at[i].link[0]];
    o->after = ARENA_ARRAY(o->arena, double **, o->steps);
}

/* What forward and backward of a step read. */
static const double *const *read_params(Oracle *o, int step)
{
    int n = o->net->params.n;
    const double **read = ARENA_ARRAY(o->arena, const double *, n);
    if (!o->delay)
        return (const double *const *)o->param;
    o->after[step] = ARENA_ARRAY(o->arena, double *, n);
    for (int i = 0; i < n; i++) {
        size_t bytes = (size_t)eval_param_elements(o->net, i) * sizeof(double);
        o->after[step][i] = arena_alloc(o->arena, bytes);
        memcpy(o->after[step][i], o->param[i], bytes);
        int first = o->drain ? step / o->drain * o->drain : 0, version = step - o->delay[i];
        read[i] = o->after[version > first ? version : first][i];
    }
    return read;
}

static void run(Oracle *o, const char *grads, double lr)
{
    Job job = job_default();
    EvalAdam adam = {.muon = job.muon,
                     .beta1 = job.beta1,
                     .beta2 = job.beta2,
                     .eps = job.eps,
                     .decay = job.decay,
                     .clip = o->delay ? 0 : job.clip};
    double worst = 0;
    EvalBatch *batch = ARENA_ARRAY(o->arena, EvalBatch, o->micros);
    for (int step = 0; step < o->steps; step++) {
        for (int micro = 0; micro < o->micros; micro++)
            batch[micro] = batch_of(o, step, micro);
        double loss = eval_net(o->net, read_params(o, step), batch, o->micros, o->grad);
        double all[1 + MOST_AHEAD] = {loss};
        int losses = net_losses(o->net);
        if (losses > 1)
            eval_net_losses(o->net, read_params(o, step), batch, o->micros, all);
        for (int k = 0; k < losses; k++)
            worst = fmax(worst, fabs(o->loss[step * losses + k] - all[k]));
        if (step == 0)
            compare(o, "grads", grads, o->grad);
        eval_step(o->net, &adam, lr, step + 1, o->param, o->m, o->v,
                  (const double *const *)o->grad);
    }
    printf("loss %.3e\n", worst);
}

int main(int argc, char **argv)
{
    if (argc != 10 && argc != 12)
        fail("oracle MODEL TOKENS LOSSES GRADS WEIGHTS SEQUENCES LENGTH MICRO_BATCHES LR "
             "[DELAYS DRAIN]");
    Arena *arena = arena_new("oracle");
    Diag *diag = diag_new(arena);
    Oracle o = {.arena = arena,
                .length = atoll(argv[7]),
                .micros = atoi(argv[8]),
                .rows = atoll(argv[6]) / atoi(argv[8])};
    o.net = model_load(arena, diag, argv[1], o.rows, o.length, 1, NULL);
    diag_print(diag, stderr, false);
    if (!o.net)
        return 1;
    losses_read(&o, argv[3]);
    tokens_read(&o, argv[2]);
    params_make(&o);
    if (argc == 12) {
        delays_read(&o, argv[10]);
        o.drain = atoi(argv[11]);
    }
    run(&o, argv[4], atof(argv[9]));
    compare(&o, "weights", argv[5], o.param);
    arena_free(arena);
    return 0;
}
