/* variant.h - how every class of the model is placed inside a stage: the solver's answer for one tensor-parallel width,
 * micro-batch, sequence and recompute rule.
 *
 * What a layer does inside a stage does not depend on how many data-parallel ranks or stages there
 * are. So classes are solved once on a small mesh, tp atoms and one atom of two data-parallel
 * ranks, and lifted to the mesh of a plan: where that atom stands, the plan's dp atoms stand. */
#ifndef LPLAN_PLANNER_VARIANT_H
#define LPLAN_PLANNER_VARIANT_H

#include "ir/plan.h"
#include "planner/price.h"

/* What is planned for. The model document stays with the caller; `net` is it, read for one sequence
 * a micro-batch (problem_read). */
typedef struct Problem {
    Arena *arena;
    Diag *diag;
    JsonDoc *model;
    Net *net;
    Cluster *cluster;
    Job job;
    int ranks;
} Problem;

/* Reads the model for the job's sequence length; false after errors. */
bool problem_read(Problem *problem);

typedef struct VariantKey {
    int tp;
    int64_t micro_batch; /* sequences per data-parallel rank */
    bool sp, recompute;
} VariantKey;

typedef struct Variant {
    VariantKey key;
    Net *net;   /* read for two data-parallel ranks */
    Mesh mesh;  /* tp atoms, then one dp atom of extent 2 */
    ClassPlan *class;
    Pricer pricer; /* on this net and mesh */
} Variant;

/* NULL after an error in `diag` that says what does not divide. */
Variant *variant_solve(Arena *arena, Diag *diag, const Problem *problem, const VariantKey *key);
/* The class plan on a mesh of the same tp atoms and any dp atoms after them. */
void variant_lift(Arena *arena, const Variant *variant, const Mesh *mesh, int class,
                  ClassPlan *ret);
/* KV heads of the model as the mesh needs them: 0 when there is no attention. */
int64_t model_kv_heads(const Net *net);

#endif
