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
    bool routed; /* choices have rows of their own, which may go where they name */
    const Reading *reading;
    bool packed;            /* sequences hold several documents, which do not see each other */
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

/* The ops of the files model_*.c that are not in model_ops.c. */
bool model_read_split(Reader *r, Json op);
bool model_read_concat(Reader *r, Json op);
bool model_read_broadcast(Reader *r, Json op);
bool model_read_rope(Reader *r, Json op);
bool model_read_temper(Reader *r, Json op);
bool model_read_attention(Reader *r, Json op);
bool model_read_router(Reader *r, Json op);
/* model_rounds.c: are rows dealt out in rounds; the choices of one of these; "combine" of what all
 * of them make, where `in` is the first round's rows and the weights. */
bool model_deals(const Reader *r);
ValueId model_deal(Reader *r, ValueId choice, int64_t experts, int round);
bool model_combine_rounds(Reader *r, Json op, const char *out, const ValueId in[2]);
bool model_read_expert_linear(Reader *r, Json op);
bool model_read_combine(Reader *r, Json op);
bool model_read_cross_entropy(Reader *r, Json op);
bool model_read_dropout(Reader *r, Json op);
/* Ops of the block so far that draw: the site of the next. */
int64_t model_draw_sites(const Graph *graph);
bool model_read_frozen(Reader *r, Json op);

/* ---- model.c: names ---- */

/* A dim by name, with an error that names the nearest. */
bool model_dim(Reader *r, Json at, DimId *ret);
/* A value of the batch; where documents begin is one of a packed model only. */
ValueId model_data(Reader *r, DataId data);
/* The position of each token, in its document when packed, and an offset. */
ValueId model_positions(Reader *r, const char *name, int64_t offset);
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
/* A tensor, named `what` in the error, has no more axes than there may be. */
bool model_axes_fit(Reader *r, Json op, int axes, const char *what);
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
/* Whether operand dims are some of those of a value, in their order. */
bool model_is_part(Shape whole, Shape part);
/* A number, a whole one or a truth value among the attributes; absent or null leaves *ret. */
bool model_number(Reader *r, Json op, const char *key, double min, double max, double *ret);
bool model_whole(Reader *r, Json op, const char *key, int64_t min, int64_t max, int64_t *ret);
bool model_flag(Reader *r, Json op, const char *key, bool *ret);
/* Nodes that the file does not name: their names are the op's "out" and a word. */
ValueId model_node(Reader *r, OpId id, const char *name, const char *sig, const Attrs *attrs,
                   const ValueId *in, int ins);
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
