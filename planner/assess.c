/* assess.c - lowers a plan, times it, and draws the conclusions that every report shares. */
#include "planner/assess.h"

#include <string.h>

#include "ir/base/num.h"
#include "ir/lower/roofline.h"
#include "planner/homes_words.h"

const char *const bytes_text[BYTES_COUNT] = {"weights", "gradients", "optimizer", "activations",
                                             "temporaries"};

static int tag_permille(Tag tag, bool communication)
{
    /* from published predictions: machines calibrated for the job miss by about 6 %, uncalibrated
     * ones by 10 to 15 %, communication by twice as much */
    static const int compute[TAG_COUNT] = {
        [TAG_ESTIMATED] = 100, [TAG_CALIBRATED] = 50, [TAG_MEASURED] = 50};
    return compute[tag] * (communication ? 2 : 1);
}

int device_permille(const Device *device)
{
    return device->band_permille ? (int)device->band_permille : tag_permille(device->tag, false);
}

int link_permille(const LinkLevel *level)
{
    return level->band_permille ? (int)level->band_permille : tag_permille(level->tag, true);
}

int store_permille(const Store *store)
{
    return store->band_permille ? (int)store->band_permille : tag_permille(store->tag, true);
}

static bool counts_as_model(const Graph *graph, const Node *node)
{
    if (node->seg != SEG_FORWARD)
        return false;
    Form form = op_info[node->op].form;
    bool weighed = false;
    for (int k = 0; k < node->ins; k++)
        weighed |= graph->values.at[node->in[k]].kind == VALUE_PARAM;
    return form == FORM_attention || ((form == FORM_gemm || form == FORM_expert) && weighed);
}

/* Of one node on one sequence. */
static int64_t sequence_flops(const Net *net, const Node *node, bool masked)
{
    int64_t flops = node_flops(net, node) / net->dims.at[net->batch].extent;
    if (!masked || !node_crosses(net, node))
        return flops;
    WholePairs pairs = node_whole_pairs(net, node);
    return num_scale_up(flops, pairs.seen, pairs.all);
}

int64_t model_flops(const Net *net, bool masked)
{
    int64_t flops = 0;
    for (int i = 0; i < net->chain.n; i++) {
        const Graph *graph = net->classes.at[net->chain.at[i].class];
        for (int n = 0; n < graph->nodes.n; n++)
            if (counts_as_model(graph, &graph->nodes.at[n]))
                flops += 3 * sequence_flops(net, &graph->nodes.at[n], masked);
    }
    return flops;
}

Family *family_of_plan(Arena *arena, const Problem *problem, const Plan *plan, const Net *net)
{
    Variant *variant = variant_of_plan(arena, plan, net);
    const Schedule *rows = plan_rows(arena, diag_new(arena), plan);
    CHECK(rows != NULL);
    DeckKey key = {
        .micro_batch = 1, .ep = 1, .exchange = (int)plan->exchange, .split = schedule_splits(rows)};
    Deck *deck = deck_new(arena, arena, problem, variant, &key);
    Order *order = order_new(arena, plan->schedule, rows);
    int dp = mesh_extent(&plan->mesh, role_atoms(&plan->mesh, ROLE_DP));
    Family *family = family_new(arena, problem, deck, order, dp, 0, SHARD_ALL);
    CHECK(family != NULL);
    family->mesh = deck->mesh = plan->mesh;
    family->homes = (Homes){
        .state = plan->state_atoms, .gradient = plan->gradient_atoms, .weight = plan->weight_atoms};
    family->pricer.state_atoms = plan->state_atoms;
    memcpy(family->memory, plan->memory, sizeof family->memory);
    family->bucket_bytes = plan->bucket_bytes;
    return family;
}

int64_t assessed_spent(const Assessment *assessment, Spent spent)
{
    int64_t ns = 0;
    for (int s = 0; s < assessment->times->stages; s++)
        ns += assessment->times->stage[s].spent_ns[spent];
    return ns / assessment->times->stages;
}

int64_t assessed_bytes(const Assessment *assessment, int stage, BytesKind kind)
{
    const StageProgram *at = &assessment->program->stage[stage];
    int64_t transient = at->scratch_bytes + 4 * at->pass_bytes + at->fetched_bytes +
                        at->buffers_bytes + at->sums_bytes[MEMORY_HBM];
    switch (kind) {
    case BYTES_WEIGHTS:
    case BYTES_GRADIENTS:
    case BYTES_STATE:
        return at->group_bytes[kind];
    case BYTES_SAVED:
        return at->group_bytes[3] - transient;
    case BYTES_TRANSIENT:
        return transient;
    case BYTES_COUNT:
        break;
    }
    return 0;
}

/* Communication is as uncertain as the least known level used. */
static void fill_band(Assessment *out)
{
    const Cluster *cluster = out->plan->cluster;
    int link = 0;
    for (int level = 0; level < cluster->levels; level++)
        for (int s = 0; s < out->times->stages; s++)
            if (out->times->stage[s].level_ns[level] > 0 &&
                link_permille(&cluster->level[level]) > link)
                link = link_permille(&cluster->level[level]);
    for (int m = MEMORY_DRAM; m <= (int)plan_farthest(out->plan); m++)
        link =
            store_permille(&cluster->store[m]) > link ? store_permille(&cluster->store[m]) : link;
    int64_t waiting = 0;
    for (int spent = SPENT_BLOCK; spent < SPENT_BUBBLE; spent++)
        waiting += assessed_spent(out, (Spent)spent);
    int64_t rest = out->step_ns - waiting;
    int64_t band = waiting / 1000 * link + rest / 1000 * device_permille(&cluster->device);
    out->low_ns = out->step_ns - band;
    out->high_ns = out->step_ns + band;
}

static void fill_rates(Assessment *out)
{
    const Plan *plan = out->plan;
    const Device *device = &plan->cluster->device;
    DType factors = recipe_by_name(plan->job.recipe)->activation;
    double seconds = (double)out->step_ns / 1e9;
    out->tokens = plan->job.global_batch * plan->job.sequence;
    out->tokens_per_s = (int64_t)((double)out->tokens / seconds);
    /* a step's FLOPs may pass 2^63 / 10^9, so that rates are made of floating numbers */
    double flops = (double)model_flops(out->net, false) * (double)plan->job.global_batch;
    out->flops_per_device = flops / seconds / plan->ranks;
    out->mfu = out->flops_per_device / (double)device_peak_flops(device, factors);
    out->unmasked_mfu =
        out->mfu * (double)model_flops(out->net, true) / (double)model_flops(out->net, false);
}

Assessment *assess_plan(Arena *arena, const Plan *plan, const Net *net, int64_t steps)
{
    Assessment *out = ARENA_NEW(arena, Assessment);
    *out = (Assessment){.plan = plan, .net = net};
    out->pins = pins_and_labels(plan, net, &out->labels);
    out->program = program_build(arena, plan, net, NULL, NULL);
    Problem *problem = ARENA_NEW(arena, Problem);
    *problem = problem_of_plan(arena, plan, net);
    Family *family = family_of_plan(arena, problem, plan, net);
    out->family = family;
    StepTimes *account = account_plan(arena, family, plan->first_link);
    out->segment_ns = account->step_ns;
    out->by_steps = account->steps <= steps || out->program->flows;
    out->times = out->by_steps ? simulate_program(arena, out->program, NULL) : account;
    out->step_ns = out->times->step_ns;
    out->budget_bytes = family_budget(family);
    for (int s = 0; s < plan->stages; s++) {
        if (out->program->stage[s].arena_bytes > out->peak_bytes) {
            out->peak_bytes = out->program->stage[s].arena_bytes;
            out->fullest = s;
        }
        if (out->times->stage[s].spent_ns[SPENT_COMPUTE] >
            out->times->stage[out->busiest].spent_ns[SPENT_COMPUTE])
            out->busiest = s;
    }
    fill_band(out);
    fill_rates(out);
    return out;
}

/* Layers whose own pins say otherwise what is made again. */
static int other_layers(const Pins *pins)
{
    int layers = 0;
    for (int r = 0; r < pins->ranges; r++) {
        const PinRange *range = &pins->range[r];
        bool inner = range->begin != RANGE_FIRST && range->begin != RANGE_LAST;
        bool differs = range->pins.recompute >= 0 &&
                       (range->pins.recompute != pins->recompute || range->pins.again);
        layers += inner && differs ? range->end - range->begin + 1 : 0;
    }
    return layers;
}

static void put_recompute(Str *text, const Pins *pins, bool brief)
{
    int others = brief ? other_layers(pins) : 0;
    if (others)
        str_putf(text, ", recompute %s%d layer%s", pins->recompute ? "but " : "", others,
                 others == 1 ? "" : "s");
    else if (pins->again)
        str_putf(text, brief ? ", recompute %s" : ", selective recompute (%s)", pins->again);
    else if (pins->recompute)
        str_put(text, brief ? ", recompute" : ", full recompute");
}

static char *words(Arena *arena, const Pins *pins, bool brief)
{
    Str text = str_new(arena);
    str_putf(&text, "tp %d x ", pins->tp);
    if (pins->cp > 1)
        str_putf(&text, "cp %d x ", pins->cp);
    str_putf(&text, "dp %d x pp %d", pins->dp, pins->pp);
    if (pins->ep > 1)
        str_putf(&text, ", ep %d", pins->ep);
    if (pins->etp > 0 && pins->etp != pins->tp)
        str_putf(&text, ", etp %d", pins->etp);
    bool padded = pins->ep > 1 && pins->exchange == EXCHANGE_PADDED;
    if (pins->ep > 1 && pins->room > 0 && !brief)
        str_putf(&text, " (room %d %%%s%s)", pins->room,
                 pins->rounds > 1 ? arena_printf(arena, ", %d rounds", pins->rounds) : "",
                 padded ? ", padded" : "");
    else if (padded)
        str_put(&text, brief ? " padded" : " (padded)");
    if (pins->pp > 1)
        str_putf(&text, ", %s", schedule_info[schedule_by_name(pins->schedule)].title);
    if (pins->braid > 0)
        str_put(&text,
                brief ? " F||B" : " with forward and backward of two micro-batches overlapped");
    if (pins_chunks(pins) > pins->pp)
        str_putf(&text, brief ? " x %d" : " (%d chunks a stage)", pins_chunks(pins) / pins->pp);
    if (pins->cp > 1) {
        str_put(&text, brief ? ", CP" : ", context parallel");
        if (pins->cp_heads > 1)
            str_putf(&text, " heads %d x", pins->cp_heads);
        if (pins->cp_by >= 0)
            str_putf(&text, " %s", cross_text[pins->cp_by]);
        if (pins->order == ORDER_ZIGZAG)
            str_putf(&text, " %s", order_text[pins->order]);
    }
    const char *homes = homes_name(pins, brief);
    if (homes)
        str_putf(&text, ", %s", homes);
    if (pins->home[KEPT_STATE] > MEMORY_HBM)
        str_putf(&text, ", ZeRO-%s (optimizer in %s)",
                 pins->home[KEPT_STATE] == MEMORY_DRAM ? "Offload" : "Infinity",
                 memory_text[pins->home[KEPT_STATE]]);
    for (int k = KEPT_SAVED; k < KEPT_COUNT; k++)
        if (pins->home[k] > MEMORY_HBM)
            str_putf(&text, ", %s in %s", kept_short[k], memory_text[pins->home[k]]);
    if (pins->sp)
        str_put(&text, brief ? ", SP" : ", sequence parallel");
    if (pins->tp > 1 && pins->tp_by == CROSS_RING)
        str_put(&text, brief ? ", TP overlap" : ", tensor-parallel overlap (chunked GEMM)");
    put_recompute(&text, pins, brief);
    if (pins->block >= 0)
        str_putf(&text, ", block %d", pins->block);
    str_putf(&text, ", %s %lld", brief ? "mbs" : "micro-batch", (long long)pins->micro_batch);
    return text.at;
}

char *pins_layers_words(Arena *arena, const Pins *pins)
{
    Str text = str_new(arena);
    str_putf(&text, "tp %d x ", pins->tp);
    if (pins->cp > 1)
        str_putf(&text, "cp %d x ", pins->cp);
    str_putf(&text, "dp %d", pins->dp);
    if (pins->ep > 1)
        str_putf(&text, ", ep %d", pins->ep);
    if (pins->etp > pins->tp)
        str_putf(&text, ", etp %d", pins->etp);
    if (pins->cp > 1 && pins->cp_heads > 1)
        str_putf(&text, ", heads over %d", pins->cp_heads);
    if (pins->cp > 1 && pins->cp_by >= 0)
        str_putf(&text, ", context parallel %s", cross_text[pins->cp_by]);
    const char *homes = homes_name(pins, false);
    str_putf(&text, ", %s", homes ? homes : "homes whole");
    if (pins->sp)
        str_put(&text, ", sequence parallel");
    if (pins->tp > 1 && pins->tp_by == CROSS_RING)
        str_put(&text, ", tensor-parallel overlap");
    put_recompute(&text, pins, false);
    if (pins->block >= 0)
        str_putf(&text, ", block %d", pins->block);
    return text.at;
}

char *pins_words(Arena *arena, const Pins *pins)
{
    return words(arena, pins, false);
}

char *pins_short(Arena *arena, const Pins *pins)
{
    return words(arena, pins, true);
}
