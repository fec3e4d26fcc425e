/* search_space.c - the declared space: every family of it, in written order. */
#include "planner/search_in.h"

#include "planner/contradict.h"
#include "planner/parts.h"

enum { MAX_TP = 1024, SEARCHED = 5, SEARCHED_ROUNDS = 4 };

const char *const wide_text[WIDE_COUNT] = {"etp=1", "tp_by=ring", "braid=1",
                                           "tp beyond a node beside cp", "exchange=padded"};

static bool pinned_to(int64_t pin, int64_t value)
{
    return pin < 0 || pin == value;
}

/* What a mask leaves of the pairs of a sequence with itself. */
typedef struct Sight {
    bool causal; /* some node sees no later position, so that shards in a row see unequally much, */
    bool plain;  /* and all that cross the sequence see all earlier ones; */
    bool dealt;  /* no node needs the sequence in its order */
} Sight;

typedef enum { MIX_NONE, MIX_KEEPS, MIX_WHOLE, MIX_COUNT } MixKind;

typedef struct Space {
    Arena *arena, *scratch;
    const Problem *problem;
    const Pins *pins;
    Sight sight;
    unsigned wide;  /* set of WideKind: what is there because it was asked for */
    PinRange *tail; /* per MixKind */
    int near;       /* ranks that cut tokens inside a unit of the fastest link */
    Diag *quiet;    /* in scratch: what cannot be is no error */
    VEC(Pins) list;
} Space;

/* Where rows run alone, and saved values live on the device. */
static bool may_mix(const Pins *pins)
{
    return pins->braid <= 0 && pins->home[KEPT_SAVED] <= MEMORY_HBM;
}

/* As many chunks as the schedule has, each with a link, and micro-batches enough. */
static bool is_possible(const Space *space, const Pins *pins)
{
    const ScheduleInfo *info = &schedule_info[schedule_by_name(pins->schedule)];
    const Problem *problem = space->problem;
    int chunks = pins_chunks(pins);
    int64_t micros = problem->job.global_batch / (pins->micro_batch * pins->dp);
    Pins divided = *pins;
    if (pins_mix(pins) && !may_mix(pins))
        return false;
    divided.ranges = space->pins->ranges;
    divided.range = space->pins->range;
    if (divided.ranges > 0 && !parts_possible(problem, &divided))
        return false;
    if (pins->braid > 0 && !info->braids)
        return false;
    if (pins->home[KEPT_GRADIENTS] > MEMORY_HBM &&
        (pins->braid > 0 || (info->flows && space->pins->home[KEPT_GRADIENTS] < 0)))
        return false;
    if (pins->table)
        return pins->table->stages == pins->pp && pins->table->micros == micros &&
               chunks <= problem->net->chain.n;
    return pins->chunks >= info->least && pins->chunks <= info->most && chunks <= MAX_CHUNKS &&
           chunks <= problem->net->chain.n && micros >= info->cover * pins->pp &&
           (info->micros_most == 0 || micros <= info->micros_most) &&
           (pins->cuts == 0 || pins->cuts == chunks);
}

bool pins_split(const Pins *pins)
{
    return pins->table ? schedule_splits(pins->table)
                       : schedule_info[schedule_by_name(pins->schedule)].splits;
}

bool pins_flow(const Pins *pins)
{
    return schedule_info[schedule_by_name(pins->schedule)].flows;
}

bool pins_few_cuts(const Pins *pins)
{
    return !pins_plain(pins) || pins->cuts > 0;
}

bool pins_plain(const Pins *pins)
{
    return pins_chunks(pins) == pins->pp && !pins_split(pins) && !pins_flow(pins) &&
           pins->braid <= 0;
}

static void add_schedule(Space *space, Pins *pins)
{
    bool braids = space->wide >> WIDE_BRAID & 1 && pins->pp > 1 &&
                  schedule_info[schedule_by_name(pins->schedule)].braids;
    for (int braid = 0; braid <= braids; braid++) {
        Pins own = *pins;
        own.braid = braids ? braid : space->pins->braid;
        if (is_possible(space, &own))
            vec_push(space->arena, &space->list) = own;
    }
}

/* Unpinned: the first where a stage is all there is, the first five with one chunk of a stage, or
 * two where a schedule needs as many; in a wide space the one made to overlap rows too. */
static void add_schedules(Space *space, Pins *pins)
{
    static const ScheduleKind order[] = {SCHEDULE_1F1B, SCHEDULE_GPIPE,       SCHEDULE_ZBH1,
                                         SCHEDULE_ZBV,  SCHEDULE_INTERLEAVED, SCHEDULE_DUALPIPEV,
                                         SCHEDULE_2BW,  SCHEDULE_PIPEDREAM,   SCHEDULE_TABLE};
    for (int i = 0; i < (int)(sizeof order / sizeof *order); i++) {
        const char *text = schedule_text[order[i]];
        bool wanted = space->pins->schedule ? str_eq(space->pins->schedule, text)
                                            : i < SEARCHED + (int)(space->wide >> WIDE_BRAID & 1) &&
                                                  (pins->pp > 1 || i == 0);
        Pins own = *pins;
        own.schedule = text;
        own.chunks = space->pins->chunks > 0 ? space->pins->chunks : schedule_info[order[i]].least;
        if (wanted)
            add_schedule(space, &own);
    }
}

/* Micro-batches from large to small: fewer launches first. */
static void add_micro_batches(Space *space, Pins *pins)
{
    int64_t own = space->problem->job.global_batch / pins->dp;
    int64_t pin = space->pins->micro_batch;
    for (int64_t mbs = pin > MAX_MICRO_BATCH ? pin : MAX_MICRO_BATCH; mbs >= 1; mbs--)
        if (own % mbs == 0 && own / mbs <= MAX_MICROS && (pin <= 0 || pin == mbs)) {
            pins->micro_batch = mbs;
            add_schedules(space, pins);
        }
}

/* Room as pinned. Who pins ranks alone wants no run that stops: room for all that can come. Else
 * what the job's imbalance asks: more room takes as long and more bytes, so plans with room for all
 * that can come are never better. */
static void add_rooms(Space *space, Pins *pins)
{
    const Pins *given = space->pins;
    int room = given->room >= 0 ? given->room
               : given->ep > 0  ? 0
                                : problem_imbalance(space->problem);
    /* What there is no room for may come in rounds, whose nodes make tables of blocks large: where
     * no block is cut. */
    bool free = given->rounds < 0 && room == 0 && pins->ep > 1 && pins->tp * pins->cp == 1;
    for (int rounds = 1; rounds <= (free ? SEARCHED_ROUNDS : 1); rounds *= 2) {
        pins->rounds = given->rounds > 1 ? given->rounds : rounds;
        bool parts = pins->rounds > 1 && pins->ep > 1 && given->room <= 0;
        pins->room = pins->ep <= 1 ? 0 : parts ? pins_rounds_room(space->problem, pins) : room;
        if (rounds == 1 || experts_fit(space->quiet, space->problem, pins))
            add_micro_batches(space, pins);
    }
}

/* Messages of rows have the size that a pin says, else their own; in a wide space that of their
 * bound as well. */
static void add_exchanges(Space *space, Pins *pins)
{
    const Pins *given = space->pins;
    bool both = space->wide >> WIDE_PADDED & 1 && pins->ep > 1;
    for (int exchange = EXCHANGE_EXACT; exchange <= (both ? EXCHANGE_PADDED : EXCHANGE_EXACT);
         exchange++) {
        pins->exchange = given->exchange >= 0 ? given->exchange : exchange;
        pins->rounds = given->rounds;
        pins->room = given->room;
        if (experts_fit(space->quiet, space->problem, pins))
            add_rooms(space, pins);
    }
}

/* Numbers of ranks that may share the experts of a layer, which as many cut. */
static void add_shared(Space *space, Pins *pins)
{
    const Problem *problem = space->problem;
    int apart = pins->dp * pins->cp * (pins->etp < pins->tp ? pins->tp / pins->etp : 1);
    int most = space->pins->ep > 0 ? space->pins->ep : problem->routed ? apart : 1;
    for (int ep = space->pins->ep > 0 ? most : 1; ep <= most && ep <= apart; ep++) {
        pins->ep = ep;
        if (apart % ep == 0)
            add_exchanges(space, pins);
    }
}

/* Where a model has experts, the ranks of tp cut them; in a wide space they share them instead, or
 * each has them all. */
static void add_experts(Space *space, Pins *pins)
{
    int pin = space->pins->etp;
    pins->etp = pin > 0 ? pin : pins->tp;
    add_shared(space, pins);
    if (pins->tp == 1 || !(space->wide >> WIDE_ETP & 1))
        return;
    pins->etp = 1;
    add_shared(space, pins);
}

/* Weights leave the device after state, where each rank takes home what it has stepped. */
static bool weights_may(const Pins *pins)
{
    return pins->dp * pins->cp == 1 || pins->zero == 0 ||
           (pins->zero == 3 && pins->shard <= SHARD_NODE);
}

/* Homes in other memories: what a pin says, else the device's and those that the problem allows,
 * one memory for all that leaves the device. */
static void add_homes(Space *space, Pins *pins)
{
    const Problem *problem = space->problem;
    for (int far = MEMORY_HBM; far < MEMORY_COUNT; far++) {
        bool allowed = far <= (int)problem->offload && problem->cluster->store[far].bytes > 0;
        for (int set = 0; set < 1 << KEPT_COUNT; set++) {
            bool good = far == MEMORY_HBM ? set == 0 : set != 0;
            for (int k = 0; k < KEPT_COUNT; k++) {
                int pin = space->pins->home[k];
                bool away = set >> k & 1;
                pins->home[k] = pin >= 0 ? pin : away ? far : MEMORY_HBM;
                good = good && (!away || (pin < 0 && allowed));
            }
            if (set >> KEPT_WEIGHTS & 1)
                good = good && set >> KEPT_STATE & 1 && weights_may(pins);
            if (set >> KEPT_GRADIENTS & 1) /* they leave last, where no step is of whole matrices */
                good = good && set + 1 == 1 << KEPT_COUNT && problem->job.muon.steps == 0;
            if (good)
                add_experts(space, pins);
        }
    }
}

/* Homes are cut over all ranks that cut tokens, or over those inside a unit of the fastest link,
 * where these are some and not all. */
static void add_shards(Space *space, Pins *pins)
{
    const Pins *given = space->pins;
    bool differ = pins->zero > 0 && space->near > 1 && space->near < pins->dp * pins->cp;
    for (int shard = SHARD_ALL; shard <= SHARD_NODE; shard++) {
        pins->shard = given->shard >= 0 ? given->shard : shard;
        if (shard == SHARD_ALL || (differ && given->shard < 0))
            add_homes(space, pins);
    }
}

/* What the last layers of stages may have otherwise, where there is room: they keep what the others
 * make again, or have whole what those cut beyond the state. */
static bool set_tail(Space *space, MixKind mix, Pins *pins)
{
    const Pins *given = space->pins;
    pins->ranges = mix == MIX_NONE ? given->ranges : 1;
    pins->range = mix == MIX_NONE ? given->range : &space->tail[mix];
    if (mix == MIX_NONE)
        return true;
    bool open = mix == MIX_KEEPS ? pins->recompute == 1 && given->recompute < 0
                                 : pins->zero > 1 && given->zero < 0 && space->problem->refine;
    return open && !pins_divide(given);
}

/* Products gather a sequence that is on tp; in a wide space its blocks may pass by them too. */
static void add_passing(Space *space, Pins *pins)
{
    pins->tp_by = space->pins->tp_by;
    add_shards(space, pins);
    if (pins->sp != 1 || pins->tp == 1 || !(space->wide >> WIDE_PASSING & 1))
        return;
    pins->tp_by = CROSS_RING;
    add_shards(space, pins);
}

/* Choices that change nothing (state over one rank, a sequence over one) are in the space once. */
static void add_rules(Space *space, Pins *pins)
{
    enum { RECOMPUTE = 2, SP = 2, ZERO = 4 };
    for (int i = 0; i < MIX_COUNT * RECOMPUTE * SP * ZERO; i++) {
        int zero = i % ZERO, sp = i / ZERO % SP, recompute = i / (ZERO * SP) % RECOMPUTE;
        bool idle = (sp && pins->tp == 1 && space->pins->sp != 1) ||
                    (zero && pins->dp * pins->cp == 1 && space->pins->zero != zero);
        pins->recompute = recompute;
        pins->sp = sp;
        pins->zero = zero;
        if (!idle && pinned_to(space->pins->recompute, recompute) &&
            pinned_to(space->pins->sp, sp) && pinned_to(space->pins->zero, zero) &&
            set_tail(space, (MixKind)(i / (ZERO * SP * RECOMPUTE)), pins))
            add_passing(space, pins);
    }
}

/* A short sequence is cut over cp ranks only where a pin says so: what the blocks win by it, more
 * micro-batches or tp win without the exchange. Ranks of cp send less than those of tp: where a
 * layer leaves the fastest domain with both, its tp stays inside, but in a wide space. */
static bool cp_wanted(const Space *space, const Pins *pins, int cp)
{
    int64_t sequence = space->problem->job.sequence;
    if (space->pins->cp > 0)
        return space->pins->cp == cp;
    return cp == 1 ||
           (sequence >= LONG_SEQUENCE && sequence % cp == 0 &&
            (space->wide >> WIDE_CROSS & 1 || pins->tp <= space->problem->cluster->level[0].width));
}

/* Of ranks of these degrees. */
static int near_ranks(Space *space, const Pins *pins)
{
    Mesh mesh;
    Pins own = *pins;
    own.ep = 1;
    own.etp = pins->tp;
    Spread spread = spread_of_pins(&own);
    Degrees degrees = spread_degrees(&spread, pins->dp, 1, space->problem->net);
    if (!mesh_build(space->quiet, space->problem->cluster, &degrees, &mesh))
        return 1;
    return mesh_extent(&mesh, homes_preset(&mesh, 1, SHARD_NODE).state);
}

static void add_meeting(Space *space, Pins *pins, int order, int by, int heads)
{
    const Pins *given = space->pins;
    pins->order = order;
    pins->cp_by = by;
    pins->cp_heads = heads > 1 ? heads : -1;
    if (pinned_to(given->order, order) && (given->cp_by < 0 || given->cp_by == by) &&
        sequence_fits(space->quiet, space->problem, pins))
        add_rules(space, pins);
}

/* How cp ranks meet where positions do. As many of them as `heads` exchange heads, the others pass
 * blocks by or gather them, whatever is better; without a pin all may exchange heads too. Where a
 * mask hides what comes later the others have the sequence in a zigzag: in a row the last one waits
 * for nobody and everybody for it. Only a mask that hides what is far away too may be worth the
 * row. Who pins what the others do says nothing of heads. */
static void add_meetings(Space *space, Pins *pins)
{
    const Pins *given = space->pins;
    const Sight *sight = &space->sight;
    int cp = pins->cp, by = given->cp_by;
    space->near = near_ranks(space, pins);
    if (cp == 1) {
        add_rules(space, pins);
        return;
    }
    bool deals = sight->causal && sight->dealt;
    if (deals && sight->plain && given->cp_heads <= 1)
        add_meeting(space, pins, ORDER_IDENTITY, CROSS_HEADS, 1);
    for (int heads = 1; heads < cp || heads == given->cp_heads; heads++) {
        bool said = given->cp_heads > 0 || by >= 0;
        if (cp % heads != 0 || (said && heads != (given->cp_heads > 1 ? given->cp_heads : 1)))
            continue;
        bool zigzag = deals && heads < cp && space->problem->job.sequence % (2 * (cp / heads)) == 0;
        if (!zigzag || !sight->plain || given->order == ORDER_IDENTITY)
            add_meeting(space, pins, ORDER_IDENTITY, by, heads);
        if (zigzag && by != CROSS_HEADS)
            add_meeting(space, pins, ORDER_ZIGZAG, by, heads);
    }
}

static void add_contexts(Space *space, Pins *pins, int ranks)
{
    for (int cp = 1; cp <= ranks; cp++) {
        int dp = ranks / cp;
        if (ranks % cp != 0 || !cp_wanted(space, pins, cp) || !pinned_to(space->pins->dp, dp) ||
            space->problem->job.global_batch % dp != 0)
            continue;
        pins->cp = cp;
        pins->dp = dp;
        add_meetings(space, pins);
    }
}

static Sight sight_of(const Net *net)
{
    Sight sight = {.plain = true, .dealt = true};
    for (int c = 0; c < net->classes.n; c++)
        for (int n = 0; n < net->classes.at[c]->nodes.n; n++) {
            const Node *node = &net->classes.at[c]->nodes.at[n];
            const Attr_attention *mask = &node->attrs.attention;
            sight.dealt &= !node_needs_order(net, node);
            if (!node_crosses(net, node) || op_info[node->op].attrs != ATTRS_attention)
                continue;
            sight.causal |= mask->causal;
            sight.plain &= mask->causal && mask->window == 0 && mask->chunk == 0;
        }
    return sight;
}

/* As many ranks share a layer as it has attention heads; without attention, as the widest parameter
 * has columns. */
static int most_tp(const Net *net)
{
    int64_t heads = 0, columns = 1;
    for (int c = 0; c < net->classes.n; c++) {
        const Graph *graph = net->classes.at[c];
        for (int n = 0; n < graph->nodes.n; n++) {
            const Node *node = &graph->nodes.at[n];
            if (op_info[node->op].form != FORM_attention)
                continue;
            const Value *query = &graph->values.at[node->in[0]];
            int64_t own = 1;
            for (int a = 2; a + 1 < query->axes; a++)
                own *= net->dims.at[query->dim[a]].extent;
            heads = own > heads ? own : heads;
        }
        for (int p = 0; p < graph->params.n; p++) {
            const Value *param = &graph->values.at[graph->params.at[p].value];
            for (int a = 0; a < param->axes; a++)
                if (net->dims.at[param->dim[a]].extent > columns)
                    columns = net->dims.at[param->dim[a]].extent;
        }
    }
    int64_t most = heads ? heads : columns;
    return most < MAX_TP ? (int)most : MAX_TP;
}

/* All layers, and every stage a link. */
static bool cuts_possible(const Problem *problem, const Pins *pins)
{
    int layers = 0;
    for (int i = 0; i < pins->cuts; i++) {
        layers += pins->cut[i];
        if (pins->cut[i] == 0 && i > 0 && i + 1 < pins->cuts)
            return false;
    }
    return pins->cuts == 0 || layers == problem->net->chain.n - 2;
}

unsigned wide_choices(const Problem *problem, const Pins *pins)
{
    bool long_enough = problem->job.sequence >= LONG_SEQUENCE;
    bool open[WIDE_COUNT] = {
        [WIDE_ETP] = problem->routed && pins->etp <= 0 && pins->tp != 1,
        [WIDE_PASSING] = pins->tp_by < 0 && pins->tp != 1 && pins->sp != 0,
        [WIDE_BRAID] = pins->braid < 0 && pins->pp != 1 && problem->ranks > 1 &&
                       (!pins->schedule || schedule_info[schedule_by_name(pins->schedule)].braids),
        [WIDE_CROSS] = long_enough && pins->cp < 0 && pins->tp != 1,
        [WIDE_PADDED] = problem->routed && pins->exchange < 0 && pins->ep != 1 &&
                        problem->cluster->device.host_wait_ns > 0,
    };
    unsigned set = 0;
    for (int kind = 0; kind < WIDE_COUNT; kind++)
        set |= open[kind] && problem->ranks > 1 ? 1u << kind : 0;
    return set;
}

int search_space(const Problem *problem, const Pins *pins, Arena *arena, Pins **ret)
{
    Arena *scratch = arena_new("space");
    Space space = {.arena = arena,
                   .scratch = scratch,
                   .problem = problem,
                   .pins = pins,
                   .sight = sight_of(problem->net),
                   .wide = problem->wide ? wide_choices(problem, pins) : 0,
                   .quiet = diag_new(scratch)};
    space.tail = ARENA_ARRAY(arena, PinRange, MIX_COUNT);
    for (int mix = 0; mix < MIX_COUNT; mix++)
        space.tail[mix] = (PinRange){RANGE_TAIL, RANGE_TAIL, pins_none()};
    space.tail[MIX_KEEPS].pins.recompute = 0;
    space.tail[MIX_KEEPS].pins.block = pins->block;
    space.tail[MIX_WHOLE].pins.zero = 1;
    int most = problem->net->chain.n; /* links: the ends of the chain may be stages of their own */
    int widest = pins->tp > 0 ? pins->tp : most_tp(problem->net);
    int each = pins->chunks > 0 ? pins->chunks
               : pins->schedule ? schedule_info[schedule_by_name(pins->schedule)].least
                                : 1;
    int stages = pins->cuts && !pins->table ? pins->cuts / each : pins->pp;
    for (int pp = 1; pp <= MAX_STAGES && pp <= most; pp++) {
        if (!cuts_possible(problem, pins) || problem->ranks % pp != 0 || !pinned_to(stages, pp) ||
            !pinned_to(pins->pp, pp))
            continue;
        int ranks = problem->ranks / pp;
        for (int tp = 1; tp <= ranks && tp <= widest; tp++) {
            Pins family = *pins;
            if (ranks % tp != 0 || !pinned_to(pins->tp, tp))
                continue;
            family.tp = tp;
            family.pp = pp;
            add_contexts(&space, &family, ranks / tp);
        }
    }
    arena_free(scratch);
    *ret = space.list.at;
    return space.list.n;
}
