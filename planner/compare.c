/* compare.c - one table for any number of plans. */
#include "planner/compare.h"

#include <string.h>

#include "planner/homes_words.h"

enum { WIDTH = 100, LABEL = 18, WIDEST = 22 };

typedef char *(*CellText)(Arena *arena, const Column *column, int which);

/* ---- cells ---- */

static char *cell_degrees(Arena *arena, const Column *column, int which)
{
    const Pins *pins = &column->it->pins;
    (void)which;
    if (pins->cp > 1)
        return arena_printf(arena, "%d x (cp %d) x %d x %d", pins->tp, pins->cp, pins->dp,
                            pins->pp);
    return arena_printf(arena, "%d x %d x %d", pins->tp, pins->dp, pins->pp);
}

static char *cell_rules(Arena *arena, const Column *column, int which)
{
    const Pins *pins = &column->it->pins;
    Str text = str_new(arena);
    (void)which;
    if (homes_name(pins, true))
        str_put(&text, homes_name(pins, true));
    for (int k = 0; k < KEPT_COUNT; k++)
        if (pins->home[k] > MEMORY_HBM)
            str_putf(&text, "%s%s in %s", text.n ? ", " : "", kept_short[k],
                     memory_text[pins->home[k]]);
    if (pins->braid > 0)
        str_putf(&text, "%sF||B", text.n ? ", " : "");
    if (pins->sp)
        str_putf(&text, "%sSP", text.n ? ", " : "");
    if (pins->recompute)
        str_putf(&text, "%srecompute", text.n ? ", " : "");
    else if (pins->again)
        str_putf(&text, "%srecompute %s", text.n ? ", " : "", pins->again);
    if (pins->block >= 0)
        str_putf(&text, "%sblock %d", text.n ? ", " : "", pins->block);
    if (column->it->plan->part)
        str_putf(&text, "%slayers that differ", text.n ? ", " : "");
    return text.n ? text.at : arena_strdup(arena, "-");
}

static char *cell_batches(Arena *arena, const Column *column, int which)
{
    (void)which;
    return arena_printf(arena, "%lld x %d", (long long)column->it->plan->micro_batch,
                        column->it->plan->micro_batches);
}

static char *cell_schedule(Arena *arena, const Column *column, int which)
{
    (void)which;
    return arena_strdup(arena, column->it->pins.pp > 1 ? column->it->pins.schedule : "-");
}

static char *cell_devices(Arena *arena, const Column *column, int which)
{
    (void)which;
    return str_commas(arena, column->it->plan->ranks);
}

static char *cell_step(Arena *arena, const Column *column, int which)
{
    (void)which;
    return text_time(arena, column->it->step_ns);
}

static char *cell_tokens(Arena *arena, const Column *column, int which)
{
    (void)which;
    return str_commas(arena, column->it->tokens_per_s);
}

static char *cell_mfu(Arena *arena, const Column *column, int which)
{
    (void)which;
    return arena_printf(arena, "%.1f %%", 100 * column->it->mfu);
}

static char *cell_spent(Arena *arena, const Column *column, int which)
{
    int64_t ns = assessed_spent(column->it, (Spent)which);
    return ns ? text_time(arena, ns) : arena_strdup(arena, "-");
}

static char *cell_bytes(Arena *arena, const Column *column, int which)
{
    int64_t bytes = assessed_bytes(column->it, column->it->fullest, (BytesKind)which);
    return bytes ? str_gib(arena, bytes) : arena_strdup(arena, "-");
}

static char *cell_peak(Arena *arena, const Column *column, int which)
{
    (void)which;
    return str_gib(arena, column->it->peak_bytes);
}

static char *cell_fits(Arena *arena, const Column *column, int which)
{
    const Assessment *it = column->it;
    (void)which;
    int64_t left = it->budget_bytes - it->peak_bytes;
    return left < 0 ? arena_printf(arena, "%s missing", str_gib(arena, -left))
                    : str_gib(arena, left);
}

static char *cell_verdict(Arena *arena, const Column *column, int which)
{
    (void)which;
    return arena_strdup(arena, column->it->peak_bytes <= column->it->budget_bytes ? "yes" : "NO");
}

static char *cell_sent(Arena *arena, const Column *column, int which)
{
    int64_t bytes = 0;
    for (int s = 0; s < column->it->times->stages; s++) {
        int64_t own = column->it->times->stage[s].level_bytes[which];
        bytes = own > bytes ? own : bytes;
    }
    return bytes ? str_gib(arena, bytes) : arena_strdup(arena, "-");
}

/* ---- the table ---- */

typedef struct Term {
    const char *name;
    CellText text;
    int which;
} Term;

static const Term terms[] = {
    {"fits", cell_verdict, 0},
    {"devices", cell_devices, 0},
    {"tp x dp x pp", cell_degrees, 0},
    {"rules", cell_rules, 0},
    {"mbs x micro-batches", cell_batches, 0},
    {"schedule", cell_schedule, 0},
    {"step", cell_step, 0},
    {NULL, NULL, 0}, /* against the first column */
    {"tokens/s", cell_tokens, 0},
    {"MFU", cell_mfu, 0},
    {"  compute", cell_spent, SPENT_COMPUTE},
    {"  tp exposed", cell_spent, SPENT_BLOCK},
    {"  dp exposed", cell_spent, SPENT_GRADIENT},
    {"  pp exposed", cell_spent, SPENT_MESSAGE},
    {"  norm", cell_spent, SPENT_WORLD},
    {"  memories", cell_spent, SPENT_COPY}, /* where a plan has any behind the devices' */
    {"  bubble", cell_spent, SPENT_BUBBLE},
    {"peak memory", cell_peak, 0},
    {"  left", cell_fits, 0},
    {"  weights", cell_bytes, BYTES_WEIGHTS},
    {"  gradients", cell_bytes, BYTES_GRADIENTS},
    {"  optimizer", cell_bytes, BYTES_STATE},
    {"  activations", cell_bytes, BYTES_SAVED},
    {"  temporaries", cell_bytes, BYTES_TRANSIENT},
};

static const char *against_first(Arena *arena, const Columns *columns, int at)
{
    const Assessment *first = columns->at[0].it, *it = columns->at[at].it;
    if (at == 0 || !first || !it)
        return "";
    double percent = 100.0 * (double)(it->step_ns - first->step_ns) / (double)first->step_ns;
    return arena_printf(arena, "%+.1f %%", percent);
}

static const char *missing_cell(Arena *arena, const Column *column, const Term *term)
{
    if (!term->name || !str_eq(term->name, "peak memory"))
        return !term->name || !str_eq(term->name, "fits") ? ""
               : column->tightest                         ? "nothing fits"
                                                          : "no such plan";
    return column->tightest && column->tightest->known ? str_gib(arena, column->tightest->bytes)
                                                       : "";
}

static bool term_shown(const Columns *columns, const Term *term)
{
    bool shown = term->text != cell_spent || term->which != SPENT_COPY;
    for (int c = 0; c < columns->n; c++)
        shown |= columns->at[c].it && spent_shown(columns->at[c].it->plan, (Spent)term->which);
    return shown;
}

static void put_terms(Table *table, Arena *arena, const Columns *columns, const int *which, int n,
                      const Style *style)
{
    for (size_t t = 0; t < sizeof terms / sizeof *terms; t++) {
        const Term *term = &terms[t];
        const char *cells[TABLE_COLUMNS] = {term->name ? term->name : "  against the first"};
        if ((!term->name && columns->n < 2) || (term->name && !term_shown(columns, term)))
            continue;
        for (int c = 0; c < n; c++) {
            const Column *column = &columns->at[which[c]];
            if (!column->it)
                cells[1 + c] = missing_cell(arena, column, term);
            else if (term->text)
                cells[1 + c] = term->text(arena, column, term->which);
            else
                cells[1 + c] = against_first(arena, columns, which[c]);
        }
        bool main_row =
            term->name && (str_eq(term->name, "step") || str_eq(term->name, "peak memory"));
        table_row(table, main_row ? style->bold : NULL, cells);
    }
}

/* Links by position: the clusters of two plans may differ. */
static void put_link_terms(Table *table, Arena *arena, const Columns *columns, const int *which,
                           int n)
{
    for (int level = 0; level < MAX_LEVELS; level++) {
        const char *name = NULL, *cells[TABLE_COLUMNS] = {NULL};
        for (int c = 0; c < n; c++) {
            const Assessment *it = columns->at[which[c]].it;
            if (!it || level >= it->plan->cluster->levels)
                continue;
            name = name ? name : it->plan->cluster->level[level].name;
            cells[1 + c] = cell_sent(arena, &columns->at[which[c]], level);
        }
        if (!name)
            continue;
        cells[0] = arena_printf(arena, "sent, %s", name);
        table_row(table, NULL, cells);
    }
}

void columns_put(Str *str, Arena *arena, const Columns *columns, const Style *style)
{
    int widest = 12;
    for (int c = 0; c < columns->n; c++)
        if (text_width(columns->at[c].title) > widest)
            widest = text_width(columns->at[c].title);
    int room = (WIDTH - LABEL - 4) / ((widest < WIDEST ? widest : WIDEST) + 2);
    room = room < 2 ? 2 : room > TABLE_COLUMNS - 1 ? TABLE_COLUMNS - 1 : room;
    int next = 1;
    do {
        int which[TABLE_COLUMNS] = {0}, n = 1;
        while (n < room && next < columns->n)
            which[n++] = next++;
        const char *heads[TABLE_COLUMNS] = {""};
        for (int c = 0; c < n; c++)
            heads[1 + c] = columns->at[which[c]].title;
        Table table = table_new(arena, "lrrrrrrrrrrr", heads);
        table.columns = n + 1;
        put_terms(&table, arena, columns, which, n, style);
        put_link_terms(&table, arena, columns, which, n);
        table_put(str, &table, 2, style);
        if (next < columns->n)
            str_putc(str, '\n');
    } while (next < columns->n);
}

/* ---- JSON ---- */

static json_t *column_json(Arena *arena, const Column *column)
{
    json_t *object = json_object();
    if (column->it) {
        Report report = {.arena = arena, .it = column->it, .search = column->search};
        json_decref(object);
        object = report_json(&report);
    } else {
        json_object_set_new(object, "placement", json_null());
        json_object_set_new(object, "predicted", json_null());
        if (column->search)
            json_object_set_new(object, "search", search_json(column->search));
    }
    json_object_set_new(object, "title", json_string(column->title));
    bool fits = column->it && column->it->peak_bytes <= column->it->budget_bytes;
    json_object_set_new(object, "fits", json_boolean(fits));
    return object;
}

json_t *columns_json(Arena *arena, const Columns *columns)
{
    json_t *list = json_array();
    for (int c = 0; c < columns->n; c++)
        json_array_append_new(list, column_json(arena, &columns->at[c]));
    return list;
}

bool columns_fit(const Columns *columns, int from)
{
    for (int c = from; c < columns->n; c++)
        if (columns->at[c].it && columns->at[c].it->peak_bytes <= columns->at[c].it->budget_bytes)
            return true;
    return from >= columns->n;
}

json_t *compare_json(Arena *arena, const Columns *columns)
{
    json_t *object = column_json(arena, &columns->at[0]);
    json_object_set_new(object, "columns", columns_json(arena, columns));
    return object;
}

Plan *compare_load(Arena *arena, Diag *diag, const char *path, Net **ret_net, Problem *ret_problem)
{
    Plan *plan = plan_load(arena, diag, path, ret_net);
    if (!plan)
        return NULL;
    *ret_problem = (Problem){.arena = arena,
                             .diag = diag,
                             .model = plan->model,
                             .cluster = plan->cluster,
                             .job = plan->job,
                             .ranks = plan->ranks};
    return problem_read(ret_problem) ? plan : NULL;
}
