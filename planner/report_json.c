/* report_json.c - the machine form of a report. Keys are stable; figures are integers but ratios.
 */
#include "planner/goodput.h"
#include "planner/outside.h"
#include "planner/report.h"
#include "planner/techniques.h"
#include "planner/traffic.h"

#include "ir/pin_ranges.h"

static json_t *integer(int64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *stage_list(const Assessment *it, int64_t (*figure)(const Assessment *, int))
{
    json_t *list = json_array();
    for (int s = 0; s < it->plan->stages; s++)
        json_array_append_new(list, integer(figure(it, s)));
    return list;
}

static int64_t arena_of(const Assessment *it, int stage)
{
    return it->program->stage[stage].arena_bytes;
}

json_t *predicted_json(const Assessment *it)
{
    json_t *exposed = json_object();
    static const char *const role[SPENT_COUNT] = {
        [SPENT_BLOCK] = "tp",    [SPENT_GRADIENT] = "dp", [SPENT_MESSAGE] = "pp",
        [SPENT_WORLD] = "world", [SPENT_COPY] = "copy",   [SPENT_BUBBLE] = "bubble"};
    for (int k = SPENT_BLOCK; k < SPENT_COUNT; k++)
        if (spent_shown(it->plan, (Spent)k))
            json_object_set_new(exposed, role[k], integer(assessed_spent(it, (Spent)k)));
    json_t *object = json_object();
    json_object_set_new(object, "step_ns", integer(it->step_ns));
    json_object_set_new(object, "low_ns", integer(it->low_ns));
    json_object_set_new(object, "high_ns", integer(it->high_ns));
    json_object_set_new(object, "segment_ns", integer(it->segment_ns));
    json_object_set_new(object, "tokens_per_s", integer(it->tokens_per_s));
    json_object_set_new(object, "mfu", json_real(it->mfu));
    json_object_set_new(object, "peak_bytes", stage_list(it, arena_of));
    json_object_set_new(object, "exposed_ns", exposed);
    return object;
}

static json_t *range_json(const PinRange *range)
{
    Arena *arena = arena_new("range");
    json_t *text = json_string(pin_range_text(arena, range));
    arena_free(arena);
    return text;
}

static json_t *placement_json(const Assessment *it)
{
    const Pins *pins = &it->pins;
    json_t *layers = json_array();
    for (int s = 0; s < pins->cuts; s++)
        json_array_append_new(layers, json_integer(pins->cut[s]));
    json_t *object =
        json_pack("{s:i, s:i, s:i, s:i, s:i, s:s, s:s}", "tp", pins->tp, "dp", pins->dp, "pp",
                  pins->pp, "zero", pins->zero, "sp", pins->sp, "recompute",
                  pins->again       ? pins->again
                  : pins->recompute ? "full"
                                    : "none",
                  "schedule", pins->schedule);
    if (pins->shard > SHARD_ALL)
        json_object_set_new(object, "shard", json_string(shard_text[pins->shard]));
    if (pins->cp > 1) {
        json_object_set_new(object, "cp", json_integer(pins->cp));
        json_object_set_new(object, "cp_heads",
                            json_integer(pins->cp_heads > 1 ? pins->cp_heads : 1));
        json_object_set_new(object, "cp_by",
                            pins->cp_by >= 0 ? json_string(cross_text[pins->cp_by]) : json_null());
        json_object_set_new(object, "order",
                            json_string(order_text[pins->order > 0 ? pins->order : 0]));
    }
    if (pins->tp > 1 && pins->tp_by == CROSS_RING)
        json_object_set_new(object, "tp_by", json_string(cross_text[pins->tp_by]));
    if (pins->braid > 0)
        json_object_set_new(object, "braid", json_true());
    if (pins->ep > 1 && pins->exchange > EXCHANGE_EXACT)
        json_object_set_new(object, "exchange", json_string(exchange_text[pins->exchange]));
    json_object_set_new(object, "block",
                        pins->block >= 0 ? json_integer(pins->block) : json_null());
    json_object_set_new(object, "micro_batch", integer(pins->micro_batch));
    json_object_set_new(object, "micro_batches", json_integer(it->plan->micro_batches));
    json_object_set_new(object, "layers", layers);
    if (pins->ranges) {
        json_t *ranges = json_array();
        for (int r = 0; r < pins->ranges; r++)
            json_array_append_new(ranges, range_json(&pins->range[r]));
        json_object_set_new(object, "ranges", ranges);
    }
    if (it->program->flows) {
        json_t *stale = json_array();
        for (int s = 0; s < it->plan->stages; s++)
            json_array_append_new(stale, json_integer(it->program->stage[s].delay));
        json_object_set_new(object, "stale_steps", stale);
    }
    return object;
}

static json_t *found_json(const Found *found)
{
    Arena *arena = arena_new("found");
    json_t *object = json_object();
    json_object_set_new(object, "pins", json_string(pins_text(arena, &found->pins)));
    json_object_set_new(object, "step_ns", integer(found->step_ns));
    json_object_set_new(object, "peak_bytes", integer(found->bytes));
    arena_free(arena);
    return object;
}

static json_t *tightest_json(const Tightest *tightest)
{
    if (!tightest->known)
        return json_null();
    Arena *arena = arena_new("tightest");
    json_t *object = json_object();
    json_object_set_new(object, "pins", json_string(pins_text(arena, &tightest->pins)));
    json_object_set_new(object, "stage", json_integer(tightest->stage));
    json_object_set_new(object, "needed_bytes", integer(tightest->bytes));
    json_object_set_new(object, "available_bytes", integer(tightest->budget_bytes));
    json_object_set_new(object, "missing_bytes", integer(tightest->bytes - tightest->budget_bytes));
    json_object_set_new(object, "weights_bytes", integer(tightest->weight_bytes));
    json_object_set_new(object, "gradients_bytes", integer(tightest->gradient_bytes));
    json_object_set_new(object, "optimizer_bytes", integer(tightest->state_bytes));
    json_object_set_new(object, "activations_bytes", integer(tightest->saved_bytes));
    json_object_set_new(object, "temporaries_bytes", integer(tightest->transient_bytes));
    arena_free(arena);
    return object;
}

static json_t *space_json(const SearchedSpace *space)
{
    json_t *object = json_object(), *schedules = json_array(), *open = json_array();
    for (int kind = 0; kind < SCHEDULE_COUNT; kind++)
        if (space->schedules >> kind & 1)
            json_array_append_new(schedules, json_string(schedule_text[kind]));
    json_object_set_new(object, "schedules", schedules);
    json_object_set_new(object, "chunks", integer(space->chunks));
    json_object_set_new(object, "ep", integer(space->ep));
    json_object_set_new(object, "room", integer(space->room));
    json_object_set_new(object, "mixes", json_boolean(space->mixes));
    json_object_set_new(object, "mixed_homes", json_boolean(space->mixed_homes));
    json_object_set_new(object, "rounds", integer(space->rounds));
    for (int kind = 0; kind < WIDE_COUNT; kind++)
        if (space->open >> kind & 1)
            json_array_append_new(open, json_string(wide_text[kind]));
    json_object_set_new(object, "wide", json_boolean(space->wide));
    json_object_set_new(object, space->wide ? "widened" : "outside", open);
    return object;
}

json_t *search_json(const SearchResult *search)
{
    const SearchStats *stats = &search->stats;
    double gap = 0;
    if (search->found && search->best.step_ns > 0)
        gap = (double)(search->best.step_ns - search->bound_ns) / (double)search->best.step_ns;
    json_t *runners = json_array(), *object = json_object();
    for (int i = 0; i < search->runners; i++)
        json_array_append_new(runners, found_json(&search->runner[i]));
    json_object_set_new(object, "considered", integer(stats->considered));
    json_object_set_new(object, "cut_memory", integer(stats->cut_memory));
    json_object_set_new(object, "cut_bound", integer(stats->cut_bound));
    json_object_set_new(object, "simulated", integer(stats->simulated));
    json_object_set_new(object, "open", integer(stats->open));
    json_object_set_new(object, "left", integer(stats->left));
    json_object_set_new(object, "illegal", integer(stats->illegal));
    json_object_set_new(object, "plans", integer(stats->plans));
    json_object_set_new(object, "solved", integer(stats->solved));
    json_object_set_new(object, "space", space_json(&search->space));
    json_object_set_new(object, "gap", json_real(search->complete ? 0 : gap));
    json_object_set_new(object, "wall_ns", integer(stats->wall_ns));
    json_object_set_new(object, "runners_up", runners);
    if (!search->found)
        json_object_set_new(object, "tightest", tightest_json(&search->tightest));
    return object;
}

static json_t *stages_json(const Assessment *it)
{
    json_t *list = json_array();
    for (int s = 0; s < it->plan->stages; s++) {
        json_t *bytes = json_object(), *spent = json_object(), *object = json_object();
        for (int k = 0; k < BYTES_COUNT; k++)
            json_object_set_new(bytes, bytes_text[k], integer(assessed_bytes(it, s, (BytesKind)k)));
        for (int k = 0; k < SPENT_COUNT; k++)
            if (spent_shown(it->plan, (Spent)k))
                json_object_set_new(spent, spent_text[k], integer(it->times->stage[s].spent_ns[k]));
        json_object_set_new(object, "stage", json_integer(s));
        json_object_set_new(object, "bytes", bytes);
        json_object_set_new(object, "spent_ns", spent);
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *links_json(const Assessment *it)
{
    json_t *list = json_array();
    const Cluster *cluster = it->plan->cluster;
    for (int i = 0; i < cluster->levels; i++) {
        int64_t ns = 0, bytes = 0;
        for (int s = 0; s < it->plan->stages; s++) {
            const StageTimes *at = &it->times->stage[s];
            ns = at->level_ns[i] > ns ? at->level_ns[i] : ns;
            bytes = at->level_bytes[i] > bytes ? at->level_bytes[i] : bytes;
        }
        json_t *object = json_pack("{s:s, s:s}", "name", cluster->level[i].name, "tag",
                                   tag_text[cluster->level[i].tag]);
        json_object_set_new(object, "busy_ns", integer(ns));
        json_object_set_new(object, "sent_bytes", integer(bytes));
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *ladder_json(const Rung *ladder, int rungs)
{
    json_t *list = json_array();
    for (int i = 0; i < rungs; i++) {
        json_t *object = ladder[i].fits ? found_json(&ladder[i].found) : json_object();
        json_object_set_new(object, "rung", json_string(ladder[i].name));
        json_object_set_new(object, "fits", json_boolean(ladder[i].fits));
        if (!ladder[i].fits)
            json_object_set_new(object, "tightest", tightest_json(&ladder[i].tightest));
        json_array_append_new(list, object);
    }
    return list;
}

json_t *outside_json(Arena *arena, const Assessment *it)
{
    Outside outside = outside_of(arena, it);
    json_t *list = json_array();
    for (int i = 0; i < OUTSIDE_LINES; i++) {
        const OutsideLine *line = &outside.line[i];
        json_t *object = json_pack("{s:s, s:s, s:s}", "name", line->name, "formula", line->formula,
                                   "tag", tag_text[line->tag]);
        json_object_set_new(object, "bytes", integer(line->bytes));
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *goodput_json(const Assessment *it)
{
    Goodput at = goodput_of(it);
    json_t *object = json_object();
    json_object_set_new(object, "checkpoint_bytes", integer(at.checkpoint_bytes));
    json_object_set_new(object, "checkpoint_s", json_real(at.write_s));
    json_object_set_new(object, "interval_s", json_real(at.interval_s));
    json_object_set_new(object, "interval_steps", integer(at.interval_steps));
    json_object_set_new(object, "mtbf_s", json_real(at.mtbf_s));
    json_object_set_new(object, "goodput", json_real(at.goodput));
    json_object_set_new(object, "jitter", json_real(at.jitter));
    json_object_set_new(object, "slowest", json_real(at.slowest));
    json_object_set_new(object, "slowest_ns", integer(at.slowest_ns));
    json_object_set_new(object, "tag", json_string(tag_text[TAG_ESTIMATED]));
    return object;
}

/* What the blocks could have been, fastest first; of a layer and one sequence. */
static json_t *labels_json(const Assessment *it)
{
    json_t *list = json_array();
    for (int i = 0; i < it->labels.n; i++) {
        json_t *object = json_object();
        json_object_set_new(object, "ns", integer(it->labels.at[i].micro_ns));
        json_object_set_new(object, "saved_bytes", integer(it->labels.at[i].saved_bytes));
        json_object_set_new(object, "state_bytes", integer(it->labels.at[i].state_bytes));
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *techniques_json(const Report *report)
{
    json_t *list = json_array();
    Techniques all = techniques_of(report->arena, report->it);
    for (int i = 0; i < all.n; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "key", all.at[i].key, "name",
                                              all.at[i].name, "says", all.at[i].says));
    return list;
}

static json_t *risks_json(const Report *report)
{
    json_t *list = json_array();
    Risks all = risks_of(report);
    for (int i = 0; i < all.n; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", all.at[i].name, "brief",
                                              all.at[i].brief, "text", all.at[i].text));
    return list;
}

json_t *report_json(const Report *report)
{
    const Assessment *it = report->it;
    json_t *object = json_object();
    json_object_set_new(object, "model", json_string(it->net->name));
    json_object_set_new(object, "cluster", json_string(it->plan->cluster->name));
    json_object_set_new(object, "devices", json_integer(it->plan->ranks));
    json_object_set_new(object, "global_batch", integer(it->plan->job.global_batch));
    json_object_set_new(object, "sequence", integer(it->plan->job.sequence));
    json_object_set_new(object, "recipe", json_string(it->plan->job.recipe));
    if (report->defaulted)
        json_object_set_new(object, "defaulted", json_string(report->defaulted));
    json_object_set_new(object, "placement", placement_json(it));
    json_object_set_new(object, "techniques", techniques_json(report));
    json_object_set_new(object, "block_labels", labels_json(it));
    json_object_set_new(object, "predicted", predicted_json(it));
    json_object_set_new(object, "stages", stages_json(it));
    json_object_set_new(object, "outside", outside_json(report->arena, it));
    json_object_set_new(object, "goodput", goodput_json(it));
    json_object_set_new(object, "margin_bytes", integer(it->plan->cluster->device.margin_bytes));
    json_object_set_new(object, "links", links_json(it));
    json_object_set_new(object, "traffic", traffic_json(report->arena, it));
    json_object_set_new(object, "risks", risks_json(report));
    if (report->search)
        json_object_set_new(object, "search", search_json(report->search));
    if (report->ladder)
        json_object_set_new(object, "ladder", ladder_json(report->ladder, report->rungs));
    return object;
}
