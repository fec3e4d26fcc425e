/* test_diag.c - what a diagnostic looks like, the limit, hostile text, and how a bug ends. */
#include "ir/base/diag.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ir/base/str.h"
#include "tests/check.h"

static char *printed(Arena *arena, const Diag *diag, bool colour)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    diag_print(diag, file, colour);
    long length = ftell(file);
    rewind(file);
    char *text = arena_alloc(arena, (size_t)length + 1);
    assert_int_equal(fread(text, 1, (size_t)length, file), length);
    fclose(file);
    return text;
}

static Source source_of(const char *text)
{
    return (Source){"model.json", text, strlen(text)};
}

static void test_caret(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Diag *diag = diag_new(arena);
    Source source = source_of("{\n  \"heads\": 30,\r\n  \"kv\": 4\n}\n");
    assert_false(diag_error(diag, (Span){&source, 2, 12, 2}, "heads (%d) is not a multiple", 30));
    diag_note(diag, "at %s", "/heads");
    diag_help(diag, "use %d", 32);
    diag_warning(diag, NO_SPAN, "no place");
    assert_string_equal(printed(arena, diag, false),
                        "model.json:2:12: error: heads (30) is not a multiple\n"
                        "    2 |   \"heads\": 30,\n"
                        "      |            ^~\n"
                        "  note: at /heads\n"
                        "  help: use 32\n"
                        "warning: no place\n");
    assert_int_equal(diag_errors(diag), 1);
    assert_int_equal(diag_count(diag), 2);
    assert_int_equal(diag_item(diag, 1)->level, DIAG_WARNING);
    assert_null(diag_item(diag, 1)->help);
    arena_free(arena);
}

static void test_colour_only_when_asked(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Diag *diag = diag_new(arena);
    Source source = source_of("{}");
    diag_error(diag, (Span){&source, 1, 1, 1}, "x");
    assert_null(strchr(printed(arena, diag, false), '\033'));
    assert_non_null(strstr(printed(arena, diag, true), "\033["));
    arena_free(arena);
}

/* Tabs take one cell, so the caret stands under its code point. */
static void test_caret_under_unicode_and_tabs(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Diag *diag = diag_new(arena);
    Source source = source_of("\t\"\xc3\xa4\xe2\x82\xac\": no");
    diag_error(diag, (Span){&source, 1, 8, 2}, "x");
    assert_non_null(strstr(printed(arena, diag, false), "    1 |  \"\xc3\xa4\xe2\x82\xac\": no\n"
                                                        "      |        ^~\n"));
    arena_free(arena);
}

/* The whole of a long line is not printed, the place of the error is. */
static void test_long_line_is_cut(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    char *line = arena_alloc(arena, 100001);
    memset(line, '-', 100000);
    Source source = source_of(line);
    static const int columns[] = {1, 39, 40, 41, 42, 50000, 99950, 99999, 100000};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        Diag *diag = diag_new(arena);
        line[columns[i] - 1] = 'E';
        diag_error(diag, (Span){&source, 1, columns[i], 100000}, "x");
        const char *text = printed(arena, diag, false);
        const char *row = strchr(text, '\n') + 1, *carets = strchr(row, '\n') + 1;
        size_t at = strcspn(row, "E");
        assert_int_equal(row[at], 'E');
        assert_int_equal(strcspn(carets, "^"), at);
        assert_true((size_t)(carets - row) < 110);
        assert_true(strlen(carets) < 110);
        line[columns[i] - 1] = '-';
    }
    arena_free(arena);
}

static void test_control_characters_are_shown(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Diag *diag = diag_new(arena);
    static const char line[] = "a\033[31m\xc2\x9b\xff";
    Source source = {"evil\033[2J.json", line, sizeof line - 1};
    diag_error(diag, (Span){&source, 1, 1, 1}, "name \"%s\"",
               "x\n\ty\033[0m\x7f\xc2\x9bz\xff\xc3\xa4");
    const char *text = printed(arena, diag, false);
    assert_null(strchr(text, '\033'));
    assert_null(strstr(text, "\xc2\x9b"));
    assert_non_null(strstr(text, " | a?[31m??\n"));
    assert_non_null(strstr(text, "evil\\x1b[2J.json:1:1:"));
    assert_non_null(strstr(text, "name \"x\\n\\ty\\x1b[0m\\x7f\\xc2\\x9bz\\xff\xc3\xa4\"\n"));
    arena_free(arena);
}

static void test_places_outside_the_text(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Diag *diag = diag_new(arena);
    Source source = source_of("{}\n");
    diag_error(diag, (Span){&source, 99, 1, 1}, "line");
    diag_error(diag, (Span){&source, 1, 99, 5}, "column");
    diag_error(diag, (Span){&source, 2, 1, 0}, "end");
    const char *text = printed(arena, diag, false);
    assert_non_null(strstr(text, "model.json:99:1: error: line\nmodel.json:1:99:"));
    assert_non_null(strstr(text, "error: end\n    2 | \n      | ^\n"));
    arena_free(arena);
}

static void test_twenty_errors_are_kept(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Diag *diag = diag_new(arena);
    for (int i = 0; i < 25; i++) {
        diag_error(diag, NO_SPAN, "error %d", i);
        diag_note(diag, "note %d", i);
        diag_help(diag, "help %d", i);
    }
    assert_int_equal(diag_errors(diag), 25);
    assert_int_equal(diag_count(diag), 20);
    assert_string_equal(diag_item(diag, 19)->note, "note 19");
    assert_string_equal(diag_item(diag, 19)->help, "help 19");
    diag_warning(diag, NO_SPAN, "still heard");
    diag_note(diag, "of the warning");
    assert_string_equal(diag_item(diag, 20)->note, "of the warning");
    const char *text = printed(arena, diag, false);
    assert_non_null(strstr(text, "25 errors, of which the first 20 are shown\n"));
    arena_free(arena);
}

static char *const bug_argv[] = {(char *)"lplan", (char *)"plan", (char *)"it's a model.json",
                                 NULL};

static void meet_bug(void *argument)
{
    if (chdir(argument) != 0)
        _exit(1);
    bug_command("9.9.9", 3, bug_argv);
    bug_pass("sync");
    BUG("slot %d of %d", 7, 4);
}

static void test_bug_leaves_a_reproducer(void **state)
{
    (void)state;
    char folder[] = "/tmp/lplan-test-XXXXXX", text[2000];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(check_child(meet_bug, folder, text, sizeof text), 70);
    assert_non_null(strstr(text, "lplan: internal error: slot 7 of 4\n"));
    assert_non_null(strstr(text, "test_diag.c:"));
    assert_non_null(strstr(text, "in pass sync"));
    char *name = strstr(text, "lplan-bug-");
    assert_non_null(name);
    name[strcspn(name, "\n")] = '\0';

    Arena *arena = arena_new("test");
    const char *path = arena_printf(arena, "%s/%s", folder, name);
    const char *reproducer = file_read(arena, path, NULL);
    assert_non_null(reproducer);
    assert_non_null(strstr(reproducer, "\nlplan plan 'it'\\''s a model.json'\n"));
    assert_non_null(strstr(reproducer, folder));
    assert_non_null(strstr(reproducer, "# lplan 9.9.9\n# pass: sync\n"));
    assert_non_null(strstr(reproducer, "slot 7 of 4"));
    unlink(path);
    rmdir(folder);
    arena_free(arena);
}

static void fail_check(void *argument)
{
    CHECK(argument == NULL);
    CHECK(argument != NULL);
}

static void abort_on_bug(void *argument)
{
    (void)argument;
    setenv("LPLAN_ABORT", "1", 1);
    BUG("for a debugger");
}

static void attach_to_nothing(void *argument)
{
    diag_help(argument, "help of nothing");
}

static void test_check_and_abort(void **state)
{
    (void)state;
    char text[1000];
    assert_int_equal(check_child(fail_check, NULL, text, sizeof text), 70);
    assert_non_null(strstr(text, "check failed: argument != NULL"));
    assert_int_equal(check_child(abort_on_bug, NULL, text, sizeof text), 256 + 6);
    Arena *arena = arena_new("test");
    assert_int_equal(check_child(attach_to_nothing, diag_new(arena), text, sizeof text), 70);
    arena_free(arena);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_caret),
    cmocka_unit_test(test_colour_only_when_asked),
    cmocka_unit_test(test_caret_under_unicode_and_tabs),
    cmocka_unit_test(test_long_line_is_cut),
    cmocka_unit_test(test_control_characters_are_shown),
    cmocka_unit_test(test_places_outside_the_text),
    cmocka_unit_test(test_twenty_errors_are_kept),
    cmocka_unit_test(test_bug_leaves_a_reproducer),
    cmocka_unit_test(test_check_and_abort),
};

RUN(tests)
