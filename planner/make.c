/* make.c - pins to Plan: reads the model for the pinned batch, builds the mesh, lifts the classes,
 * cuts the chain. */
#include "planner/make.h"

#include "ir/pin_ranges.h"
#include "planner/contradict.h"
#include "planner/parts.h"
#include "planner/resize.h"
#include "planner/simulate.h"

Pins pins_complete(const Problem *problem, Pins pins)
{
    if (!pins.schedule)
        pins.schedule = schedule_text[SCHEDULE_1F1B];
    if (pins.chunks < 0)
        pins.chunks = schedule_info[schedule_by_name(pins.schedule)].least;
    if (pins.tp < 0)
        pins.tp = 1;
    if (pins.pp < 0)
        pins.pp = pins.cuts > 0 ? pins.cuts / pins.chunks : 1;
    if (pins.cp < 0)
        pins.cp = 1;
    if (pins.dp < 0 && pins.tp * pins.cp * pins.pp > 0)
        pins.dp = problem->ranks / (pins.tp * pins.cp * pins.pp);
    if (pins.order < 0)
        pins.order = ORDER_IDENTITY;
    if (pins.ep < 0)
        pins.ep = 1;
    if (pins.etp < 0)
        pins.etp = pins.tp;
    if (pins.rounds < 0)
        pins.rounds = 1;
    if (pins.exchange < 0)
        pins.exchange = EXCHANGE_EXACT;
    if (pins.room <= 0)
        pins.room = pins.rounds > 1 && pins.ep > 1 ? pins_rounds_room(problem, &pins) : 0;
    if (pins.zero < 0)
        pins.zero = 1;
    if (pins.shard < 0)
        pins.shard = SHARD_ALL;
    for (int k = 0; k < KEPT_COUNT; k++)
        if (pins.home[k] < 0)
            pins.home[k] = MEMORY_HBM;
    if (pins.braid < 0)
        pins.braid = 0;
    if (pins.sp < 0)
        pins.sp = 0;
    if (pins.recompute < 0)
        pins.recompute = 0;
    if (pins.micro_batch <= 0)
        pins.micro_batch = 1;
    return pins;
}

char *pins_text(Arena *arena, const Pins *pins)
{
    Str text = str_new(arena);
    str_putf(&text, "tp=%d,", pins->tp);
    if (pins->tp > 1 && pins->tp_by == CROSS_RING)
        str_putf(&text, "tp_by=%s,", cross_text[pins->tp_by]);
    if (pins->cp > 1)
        str_putf(&text, "cp=%d,", pins->cp);
    if (pins->cp > 1 && pins->cp_by >= 0)
        str_putf(&text, "cp_by=%s,", cross_text[pins->cp_by]);
    if (pins->cp > 1 && pins->cp_heads > 1)
        str_putf(&text, "cp_heads=%d,", pins->cp_heads);
    if (pins->cp > 1 && pins->order == ORDER_ZIGZAG)
        str_putf(&text, "order=%s,", order_text[pins->order]);
    str_putf(&text, "dp=%d,pp=%d,zero=%d,sp=%d,recompute=%s,schedule=%s,mbs=%lld", pins->dp,
             pins->pp, pins->zero, pins->sp,
             pins->again       ? pins->again
             : pins->recompute ? "full"
                               : "none",
             pins->schedule, (long long)pins->micro_batch);
    if (pins_chunks(pins) > pins->pp && !pins->table)
        str_putf(&text, ",chunks=%d", pins->chunks);
    if (pins->braid > 0)
        str_put(&text, ",braid=1");
    if (pins->ep > 1)
        str_putf(&text, ",ep=%d", pins->ep);
    if (pins->etp > 0 && pins->etp != pins->tp)
        str_putf(&text, ",etp=%d", pins->etp);
    if (pins->ep > 1 && pins->room > 0)
        str_putf(&text, ",room=%d", pins->room);
    if (pins->ep > 1 && pins->rounds > 1)
        str_putf(&text, ",rounds=%d", pins->rounds);
    if (pins->ep > 1 && pins->exchange > EXCHANGE_EXACT)
        str_putf(&text, ",exchange=%s", exchange_text[pins->exchange]);
    if (pins->shard > SHARD_ALL)
        str_putf(&text, ",shard=%s", shard_text[pins->shard]);
    for (int k = 0; k < KEPT_COUNT; k++)
        if (pins->home[k] > MEMORY_HBM)
            str_putf(&text, ",%s=%s", kept_pin[k], memory_text[pins->home[k]]);
    if (pins->block >= 0)
        str_putf(&text, ",block=%d", pins->block);
    for (int i = 0; i < pins->cuts; i++)
        str_putf(&text, "%s%d", i ? "+" : ",layers=", pins->cut[i]);
    str_put(&text, pin_ranges_text(arena, pins));
    return text.at;
}

static bool check_pins(const Problem *problem, const Pins *pins)
{
    int64_t ranks = (int64_t)pins->tp * pins->cp * pins->dp * pins->pp;
    if (ranks != problem->ranks) {
        const char *cp = pins->cp > 1 ? arena_printf(problem->arena, " x cp %d", pins->cp) : "";
        diag_error(problem->diag, NO_SPAN, "tp %d%s x dp %d x pp %d are %lld ranks, the job has %d",
                   pins->tp, cp, pins->dp, pins->pp, (long long)ranks, problem->ranks);
        diag_help(problem->diag, "their product must be the number of devices used");
        return false;
    }
    if (problem->job.global_batch % (pins->micro_batch * pins->dp) != 0) {
        diag_error(problem->diag, NO_SPAN,
                   "global batch %lld does not divide by micro-batch %lld x dp %d",
                   (long long)problem->job.global_batch, (long long)pins->micro_batch, pins->dp);
        diag_help(problem->diag, "use a multiple of %lld",
                  (long long)(pins->micro_batch * pins->dp));
        return false;
    }
    return sequence_fits(problem->diag, problem, pins) && experts_fit(problem->diag, problem, pins);
}

/* Chunk i gets the layers the pins say, or an even share; the first and the last link go with the
 * ends. */
static bool cut_chain(const Problem *problem, Plan *plan, const Net *net, const Pins *pins)
{
    int layers = net->chain.n - 2, stages = plan->chunks, given = 0;
    const char *part = plan->chunks > plan->stages ? "chunk" : "stage";
    plan->first_link = ARENA_ARRAY(problem->arena, int, stages + 1);
    for (int s = 0; s < stages; s++) {
        int own = pins->cuts ? s < pins->cuts ? pins->cut[s] : 0
                             : layers / stages + (s > 0 && s <= layers % stages);
        given += own;
        plan->first_link[s + 1] = plan->first_link[s] + own + (s == 0) + (s == stages - 1);
    }
    if (pins->cuts && (pins->cuts != stages || given != layers)) {
        diag_error(problem->diag, NO_SPAN,
                   "the layers pinned to %d %ss are %d in all; the model has %d for %d %ss",
                   pins->cuts, part, given, layers, stages, part);
        diag_help(problem->diag, "give one number a %s, such as layers=%d+%d", part,
                  (layers + 1) / 2, layers / 2);
        return false;
    }
    if (layers < 0) {
        json_fail(json_get(json_root(problem->model), "chain"), "a chain of one link");
        diag_help(problem->diag,
                  "split the block: one looks the tokens up, the last makes the loss");
        return false;
    }
    if (stages > 1 && plan->first_link[stages] != net->chain.n) {
        diag_error(problem->diag, NO_SPAN, "the chain of %d links does not split into %d %ss",
                   net->chain.n, stages, part);
        diag_help(problem->diag, "use fewer stages: --pin pp=1");
        return false;
    }
    for (int s = 0; s < stages; s++)
        if (plan->first_link[s] == plan->first_link[s + 1]) {
            diag_error(problem->diag, NO_SPAN, "%s %d of %d has no layer: the model has %d", part,
                       s, stages, layers);
            diag_help(problem->diag, "use at most %d %ss: one at either end", layers + 2, part);
            return false;
        }
    return true;
}

/* Rounds are read with the model, for one number of ranks that share experts. */
static bool rounds_whole(const Problem *problem, const Parts *parts, const Plan *plan)
{
    for (int i = 1; i < parts->n && plan->rounds > 1; i++)
        if (parts->kind[i].mesh.ep != parts->kind[0].mesh.ep) {
            diag_error(problem->diag, NO_SPAN,
                       "pin rounds=%d: the layers of %s share experts "
                       "among other ranks",
                       plan->rounds, parts->kind[i].where);
            diag_help(problem->diag, "use one ep for all layers, or leave rounds out");
            return false;
        }
    return true;
}

Plan *plan_make(const Problem *problem, const Pins *pins, const Variant *variant, Net **ret_net)
{
    if (!micros_fit(problem->diag, problem, pins) || !check_pins(problem, pins))
        return NULL;
    Arena *arena = problem->arena;
    const Parts *parts = parts_new(problem, pins, variant);
    if (!parts)
        return NULL;
    Plan *plan = ARENA_NEW(arena, Plan);
    *plan =
        (Plan){.arena = arena,
               .model = problem->model,
               .cluster = problem->cluster,
               .job = problem->job,
               .ranks = problem->ranks,
               .stages = pins->pp,
               .micro_batch = pins->micro_batch,
               .micro_batches = (int)(problem->job.global_batch / (pins->micro_batch * pins->dp)),
               .mesh = parts->kind[0].mesh,
               .pad_vocabulary = parts->pad_vocabulary,
               .rounds = parts->routed && pins->ep > 1 && pins->rounds > 1 ? pins->rounds : 1,
               .room_percent = parts->routed && pins->room > 0 ? pins->room : 0,
               .exchange = parts->routed && pins->ep > 1 && pins->exchange == EXCHANGE_PADDED
                               ? EXCHANGE_PADDED
                               : EXCHANGE_EXACT,
               .bucket_bytes = PLAN_BUCKET_BYTES};
    const Schedule *rows = pins_rows(arena, problem->diag, pins, plan->micro_batches);
    if (!rows)
        return NULL;
    plan->schedule = schedule_by_name(pins->schedule);
    if (rows->delay) /* a stage updates by itself: the norm of all comes too late to clip by */
        plan->job.clip = 0;
    plan->table = pins->table;
    plan->braid = pins->braid > 0;
    plan->chunks = rows->chunks;
    plan->holder = rows->holder;
    const Spread form = {.routed = parts->routed, .rounds = plan->rounds};
    Net *read = problem_form(problem, &form, pins->ep, plan->room_percent);
    if (!read || !rounds_whole(problem, parts, plan))
        return NULL;
    Net *net = net_resize(arena, read, pins->micro_batch * pins->dp, plan->pad_vocabulary);
    plan->zigzag = parts_zigzag(parts);
    Homes homes = homes_preset(&plan->mesh, pins->zero, pins->shard);
    plan->state_atoms = homes.state;
    plan->gradient_atoms = homes.gradient;
    plan->weight_atoms = homes.weight;
    if (!parts_memories(parts, plan->memory) || !cut_chain(problem, plan, net, pins))
        return NULL;
    if (!parts_fill(parts, plan, net) || !plan_verify(plan, net, problem->diag))
        return NULL;
    *ret_net = net;
    plan_time_rows(plan, net);
    return plan;
}

static Shard shard_of(const Pins *pins)
{
    return pins->shard > 0 && pins->zero > 0 ? (Shard)pins->shard : SHARD_ALL;
}

bool pins_same(const Pins *a, const Pins *b)
{
    Spread spread[] = {spread_of_pins(a), spread_of_pins(b)};
    if (spread[0].cp_by < 0 || spread[1].cp_by < 0) /* found, not said: it may be the same */
        spread[0].cp_by = spread[1].cp_by = -1;
    bool same = spread_same(&spread[0], &spread[1]) && a->dp == b->dp && a->pp == b->pp &&
                a->recompute == b->recompute && a->micro_batch == b->micro_batch &&
                a->block == b->block && (a->ep > 1 ? a->ep : 1) == (b->ep > 1 ? b->ep : 1) &&
                (a->ep <= 1 || (a->room == b->room && (a->exchange > 0) == (b->exchange > 0))) &&
                (a->tp == 1 || a->sp == b->sp) &&
                (a->dp * a->cp == 1 || (a->zero == b->zero && shard_of(a) == shard_of(b))) &&
                (a->pp == 1 || (str_eq(a->schedule, b->schedule) && a->table == b->table)) &&
                pins_chunks(a) == pins_chunks(b) && (a->braid > 0) == (b->braid > 0);
    Memory home[2][KEPT_COUNT];
    pins_memories(a, home[0]);
    pins_memories(b, home[1]);
    for (int k = 0; k < KEPT_COUNT; k++)
        same = same && home[0][k] == home[1][k];
    same = same && str_eq(a->again ? a->again : "", b->again ? b->again : "") &&
           a->ranges == b->ranges;
    for (int r = 0; same && r < a->ranges; r++)
        same = pin_range_same(&a->range[r], &b->range[r]);
    int chunks = pins_chunks(a);
    for (int s = 0; same && a->cuts == chunks && b->cuts == chunks && s < chunks; s++)
        same = a->cut[s] == b->cut[s];
    return same;
}

static bool boundary_shards(const Plan *plan, const Net *net, DimId dim)
{
    AtomSet tp = role_atoms(&plan->mesh, ROLE_TP);
    for (int c = 0; c < net->classes.n; c++) {
        const Graph *graph = net->classes.at[c];
        if (graph->chain_in == NONE)
            continue;
        const Value *value = &graph->values.at[graph->chain_in];
        for (int a = 0; a < value->axes; a++)
            if (value->dim[a] == dim && (list_set(&plan->class[c].boundary_in.shard[a]) & tp))
                return true;
    }
    return false;
}

static void recomputes(const Plan *plan, const Net *net, Pins *ret)
{
    ret->recompute = 0;
    for (int c = 0; c < net->classes.n && !ret->recompute && !ret->again; c++)
        class_recompute(plan->arena, net->classes.at[c], &plan->class[c], ret);
}

Problem problem_of_plan(Arena *arena, const Plan *plan, const Net *net)
{
    Problem problem = {.arena = arena,
                       .diag = diag_new(arena),
                       .model = plan->model,
                       .net = (Net *)net,
                       .cluster = plan->cluster,
                       .job = plan->job,
                       .ranks = plan->ranks};
    /* a model with experts has two forms, of which the plan has one; and a plan may divide its
     * classes */
    if ((plan->part || net_has_experts(net)) && !problem_read(&problem))
        BUG("a plan's model cannot be read again");
    return problem;
}

Pins pins_of_plan(const Plan *plan, const Net *net)
{
    BlockLabels labels;
    return pins_and_labels(plan, net, &labels);
}

Pins pins_and_labels(const Plan *plan, const Net *net, BlockLabels *ret)
{
    Pins pins = pins_none();
    Spread spread = spread_of_plan(plan, net);
    pins.tp = spread.tp;
    pins.cp = spread.cp;
    pins.cp_by = spread.cp_by;
    pins.tp_by = spread.passing ? CROSS_RING : -1;
    pins.cp_heads = spread.cp_heads > 1 ? spread.cp_heads : -1;
    pins.order = spread.zigzag ? ORDER_ZIGZAG : ORDER_IDENTITY;
    pins.dp = mesh_extent(&plan->mesh, role_atoms(&plan->mesh, ROLE_DP));
    pins.pp = plan->stages;
    pins.ep = mesh_extent(&plan->mesh, role_atoms(&plan->mesh, ROLE_EP));
    pins.etp = spread.tp_etp > 0 ? spread.tp_etp : spread.tp * spread.etp;
    pins.room = (int)plan->room_percent;
    pins.rounds = spread.rounds;
    pins.exchange = plan->exchange;
    Homes homes = {
        .state = plan->state_atoms, .gradient = plan->gradient_atoms, .weight = plan->weight_atoms};
    pins.zero = homes_words(&plan->mesh, &homes, &pins.shard);
    pins.zero = pins.zero < 0 ? (homes.weight ? 3 : homes.gradient ? 2 : 1) : pins.zero;
    for (int k = 0; k < KEPT_COUNT; k++)
        pins.home[k] = (int)plan->memory[k];
    pins.sp = boundary_shards(plan, net, net->sequence);
    recomputes(plan, net, &pins);
    pins.micro_batch = plan->micro_batch;
    pins.schedule = schedule_text[plan->schedule];
    pins.table = plan->table;
    pins.braid = plan->braid;
    pins.chunks = plan->chunks / plan->stages;
    for (int c = 0; c < plan->chunks && plan->chunks <= MAX_CUTS; c++)
        pins.cut[pins.cuts++] =
            plan->first_link[c + 1] - plan->first_link[c] - (c == 0) - (c == plan->chunks - 1);
    if (plan_is_divided(plan, net)) {
        *ret = (BlockLabels){.n = 0};
        parts_say(plan, net, &pins);
        return pins;
    }
    Arena *scratch = arena_new("label");
    Problem problem = {.arena = scratch,
                       .model = plan->model,
                       .cluster = plan->cluster,
                       .job = plan->job,
                       .ranks = plan->ranks};
    pins.block = plan_label(scratch, &problem, plan, net, pins.sp, pins.recompute, ret);
    arena_free(scratch);
    return pins;
}
