/* report_time.c - questions 3 to 5: which collective moves the hot bytes, what stays exposed, which
 * link carries it. */
#include "planner/report.h"
#include "planner/traffic.h"

enum { MOST_ROWS = 10 };

/* ---- 3 ---- */

/* One unit a column: that of its largest figure. */
static int64_t unit_of(int64_t bytes)
{
    int shift = 30;
    while (shift > 0 && bytes < INT64_C(1) << shift)
        shift -= 10;
    return INT64_C(1) << shift;
}

static const char *unit_name(int64_t unit)
{
    return unit >> 30 ? "GiB" : unit >> 20 ? "MiB" : unit >> 10 ? "KiB" : "bytes";
}

static int64_t largest_unit(const HotRow *row, int n)
{
    int64_t most = 0;
    for (int i = 0; i < n; i++)
        if (row[i].traffic->bytes[row[i].stage] > most)
            most = row[i].traffic->bytes[row[i].stage];
    return unit_of(most);
}

void report_traffic(Str *str, const Report *report)
{
    const Assessment *it = report->it;
    const StepTimes *times = it->times;
    Arena *arena = report->arena;
    report_question(str, report, "3  Which collective moves the hot bytes?",
                    "per step, one device of the stage where it takes longest");
    HotRow *row;
    int n = hot_rows(arena, times, &row);
    if (n == 0) {
        str_put(str, "  none: one device works alone\n");
        return;
    }
    int64_t unit = largest_unit(row, n);
    const char *const heads[] = {"role",  "collective",
                                 "of",    "over",
                                 "count", arena_printf(arena, "%s sent", unit_name(unit)),
                                 "time",  "exposed"};
    Table table = table_new(arena, "llllrrrr", heads);
    for (int i = 0; i < n && i < MOST_ROWS; i++) {
        const Traffic *traffic = row[i].traffic;
        int s = row[i].stage;
        int64_t exposed = hot_exposed(times, &row[i]);
        const char *cells[] = {traffic_role(arena, it, traffic),
                               traffic_kind(traffic),
                               traffic_what(arena, traffic),
                               traffic->memory ? memory_text[traffic->memory]
                                               : it->plan->cluster->level[traffic->level].name,
                               str_commas(arena, traffic->count[s]),
                               text_unit(arena, traffic->bytes[s], unit),
                               text_time(arena, traffic->ns[s]),
                               exposed ? text_time(arena, exposed) : "-"};
        table_row(&table, NULL, cells);
    }
    table_put(str, &table, 2, &report->style);
    if (n > MOST_ROWS)
        str_putf(str, "  %sand %d smaller%s\n", report->style.dim, n - MOST_ROWS,
                 report->style.off);
}

/* ---- 4 ---- */

void report_exposed(Str *str, const Report *report)
{
    const Assessment *it = report->it;
    Arena *arena = report->arena;
    report_question(str, report, "4  What is exposed, after overlap?",
                    it->by_steps ? "where a device's step goes, from its Steps"
                                 : "where a device's step goes, added up from its layers");
    const char *const kinds[SPENT_COUNT] = {"compute",       text_in_layers(&it->plan->mesh),
                                            "dp, gradients", "pp, messages",
                                            "all ranks",     "memories",
                                            "bubble"};
    enum { COLUMNS = SPENT_COUNT + 2 };
    const char *heads[COLUMNS] = {"stage"};
    int columns = 1;
    for (int k = 0; k < SPENT_COUNT; k++)
        if (spent_shown(it->plan, (Spent)k))
            heads[columns++] = kinds[k];
    heads[columns] = "step";
    Table table = table_new(arena, columns == COLUMNS - 1 ? "lrrrrrrrr" : "lrrrrrrr", heads);
    int stage[8], n = telling_stages(it, stage);
    for (int i = 0; i < n; i++) {
        const StageTimes *at = &it->times->stage[stage[i]];
        const char *cells[COLUMNS] = {arena_printf(arena, "%d", stage[i])};
        for (int k = 0, n_cells = 1; k < SPENT_COUNT; k++)
            if (spent_shown(it->plan, (Spent)k))
                cells[n_cells++] = at->spent_ns[k] ? text_time(arena, at->spent_ns[k]) : "-";
        cells[columns] = text_time(arena, it->step_ns);
        table_row(&table, NULL, cells);
    }
    const char *share[COLUMNS] = {it->plan->stages > 1 ? "mean" : "share"};
    for (int k = 0, n_cells = 1; k < SPENT_COUNT; k++)
        if (spent_shown(it->plan, (Spent)k))
            share[n_cells++] = text_percent(arena, assessed_spent(it, (Spent)k), it->step_ns);
    share[columns] = "100 %";
    table_row(&table, report->style.bold, share);
    table_put(str, &table, 2, &report->style);
    const Cluster *cluster = it->plan->cluster;
    str_putf(str, "  compute [%s +-%d %%]", tag_text[cluster->device.tag],
             device_permille(&cluster->device) / 10);
    for (int i = 0; i < cluster->levels; i++)
        str_putf(str, ", %s [%s +-%d %%]", cluster->level[i].name, tag_text[cluster->level[i].tag],
                 link_permille(&cluster->level[i]) / 10);
    for (int m = MEMORY_DRAM; m <= (int)plan_farthest(it->plan); m++)
        str_putf(str, ", %s [%s +-%d %%]", memory_text[m], tag_text[cluster->store[m].tag],
                 store_permille(&cluster->store[m]) / 10);
    str_putc(str, '\n');
}

/* ---- 5 ---- */

/* The way to a memory behind the device's, and back. */
static void put_store(Table *table, Arena *arena, const Assessment *it, Memory memory, int64_t unit)
{
    const Store *store = &it->plan->cluster->store[memory];
    int worst = 0;
    for (int s = 1; s < it->times->stages; s++)
        if (it->times->stage[s].store_ns[memory] > it->times->stage[worst].store_ns[memory])
            worst = s;
    const StageTimes *at = &it->times->stage[worst];
    const char *cells[] = {memory_text[memory],
                           "1",
                           arena_printf(arena, "%.4g GB/s", (double)store->read_bytes_per_s / 1e9),
                           text_unit(arena, at->store_bytes[memory], unit),
                           text_time(arena, at->store_ns[memory]),
                           text_percent(arena, at->store_ns[memory], 2 * it->step_ns),
                           tag_text[store->tag]};
    table_row(table, NULL, cells);
}

void report_links(Str *str, const Report *report)
{
    const Assessment *it = report->it;
    const Cluster *cluster = it->plan->cluster;
    Arena *arena = report->arena;
    report_question(str, report, "5  Which physical link carries it, and how busy is that link?",
                    "per device, on its busiest stage");
    int64_t most = 0;
    for (int i = 0; i < cluster->levels; i++)
        for (int s = 0; s < it->times->stages; s++)
            if (it->times->stage[s].level_bytes[i] > most)
                most = it->times->stage[s].level_bytes[i];
    for (int m = MEMORY_DRAM; m <= (int)plan_farthest(it->plan); m++)
        for (int s = 0; s < it->times->stages; s++)
            most = it->times->stage[s].store_bytes[m] > most ? it->times->stage[s].store_bytes[m]
                                                             : most;
    int64_t unit = unit_of(most);
    const char *const heads[] = {
        "link",      "joins",
        "bandwidth", arena_printf(arena, "%s sent per step", unit_name(unit)),
        "busy",      "of the step",
        "tag"};
    Table table = table_new(arena, "lrrrrrl", heads);
    int joined = 1;
    for (int i = 0; i < cluster->levels; i++) {
        const LinkLevel *level = &cluster->level[i];
        int worst = 0;
        for (int s = 1; s < it->times->stages; s++)
            if (it->times->stage[s].level_ns[i] > it->times->stage[worst].level_ns[i])
                worst = s;
        const StageTimes *at = &it->times->stage[worst];
        joined *= level->width;
        const char *cells[] = {level->name,
                               str_commas(arena, joined),
                               arena_printf(arena, "%.4g GB/s", (double)level->bytes_per_s / 1e9),
                               text_unit(arena, at->level_bytes[i], unit),
                               at->level_ns[i] ? text_time(arena, at->level_ns[i]) : "-",
                               text_percent(arena, at->level_ns[i], it->step_ns),
                               tag_text[level->tag]};
        table_row(&table, NULL, cells);
    }
    for (int m = MEMORY_DRAM; m <= (int)plan_farthest(it->plan); m++)
        put_store(&table, arena, it, (Memory)m, unit);
    table_put(str, &table, 2, &report->style);
}
