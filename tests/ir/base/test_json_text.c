/* test_json_text.c - the exact text written, and that it reads back as the same value. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/json.h"
#include "ir/base/rng.h"
#include "tests/check.h"

static Arena *arena;

static int set_up(void **state)
{
    (void)state;
    arena = arena_new("test");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

static char *rewritten(const char *text)
{
    Diag *diag = diag_new(arena);
    JsonDoc *doc = json_parse(arena, diag, "t.json", text, strlen(text));
    if (!doc)
        fail_msg("%s: %s", text, diag_item(diag, 0)->text);
    char *again = json_text(arena, doc->root);
    JsonDoc *second = json_parse(arena, diag, "t.json", again, strlen(again));
    assert_non_null(second);
    assert_true(json_equal(doc->root, second->root));
    json_doc_free(doc);
    json_doc_free(second);
    return again;
}

static void test_layout(void **state)
{
    (void)state;
    assert_string_equal(rewritten("{}"), "{}\n");
    assert_string_equal(rewritten("[]"), "[]\n");
    assert_string_equal(rewritten("{\"z\":1,\"a\":[1,2.5,\"x\",true,false,null],\"o\":{\"p\":{}},"
                                  "\"l\":[{\"k\":1},[],[[]]]}"),
                        "{\n"
                        "  \"z\": 1,\n"
                        "  \"a\": [1, 2.5, \"x\", true, false, null],\n"
                        "  \"o\": {\n"
                        "    \"p\": {}\n"
                        "  },\n"
                        "  \"l\": [\n"
                        "    {\n"
                        "      \"k\": 1\n"
                        "    },\n"
                        "    [],\n"
                        "    [\n"
                        "      []\n"
                        "    ]\n"
                        "  ]\n"
                        "}\n");
}

/* An array too long for its line takes one line an element. */
static void test_long_arrays_break(void **state)
{
    (void)state;
    json_t *array = json_array();
    for (int i = 0; i < 100; i++)
        json_array_append_new(array, json_integer(i));
    const char *text = json_text(arena, array);
    assert_int_equal(strncmp(text, "[\n  0,\n  1,\n", 12), 0);
    json_decref(array);
}

static void test_strings(void **state)
{
    (void)state;
    const char *text =
        "[\"q\\\"b\\\\n\\nt\\tr\\rb\\bf\\f\\u0001\\u007f\xc3\xa4\xf0\x9f\x98\x80/\"]";
    assert_string_equal(rewritten(text), "[\"q\\\"b\\\\n\\nt\\tr\\rb\\bf\\f\\u0001\\u007f"
                                         "\xc3\xa4\xf0\x9f\x98\x80/\"]\n");
    assert_string_equal(rewritten("{\"k\\n\\\"\": 1}"), "{\n  \"k\\n\\\"\": 1\n}\n");
}

static void test_numbers(void **state)
{
    (void)state;
    assert_string_equal(rewritten("[0.1, 1.0, 1e-5, 1e22, 1.5e300, -0.0, 123456789.125]"),
                        "[0.1, 1.0, 1e-05, 1e+22, 1.5e+300, -0.0, 123456789.125]\n");
    assert_string_equal(rewritten("[9223372036854775807, -9223372036854775808, 0]"),
                        "[9223372036854775807, -9223372036854775808, 0]\n");
}

static void expect_same_bits(double value)
{
    json_t *array = json_pack("[f]", value);
    Diag *diag = diag_new(arena);
    const char *text = json_text(arena, array);
    JsonDoc *doc = json_parse(arena, diag, "t.json", text, strlen(text));
    assert_non_null(doc);
    const json_t *read = json_array_get(doc->root, 0);
    assert_int_equal(json_typeof(read), JSON_REAL);
    double again = json_real_value(read);
    assert_memory_equal(&again, &value, sizeof value);
    json_doc_free(doc);
    json_decref(array);
}

static void test_reals_round_trip(void **state)
{
    (void)state;
    static const double edges[] = {0.0,         -0.0,      DBL_MIN, DBL_MAX,    -DBL_MAX,
                                   DBL_EPSILON, 0x1p-1022, 0x1p53,  0x1p53 - 1, 1.0 / 3.0};
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        expect_same_bits(edges[i]);
    for (uint64_t i = 0; i < 2000; i++) {
        uint64_t bits = rng_u64(1, 0, i);
        double value = 0;
        memcpy(&value, &bits, sizeof value);
        if (isnormal(value))
            expect_same_bits(value);
    }
}

static void write_nothing(void *argument)
{
    json_text(argument, NULL);
}

static void test_nothing_is_a_bug(void **state)
{
    (void)state;
    char text[500];
    assert_int_equal(check_child(write_nothing, arena, text, sizeof text), 70);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
static const struct CMUnitTest tests[] = {
    TEST(test_layout),  TEST(test_long_arrays_break), TEST(test_strings),
    TEST(test_numbers), TEST(test_reals_round_trip),  TEST(test_nothing_is_a_bug),
};

RUN(tests)
