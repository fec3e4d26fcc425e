/* model_reader.h - the reader's state while one model file becomes a Net; shared by the
 * files model*.c. */
#ifndef LPLAN_IR_MODEL_READER_H
#define LPLAN_IR_MODEL_READER_H

#include "ir/model.h"
#include "ir/name_table.h"

typedef struct Reader {
    Arena *arena;
    Diag *diag;
    Net *net;
    double init_std;
    NameTable names;        /* of the net's parameters so far */
    const char **dim_names; /* for suggestions; dims.n of them */

    /* The block being read. */
    Graph *graph;
    Json each;          /* attribute overrides of this instance, or absent */
    bool repeated;      /* then parameter names need {i} */
    VEC(Json) defined;  /* per value: where the file names it */
    VEC(bool) used;     /* per value: an op of the block reads it */
    VEC(Json) param_at; /* per parameter of the class: where the file names it */
} Reader;

typedef struct Shape {
    int axes;
    DimId dim[MAX_AXES];
} Shape;

/* The value the previous link hands on. */
typedef struct Handed {
    bool any;
    int axes;
    DimId dim[MAX_AXES];
} Handed;

/* ---- model_block.c ---- */

/* Reads a block as a new class: the last of net->classes. NULL after located errors. */
Graph *model_read_block(Reader *r, Json block, const char *name, Json entry, const Handed *handed,
                        bool last);

/* ---- model_ops.c ---- */

/* Appends the nodes of one op; false after located errors. */
bool model_read_op(Reader *r, Json op);
/* The attributes that "each" may set for an op, as keys. */
const char *const *model_op_attributes(const char *op, int *ret_count);

/* ---- model.c: names ---- */

/* A dim by name, with an error that names the nearest. */
bool model_dim(Reader *r, Json at, DimId *ret);
/* A value that an op reads; marks it used. */
bool model_operand(Reader *r, Json at, ValueId *ret);
/* Notes where a value of the file is defined; to be called for every value that ops may name. */
void model_define(Reader *r, ValueId value, Json at);
/* The text of a string, "" for anything else. */
const char *model_text(Json at);
/* "[b, s, h]" */
const char *model_shape(Reader *r, int axes, const DimId *dim);
const char *model_value_shape(Reader *r, ValueId value);
/* The name of a value that the file makes: an identifier, not taken, not reserved. */
bool model_new_name(Reader *r, Json at, const char **ret);

/* ---- model_piece.c: what ops share ---- */

Shape model_shape_of(const Reader *r, ValueId id);
bool model_same_shape(Shape a, Shape b);
bool model_has_dim(const DimId *dim, int axes, DimId what);
const char *model_dim_name(const Reader *r, DimId dim);
const char *model_shape_letters(const Reader *r, const DimId *dim, int axes);
const char *model_letters(const Reader *r, ValueId id);

/* Readers of operands and dims; floats are what ids are not. */
bool model_dims(Reader *r, Json at, int max, Shape *ret);
bool model_float(Reader *r, Json at, ValueId *ret);
bool model_floats(Reader *r, Json at, int count, ValueId *ret);
bool model_in_out(Reader *r, Json op, ValueId *ret_in, const char **ret_out);
/* An error that shows both shapes; false. */
bool model_mismatch(Reader *r, Json at, const char *what, ValueId a, ValueId b);
/* An attribute, or what "each" says for this instance; present: neither absent nor null. */
Json model_attribute(const Reader *r, Json op, const char *key);
bool model_present(Json at);

/* The parameter named at `at`, new or, with the same shape, known. group: how many axes each stored
 * axis spans. */
bool model_param(Reader *r, Json at, Shape shape, const int *group, int stored, Init init,
                 ValueId *ret);
/* One node, checked for its size; emit_out's first output is what the file calls "out". */
bool model_check_size(Reader *r, Json op, const Node *node);
bool model_emit(Reader *r, Json op, OpId id, const char *name, const char *sig, const Attrs *attrs,
                const ValueId *in, int ins, NodeId *ret);
bool model_emit_out(Reader *r, Json op, OpId id, const char *name, const char *sig,
                    const Attrs *attrs, const ValueId *in, int ins);

#endif
