/* made.h - plans as a person would pin them on example models, with their families and Programs:
 * what tests compare. */
#ifndef LPLAN_TESTS_PLANNER_MADE_H
#define LPLAN_TESTS_PLANNER_MADE_H

#include "planner/assess.h"
#include "tests/planner/problems.h"

typedef struct Case {
    const char *model, *cluster;
    int devices;
    int64_t batch, sequence;
    const char *recipe, *pins; /* "fp32 muon": by another optimizer than AdamW */
} Case;

typedef struct Made {
    Arena *arena;
    Problem *problem;
    Search *search;
    Family *family;
    Plan *plan;
    Net *net;
    Program *program;
} Made;

Problem *case_problem(Arena *arena, const Case *at);
Made make(const Case *at);
void done(Made *made);
double off(int64_t a, int64_t b); /* |a - b| / b */
/* Of a stage: all of a step, each part not negative. */
int64_t spent_sum(const StageTimes *at);

#endif
