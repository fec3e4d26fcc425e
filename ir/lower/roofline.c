/* roofline.c - ns of kernels and instructions of bodies on a device; moves are priced by link.h. */
#include "ir/lower/roofline.h"

#include "ir/base/num.h"
#include "ir/lower/link.h"
#include "ir/lower/turns.h"

static const int64_t second_ns = 1000000000;

/* A host multiplies fp16 as fp32; a GPU's units take either type of 16 bits. */
static bool is_narrow(const Device *device, DType factors)
{
    return factors == DT_BF16 || (factors == DT_F16 && str_eq(device->target, "cuda"));
}

int64_t device_peak_flops(const Device *device, DType factors)
{
    return is_narrow(device, factors) ? device->flops_bf16 : device->flops_f32;
}

/* Time at the full rate, plus the constant that makes a GEMM of small_gemm_flops reach half. */
static int64_t rate_ns(const Device *device, DType factors, int64_t permille, int64_t flops)
{
    int64_t peak = device_peak_flops(device, factors), small = device->small_gemm_flops;
    if (flops == 0)
        return 0;
    if (str_eq(device->target, "cuda") &&
        !is_narrow(
            device,
            factors)) /* it was measured in 16 bits: to begin and to end takes as long here */
        small = num_scale_up(small, peak, device->flops_bf16);
    return num_scale_up(flops + small, second_ns * 1000, peak / 1000 * permille) / 1000;
}

int64_t price_flops(const Device *device, DType factors, int64_t flops)
{
    return rate_ns(device, factors, device->gemm_permille, flops);
}

int64_t price_attention(const Device *device, DType factors, int64_t flops)
{
    int64_t own = device->attention_permille;
    return rate_ns(device, factors, own ? own : device->gemm_permille, flops);
}

int64_t attention_flops(const Device *device, int64_t flops, int64_t rows, int64_t pairs,
                        int64_t all)
{
    return num_scale_up(flops, pairs + extent_product(rows, device->attention_row_pairs), all);
}

int64_t price_stream(const Device *device, int64_t bytes)
{
    return num_scale_up(bytes, second_ns * 1000,
                        device->memory_bytes_per_s / 1000 * device->memory_permille) /
           1000;
}

/* Local extents of the letters in one run: the axis of any operand that has one tells, and in a
 * turn of a ring that of an operand that passes by. */
static void local_letters(const Net *net, const Mesh *mesh, const Graph *graph, const Node *node,
                          const Placement *in, const Placement *out, int64_t ret[MAX_LETTERS])
{
    for (int l = 0; l < MAX_LETTERS; l++)
        ret[l] = 0;
    for (int k = 0; k < node->ins + node->outs; k++) {
        bool is_in = k < node->ins;
        int o = k - node->ins;
        const Value *value = &graph->values.at[is_in ? node->in[k] : node->out[o]];
        const int8_t *letters = is_in ? node->sig.in[k] : node->sig.out[o];
        for (int a = 0; a < value->axes; a++) {
            int64_t local = place_local(mesh, net, value, is_in ? &in[k] : &out[o], a);
            int64_t *least = &ret[letters[a]];
            *least = *least == 0 || local < *least ? local : *least;
        }
    }
    for (int l = 0; l < MAX_LETTERS; l++)
        ret[l] = ret[l] > 0 ? ret[l] : 1;
}

int64_t local_flops(const Net *net, const Mesh *mesh, const Node *node, const Placement *in,
                    const Placement *out, const Graph *graph)
{
    int64_t extent[MAX_LETTERS];
    local_letters(net, mesh, graph, node, in, out, extent);
    return node_flops_local(net, node, extent);
}

static bool is_matmul(Form form)
{
    return form == FORM_gemm || form == FORM_attention || form == FORM_attention_grad ||
           form == FORM_expert || form == FORM_expert_dw;
}

/* A table that ids address: only the rows named by them pass through memory, and those are counted
 * at the other end of the op. */
static bool is_table(Form form, int operand, bool output)
{
    return output ? form == FORM_scatter : form == FORM_lookup && operand == 1;
}

static int64_t longer_ns(const Roofline *roof, int64_t compute_ns, int64_t bytes)
{
    const Device *device = &roof->cluster->device;
    return num_larger(compute_ns, price_stream(device, bytes)) + device->launch_ns;
}

static int64_t kernel_ns(const Roofline *roof, DType factors, int64_t flops, int64_t bytes)
{
    return longer_ns(roof, price_flops(&roof->cluster->device, factors, flops), bytes);
}

/* A product whose factors are all wide runs at the rate of fp32; one wide factor alone, as scores
 * that choose experts have it, is a small product that no plan should turn on. */
static DType narrower(DType x, DType y)
{
    return x == DT_COUNT || (y != DT_I32 && dtype_bytes(y) < dtype_bytes(x)) ? y : x;
}

static int factors_of(const Node *node)
{
    Form form =
        op_info[node->op].form; /* statistics of rows come behind queries, keys and values */
    return form == FORM_attention || form == FORM_attention_grad ? 3 : node->ins;
}

static Meeting meeting_of(const Roofline *roof, const Graph *graph, const Node *node,
                          const Placement *in, const AtomList *ring)
{
    return (Meeting){roof->mesh, roof->net, graph, node, in, *ring};
}

/* A block in which queries meet keys, of the rank that all wait for: where there are so many FLOPs
 * of all pairs. */
static int64_t turn_ns(const Roofline *roof, const Meeting *meeting, int turn, int64_t flops,
                       int64_t bytes)
{
    const Device *device = &roof->cluster->device;
    int64_t extent[2];
    for (int k = 0; k < 2; k++)
        extent[k] =
            place_local(meeting->mesh, meeting->net,
                        &meeting->graph->values.at[meeting->node->in[k]], &meeting->in[k], 1);
    int64_t seen = attention_flops(device, flops, extent[0], turn_most_pairs(meeting, turn),
                                   extent_product(extent[0], extent[1]));
    return longer_ns(roof, price_attention(device, roof->recipe->activation, seen), bytes);
}

/* Blocks of what may not be split pass by along these atoms. */
static AtomList ring_of(const Graph *graph, const Node *node, const Placement *in)
{
    const Value *key = &graph->values.at[node->in[1]];
    AtomList ring = {0};
    for (int a = 0; a < key->axes; a++)
        if ((node->sig.nosplit & node->sig.base) >> node->sig.in[1][a] & 1)
            ring = in[1].shard[a];
    return ring;
}

/* Of a node whose blocks pass by, the mean over its turns. */
static int64_t meeting_ns(const Roofline *roof, const Graph *graph, const Node *node,
                          const Placement *in, int64_t flops, int64_t bytes)
{
    AtomList ring = ring_of(graph, node, in);
    Meeting meeting = meeting_of(roof, graph, node, in, &ring);
    int64_t ns = 0, turns = 0;
    for (int turn = 0; turn < list_extent(roof->mesh, &ring); turn = turn_next(&meeting, turn)) {
        ns += turn_ns(roof, &meeting, turn, flops, bytes);
        turns++;
    }
    return (ns + turns - 1) / turns;
}

int64_t node_ns(const Roofline *roof, const Graph *graph, const Node *node, const Placement *in,
                const Placement *out)
{
    int64_t bytes = 0, flops = 0, extent[MAX_LETTERS];
    DType factors = DT_COUNT;
    for (int k = 0; k < factors_of(node); k++)
        factors = narrower(factors, value_dtype(graph, node->in[k], roof->recipe));
    local_letters(roof->net, roof->mesh, graph, node, in, out, extent);
    for (int k = 0; k < node->ins + node->outs; k++) {
        bool is_in = k < node->ins;
        int o = k - node->ins;
        ValueId id = is_in ? node->in[k] : node->out[o];
        int64_t size = dtype_bytes(value_dtype(graph, id, roof->recipe));
        for (int a = 0; a < graph->values.at[id].axes; a++)
            size *= extent[(is_in ? node->sig.in[k] : node->sig.out[o])[a]];
        if (!is_table(op_info[node->op].form, is_in ? k : o, !is_in))
            bytes += size;
    }
    if (is_matmul(op_info[node->op].form))
        flops = node_flops_local(roof->net, node, extent);
    if (node_crosses(roof->net, node))
        return meeting_ns(roof, graph, node, in, flops, bytes);
    return kernel_ns(roof, factors, flops, bytes);
}

bool inst_is_collective(const Inst *inst)
{
    return inst->kind == INST_MOVE && inst->move.kind <= MOVE_PERMUTE;
}

bool inst_moves_gradient(const Body *body, const Inst *inst)
{
    const Value *value = &body->graph->values.at[body->copies.at[inst->in[0]].value];
    if (value->kind == VALUE_GRAD_IN)
        return true;
    return value->kind == VALUE_NODE && body->graph->nodes.at[value->made].seg == SEG_BACKWARD;
}

int64_t inst_wire_bytes(const Body *body, const Inst *inst)
{
    const Copy *source = &body->copies.at[inst->in[0]];
    int64_t elements = move_elements(body->net, &body->graph->values.at[source->value], &inst->move,
                                     source->elements, body->copies.at[inst->out[0]].elements);
    return wire_bytes(body->mesh, &inst->move, elements, dtype_bytes(source->dtype));
}

int64_t inst_flops(const Body *body, const Inst *inst)
{
    int64_t flops = 0;
    for (int i = 0; inst->kind == INST_KERNEL && i < inst->nodes; i++) {
        const Node *node = &body->graph->nodes.at[inst->node[i]];
        if (!is_matmul(op_info[node->op].form))
            continue;
        Placement in[MAX_IN], out[MAX_OUT];
        for (int k = 0; k < node->ins; k++)
            in[k] = body->copies.at[inst->bind_in[i][k]].place;
        for (int k = 0; k < node->outs; k++)
            out[k] = body->copies.at[inst->bind_out[i][k]].place;
        flops += local_flops(body->net, body->mesh, node, in, out, body->graph);
    }
    return flops;
}

/* Bytes of operands and results that a turn of a ring leaves to other turns, less those that it
 * reads of a result to which it adds. */
static int64_t left_to_others(const Body *body, const Inst *inst)
{
    int64_t bytes = 0;
    const Node *node = inst->kind == INST_KERNEL ? &body->graph->nodes.at[inst->node[0]] : NULL;
    const NodeChoice *choice = node ? &body->plan->choice[inst->node[0]] : NULL;
    AtomList ring = node ? node_ring(body->mesh, choice) : (AtomList){0};
    for (int k = 0; ring.n > 0 && k < node->ins + node->outs; k++) {
        bool is_in = k < node->ins;
        int o = k - node->ins, id = is_in ? inst->bind_in[0][k] : inst->bind_out[0][o];
        const Copy *copy = &body->copies.at[id];
        int block = ring_block_axis(&ring, choice, is_in ? node->sig.in[k] : node->sig.out[o],
                                    body->graph->values.at[copy->value].axes);
        if (block != NONE)
            bytes += copy->bytes - copy->bytes / list_extent(body->mesh, &ring);
        if (!is_in && (inst->adds >> o & 1))
            bytes -= copy->bytes;
    }
    return bytes;
}

/* Only the data say how much it sends. */
static bool inst_asks_host(const Body *body, const Inst *inst)
{
    const Value *value = &body->graph->values.at[body->copies.at[inst->in[0]].value];
    return body->net->exchange == EXCHANGE_EXACT && move_is_routed(body->net, value, &inst->move);
}

int64_t inst_ns(const Roofline *roof, const Body *body, const Inst *inst)
{
    if (inst_is_collective(inst))
        return price_collective(roof->cluster, body->mesh, inst->move.kind, &inst->move.atoms,
                                inst_wire_bytes(body, inst)) +
               (inst_asks_host(body, inst) ? roof->cluster->device.host_wait_ns : 0);
    Form form = inst->kind == INST_KERNEL ? inst->form : FORM_copy;
    int64_t bytes = -left_to_others(body, inst);
    for (int k = 0; k < inst->ins; k++)
        if (!is_table(form, k, false))
            bytes += body->copies.at[inst->in[k]].bytes;
    for (int k = 0; k < inst->outs; k++)
        if (!is_table(form, k, true))
            bytes += body->copies.at[inst->out[k]].bytes;
    int64_t flops = is_matmul(inst->form) ? inst_flops(body, inst) : 0;
    const Node *node = inst->kind == INST_KERNEL ? &body->graph->nodes.at[inst->node[0]] : NULL;
    if (node && node_crosses(body->net, node)) {
        Placement in[MAX_IN];
        for (int k = 0; k < node->ins; k++)
            in[k] = body->copies.at[inst->bind_in[0][k]].place;
        AtomList ring = ring_of(body->graph, node, in);
        Meeting meeting = meeting_of(roof, body->graph, node, in, &ring);
        return turn_ns(roof, &meeting, inst->turn, flops, bytes);
    }
    DType factors = DT_COUNT;
    for (int k = 0; node && k < factors_of(node); k++)
        factors = narrower(factors, body->copies.at[inst->bind_in[0][k]].dtype);
    return kernel_ns(roof, factors, flops, bytes);
}
