/* test_vec.c - growth keeps the elements, and stops where an int32 does. */
#include "ir/base/vec.h"

#include <string.h>

#include "tests/check.h"

typedef struct Pair {
    int64_t a;
    char tag;
} Pair;

static void test_push_keeps_order(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    VEC(Pair) pairs = {0};
    for (int i = 0; i < 10000; i++)
        vec_push(arena, &pairs) = (Pair){i, (char)(i % 100)};
    assert_int_equal(pairs.n, 10000);
    assert_true(pairs.cap >= pairs.n);
    for (int i = 0; i < 10000; i++) {
        assert_int_equal(pairs.at[i].a, i);
        assert_int_equal(pairs.at[i].tag, i % 100);
    }
    arena_free(arena);
}

static void test_empty_has_no_memory(void **state)
{
    (void)state;
    VEC(int) none = {0};
    assert_null(none.at);
    assert_int_equal(none.n, 0);
}

static void grow_past_int32(void *argument)
{
    int32_t cap = INT32_MAX / 2 + 1;
    vec_room(argument, NULL, cap, &cap, 1);
}

static void test_too_many_elements(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    char text[500];
    assert_int_equal(check_child(grow_past_int32, arena, text, sizeof text), 70);
    assert_non_null(strstr(text, "cannot grow"));
    arena_free(arena);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_push_keeps_order),
    cmocka_unit_test(test_empty_has_no_memory),
    cmocka_unit_test(test_too_many_elements),
};

RUN(tests)
