/* test_import_model.c - one door for model files: a config.json is imported, lplan-model/1 passes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ir/base/str.h"
#include "ir/model.h"
#include "planner/import_hf.h"
#include "tests/check.h"

static Net *net_of(Arena *arena, Diag *diag, JsonDoc *doc)
{
    assert_non_null(doc);
    Net *net = model_read(arena, diag, json_root(doc), 2, 64, 1);
    if (!net)
        fail_msg("%s", diag_item(diag, 0)->text);
    return net;
}

static void test_config_and_model_are_one_model(void **state)
{
    (void)state;
    const char *root = getenv("LPLAN_SOURCE_ROOT");
    if (!root)
        skip();
    Arena *arena = arena_new("test");
    Diag *diag = diag_new(arena);
    Import import;
    const char *config = arena_printf(arena, "%s/examples/models/llama-10m.json", root);
    JsonDoc *first = import_model(arena, diag, config, &import);
    Net *net = net_of(arena, diag, first);
    assert_string_equal(net->name, "llama-10m");
    assert_int_equal(import.notes.n, 0);
    assert_int_equal(import.positions, 512);

    char path[] = "/tmp/lplan-model-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    const char *text = json_text(arena, first->root);
    assert_true(file_write(path, text, strlen(text)));
    JsonDoc *second = import_model(arena, diag, path, NULL);
    Net *again = net_of(arena, diag, second);
    Str a = str_new(arena), b = str_new(arena);
    net_put_text(&a, net);
    net_put_text(&b, again);
    assert_string_equal(a.at, b.at);
    unlink(path);
    json_doc_free(first);
    json_doc_free(second);
    arena_free(arena);
}

static void test_what_is_neither_is_an_error(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Diag *diag = diag_new(arena);
    assert_null(import_model(arena, diag, "/no/such/model.json", NULL));
    assert_int_equal(diag_errors(diag), 1);
    assert_string_equal(import_name(arena, "/a/b/config.json"), "b");
    assert_string_equal(import_name(arena, "config.json"), "config");
    assert_string_equal(import_name(arena, "a/Llama-3.json"), "Llama-3");
    assert_string_equal(import_name(arena, "-"), "model");
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_and_model_are_one_model),
        cmocka_unit_test(test_what_is_neither_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
