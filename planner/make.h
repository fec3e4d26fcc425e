/* make.h - a complete set of pins becomes a Plan: the mesh, the stages, and the classes of its
 * variant. */
#ifndef LPLAN_PLANNER_MAKE_H
#define LPLAN_PLANNER_MAKE_H

#include "planner/variant.h"

/* Gradient buckets close at this size. */
#define PLAN_BUCKET_BYTES (INT64_C(25) << 20)

/* Fills what the pins leave open with the plain choice: tp, pp and zero 1, sp 0, recompute none, dp
 * what is left, micro-batch 1, 1F1B, even layers. */
Pins pins_complete(const Problem *problem, Pins pins);
/* "tp=2,dp=4,pp=2,...", as pins_parse reads it. */
char *pins_text(Arena *arena, const Pins *pins);
/* NULL after an error that says which pin cannot be. The variant may be given when it was solved
 * before for these pins. */
Plan *plan_make(const Problem *problem, const Pins *pins, const Variant *variant, Net **ret_net);
/* The pins that say a plan: what plan_make would take to make it. */
Pins pins_of_plan(const Plan *plan, const Net *net);
/* And the labels that its blocks could have. */
Pins pins_and_labels(const Plan *plan, const Net *net, BlockLabels *ret);
/* What the plan was made for; `net` is the problem's too, whatever its batch. */
Problem problem_of_plan(Arena *arena, const Plan *plan, const Net *net);
/* Do two complete pins say the same plan? */
bool pins_same(const Pins *a, const Pins *b);

#endif
