/* search_work.c - what no placement avoids: bounds on time and bytes of a family before any block
 * is solved. */
#include "ir/base/num.h"
#include "ir/lower/body.h"
#include "planner/search_in.h"

/* ---- products ---- */

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
    if (form == FORM_attention || form == FORM_attention_grad || form == FORM_expert ||
        form == FORM_expert_dw)
        return true;
    if (form != FORM_gemm)
        return false;
    for (int k = 0; k < node->ins; k++)
        if (wide_param(graph, node->in[k]))
            return true;
    return wide_gradient(graph, node->out[0]);
}

/* Values that backward nodes, or those of them on the way to the chain's input alone, need when
 * nothing but that input is kept. */
static bool *needed_again(Arena *arena, const Graph *graph, bool inputs)
{
    bool *needed = ARENA_ARRAY(arena, bool, graph->values.n);
    for (int n = graph->nodes.n - 1; n >= 0; n--) {
        const Node *node = &graph->nodes.at[n];
        bool runs = node->seg == SEG_BACKWARD && (!inputs || node->flow == FLOW_INPUT);
        for (int k = 0; k < node->outs; k++)
            runs |= needed[node->out[k]];
        for (int k = 0; runs && k < node->ins; k++)
            needed[node->in[k]] = true;
    }
    return needed;
}

/* What backward reads of forward. Pointwise values of one operand and constants may be made again
 * by their readers. `routed`: of these the rows that go by whom they name, where such a node reads
 * them. */
static int64_t kept_elements(const Net *net, const Graph *graph, const bool *routed)
{
    int64_t elements = 0;
    for (int v = 0; v < graph->values.n; v++) {
        const Value *value = &graph->values.at[v];
        if (value->kind != VALUE_NODE ||
            (routed && (value->number != NUM_FLOAT || value_routed_axis(net, value) == NONE)))
            continue;
        const Node *maker = &graph->nodes.at[value->made];
        if (maker->seg != SEG_FORWARD || maker->ins < 2)
            continue;
        bool read = false;
        for (int n = 0; n < graph->nodes.n; n++)
            for (int k = 0; k < graph->nodes.at[n].ins && (!routed || routed[n]); k++)
                read |= graph->nodes.at[n].seg == SEG_BACKWARD && graph->nodes.at[n].in[k] == v;
        if (read)
            elements += value_elements(net, value);
    }
    return elements;
}

/* Do choices name a part of the value? */
static bool is_named(const Net *net, const Value *value)
{
    bool named = false;
    for (int d = 0; net && d < net->dims.n; d++)
        for (int a = 0; a < value->axes && net->dims.at[d].kind == DIM_ROUTED; a++)
            named |= value->dim[a] == net->dims.at[d].among;
    return named;
}

/* Bytes that pass through memory beside the product: parameters, those of them that choices name,
 * and the rest, for one sequence. */
static void put_bytes(const Net *net, const Net *routed, const Node *node, const Recipe *recipe,
                      WorkProduct *ret)
{
    const Graph *graph = net->classes.at[ret->class];
    for (int k = 0; k < node->ins + node->outs; k++) {
        ValueId id = k < node->ins ? node->in[k] : node->out[k - node->ins];
        const Value *value = &graph->values.at[id];
        int64_t bytes = value_elements(net, value) * dtype_bytes(value_dtype(graph, id, recipe));
        if (value->kind != VALUE_PARAM && !wide_gradient(graph, id))
            ret->moving_bytes += bytes;
        else if (is_named(routed, value))
            ret->named_bytes += bytes;
        else
            ret->param_bytes += bytes;
    }
}

/* Of attention on a whole sequence: ranks share its rows and what each sees. */
static int64_t seen_flops(const Problem *problem, const Net *net, const Node *node)
{
    WholePairs pairs = node_whole_pairs(net, node);
    return attention_flops(&problem->cluster->device, node_flops(net, node), pairs.rows, pairs.seen,
                           pairs.all);
}

static void put_products(Arena *arena, const Problem *problem, int class, WorkForm *form)
{
    const Net *net = form->net;
    const Recipe *recipe = recipe_by_name(problem->job.recipe);
    const Graph *graph = net->classes.at[class];
    bool *needed = needed_again(arena, graph, false), *inputs = needed_again(arena, graph, true);
    for (int n = 0; n < graph->nodes.n; n++) {
        const Node *node = &graph->nodes.at[n];
        if (!is_work(graph, node))
            continue;
        bool forward = node->seg == SEG_FORWARD, crosses = node_crosses(net, node);
        WorkProduct *product = &form->product[form->n++];
        *product = (WorkProduct){
            .flops = crosses ? seen_flops(problem, net, node) : node_flops(net, node),
            .crosses = crosses,
            .class = class,
            .part = forward                    ? PART_F
                    : node->flow == FLOW_INPUT ? PART_I
                                               : PART_W,
            .again = forward && needed[node->out[0]],
            .again_early = forward && inputs[node->out[0]],
        };
        put_bytes(net, problem->routed, node, recipe, product);
    }
}

/* FLOPs of the products in the step of a parameter; a stack of matrices takes that of one each. */
static int64_t step_flops(const Problem *problem, const Net *net, const Graph *graph, int param)
{
    MatrixShape shape;
    int64_t flops = 0;
    if (problem->job.muon.steps == 0 || !param_is_matrix(graph, param, &shape))
        return 0;
    Arena *scratch = arena_new("step");
    const Graph *step = matrix_step(scratch, net, graph, param, &problem->job.muon);
    for (int n = 0; n < step->nodes.n; n++)
        if (op_info[step->nodes.at[n].op].form == FORM_gemm)
            flops += node_flops(step->net, &step->nodes.at[n]);
    const Value *value = &graph->values.at[graph->params.at[param].value];
    for (int a = 0; a < shape.stack; a++)
        flops *= net->dims.at[value->dim[a]].extent;
    arena_free(scratch);
    return flops;
}

static void put_steps(Arena *arena, const Problem *problem, WorkForm *form)
{
    const Net *net = form->net;
    int64_t **known = ARENA_ARRAY(arena, int64_t *, net->classes.n + 1);
    for (int i = 0; i < net->params.n; i++) {
        const NetParam *param = &net->params.at[i];
        const Graph *graph = net->classes.at[param->class];
        if (!known[param->class]) {
            known[param->class] = ARENA_ARRAY(arena, int64_t, graph->params.n + 1);
            for (int k = 0; k < graph->params.n; k++)
                known[param->class][k] = step_flops(problem, net, graph, k);
        }
        bool named =
            is_named(problem->routed, &graph->values.at[graph->params.at[param->param].value]);
        WorkLink *link = &form->link[param->link[0]];
        *(named ? &link->named_step_flops : &link->step_flops) += known[param->class][param->param];
    }
}

static WorkForm form_of(Arena *arena, const Problem *problem, const Net *net)
{
    int nodes = 0, links = net->chain.n;
    for (int c = 0; c < net->classes.n; c++)
        nodes += net->classes.at[c]->nodes.n;
    WorkForm form = {.net = net,
                     .product = ARENA_ARRAY(arena, WorkProduct, nodes + 1),
                     .link = ARENA_ARRAY(arena, WorkLink, links + 1)};
    for (int c = 0; c < net->classes.n; c++) {
        const Graph *graph = net->classes.at[c];
        bool *needed = needed_again(arena, graph, false);
        WorkLink link = {.kept = kept_elements(net, graph, NULL),
                         .rows = kept_elements(net, graph, graph_routed_nodes(arena, graph))};
        if (graph->chain_in != NONE && needed[graph->chain_in])
            link.inputs = value_elements(net, &graph->values.at[graph->chain_in]);
        for (int i = 0; i < links; i++)
            if (net->chain.at[i].class == c)
                form.link[i] = link;
        put_products(arena, problem, c, &form);
    }
    for (int i = 0; i < net->params.n; i++) {
        const NetParam *param = &net->params.at[i];
        const Graph *graph = net->classes.at[param->class];
        const Value *value = &graph->values.at[graph->params.at[param->param].value];
        WorkLink *link = &form.link[param->link[0]];
        *(is_named(problem->routed, value) ? &link->named : &link->params) +=
            value_elements(net, value);
    }
    put_steps(arena, problem, &form);
    for (int i = 0; i < links; i++) {
        form.all.step_flops += form.link[i].step_flops;
        form.all.named_step_flops += form.link[i].named_step_flops;
        form.all.kept += form.link[i].kept;
        form.all.rows += form.link[i].rows;
        form.all.inputs += form.link[i].inputs;
        form.all.params += form.link[i].params;
        form.all.named += form.link[i].named;
    }
    return form;
}

Work work_of(Arena *arena, const Problem *problem)
{
    Work work = {.form = {form_of(arena, problem, problem->net)}};
    if (problem->routed)
        work.form[1] = form_of(arena, problem, problem->routed);
    return work;
}

static const WorkForm *form_for(const Work *work, const Pins *pins)
{
    return &work->form[pins_routed(pins)];
}

/* Ranks that have different parts of the experts. */
static int64_t expert_ranks(const Pins *pins)
{
    int64_t each = pins->etp > 0 ? pins->etp : pins->tp;
    return each * (pins->ep > 1 ? pins->ep : 1);
}

enum { MAX_CLASSES = 64 };

/* Of each class, ns of a micro-batch in each part; of B what is neither surely in I nor in W. */
static void class_times(const WorkForm *form, const Problem *problem, const Pins *pins,
                        int64_t (*ret)[PART_COUNT])
{
    const Device *device = &problem->cluster->device;
    const Recipe *recipe = recipe_by_name(problem->job.recipe);
    for (int i = 0; i < form->n; i++) {
        const WorkProduct *product = &form->product[i];
        int64_t flops = product->flops / (pins->tp * pins->cp) * pins->micro_batch;
        int64_t bytes = product->moving_bytes / (pins->tp * pins->cp) * pins->micro_batch +
                        product->param_bytes / pins->tp + product->named_bytes / expert_ranks(pins);
        int64_t compute = product->crosses ? price_attention(device, recipe->activation, flops)
                                           : price_flops(device, recipe->activation, flops);
        int64_t one = num_larger(compute, price_stream(device, bytes)) + device->launch_ns;
        if (product->class >= MAX_CLASSES)
            continue;
        ret[product->class][product->part] += one;
        if (product->again && pins->recompute == 1)
            ret[product->class][product->again_early ? PART_I : PART_B] += one;
    }
}

int64_t work_ns(const Work *work, const Problem *problem, const Pins *pins)
{
    const WorkForm *form = form_for(work, pins);
    int64_t time[MAX_CLASSES][PART_COUNT] = {{0}}, ns = 0;
    class_times(form, problem, pins, time);
    for (int i = 0; i < form->net->chain.n; i++)
        for (int part = 0; part < PART_COUNT && form->net->chain.at[i].class < MAX_CLASSES; part++)
            ns += time[form->net->chain.at[i].class][part];
    return ns;
}

void work_rows(const Work *work, const Problem *problem, const Pins *pins, const int *first_link,
               OrderTimes *ret)
{
    const WorkForm *form = form_for(work, pins);
    int64_t time[MAX_CLASSES][PART_COUNT] = {{0}};
    class_times(form, problem, pins, time);
    *ret = (OrderTimes){.hop_forward = {0}};
    for (int c = 0; c < pins_chunks(pins); c++)
        for (int i = first_link[c]; i < first_link[c + 1]; i++) {
            int class = form->net->chain.at[i].class;
            if (class >= MAX_CLASSES)
                continue;
            ret->time[PART_F][c] += time[class][PART_F];
            ret->time[PART_I][c] += time[class][PART_I];
            ret->time[PART_W][c] += time[class][PART_W];
            ret->time[PART_B][c] += time[class][PART_I] + time[class][PART_W] + time[class][PART_B];
        }
    order_least_pairs(pins_chunks(pins), ret);
}

int64_t work_update_ns(const Work *work, const Problem *problem, const Pins *pins)
{
    const WorkLink *all = &form_for(work, pins)->all;
    /* whole matrices are dealt to all ranks at best, and where state is not cut to none */
    int64_t flops =
        pins->zero > 0
            ? (all->step_flops + all->named_step_flops) / problem->ranks
            : (all->step_flops / pins->tp + all->named_step_flops / expert_ranks(pins)) / pins->pp;
    return price_flops(&problem->cluster->device, recipe_by_name(problem->job.recipe)->gradient,
                       flops);
}

void work_sums(const Work *work, const Problem *problem, const Pins *pins, LinkSum *ret)
{
    const WorkForm *form = form_for(work, pins);
    int64_t time[MAX_CLASSES][PART_COUNT] = {{0}};
    class_times(form, problem, pins, time);
    for (int i = 0; i < form->net->chain.n; i++) {
        int class = form->net->chain.at[i].class;
        ret[i + 1] = ret[i];
        for (int part = 0; part < PART_COUNT && class < MAX_CLASSES; part++) {
            int64_t more = part == PART_B ? time[class][PART_I] + time[class][PART_W] : 0;
            ret[i + 1].ns[part] += time[class][part] + more;
        }
    }
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

/* Room for rows where their choices name, in thousandths of an even share. */
static int64_t room_permille(const Net *net, const Pins *pins)
{
    int64_t least = INT64_MAX;
    Net own = {.room_percent = pins->room > 0 ? pins->room : 0,
               .exchange = pins->exchange == EXCHANGE_PADDED ? EXCHANGE_PADDED : EXCHANGE_EXACT};
    for (int d = 0; d < net->dims.n; d++) {
        const Dim *dim = &net->dims.at[d];
        if (dim->kind != DIM_ROUTED)
            continue;
        /* of as many tokens as leave no remainder */
        int64_t tokens = 1000 * (int64_t)pins->ep;
        int64_t room =
            route_room(&own, tokens, dim->extent, net->dims.at[dim->among].extent, pins->ep);
        int64_t permille = room / dim->extent;
        least = permille < least ? permille : least;
    }
    return least == INT64_MAX ? 1000 : least;
}

/* Of some links: weights, gradients and optimizer state of a rank, and what a micro-batch keeps. */
static void link_bytes(const WorkForm *form, const WorkLink *link, const Problem *problem,
                       const Pins *pins, int64_t *ret_static, int64_t *ret_saved)
{
    const Recipe *recipe = recipe_by_name(problem->job.recipe);
    /* a matrix that is stepped whole has one moment, other parameters two */
    int moments = problem->job.muon.steps ? 1 : 2;
    int64_t state = (moments + recipe->has_master) * dtype_bytes(recipe->master);
    if (pins->home[KEPT_STATE] > MEMORY_HBM)
        state = 0; /* it passes through slots, which only a lowered stage knows */
    int ep = pins->ep > 1 ? pins->ep : 1;
    int64_t share = pins->zero >= 1 ? pins->dp * pins->cp : 1, named = pins->tp;
    if (pins->shard == SHARD_NODE) { /* at most those that are left of a unit */
        int64_t near = problem->cluster->level[0].width / pins->tp;
        share = share < near ? share : near > 1 ? near : 1;
        named = expert_ranks(pins);
    }
    int64_t elements = link->params / pins->tp + link->named / expert_ranks(pins);
    int64_t shared = share > 1 ? (link->params / pins->tp + link->named / named) / share : elements;
    int64_t weights = pins->zero >= 3 ? shared : elements,
            gradients = pins->zero >= 2 ? shared : elements;
    int64_t inputs = link->inputs / (pins->sp == 1 ? pins->tp : 1), kept = 0;
    if (pins->recompute != 1)
        kept = (link->kept - link->rows) / pins->tp +
               link->rows / pins->tp / 1000 * (ep > 1 ? room_permille(form->net, pins) : 1000);
    if (pins->home[KEPT_WEIGHTS] > MEMORY_HBM)
        weights = 0;
    if (pins->home[KEPT_GRADIENTS] > MEMORY_HBM)
        gradients = 0;
    *ret_static = weights * dtype_bytes(recipe->weight) +
                  gradients * dtype_bytes(recipe->gradient) + shared * state;
    *ret_saved = (inputs + kept) / pins->cp * pins->micro_batch * dtype_bytes(recipe->activation);
    if (pins->home[KEPT_SAVED] > MEMORY_HBM)
        *ret_saved = 0; /* the same */
}

int64_t memory_bound(const Work *work, const Problem *problem, const Pins *pins)
{
    const WorkForm *form = form_for(work, pins);
    int64_t fixed, saved;
    link_bytes(form, &form->all, problem, pins, &fixed, &saved);
    return (fixed + saved) / pins->pp;
}

int64_t order_slots(const Order *order, int chunk)
{
    int64_t inputs = order->slots[RING_SAVED][chunk], weights = order->slots[RING_SAVED_W][chunk];
    return inputs < weights ? inputs : weights;
}

/* A stage that holds W of static bytes and keeps A of a micro-batch in each of n slots has
 * W + n A <= budget; so A <= budget / n - W / n, and all stages together keep no more than the sum
 * of these, in which each W counts with the most slots. */
static bool any_cuts_fit(const Order *order, int64_t budget, int64_t fixed, int64_t saved)
{
    int64_t slots[MAX_STAGES] = {0}, most = 1; /* of a stage: of its chunk that has fewest */
    double least = 0;
    for (int c = 0; c < order->chunks; c++) {
        int64_t own = order_slots(order, c), *stage = &slots[order->holder[c]];
        *stage = *stage == 0 || own < *stage ? own : *stage;
    }
    for (int s = 0; s < order->stages; s++) {
        least += (double)budget / (double)slots[s];
        most = slots[s] > most ? slots[s] : most;
    }
    return (double)saved <= (least - (double)fixed / (double)most) * (1 + 1e-9);
}

void work_links(const Work *work, const Problem *problem, const Pins *pins, MixLink *ret)
{
    const WorkForm *form = form_for(work, pins);
    for (int k = 0; k < 2; k++) {
        Pins own = k ? pins_of_tail(pins) : pins_of_base(pins);
        int64_t time[MAX_CLASSES][PART_COUNT] = {{0}};
        class_times(form, problem, &own, time);
        for (int i = 0; i < form->net->chain.n; i++) {
            int class = form->net->chain.at[i].class;
            link_bytes(form, &form->link[i], problem, &own, &ret[i].fixed[k], &ret[i].saved[k]);
            for (int part = 0; part < PART_COUNT && class < MAX_CLASSES; part++)
                ret[i].ns[k] += time[class][part];
        }
    }
}

bool rows_fit(const Work *work, const Problem *problem, const Pins *pins, const Order *order,
              const int *first_link, int64_t budget)
{
    const WorkForm *form = form_for(work, pins);
    int64_t fixed, saved, bytes[MAX_STAGES] = {0};
    link_bytes(form, &form->all, problem, pins, &fixed, &saved);
    if (!first_link)
        return any_cuts_fit(order, budget, fixed, saved);
    for (int c = 0; c < order->chunks; c++)
        for (int i = first_link[c]; i < first_link[c + 1]; i++) {
            link_bytes(form, &form->link[i], problem, pins, &fixed, &saved);
            bytes[order->holder[c]] += fixed + saved * order_slots(order, c);
        }
    for (int s = 0; s < order->stages; s++)
        if (bytes[s] > budget)
            return false;
    return true;
}
