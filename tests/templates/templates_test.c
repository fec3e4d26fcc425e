/* templates_test.c - the embedded texts: names, laws of the room, hash. */
#include "templates/templates.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_lookup(void **state)
{
    (void)state;
    int count = 0;
    while (template_name(count)) {
        assert_non_null(template_text(template_name(count)));
        count++;
    }
    assert_true(count >= 8);
    assert_null(template_name(-1));
    assert_null(template_text("host/no_such.c"));
    assert_null(template_text(""));
    assert_non_null(strstr(template_text("host/math.h"), "lp_expf"));
}

/* The word as a token: not a part of a longer identifier, as in a comment's "basm". */
static int has_word(const char *text, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) {
        const int before = at == text ? ' ' : (unsigned char)at[-1];
        const int after = (unsigned char)at[n];
        if (!isalnum(before) && before != '_' && !isalnum(after) && after != '_') {
            return 1;
        }
    }
    return 0;
}

/* PTX stands in the prelude's wrappers only: the one part that the emulator replaces. */
static void test_asm_only_in_the_prelude(void **state)
{
    (void)state;
    for (int i = 0; template_name(i); i++) {
        const int prelude = strcmp(template_name(i), "cuda/prelude.cuh") == 0;
        const int has = has_word(template_text(template_name(i)), "asm");
        if (has != prelude) {
            fail_msg("%s: asm %s", template_name(i), has ? "outside the prelude" : "not found");
        }
    }
}

static void test_includes(void **state)
{
    (void)state;
    for (int i = 0; template_name(i); i++) {
        const char *name = template_name(i);
        const char *text = template_text(name);
        assert_null(strstr(text, "#include \""));
        if (strncmp(name, "cuda/", 5) == 0) {
            assert_null(strstr(text, "#include"));
        }
        assert_int_equal(strncmp(text, "/* ", 3), 0);
        /* The first line says what the file is, by its own name. */
        const char *base = strrchr(name, '/') + 1;
        assert_int_equal(strncmp(text + 3, base, strlen(base)), 0);
    }
}

/* The hash again, from the texts themselves. */
static void test_hash(void **state)
{
    (void)state;
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; template_name(i); i++) {
        const char *part[] = {template_name(i), template_text(template_name(i))};
        for (int p = 0; p < 2; p++) {
            /* A name counts with its NUL, which keeps "ab" "c" and "a" "bc" apart. */
            const size_t n = strlen(part[p]) + (p == 0);
            for (size_t x = 0; x < n; x++) {
                h = (h ^ (unsigned char)part[p][x]) * UINT64_C(0x100000001b3);
            }
        }
    }
    assert_int_equal(strlen(template_set_hash()), 16);
    assert_true(strtoull(template_set_hash(), NULL, 16) == h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lookup),
        cmocka_unit_test(test_asm_only_in_the_prelude),
        cmocka_unit_test(test_includes),
        cmocka_unit_test(test_hash),
    };
    return cmocka_run_group_tests_name("templates", tests, NULL, NULL);
}
