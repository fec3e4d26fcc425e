/* test_cluster.c - presets, the strict reader, levels of groups, and another number of devices. */
#include "ir/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ir/base/str.h"
#include "ir/cluster_preset.h"
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

static Cluster *load(const char *name)
{
    diag = diag_new(arena);
    Cluster *cluster = cluster_load(arena, diag, name);
    if (!cluster)
        fail_msg("%s: %s", name, diag_item(diag, 0)->text);
    return cluster;
}

static void drop(Cluster *cluster)
{
    json_doc_free(cluster->doc);
}

static void test_presets_read_and_are_the_files(void **state)
{
    (void)state;
    const char *root = getenv("LPLAN_SOURCE_ROOT");
    assert_true(cluster_preset_count >= 4);
    for (int i = 0; i < cluster_preset_count; i++) {
        const char *name = cluster_presets[i].name;
        Cluster *cluster = load(name);
        assert_string_equal(cluster->name, name);
        assert_int_equal(diag_count(diag), 0);
        drop(cluster);
        if (!root)
            continue;
        const char *path = arena_printf(arena, "%s/examples/clusters/%s.json", root, name);
        const char *text = file_read(arena, path, NULL);
        assert_non_null(text);
        assert_string_equal(text, cluster_presets[i].text);
    }
}

static void test_figures_of_the_presets(void **state)
{
    (void)state;
    Cluster *a100 = load("dgx-a100"), *h100 = load("dgx-h100"), *h200 = load("dgx-h200");
    assert_int_equal(a100->device.flops_bf16, INT64_C(312000000000000));
    assert_int_equal(h100->device.flops_bf16, INT64_C(989000000000000));
    assert_int_equal(h200->device.memory_bytes, INT64_C(141000000000));
    assert_int_equal(a100->device.memory_bytes, INT64_C(80) << 30);
    assert_string_equal(a100->device.target, "cuda");
    assert_int_equal(a100->level[0].width, 8);
    assert_true(a100->level[0].bytes_per_s < INT64_C(300000000000));
    assert_true(a100->level[1].bytes_per_s <= INT64_C(25000000000));
    assert_true(h100->level[1].bytes_per_s <= INT64_C(50000000000));
    drop(a100);
    drop(h100);
    drop(h200);
    Cluster *host = load("host");
    assert_string_equal(host->device.target, "host");
    assert_int_equal(host->levels, 1);
    drop(host);
}

static void test_level_of_a_group(void **state)
{
    (void)state;
    Cluster *cluster = load("dgx-h100");
    static const struct {
        int stride, extent, level;
    } rows[] = {{1, 1, 0}, {1, 8, 0},  {4, 2, 0}, {2, 4, 0},
                {8, 4, 1}, {1, 16, 1}, {4, 4, 1}, {1, 32, 1}};
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++)
        assert_int_equal(cluster_level(cluster, rows[i].stride, rows[i].extent), rows[i].level);
    drop(cluster);
}

static void expect_shape(const char *name, int devices, int levels, int width0, int width1)
{
    Cluster *cluster = load(name);
    assert_true(cluster_resize(diag, cluster, devices));
    assert_int_equal(cluster->devices, devices);
    assert_int_equal(cluster->levels, levels);
    assert_int_equal(cluster->level[0].width, width0);
    if (levels > 1)
        assert_int_equal(cluster->level[1].width, width1);
    drop(cluster);
}

static void test_resize_keeps_domains(void **state)
{
    (void)state;
    expect_shape("dgx-h100", 1, 1, 1, 0);
    expect_shape("dgx-h100", 4, 1, 4, 0);
    expect_shape("dgx-h100", 8, 1, 8, 0);
    expect_shape("dgx-h100", 512, 2, 8, 64);
    expect_shape("dgx-h100", 16384, 2, 8, 2048);
    expect_shape("host", 2, 1, 2, 0);
    expect_shape("host", 16, 1, 16, 0);
    expect_shape("dgx-a100", 12, 2, 6, 2);
    assert_int_equal(diag_errors(diag), 0);
    assert_int_equal(diag_count(diag), 1);
    assert_int_equal(diag_item(diag, 0)->level, DIAG_WARNING);
    Cluster *cluster = load("dgx-a100");
    assert_false(cluster_resize(diag, cluster, 0));
    assert_false(cluster_resize(diag, cluster, 1 << 30));
    assert_int_equal(cluster->devices, 32);
    /* One domain and nothing above it does not grow. */
    cluster->levels = 1;
    assert_false(cluster_resize(diag, cluster, 16));
    assert_non_null(
        strstr(diag_item(diag, diag_count(diag) - 1)->text, "nvswitch joins 8 devices"));
    drop(cluster);
}

static void test_json_reads_back(void **state)
{
    (void)state;
    Cluster *cluster = load("dgx-a100");
    assert_true(cluster_resize(diag, cluster, 64));
    json_t *json = cluster_json(cluster, MEMORY_NVME);
    const char *text = json_text(arena, json);
    json_decref(json);
    JsonDoc *doc = json_parse(arena, diag, "c.json", text, strlen(text));
    assert_non_null(doc);
    Cluster *again = cluster_read(arena, diag, json_root(doc));
    assert_non_null(again);
    assert_int_equal(again->devices, 64);
    assert_int_equal(again->levels, 2);
    assert_memory_equal(&again->level[1].width, &cluster->level[1].width,
                        sizeof(LinkLevel) - offsetof(LinkLevel, width));
    assert_string_equal(again->device.name, cluster->device.name);
    assert_int_equal(again->device.small_gemm_flops, cluster->device.small_gemm_flops);
    assert_int_equal(again->device.tag, cluster->device.tag);
    json_doc_free(doc);
    drop(cluster);
}

/* The host preset with one piece of text replaced. */
static const char *changed(const char *from, const char *to)
{
    const char *text = NULL;
    for (int i = 0; i < cluster_preset_count; i++) {
        if (str_eq(cluster_presets[i].name, "host"))
            text = cluster_presets[i].text;
    }
    assert_non_null(text);
    const char *at = strstr(text, from);
    if (!at)
        fail_msg("the host preset has no %s", from);
    return arena_printf(arena, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

static void test_bad_clusters_are_located(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *message, *note;
    } rows[] = {
        {"lplan-cluster/1", "lplan-cluster/9", "unknown word", "at /format"},
        {"\"devices\": 4", "\"devices\": 5", "widths of the links multiply to 4", "at /devices"},
        {"\"devices\": 4", "\"devices\": 0", "between", "at /devices"},
        {"\"devices\": 4", "\"devices\": \"4\"", "an integer", "at /devices"},
        {"\"devices\": 4", "\"devices\": 4, \"devises\": 4", "devises", NULL},
        {"\"width\": 4", "\"width\": -4", "between", "at /links/0/width"},
        {"\"width\": 4", "\"width\": 1000000000000", "between", "at /links/0/width"},
        {"\"memory_bytes\": ", "\"memory_bytes\": 99999999", "between", "at /device/memory_bytes"},
        {"\"margin_bytes\": ", "\"margin_bytes\": 99", "leaves nothing", "at /device/margin_bytes"},
        {"\"gemm_permille\": 650", "\"gemm_permille\": 1001", "between",
         "at /device/gemm_permille"},
        {"\"gemm_permille\": 650,", "", "missing key \"gemm_permille\"", NULL},
        {"\"tag\": \"measured\"", "\"tag\": \"guessed\"", "unknown word \"guessed\"",
         "at /device/tag"},
        {"\"target\": \"host\"", "\"target\": \"hots\"", "unknown word \"hots\"",
         "at /device/target"},
        {"\"name\": \"core\"", "\"name\": \"a */ b\"", "not a name", "at /device/name"},
        {"\"name\": \"core\"", "\"name\": \"\\n\"", "not a name", "at /device/name"},
        {"\"name\": \"core\"", "\"name\": \"\"", "not a name", "at /device/name"},
        {"\"latency_ns\": ", "\"latency_us\": 1, \"latency_ns\": ", "latency_us", NULL},
        {"\"notes\": [", "\"notes\": [1, ", "a string", "at /notes/0"},
        {"\"links\": [", "\"links\": [], \"more\": [", "more", NULL},
        {"\"links\": [", "\"collectives\": [\"ring\", \"rong\"], \"links\": [",
         "unknown word \"rong\"", "at /collectives/1"},
        {"\"links\": [", "\"collectives\": [], \"links\": [", "no algorithm", "at /collectives"},
    };
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
        const char *text = changed(rows[i].from, rows[i].to);
        diag = diag_new(arena);
        JsonDoc *doc = json_parse(arena, diag, "c.json", text, strlen(text));
        assert_non_null(doc);
        Cluster *cluster = cluster_read(arena, diag, json_root(doc));
        if (cluster)
            fail_msg("accepted: %s", rows[i].to);
        const DiagItem *item = diag_item(diag, 0);
        if (!strstr(item->text, rows[i].message))
            fail_msg("%s: '%s' does not say '%s'", rows[i].to, item->text, rows[i].message);
        if (rows[i].note)
            assert_string_equal(item->note, rows[i].note);
        assert_true(item->span.line > 0);
        json_doc_free(doc);
    }
}

static void test_names_that_are_none(void **state)
{
    (void)state;
    assert_null(cluster_load(arena, diag, "dgx-h10"));
    assert_non_null(strstr(diag_item(diag, 0)->text, "no cluster 'dgx-h10'"));
    assert_non_null(strstr(diag_item(diag, 0)->help, "dgx-h100"));
    assert_null(cluster_load(arena, diag, "/no/such/file"));
    assert_non_null(strstr(diag_item(diag, 1)->help, "host"));
}

static void test_a_file_is_read(void **state)
{
    (void)state;
    char path[] = "/tmp/lplan-cluster-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    const char *text =
        changed("\"name\": \"host\"", "\"name\": \"mine\", \"collectives\": [\"nvls\", \"tree\"]");
    assert_int_equal(write(file, text, strlen(text)), (int)strlen(text));
    close(file);
    Cluster *cluster = load(path);
    assert_string_equal(cluster->name, "mine");
    assert_int_equal(cluster->collectives, 1u << ALGORITHM_NVLS | 1u << ALGORITHM_TREE);
    json_t *json = cluster_json(cluster, MEMORY_HBM); /* and is written as it was read */
    assert_int_equal(json_array_size(json_object_get(json, "collectives")), 2);
    json_decref(json);
    drop(cluster);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_presets_read_and_are_the_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_figures_of_the_presets, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_level_of_a_group, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_resize_keeps_domains, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_json_reads_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bad_clusters_are_located, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_names_that_are_none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_file_is_read, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
