/* search_space.c - the declared space, and what can be said of a family before any block is solved.
 */
#include "planner/search_in.h"

#include "planner/contradict.h"

/* ---- the space ---- */

enum { MAX_MICRO_BATCH = 32, MAX_MICROS = 1 << 15, MAX_TP = 1024 };

static bool pinned_to(int64_t pin, int64_t value)
{
    return pin < 0 || pin == value;
}

typedef struct Space {
    Arena *arena;
    const Problem *problem;
    const Pins *pins;
    VEC(Pins) list;
} Space;

/* As many chunks as the schedule has, each with a link, and micro-batches enough. */
static bool is_possible(const Space *space, const Pins *pins)
{
    const ScheduleInfo *info = &schedule_info[schedule_by_name(pins->schedule)];
    const Problem *problem = space->problem;
    int chunks = pins_chunks(pins);
    int64_t micros = problem->job.global_batch / (pins->micro_batch * pins->dp);
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

bool pins_plain(const Pins *pins)
{
    return pins_chunks(pins) == pins->pp && !pins_split(pins) &&
           !schedule_info[schedule_by_name(pins->schedule)].flows;
}

static void add_schedules(Space *space, Pins *pins)
{
    static const ScheduleKind order[] = {SCHEDULE_1F1B, SCHEDULE_GPIPE,     SCHEDULE_ZBH1,
                                         SCHEDULE_ZBV,  SCHEDULE_DUALPIPEV, SCHEDULE_INTERLEAVED,
                                         SCHEDULE_2BW,  SCHEDULE_PIPEDREAM, SCHEDULE_TABLE};
    for (int i = 0; i < (int)(sizeof order / sizeof *order); i++) {
        const char *text = schedule_text[order[i]];
        bool wanted = space->pins->schedule ? str_eq(space->pins->schedule, text)
                                            : i < 2 && (pins->pp > 1 || i == 0);
        Pins own = *pins;
        own.schedule = text;
        own.chunks = space->pins->chunks > 0 ? space->pins->chunks : schedule_info[order[i]].least;
        if (wanted && is_possible(space, &own))
            vec_push(space->arena, &space->list) = own;
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

/* Numbers of ranks that may share the experts of a layer. */
static void add_experts(Space *space, Pins *pins)
{
    const Problem *problem = space->problem;
    Diag *quiet = diag_new(space->arena);
    for (int ep = 1; ep <= pins->dp; ep++) {
        pins->ep = ep;
        bool wanted = ep == (space->pins->ep > 0 ? space->pins->ep : 1);
        if (!wanted || !experts_fit(quiet, problem, pins))
            continue;
        pins->room = ep > 1 && space->pins->room > 0 ? space->pins->room : 0;
        add_micro_batches(space, pins);
    }
}

/* Choices that change nothing (state over one rank, a sequence over one) are in the space once. */
static void add_rules(Space *space, Pins *pins)
{
    for (int recompute = 0; recompute < 2; recompute++)
        for (int sp = 0; sp < 2; sp++)
            for (int zero = 0; zero < 4; zero++) {
                bool idle = (sp && pins->tp == 1 && space->pins->sp != 1) ||
                            (zero && pins->dp * pins->cp == 1 && space->pins->zero != zero) ||
                            (zero > 1 && space->pins->zero != zero);
                if (idle || !pinned_to(space->pins->recompute, recompute) ||
                    !pinned_to(space->pins->sp, sp) || !pinned_to(space->pins->zero, zero))
                    continue;
                pins->recompute = recompute;
                pins->sp = sp;
                pins->zero = zero;
                add_experts(space, pins);
            }
}

/* Sequences shorter than this are cut over cp ranks only where a pin says so: what the blocks win
 * by it, more micro-batches or tp win without the exchange. */
enum { LONG_SEQUENCE = 16384 };

static bool cp_wanted(const Space *space, int cp)
{
    int64_t sequence = space->problem->job.sequence;
    if (space->pins->cp > 0)
        return space->pins->cp == cp;
    return cp == 1 || (sequence >= LONG_SEQUENCE && sequence % cp == 0);
}

static void add_contexts(Space *space, Pins *pins, int ranks)
{
    for (int cp = 1; cp <= ranks; cp++) {
        int dp = ranks / cp;
        if (ranks % cp != 0 || !cp_wanted(space, cp) || !pinned_to(space->pins->dp, dp) ||
            space->problem->job.global_batch % dp != 0)
            continue;
        pins->cp = cp;
        pins->dp = dp;
        add_rules(space, pins);
    }
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

int search_space(const Problem *problem, const Pins *pins, Arena *arena, Pins **ret)
{
    Space space = {arena, problem, pins, {0}};
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
    *ret = space.list.at;
    return space.list.n;
}

/* ---- work ---- */

static bool wide_param(const Graph *graph, ValueId id)
{
    const Value *value = &graph->values.at[id];
    return value->kind == VALUE_PARAM && value->axes >= 2;
}

static bool wide_gradient(const Graph *graph, ValueId id)
{
    for (int p = 0; p < graph->params.n; p++)
        if (graph->params.at[p].grad == id && wide_param(graph, graph->params.at[p].value))
            return true;
    return false;
}

/* Products that stay a kernel of their own whatever fuses. */
static bool is_work(const Graph *graph, const Node *node)
{
    Form form = op_info[node->op].form;
    if (form == FORM_attention || form == FORM_attention_grad)
        return true;
    if (form != FORM_gemm)
        return false;
    for (int k = 0; k < node->ins; k++)
        if (wide_param(graph, node->in[k]))
            return true;
    return wide_gradient(graph, node->out[0]);
}

/* Values that backward needs when nothing but the chain's input is kept. */
static bool *needed_again(Arena *arena, const Graph *graph)
{
    bool *needed = ARENA_ARRAY(arena, bool, graph->values.n);
    for (int n = graph->nodes.n - 1; n >= 0; n--) {
        const Node *node = &graph->nodes.at[n];
        bool runs = node->seg == SEG_BACKWARD;
        for (int k = 0; k < node->outs; k++)
            runs |= needed[node->out[k]];
        for (int k = 0; runs && k < node->ins; k++)
            needed[node->in[k]] = true;
    }
    return needed;
}

/* What backward reads of forward. Pointwise values of one operand and constants may be made again
 * by their readers. */
static int64_t kept_elements(const Net *net, const Graph *graph)
{
    int64_t elements = 0;
    for (int v = 0; v < graph->values.n; v++) {
        const Value *value = &graph->values.at[v];
        if (value->kind != VALUE_NODE)
            continue;
        const Node *maker = &graph->nodes.at[value->made];
        if (maker->seg != SEG_FORWARD || maker->ins < 2)
            continue;
        bool read = false;
        for (int n = 0; n < graph->nodes.n; n++)
            for (int k = 0; k < graph->nodes.at[n].ins; k++)
                read |= graph->nodes.at[n].seg == SEG_BACKWARD && graph->nodes.at[n].in[k] == v;
        if (read)
            elements += value_elements(net, value);
    }
    return elements;
}

/* Elements of all parameters that choices name a part of. */
static int64_t named_params(const Net *net)
{
    int64_t elements = 0;
    for (int i = 0; net && i < net->params.n; i++) {
        const Graph *graph = net->classes.at[net->params.at[i].class];
        const Value *value = &graph->values.at[graph->params.at[net->params.at[i].param].value];
        bool named = false;
        for (int d = 0; d < net->dims.n; d++)
            for (int a = 0; a < value->axes && net->dims.at[d].kind == DIM_ROUTED; a++)
                named |= value->dim[a] == net->dims.at[d].among;
        elements += named ? value_elements(net, value) : 0;
    }
    return elements;
}

Work work_of(Arena *arena, const Problem *problem)
{
    const Net *net = problem->net;
    int nodes = 0;
    for (int c = 0; c < net->classes.n; c++)
        nodes += net->classes.at[c]->nodes.n;
    Work work = {.flops = ARENA_ARRAY(arena, int64_t, nodes),
                 .again = ARENA_ARRAY(arena, bool, nodes),
                 .times = ARENA_ARRAY(arena, int, nodes)};
    work.params = net_param_count(net);
    work.expert_params = named_params(problem->routed);
    for (int c = 0; c < net->classes.n; c++) {
        const Graph *graph = net->classes.at[c];
        bool *needed = needed_again(arena, graph);
        int times = 0;
        for (int i = 0; i < net->chain.n; i++)
            times += net->chain.at[i].class == c;
        work.kept += times * kept_elements(net, graph);
        if (graph->chain_in != NONE && needed[graph->chain_in])
            work.inputs += times * value_elements(net, &graph->values.at[graph->chain_in]);
        for (int n = 0; n < graph->nodes.n; n++) {
            const Node *node = &graph->nodes.at[n];
            if (!is_work(graph, node))
                continue;
            work.flops[work.n] = node_flops(net, node);
            work.again[work.n] = node->seg == SEG_FORWARD && needed[node->out[0]];
            work.times[work.n++] = times;
        }
    }
    return work;
}

int64_t work_ns(const Work *work, const Problem *problem, const Pins *pins)
{
    const Device *device = &problem->cluster->device;
    const Recipe *recipe = recipe_by_name(problem->job.recipe);
    int64_t ns = 0;
    for (int i = 0; i < work->n; i++) {
        int64_t flops = work->flops[i] / (pins->tp * pins->cp) * pins->micro_batch;
        int64_t one = price_flops(device, recipe, flops) + device->launch_ns;
        ns += one * work->times[i] * (work->again[i] && pins->recompute == 1 ? 2 : 1);
    }
    return ns;
}

int64_t pipeline_bound(int64_t work, int stages, int64_t micros)
{
    /* a stage before which `done` of a micro-batch's work lies has (span - done) / micros at most
     */
    int64_t low = work, high = work * micros;
    while (low < high) {
        int64_t span = low + (high - low) / 2, done = 0;
        for (int s = 0; s < stages && done < work; s++)
            done += (span - done) / micros;
        if (done >= work)
            high = span;
        else
            low = span + 1;
    }
    return low;
}

static int64_t saved_bound(const Work *work, const Recipe *recipe, const Pins *pins)
{
    int64_t inputs = work->inputs / (pins->sp == 1 ? pins->tp : 1);
    int64_t kept = pins->recompute == 1 ? 0 : work->kept / pins->tp;
    return (inputs + kept) / pins->cp * pins->micro_batch * dtype_bytes(recipe->activation);
}

int64_t memory_bound(const Work *work, const Problem *problem, const Pins *pins)
{
    const Recipe *recipe = recipe_by_name(problem->job.recipe);
    int64_t state = (2 + recipe->has_master) * dtype_bytes(recipe->master);
    int64_t experts = work->expert_params / pins->tp, others = work->params / pins->tp - experts;
    int64_t elements = others + experts / (pins->ep > 1 ? pins->ep : 1);
    int64_t share = pins->zero >= 1 ? pins->dp * pins->cp : 1;
    int64_t shared = share > 1 ? work->params / pins->tp / share : elements;
    int64_t bytes = (pins->zero >= 3 ? shared : elements) * dtype_bytes(recipe->weight) +
                    (pins->zero >= 2 ? shared : elements) * dtype_bytes(recipe->gradient) +
                    shared * state;
    return (bytes + saved_bound(work, recipe, pins)) / pins->pp;
}
