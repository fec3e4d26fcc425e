/* test_json_locate.c - places found by pointer, against a second way of finding them: each value of
 * the text is a number that says its own line and column. */
#include "ir/base/json_locate.h"

#include <stdio.h>
#include <string.h>

#include "ir/base/json.h"
#include "tests/check.h"

static Source source_of(const char *text)
{
    return (Source){"t.json", text, strlen(text)};
}

/* Every number is 1000 * line + column of itself. */
static const char numbered[] = "{\"a\": 1007, \"b\" :1018,\n"
                               "\t\"c\": [2008, [2015], {\"d\": 2028}, \"]},\\\"{[\", 2046],\n"
                               "  \"\": 3007, \"~\": 3018, \"/\": 3029, \"~1\": 3041,\n"
                               " \"\xc3\xa4\xf0\x9f\x98\x80\": 4008, \"\\u00e4\\\"\\n\": 4028,\r\n"
                               "\"e\":\n"
                               "{\"a\":6006,\"f\":\n"
                               "7001 } ,\"\\ud83d\\ude00\":7024}";

/* Visits all values and returns how many numbers were in their place. */
static int check_places(Arena *arena, Json at, const Source *source)
{
    int checked = 0;
    if (json_is_int(at)) {
        Span span = json_locate(arena, source, at.path, false);
        assert_int_equal(json_integer_value(at.value), span.line * 1000 + span.column);
        assert_int_equal(span.length, 4);
        checked = 1;
    }
    for (int i = 0; json_is_object(at) && i < json_len(at); i++)
        checked += check_places(arena, json_member(at, i, NULL), source);
    for (int i = 0; json_is_array(at) && i < json_len(at); i++)
        checked += check_places(arena, json_at(at, i), source);
    return checked;
}

static void test_every_value_is_found(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Diag *diag = diag_new(arena);
    JsonDoc *doc = json_parse(arena, diag, "t.json", numbered, strlen(numbered));
    assert_non_null(doc);
    assert_int_equal(check_places(arena, json_root(doc), &doc->source), 15);
    json_doc_free(doc);
    arena_free(arena);
}

static void expect(Arena *arena, const Source *source, const char *pointer, bool key, int line,
                   int column, int length)
{
    Span span = json_locate(arena, source, pointer, key);
    if (span.line != line || span.column != column || span.length != length)
        fail_msg("'%s' is at %d:%d+%d, not at %d:%d+%d", pointer, span.line, span.column,
                 span.length, line, column, length);
}

static void test_keys_and_ancestors(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Source source = source_of(numbered);
    expect(arena, &source, "", false, 1, 1, 1);
    expect(arena, &source, "/b", true, 1, 13, 3);
    expect(arena, &source, "/c", false, 2, 7, 1);
    expect(arena, &source, "/c/2/d", true, 2, 23, 3);
    expect(arena, &source, "/c/3", false, 2, 35, 9);
    expect(arena, &source, "/~01", true, 3, 35, 4);
    /* An element has no key. */
    expect(arena, &source, "/c/0", true, 2, 8, 4);
    /* What is not there is in the nearest ancestor that is. */
    expect(arena, &source, "/c/2/x/y/0", false, 2, 22, 1);
    expect(arena, &source, "/c/9", true, 2, 7, 1);
    expect(arena, &source, "/a/b", false, 1, 7, 4);
    expect(arena, &source, "/zz", true, 1, 1, 1);
    arena_free(arena);
}

static void test_blank_everywhere(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Source source = source_of(" \n\t{ \"a\" \n : [ ] , \"b\" : { } , \"c\" : [ { } , 5 ] } ");
    expect(arena, &source, "/a", false, 3, 4, 1);
    expect(arena, &source, "/a/0", false, 3, 4, 1);
    expect(arena, &source, "/b/x", false, 3, 16, 1);
    expect(arena, &source, "/c/1", false, 3, 36, 1);
    arena_free(arena);
}

/* Scanned without recursion: depth costs no stack. */
static void test_deep_text(void **state)
{
    (void)state;
    enum { DEPTH = 300000 };
    Arena *arena = arena_new("test");
    char *text = arena_alloc(arena, 2 * DEPTH + 20), *at = text;
    at += sprintf(at, "[");
    memset(at, '[', DEPTH);
    memset(at + DEPTH, ']', DEPTH);
    strcpy(at + 2 * DEPTH, ",7]");
    Source source = source_of(text);
    expect(arena, &source, "/1", false, 1, 2 * DEPTH + 3, 1);
    arena_free(arena);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_every_value_is_found),
    cmocka_unit_test(test_keys_and_ancestors),
    cmocka_unit_test(test_blank_everywhere),
    cmocka_unit_test(test_deep_text),
};

RUN(tests)
