/* rows.h - a row program: what an instruction of row form does with one element, as a graph of
 * scalar terms.
 *
 * The axes of the instruction's widest operand are the space: row axes, then at most one axis of
 * columns (neighbouring axes that every operand steps through together are one). A sum of products
 * that fits no such space is a loop nest: what it keeps are rows, what it sums over columns, each
 * of as many axes as it takes; or a few terms that columns add up at once. A term is worth one
 * number per kernel, per row or per column. A reduction over the columns makes a row number of a
 * column number; whatever depends on it must wait for a whole pass over the row, and `depth` counts
 * these passes: in pass d all reductions whose operand has depth d are computed and all stores of
 * depth d are done. TOTAL reduces over the rows; nothing but a store may use it.
 *
 * The program says nothing about a target: rows_print.c prints it as C and as CUDA. */
#ifndef LPLAN_CODEGEN_ROWS_H
#define LPLAN_CODEGEN_ROWS_H

#include "ir/lower/body.h"

typedef enum TermKind {
#define TERM(id, ...) TERM_##id,
#include "codegen/terms.def"
#undef TERM
    TERM_COUNT
} TermKind;

typedef enum { TYPE_REAL, TYPE_INT, TYPE_BOOL, TYPE_SAME } TermType;
typedef enum { LEVEL_KERNEL, LEVEL_ROW, LEVEL_COLUMN, LEVEL_TOTAL } TermLevel;

typedef int TermId;

typedef struct Term {
    TermKind kind;
    TermType type;
    TermLevel level;
    int depth;
    TermId of[3];
    double number;    /* CONST, WHOLE; LOAD: elements behind the row's and column's place; PART: the
                         product of the extents behind it in its axis */
    int64_t extent;   /* PART: its own, or 0 when it is the major one */
    int ref;          /* LOAD, AT: argument; BASE: base argument; PLACE, PART: axis */
    const char *name; /* what a person would call it, or NULL */
} Term;

typedef struct TermInfo {
    int arity;
    TermType type;
    int precedence;
    const char *text;
} TermInfo;
extern const TermInfo term_info[TERM_COUNT];

/* A plain loop nest has an axis for every letter. */
enum { ROW_AXES = MAX_LETTERS };

typedef struct RowAxis {
    const char *name;
    int64_t extent;
} RowAxis;

typedef struct RowArg {
    const char *name;
    int copy;
    DType dtype;
    bool out, add;            /* add: an accumulator, unless `first` */
    bool columns, rows;       /* has the column axis; has any row axis */
    int64_t stride[ROW_AXES]; /* elements, per axis of the space; 0 where it has none */
    TermId stored;            /* of an output */
} RowArg;

typedef enum {
    BASE_ORIGIN, /* of a copy along one of its axes */
    BASE_SAMPLE, /* the same of the batch, counted over the whole run */
    BASE_SEED,
    BASE_STREAM /* of a site of this layer (draw_stream) */
} BaseKind;

typedef struct RowBase {
    const char *name;
    BaseKind kind;
    int copy, axis; /* ORIGIN, SAMPLE */
    int64_t site;   /* STREAM */
} RowBase;

typedef struct RowTurn { /* of a rope: the columns [0, turned) are turned in pairs */
    int64_t turned;
    bool interleaved;
    int axis; /* of the space: positions */
    int base; /* base argument of the positions */
    int64_t run,
        runs;    /* the order of the sequence: runs of this length, 0 where it lies as it is */
    int starts;  /* argument that positions are counted from, or NONE */
    double gain; /* on cosines and sines */
    double *frequency; /* turned / 2 of them, radians a position */
} RowTurn;

typedef struct RowProgram {
    Arena *arena;
    const char *name; /* of the ops and the extents; the same for equal programs */
    int axes, rows;   /* axes [0, rows) are rows, the others columns: one, but in loop nests */
    int outer; /* axes [0, outer) are spread over threads or blocks; outer < rows only under a turn
                */
    RowAxis axis[ROW_AXES];
    bool padded;  /* columns at or beyond used - base are padding */
    int64_t used; /* of the column axis, global */
    int used_base;
    bool turns, totals, adds;
    int depth; /* of the deepest store */
    RowTurn turn;
    VEC(Term) terms;
    VEC(RowArg) args;
    VEC(RowBase) bases;
} RowProgram;

/* The program of an instruction, NULL after an error was appended: a form that the space cannot
 * express. */
RowProgram *rows_build(Arena *arena, Diag *diag, const Body *body, const Inst *inst);
int64_t rows_extent(const RowProgram *program, int begin,
                    int end); /* product of the extents of axes [begin, end) */

/* Building terms (rows_terms.c), used by the rules of each op (rows_ops.c). */
typedef struct RowBuilder {
    RowProgram *program;
    const Body *body;
    const Inst *inst;
    TermId *value;   /* per copy of the body: the term that is its element, or NONE */
    int axes;        /* of the space before axes were merged */
    DimId *dim;      /* of these */
    int64_t *extent; /* of these */
    const int *last; /* of these, the last that went into each axis of the program */
    uint16_t totals; /* set of these that are reduced over as rows */
} RowBuilder;
TermId term_number(RowBuilder *b, double number);
TermId term_new(RowBuilder *b, TermKind kind, TermId x, TermId y, TermId z);
TermId term_named(RowBuilder *b, const char *name, TermId term);
TermId term_of_operand(RowBuilder *b, int node, int operand); /* element of node's operand */
TermId term_base(RowBuilder *b, int copy, int axis, const char *name);
TermId term_argument(RowBuilder *b, RowBase base); /* any kind of base */
TermId term_whole(RowBuilder *b, int64_t number);
/* The position at a place of a dim, in the net's order. */
TermId term_position(RowBuilder *b, DimId dim, TermId place);
/* Where the element is along an axis of a copy, counted globally. */
TermId term_place(RowBuilder *b, int copy, int axis);
/* The same in this block alone; other axes may have gone into one with it. */
TermId term_part(RowBuilder *b, int copy, int axis);
TermId term_load(RowBuilder *b, int arg, int64_t offset); /* elements behind the place */
TermId term_at(RowBuilder *b, int copy, TermId index);    /* copy: an input of the instruction */
bool copy_is_input(const RowBuilder *b, int copy);
/* `wanted`, or with a number behind it: what no argument is called. */
const char *rows_free_name(const RowProgram *program, const char *wanted);
/* The instruction, one einsum or reduction, as a loop nest by its letters (rows_nest.c). */
void rows_nest(RowBuilder *b);
/* The element that each output of the node has. False when the op has no rule. */
bool rows_of_node(RowBuilder *b, int node, TermId ret_out[MAX_OUT]);
/* What a node's operand is called in a kernel: "x", "gain". */
const char *role_in(OpId op, int operand);
const char *role_out(OpId op, int output);

#endif
