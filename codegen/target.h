/* target.h - what differs between C for the host and CUDA: words first, then five hooks. */
#ifndef LPLAN_CODEGEN_TARGET_H
#define LPLAN_CODEGEN_TARGET_H

#include "codegen/emit.h"
#include "codegen/rows.h"

typedef struct RowPrinter RowPrinter;

typedef struct TargetWord {
    const char *name, *spelled; /* "exp", "lp_expf" */
} TargetWord;

typedef struct Target {
    const char *name;
    const char *head; /* of a kernel, up to its name */
    const char *restrict_;
    const char *flag;  /* type of `first` */
    const char *table; /* head of a constant table of the rotation frequencies, up to its name */
    const char *element[DT_COUNT]; /* type of an element in memory */
    const char *load[DT_COUNT];    /* around the element: %s */
    const char *assign[DT_COUNT];  /* statement that stores: place %s, value %s */
    TargetWord words[16];          /* of terms.def, and "inf" */
    const char *cosine, *sine;
    bool turn_tables;     /* cosines and sines are computed once per position, into local arrays */
    bool single_row_loop; /* a program of one row is a loop too: only one block has it */
    const char *columns;  /* head of a loop over columns: begin, end (%s %s) */
    const char *simd;     /* pragma before it, or NULL */
    const char *shared;   /* declares what `sum` and `max` need, or NULL */
    const char *sum,
        *max; /* statement that makes the row's number of each thread's part (%s twice), or NULL */
    const char *once; /* guard of a store that one thread does, or NULL */
    /* Hooks: the loop over all rows, the loop over all elements of a program without rows, the
     * reduction over rows. */
    void (*rows_open)(RowPrinter *printer);
    void (*flat_open)(RowPrinter *printer);
    void (*totals)(RowPrinter *printer);
} Target;

extern const Target target_host, target_cuda;

/* The kernel's text, under the given name. */
char *rows_print(Arena *arena, const RowProgram *program, const Target *target, const char *name);

/* What hooks need of the printer (rows_print.c). */
typedef struct Lane {
    const char *column; /* text of the column's index */
    enum { LANE_PLAIN, LANE_FIRST, LANE_SECOND, LANE_STILL } turn;
    bool valid;
} Lane;

struct RowPrinter {
    Arena *arena;
    const RowProgram *program;
    const Target *target;
    Emit *emit;
    const char **name[2]; /* per lane and term: the variable that holds it, or NULL */
    int *uses[2];
    Names names;
    int lanes;
    Lane lane[2];
    int pass;          /* which pass over the columns is being printed */
    const char *shift; /* added to row pointers ("tile"), or NULL */
};

/* All passes and stores of one row. */
void print_row_body(RowPrinter *printer);
/* Around what is printed for one row: declares the pointers to the row that it uses, in front of
 * it. */
size_t print_row_begin(RowPrinter *printer);
void print_row_end(RowPrinter *printer, size_t begin);
/* Row numbers up to `pass` passes that columns or stores need. */
void print_row_terms(RowPrinter *printer, int pass);
void print_passes(RowPrinter *printer, bool totals);
/* Starts one set of columns; forgets the variables of the previous one. */
void print_lanes(RowPrinter *printer, int lanes, Lane first, Lane second);
/* Variables for what is used twice in `terms`, then nothing: expressions follow by
 * print_expression. */
void print_shared(RowPrinter *printer, const TermId *terms, int n);
char *print_expression(RowPrinter *printer, TermId term, int lane);
/* Stores a sum over rows at index `at` of its argument, added to what is there unless `fresh` is
 * true; fresh NULL: always stored. */
void print_total(RowPrinter *printer, const RowArg *arg, const char *at, const char *fresh,
                 const char *sum);
/* Numbers of rows that column terms below TOTAL read: computed in a first sweep. */
int print_row_needs(const RowPrinter *printer, TermId *ret_terms, int cap);

#endif
