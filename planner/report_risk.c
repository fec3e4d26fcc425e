/* report_risk.c - question 6, what new failure mode appears, and the ladder of simpler plans. */
#include <string.h>

#include "planner/goodput.h"
#include "planner/report.h"

static void add_risk(Risks *risks, const Report *report, const char *name, const char *brief,
                     const char *text)
{
    vec_push(report->arena, risks) = (Risk){name, brief, text};
}

static void add_bubble(Risks *risks, const Report *report)
{
    const Assessment *it = report->it;
    Arena *arena = report->arena;
    if (it->plan->stages < 2)
        return;
    int64_t bubble = assessed_spent(it, SPENT_BUBBLE);
    int64_t micro_ns = (assessed_spent(it, SPENT_COMPUTE) + assessed_spent(it, SPENT_BLOCK)) /
                       it->plan->micro_batches;
    /* with even stages each waits p - 1 micro-batches, before its first and after its last */
    int64_t fill = micro_ns * (it->plan->stages - 1);
    fill = fill < bubble ? fill : bubble;
    if (it->program->flows) {
        add_risk(risks, report, "bubble",
                 arena_printf(arena, "%s bubble", text_percent(arena, bubble, it->step_ns)),
                 arena_printf(arena,
                              "%s of a step, a device waits for other stages, because stages are "
                              "uneven: the pipeline never drains but for a checkpoint.",
                              text_percent(arena, bubble, it->step_ns)));
        return;
    }
    const char *advice =
        fill < bubble - fill ? "More micro-batches would not help much."
        : it->plan->micro_batch == 1
            ? "Twice the micro-batches, which needs twice the global batch, would about halve the "
              "filling."
            : "Twice the micro-batches of half the size would about halve the filling, if the "
              "smaller ones compute as well.";
    add_risk(risks, report, "bubble",
             arena_printf(arena, "%s bubble", text_percent(arena, bubble, it->step_ns)),
             arena_printf(arena,
                          "%s of the step, a device waits for other stages: %s while the pipeline "
                          "of %d stages fills and drains for %d micro-batches, %s because stages "
                          "are uneven. %s",
                          text_percent(arena, bubble, it->step_ns),
                          text_percent(arena, fill, it->step_ns), it->plan->stages,
                          it->plan->micro_batches, text_percent(arena, bubble - fill, it->step_ns),
                          advice));
}

/* Where steps flow into each other the model that is trained is not that of other plans. */
static void add_stale(Risks *risks, const Report *report)
{
    const Program *program = report->it->program;
    Arena *arena = report->arena;
    int most = 0, least = program->stage[0].delay;
    for (int s = 0; s < program->stages; s++) {
        most = program->stage[s].delay > most ? program->stage[s].delay : most;
        least = program->stage[s].delay < least ? program->stage[s].delay : least;
    }
    if (!program->flows)
        return;
    const char *by =
        most == least
            ? arena_printf(arena, "%d step%s old on every stage", most, most == 1 ? "" : "s")
            : arena_printf(arena, "%d step%s old on the first stage and %d on the last",
                           program->stage[0].delay, program->stage[0].delay == 1 ? "" : "s",
                           program->stage[program->stages - 1].delay);
    add_risk(
        risks, report, "stale weights",
        arena_printf(arena, "weights up to %d step%s old", most, most == 1 ? "" : "s"),
        arena_printf(arena,
                     "gradients are of weights that are %s: this is not the SGD that other "
                     "plans do, and may want a smaller learning rate or a warm-up. Stages keep "
                     "up to %d versions. Nothing is clipped by the global norm, which comes "
                     "when the first update is done.",
                     by, most + 1));
}

static void add_imbalance(Risks *risks, const Report *report)
{
    const Assessment *it = report->it;
    Arena *arena = report->arena;
    if (it->plan->stages < 2)
        return;
    int64_t most = it->times->stage[it->busiest].spent_ns[SPENT_COMPUTE],
            mean = assessed_spent(it, SPENT_COMPUTE);
    int leanest = 0;
    for (int s = 1; s < it->plan->stages; s++)
        if (it->program->stage[s].arena_bytes < it->program->stage[leanest].arena_bytes)
            leanest = s;
    add_risk(risks, report, "imbalance",
             arena_printf(arena, "stage %d computes %s more", it->busiest,
                          text_percent(arena, most - mean, mean)),
             arena_printf(
                 arena, "stage %d computes %s more than the mean; stage %d holds %s, stage %d %s.",
                 it->busiest, text_percent(arena, most - mean, mean), it->fullest,
                 str_gib(arena, it->peak_bytes), leanest,
                 str_gib(arena, it->program->stage[leanest].arena_bytes)));
}

/* A message far below its level's half size spends its time on latency. */
static void add_small(Risks *risks, const Report *report)
{
    const Assessment *it = report->it;
    Arena *arena = report->arena;
    int64_t small = 0, all = 0, ns = 0;
    int s = it->busiest;
    for (int i = 0; i < it->times->traffic.n; i++) {
        const Traffic *traffic = &it->times->traffic.at[i];
        if (!traffic->count[s] || !traffic->bytes[s] || traffic->memory)
            continue;
        all += traffic->count[s];
        if (traffic->bytes[s] / traffic->count[s] >=
            it->plan->cluster->level[traffic->level].half_bytes)
            continue;
        small += traffic->count[s];
        ns += traffic->ns[s];
    }
    if (small)
        add_risk(
            risks, report, "latency",
            arena_printf(arena, "%s small messages", str_commas(arena, small)),
            arena_printf(
                arena,
                "%s of %s messages a step are too small for their link (below half its bandwidth); "
                "they take %s.",
                str_commas(arena, small), str_commas(arena, all), text_time(arena, ns)));
}

static void add_slow_rank(Risks *risks, const Report *report)
{
    const Assessment *it = report->it;
    if (it->plan->ranks < 2)
        return;
    Goodput goodput = goodput_of(it);
    int64_t compute = it->times->stage[it->busiest].spent_ns[SPENT_COMPUTE];
    add_risk(
        risks, report, "slow rank",
        arena_printf(report->arena, "the slowest of %s",
                     str_commas(report->arena, it->plan->ranks)),
        arena_printf(
            report->arena,
            "every device is waited for at least once a step: the step is as slow as the "
            "slowest of %s. One that computes 10 %% slower costs about %s; with a jitter of %.0f "
            "%% the slowest is expected %.1f %% behind the mean, %s [estimated].",
            str_commas(report->arena, it->plan->ranks), text_time(report->arena, compute / 10),
            100 * goodput.jitter, 100 * goodput.slowest,
            text_time(report->arena, goodput.slowest_ns)));
}

static void add_margin(Risks *risks, const Report *report)
{
    const Assessment *it = report->it;
    Arena *arena = report->arena;
    int64_t left = it->budget_bytes - it->peak_bytes;
    if (left < 0)
        add_risk(risks, report, "memory", "does not fit",
                 arena_printf(arena, "this plan does not fit: %s more than there is on stage %d.",
                              str_gib(arena, -left), it->fullest));
    else if (left < it->budget_bytes / 20)
        add_risk(risks, report, "memory", arena_printf(arena, "%s left", str_gib(arena, left)),
                 arena_printf(
                     arena,
                     "%s are left on stage %d; the arena does not fragment, but what the libraries "
                     "take beyond the margin of %s ends the run at its start.",
                     str_gib(arena, left), it->fullest,
                     str_gib(arena, it->plan->cluster->device.margin_bytes)));
}

static char *text_span(Arena *arena, double seconds)
{
    const char *unit = seconds < 120 ? "s" : seconds < 7200 ? "min" : seconds < 172800 ? "h" : "d";
    double scale = seconds < 120 ? 1 : seconds < 7200 ? 60 : seconds < 172800 ? 3600 : 86400;
    return arena_printf(arena, "%.3g %s", seconds / scale, unit);
}

static void add_checkpoint(Risks *risks, const Report *report)
{
    const Assessment *it = report->it;
    Arena *arena = report->arena;
    Goodput at = goodput_of(it);
    add_risk(risks, report, "checkpoint",
             arena_printf(arena, "%s to write", str_gib(arena, at.checkpoint_bytes)),
             arena_printf(arena,
                          "%s in all (%s parameters with their optimizer state), written by %s "
                          "device%s in about %s [estimated].",
                          str_gib(arena, at.checkpoint_bytes),
                          str_commas(arena, net_param_count(it->net)),
                          str_commas(arena, at.writers), at.writers == 1 ? "" : "s",
                          text_span(arena, at.write_s)));
    add_risk(risks, report, "failures",
             arena_printf(arena, "one in %s", text_span(arena, at.mtbf_s)),
             arena_printf(arena,
                          "one in %s when a device fails every %s hours: a checkpoint every %s (%s "
                          "steps; Young, Daly) leaves a goodput of %.1f %% [estimated].",
                          text_span(arena, at.mtbf_s), str_commas(arena, (int64_t)at.device_hours),
                          text_span(arena, at.interval_s), str_commas(arena, at.interval_steps),
                          100 * at.goodput));
}

/* What happens where routers are less even than the room. */
static void add_experts(Risks *risks, const Report *report)
{
    const Assessment *it = report->it;
    int ep = it->pins.ep, room = it->pins.room;
    if (ep <= 1)
        return;
    const char *text =
        it->pins.rounds > 1
            ? arena_printf(report->arena,
                           "rows come in up to %d rounds, each with room for %d %% of an even "
                           "share: all that can come. Times count one, of an even share; a fuller "
                           "device is waited for, and later rounds run experts again in backward.",
                           it->pins.rounds, room)
        : room > 0
            ? arena_printf(report->arena,
                           "assumed: no device gets more than %d %% of an even share of the rows "
                           "of experts. More end the run with one line; times count an even "
                           "share, and the fullest device is waited for.",
                           room)
            : "there is room for all rows that can come; times count an even share of them, and "
              "the fullest device is waited for.";
    if (it->net->exchange == EXCHANGE_PADDED)
        text = arena_printf(report->arena,
                            "%s Messages are padded to their bound, and times count it: each "
                            "carries what there is room for, empty or not.",
                            text);
    add_risk(risks, report, "experts", "uneven routers", text);
}

static void add_recompute(Risks *risks, const Report *report)
{
    const Assessment *it = report->it;
    if (!it->pins.recompute)
        return;
    add_risk(risks, report, "recompute", "forward runs twice",
             "every layer runs forward twice: about a quarter of the compute repeats work. Memory "
             "buys it back.");
}

Risks risks_of(const Report *report)
{
    Risks risks = {0};
    add_margin(&risks, report);
    add_stale(&risks, report);
    add_bubble(&risks, report);
    add_imbalance(&risks, report);
    add_experts(&risks, report);
    add_recompute(&risks, report);
    add_small(&risks, report);
    add_slow_rank(&risks, report);
    add_checkpoint(&risks, report);
    return risks;
}

void report_risks(Str *str, const Report *report)
{
    report_question(str, report, "6  What new failure mode appears?", "");
    Risks risks = risks_of(report);
    for (int i = 0; i < risks.n; i++) {
        str_putf(str, "  %s%-12s%s", report->style.bold, risks.at[i].name, report->style.off);
        Str lines = str_new(report->arena);
        text_wrap(&lines, risks.at[i].text, 14, 98);
        str_put(str, lines.at + 14);
    }
}

/* ---- the ladder ---- */

/* What the search compares plans by: its own figure for this plan, where it found it. */
static int64_t objective_here(const Report *report)
{
    return report->found ? report->found->step_ns : report->it->segment_ns;
}

static const char *rung_verdict(const Report *report, const Rung *rung)
{
    Arena *arena = report->arena;
    int64_t here = objective_here(report);
    if (!rung->fits)
        return rung->tightest.known ? tightest_short(arena, &rung->tightest)
                                    : "no such plan of this job";
    int64_t own = rung->found.step_ns;
    if (pins_same(&rung->found.pins, &report->it->pins))
        return "is this plan";
    if (own == here)
        return arena_printf(arena, "as fast as this plan: %s",
                            pins_short(arena, &rung->found.pins));
    return arena_printf(arena, "%s, %s %s time: %s", text_time(arena, own),
                        text_percent(arena, own < here ? here - own : own - here, here),
                        own < here ? "less" : "more", pins_short(arena, &rung->found.pins));
}

void report_ladder(Str *str, const Report *report)
{
    report_question(str, report, "Why not a simpler plan?",
                    report->pinned ? "the best plan of each rung, without the pins"
                                   : "the best plan of each rung, tp inside the fastest domain");
    for (int i = 0; i < report->rungs; i++) {
        const Rung *rung = &report->ladder[i];
        bool same = rung->fits && (rung->found.step_ns <= objective_here(report) ||
                                   pins_same(&rung->found.pins, &report->it->pins));
        str_putf(str, "  %-22s%s%s%s\n", rung->name,
                 same         ? report->style.good
                 : rung->fits ? ""
                              : report->style.bad,
                 rung_verdict(report, rung), same || !rung->fits ? report->style.off : "");
        if (same)
            break;
    }
    const SearchResult *search = report->search;
    if (!search || search->runners == 0)
        return;
    report_question(str, report, "Runners-up",
                    "of those that were simulated: step time, and more time than this plan");
    for (int i = 0; i < search->runners && i < 4; i++)
        str_putf(str, "  %-10s %-8s %s\n", text_time(report->arena, search->runner[i].step_ns),
                 arena_printf(report->arena, "+%s",
                              text_percent(report->arena,
                                           search->runner[i].step_ns - objective_here(report),
                                           objective_here(report))),
                 pins_short(report->arena, &search->runner[i].pins));
}
