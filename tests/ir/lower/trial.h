/* trial.h - a plan at its own size, run on all its ranks in fp64 and compared with the un-placed
 * graph. */
#ifndef LPLAN_TESTS_IR_LOWER_TRIAL_H
#define LPLAN_TESTS_IR_LOWER_TRIAL_H

#include "ir/lower/execute.h"
#include "ir/lower/program.h"

/* Which tokens count. Data depend on the sample and the position alone, so that plans which cut one
 * batch otherwise see the same. */
typedef enum {
    MASK_UNEVEN, /* a share of every sequence, another for each */
    MASK_ONE,    /* one token of the whole step, in its first sequence */
    MASK_COUNTS, /* 1, 7, all and none of the tokens, sequence by sequence */
    MASK_PADS,   /* the last third of every sequence does not */
    MASK_HALF,   /* none of the first half of any sequence */
    MASK_ALL
} Mask;

typedef struct TrialSpec {
    int rounds; /* optimizer steps; 0: 2 */
    Mask mask;
    double clip; /* of the norm; 0: none */
    uint64_t seed;
    /* May change the parameters before both sides take them; or NULL. */
    void (*prepare)(const Net *net, double *const *param);
    double weight_scale; /* of all weights of tokens; 0: 1 */
    bool evaluates;     /* between steps (walk_begin_evaluating), on the batches of the next step */
    bool mean_of_means; /* a fault: every micro-batch has its own sum of weights of 1 */
} TrialSpec;

typedef struct Trial {
    Arena *arena;
    Plan *plan;
    const Net *net;
    const Program *program;
    Machine *machine;
    TrialSpec spec;
    double lr;
    double **param; /* initial */
    EvalBatch *batch;
    double *loss, *norm, **want; /* the oracle's, per round; parameters after the last */
    double *beside;              /* [round][1 + MOST_AHEAD]: all losses */
    double *evaluated;           /* [round]: the loss of an evaluation before it */
} Trial;

/* The plan must be of the fp64 recipe; its optimizer is made nearly linear in the gradient, so that
 * parameters show gradients: w - 0.1 g. */
Trial *trial_new(Arena *arena, Plan *plan, const Net *net, const TrialSpec *spec);
/* Largest relative error over losses, norms and all parameters, infinite on a fault; *ret_what is
 * where. Order 0 is program order, others are drawn among those that events allow. */
double trial_run(Trial *trial, uint64_t order, const Mutation *mutation, const char **ret_what);
/* After a run: NULL, or what ranks that should agree to the bit do not: a parameter, the clip
 * coefficient. */
const char *trial_drift(const Trial *trial);
/* After a run: a hash over the bits of losses and parameters, padding left out; not of norms, whose
 * terms are added as they are sharded. */
uint64_t trial_bits(const Trial *trial);
/* The oracle's sum of squares of one parameter's gradient in round 0. */
double trial_param_norm2(const Trial *trial, int net_param);
/* The same of all that count in the norm, of the parameters as they are now. */
double trial_norm2(const Trial *trial);

#endif
