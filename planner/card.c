/* card.c - lowers each class of a variant and runs it alone, forward and backward. */
#include "planner/card.h"

#include <string.h>

#include "ir/base/num.h"
#include "ir/lower/sync.h"
#include "planner/resize.h"

int64_t *card_prices(Arena *arena, const Pricer *pricer, const Body *body)
{
    int n = 0;
    int64_t *price =
        ARENA_ARRAY(arena, int64_t, body->forward.n + body->backward.n + body->weight.n + 1);
    for (int l = 0; l < BODY_LISTS; l++)
        for (int i = 0; i < body_list(body, l)->n; i++)
            price[n++] = price_inst(pricer, body, &body_list(body, l)->at[i]);
    return price;
}

/* The streams of a rank. */
typedef struct Lanes {
    Arena *scratch;
    Sync *sync;
    VEC(int64_t) end[STREAM_COUNT];
} Lanes;

/* Links of one class in a row: Steps with made-up addresses, in which copies overlap as in the
 * layout. */
typedef struct Run {
    Lanes *lanes;
    const Body *body;
    int64_t *base;  /* per copy */
    int64_t stride; /* from one link's bytes to the next one's */
    int64_t origin; /* of all of them */
} Run;

static int64_t scratch_bytes(const Body *body)
{
    return num_larger(body->weight_temp_bytes,
                      num_larger(body->forward_temp_bytes, body->backward_temp_bytes));
}

/* The scratch area at 0, shared by all links; then each link's own bytes. */
static void make_bases(Run *run)
{
    const Body *body = run->body;
    int64_t at = num_align64(scratch_bytes(body)), saved[SAVED_KINDS];
    for (int kind = 0; kind < SAVED_KINDS; kind++) {
        saved[kind] = at;
        at += num_align64(body->saved_bytes[kind]);
    }
    run->base = ARENA_ARRAY(run->lanes->scratch, int64_t, body->copies.n + 1);
    for (int i = 0; i < body->copies.n; i++) {
        const Copy *copy = &body->copies.at[i];
        if (copy->home >= HOME_SAVED && copy->home <= HOME_SAVED_IW) {
            run->base[i] = saved[copy->home - HOME_SAVED] + copy->offset;
        } else if (copy->home == HOME_TEMP) {
            run->base[i] = copy->offset;
        } else {
            run->base[i] = at;
            at += num_align64(copy->bytes) + 64;
        }
    }
    run->stride = at;
}

/* What a link writes for the next one in the row is that one's input. */
static int64_t address_of(const Run *run, int id, int link)
{
    const Body *body = run->body;
    while (body->copies.at[id].alias != NONE)
        id = body->copies.at[id].alias;
    if (body->copies.at[id].home == HOME_TEMP)
        return run->base[id];
    if (link > 0 && id == body->in && body->out != NONE)
        return run->base[body->out] + (link - 1) * run->stride;
    if (link > 0 && id == body->grad_in && body->grad_out != NONE)
        return run->base[body->grad_out] + (link - 1) * run->stride;
    return run->base[id] + link * run->stride;
}

static int64_t stream_end(const Lanes *lanes, Stream stream)
{
    return lanes->end[stream].n ? lanes->end[stream].at[lanes->end[stream].n - 1] : 0;
}

/* When the instruction has ended. */
static int64_t run_inst(Run *run, const Inst *inst, int link, int64_t length)
{
    Step step = {.stream = inst_is_collective(inst) ? STREAM_BLOCK : STREAM_COMPUTE};
    for (int k = 0; k < inst->ins + inst->outs; k++) {
        bool write = k >= inst->ins;
        int id = write ? inst->out[k - inst->ins] : inst->in[k];
        step.operand[step.operands++] = (Operand){run->origin + address_of(run, id, link),
                                                  run->body->copies.at[id].bytes,
                                                  0,
                                                  NULL,
                                                  write,
                                                  !write};
    }
    Lanes *lanes = run->lanes;
    sync_step(lanes->sync, &step);
    int64_t start = stream_end(lanes, step.stream);
    for (int w = 0; w < step.waits; w++) {
        int64_t end = lanes->end[step.wait[w].stream].at[step.wait[w].seq];
        start = end > start ? end : start;
    }
    vec_push(lanes->scratch, &lanes->end[step.stream]) = start + length;
    return start + length;
}

static int64_t run_links(const Body *body, const InstList *list, const int64_t *price, int links,
                         int64_t *acc_end)
{
    Arena *scratch = arena_new("card");
    Lanes lanes = {.scratch = scratch, .sync = sync_new(scratch)};
    Run run = {.lanes = &lanes, .body = body};
    make_bases(&run);
    int64_t last = 0;
    for (int i = 0; i < links * list->n; i++) {
        const Inst *inst = &list->at[i % list->n];
        int64_t end = run_inst(&run, inst, i / list->n, price[i % list->n]);
        last = end > last ? end : last;
        for (int k = 0; i < list->n && k < inst->outs; k++) {
            const Copy *copy = &body->copies.at[inst->out[k]];
            if (copy->home == HOME_ACC && copy->param != NONE)
                acc_end[copy->param] = end;
        }
    }
    arena_free(scratch);
    return last;
}

/* The number of an instruction among all of its body. */
static int64_t list_begin(const Body *body, int which)
{
    int64_t n = 0;
    for (int l = 0; l < which; l++)
        n += body_list(body, l)->n;
    return n;
}

BraidRun card_run_braid(const Pricer *pricer, const Braid *braid, int links)
{
    Arena *scratch = arena_new("pair");
    Lanes lanes = {.scratch = scratch, .sync = sync_new(scratch)};
    Run run[2];
    const int64_t *price[2];
    int64_t at = 0;
    for (int side = 0; side < 2; side++) {
        run[side] =
            (Run){.lanes = &lanes, .body = side ? braid->backward : braid->forward, .origin = at};
        if (!run[side].body)
            continue;
        make_bases(&run[side]);
        price[side] = card_prices(scratch, pricer, run[side].body);
        at += (links + 1) * run[side].stride;
    }
    BraidRun ran = {.backward = INT64_MAX};
    for (int i = 0; i < links * braid->n; i++) {
        const BraidInst *inst = &braid->inst[i % braid->n];
        int side = inst->list > 0;
        const Inst *of = &body_list(run[side].body, inst->list)->at[inst->inst];
        int64_t ns = price[side][list_begin(run[side].body, inst->list) + inst->inst];
        int64_t end = run_inst(&run[side], of, i / braid->n, ns);
        ran.ns = num_larger(ran.ns, end);
        if (side == 0)
            ran.forward = num_larger(ran.forward, end);
        else if (end - ns < ran.backward)
            ran.backward = end - ns;
        ran.compute += i < braid->n && !inst_is_collective(of) ? ns : 0;
    }
    arena_free(scratch);
    return ran;
}

static CardSegment run_list(const Body *body, const InstList *list, const int64_t *price,
                            int64_t *acc_end)
{
    CardSegment segment = {.ns = run_links(body, list, price, 1, acc_end)};
    bool inner = body->graph->chain_in != NONE && body->graph->chain_out != NONE;
    segment.next_ns = segment.ns;
    if (inner)
        segment.next_ns = run_links(body, list, price, 2, acc_end) - segment.ns;
    /* two links may hide of each other what many cannot: a row never takes less than its work */
    for (int i = 0; i < list->n; i++) {
        const Inst *inst = &list->at[i];
        segment.flops += inst_flops(body, inst);
        if (inst_is_collective(inst)) {
            segment.block_ns[atoms_level(body->mesh, &inst->move.atoms)] += price[i];
            segment.wire_bytes += inst_wire_bytes(body, inst);
        } else {
            segment.compute_ns += price[i];
        }
    }
    if (segment.next_ns < segment.compute_ns)
        segment.next_ns = segment.compute_ns;
    return segment;
}

static int other_home(const Net *net, int class, int param, bool *ret_second)
{
    for (int i = 0; i < net->params.n; i++) {
        const NetParam *net_param = &net->params.at[i];
        for (int use = 0; use < net_param->uses && net_param->uses == 2; use++)
            if (net_param->use_class[use] == class && net_param->use_param[use] == param) {
                *ret_second = use == 1;
                return net_param->link[1 - use];
            }
    }
    *ret_second = false;
    return NONE;
}

bool card_same_matrix(const CardMatrix *a, const CardMatrix *b)
{
    return a && b ? a->unit == b->unit && memcmp(&a->key, &b->key, sizeof a->key) == 0 : a == b;
}

typedef struct Shelved {
    CardMatrix matrix;
    Mesh mesh;
    Cluster cluster;
    const Recipe *recipe;
    Muon muon;
} Shelved;

struct StepShelf {
    Arena *arena;
    VEC(Shelved *) list;
};

StepShelf *step_shelf_new(Arena *arena)
{
    StepShelf *shelf = ARENA_NEW(arena, StepShelf);
    shelf->arena = arena;
    return shelf;
}

/* Atoms that do not cut the matrix have no part in its step. */
static bool same_mesh(const Mesh *a, const Mesh *b, const MatrixKey *key)
{
    AtomSet atoms = matrix_atoms(key);
    bool same = true;
    for (int i = 0; same && atoms >> i; i++)
        same = !(atoms >> i & 1) ||
               (a->atom[i].extent == b->atom[i].extent && a->atom[i].level == b->atom[i].level);
    return same;
}

static bool same_muon(const Muon *a, const Muon *b)
{
    return a->steps == b->steps && a->nesterov == b->nesterov;
}

static const CardMatrix *shelf_find(const StepShelf *shelf, const Shelved *own)
{
    for (int i = 0; shelf && i < shelf->list.n; i++) {
        const Shelved *at = shelf->list.at[i];
        if (card_same_matrix(&at->matrix, &own->matrix) && at->recipe == own->recipe &&
            same_mesh(&at->mesh, &own->mesh, &own->matrix.key) &&
            same_muon(&at->muon, &own->muon) &&
            memcmp(&at->cluster, &own->cluster, sizeof own->cluster) == 0)
            return &at->matrix;
    }
    return NULL;
}

static void price_matrix(Arena *arena, const Pricer *pricer, const Body *block, int param,
                         Shelved *ret)
{
    CardMatrix *matrix = &ret->matrix;
    matrix->body = matrix_body(arena, block->net, block->graph, param, &matrix->key, &ret->mesh,
                               pricer->recipe, pricer->cluster, pricer->job);
    const InstList *list = &matrix->body->backward;
    const int64_t *price = card_prices(arena, pricer, matrix->body);
    for (int i = 0; i < list->n; i++) {
        matrix->ns += price[i];
        matrix->block_ns += inst_is_collective(&list->at[i]) ? price[i] : 0;
        matrix->flops += inst_flops(matrix->body, &list->at[i]);
    }
    matrix->scratch_bytes = matrix->body->backward_temp_bytes;
}

/* Of this parameter's matrices; NULL when its elements are stepped one by one. */
static const CardMatrix *matrix_of(Arena *arena, const Pricer *pricer, const Body *body,
                                   const Card *card, int param)
{
    const Copy *acc = &body->copies.at[body->acc_copy[param]];
    StepShelf *shelf = pricer->steps;
    Shelved own = {.recipe = pricer->recipe, .muon = pricer->job->muon};
    int64_t count, elements;
    if (!matrix_key(body->net, body->graph, param, &acc->place, body->mesh, pricer->job,
                    &own.matrix.key, &count, &elements))
        return NULL;
    own.matrix.unit = matrix_unit(count, elements);
    for (int g = 0; g < card->groups; g++)
        if (card_same_matrix(card->group[g].matrix, &own.matrix))
            return card->group[g].matrix;
    own.mesh = *pricer->mesh;
    own.cluster = *pricer->cluster;
    const CardMatrix *known = shelf_find(shelf, &own);
    if (known)
        return known;
    Shelved *kept = ARENA_NEW(shelf ? shelf->arena : arena, Shelved);
    *kept = own;
    price_matrix(shelf ? shelf->arena : arena, pricer, body, param, kept);
    if (shelf)
        vec_push(shelf->arena, &shelf->list) = kept;
    return &kept->matrix;
}

static void add_param(Arena *arena, const Pricer *pricer, const Body *body, int class, int param,
                      const int64_t *acc_end, Card *card)
{
    const Net *net = pricer->net;
    if (body->acc_copy[param] == NONE)
        return;
    const CardMatrix *matrix = matrix_of(arena, pricer, body, card, param);
    const Copy *acc = &body->copies.at[body->acc_copy[param]];
    AtomSet sharded = place_sharded(&acc->place);
    bool second;
    int tied = other_home(net, class, param, &second);
    CardGroup *group = NULL;
    double rate = body->graph->params.at[param].rate;
    for (int g = 0; g < card->groups && !group; g++) {
        CardGroup *at = &card->group[g];
        if (at->sharded == sharded && at->partial == acc->place.partial && at->tied == tied &&
            at->rate == rate && card_same_matrix(at->matrix, matrix))
            group = at;
    }
    bool decay = body->graph->params.at[param].decay;
    if (!group) {
        group = &card->group[card->groups++];
        *group = (CardGroup){.sharded = sharded,
                             .partial = acc->place.partial,
                             .tied = tied,
                             .rate = rate,
                             .matrix = matrix,
                             .second = second,
                             .decay_first = decay,
                             .decay_runs = 1};
    } else {
        group->decay_runs += group->decay_last != decay;
    }
    group->decay_last = decay;
    int64_t grain = matrix ? matrix->unit : 16;
    group->elements += (acc->elements + grain - 1) / grain * grain;
    if (matrix)
        card->scratch_bytes = num_larger(card->scratch_bytes, matrix->scratch_bytes);
    group->ready_ns = acc_end[param] > group->ready_ns ? acc_end[param] : group->ready_ns;
}

static int64_t copy_bytes(const Body *body, int copy)
{
    return copy == NONE ? 0 : num_align64(body->copies.at[copy].bytes);
}

Body *card_body(Arena *arena, const Pricer *pricer, const ClassPlan *plan, int class, bool split)
{
    MovePrice moves = pricer_moves(pricer);
    return body_lower(arena, pricer->net, pricer->net->classes.at[class], plan, pricer->mesh,
                      pricer->recipe, &moves, split);
}

Card card_make(Arena *arena, Arena *scratch, const Pricer *pricer, const ClassPlan *plan, int class,
               bool split)
{
    const Graph *graph = pricer->net->classes.at[class];
    Body *body = card_body(scratch, pricer, plan, class, split);
    Card card = {.cut = plan->cut,
                 .saves_in = body->saves_in,
                 .saves_in_late = body->saves_in_late,
                 .saves_grad_in = body->saves_grad_in};
    memcpy(card.saved_bytes, body->saved_bytes, sizeof card.saved_bytes);
    int64_t *price = card_prices(scratch, pricer, body);
    int64_t *acc_end = ARENA_ARRAY(scratch, int64_t, graph->params.n + 1);
    card.forward = run_list(body, &body->forward, price, acc_end);
    price += body->forward.n;
    card.backward = run_list(body, &body->backward, price, acc_end);
    price += body->backward.n;
    card.weight = run_list(body, &body->weight, price, acc_end);
    card.group = ARENA_ARRAY(arena, CardGroup, graph->params.n + 1);
    card.scratch_bytes = scratch_bytes(body);
    card.forward_bytes = body->forward_temp_bytes;
    card.backward_bytes = num_larger(body->backward_temp_bytes, body->weight_temp_bytes);
    for (int p = 0; p < graph->params.n; p++)
        add_param(arena, pricer, body, class, p, acc_end, &card);
    card.in_bytes = copy_bytes(body, body->in);
    card.out_bytes = copy_bytes(body, body->out);
    card.grad_in_bytes = copy_bytes(body, body->grad_in);
    card.grad_out_bytes = copy_bytes(body, body->grad_out);
    for (int i = 0; i < body->copies.n; i++) {
        const Copy *copy = &body->copies.at[i];
        if (copy->home == HOME_DATA)
            card.data_bytes[graph->values.at[copy->value].out] = num_align64(copy->bytes);
    }
    return card;
}

/* What choices name divides by the ranks that share it. */
static bool experts_divide(const Net *net, int ranks)
{
    for (int d = 0; d < net->dims.n; d++)
        if (net->dims.at[d].kind == DIM_ROUTED &&
            net->dims.at[net->dims.at[d].among].extent % ranks != 0)
            return false;
    return true;
}

/* A class as it is placed on the deck's mesh. */
static const ClassPlan *deck_class(Arena *arena, const Deck *deck, int class)
{
    if (deck->key.ep <= 1)
        return &deck->variant->class[class];
    ClassPlan *plan = ARENA_NEW(arena, ClassPlan);
    variant_lift(arena, deck->variant, &deck->mesh, class, plan);
    return plan;
}

Deck *deck_new(Arena *arena, Arena *scratch, const Problem *problem, const Variant *variant,
               const DeckKey *key)
{
    Deck *deck = ARENA_NEW(arena, Deck);
    deck->variant = variant;
    deck->key = *key;
    deck->mesh = variant->mesh;
    int ep = key->ep > 1 ? key->ep : 1, dp = spread_dp_ep(&variant->key.spread, ep);
    Degrees degrees =
        spread_degrees(&variant->key.spread, dp * variant->key.spread.etp, ep, variant->net);
    if (ep > 1 && (!experts_divide(variant->net, ep) ||
                   !mesh_build(diag_new(arena), problem->cluster, &degrees, &deck->mesh)))
        return NULL;
    int64_t batch = variant->net->dims.at[variant->net->batch].extent * key->micro_batch * dp;
    deck->net = net_resize(arena, variant->net, batch, variant->pad_vocabulary);
    if (ep > 1)
        deck->net->room_percent = key->room > 0 ? key->room : 0;
    deck->net->exchange = (Exchange)key->exchange;
    deck->pricer = (Pricer){
        problem->cluster, deck->net,     &deck->mesh, recipe_by_name(problem->job.recipe), 0,
        &problem->job,    problem->steps};
    deck->card = ARENA_ARRAY(arena, Card, deck->net->classes.n);
    for (int c = 0; c < deck->net->classes.n; c++)
        deck->card[c] =
            card_make(arena, scratch, &deck->pricer, deck_class(scratch, deck, c), c, key->split);
    return deck;
}

const Body *deck_body(Arena *arena, const Deck *deck, int class)
{
    return card_body(arena, &deck->pricer, deck_class(arena, deck, class), class, deck->key.split);
}
