/* test_arena.c - alignment, zeroing, reuse, overflow, and red zones under AddressSanitizer. */
#include "ir/base/arena.h"

#include <stdio.h>
#include <string.h>

#include "tests/check.h"

static int is_zero(const unsigned char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (at[i])
            return 0;
    }
    return 1;
}

static void test_aligned_zeroed_apart(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    unsigned char *before = NULL;
    for (size_t bytes = 0; bytes < 300; bytes++) {
        unsigned char *at = arena_alloc(arena, bytes);
        assert_int_equal((uintptr_t)at % 16, 0);
        assert_true(is_zero(at, bytes));
        assert_ptr_not_equal(at, before);
        memset(at, 0xAB, bytes);
        before = at;
    }
    arena_free(arena);
}

static void test_zero_bytes_are_distinct(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    void *a = arena_alloc(arena, 0), *b = arena_alloc(arena, 0);
    assert_non_null(a);
    assert_ptr_not_equal(a, b);
    arena_free(arena);
    arena_free(NULL);
}

static void fill(Arena *arena, const size_t *sizes, size_t count, void **ret)
{
    for (size_t i = 0; i < count; i++) {
        ret[i] = arena_alloc(arena, sizes[i]);
        assert_true(is_zero(ret[i], sizes[i]));
        memset(ret[i], (int)i + 1, sizes[i]);
    }
    for (size_t i = 0; i < count; i++) {
        const unsigned char *at = ret[i];
        assert_int_equal(at[0], i + 1);
        assert_int_equal(at[sizes[i] - 1], i + 1);
    }
}

/* Small, big and huge requests in one arena keep apart, and come back zeroed from kept blocks. */
static void test_reset_keeps_blocks_and_zeroes(void **state)
{
    (void)state;
    static const size_t sizes[] = {1,       8000,    900000, 17, 3000000, 600000,
                                   1000000, 1048576, 16,     1,  524288,  524289};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    Arena *arena = arena_new("test");
    void *first[COUNT], *again[COUNT];
    fill(arena, sizes, COUNT, first);
    size_t used = arena_used(arena);
    arena_reset(arena);
    assert_int_equal(arena_used(arena), 0);
    fill(arena, sizes, COUNT, again);
    assert_int_equal(arena_used(arena), used);
    int reused = 0;
    for (int i = 0; i < COUNT; i++) {
        for (int j = 0; j < COUNT; j++)
            reused += first[i] == again[j];
    }
    assert_true(reused > COUNT / 2);
    arena_free(arena);
}

static void test_used_grows_by_what_is_taken(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    assert_int_equal(arena_used(arena), 0);
    arena_alloc(arena, 1000);
    assert_in_range(arena_used(arena), 1000, 1040);
    arena_free(arena);
}

typedef struct Released {
    int order[4], n;
} Released;

static Released released;

static void note_release(void *what)
{
    released.order[released.n++] = *(int *)what;
}

/* What is not arena memory goes when the arena goes or is emptied: once, latest first. */
static void test_deferred_releases(void **state)
{
    (void)state;
    released.n = 0;
    Arena *arena = arena_new("test");
    for (int i = 0; i < 3; i++) {
        int *number = ARENA_NEW(arena, int);
        *number = i;
        arena_defer(arena, note_release, number);
        if (i == 1)
            arena_reset(arena);
    }
    assert_int_equal(released.n, 2);
    arena_free(arena);
    assert_int_equal(released.n, 3);
    assert_memory_equal(released.order, ((int[]){1, 0, 2}), 3 * sizeof(int));
}

static void test_text(void **state)
{
    (void)state;
    Arena *arena = arena_new("a name far longer than the arena keeps of it");
    assert_string_equal(arena_strdup(arena, ""), "");
    assert_string_equal(arena_strdup(arena, "heads"), "heads");
    assert_string_equal(arena_strndup(arena, "heads", 2), "he");
    assert_string_equal(arena_strndup(arena, NULL, 0), "");
    assert_string_equal(arena_printf(arena, "%s=%d", "tp", 8), "tp=8");
    const char *long_text = arena_printf(arena, "%5000d", 7);
    assert_int_equal(strlen(long_text), 5000);
    arena_free(arena);
}

static void test_array(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    int64_t *numbers = ARENA_ARRAY(arena, int64_t, 100);
    for (int i = 0; i < 100; i++)
        assert_int_equal(numbers[i], 0);
    assert_non_null(ARENA_ARRAY(arena, int64_t, 0));
    arena_free(arena);
}

static void ask_overflow(void *argument)
{
    arena_array(argument, SIZE_MAX / 2, 3);
}

static void ask_too_much(void *argument)
{
    arena_alloc(argument, SIZE_MAX - 8);
}

static void ask_more_than_there_is(void *argument)
{
    arena_alloc(argument, SIZE_MAX / 4);
}

static void test_impossible_sizes_end_the_program(void **state)
{
    (void)state;
    Arena *arena = arena_new("graph");
    char text[1000];
    assert_int_equal(check_child(ask_overflow, arena, text, sizeof text), 70);
    assert_non_null(strstr(text, "arena 'graph'"));
    assert_int_equal(check_child(ask_too_much, arena, text, sizeof text), 70);
#if !defined(__SANITIZE_ADDRESS__)
    /* AddressSanitizer ends the program itself when asked for this much. */
    assert_int_equal(check_child(ask_more_than_there_is, arena, text, sizeof text), 70);
    assert_non_null(strstr(text, "out of memory"));
#else
    (void)ask_more_than_there_is;
#endif
    arena_free(arena);
}

#if defined(__SANITIZE_ADDRESS__)
static void write_behind_the_end(void *argument)
{
    volatile char *at = arena_alloc(argument, 16);
    at[16] = 1;
}

static void read_after_reset(void *argument)
{
    volatile char *at = arena_alloc(argument, 16);
    arena_reset(argument);
    char read = at[0];
    (void)read;
}

static void test_sanitizer_sees_misuse(void **state)
{
    (void)state;
    char text[4000];
    Arena *arena = arena_new("test");
    assert_int_not_equal(check_child(write_behind_the_end, arena, text, sizeof text), 0);
    assert_non_null(strstr(text, "use-after-poison"));
    assert_int_not_equal(check_child(read_after_reset, arena, text, sizeof text), 0);
    assert_non_null(strstr(text, "use-after-poison"));
    arena_free(arena);
}
#endif

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_aligned_zeroed_apart),
    cmocka_unit_test(test_zero_bytes_are_distinct),
    cmocka_unit_test(test_reset_keeps_blocks_and_zeroes),
    cmocka_unit_test(test_used_grows_by_what_is_taken),
    cmocka_unit_test(test_deferred_releases),
    cmocka_unit_test(test_text),
    cmocka_unit_test(test_array),
    cmocka_unit_test(test_impossible_sizes_end_the_program),
#if defined(__SANITIZE_ADDRESS__)
    cmocka_unit_test(test_sanitizer_sees_misuse),
#endif
};

RUN(tests)
