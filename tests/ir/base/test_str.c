/* test_str.c - buffers, units, suggestions, and files that are there, missing or special. */
#include "ir/base/str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static void test_put(void **state)
{
    (void)state;
    Str str = str_new(arena);
    assert_string_equal(str.at, "");
    str_putn(&str, NULL, 0);
    str_put(&str, "");
    assert_string_equal(str.at, "");
    str_put(&str, "a");
    str_putc(&str, 'b');
    str_putn(&str, "cde", 2);
    str_putf(&str, "%d%s", 42, "");
    assert_string_equal(str.at, "abcd42");
    assert_int_equal(str.n, 6);
}

static void test_put_grows(void **state)
{
    (void)state;
    Str str = str_new(arena);
    for (int i = 0; i < 5000; i++)
        str_putf(&str, "%04d,", i);
    assert_int_equal(str.n, 25000);
    assert_int_equal(strlen(str.at), 25000);
    for (int i = 0; i < 5000; i++)
        assert_int_equal(atoi(str.at + (size_t)i * 5), i);
    /* Every length around a growth, by every way of putting. */
    for (size_t n = 55; n < 75; n++) {
        Str one = str_new(arena), two = str_new(arena);
        str_putf(&one, "%*s", (int)n, "");
        for (size_t i = 0; i < n; i++)
            str_putc(&two, ' ');
        assert_int_equal(strlen(one.at), n);
        assert_string_equal(one.at, two.at);
    }
}

static void test_pad(void **state)
{
    (void)state;
    Str str = str_new(arena);
    str_put(&str, "first line\nab");
    str_pad(&str, 4);
    str_put(&str, "|\n\xc3\xa4\xe2\x82\xac");
    str_pad(&str, 4);
    str_put(&str, "|");
    str_pad(&str, 3);
    assert_string_equal(str.at, "first line\nab  |\n\xc3\xa4\xe2\x82\xac  |");
}

static void test_eq(void **state)
{
    (void)state;
    assert_true(str_eq(NULL, NULL));
    assert_false(str_eq(NULL, ""));
    assert_false(str_eq("", NULL));
    assert_true(str_eq("a", "a"));
    assert_false(str_eq("a", "A"));
}

static void test_nearest(void **state)
{
    (void)state;
    static const char *const words[] = {"heads", "kv_heads", "head_dim", "window", "tp", "dp", ""};
    enum { COUNT = sizeof words / sizeof *words };
    static const struct {
        const char *text, *nearest;
    } cases[] = {
        {"heads", "heads"},
        {"head", "heads"},
        {"haeds", "heads"},
        {"HEADS", "heads"},
        {"kv_head", "kv_heads"},
        {"headdim", "head_dim"},
        {"wnidow", "window"},
        {"tpp", "tp"},
        {"xp", "tp"},
        {"ep", "tp"},
        {"q", NULL},
        {"", NULL},
        {"temperature", NULL},
        {"winter", NULL},
        {"kv heads", "kv_heads"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *nearest = str_nearest(cases[i].text, words, COUNT);
        if (!str_eq(nearest, cases[i].nearest))
            fail_msg("nearest to '%s' is '%s', not '%s'", cases[i].text, nearest ? nearest : "-",
                     cases[i].nearest ? cases[i].nearest : "-");
    }
    char text[300];
    memset(text, 'h', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_null(str_nearest(text, words, COUNT));
    assert_null(str_nearest("heads", words, 0));
}

static void test_commas(void **state)
{
    (void)state;
    assert_string_equal(str_commas(arena, 0), "0");
    assert_string_equal(str_commas(arena, 999), "999");
    assert_string_equal(str_commas(arena, 1000), "1,000");
    assert_string_equal(str_commas(arena, -1234567), "-1,234,567");
    assert_string_equal(str_commas(arena, INT64_MAX), "9,223,372,036,854,775,807");
    assert_string_equal(str_commas(arena, INT64_MIN), "-9,223,372,036,854,775,808");
}

static void test_units(void **state)
{
    (void)state;
    assert_string_equal(str_gib(arena, 0), "0 B");
    assert_string_equal(str_gib(arena, 900), "900 B");
    assert_string_equal(str_gib(arena, 1023), "1023 B");
    assert_string_equal(str_gib(arena, 1024), "1.0 KiB");
    assert_string_equal(str_gib(arena, 1536), "1.5 KiB");
    assert_string_equal(str_gib(arena, (INT64_C(1) << 30) - 1), "1.0 GiB");
    assert_string_equal(str_gib(arena, INT64_C(4617089843)), "4.3 GiB");
    assert_string_equal(str_gib(arena, -(INT64_C(5) << 40)), "-5.0 TiB");
    assert_string_equal(str_gib(arena, INT64_MAX), "8192.0 PiB");
    assert_string_equal(str_gib(arena, INT64_MIN), "-8192.0 PiB");
    assert_string_equal(str_ns(arena, 850), "850 ns");
    assert_string_equal(str_ns(arena, 12345678), "12.3 ms");
    assert_string_equal(str_ns(arena, 999960), "1.0 ms");
    assert_string_equal(str_ns(arena, 999940), "999.9 us");
    assert_string_equal(str_ns(arena, INT64_C(59900000000)), "59.9 s");
    assert_string_equal(str_ns(arena, INT64_C(5400000000000)), "1.5 h");
    assert_string_equal(str_ns(arena, -1), "-1 ns");
}

static const char *in_folder(const char *folder, const char *name)
{
    return arena_printf(arena, "%s/%s", folder, name);
}

static void test_files(void **state)
{
    (void)state;
    char folder[] = "/tmp/lplan-test-XXXXXX";
    assert_non_null(mkdtemp(folder));
    const char *path = in_folder(folder, "a.txt"), *link_path = in_folder(folder, "link");
    assert_true(file_write(path, "one\0two", 7));
    size_t length = 0;
    const char *text = file_read(arena, path, &length);
    assert_int_equal(length, 7);
    assert_memory_equal(text, "one\0two", 8);
    /* Written through a link, the link stays one. */
    assert_int_equal(symlink(path, link_path), 0);
    assert_true(file_write(link_path, "new", 3));
    struct stat status;
    assert_int_equal(lstat(link_path, &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    assert_string_equal(file_read(arena, path, NULL), "new");
    /* Empty, long, and without the length. */
    assert_true(file_write(path, "", 0));
    assert_string_equal(file_read(arena, path, NULL), "");
    char *big = arena_alloc(arena, 200000);
    memset(big, 'x', 199999);
    assert_true(file_write(path, big, 199999));
    assert_string_equal(file_read(arena, path, NULL), big);

    errno = 0;
    assert_null(file_read(arena, in_folder(folder, "missing"), &length));
    assert_int_equal(errno, ENOENT);
    assert_null(file_read(arena, folder, &length));
    assert_int_equal(errno, EISDIR);
    assert_false(file_write(in_folder(folder, "no/such/folder"), "x", 1));
    assert_int_equal(errno, ENOENT);
    assert_false(file_write(folder, "x", 1));
    assert_true(file_write("/dev/null", "x", 1));
    if (access("/dev/full", W_OK) == 0) {
        assert_false(file_write("/dev/full", "x", 1));
        assert_int_equal(errno, ENOSPC);
    }
    unlink(link_path);
    unlink(path);
    /* Fails when a file was left aside. */
    assert_int_equal(rmdir(folder), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_put, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_put_grows, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_pad, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_eq, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_nearest, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_commas, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_units, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_files, set_up, tear_down),
};

RUN(tests)
