/* op.c - the op table as data: names, attributes as text, and the table printed for people. */
#include "ir/op.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const monoid_text[MONOID_COUNT] = {"none", "sum", "max", "lse"};

static const char *const words_NormKind[] = {"rms", "layer"};
static const char *const words_ActKind[] = {"silu",  "gelu_tanh", "gelu_erf", "relu",
                                            "relu2", "sigmoid",   "log"};
static const char *const words_CurveKind[] = {"swish", "softcap", "clamp",
                                              "shift", "recip",   "rsqrt"};
static const char *const words_RopeScaling[] = {"plain", "linear", "llama3", "yarn", "long"};
static const char *const words_GroupScore[] = {"max", "top2"};

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))
_Static_assert(COUNT_OF(words_NormKind) == NORM_KIND_COUNT, "one word a kind");
_Static_assert(COUNT_OF(words_ActKind) == ACT_KIND_COUNT, "one word a kind");
_Static_assert(COUNT_OF(words_CurveKind) == CURVE_KIND_COUNT, "one word a kind");
_Static_assert(COUNT_OF(words_GroupScore) == GROUP_SCORE_COUNT, "one word a kind");
_Static_assert(COUNT_OF(words_RopeScaling) == ROPE_SCALING_COUNT, "one word a kind");

const OpInfo op_info[OP_COUNT] = {
#define OP(id, text, pattern, attrs, linear, nosplit, base, monoid, grad, form)                    \
    [OP_##id] = {text, pattern,         ATTRS_##attrs, linear,     nosplit,                        \
                 base, MONOID_##monoid, #grad,         FORM_##form},
#include "ir/ops.def"
#undef OP
};

OpId op_by_name(const char *text)
{
    for (int op = 0; op < OP_COUNT; op++) {
        if (strcmp(op_info[op].text, text) == 0)
            return (OpId)op;
    }
    return OP_COUNT;
}

const char *const *op_words_norm(int *ret_count)
{
    *ret_count = COUNT_OF(words_NormKind);
    return words_NormKind;
}

const char *const *op_words_act(int *ret_count)
{
    *ret_count = COUNT_OF(words_ActKind);
    return words_ActKind;
}

const char *const *op_words_curve(int *ret_count)
{
    *ret_count = COUNT_OF(words_CurveKind);
    return words_CurveKind;
}

const char *const *op_words_group(int *ret_count)
{
    *ret_count = COUNT_OF(words_GroupScore);
    return words_GroupScore;
}

const char *const *op_words_rope(int *ret_count)
{
    *ret_count = COUNT_OF(words_RopeScaling);
    return words_RopeScaling;
}

void op_put_number(Str *str, double value)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    str_put(str, text);
}

static const char *word_of(const char *const *words, int count, int index)
{
    return index >= 0 && index < count ? words[index] : "?";
}

/* One printer, parser and comparison per row of attrs.def. */
#define ATTRS(kind, fields)                                                                        \
    static void put_##kind(Str *str, const Attr_##kind *a)                                         \
    {                                                                                              \
        (void)str;                                                                                 \
        (void)a;                                                                                   \
        fields                                                                                     \
    }
#define I(name) str_putf(str, " " #name "=%" PRId64, a->name);
#define N(name)                                                                                    \
    str_put(str, " " #name "=");                                                                   \
    op_put_number(str, a->name);
#define E(Enum, name)                                                                              \
    str_putf(str, " " #name "=%s", word_of(words_##Enum, COUNT_OF(words_##Enum), (int)a->name));
#define OI(name)                                                                                   \
    if (a->name != 0)                                                                              \
        str_putf(str, " " #name "=%" PRId64, a->name);
#define ON(name)                                                                                   \
    if (a->name != 0) {                                                                            \
        str_put(str, " " #name "=");                                                               \
        op_put_number(str, a->name);                                                               \
    }
#define OS(name)                                                                                   \
    if (a->name)                                                                                   \
        str_putf(str, " " #name "=%s", a->name);
#include "ir/attrs.def"
#undef ATTRS
#undef I
#undef N
#undef E
#undef OI
#undef ON
#undef OS

static bool parse_int(const char *text, int64_t *ret)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0)
        return false;
    *ret = value;
    return true;
}

static bool parse_number(const char *text, double *ret)
{
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value))
        return false;
    *ret = value;
    return true;
}

static bool parse_word(const char *text, const char *const *words, int count, int *ret)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(text, words[i]) == 0) {
            *ret = i;
            return true;
        }
    }
    return false;
}

#define ATTRS(kind, fields)                                                                        \
    static bool parse_##kind(Attr_##kind *a, const char *key, const char *value)                   \
    {                                                                                              \
        (void)a;                                                                                   \
        (void)key;                                                                                 \
        (void)value;                                                                               \
        fields return false;                                                                       \
    }
#define I(name)                                                                                    \
    if (strcmp(key, #name) == 0)                                                                   \
        return parse_int(value, &a->name);
#define N(name)                                                                                    \
    if (strcmp(key, #name) == 0)                                                                   \
        return parse_number(value, &a->name);
#define E(Enum, name)                                                                              \
    if (strcmp(key, #name) == 0) {                                                                 \
        int index = 0;                                                                             \
        if (!parse_word(value, words_##Enum, COUNT_OF(words_##Enum), &index))                      \
            return false;                                                                          \
        a->name = (Enum)index;                                                                     \
        return true;                                                                               \
    }
#define OI(name) I(name)
#define ON(name) N(name)
#define OS(name)                                                                                   \
    if (strcmp(key, #name) == 0) {                                                                 \
        a->name = value;                                                                           \
        return true;                                                                               \
    }
#include "ir/attrs.def"
#undef ATTRS
#undef I
#undef N
#undef E
#undef OI
#undef ON
#undef OS

#define ATTRS(kind, fields)                                                                        \
    static bool equal_##kind(const Attr_##kind *a, const Attr_##kind *b)                           \
    {                                                                                              \
        (void)a;                                                                                   \
        (void)b;                                                                                   \
        fields return true;                                                                        \
    }
#define SAME(name)                                                                                 \
    if (a->name != b->name)                                                                        \
        return false;
#define I(name) SAME(name)
#define N(name) SAME(name)
#define E(Enum, name) SAME(name)
#define OI(name) SAME(name)
#define ON(name) SAME(name)
#define OS(name)                                                                                   \
    if ((a->name != b->name) && !(a->name && b->name && strcmp(a->name, b->name) == 0))            \
        return false;
#include "ir/attrs.def"
#undef ATTRS
#undef SAME
#undef I
#undef N
#undef E
#undef OI
#undef ON
#undef OS

void op_put_attrs(Str *str, AttrKind kind, const Attrs *attrs)
{
    switch (kind) {
#define ATTRS(kind_, fields)                                                                       \
    case ATTRS_##kind_:                                                                            \
        put_##kind_(str, &attrs->kind_);                                                           \
        return;
#include "ir/attrs.def"
#undef ATTRS
    case ATTRS_COUNT:
        return;
    }
}

bool op_parse_attr(AttrKind kind, Attrs *attrs, const char *name, const char *value)
{
    switch (kind) {
#define ATTRS(kind_, fields)                                                                       \
    case ATTRS_##kind_:                                                                            \
        return parse_##kind_(&attrs->kind_, name, value);
#include "ir/attrs.def"
#undef ATTRS
    case ATTRS_COUNT:
        break;
    }
    return false;
}

bool op_attrs_equal(AttrKind kind, const Attrs *a, const Attrs *b)
{
    switch (kind) {
#define ATTRS(kind_, fields)                                                                       \
    case ATTRS_##kind_:                                                                            \
        return equal_##kind_(&a->kind_, &b->kind_);
#include "ir/attrs.def"
#undef ATTRS
    case ATTRS_COUNT:
        break;
    }
    return false;
}

/* Field names of a row of attrs.def, "kind eps". */
static const char *const attr_fields[ATTRS_COUNT] = {
#define I(name) " " #name
#define N(name) " " #name
#define E(Enum, name) " " #name
#define OI(name) " " #name
#define ON(name) " " #name
#define OS(name) " " #name
#define ATTRS(kind, fields) [ATTRS_##kind] = "" fields,
#include "ir/attrs.def"
#undef ATTRS
#undef I
#undef N
#undef E
#undef OI
#undef ON
#undef OS
};

enum { TABLE_COLUMNS = 9 };

static void table_row(Str *str, bool markdown, const char *const cell[TABLE_COLUMNS])
{
    static const size_t column[TABLE_COLUMNS] = {0, 16, 74, 83, 91, 96, 103, 114, 129};
    if (!markdown) {
        for (int c = 0; c < TABLE_COLUMNS; c++) {
            if (cell[c][0] == '\0')
                continue;
            str_pad(str, column[c]);
            str_put(str, cell[c]);
        }
        str_putc(str, '\n');
        return;
    }
    for (int c = 0; c < TABLE_COLUMNS; c++) {
        str_put(str, c == 0 ? "| " : " | ");
        for (const char *at = cell[c]; *at; at++) {
            if (*at == '|')
                str_putc(str, '\\');
            str_putc(str, *at);
        }
    }
    str_put(str, " |\n");
}

void op_put_table(Str *str, bool markdown)
{
    static const char *const head[TABLE_COLUMNS] = {
        "op", "signature", "linear", "whole", "base", "monoid", "gradient", "kernel", "attributes"};
    static const char *const form_text[FORM_COUNT] = {
#define KERNEL(id, flops, bytes, workspace, sm_percent, in_place) [FORM_##id] = #id,
#include "ir/kernels.def"
#undef KERNEL
    };
    table_row(str, markdown, head);
    if (markdown) {
        static const char *const rule[TABLE_COLUMNS] = {"---", "---", "---", "---", "---",
                                                        "---", "---", "---", "---"};
        table_row(str, true, rule);
    }
    for (int op = 0; op < OP_COUNT; op++) {
        const OpInfo *info = &op_info[op];
        const char *fields = attr_fields[info->attrs];
        const char *const cell[TABLE_COLUMNS] = {
            info->text,
            info->pattern,
            info->linear,
            info->nosplit,
            info->base,
            monoid_text[info->monoid],
            info->grad,
            form_text[info->form],
            *fields == ' ' ? fields + 1 : fields,
        };
        table_row(str, markdown, cell);
    }
}
