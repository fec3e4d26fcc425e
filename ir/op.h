/* op.h - the op table as C: ids, attributes and the facts of each row of ops.def. */
#ifndef LPLAN_IR_OP_H
#define LPLAN_IR_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/base/str.h"

typedef enum OpId {
#define OP(id, ...) OP_##id,
#include "ir/ops.def"
#undef OP
    OP_COUNT
} OpId;

typedef enum { NORM_RMS, NORM_LAYER, NORM_KIND_COUNT } NormKind;
typedef enum {
    ACT_SILU,
    ACT_GELU_TANH,
    ACT_GELU_ERF,
    ACT_RELU,
    ACT_RELU2,
    ACT_SIGMOID,
    ACT_LOG,
    ACT_KIND_COUNT
} ActKind;
/* Functions of one number with parameters a and b. */
typedef enum {
    CURVE_SWISH,   /* x sigmoid(a x) */
    CURVE_SOFTCAP, /* a tanh(x / a) */
    CURVE_CLAMP,   /* x between a and b */
    CURVE_SHIFT,   /* x + a */
    CURVE_RECIP,   /* 1 / (x + a) */
    CURVE_RSQRT,   /* 1 / sqrt(a x + b) */
    CURVE_KIND_COUNT
} CurveKind;
typedef enum {
    ROPE_PLAIN,
    ROPE_LINEAR,
    ROPE_LLAMA3,
    ROPE_YARN,
    ROPE_LONG,
    ROPE_SCALING_COUNT
} RopeScaling;
/* What a group of experts is worth to group-limited routing: its best, or its best two together. */
typedef enum { GROUP_MAX, GROUP_TOP2, GROUP_SCORE_COUNT } GroupScore;
typedef enum { MONOID_NONE, MONOID_SUM, MONOID_MAX, MONOID_LSE, MONOID_COUNT } Monoid;

typedef enum AttrKind {
#define ATTRS(kind, fields) ATTRS_##kind,
#include "ir/attrs.def"
#undef ATTRS
    ATTRS_COUNT
} AttrKind;

/* One struct a row of attrs.def, and their union. */
#define I(name) int64_t name;
#define N(name) double name;
#define E(Enum, name) Enum name;
#define OI(name) int64_t name;
#define ON(name) double name;
#define OS(name) const char *name;
#define ATTRS(kind, fields)                                                                        \
    typedef struct Attr_##kind {                                                                   \
        fields char end_; /* keeps the empty row legal C */                                        \
    } Attr_##kind;
#include "ir/attrs.def"
#undef ATTRS
typedef union Attrs {
#define ATTRS(kind, fields) Attr_##kind kind;
#include "ir/attrs.def"
#undef ATTRS
} Attrs;
#undef I
#undef N
#undef E
#undef OI
#undef ON
#undef OS

/* Kernel forms of kernels.def; `rows` ops fuse with their neighbours. */
typedef enum Form {
#define KERNEL(id, ...) FORM_##id,
#include "ir/kernels.def"
#undef KERNEL
    FORM_COUNT
} Form;

typedef enum {
    WORKSPACE_none,
    WORKSPACE_attention,
    WORKSPACE_attention_grad,
    WORKSPACE_expert
} Workspace;

typedef struct KernelInfo {
    const char *text;
    int flops;           /* per element of the product of the letters */
    bool twice;          /* rows beyond the cache are read twice */
    Workspace workspace; /* rule of node_workspace_bytes */
    int sm_percent;
    bool in_place; /* works on a block of an operand where it lies, and adds to a result */
} KernelInfo;

extern const KernelInfo kernel_info[FORM_COUNT];

typedef struct OpInfo {
    const char *text;
    const char *pattern;
    AttrKind attrs;
    const char *linear;
    const char *nosplit;
    const char *base;
    Monoid monoid;
    const char *grad; /* gradient family */
    Form form;
} OpInfo;

extern const OpInfo op_info[OP_COUNT];
extern const char *const monoid_text[MONOID_COUNT];

OpId op_by_name(const char *text); /* OP_COUNT when unknown */
/* Attributes as " eps=1e-05 kind=rms", shortest text that reads back exactly. */
void op_put_attrs(Str *str, AttrKind kind, const Attrs *attrs);
void op_put_number(Str *str, double value);
/* Reads one "name=value"; false when the name or the value is not of this kind. */
bool op_parse_attr(AttrKind kind, Attrs *attrs, const char *name, const char *value);
/* Radians by which a rotation turns pair `i` per position, and the factor on its cosines and sines
 * (Su et al. 2021; Llama 3.1; YaRN, Peng et al. 2023; LongRoPE, Ding et al. 2024). */
double rope_rate(const Attr_rope *rope, int64_t i);
double rope_gain(const Attr_rope *rope);
/* The slope of a head's linear bias among so many heads (ALiBi, Press et al. 2022). */
double alibi_slope(int64_t head, int64_t heads);
bool op_attrs_equal(AttrKind kind, const Attrs *a, const Attrs *b);
/* The words of an enum field, for JSON readers: "rms", "layer"; *ret_count of them. */
const char *const *op_words_norm(int *ret_count);
const char *const *op_words_act(int *ret_count);
const char *const *op_words_curve(int *ret_count);
const char *const *op_words_rope(int *ret_count);
const char *const *op_words_group(int *ret_count);
/* The table, as aligned text or Markdown (`lplan ops [--md]`). */
void op_put_table(Str *str, bool markdown);

#endif
