/* test_cli.c - flags in every spelling, right and wrong, and the exit codes. */
#include "ir/base/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ir/base/str.h"
#include "tests/check.h"

static const CliFlag flags[] = {
    {"gpus", "N", "how many", false},
    {"lambda", "X", "weight", false},
    {"set", "KEY=VALUE", "a change", true},
    {"html", NULL, "a page", false},
};
static const CliSpec spec = {
    .verb = "whatif",
    .arguments = "PLAN [MORE]",
    .about = "tries a change",
    .flags = flags,
    .flag_count = 4,
    .min_args = 1,
    .max_args = 2,
};

enum { WORDS = 16 };

/* Splits at blanks, so that a case is one string; the arguments are static text. */
static Cli *begin(char *line)
{
    static char verb[] = "whatif";
    char *argv[WORDS] = {verb};
    int argc = 1;
    for (char *word = strtok(line, " "); word && argc < WORDS - 1; word = strtok(NULL, " "))
        argv[argc++] = word;
    return cli_begin(&spec, argc, argv);
}

static int end_quietly(Cli *cli, int code)
{
    /* The text of the errors is checked where it matters; here it would only fill the log. */
    int kept = dup(STDERR_FILENO);
    FILE *null = freopen("/dev/null", "w", stderr);
    assert_non_null(null);
    code = cli_end(cli, code);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    return code;
}

static void test_good_lines(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "plan.json --gpus 8 --set a=1 --set b=2 -o out.json -q --json --html",
        "--gpus=8 plan.json --set=a=1 --set=b=2 -oout.json --quiet --html --json",
        "-o out.json --html -q --json --set a=1 --set=b=2 --gpus 8 -- plan.json",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char line[200];
        strcpy(line, lines[i]);
        Cli *cli = begin(line);
        assert_true(cli->ready);
        assert_int_equal(cli->arg_count, 1);
        assert_string_equal(cli->args[0], "plan.json");
        int64_t gpus = 0;
        assert_true(cli_int(cli, "gpus", 1, 1 << 20, &gpus));
        assert_int_equal(gpus, 8);
        assert_string_equal(cli_value(cli, "set", 0), "a=1");
        assert_string_equal(cli_value(cli, "set", 1), "b=2");
        assert_null(cli_value(cli, "set", 2));
        assert_string_equal(cli->output, "out.json");
        assert_true(cli->quiet && cli->json && cli_has(cli, "html"));
        assert_int_equal(cli_end(cli, CLI_OK), CLI_OK);
    }
}

static void test_defaults_and_dashes(void **state)
{
    (void)state;
    char line[] = "- -- --gpus";
    Cli *cli = begin(line);
    assert_true(cli->ready);
    assert_string_equal(cli->args[0], "-");
    assert_string_equal(cli->args[1], "--gpus");
    assert_string_equal(cli->output, "-");
    assert_false(cli->quiet || cli->json || cli_has(cli, "html"));
    int64_t gpus = 5;
    double lambda = 0.5;
    assert_true(cli_int(cli, "gpus", 1, 9, &gpus) && gpus == 5);
    assert_true(cli_num(cli, "lambda", 0, 1, &lambda) && lambda == 0.5);
    assert_int_equal(cli_end(cli, CLI_NOTHING_FITS), CLI_NOTHING_FITS);
}

static void test_bad_lines(void **state)
{
    (void)state;
    static const struct {
        const char *line, *text, *help;
    } cases[] = {
        {"p --gpu 8", "'whatif' has no option --gpu", "did you mean --gpus?"},
        {"p --jsn", "'whatif' has no option --jsn", "did you mean --json?"},
        {"p --temperature", "'whatif' has no option --temperature", "see lplan whatif --help"},
        {"p --", "", ""},
        {"p --=3", "'whatif' has no option --", "see lplan"},
        {"p -x", "'whatif' has no option -x", "see lplan"},
        {"p -qq", "'whatif' has no option -qq", "see lplan"},
        {"p --gpus", "--gpus needs a value", "write --gpus=N"},
        {"p --gpus --html", "--gpus needs a value", "write --gpus=N"},
        {"p -o", "--output needs a value", "write --output=FILE"},
        {"p --html=1", "--html takes no value", ""},
        {"p --gpus 1 --gpus=2", "--gpus is given twice", ""},
        {"p -o a -o b", "--output is given twice", ""},
        {"--html", "'whatif' needs PLAN [MORE]", "lplan whatif PLAN [MORE] [options]"},
        {"a b c", "'whatif' has no use for \"c\"", "lplan whatif PLAN"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[200];
        strcpy(line, cases[i].line);
        Cli *cli = begin(line);
        assert_int_equal(cli->ready, cases[i].text[0] == '\0');
        if (!cli->ready) {
            const DiagItem *item = diag_item(cli->diag, 0);
            assert_string_equal(item->text, cases[i].text);
            assert_true(cases[i].help[0] ? item->help && strstr(item->help, cases[i].help)
                                         : !item->help);
        }
        bool ready = cli->ready;
        assert_int_equal(end_quietly(cli, ready ? CLI_OK : CLI_USAGE), ready ? CLI_OK : CLI_USAGE);
    }
}

static bool int_of(const char *text, int64_t *ret)
{
    char line[200];
    snprintf(line, sizeof line, "p --gpus=%s", text);
    Cli *cli = begin(line);
    assert_true(cli->ready);
    bool good = cli_int(cli, "gpus", INT64_MIN, INT64_MAX, ret);
    assert_int_equal(diag_errors(cli->diag), good ? 0 : 1);
    /* A good code is lowered when there were errors. */
    assert_int_equal(end_quietly(cli, CLI_OK), good ? CLI_OK : CLI_INPUT);
    return good;
}

static void test_integers(void **state)
{
    (void)state;
    int64_t value = 0;
    assert_true(int_of("-3", &value) && value == -3);
    assert_true(int_of("9223372036854775807", &value) && value == INT64_MAX);
    assert_true(int_of("1e12", &value) && value == 1000000000000);
    assert_true(int_of("1.5e3", &value) && value == 1500);
    assert_false(int_of("9223372036854775808", &value));
    assert_false(int_of("1e300", &value));
    assert_false(int_of("1.5", &value));
    assert_false(int_of("8x", &value));
    assert_false(int_of("nan", &value));
    assert_false(int_of("", &value));
    assert_int_equal(value, 1500);
}

static void test_ranges(void **state)
{
    (void)state;
    char line[] = "p --gpus -1 --lambda=nan";
    Cli *cli = begin(line);
    int64_t gpus = 4;
    double lambda = 4;
    assert_false(cli_int(cli, "gpus", 1, 8, &gpus));
    assert_string_equal(diag_item(cli->diag, 0)->text, "--gpus=-1 is not between 1 and 8");
    assert_false(cli_num(cli, "lambda", 0, 1, &lambda));
    assert_string_equal(diag_item(cli->diag, 1)->text, "--lambda needs a number, not \"nan\"");
    assert_true(gpus == 4 && lambda == 4);
    assert_int_equal(end_quietly(cli, CLI_USAGE), CLI_USAGE);

    char second[] = "p --lambda 1.25";
    cli = begin(second);
    assert_true(cli_num(cli, "lambda", 0, 2, &lambda) && lambda == 1.25);
    assert_false(cli_num(cli, "lambda", 0, 1, &lambda));
    end_quietly(cli, CLI_USAGE);
}

static void ask_help(void *argument)
{
    (void)argument;
    dup2(STDERR_FILENO, STDOUT_FILENO);
    char line[] = "--help --gpus 3";
    Cli *cli = begin(line);
    int code = cli->ready ? 99 : cli_end(cli, CLI_USAGE);
    fflush(stdout);
    _exit(code);
}

static void test_help_is_not_an_error(void **state)
{
    (void)state;
    char text[2000];
    assert_int_equal(check_child(ask_help, NULL, text, sizeof text), CLI_OK);
    assert_non_null(strstr(text, "lplan whatif PLAN [MORE] [options]\ntries a change\n"));
    assert_non_null(strstr(text, "  --set KEY=VALUE           a change\n"));
    assert_non_null(strstr(text, "  --help "));
}

static void ask_undeclared(void *argument)
{
    cli_value(argument, "gpu", 0);
}

static void test_undeclared_flag_is_a_bug(void **state)
{
    (void)state;
    char line[] = "p", text[500];
    Cli *cli = begin(line);
    assert_int_equal(check_child(ask_undeclared, cli, text, sizeof text), 70);
    cli_end(cli, CLI_OK);
}

static void test_write(void **state)
{
    (void)state;
    char name[] = "/tmp/lplan-test-XXXXXX", line[100];
    close(mkstemp(name));
    snprintf(line, sizeof line, "p -o %s", name);
    Cli *cli = begin(line);
    assert_true(cli_write(cli, "result\n"));
    assert_string_equal(file_read(cli->arena, name, NULL), "result\n");
    assert_int_equal(cli_end(cli, CLI_OK), CLI_OK);
    unlink(name);

    char bad[] = "p -o /no/such/folder/x";
    cli = begin(bad);
    assert_false(cli_write(cli, "result\n"));
    assert_string_equal(diag_item(cli->diag, 0)->text,
                        "cannot write /no/such/folder/x: No such file or directory");
    assert_int_equal(end_quietly(cli, CLI_OK), CLI_INPUT);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_good_lines),
    cmocka_unit_test(test_defaults_and_dashes),
    cmocka_unit_test(test_bad_lines),
    cmocka_unit_test(test_integers),
    cmocka_unit_test(test_ranges),
    cmocka_unit_test(test_help_is_not_an_error),
    cmocka_unit_test(test_undeclared_flag_is_a_bug),
    cmocka_unit_test(test_write),
};

RUN(tests)
