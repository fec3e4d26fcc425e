/* cmd_prove.c - lplan prove: the static proof at full size and the numeric proof on an image, in
 * words. */
#include <math.h>
#include <string.h>

#include "ir/base/cli.h"
#include "ir/lower/check.h"
#include "ir/lower/figures.h"
#include "ir/lower/program.h"
#include "ir/lower/prove.h"

static void put_error(Str *text, double error)
{
    if (isinf(error))
        str_put(text, "NaN or a fault");
    else
        str_putf(text, "%.1e", error);
}

static void put_static(Str *text, const CheckReport *report, const Plan *plan, int rounds)
{
    str_putf(text,
             "Static proof, at full size: %d stage%s of %d rank%s, %d micro-batch%s, %s optimizer "
             "steps:\n",
             report->stages, report->stages == 1 ? "" : "s", report->coordinates,
             report->coordinates == 1 ? "" : "s", plan->micro_batches,
             plan->micro_batches == 1 ? "" : "es",
             rounds == 2 ? "two" : arena_printf(text->arena, "%d", rounds));
    str_put(text, "  order    every read finds the value it names, made and ordered before it; "
                  "nothing is overwritten "
                  "early:\n");
    str_putf(text, "           %lld Steps, %lld operands, %lld events on %d streams\n",
             (long long)report->steps, (long long)report->operands, (long long)report->events,
             report->streams);
    str_putf(text,
             "  meeting  %lld messages on %d channels match in order; %d communicators see one "
             "order of %lld\n"
             "           collectives; all streams of all stages reach the end\n",
             (long long)report->messages, report->channels, report->communicators,
             (long long)report->collectives);
    str_putf(text,
             "  owners   %lld parameter elements, each with one owner; every replica is updated\n",
             (long long)report->elements);
    str_putf(text, "  memory   no two live buffers overlap in %lld bytes\n",
             (long long)report->arena_bytes);
    if (report->period)
        str_putf(text,
                 "  period   the state repeats every %d micro-batch%s: this holds for any number "
                 "more, in "
                 "steps of that\n",
                 report->period, report->period == 1 ? "" : "es");
}

static void put_numeric(Str *text, const ProveReport *report, const ProveOptions *options)
{
    str_putf(text,
             "Numeric proof, on an image of %d rank%s in %d stage%s, %d micro-batch%s, fp64, %d "
             "optimizer steps,\n"
             "%s, uneven masks%s, arenas poisoned:\n",
             report->ranks, report->ranks == 1 ? "" : "s", report->stages,
             report->stages == 1 ? "" : "s", report->micros, report->micros == 1 ? "" : "es",
             report->rounds, report->clips ? "clip active" : "nothing clipped",
             report->empty_row ? ", one row without tokens" : "");
    str_putf(text,
             "  %s  loss, gradient norm and all %d parameters, against one rank%s; in program "
             "order and %d random\n",
             report->equal   ? "equal  "
             : report->fault ? "FAULT  "
                             : "UNEQUAL",
             report->params, report->flows ? " that reads weights as stale" : "", options->orders);
    str_put(text, "           orders that the events allow; so with evaluations between steps, and "
                  "their losses.\n           Largest relative error ");
    put_error(text, report->max_error);
    str_putf(text, " (%s)\n", report->worst ? report->worst : "nowhere");
    if (report->last_bit > 0) {
        str_put(text, "           where the last bit of the weights alone makes ");
        put_error(text, report->last_bit);
        str_put(text, ": eight times that is equal\n");
    }
    if (report->fault)
        str_putf(text, "  fault    %s\n", report->fault);
    str_putf(text, "  reach    %d of %d ops, %d Steps;", report->reached_ops, OP_COUNT,
             report->steps);
    const char *comma = "";
    for (int kind = 0; kind < MOVE_KIND_COUNT; kind++)
        if (report->reached_moves[kind]) {
            str_putf(text, "%s %d %s", comma, report->reached_moves[kind], move_text[kind]);
            comma = ",";
        }
    str_put(text, *comma ? "\n" : " no moves\n");
    str_put(text, "           Op rules, moves, ownership and order carry over to the full size. "
                  "Tile tails, rounding and\n"
                  "           workspaces do not: kernels have their own tests.\n");
}

static void put_mutations(Str *text, const ProveReport *report)
{
    str_putf(text,
             "Mutations: %d broken on purpose, %d caught, %d must change nothing and do not\n",
             report->tried, report->caught, report->equivalent);
    for (int i = 0; i < report->mutations.n; i++) {
        const MutationReport *row = &report->mutations.at[i];
        if (!row->good) {
            str_putf(text, "  %s %s: error ", row->equivalent ? "SHOWS  " : "MISSED ", row->name);
            put_error(text, row->error);
            str_putc(text, '\n');
        }
    }
    for (int i = 0; i < report->mutations.n; i++) {
        const MutationReport *row = &report->mutations.at[i];
        if (row->good && row->equivalent)
            str_putf(text, "  equal   %s: %s\n", row->name, row->equivalent);
    }
}

static void put_memory(Arena *arena, Str *text, const Program *program, const ProveReport *report)
{
    Figures figures = figures_of(program);
    str_put(text, "Memory of a rank:\n");
    const char *touched[MEMORY_COUNT];
    for (int m = 0; m < MEMORY_COUNT; m++)
        touched[m] =
            arena_printf(arena, "the image touched %lld of its %lld",
                         (long long)report->touched_bytes[m], (long long)report->layout_bytes[m]);
    figures_put(text, &figures, touched);
}

static char *report_json(Arena *arena, const Program *program, const ProveReport *report,
                         bool sound, bool good)
{
    json_t *root =
        json_pack("{s:b,s:b,s:f,s:f,s:{s:i,s:i,s:i}}", "static", sound, "equal", report->equal,
                  "max_rel_error", isinf(report->max_error) ? 1e300 : report->max_error, "last_bit",
                  report->last_bit, "mutations", "tried", report->tried, "caught", report->caught,
                  "equivalent", report->equivalent);
    Figures figures = figures_of(program);
    json_object_set_new(root, "memory", figures_json(&figures));
    json_object_set_new(root, "proven", json_boolean(good));
    char *text = json_text(arena, root);
    json_decref(root);
    return text;
}

int cmd_prove(int argc, char **argv)
{
    static const CliFlag flags[] = {
        {"no-mutations", NULL, "do not break the image on purpose", false},
        {"seed", "N", "of weights, tokens and masks (default 1)", false},
        PASS_FLAGS,
    };
    static const CliSpec spec = {
        .verb = "prove",
        .arguments = "PLAN",
        .about =
            "the static proof of a plan at full size, and the numeric proof on a shrunken image",
        .flags = flags,
        .flag_count = sizeof flags / sizeof *flags,
        .min_args = 1,
        .max_args = 1,
    };
    Cli *cli = cli_begin(&spec, argc, argv);
    ProveOptions options = prove_default();
    int64_t seed = 1;
    Passes passes;
    if (!cli->ready || !cli_int(cli, "seed", 1, INT64_C(1) << 50, &seed) ||
        !passes_read(cli, &passes))
        return cli_end(cli, CLI_USAGE);
    options.seed = (uint64_t)seed;
    options.mutations = !cli_has(cli, "no-mutations");
    Net *net;
    Plan *plan = plan_load(cli->arena, cli->diag, cli->args[0], &net);
    if (!plan)
        return cli_end(cli, CLI_INPUT);
    const Program *program = program_build_passes(cli->arena, plan, net, NULL, NULL, &passes);
    Str text = passes.text;
    if (!program)
        return cli_end(cli, cli_write(cli, text.at) ? CLI_OK : CLI_INPUT);
    CheckReport check;
    int rounds = program_rounds(program);
    bool sound = program_check(cli->arena, program, rounds, cli->diag, &check);
    CheckReport between;
    sound =
        sound && program_check_evaluating(cli->arena, program, rounds, NULL, cli->diag, &between);
    check.faults += sound ? 0 : diag_errors(cli->diag) - check.faults;
    ProveReport report = {0};
    bool good = sound && prove_numeric(cli->arena, cli->diag, plan, net, &options, &report);
    if (!sound) {
        diag_help(cli->diag,
                  "the static proof found %d fault%s in what lplan made of this plan: "
                  "that is lplan's own error. Nothing was run",
                  check.faults, check.faults == 1 ? "" : "s");
        return cli_end(cli, CLI_BUG);
    }
    if (diag_errors(cli->diag))
        return cli_end(cli, CLI_INPUT);
    if (cli->json) {
        str_put(&text, report_json(cli->arena, program, &report, sound, good));
    } else {
        put_static(&text, &check, plan, rounds);
        put_numeric(&text, &report, &options);
        if (options.mutations && report.equal)
            put_mutations(&text, &report);
        put_memory(cli->arena, &text, program, &report);
        str_put(&text, good ? "proven\n" : "NOT PROVEN\n");
    }
    bool wrote = cli_write(cli, text.at);
    return cli_end(cli, good && wrote ? CLI_OK : CLI_INPUT);
}
