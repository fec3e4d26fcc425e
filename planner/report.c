/* report.c - the head of a report and the words that its parts share. */
#include "planner/report.h"

#include <string.h>

#include "planner/parts.h"
#include "planner/techniques.h"

void report_question(Str *str, const Report *report, const char *title, const char *aside)
{
    const Style *style = &report->style;
    str_putf(str, "%s%s%s%s", str->n ? "\n" : "", style->bold, title, style->off);
    if (aside && *aside)
        str_putf(str, "  %s%s%s", style->dim, aside, style->off);
    str_putc(str, '\n');
}

char *text_unit(Arena *arena, int64_t bytes, int64_t unit)
{
    double figure = (double)bytes / (double)unit;
    if (bytes == 0)
        return arena_strdup(arena, "-");
    if (figure < 0.0005)
        return arena_strdup(arena, "<0.001");
    if (unit == 1)
        return arena_printf(arena, "%.0f", figure);
    return arena_printf(arena, figure < 0.0995 ? "%.3f" : figure < 9.95 ? "%.2f" : "%.1f", figure);
}

char *text_flops(Arena *arena, double flops_per_s)
{
    bool tera = flops_per_s >= 1e12;
    return arena_printf(arena, "%.4g %s", flops_per_s / (tera ? 1e12 : 1e9),
                        tera ? "TFLOP/s" : "GFLOP/s");
}

char *text_percent(Arena *arena, int64_t part, int64_t whole)
{
    double percent = whole ? 100.0 * (double)part / (double)whole : 0;
    return arena_printf(arena, "%.1f %%", percent);
}

const char *text_in_layers(const Mesh *mesh)
{
    bool tp = role_atoms(mesh, ROLE_TP) != 0;
    return !mesh->ep ? "tp, in layers" : tp ? "tp, ep, in layers" : "ep, in layers";
}

const char *text_all_roles(Arena *arena, const Assessment *it, AtomSet atoms)
{
    Str text = str_new(arena);
    str_put(&text, text_roles(arena, &it->plan->mesh, atoms));
    for (int c = 0; c < it->net->classes.n; c++) {
        const char *own = text_roles(arena, plan_mesh(it->plan, c), atoms);
        bool said = str_eq(own, text_roles(arena, &it->plan->mesh, atoms));
        for (int before = 0; before < c && !said; before++)
            said = str_eq(own, text_roles(arena, plan_mesh(it->plan, before), atoms));
        if (!said)
            str_putf(&text, "|%s", own);
    }
    return text.at;
}

const char *text_roles(Arena *arena, const Mesh *mesh, AtomSet atoms)
{
    Str text = str_new(arena);
    bool said[ROLE_COUNT] = {false};
    for (int a = 0; a < mesh->n; a++) {
        Role role = mesh->atom[a].role;
        if (!(atoms >> a & 1) || said[role])
            continue;
        said[role] = true;
        str_putf(&text, "%s%s", text.n ? ", " : "", role_text[role]);
    }
    return text.at;
}

int telling_stages(const Assessment *it, int ret[8])
{
    int n = 0, stages = it->plan->stages;
    for (int s = 0; s < stages; s++) {
        bool end = s < 2 || s == stages - 1;
        if (stages <= 6 || end || s == it->fullest || s == it->busiest)
            ret[n++] = s;
    }
    return n;
}

static void put_layers(Str *text, const Assessment *it, int first, int end)
{
    int links = it->net->chain.n, before = (int)text->n;
    if (first == 0 && links > 1)
        str_put(text, it->net->classes.at[it->net->chain.at[0].class]->name);
    int low = first > 0 ? first : 1, high = end == links ? links - 1 : end;
    if (high > low) {
        str_putf(text, "%s%d", (int)text->n > before ? " + " : "", low - 1);
        if (high - low > 1)
            str_putf(text, "-%d", high - 2);
    }
    if (end == links)
        str_putf(text, "%s%s", (int)text->n > before ? " + " : "",
                 it->net->classes.at[it->net->chain.at[links - 1].class]->name);
}

char *text_layers(Arena *arena, const Assessment *it, int stage)
{
    const Plan *plan = it->plan;
    Str text = str_new(arena);
    for (int c = 0; c < plan->chunks; c++) {
        if (plan->holder[c] != stage)
            continue;
        str_put(&text, text.n ? ", " : "");
        put_layers(&text, it, plan->first_link[c], plan->first_link[c + 1]);
    }
    return text.at;
}

/* ---- the head ---- */

static void put_line(Str *str, const Report *report, const char *label, const char *text)
{
    str_putf(str, "  %s%-10s%s%s\n", report->style.bold, label, report->style.off, text);
}

/* A prediction is an estimate, whatever its inputs are. */
static const char *tags_used(const Report *report)
{
    const Cluster *cluster = report->it->plan->cluster;
    bool measured = cluster->device.tag == TAG_MEASURED,
         estimated = cluster->device.tag == TAG_ESTIMATED;
    for (int i = 0; i < cluster->levels; i++) {
        measured &= cluster->level[i].tag == TAG_MEASURED;
        estimated |= cluster->level[i].tag == TAG_ESTIMATED;
    }
    return measured    ? "estimated; inputs measured"
           : estimated ? "estimated"
                       : "estimated; inputs calibrated";
}

static char *search_line(Arena *arena, const Report *report)
{
    const SearchResult *search = report->search;
    if (!search)
        return arena_strdup(arena, "none: this plan was given");
    const SearchStats *stats = &search->stats;
    Str text = str_new(arena);
    str_putf(&text, "%s placements: ", str_commas(arena, stats->considered));
    str_putf(&text, "%s too large, ", str_commas(arena, stats->cut_memory));
    str_putf(&text, "%s slower for certain, ", str_commas(arena, stats->cut_bound));
    if (stats->open)
        str_putf(&text, "%s not looked at, ", str_commas(arena, stats->open));
    str_putf(&text, "%s simulated", str_commas(arena, stats->simulated));
    if (stats->plans > stats->simulated)
        str_putf(&text, " (%s cuts)", str_commas(arena, stats->plans));
    return text.at;
}

/* What the space has beside degrees, micro-batches, and yes or no. */
static char *space_line(Arena *arena, const SearchedSpace *space)
{
    Str text = str_new(arena);
    for (int kind = 0; kind < SCHEDULE_COUNT; kind++)
        if (space->schedules >> kind & 1)
            str_putf(&text, "%s%s", text.n ? ", " : "", schedule_info[kind].title);
    if (space->chunks > 1)
        str_putf(&text, "; up to %d chunks a stage", space->chunks);
    if (space->ep > 1 && space->room > 0)
        str_putf(&text, "; ep to %d, room %d %%", space->ep, space->room);
    else if (space->ep > 1)
        str_putf(&text, "; ep to %d, room for all rows", space->ep);
    if (space->rounds > 1)
        str_putf(&text, "; up to %d rounds", space->rounds);
    if (space->home > MEMORY_HBM)
        str_putf(&text, "; homes to %s", memory_text[space->home]);
    return text.at;
}

/* What a wide space has and others do not. */
static char *wide_line(Arena *arena, const SearchedSpace *space)
{
    Str text = str_new(arena);
    for (int kind = 0; kind < WIDE_COUNT; kind++)
        if (space->open >> kind & 1)
            str_putf(&text, "%s%s",
                     text.n        ? ", "
                     : space->wide ? "wide: "
                                   : "outside, but for --wide: ",
                     wide_text[kind]);
    return text.at;
}

static char *verdict_line(Arena *arena, const Report *report)
{
    const SearchResult *search = report->search;
    if (report->laid_over)
        return arena_printf(
            arena, "searched as if all layers were alike; their own pins are laid over it; %s",
            text_time(arena, search->stats.wall_ns));
    if (search->complete)
        return arena_printf(arena, "nothing %s is faster; %s",
                            report->pinned ? "within these pins" : "in the declared space",
                            text_time(arena, search->stats.wall_ns));
    int64_t open = search->best.step_ns - search->bound_ns;
    return arena_printf(arena, "%s: plans that take up to %s less time may exist; %s",
                        search->stats.left ? "some have too many cuts to try" : "time ran out",
                        text_percent(arena, open, search->best.step_ns),
                        text_time(arena, search->stats.wall_ns));
}

static void put_title(Str *str, const Report *report)
{
    const Assessment *it = report->it;
    Arena *arena = report->arena;
    const Plan *plan = it->plan;
    const Job *job = &plan->job;
    char *left = arena_printf(arena, "%s on %s x %s", it->net->name, str_commas(arena, plan->ranks),
                              plan->cluster->device.name);
    char *right =
        arena_printf(arena, "batch %s x %s tokens, %s", str_commas(arena, job->global_batch),
                     str_commas(arena, job->sequence), job->recipe);
    str_putf(str, "%s%s%s", report->style.bold, left, report->style.off);
    int fill = 100 - text_width(left) - text_width(right);
    for (int i = 0; i < (fill > 2 ? fill : 2); i++)
        str_putc(str, ' ');
    str_putf(str, "%s\n\n", right);
}

/* The printed Pareto set: what a layer takes and keeps under each label of its blocks. */
void report_labels(Str *str, const Report *report)
{
    const Assessment *it = report->it;
    Arena *arena = report->arena;
    for (int i = 0; i < it->labels.n && it->labels.n > 1; i++) {
        const BlockLabel *label = &it->labels.at[i];
        put_line(str, report, i == 0 ? "blocks" : "",
                 arena_printf(arena, "block %d: %s and %s kept, of a layer and sequence%s", i,
                              text_time(arena, label->micro_ns), str_gib(arena, label->saved_bytes),
                              i == it->pins.block ? "  <- this plan" : ""));
    }
}

/* "head", "7", "0-3": the links of a range. */
static char *range_name(Arena *arena, const Net *net, const PinRange *range)
{
    int links = net->chain.n;
    bool first = range->begin == RANGE_FIRST, last = range->begin == RANGE_LAST;
    if (first || last)
        return arena_strdup(arena,
                            net->classes.at[net->chain.at[first ? 0 : links - 1].class]->name);
    return arena_printf(arena, range->begin == range->end ? "%d" : "%d-%d", range->begin,
                        range->end);
}

/* How the layers of a range are placed, where that is not as all. */
static char *range_words(const Report *report, const PinRange *range)
{
    const Assessment *it = report->it;
    const Pins *pins = &it->pins;
    Problem problem = {.net = (Net *)it->net, .ranks = it->plan->ranks};
    int link = range->begin == RANGE_FIRST  ? 0
               : range->begin == RANGE_LAST ? it->net->chain.n - 1
                                            : range->begin + 1;
    Pins own = pins_of_link(&problem, pins, link);
    bool kept = (pins->recompute || pins->again) && !own.recompute && !own.again;
    Str text = str_new(report->arena);
    str_put(&text, pins_layers_words(report->arena, &own));
    for (int k = 0; k < KEPT_COUNT; k++)
        if (own.home[k] != pins->home[k])
            str_putf(&text, ", %s in %s", kept_short[k], memory_text[own.home[k]]);
    str_put(&text, kept ? ", nothing made again" : "");
    return text.at;
}

/* Layers that differ from the rest, a line for those that are alike. */
static void put_ranges(Str *str, const Report *report)
{
    const Assessment *it = report->it;
    const PinRange *range = it->pins.range;
    int n = it->pins.ranges, lines = 0;
    bool *said = ARENA_ARRAY(report->arena, bool, n + 1);
    for (int r = 0; r < n; r++) {
        const char *words = range_words(report, &range[r]);
        Str text = str_new(report->arena);
        for (int k = r; k < n && !said[r]; k++)
            if (!said[k] && str_eq(range_words(report, &range[k]), words)) {
                str_putf(&text, "%s%s", k > r ? ", " : "",
                         range_name(report->arena, it->net, &range[k]));
                said[k] = k > r;
            }
        if (said[r])
            continue;
        str_putf(&text, ": %s", words);
        put_line(str, report, lines++ ? "" : "but", text.at);
    }
}

void report_head(Str *str, const Report *report)
{
    const Assessment *it = report->it;
    Arena *arena = report->arena;
    put_title(str, report);
    if (report->defaulted)
        put_line(str, report, "job",
                 arena_printf(arena, "a batch of %s sequences of %s tokens (defaulted: %s)",
                              str_commas(arena, it->plan->job.global_batch),
                              str_commas(arena, it->plan->job.sequence), report->defaulted));
    put_line(str, report, "placement", pins_words(arena, &it->pins));
    put_ranges(str, report);
    report_labels(str, report);
    put_line(str, report, "step",
             arena_printf(arena, "%s   %s to %s [%s]", text_time(arena, it->step_ns),
                          text_time_like(arena, it->low_ns, it->step_ns),
                          text_time_like(arena, it->high_ns, it->step_ns), tags_used(report)));
    if (it->plan->cluster->caution) {
        Str lines = str_new(arena);
        text_wrap(&lines, it->plan->cluster->caution, 12, 98);
        str_put(str, lines.at);
    }
    put_line(str, report, "rate",
             arena_printf(arena, "%s tokens/s   %s per device   %.1f %% MFU%s",
                          str_commas(arena, it->tokens_per_s),
                          text_flops(arena, it->flops_per_device), 100 * it->mfu,
                          it->mfu - it->unmasked_mfu < 0.001
                              ? ""
                              : arena_printf(arena, ", %.1f %% without masked pairs",
                                             100 * it->unmasked_mfu)));
    put_line(str, report, "memory",
             arena_printf(arena, "%s of %s on the fullest device (stage %d), and %s kept free",
                          str_gib(arena, it->peak_bytes), str_gib(arena, it->budget_bytes),
                          it->fullest, str_gib(arena, it->plan->cluster->device.margin_bytes)));
}

/* The field's names for what the plan does, each with what it is here. */
void report_named(Str *str, const Report *report)
{
    Arena *arena = report->arena;
    Techniques all = techniques_of(arena, report->it);
    for (int i = 0; i < all.n; i++) {
        Str lines = str_new(arena);
        text_wrap(&lines, arena_printf(arena, "%s: %s", all.at[i].name, all.at[i].says), 12, 98);
        str_putf(str, "  %s%-10s%s%s", report->style.bold, i == 0 ? "named" : "", report->style.off,
                 lines.at + 12);
    }
}

void report_search(Str *str, const Report *report)
{
    Arena *arena = report->arena;
    put_line(str, report, "search", search_line(arena, report));
    if (report->search) {
        put_line(str, report, "", space_line(arena, &report->search->space));
        if (report->search->space.mixes)
            put_line(str, report, "",
                     arena_printf(arena, "last layers of a %s: as the others, or %s",
                                  report->search->space.chunks > 1 ? "chunk" : "stage",
                                  report->search->space.mixed_homes ? "with less recompute or ZeRO"
                                                                    : "without their recompute"));
        if (report->search->space.open)
            put_line(str, report, "", wide_line(arena, &report->search->space));
        put_line(str, report, "", verdict_line(arena, report));
    }
}

static const struct {
    const char *word;
    void (*put)(Str *str, const Report *report);
} sections[SECTION_COUNT] = {
    [SECTION_HEAD] = {"head", report_head},       [SECTION_NAMED] = {"named", report_named},
    [SECTION_SEARCH] = {"search", report_search}, [SECTION_RESIDENT] = {"1", report_resident},
    [SECTION_SHARDING] = {"2", report_sharding},  [SECTION_TRAFFIC] = {"3", report_traffic},
    [SECTION_EXPOSED] = {"4", report_exposed},    [SECTION_LINKS] = {"5", report_links},
    [SECTION_RISKS] = {"6", report_risks},        [SECTION_LADDER] = {"ladder", report_ladder}};

bool report_sections(Diag *diag, const char *text, unsigned *ret)
{
    *ret = 0;
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        unsigned found = 0;
        for (int i = 0; i < SECTION_COUNT; i++)
            if (strlen(sections[i].word) == length && strncmp(at, sections[i].word, length) == 0)
                found |= 1u << i;
        if (!found) {
            diag_error(diag, NO_SPAN, "--only %s: '%.*s' is no section of a report", text,
                       (int)length, at);
            diag_help(diag, "sections are head, named, search, 1 to 6 and ladder");
            return false;
        }
        *ret |= found;
        at += length;
        if (*at == '\0')
            return true;
    }
}

void report_put(Str *str, const Report *report, unsigned set)
{
    for (int i = 0; i < SECTION_COUNT; i++)
        if (set >> i & 1 && (i != SECTION_LADDER || report->ladder))
            sections[i].put(str, report);
}
