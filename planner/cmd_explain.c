/* cmd_explain.c - lplan explain: what bounds a plan, the simpler ones beside it, and what would
 * help. */
#include <stdio.h>
#include <unistd.h>

#include "ir/base/cli.h"
#include "planner/change.h"
#include "planner/collectives.h"
#include "planner/compare.h"
#include "planner/draw.h"

enum { MOST_COLUMNS = 5 };

static void add_found(Cli *cli, Problem *problem, Search *search, Columns *columns,
                      const char *title, const Found *found, Str *also)
{
    /* one plan, one column: it is that of the first name */
    for (int i = 0; i < columns->n; i++)
        if (pins_same(&columns->at[i].it->pins, &found->pins)) {
            str_putf(&also[i], "%s%s", also[i].n ? ", " : "", title);
            return;
        }
    Net *net;
    Plan *plan = plan_make(problem, &found->pins, search_variant(search, &found->pins), &net);
    if (plan)
        vec_push(cli->arena, columns) =
            (Column){.title = title, .it = assess_plan(cli->arena, plan, net, ASSESS_STEPS)};
}

/* Rungs that fit. */
static void add_rungs(Cli *cli, Problem *problem, Search *search, Columns *columns,
                      const Rung *ladder, int rungs, Str *also)
{
    for (int i = 0; i < rungs && columns->n < MOST_COLUMNS; i++) {
        const Rung *rung = &ladder[i];
        if (rung->fits)
            add_found(cli, problem, search, columns, rung->name, &rung->found, also);
    }
}

static void put_other_names(Str *str, Arena *arena, const Columns *columns, const Str *also)
{
    for (int i = 0; i < columns->n; i++)
        if (also[i].n)
            text_wrap(str, arena_printf(arena, "%s is also: %s", columns->at[i].title, also[i].at),
                      2, 98);
}

static void put_bound_by(Str *str, Arena *arena, const Assessment *it)
{
    static const char *const what[SPENT_COUNT] = {"compute",
                                                  "collectives inside layers (tp)",
                                                  "gradients and weights (dp)",
                                                  "messages between stages (pp)",
                                                  "the norm",
                                                  "state from other memories",
                                                  "waiting for other stages (bubble)"};
    bool said[SPENT_COUNT] = {false};
    Str line = str_new(arena);
    str_put(&line, "bound by ");
    for (int n = 0; n < 3; n++) {
        int most = NONE;
        for (int k = 0; k < SPENT_COUNT; k++)
            if (!said[k] &&
                (most == NONE || assessed_spent(it, (Spent)k) > assessed_spent(it, (Spent)most)))
                most = k;
        int64_t ns = assessed_spent(it, (Spent)most);
        if (n > 0 && ns * 200 < it->step_ns)
            break;
        said[most] = true;
        str_putf(&line, "%s%s %s", n ? ", then " : "", what[most],
                 text_percent(arena, ns, it->step_ns));
    }
    text_wrap(str, line.at, 0, 98);
}

typedef struct Help {
    const char *title, *key;
    bool replan;
} Help;

/* What twice of each resource would bring: the pins held, but memory, which only a new plan can
 * use. */
static void put_sensitivity(Str *str, Cli *cli, const Problem *base, const Pins *pins,
                            const Assessment *it, const Style *style)
{
    Help help[3 + MAX_LEVELS] = {{"compute", "device.flops_bf16", false},
                                 {"memory bandwidth", "device.memory_bytes_per_s", false},
                                 {"memory, planned anew", "device.memory_bytes", true}};
    if (!str_eq(base->job.recipe, "bf16"))
        help[0].key = "device.flops_f32";
    int n = 3;
    for (int i = 0; i < base->cluster->levels; i++)
        help[n++] = (Help){arena_printf(cli->arena, "%s bandwidth", base->cluster->level[i].name),
                           arena_printf(cli->arena, "links.%d.bytes_per_s", i), false};
    str_putf(str, "\n%sTwice as much of one thing%s  %sstep time%s\n", style->bold, style->off,
             style->dim, style->off);
    for (int i = 0; i < n; i++) {
        Problem problem = *base;
        Pins held = *pins;
        bool reread = false;
        if (!change_apply(&problem, &held, help[i].key, "x2", &reread))
            continue;
        int64_t ns = 0;
        Search *search = search_new(&problem);
        if (help[i].replan) {
            Pins none = pins_none();
            SearchLimits limits = {.inside = true};
            SearchResult result;
            search_run(search, &none, &limits, &result);
            ns = result.found ? result.best.step_ns : 0;
        } else {
            Family *family = search_family(search, cli->arena, &held);
            int first_link[MAX_CHUNKS + 1];
            search_links(&problem, &held, first_link);
            ns = family ? account_plan(cli->arena, family, first_link)->step_ns : 0;
        }
        search_free(search);
        if (ns)
            str_putf(str, "  %-24s%10s  %+.1f %%\n", help[i].title, text_time(cli->arena, ns),
                     100.0 * (double)(ns - it->segment_ns) / (double)it->segment_ns);
    }
}

static void put_failed_rungs(Str *str, Arena *arena, const Rung *ladder, int rungs,
                             const Style *style)
{
    bool said = false;
    for (int i = 0; i < rungs; i++) {
        if (ladder[i].fits)
            continue;
        if (!said)
            str_putf(str, "\n%sSimpler plans that do not fit%s\n", style->bold, style->off);
        said = true;
        str_putf(str, "  %-22s%s\n", ladder[i].name,
                 ladder[i].tightest.known ? tightest_short(arena, &ladder[i].tightest)
                                          : "no such plan of this job");
    }
}

static bool explain(Cli *cli)
{
    Net *net;
    Problem problem;
    Plan *plan = compare_load(cli->arena, cli->diag, cli->args[0], &net, &problem);
    if (!plan)
        return false;
    const Assessment *it = assess_plan(cli->arena, plan, net, ASSESS_STEPS);
    Search *search = search_new(&problem);
    SearchResult result;
    Pins none = pins_none();
    SearchLimits limits = {0};
    search_run(search, &none, &limits, &result);
    Rung ladder[LADDER_RUNGS];
    int rungs = ladder_climb(search, &problem, ladder);
    Columns columns = {0};
    vec_push(cli->arena, &columns) = (Column){.title = "this plan", .it = it, .search = &result};
    Str also[MOST_COLUMNS];
    for (int i = 0; i < MOST_COLUMNS; i++)
        also[i] = str_new(cli->arena);
    if (result.found)
        add_found(cli, &problem, search, &columns, "the fastest", &result.best, also);
    add_rungs(cli, &problem, search, &columns, ladder, rungs, also);
    for (int i = 0; i < result.runners && columns.n < MOST_COLUMNS; i++)
        add_found(cli, &problem, search, &columns, arena_printf(cli->arena, "runner-up %d", i + 1),
                  &result.runner[i], also);
    Style style = style_for(str_eq(cli->output, "-") && isatty(STDOUT_FILENO));
    bool good;
    if (cli->json) {
        Report report = {.arena = cli->arena,
                         .it = it,
                         .search = &result,
                         .ladder = ladder,
                         .rungs = rungs,
                         .style = style};
        json_t *json = report_json(&report);
        json_object_set_new(json, "columns", columns_json(cli->arena, &columns));
        good = cli_write(cli, json_text(cli->arena, json));
        json_decref(json);
    } else {
        Str text = str_new(cli->arena);
        str_putf(&text, "%s on %s x %s: %s\n", net->name, str_commas(cli->arena, plan->ranks),
                 plan->cluster->device.name, pins_words(cli->arena, &it->pins));
        put_bound_by(&text, cli->arena, it);
        Report head = {.arena = cli->arena, .it = it, .style = style};
        report_labels(&text, &head);
        if (plan->cluster->caution)
            text_wrap(&text, plan->cluster->caution, 0, 98);
        str_putc(&text, '\n');
        columns_put(&text, cli->arena, &columns, &style);
        put_other_names(&text, cli->arena, &columns, also);
        put_failed_rungs(&text, cli->arena, ladder, rungs, &style);
        put_sensitivity(&text, cli, &problem, &it->pins, it, &style);
        good = cli_write(cli, text.at);
    }
    search_free(search);
    return good;
}

/* What needs no search: sections of the report, the collectives one by one, the step drawn. */
static bool show(Cli *cli, unsigned sections)
{
    Net *net;
    Plan *plan = plan_load(cli->arena, cli->diag, cli->args[0], &net);
    if (!plan)
        return false;
    const Assessment *it = assess_plan(cli->arena, plan, net, ASSESS_STEPS);
    Style style = style_for(str_eq(cli->output, "-") && isatty(STDOUT_FILENO));
    if (cli->json) {
        json_t *json = collectives_json(cli->arena, it);
        bool good = cli_write(cli, json_text(cli->arena, json));
        json_decref(json);
        return good;
    }
    Str text = str_new(cli->arena);
    Report report = {.arena = cli->arena, .it = it, .style = style};
    report_put(&text, &report, sections);
    if (cli_has(cli, "collectives"))
        collectives_put(&text, cli->arena, it, &style);
    if (cli_has(cli, "timeline"))
        draw_put(&text, cli->arena, it, &style);
    return cli_write(cli, text.at);
}

int cmd_explain(int argc, char **argv)
{
    static const CliFlag flags[] = {
        {"only", "SECTION,...", "instead: of the plan's report head, named, search, 1 to 6", false},
        {"collectives", NULL,
         "instead: every collective that was derived, its bytes and its reason", false},
        {"timeline", NULL, "instead: the step drawn in text, its stages or its streams", false},
    };
    static const CliSpec spec = {
        .verb = "explain",
        .arguments = "PLAN",
        .about = "why this plan: what bounds it, simpler plans and runners-up beside it, what "
                 "would help",
        .flags = flags,
        .flag_count = sizeof flags / sizeof *flags,
        .min_args = 1,
        .max_args = 1,
    };
    Cli *cli = cli_begin(&spec, argc, argv);
    if (!cli->ready)
        return cli_end(cli, CLI_USAGE);
    unsigned sections = 0;
    if (cli_has(cli, "only") && !report_sections(cli->diag, cli_value(cli, "only", 0), &sections))
        return cli_end(cli, CLI_USAGE);
    if (cli->json && (sections || cli_has(cli, "timeline"))) {
        diag_error(cli->diag, NO_SPAN, "--only and --timeline are texts for people");
        diag_help(cli->diag, "--json alone has every section, with --collectives these instead");
        return cli_end(cli, CLI_USAGE);
    }
    bool part = sections || cli_has(cli, "collectives") || cli_has(cli, "timeline");
    return cli_end(cli, (part ? show(cli, sections) : explain(cli)) ? CLI_OK : CLI_INPUT);
}
