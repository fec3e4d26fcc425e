/* op_cases.h - every op on small operands: signatures and attributes that between them use each
 * field of ops.def and attrs.def, and the graph of one case. */
#ifndef LPLAN_TESTS_IR_OP_CASES_H
#define LPLAN_TESTS_IR_OP_CASES_H

#include "tests/ir/nets.h"

typedef struct OpCase {
    OpId op;
    const char *sig;
    Attrs attrs;
    unsigned held;   /* operands that count as constants: bit i for operand i */
    unsigned unread; /* outputs that nothing reads */
    bool positive;   /* operands must be more than zero */
} OpCase;

extern const OpCase op_cases[];
extern const int op_case_count;

typedef struct OpBench {
    Arena *arena;
    Net *net;
    Graph *graph;
    NodeId node;    /* the one under test; forward nodes behind it weigh its results */
    double **value; /* per value, NULL where a node makes it */
} OpBench;

/* The node of a case; when its op has a gradient also the weighted sum of its results,
 * differentiated. Inputs are filled: floats are normal, indices begin at -1 (nobody) and stay below
 * the rows of what they address, begins of documents are two documents a row. Free with
 * arena_free(bench.arena). */
OpBench op_bench(const OpCase *of);
bool op_has_gradient(OpId op);
/* One line that says which case it is. */
const char *op_case_text(const OpBench *bench);

#endif
