/* test_json.c - parsing of good and broken texts, and readers that meet what they did not expect.
 */
#include "ir/base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ir/base/str.h"
#include "tests/check.h"

static Arena *arena;
static Diag *diag;

static int set_up(void **state)
{
    (void)state;
    arena = arena_new("test");
    diag = diag_new(arena);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

static JsonDoc *parse(const char *text)
{
    diag = diag_new(arena);
    return json_parse(arena, diag, "t.json", text, strlen(text));
}

static JsonDoc *parse_good(const char *text)
{
    JsonDoc *doc = parse(text);
    if (!doc)
        fail_msg("%s: %s", text, diag_item(diag, 0)->text);
    return doc;
}

/* The latest error: its place, a part of its text, and of its help ("" means none). */
static void expect_error(int line, int column, const char *text, const char *help)
{
    assert_true(diag_count(diag) > 0);
    const DiagItem *item = diag_item(diag, diag_count(diag) - 1);
    if (!strstr(item->text, text))
        fail_msg("\"%s\" does not say \"%s\"", item->text, text);
    if (item->span.line != line || item->span.column != column)
        fail_msg("\"%s\" is at %d:%d, not at %d:%d", item->text, item->span.line, item->span.column,
                 line, column);
    if (help[0] == '\0')
        assert_null(item->help);
    else if (!item->help || !strstr(item->help, help))
        fail_msg("the help \"%s\" does not say \"%s\"", item->help ? item->help : "", help);
}

static const char *latest_note(void)
{
    return diag_item(diag, diag_count(diag) - 1)->note;
}

/* Place and length of what is marked are those of the token at fault. */
static void test_broken_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int line, column;
        const char *says, *help;
    } cases[] = {
        {"", 1, 1, "'[' or '{' expected", "ends before"},
        {" \n", 2, 1, "'[' or '{' expected", "ends before"},
        {"{", 1, 2, "string or '}' expected", "ends before"},
        {"{\n  \"a\": [1, 2", 2, 13, "']' expected", "ends before"},
        {"{\"a\": \"x", 1, 7, "premature end of input", "ends before"},
        {"{\"a\": 1,}", 1, 9, "string or '}' expected", "remove the comma"},
        {"{\"a\" 1}", 1, 6, "':' expected", "a colon"},
        {"{'a': 1}", 1, 2, "string or '}' expected", "double quotes"},
        {"{\"a\": 1} x", 1, 10, "end of file expected", "remove"},
        {"{\"a\": 1}\n{}", 2, 1, "end of file expected", "remove"},
        {"{\"a\": 1, \"b\": 2,\n \"a\": 3}", 2, 2, "duplicate object key", "keep one"},
        {"{\"\\u0061\": 1, \"a\": 2}", 1, 15, "duplicate object key", "keep one"},
        {"{\"a\": NaN}", 1, 7, "invalid token", "no NaN"},
        {"{\"a\": Infinity}", 1, 7, "invalid token", "no NaN"},
        {"{\"a\": -Infinity}", 1, 7, "invalid token", "no NaN"},
        {"{\"a\": 01}", 1, 7, "invalid token", "numbers"},
        {"{\"a\": 0x10}", 1, 8, "'}' expected", "comma"},
        {"{\"a\": .5}", 1, 7, "invalid token", "numbers"},
        {"{\"a\": 9223372036854775808}", 1, 7, "too big integer", "2^63"},
        {"{\"a\": -9223372036854775809}", 1, 7, "too big negative integer", "2^63"},
        {"{\"a\": 1e999}", 1, 7, "real number overflow", "1.8e308"},
        {"{\"a\": \"tab\there\"}", 1, 7, "control character", "write it as"},
        {"{\"a\": \"line\nhere\"}", 1, 7, "unexpected newline", "ends on its line"},
        {"{\"a\": \"\\x\"}", 1, 7, "invalid escape", "escapes are"},
        {"{\"a\": \"\\ud800\"}", 1, 7, "invalid Unicode", "surrogate"},
        {"{\"a\": \"\\u0000\"}", 1, 7, "\\u0000 may not stand", "remove it"},
        {"{\"a\": \"\xff\"}", 1, 7, "unable to decode byte 0xff", "UTF-8"},
        {"// note\n{}", 1, 1, "'[' or '{' expected", "no comments"},
        {"{\"\xc3\xa4\": tru}", 1, 7, "invalid token near 'tru'", "true, false"},
        {"3", 1, 1, "'[' or '{' expected", "begins with"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        JsonDoc *doc = parse(cases[i].text);
        if (doc)
            fail_msg("accepted %s", cases[i].text);
        expect_error(cases[i].line, cases[i].column, cases[i].says, cases[i].help);
        assert_int_equal(diag_errors(diag), 1);
        assert_true(diag_item(diag, 0)->span.length >= 1);
    }
    parse("{\"a\": 9223372036854775808}");
    assert_int_equal(diag_item(diag, 0)->span.length, 19);
}

/* Every prefix of a text is an error, none a crash. */
static void test_truncated_anywhere(void **state)
{
    (void)state;
    static const char text[] =
        "{\"m\\u00e4x\": [1, -2.5e3, true, null, {\"k\": \"\\ud83d\\ude00\"}]}";
    for (size_t length = 0; length < sizeof text - 1; length++) {
        /* A copy of exactly that length, so that a sanitizer sees any read behind it. */
        char *cut = malloc(length + 1);
        assert_non_null(cut);
        memcpy(cut, text, length);
        cut[length] = '\0';
        diag = diag_new(arena);
        assert_null(json_parse(arena, diag, "t.json", cut, length));
        assert_int_equal(diag_errors(diag), 1);
        Span span = diag_item(diag, 0)->span;
        assert_int_equal(span.line, 1);
        assert_in_range(span.column, 1, (int)length + 1);
        free(cut);
    }
    json_doc_free(parse_good(text));
}

static void test_depth_bomb(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    char *text = arena_alloc(arena, DEPTH + 1);
    memset(text, '[', DEPTH);
    assert_null(parse(text));
    expect_error(1, JSON_PARSER_MAX_DEPTH + 1, "maximum parsing depth", "nest too deep");

    Str deep = str_new(arena);
    for (int i = 0; i < JSON_PARSER_MAX_DEPTH / 2 - 1; i++)
        str_put(&deep, "{\"a\":[");
    for (int i = 0; i < JSON_PARSER_MAX_DEPTH / 2 - 1; i++)
        str_put(&deep, "]}");
    JsonDoc *doc = parse_good(deep.at);
    char *again = json_text(arena, doc->root);
    json_doc_free(doc);
    doc = parse_good(again);
    json_doc_free(doc);
}

static void test_extreme_numbers(void **state)
{
    (void)state;
    JsonDoc *doc = parse_good("[9223372036854775807, -9223372036854775808, 4096.0, 4096.5, 1e15, "
                              "9007199254740992.0, 1e300, -0.0]");
    Json root = json_root(doc);
    int64_t value = 0;
    assert_true(json_int(json_at(root, 0), INT64_MIN, INT64_MAX, &value));
    assert_true(value == INT64_MAX);
    assert_true(json_int(json_at(root, 1), INT64_MIN, INT64_MAX, &value));
    assert_true(value == INT64_MIN);
    assert_true(json_int(json_at(root, 2), 1, 1 << 20, &value));
    assert_int_equal(value, 4096);
    assert_true(json_int(json_at(root, 4), 0, INT64_MAX, &value));
    assert_true(value == 1000000000000000);
    assert_true(json_int(json_at(root, 7), 0, 0, &value));
    assert_int_equal(value, 0);

    value = 5;
    assert_false(json_int(json_at(root, 3), 0, 10, &value));
    expect_error(1, 53, "expected an integer between 0 and 10, not a number with a fraction", "");
    assert_false(json_int(json_at(root, 5), INT64_MIN, INT64_MAX, &value));
    assert_false(json_int(json_at(root, 6), INT64_MIN, INT64_MAX, &value));
    expect_error(1, 87, "expected an integer, not a number", "");
    assert_int_equal(value, 5);
    double number = 0;
    assert_true(json_num(json_at(root, 0), 0, INFINITY, &number));
    assert_true(number == 9223372036854775808.0);
    json_doc_free(doc);
}

static const char model[] = "{\n"
                            "  \"name\": \"a \\\"quoted\\\"\\nname\",\n"
                            "  \"heads\": 30,\n"
                            "  \"eps\": 1e-5,\n"
                            "  \"tied\": true,\n"
                            "  \"none\": null,\n"
                            "  \"links\": [{\"bw\": 1}, {\"bw\": -3}],\n"
                            "  \"a/b\": {\"m~n\": \"x\"}\n"
                            "}\n";

static void test_reading(void **state)
{
    (void)state;
    JsonDoc *doc = parse_good(model);
    Json root = json_root(doc);
    const char *text = NULL;
    int64_t integer = 0;
    double number = 0;
    bool truth = false;
    assert_true(json_want_object(root));
    assert_int_equal(json_len(root), 7);
    assert_true(json_str(json_get(root, "name"), &text));
    assert_true(json_int(json_get(root, "heads"), 1, 1024, &integer));
    assert_int_equal(integer, 30);
    assert_true(json_num(json_get(root, "eps"), 0, 1, &number));
    assert_true(number == 1e-5);
    assert_true(json_num(json_get(root, "heads"), -INFINITY, INFINITY, &number));
    assert_true(number == 30);
    assert_true(json_bool(json_get(root, "tied"), &truth));
    assert_true(truth);
    assert_true(json_has(root, "heads"));
    assert_false(json_has(root, "none"));
    assert_false(json_has(root, "head"));
    assert_false(json_has(json_get(root, "heads"), "x"));
    assert_true(json_is_object(root) && json_is_array(json_get(root, "links")));
    assert_true(json_is_string(json_get(root, "name")) && json_is_int(json_get(root, "heads")));
    assert_false(json_is_int(json_get(root, "eps")) || json_is_int(json_get(root, "absent")));
    assert_int_equal(json_len(json_get(root, "links")), 2);
    assert_int_equal(json_len(json_get(root, "heads")), 0);

    static const char *const order[] = {"name", "heads", "eps", "tied", "none", "links", "a/b"};
    for (int i = 0; i < json_len(root); i++) {
        const char *key = NULL;
        Json member = json_member(root, i, &key);
        assert_string_equal(key, order[i]);
        assert_ptr_equal(member.value, json_get(root, key).value);
    }
    assert_string_equal(json_member(root, 6, NULL).path, "/a~1b");
    assert_int_equal(diag_errors(diag), 0);
    json_doc_free(doc);
    /* Strings outlive the document. */
    assert_string_equal(text, "a \"quoted\"\nname");
}

static void test_wrong_types_and_ranges(void **state)
{
    (void)state;
    JsonDoc *doc = parse_good(model);
    Json root = json_root(doc), links = json_get(root, "links");
    const char *text = "kept";
    int64_t integer = 7;
    double number = 7;
    bool truth = true;
    assert_false(json_int(json_get(root, "name"), 1, INT64_MAX, &integer));
    expect_error(2, 11, "expected an integer of at least 1, not a string", "");
    assert_string_equal(latest_note(), "at /name");
    assert_int_equal(diag_item(diag, 0)->span.length, 20);
    assert_false(json_int(json_get(json_at(links, 1), "bw"), 0, INT64_MAX, &integer));
    expect_error(7, 31, "expected an integer of at least 0, not -3", "");
    assert_string_equal(latest_note(), "at /links/1/bw");
    assert_false(json_int(json_get(root, "heads"), INT64_MIN, 16, &integer));
    expect_error(3, 12, "expected an integer of at most 16, not 30", "");
    assert_false(json_num(json_get(root, "eps"), 1, INFINITY, &number));
    expect_error(4, 10, "expected a number of at least 1, not 1e-05", "");
    assert_false(json_num(json_get(root, "tied"), -INFINITY, 2, &number));
    expect_error(5, 11, "expected a number of at most 2, not true or false", "");
    assert_false(json_num(links, -1, 2, &number));
    expect_error(7, 12, "expected a number between -1 and 2, not an array", "");
    assert_false(json_str(json_get(root, "none"), &text));
    expect_error(6, 11, "expected a string, not null", "");
    assert_false(json_bool(json_get(root, "heads"), &truth));
    expect_error(3, 12, "expected true or false, not an integer", "");
    assert_false(json_want_array(root));
    expect_error(1, 1, "expected an array, not an object", "");
    assert_null(latest_note());
    assert_false(json_want_object(links));
    expect_error(7, 12, "expected an object, not an array", "");
    assert_int_equal(diag_errors(diag), 10);
    /* Outputs stay what they were. */
    assert_string_equal(text, "kept");
    assert_true(integer == 7 && number == 7 && truth);
    json_doc_free(doc);
}

static void test_absent(void **state)
{
    (void)state;
    JsonDoc *doc = parse_good(model);
    Json root = json_root(doc), links = json_get(root, "links");
    int64_t integer = 7;
    Json far = json_get(json_at(json_get(json_get(root, "no"), "such"), 3), "thing");
    assert_null(far.value);
    assert_string_equal(far.path, "/no/such/3/thing");
    assert_false(json_int(far, 0, 1, &integer));
    expect_error(1, 1, "missing key \"thing\"", "add it, with an integer between 0 and 1");
    assert_false(json_int(json_get(json_at(links, 1), "lat~/"), 0, INT64_MAX, &integer));
    expect_error(7, 24, "missing key \"lat~/\"", "add it");
    assert_string_equal(latest_note(), "at /links/1/lat~0~1");
    assert_null(json_at(links, 2).value);
    assert_null(json_at(links, -1).value);
    assert_null(json_at(root, 0).value);
    assert_null(json_get(links, "bw").value);
    assert_false(json_want_object(json_at(links, 2)));
    assert_false(json_want_array(json_get(root, "layers")));
    json_doc_free(doc);
    json_doc_free(NULL);
}

static void test_optional(void **state)
{
    (void)state;
    JsonDoc *doc = parse_good(model);
    Json root = json_root(doc);
    int64_t integer = 7;
    double number = 7;
    const char *text = "kept";
    bool truth = false;
    assert_true(json_opt_int(root, "absent", 0, 1, &integer));
    assert_true(json_opt_int(root, "none", 0, 1, &integer));
    assert_int_equal(integer, 7);
    assert_true(json_opt_int(root, "heads", 0, 100, &integer));
    assert_int_equal(integer, 30);
    assert_true(json_opt_num(root, "none", 0, 1, &number) && number == 7);
    assert_true(json_opt_num(root, "eps", 0, 1, &number) && number == 1e-5);
    assert_true(json_opt_str(root, "none", &text));
    assert_string_equal(text, "kept");
    assert_true(json_opt_str(root, "name", &text));
    assert_string_not_equal(text, "kept");
    assert_true(json_opt_bool(root, "absent", &truth) && !truth);
    assert_true(json_opt_bool(root, "tied", &truth) && truth);
    assert_int_equal(diag_errors(diag), 0);
    assert_false(json_opt_int(root, "tied", 0, 1, &integer));
    assert_false(json_opt_num(root, "tied", 0, 1, &number));
    assert_false(json_opt_str(root, "tied", &text));
    assert_false(json_opt_bool(root, "heads", &truth));
    assert_int_equal(diag_errors(diag), 4);
    json_doc_free(doc);
}

static void test_words(void **state)
{
    (void)state;
    static const char *const words[] = {"rms", "layer"};
    JsonDoc *doc =
        parse_good("{\"a\": \"layer\", \"b\": \"Rms\", \"c\": \"batch norm\", \"d\": 3}");
    Json root = json_root(doc);
    int index = -1;
    assert_true(json_word(json_get(root, "a"), words, 2, &index));
    assert_int_equal(index, 1);
    assert_false(json_word(json_get(root, "b"), words, 2, &index));
    expect_error(1, 21, "unknown word \"Rms\"", "did you mean \"rms\"?");
    assert_false(json_word(json_get(root, "c"), words, 2, &index));
    expect_error(1, 33, "unknown word \"batch norm\"", "known are rms, layer");
    assert_false(json_word(json_get(root, "d"), words, 2, &index));
    expect_error(1, 52, "expected one of the words rms, layer, not an integer", "");
    assert_false(json_word(json_get(root, "e"), words, 2, &index));
    expect_error(1, 1, "missing key \"e\"", "one of the words rms, layer");
    assert_int_equal(index, 1);
    json_doc_free(doc);
}

static void test_only_keys(void **state)
{
    (void)state;
    static const char *const keys[] = {"heads", "kv_heads", "window"};
    JsonDoc *doc = parse_good("{\"heads\": 1, \"kv_haeds\": 2,\n \"x\\ny\": {\"heads\": 3}}");
    Json root = json_root(doc);
    assert_false(json_only_keys(root, keys, 3));
    assert_int_equal(diag_errors(diag), 2);
    assert_string_equal(diag_item(diag, 0)->text, "unknown key \"kv_haeds\"");
    assert_string_equal(diag_item(diag, 0)->help, "did you mean \"kv_heads\"?");
    assert_int_equal(diag_item(diag, 0)->span.column, 14);
    assert_int_equal(diag_item(diag, 0)->span.length, 10);
    expect_error(2, 2, "unknown key \"x\ny\"", "known are heads, kv_heads, window");
    assert_true(json_only_keys(json_get(root, "x\ny"), keys, 3));
    assert_false(json_only_keys(json_get(root, "heads"), keys, 3));
    expect_error(1, 11, "expected an object", "");
    json_doc_free(doc);
}

static void test_fail_at_key_and_value(void **state)
{
    (void)state;
    JsonDoc *doc = parse_good(model);
    Json root = json_root(doc);
    assert_false(json_fail_key(root, "a/b", "bad %s", "name"));
    expect_error(8, 3, "bad name", "");
    assert_string_equal(latest_note(), "at /a~1b");
    assert_false(json_fail(json_get(json_get(root, "a/b"), "m~n"), "100%% bad"));
    expect_error(8, 18, "100% bad", "");
    assert_string_equal(latest_note(), "at /a~1b/m~0n");
    assert_false(json_fail_key(root, "absent", "needed here"));
    expect_error(1, 1, "needed here", "");
    Span span = json_span(json_get(root, "eps"));
    assert_int_equal(span.line, 4);
    assert_int_equal(span.length, 4);
    json_doc_free(doc);
}

static void no_such_member(void *argument)
{
    json_member(json_root(argument), 7, NULL);
}

static void test_member_out_of_range_is_a_bug(void **state)
{
    (void)state;
    JsonDoc *doc = parse_good(model);
    char text[500];
    assert_int_equal(check_child(no_such_member, doc, text, sizeof text), 70);
    json_doc_free(doc);
}

static void test_load(void **state)
{
    (void)state;
    char folder[] = "/tmp/lplan-test-XXXXXX";
    assert_non_null(mkdtemp(folder));
    const char *path = arena_printf(arena, "%s/model.json", folder);
    assert_null(json_load(arena, diag, path));
    assert_non_null(strstr(diag_item(diag, 0)->text, "model.json: No such file"));
    assert_null(diag_item(diag, 0)->span.source);
    assert_null(json_load(arena, diag, folder));
    assert_true(file_write(path, model, sizeof model - 1));
    JsonDoc *doc = json_load(arena, diag, path);
    assert_non_null(doc);
    assert_string_equal(doc->source.path, path);
    json_doc_free(doc);
    unlink(path);
    rmdir(folder);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
static const struct CMUnitTest tests[] = {
    TEST(test_broken_texts),
    TEST(test_truncated_anywhere),
    TEST(test_depth_bomb),
    TEST(test_extreme_numbers),
    TEST(test_reading),
    TEST(test_wrong_types_and_ranges),
    TEST(test_absent),
    TEST(test_optional),
    TEST(test_words),
    TEST(test_only_keys),
    TEST(test_fail_at_key_and_value),
    TEST(test_member_out_of_range_is_a_bug),
    TEST(test_load),
};

RUN(tests)
