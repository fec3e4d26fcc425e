/* cmd_plan.c - lplan plan: the fastest placement that fits, and the report that says why. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "planner/ask.h"
#include "planner/contradict.h"
#include "planner/html.h"
#include "planner/parts.h"
#include "planner/report.h"
#include "planner/trace.h"

/* ---- nothing fits ---- */

/* Whether anything fits is asked for a help text: not for long. */
static const SearchLimits anything = {.inside = true, .any = true, .time_ns = INT64_C(3000000000)};

/* The smallest multiple of the devices on which the job fits, of the cluster as its file has it; 0
 * when none up to 64 times. */
static int devices_enough(Cli *cli, const Problem *problem)
{
    for (int times = 2; times <= 64; times *= 2) {
        Arena *scratch = arena_new("more");
        Problem larger = *problem;
        larger.arena = scratch;
        larger.diag = diag_new(scratch);
        larger.cluster = cluster_load(scratch, larger.diag, cli->args[1]);
        larger.ranks = problem->ranks * times;
        SearchResult result = {.found = false};
        if (larger.cluster && cluster_resize(larger.diag, larger.cluster, larger.ranks)) {
            Search *search = search_new(&larger);
            Pins pins = pins_none();
            search_run(search, &pins, &anything, &result);
            search_free(search);
        }
        if (larger.cluster)
            json_doc_free(larger.cluster->doc);
        arena_free(scratch);
        if (result.found)
            return larger.ranks;
    }
    return 0;
}

/* Would it fit if the search might keep things in the host's memory? */
static bool fits_offloaded(const Problem *problem, const Pins *pins, Found *ret)
{
    Problem wider = *problem;
    if (problem->offload != MEMORY_HBM || problem->cluster->store[MEMORY_DRAM].bytes == 0)
        return false;
    wider.offload = MEMORY_DRAM;
    Search *search = search_new(&wider);
    SearchResult result;
    search_run(search, pins, &anything, &result);
    search_free(search);
    *ret = result.best;
    return result.found;
}

static bool is_pinned(const Pins *pins)
{
    Pins none = pins_none();
    return memcmp(pins, &none, sizeof none) != 0;
}

static int say_nothing_fits(Cli *cli, Search *here, const Problem *problem, const Pins *pins,
                            const SearchResult *result)
{
    const Tightest *tightest = &result->tightest;
    if (cli->json) {
        json_t *json = json_pack("{s:n, s:o}", "placement", "search", search_json(result));
        fputs(json_text(cli->arena, json), stdout);
        json_decref(json);
    }
    if (!tightest->known && result->complete) {
        /* not one family can be placed: that is no question of memory */
        say_contradiction(cli->diag, here, problem, pins);
        return CLI_INPUT;
    }
    if (!tightest->known) {
        diag_error(cli->diag, NO_SPAN, "time ran out before any plan was found");
        diag_help(cli->diag, "give the search a longer --time-limit");
        return CLI_NOTHING_FITS;
    }
    diag_error(cli->diag, NO_SPAN, "nothing fits: %s", tightest_text(cli->arena, tightest));
    diag_note(cli->diag, "nearest to fitting: %s, on stage %d",
              pins_text(cli->arena, &tightest->pins), tightest->stage);
    Pins none = pins_none();
    bool helped = false;
    if (is_pinned(pins)) {
        SearchResult free_result;
        Search *search = search_new(problem);
        SearchLimits limits = {.inside = true};
        search_run(search, &none, &limits, &free_result);
        search_free(search);
        if (free_result.found) {
            diag_help(cli->diag, "without the pins %s fits, with %s per device",
                      pins_text(cli->arena, &free_result.best.pins),
                      str_gib(cli->arena, free_result.best.bytes));
            helped = true;
        }
    }
    Found found;
    bool away = fits_offloaded(problem, pins, &found);
    if (away)
        diag_note(cli->diag, "with --offload dram %s fits, with %s per device",
                  pins_text(cli->arena, &found.pins), str_gib(cli->arena, found.bytes));
    int devices = helped ? 0 : devices_enough(cli, problem);
    if (devices)
        diag_help(cli->diag, "it fits on %d devices of this kind", devices);
    else if (!helped && !away)
        diag_help(cli->diag, "shorten the sequence, or use devices with %s more memory",
                  str_gib(cli->arena, tightest->bytes - tightest->budget_bytes));
    return CLI_NOTHING_FITS;
}

/* ---- the plan ---- */

typedef struct Answer {
    Plan *plan;
    Net *net;
    const Assessment *it;
    const Found *found;
} Answer;

/* The best plan whose layout fits: the cards never promise less than the layout takes, so the first
 * one does. What some layers have of their own is laid over the plans that the search found for
 * all, and over the one nearest to fitting where none does. */
static bool make_answer(Problem *problem, Search *search, const Pins *pins, SearchResult *result,
                        Answer *ret)
{
    if (!result->found) {
        result->best = (Found){.pins = result->tightest.pins};
        result->found = true;
    }
    for (int i = -1; i < result->runners; i++) {
        Found *found = i < 0 ? &result->best : &result->runner[i];
        const Variant *variant = search_variant(search, &found->pins);
        if (pins_divide(pins)) {
            found->pins.again = pins->again;
            found->pins.ranges = pins->ranges;
            found->pins.range = pins->range;
        }
        ret->plan = plan_make(problem, &found->pins, variant, &ret->net);
        if (!ret->plan)
            return false;
        ret->it = assess_plan(problem->arena, ret->plan, ret->net, ASSESS_STEPS);
        ret->found = found;
        if (ret->it->peak_bytes <= ret->it->budget_bytes)
            return true;
    }
    return diag_error(problem->diag, NO_SPAN, "no plan found fits once it is laid out");
}

static bool write_plan(Cli *cli, const Answer *answer)
{
    if (str_eq(cli->output, "-"))
        return true;
    json_t *json = plan_json(answer->plan, answer->net);
    json_object_set_new(json, "pins", json_string(pins_text(cli->arena, &answer->it->pins)));
    json_t *predicted = predicted_json(answer->it);
    json_object_set_new(predicted, "outside", outside_json(cli->arena, answer->it));
    json_object_set_new(json, "predicted", predicted);
    bool good = cli_write(cli, arena_printf(cli->arena, "%s\n", json_text(cli->arena, json)));
    json_decref(json);
    return good;
}

static bool write_trace(Cli *cli, const Answer *answer)
{
    const char *path = cli_value(cli, "trace", 0);
    if (!path)
        return true;
    TraceEvents events = {0};
    simulate_program(cli->arena, answer->it->program, &events);
    char *text = trace_text(cli->arena, answer->it->program, &events);
    if (file_write(path, text, strlen(text)))
        return true;
    return diag_error(cli->diag, NO_SPAN, "cannot write %s: %s", path, strerror(errno));
}

static bool write_page(Cli *cli, const Report *report)
{
    const char *path = cli_value(cli, "html", 0);
    if (!path)
        return true;
    Report plain = *report;
    plain.style = style_for(false);
    char *text = html_text(&plain);
    if (file_write(path, text, strlen(text)))
        return true;
    return diag_error(cli->diag, NO_SPAN, "cannot write %s: %s", path, strerror(errno));
}

static bool write_schedule(Cli *cli, const Answer *answer)
{
    const char *path = cli_value(cli, "schedule-csv", 0);
    const Schedule *rows = path ? plan_rows(cli->arena, cli->diag, answer->plan) : NULL;
    Str text = str_new(cli->arena);
    if (!rows)
        return path == NULL;
    schedule_put_csv(&text, rows);
    return file_write(path, text.at, text.n) ||
           diag_error(cli->diag, NO_SPAN, "cannot write %s: %s", path, strerror(errno));
}

static void say_report(Cli *cli, const Report *report, unsigned sections)
{
    if (cli->json) {
        json_t *json = report_json(report);
        fputs(json_text(cli->arena, json), stdout);
        json_decref(json);
    } else if (!cli->quiet) {
        Str text = str_new(cli->arena);
        report_put(&text, report, sections);
        fputs(text.at, stdout);
    }
}

static int plan_problem(Cli *cli, Problem *problem, const Pins *pins, const SearchLimits *limits,
                        unsigned sections)
{
    if (!memories_known(cli->diag, problem->cluster, pins) ||
        !parts_known(cli->diag, problem, pins))
        return CLI_INPUT;
    Search *search = search_new(problem);
    SearchResult result;
    search_run(search, pins, limits, &result);
    int code = CLI_OK;
    Answer answer = {NULL, NULL, NULL, NULL};
    if (result.stats.considered == 0 && result.stats.illegal == 0) {
        Pins complete = pins_complete(problem, *pins);
        Net *net;
        if (!pins_divide(pins) || plan_make(problem, &complete, NULL, &net))
            say_contradiction(cli->diag, search, problem, pins);
        code = CLI_INPUT;
    } else if (!result.found && !(pins_divide(pins) && result.tightest.known)) {
        code = say_nothing_fits(cli, search, problem, pins, &result);
    } else if (!make_answer(problem, search, pins, &result, &answer) || !write_plan(cli, &answer) ||
               !write_trace(cli, &answer) || !write_schedule(cli, &answer)) {
        code = CLI_INPUT;
    } else {
        Rung ladder[LADDER_RUNGS];
        bool asked = !cli->quiet && sections >> SECTION_LADDER & 1;
        bool climb = (asked || cli_has(cli, "html")) && problem->ranks > 1;
        int rungs = climb ? ladder_climb(search, problem, ladder) : 0;
        if (pins->zero > 0 && answer.it->pins.dp * answer.it->pins.cp == 1) {
            diag_warning(cli->diag, NO_SPAN,
                         "zero=%d has no effect: with dp 1 there is no one to share with",
                         pins->zero);
            diag_help(cli->diag, "pin a larger dp, or leave zero out");
        }
        Report report = {.arena = cli->arena,
                         .it = answer.it,
                         .search = &result,
                         .ladder = climb ? ladder : NULL,
                         .rungs = rungs,
                         .found = answer.found,
                         .pinned = is_pinned(pins),
                         .laid_over = pins_divide(pins),
                         .defaulted = problem->defaulted,
                         .style = style_for(isatty(STDOUT_FILENO))};
        say_report(cli, &report, sections);
        code = write_page(cli, &report) ? CLI_OK : CLI_INPUT;
    }
    search_free(search);
    return code;
}

/* How far from the device the search may go by itself, and how wide its space is. */
static bool ask_space(Cli *cli, Problem *problem)
{
    problem->wide = cli_has(cli, "wide");
    const char *memory = cli_value(cli, "offload", 0);
    int farthest = MEMORY_HBM;
    if (!memory || str_eq(memory, "none"))
        return true;
    while (farthest < MEMORY_COUNT && !str_eq(memory, memory_text[farthest]))
        farthest++;
    if (farthest == MEMORY_HBM || farthest == MEMORY_COUNT) {
        diag_error(cli->diag, NO_SPAN, "--offload %s: none, dram or nvme", memory);
        diag_help(cli->diag, "the host's memory, or files of the host too");
        return false;
    }
    problem->offload = (Memory)farthest;
    return home_known(cli->diag, problem->cluster, (Memory)farthest,
                      arena_printf(cli->arena, "--offload %s", memory), "--offload none");
}

int cmd_plan(int argc, char **argv)
{
    static const CliFlag flags[] = {
        ASK_FLAGS,
        {"time-limit", "TIME",
         "stop the search after this long and say what gap is left: 500ms, 2s", false},
        {"only", "SECTION,...", "of the report: head, named, search, 1 to 6, ladder", false},
        {"offload", "MEMORY",
         "the search may keep state, activations and weights in dram, or in\n"
         "                            dram or nvme (default: none, pins aside)",
         false},
        {"wide", NULL, "search what is dear to search and seldom wins, too", false},
        {"refine", NULL, "the search may also cut homes of a stage's last layers less than others'",
         false},
        {"html", "FILE", "the report as one self-contained page, with its pictures", false},
        {"schedule-csv", "FILE", "the rows of the schedule in PyTorch's cells, a line a stage",
         false},
        {"trace", "FILE", "the simulated step as Chrome trace events, for Perfetto", false},
    };
    static const CliSpec spec = {
        .verb = "plan",
        .arguments = "MODEL CLUSTER",
        .about =
            "the fastest placement that fits, and why; -o writes the plan file.\n"
            "The declared space: tp x cp x dp x pp, ep where a model has experts, micro-batch, "
            "ZeRO 0 to 3,\nsequence parallel, recompute, labels of blocks (time against bytes), "
            "and "
            "the schedules 1F1B\nand GPipe with every cut of the layers into stages, zbh1, and "
            "zbv and interleaved with two\nchunks a stage, with even layers, or where they do not "
            "divide, one more or less. Where layers\nrecompute, as many of the last ones of every "
            "stage (1f1b, gpipe) keep what they make as it has\nroom for; --refine also cuts the "
            "homes of the last ones less. Pins narrow it. A\npinned schedule may also have more "
            "chunks (chunks=4), be dualpipev, pipedream or 2bw\n"
            "(never drained: gradients of stale weights, nothing clipped), or rows in a file, "
            "x.csv: layers are\nthen even over the chunks, or pinned.\n"
            "--wide adds what is dear to search and seldom wins: etp=1 where tp is more, "
            "tp_by=ring,\n"
            "braid=1 and dualpipev, tp beyond a node beside cp, and exchange=padded on GPUs. It "
            "takes\nsome five to ten times as long, "
            "with\ncp far longer (--time-limit then says what is open); a report names what was "
            "left "
            "outside.\n"
            "braid=1 lets forwards run beside a backward of another micro-batch, so that "
            "exchanges\n"
            "of one hide under kernels of the other: dualpipev, 1f1b (which then keeps twice as\n"
            "many), OVERLAP_F_B of a file.\n"
            "Ranks that share experts have room for the rows of --imbalance; pins say otherwise: "
            "ep=4\n"
            "alone has room for all that can come, room=200 for twice an even share, rounds=4 for "
            "a\n"
            "quarter of all, in rounds that hold it: no rows stop such a run; exchange=padded "
            "sends\n"
            "messages of one size, for which no GPU's host need know how many rows come (it waits\n"
            "host_wait_ns of the device for that number, which times count). etp=4 "
            "cuts "
            "each\n"
            "expert over dp ranks beside those of tp; etp=1 lets ranks of tp share experts (ep) "
            "too,\n"
            "with parts of the sequence, and an ep that dp ranks do not make up those of cp.\n"
            "Sequences of 16384 and more are cut over cp ranks too: cp_heads of them exchange "
            "heads, the\n"
            "others gather or pass by blocks (cp_by), and under a causal mask order=zigzag deals "
            "the sequence\n"
            "out so that it leaves all of them equal work.\n"
            "tp_by=ring lets blocks of the sequence pass by products on tp, which else gather them "
            "(with\nsp=1).\n"
            "zero=1 cuts the optimizer's state over the ranks that cut tokens, 2 gradients too, 3\n"
            "(FSDP) weights too, which are gathered again in backward: what would keep them after\n"
            "forward is zero=2, of all layers or some (0-3:zero=2); shard=node, searched too, "
            "keeps the\n"
            "cuts inside a node (HSDP), shard=weights those of weights. optimizer_home=dram or "
            "nvme\n"
            "keeps the optimizer's state in the host's memory or in files (the trainer's\n"
            "--offload-dir), and brings it to the update;\n"
            "activation_home does the same with what forward saves for backward, and weight_home\n"
            "with weights (zero=3 or 0), which come for each use; gradient_home with gradients, "
            "which come for\n"
            "each micro-batch's sums. Layers may have homes of their own: "
            "4-:optimizer_home=dram.\n"
            "recompute=full makes a layer's forward again in backward, selective what sets "
            "positions against\n"
            "each other, and names joined by + what they name: kinds of ops, or values of the "
            "model.\n"
            "Layers may have pins of their own, over those of all: 0-3:tp=4, 4-:zero=1, "
            "7:recompute=full:zero=3,\n"
            "first: and last: for the links before and behind them; keys tp cp dp tp_by cp_by "
            "cp_heads\n"
            "ep etp zero shard sp block recompute, and homes. What moves between neighbours is "
            "found. Under such\n"
            "pins the search is for layers that are alike, and what differs is laid over what it "
            "found.",
        .flags = flags,
        .flag_count = sizeof flags / sizeof *flags,
        .min_args = 2,
        .max_args = 2,
    };
    Cli *cli = cli_begin(&spec, argc, argv);
    Problem problem = {.arena = NULL};
    Pins pins;
    SearchLimits limits = {0};
    unsigned sections = REPORT_WHOLE;
    if (!cli->ready || !ask_pins(cli, &pins) || !ask_time(cli, "time-limit", &limits.time_ns) ||
        (cli_has(cli, "only") && !report_sections(cli->diag, cli_value(cli, "only", 0), &sections)))
        return cli_end(cli, CLI_USAGE);
    bool asked = ask_problem(cli, &problem) && ask_space(cli, &problem);
    problem.refine = cli_has(cli, "refine");
    int code = asked ? plan_problem(cli, &problem, &pins, &limits, sections) : CLI_INPUT;
    json_doc_free(problem.model);
    if (problem.cluster)
        json_doc_free(problem.cluster->doc);
    return cli_end(cli, code);
}
