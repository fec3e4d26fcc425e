/* plan_rows.c - the part of plan.json that says its schedule: chunks, the rows of a table, lengths
 * of rows. */
#include <string.h>

#include "ir/plan_rows.h"

/* Of one row or message: a step of 2^20 of them still fits an int64. */
static const int64_t ns_max = INT64_C(1) << 40;

static const char *const row_key[PART_COUNT] = {"forward_ns", "backward_ns", "input_ns",
                                                "weight_ns"};

static json_t *plan_rows_json(const Plan *plan)
{
    json_t *rows = json_object();
    for (int part = 0; part < PART_COUNT; part++) {
        json_t *list = plan->row_ns[part] ? json_array() : NULL;
        for (int c = 0; c < plan->chunks && list; c++)
            json_array_append_new(list, json_integer(plan->row_ns[part][c]));
        if (list)
            json_object_set_new(rows, row_key[part], list);
    }
    json_t *pairs = plan->pair_ns ? json_array() : NULL;
    for (int c = 0; c < plan->chunks && pairs; c++)
        json_array_append_new(pairs, json_integer(plan->pair_ns[c]));
    if (pairs)
        json_object_set_new(rows, "pair_ns", pairs);
    json_object_set_new(rows, "hop_ns", json_integer(plan->hop_ns));
    return rows;
}

void plan_put_rows(json_t *root, const Plan *plan)
{
    if (plan->braid) /* rows that are two in one */
        json_object_set_new(root, "braid", json_true());
    if (plan->row_ns[0])
        json_object_set_new(root, "rows", plan_rows_json(plan));
}

/* One string a stage, in the cells of schedule.h. */
json_t *plan_table_json(const Schedule *table)
{
    Arena *scratch = arena_new("table");
    Str text = str_new(scratch);
    json_t *lines = json_array();
    schedule_put_csv(&text, table);
    for (const char *at = text.at; *at;) {
        const char *end = strchr(at, '\n');
        json_array_append_new(lines, json_stringn(at, (size_t)(end - at)));
        at = end + 1;
    }
    arena_free(scratch);
    return lines;
}

/* The rows that a file gave, kept as its lines. */
static bool read_table(Json root, Plan *plan)
{
    Json lines = json_get(root, "table");
    if (plan->schedule != SCHEDULE_TABLE)
        return true;
    if (!json_want_array(lines))
        return false;
    Str text = str_new(plan->arena);
    for (int i = 0; i < json_len(lines); i++) {
        const char *line;
        if (!json_str(json_at(lines, i), &line))
            return false;
        str_putf(&text, "%s\n", line);
    }
    plan->table = schedule_read_csv(plan->arena, root.doc->diag, text.n ? text.at : "", "table");
    return plan->table != NULL;
}

/* Which stage has which chunk is the schedule's to say. */
bool plan_read_chunks(Json root, Plan *plan)
{
    int64_t chunks = plan->stages;
    if (!read_table(root, plan))
        return false;
    if (!json_opt_int(root, "chunks", plan->stages, 1 << 10, &chunks))
        return false;
    plan->chunks = (int)chunks;
    if (plan->chunks % plan->stages != 0 && plan->schedule != SCHEDULE_TABLE) {
        json_fail(json_get(root, "chunks"), "%d chunks on %d stages", plan->chunks, plan->stages);
        diag_help(root.doc->diag, "every stage has as many: a multiple of \"stages\"");
        return false;
    }
    const Schedule *schedule = plan_rows(plan->arena, root.doc->diag, plan);
    if (!schedule)
        return false;
    if (schedule->chunks != plan->chunks || schedule->stages != plan->stages ||
        schedule->micros != plan->micro_batches) {
        json_fail(json_get(root, "table"),
                  "rows of %d stages, %d chunks and %d micro-batches for a plan of %d, %d and %d",
                  schedule->stages, schedule->chunks, schedule->micros, plan->stages, plan->chunks,
                  plan->micro_batches);
        diag_help(root.doc->diag, "make the plan again with this schedule");
        return false;
    }
    plan->holder = schedule->holder;
    return true;
}

/* One number a chunk. */
static bool read_lengths(Json list, Plan *plan, int64_t **ret)
{
    if (!json_want_array(list))
        return false;
    if (json_len(list) != plan->chunks) {
        json_fail(list, "%d numbers for %d %s", json_len(list), plan->chunks,
                  plan->chunks > plan->stages ? "chunks" : "stages");
        diag_help(list.doc->diag, "one number a %s, or no \"rows\" at all",
                  plan->chunks > plan->stages ? "chunk" : "stage");
        return false;
    }
    *ret = ARENA_ARRAY(plan->arena, int64_t, plan->chunks);
    for (int c = 0; c < plan->chunks; c++)
        if (!json_int(json_at(list, c), 0, ns_max, &(*ret)[c]))
            return false;
    return true;
}

/* Optional: the lengths of the stages' rows. */
bool plan_read_rows(Json rows, Plan *plan)
{
    if (!rows.value)
        return true;
    if (!json_want_object(rows) || !json_int(json_get(rows, "hop_ns"), 0, ns_max, &plan->hop_ns))
        return false;
    for (int part = 0; part < PART_COUNT; part++) {
        Json list = json_get(rows, row_key[part]);
        if (part > PART_B && !list.value)
            continue; /* of a backward in two parts alone */
        if (!read_lengths(list, plan, &plan->row_ns[part]))
            return false;
    }
    Json pairs = json_get(rows, "pair_ns");
    if (pairs.value && !read_lengths(pairs, plan, &plan->pair_ns))
        return false;
    return true;
}

json_t *plan_atoms_json(AtomSet atoms)
{
    json_t *list = json_array();
    for (int a = 0; a < MAX_ATOMS; a++)
        if (atoms >> a & 1)
            json_array_append_new(list, json_integer(a));
    return list;
}
