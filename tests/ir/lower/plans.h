/* plans.h - plans and programs for tests, as a person would pin them. */
#ifndef LPLAN_TESTS_IR_LOWER_PLANS_H
#define LPLAN_TESTS_IR_LOWER_PLANS_H

#include "ir/lower/check.h"

typedef struct PlanCase {
    const char *model;       /* text that begins with '{', or a file below the source root */
    const char *cluster;     /* preset; NULL: host */
    int ranks;               /* 0: as many as the pins say */
    int64_t batch, sequence; /* of the job */
    const char *pins;        /* "tp=2,pp=2,schedule=1f1b" */
    const char *recipe;      /* NULL: fp32; "fp64 muon": with another optimizer than AdamW */
    int64_t bucket_bytes;    /* 0: the planner's */
} PlanCase;

/* Fails the test with the printed errors when there is no such plan. */
Plan *plan_of(Arena *arena, const PlanCase *what, Net **ret_net);
Program *program_of(Arena *arena, const PlanCase *what);
/* The same with rows of given lengths; NULL: every F 1, every B 2, no hop. */
Program *program_timed(Arena *arena, const PlanCase *what, const RowTimes *times);

/* What stands in the way of a plan: a pin that nobody knows, a model that does not read, or what
 * `diag` says. */
typedef struct PlanRefusal {
    const char *pin; /* "zero=3", or NULL */
    bool model;
    Diag *diag;
} PlanRefusal;
/* NULL and the reason instead of a failed test. */
Plan *plan_try(Arena *arena, const PlanCase *what, Net **ret_net, PlanRefusal *ret);
/* Product of the pins that multiply ranks. */
int pins_ranks(const char *pins);

/* A model of tiny_models.h with another number of layers. */
char *model_with_layers(Arena *arena, const char *model, int layers);
/* Small programs that between them have every kind of Step, move and ring; NULL-ended. */
extern const PlanCase plan_cases[];
/* Those, then cases of several chunks on a stage, of a backward in two parts, of a ring and of
 * steps that flow into each other; NULL at the end. */
const PlanCase *plan_case(int i);
/* Runs `body` on the program of every case, each built afresh. */
void program_each(void (*body)(Arena *arena, Program *program, int at));

/* The static proof of two optimizer steps, seen through a tap (or NULL). Fails the test when
 * verdict, faults and errors disagree. */
bool program_holds(const Program *program, const CheckTap *tap, CheckReport *ret);
bool stage_holds(const Program *program, int stage, int coordinate, const CheckTap *tap,
                 CheckReport *ret);

#endif
