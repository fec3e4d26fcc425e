/* test_emit.c - what may pass from a model's names into code, and how lines are broken. */
#include "codegen/emit.h"

#include <string.h>

#include "tests/check.h"

static void test_clean(void **state)
{
    (void)state;
    Arena *arena = arena_new("emit");
    static const char evil[] = "x */ system(\"rm\"); /* \\ \n#include <a>\t'`%$@\x7f\xc3\xa9";
    const char *ident = emit_clean(arena, evil, CLEAN_IDENT);
    for (const char *c = ident; *c; c++)
        assert_true((*c >= 'a' && *c <= 'z') || *c == '_');
    const char *sentence = emit_clean(arena, evil, CLEAN_SENTENCE);
    assert_null(strpbrk(sentence, "*/\\\"\n#%$@`\t"));
    assert_string_equal(emit_clean(arena, "model.layers.0.w", CLEAN_NAME), "model.layers.0.w");
    assert_null(strpbrk(emit_clean(arena, evil, CLEAN_NAME), " */\\\"()"));
    char big[1000];
    memset(big, 'a', sizeof big);
    big[sizeof big - 1] = 0;
    assert_int_equal(strlen(emit_clean(arena, big, CLEAN_IDENT)), CLEAN_CAP);
    arena_free(arena);
}

static void test_ident(void **state)
{
    (void)state;
    Arena *arena = arena_new("emit");
    assert_string_equal(emit_ident(arena, "ln_1.weight"), "ln_1_weight");
    assert_string_equal(emit_ident(arena, "while"), "while_");
    assert_string_equal(emit_ident(arena, "lp_gemm"), "lp_gemm_");
    assert_string_equal(emit_ident(arena, "3d"), "n3d");
    assert_string_equal(emit_ident(arena, "_x"), "n_x");
    assert_string_equal(emit_ident(arena, ""), "n");
    assert_true(strlen(emit_ident(arena, "a_name_that_goes_on_and_on_and_on_beyond_all_measure")) <=
                40);
    Names names = names_new(arena);
    assert_string_equal(names_take(&names, "x"), "x");
    assert_string_equal(names_take(&names, "x"), "x_2");
    assert_string_equal(names_take(&names, "x_2"), "x_2_2");
    assert_string_equal(names_take(&names, "x"), "x_3");
    arena_free(arena);
}

static void assert_narrow(const char *text)
{
    for (const char *line = text; *line;) {
        const char *end = strchr(line, '\n');
        assert_non_null(end);
        assert_true(end - line <= EMIT_WIDTH);
        line = end + 1;
    }
}

static void test_lines(void **state)
{
    (void)state;
    Arena *arena = arena_new("emit");
    Emit emit = emit_new(arena);
    emit_open_function(
        &emit,
        "static void f(const float *restrict a_long_name, const float *restrict another_name, "
        "float *restrict the_result, long base)");
    emit_line(&emit,
              "call(\"a string with blanks in it, which must stay in one piece whatever happens to "
              "it\", {%s});",
              "1, 2, 3}, {4, 5, 6}, {7, 8, 9");
    emit_comment(
        &emit, "%s",
        "words and words and words and words and words and words and words and words and words and "
        "words and words and words");
    emit_close(&emit, "");
    assert_narrow(emit.text.at);
    assert_non_null(strstr(
        emit.text.at,
        "\"a string with blanks in it, which must stay in one piece whatever happens to it\""));
    assert_non_null(strstr(emit.text.at, "another_name,\n    float *restrict the_result"));
    assert_non_null(strstr(emit.text.at, "\n     * "));
    arena_free(arena);
}

static void test_slim(void **state)
{
    (void)state;
    Arena *arena = arena_new("emit");
    Emit emit = emit_new(arena);
    emit_open(&emit, "for (;;)");
    emit_line(&emit, "one();");
    emit_close_slim(&emit);
    emit_open(&emit, "for (;;)");
    emit_line(&emit, "one();");
    emit_line(&emit, "two();");
    emit_close_slim(&emit);
    assert_string_equal(emit.text.at,
                        "for (;;)\n    one();\nfor (;;) {\n    one();\n    two();\n}\n");
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_clean), cmocka_unit_test(test_ident),
                                       cmocka_unit_test(test_lines), cmocka_unit_test(test_slim)};
    return cmocka_run_group_tests_name("emit", tests, NULL, NULL);
}
