/* test_op.c - the op table: names, attributes as text, the printed table, and the rows themselves.
 */
#include "ir/op.h"

#include <ctype.h>
#include <string.h>

#include "ir/graph.h"
#include "tests/check.h"

static void test_names(void **state)
{
    (void)state;
    for (int op = 0; op < OP_COUNT; op++)
        assert_int_equal(op_by_name(op_info[op].text), op);
    assert_int_equal(op_by_name("conv"), OP_COUNT);
    assert_int_equal(op_by_name(""), OP_COUNT);
}

/* Letters of nosplit and base are letters of the pattern; linear sets name operands that exist. */
static void test_rows(void **state)
{
    (void)state;
    for (int op = 0; op < OP_COUNT; op++) {
        const OpInfo *info = &op_info[op];
        bool anything = strcmp(info->pattern, "*") == 0;
        for (const char *c = info->nosplit; *c; c++)
            assert_non_null(strchr(info->pattern, *c));
        for (const char *c = info->base; *c; c++)
            assert_non_null(strchr(info->pattern, *c));
        int operands = info->pattern[0] != '-';
        for (const char *c = info->pattern; *c && *c != '-'; c++)
            operands += *c == ',';
        for (const char *c = info->linear; *c; c++) {
            assert_true(*c == '|' || isdigit((unsigned char)*c));
            assert_true(*c == '|' || anything || *c - '0' < operands);
        }
    }
}

static void check_attrs(AttrKind kind, const Attrs *attrs)
{
    Arena *arena = arena_new("test");
    Str text = str_new(arena);
    op_put_attrs(&text, kind, attrs);
    Attrs back = {0};
    char *word = strtok(text.at, " ");
    for (; word; word = strtok(NULL, " ")) {
        char *value = strchr(word, '=');
        assert_non_null(value);
        *value++ = '\0';
        assert_true(op_parse_attr(kind, &back, word, value));
    }
    assert_true(op_attrs_equal(kind, attrs, &back));
    arena_free(arena);
}

static void test_attrs_round_trip(void **state)
{
    (void)state;
    Attrs attrs = {0};
    check_attrs(ATTRS_none, &attrs);
    for (int kind = 0; kind < NORM_KIND_COUNT; kind++) {
        attrs = (Attrs){.norm = {.kind = (NormKind)kind, .eps = 1.0 / 3}};
        check_attrs(ATTRS_norm, &attrs);
    }
    for (int kind = 0; kind < ACT_KIND_COUNT; kind++) {
        attrs = (Attrs){.act = {.kind = (ActKind)kind}};
        check_attrs(ATTRS_act, &attrs);
    }
    for (int kind = 0; kind < ROPE_SCALING_COUNT; kind++) {
        attrs = (Attrs){.rope = {.theta = 500000,
                                 .rotary = 128,
                                 .interleaved = 1,
                                 .inverse = 1,
                                 .scaling = (RopeScaling)kind,
                                 .factor = 8,
                                 .low = 1,
                                 .high = 4,
                                 .original = INT64_C(1) << 40}};
        check_attrs(ATTRS_rope, &attrs);
    }
    attrs = (Attrs){.attention = {.scale = 0.08838834764831845, .causal = 1, .window = 4096}};
    check_attrs(ATTRS_attention, &attrs);
    attrs = (Attrs){.scale = {.factor = -1e-300}};
    check_attrs(ATTRS_scale, &attrs);
    attrs = (Attrs){.clip = {.max_norm = 1}};
    check_attrs(ATTRS_clip, &attrs);
    attrs = (Attrs){.momentum = {.momentum = 0.95}};
    check_attrs(ATTRS_momentum, &attrs);
    attrs = (Attrs){.descend = {.ratio = 12.8}};
    check_attrs(ATTRS_descend, &attrs);
    attrs = (Attrs){.adamw = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1}};
    check_attrs(ATTRS_adamw, &attrs);
}

static void test_attrs_refused(void **state)
{
    (void)state;
    static const struct {
        AttrKind kind;
        const char *name, *value;
    } bad[] = {
        {ATTRS_none, "eps", "1"},           {ATTRS_norm, "epsilon", "1e-5"},
        {ATTRS_norm, "eps", "1e-5x"},       {ATTRS_norm, "eps", ""},
        {ATTRS_norm, "eps", "nan"},         {ATTRS_norm, "eps", "inf"},
        {ATTRS_norm, "kind", "batch"},      {ATTRS_act, "kind", "Silu"},
        {ATTRS_attention, "window", "1.5"}, {ATTRS_attention, "window", "99999999999999999999"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Attrs attrs = {0};
        assert_false(op_parse_attr(bad[i].kind, &attrs, bad[i].name, bad[i].value));
    }
}

static void test_attrs_equal(void **state)
{
    (void)state;
    Attrs a = {.rope = {.theta = 10, .rotary = 4}}, b = a;
    assert_true(op_attrs_equal(ATTRS_rope, &a, &b));
    b.rope.original = 1;
    assert_false(op_attrs_equal(ATTRS_rope, &a, &b));
    b = a;
    b.rope.theta = 11;
    assert_false(op_attrs_equal(ATTRS_rope, &a, &b));
    b = a;
    b.rope.scaling = ROPE_LINEAR;
    assert_false(op_attrs_equal(ATTRS_rope, &a, &b));
    assert_true(op_attrs_equal(ATTRS_none, &a, &b));
}

static void test_numbers_are_short(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{1e-5, "1e-05"}, {0.1, "0.1"}, {1.0 / 3, "0.3333333333333333"}, {-2, "-2"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *arena = arena_new("test");
        Str text = str_new(arena);
        op_put_number(&text, cases[i].value);
        assert_string_equal(text.at, cases[i].text);
        arena_free(arena);
    }
}

static void test_table(void **state)
{
    (void)state;
    for (int markdown = 0; markdown < 2; markdown++) {
        Arena *arena = arena_new("test");
        Str text = str_new(arena);
        op_put_table(&text, markdown);
        int lines = 0;
        for (char *line = strtok(text.at, "\n"); line; line = strtok(NULL, "\n")) {
            int op = lines - 1 - markdown;
            if (op >= 0)
                assert_ptr_equal(strstr(line, op_info[op].text), line + 2 * markdown);
            lines++;
        }
        assert_int_equal(lines, OP_COUNT + 1 + markdown);
        arena_free(arena);
    }
}

static void test_kernels(void **state)
{
    (void)state;
    for (int form = 0; form < FORM_COUNT; form++) {
        assert_true(kernel_info[form].flops >= 0 && kernel_info[form].flops <= 10);
        assert_true(kernel_info[form].sm_percent >= 1 && kernel_info[form].sm_percent <= 100);
        assert_non_null(kernel_info[form].text);
    }
    assert_int_equal(kernel_info[op_info[OP_EINSUM].form].flops, 2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_names),
    cmocka_unit_test(test_rows),
    cmocka_unit_test(test_attrs_round_trip),
    cmocka_unit_test(test_attrs_refused),
    cmocka_unit_test(test_attrs_equal),
    cmocka_unit_test(test_numbers_are_short),
    cmocka_unit_test(test_table),
    cmocka_unit_test(test_kernels),
};

RUN(tests)
