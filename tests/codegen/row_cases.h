/* row_cases.h - printed row kernels compiled and run against eval_node on the same blocks. */
#ifndef LPLAN_TESTS_CODEGEN_ROW_CASES_H
#define LPLAN_TESTS_CODEGEN_ROW_CASES_H

#include "codegen/rows.h"
#include "codegen/target.h"

typedef struct RowCase {
    const Body *body;
    const Inst *inst;
    const RowProgram *program;
    const char *name;
} RowCase;

typedef VEC(RowCase) RowCaseList;

/* Adds an instruction of the body; fails the test when it has no row program. */
void row_cases_add(Arena *arena, const Body *body, const Inst *inst, RowCaseList *cases);
/* Prints, compiles and runs all of them; fails the test where a number is off by more than the
 * tolerance, relative beyond 1. */
void row_cases_run(Arena *arena, const RowCaseList *cases, const Target *target, double tolerance);

#endif
