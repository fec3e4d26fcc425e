/* cli.c - parsing of a verb's command line, and the end of a verb. */
#include "ir/base/cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ir/base/str.h"
#include "ir/base/vec.h"

typedef struct Option {
    const CliFlag *flag;
    const char *value;
} Option;

typedef struct CliGiven {
    VEC(Option) options;
    VEC(const char *) args;
    bool help;
} CliGiven;

static const CliFlag common_flags[] = {
    {"output", "FILE", "where the result goes (-o; default: standard output)", false},
    {"quiet", NULL, "no progress, only the result (-q)", true},
    {"json", NULL, "the report's machine form", true},
    {"help", NULL, "this text (-h)", true},
};
enum { COMMON_COUNT = sizeof common_flags / sizeof *common_flags };

static const CliFlag *flag_at(const CliSpec *spec, int index)
{
    return index < spec->flag_count ? &spec->flags[index] : &common_flags[index - spec->flag_count];
}

static const CliFlag *flag_find(const CliSpec *spec, const char *name, size_t length)
{
    for (int i = 0; i < spec->flag_count + COMMON_COUNT; i++) {
        const CliFlag *flag = flag_at(spec, i);
        if (strncmp(flag->name, name, length) == 0 && flag->name[length] == '\0')
            return flag;
    }
    return NULL;
}

static bool flag_unknown(Cli *cli, const char *name, size_t length)
{
    const CliSpec *spec = cli->spec;
    int count = spec->flag_count + COMMON_COUNT;
    const char **names = ARENA_ARRAY(cli->arena, const char *, count);
    for (int i = 0; i < count; i++)
        names[i] = flag_at(spec, i)->name;
    const char *wrong = arena_strndup(cli->arena, name, length);
    const char *nearest = str_nearest(wrong, names, count);
    diag_error(cli->diag, NO_SPAN, "'%s' has no option --%s", spec->verb, wrong);
    if (nearest)
        diag_help(cli->diag, "did you mean --%s?", nearest);
    else
        diag_help(cli->diag, "see lplan %s --help", spec->verb);
    return false;
}

static bool option_add(Cli *cli, const CliFlag *flag, const char *value)
{
    CliGiven *given = cli->given;
    for (int i = 0; !flag->many && i < given->options.n; i++) {
        if (given->options.at[i].flag == flag)
            return diag_error(cli->diag, NO_SPAN, "--%s is given twice", flag->name);
    }
    vec_push(cli->arena, &given->options) = (Option){flag, value};
    return true;
}

/* A value that looks like a flag is a forgotten value; negative numbers and "-" are values. */
static const char *value_after(Cli *cli, const CliFlag *flag, int argc, char **argv, int *at)
{
    const char *next = *at + 1 < argc ? argv[*at + 1] : NULL;
    if (!next || strncmp(next, "--", 2) == 0) {
        diag_error(cli->diag, NO_SPAN, "--%s needs a value", flag->name);
        diag_help(cli->diag, "write --%s=%s", flag->name, flag->value);
        return NULL;
    }
    ++*at;
    return next;
}

static bool option_parse(Cli *cli, int argc, char **argv, int *at)
{
    const char *word = argv[*at], *name = word + 2;
    const char *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const CliFlag *flag = flag_find(cli->spec, name, length);
    if (!flag)
        return flag_unknown(cli, name, length);
    if (!flag->value && equals)
        return diag_error(cli->diag, NO_SPAN, "--%s takes no value", flag->name);
    const char *value = NULL;
    if (flag->value)
        value = equals ? equals + 1 : value_after(cli, flag, argc, argv, at);
    return (!flag->value || value) && option_add(cli, flag, value);
}

static bool letter_parse(Cli *cli, int argc, char **argv, int *at)
{
    static const char letters[] = "oqh";
    static const char *const names[] = {"output", "quiet", "help"};
    const char *word = argv[*at], *letter = strchr(letters, word[1]);
    if (!letter || (word[1] != 'o' && word[2])) {
        diag_error(cli->diag, NO_SPAN, "'%s' has no option %s", cli->spec->verb, word);
        diag_help(cli->diag, "see lplan %s --help", cli->spec->verb);
        return false;
    }
    const char *name = names[letter - letters];
    const CliFlag *flag = flag_find(cli->spec, name, strlen(name));
    const char *value = NULL;
    if (flag->value) {
        value = word[2] ? word + 2 : value_after(cli, flag, argc, argv, at);
        if (!value)
            return false;
    }
    return option_add(cli, flag, value);
}

static void help_print(const Cli *cli)
{
    const CliSpec *spec = cli->spec;
    Str text = str_new(cli->arena);
    str_putf(&text, "lplan %s%s%s [options]\n%s\n\n", spec->verb, spec->arguments[0] ? " " : "",
             spec->arguments, spec->about);
    for (int i = 0; i < spec->flag_count + COMMON_COUNT; i++) {
        const CliFlag *flag = flag_at(spec, i);
        str_putf(&text, "  --%s", flag->name);
        if (flag->value)
            str_putf(&text, " %s", flag->value);
        str_put(&text, "  ");
        str_pad(&text, 28);
        str_putf(&text, "%s\n", flag->about);
    }
    fputs(text.at, stdout);
}

static bool arguments_counted(Cli *cli)
{
    const CliSpec *spec = cli->spec;
    bool few = cli->arg_count < spec->min_args;
    bool many = spec->max_args >= 0 && cli->arg_count > spec->max_args;
    if (!few && !many)
        return true;
    if (many)
        diag_error(cli->diag, NO_SPAN, "'%s' has no use for \"%s\"", spec->verb,
                   cli->args[spec->max_args]);
    else
        diag_error(cli->diag, NO_SPAN, "'%s' needs %s", spec->verb, spec->arguments);
    diag_help(cli->diag, "lplan %s%s%s [options]", spec->verb, spec->arguments[0] ? " " : "",
              spec->arguments);
    return false;
}

Cli *cli_begin(const CliSpec *spec, int argc, char **argv)
{
    Arena *arena = arena_new(spec->verb);
    Cli *cli = ARENA_NEW(arena, Cli);
    cli->arena = arena;
    cli->diag = diag_new(arena);
    cli->spec = spec;
    cli->given = ARENA_NEW(arena, CliGiven);
    bool good = true, flags_ended = false;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (flags_ended || word[0] != '-' || word[1] == '\0')
            vec_push(arena, &cli->given->args) = word;
        else if (str_eq(word, "--"))
            flags_ended = true;
        else if (word[1] == '-')
            good &= option_parse(cli, argc, argv, &i);
        else
            good &= letter_parse(cli, argc, argv, &i);
    }
    cli->args = cli->given->args.at;
    cli->arg_count = cli->given->args.n;
    cli->quiet = cli_has(cli, "quiet");
    cli->json = cli_has(cli, "json");
    const char *output = cli_value(cli, "output", 0);
    cli->output = output ? output : "-";
    cli->given->help = good && cli_has(cli, "help");
    if (cli->given->help)
        help_print(cli);
    else
        cli->ready = good && arguments_counted(cli);
    return cli;
}

/* Standard output may have failed long ago, at a full buffer; then the reason is lost. */
static bool stdout_good(Cli *cli)
{
    errno = 0;
    bool good = fflush(stdout) == 0 && !ferror(stdout);
    if (!good && diag_errors(cli->diag) == 0)
        diag_error(cli->diag, NO_SPAN, "cannot write to standard output%s%s", errno ? ": " : "",
                   errno ? strerror(errno) : "");
    return good;
}

int cli_end(Cli *cli, int code)
{
    /* Diagnostics come after what was printed, also when both go to one file. */
    bool written = stdout_good(cli);
    bool colour = isatty(STDERR_FILENO) && !getenv("NO_COLOR");
    diag_print(cli->diag, stderr, colour);
    if (cli->given->help)
        code = CLI_OK;
    if (code == CLI_OK && (!written || diag_errors(cli->diag) > 0))
        code = CLI_INPUT;
    arena_free(cli->arena);
    return code;
}

bool cli_has(const Cli *cli, const char *flag)
{
    const CliGiven *given = cli->given;
    for (int i = 0; i < given->options.n; i++) {
        if (str_eq(given->options.at[i].flag->name, flag))
            return true;
    }
    if (!flag_find(cli->spec, flag, strlen(flag)))
        BUG("verb '%s' asks for its undeclared option --%s", cli->spec->verb, flag);
    return false;
}

const char *cli_value(const Cli *cli, const char *flag, int index)
{
    const CliGiven *given = cli->given;
    for (int i = 0; i < given->options.n; i++) {
        if (str_eq(given->options.at[i].flag->name, flag) && index-- == 0)
            return given->options.at[i].value;
    }
    if (!flag_find(cli->spec, flag, strlen(flag)))
        BUG("verb '%s' asks for its undeclared option --%s", cli->spec->verb, flag);
    return NULL;
}

bool cli_num(Cli *cli, const char *flag, double min, double max, double *ret)
{
    const char *text = cli_value(cli, flag, 0);
    if (!text)
        return true;
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value))
        return diag_error(cli->diag, NO_SPAN, "--%s needs a number, not \"%s\"", flag, text);
    if (value < min || value > max)
        return diag_error(cli->diag, NO_SPAN, "--%s=%s is not between %g and %g", flag, text, min,
                          max);
    *ret = value;
    return true;
}

/* Digits give every int64 exactly; 1e12 goes through double, which holds integers up to 2^53. */
static bool integer_parse(const char *text, int64_t *ret)
{
    char *end = NULL;
    errno = 0;
    long long digits = strtoll(text, &end, 10);
    if (end != text && !*end && errno == 0) {
        *ret = digits;
        return true;
    }
    double value = strtod(text, &end);
    bool exact = end != text && !*end && fabs(value) <= 0x1p53 && value == floor(value);
    if (exact)
        *ret = (int64_t)value;
    return exact;
}

bool cli_int(Cli *cli, const char *flag, int64_t min, int64_t max, int64_t *ret)
{
    const char *text = cli_value(cli, flag, 0);
    if (!text)
        return true;
    int64_t value = 0;
    if (!integer_parse(text, &value))
        return diag_error(cli->diag, NO_SPAN, "--%s needs an integer, not \"%s\"", flag, text);
    if (value < min || value > max)
        return diag_error(cli->diag, NO_SPAN, "--%s=%s is not between %lld and %lld", flag, text,
                          (long long)min, (long long)max);
    *ret = value;
    return true;
}

bool cli_write(Cli *cli, const char *text)
{
    if (file_write(cli->output, text, strlen(text)))
        return true;
    return diag_error(cli->diag, NO_SPAN, "cannot write %s: %s",
                      str_eq(cli->output, "-") ? "to standard output" : cli->output,
                      strerror(errno));
}
