/* cmd_whatif.c - lplan whatif: the plan under another cluster, model length or job, side by side.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ir/base/cli.h"
#include "planner/change.h"
#include "planner/compare.h"

/* Plans or prices one variation and appends its column. Held pins keep everything but what was
 * changed; where that cannot be, the column says so and a warning says why. */
static void add_column(Cli *cli, Columns *columns, const char *title, Problem *problem,
                       const Pins *pins, bool replan)
{
    Column column = {.title = title};
    Search *search = search_new(problem);
    SearchResult *result = ARENA_NEW(cli->arena, SearchResult);
    if (replan) {
        Pins none = pins_none();
        SearchLimits limits = {0};
        search_run(search, &none, &limits, result);
        column.search = result;
        column.tightest = &result->tightest;
        pins = &result->best.pins;
    }
    if (!replan || result->found) {
        Net *net;
        problem->diag = diag_new(cli->arena);
        Plan *plan = plan_make(problem, pins, replan ? search_variant(search, pins) : NULL, &net);
        if (plan)
            column.it = assess_plan(cli->arena, plan, net, ASSESS_STEPS);
        else
            diag_warning(cli->diag, NO_SPAN, "%s: %s", title, diag_item(problem->diag, 0)->text);
    }
    search_free(search);
    vec_push(cli->arena, columns) = column;
}

typedef struct Base {
    Problem problem;
    Pins pins;
    bool replan;
} Base;

/* "memory_bytes" of device.memory_bytes; a link keeps its name, which a number stands for. */
static const char *key_words(Arena *arena, const Base *base, const char *key)
{
    const Cluster *cluster = base->problem.cluster;
    if (strncmp(key, "device.", 7) == 0)
        return key + 7;
    if (strncmp(key, "links.", 6) != 0)
        return key;
    int place = key[6] - '0';
    if (place < 0 || place >= cluster->levels || key[7] != '.')
        return key + 6;
    return arena_printf(arena, "%s%s", cluster->level[place].name, key + 7);
}

/* One variation: the --set changes and, with a key, one value of the sweep. */
static bool vary(Cli *cli, const Base *base, Columns *columns, const char *key, const char *value)
{
    Problem problem = base->problem;
    Pins pins = base->pins;
    bool reread = false;
    Str title = str_new(cli->arena);
    for (int i = 0; cli_value(cli, "set", i); i++) {
        char *copy = arena_strdup(cli->arena, cli_value(cli, "set", i));
        char *equals = strchr(copy, '=');
        if (!equals)
            return diag_error(cli->diag, NO_SPAN, "--set %s has no value; write KEY=VALUE", copy);
        *equals = '\0';
        if (!change_apply(&problem, &pins, copy, equals + 1, &reread))
            return false;
        str_putf(&title, "%s%s=%s", title.n ? " " : "", key_words(cli->arena, base, copy),
                 equals + 1);
    }
    if (key) {
        if (!change_apply(&problem, &pins, key, value, &reread))
            return false;
        str_putf(&title, "%s%s=%s", title.n ? " " : "", key_words(cli->arena, base, key), value);
    }
    if (reread && !problem_read(&problem))
        return false;
    /* a batch that became too small for the micro-batch takes the largest one that divides it */
    while (pins.micro_batch > 1 && problem.job.global_batch % (pins.micro_batch * pins.dp) != 0)
        pins.micro_batch--;
    Problem *kept = ARENA_NEW(cli->arena, Problem);
    *kept = problem;
    add_column(cli, columns, title.at, kept, &pins, base->replan);
    return true;
}

static bool sweep(Cli *cli, const Base *base, Columns *columns)
{
    const char *text = cli_value(cli, "sweep", 0);
    if (!text)
        return vary(cli, base, columns, NULL, NULL);
    char *key = arena_strdup(cli->arena, text);
    char *values = strchr(key, '=');
    if (!values || !values[1])
        return diag_error(cli->diag, NO_SPAN, "--sweep %s has no values; write KEY=a,b,c", key);
    *values++ = '\0';
    for (char *value = values, *next; value && *value; value = next) {
        next = strchr(value, ',');
        if (next)
            *next++ = '\0';
        if (!vary(cli, base, columns, key, value))
            return false;
    }
    return true;
}

static bool whatif(Cli *cli, bool *ret_fits)
{
    Net *net;
    Base base = {.replan = cli_has(cli, "replan")};
    Plan *plan = compare_load(cli->arena, cli->diag, cli->args[0], &net, &base.problem);
    if (!plan)
        return false;
    base.pins = pins_of_plan(plan, net);
    Columns columns = {0};
    vec_push(cli->arena, &columns) =
        (Column){.title = "this plan", .it = assess_plan(cli->arena, plan, net, ASSESS_STEPS)};
    if (!sweep(cli, &base, &columns))
        return false;
    *ret_fits = columns_fit(&columns, 1);
    Style style = style_for(str_eq(cli->output, "-") && isatty(STDOUT_FILENO));
    if (cli->json) {
        json_t *json = compare_json(cli->arena, &columns);
        bool good = cli_write(cli, json_text(cli->arena, json));
        json_decref(json);
        return good;
    }
    Str text = str_new(cli->arena);
    str_putf(&text, "%s on %s, %s\n\n", net->name, plan->cluster->name,
             base.replan ? "planned anew for every column" : "its pins held in every column");
    columns_put(&text, cli->arena, &columns, &style);
    return cli_write(cli, text.at);
}

int cmd_whatif(int argc, char **argv)
{
    static const CliFlag flags[] = {
        {"set", "KEY=VALUE",
         "device.X, links.NAME.X, gpus, global_batch, sequence, recipe or a pin", true},
        {"sweep", "KEY=a,b,c", "a column for every value", false},
        {"replan", NULL, "search anew instead of holding the plan", false},
    };
    static const CliSpec spec = {
        .verb = "whatif",
        .arguments = "PLAN",
        .about = "a plan under a change of cluster, job or pins, side by side",
        .flags = flags,
        .flag_count = 3,
        .min_args = 1,
        .max_args = 1,
    };
    Cli *cli = cli_begin(&spec, argc, argv);
    if (!cli->ready)
        return cli_end(cli, CLI_USAGE);
    if (!cli_value(cli, "set", 0) && !cli_value(cli, "sweep", 0)) {
        diag_error(cli->diag, NO_SPAN, "nothing to change");
        diag_help(cli->diag, "give --set KEY=VALUE or --sweep KEY=a,b,c");
        return cli_end(cli, CLI_USAGE);
    }
    bool fits = false;
    if (!whatif(cli, &fits))
        return cli_end(cli, CLI_INPUT);
    return cli_end(cli, fits ? CLI_OK : CLI_NOTHING_FITS);
}
