/* test_options.c - the trainer's command line, and the learning rate that it sets. */
#include "runtime/core/options.h"

#include "runtime/core/step.h"
#include "tests/runtime/forked.h"

#include <math.h>

static const LpJob job = {.name = "options", .ranks = 4, .defaults = {.steps = 7, .lr = 0.5}};

static int parse(const char *line, LpOptions *ret_options, char *said, size_t size)
{
    char copy[512], *argv[32] = {(char *)(uintptr_t) "trainer"}, *save = NULL;
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    FILE *out = fmemopen(said, size, "w");
    assert_non_null(out);
    int status = lp_options_parse(&job, argc, argv, out, ret_options);
    fclose(out);
    return status;
}

static void options_override_the_jobs_defaults(void **state)
{
    (void)state;
    LpOptions options;
    char said[512] = "";
    assert_int_equal(
        parse("--data x --seed=18446744073709551615 --warmup 3 --virtual --schedule constant",
              &options, said, sizeof said),
        -1);
    assert_int_equal(options.steps, 7);
    assert_true(options.lr == 0.5 && options.timeout_s == 25);
    assert_true(options.seed == UINT64_MAX && options.warmup == 3);
    assert_true(options.virtual_ranks && !options.deterministic);
    assert_int_equal(options.schedule, LP_CONSTANT);
    assert_int_equal(
        parse("--data x --lr 3e-4 --steps 0 --threads 2 --clip=1", &options, said, sizeof said),
        -1);
    assert_true(options.lr == 3e-4 && options.steps == 0 && options.threads == 2 &&
                options.clip == 1);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"--data x --learning 3", "unknown option `--learning`"},
        {"--data x -lr 3", "unknown option `-lr`"},
        {"--data x 3", "unknown option `3`"},
        {"--data x --", "unknown option `--`"},
        {"--data x --lr", "no value for `--lr`"},
        {"--data x --lr fast", "bad value in `--lr fast`"},
        {"--data x --lr 1e999", "bad value in"},
        {"--data x --lr nan", "bad value in"},
        {"--data x --lr=-1", "bad value in"},
        {"--data x --steps 3.5", "bad value in"},
        {"--data x --steps=-1", "bad value in `--steps -1`"},
        {"--data x --steps 99999999999999999999", "bad value in"},
        {"--data x --seed -1", "bad value in"},
        {"--data x --seed 18446744073709551616", "bad value in"},
        {"--data x --threads 0", "bad value in"},
        {"--data x --virtual=yes", "an option without value has one"},
        {"--data x --schedule linear", "bad value in `--schedule linear`"},
        {"--data=", "bad value in"},
        {"--steps 3", "nothing to train on"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        LpOptions options;
        char said[512] = "";
        assert_int_equal(parse(bad[i][0], &options, said, sizeof said), 2);
        assert_says(said, bad[i][1]);
        assert_says(said, "trainer --help");
    }
}

static void rates_warm_up_and_fall(void **state)
{
    (void)state;
    LpOptions options = {.steps = 100, .warmup = 10, .lr = 2, .min_lr = 0.5, .schedule = LP_COSINE};
    assert_true(lp_rate(&options, 0) == 2 * 1 / 10.0);
    assert_true(lp_rate(&options, 9) == 2);
    assert_true(lp_rate(&options, 10) == 2);
    assert_true(fabs(lp_rate(&options, 55) - 1.25) < 1e-12);
    assert_true(fabs(lp_rate(&options, 100) - 0.5) < 1e-12);
    for (int step = 11; step < 100; step++)
        assert_true(lp_rate(&options, step) < lp_rate(&options, step - 1));
    options.schedule = LP_CONSTANT;
    assert_true(lp_rate(&options, 4) == 1 && lp_rate(&options, 99) == 2);
    LpOptions all_warm = {.steps = 5, .warmup = 5, .lr = 1};
    assert_true(lp_rate(&all_warm, 4) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_override_the_jobs_defaults),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(rates_warm_up_and_fall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
