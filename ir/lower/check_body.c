/* check_body.c - the static proof of a body: every node once, on the values it names, every move by
 * the table of place.h. */
#include "ir/lower/check_in.h"

#include <string.h>

/* ---- moves ---- */

/* The list without its last atoms; false when it does not end in them. */
static bool list_cut(AtomList *list, const AtomList *end)
{
    int keep = list->n - end->n;
    if (keep < 0)
        return false;
    for (int i = 0; i < end->n; i++)
        if (list->at[keep + i] != end->at[i])
            return false;
    for (int i = keep; i < list->n; i++)
        list->at[i] = 0;
    list->n = (int8_t)keep;
    return true;
}

static bool list_join(AtomList *list, const AtomList *end)
{
    if (list->n + end->n > MAX_PER_AXIS)
        return false;
    for (int i = 0; i < end->n; i++)
        list->at[list->n++] = end->at[i];
    return true;
}

static bool add_terms(Placement *place, AtomSet atoms)
{
    if (place->partial && place->monoid != MONOID_SUM)
        return false;
    place->partial |= atoms;
    place->monoid = MONOID_SUM;
    return atoms != 0;
}

static bool drop_terms(Placement *place, AtomSet atoms, uint8_t monoid)
{
    if ((atoms & ~place->partial) || !atoms || place->monoid != monoid)
        return false;
    place->partial &= (AtomSet)~atoms;
    if (!place->partial)
        place->monoid = MONOID_NONE;
    return true;
}

static bool is_axis(int axis)
{
    return axis >= 0 && axis < MAX_AXES;
}

/* Rows that come from two axes of their tokens, or go back to them. */
static bool rows_apply(Placement *place, const Move *move)
{
    AtomList batch = {0}, sequence = {0};
    for (int i = 0; i < move->atoms.n; i++) {
        AtomList *own = i + move->tail < move->atoms.n ? &batch : &sequence;
        own->at[own->n++] = move->atoms.at[i];
    }
    if (move->tail > move->atoms.n || !is_axis(move->from) || !is_axis(move->to))
        return false;
    return move->from == 0
               ? list_cut(&place->shard[0], &batch) && list_cut(&place->shard[1], &sequence) &&
                     list_join(&place->shard[move->to], &move->atoms)
               : move->to == 0 && list_cut(&place->shard[move->from], &move->atoms) &&
                     list_join(&place->shard[0], &batch) && list_join(&place->shard[1], &sequence);
}

bool move_apply(const Placement *before, const Move *move, Placement *ret)
{
    Placement place = *before;
    AtomSet atoms = list_set(&move->atoms), used = place_used(before);
    bool good = false;
    switch (move->kind) {
    case MOVE_ALL_REDUCE:
        good = drop_terms(&place, atoms, move->monoid);
        break;
    case MOVE_REDUCE_SCATTER:
        good = drop_terms(&place, atoms, move->monoid) && is_axis(move->to) &&
               list_join(&place.shard[move->to], &move->atoms);
        break;
    case MOVE_ALL_GATHER:
        good = is_axis(move->from) && move->atoms.n > 0 &&
               list_cut(&place.shard[move->from], &move->atoms);
        break;
    case MOVE_ALL_TO_ALL:
        if (move->tail > 0) {
            good = rows_apply(&place, move);
            break;
        }
        good = is_axis(move->from) && is_axis(move->to) && move->from != move->to &&
               move->atoms.n > 0 && list_cut(&place.shard[move->from], &move->atoms) &&
               list_join(&place.shard[move->to], &move->atoms);
        break;
    case MOVE_ROTATE: /* other blocks in the same places */
        good = move->atoms.n > 0 && (atoms & ~place_sharded(before)) == 0;
        break;
    case MOVE_PERMUTE:
        good = is_axis(move->from) && list_set(&move->order) == atoms &&
               move->order.n == move->atoms.n && list_cut(&place.shard[move->from], &move->atoms) &&
               list_join(&place.shard[move->from], &move->order);
        break;
    case MOVE_SLICE: /* without atoms: the same block once more */
        good = move->atoms.n == 0 || ((atoms & used) == 0 && is_axis(move->to) &&
                                      list_join(&place.shard[move->to], &move->atoms));
        break;
    case MOVE_OWN:
        good = (atoms & used) == 0 && add_terms(&place, atoms);
        break;
    case MOVE_PAD:
        good = is_axis(move->from) && list_cut(&place.shard[move->from], &move->atoms) &&
               add_terms(&place, atoms);
        break;
    case MOVE_KIND_COUNT:
        break;
    }
    *ret = place;
    return good;
}

/* ---- instructions ---- */

static const char *value_name(const Body *body, int copy)
{
    return body->copies.at[copy].name;
}

static bool holds(const int *list, int n, int id)
{
    for (int i = 0; i < n; i++)
        if (list[i] == id)
            return true;
    return false;
}

/* Copies have the block that their placement means, and fused ones no storage. */
static bool check_copies(Check *check, const Body *body)
{
    bool good = true;
    for (int i = 0; i < body->copies.n; i++) {
        const Copy *copy = &body->copies.at[i];
        const Value *value = &body->graph->values.at[copy->value];
        int64_t elements = 1;
        if (!place_fits(body->mesh, body->net, value, &copy->place)) {
            good = check_fault(check, "class %s: %s does not divide over its atoms",
                               body->graph->name, copy->name);
            continue;
        }
        for (int a = 0; a < value->axes; a++) {
            elements *= copy->local[a];
            if (copy->local[a] != place_local(body->mesh, body->net, value, &copy->place, a))
                good = check_fault(check,
                                   "class %s: axis %d of %s has %lld elements a rank, not what its "
                                   "placement means",
                                   body->graph->name, a, copy->name, (long long)copy->local[a]);
        }
        if (elements != copy->elements || copy->bytes != elements * dtype_bytes(copy->dtype))
            good = check_fault(check, "class %s: %s has %lld bytes, not those of its block",
                               body->graph->name, copy->name, (long long)copy->bytes);
        if (copy->alias != NONE && body->copies.at[copy->alias].bytes != copy->bytes)
            good = check_fault(check,
                               "class %s: %s stands in the storage of %s, which has another size",
                               body->graph->name, copy->name, value_name(body, copy->alias));
    }
    return good;
}

/* The letters of a node have one extent in all its operands, of which a turn of a ring may see one
 * block. */
static bool check_extents(Check *check, const Body *body, const Inst *inst, int i)
{
    const Node *node = &body->graph->nodes.at[inst->node[i]];
    const NodeChoice *choice = &body->plan->choice[inst->node[i]];
    AtomList ring = node_ring(body->mesh, choice);
    int64_t extent[MAX_LETTERS] = {0};
    for (int k = 0; k < node->ins + node->outs; k++) {
        bool in = k < node->ins;
        const int8_t *letters = in ? node->sig.in[k] : node->sig.out[k - node->ins];
        const Copy *copy =
            &body->copies.at[in ? inst->bind_in[i][k] : inst->bind_out[i][k - node->ins]];
        int axes = body->graph->values.at[copy->value].axes;
        int block = ring_block_axis(&ring, choice, letters, axes);
        for (int a = 0; a < axes; a++) {
            int64_t local =
                a == block ? copy->local[a] / list_extent(body->mesh, &ring) : copy->local[a];
            if (extent[letters[a]] && extent[letters[a]] != local)
                return check_fault(
                    check,
                    "class %s: letter %c of %s is %lld long in one operand and %lld in another",
                    body->graph->name, node->sig.letter[letters[a]], node->name,
                    (long long)extent[letters[a]], (long long)local);
            extent[letters[a]] = local;
        }
    }
    return true;
}

/* Operands are the values that the node names; a copy that is not stored was made by an earlier
 * node of the same kernel. */
static bool check_kernel(Check *check, const Body *body, const Inst *inst)
{
    bool good = true;
    for (int i = 0; i < inst->nodes; i++) {
        const Node *node = &body->graph->nodes.at[inst->node[i]];
        bool fits = true;
        for (int k = 0; k < node->ins; k++) {
            int id = inst->bind_in[i][k];
            bool made = holds(inst->in, inst->ins, id);
            for (int j = 0; j < i; j++)
                made |= holds(inst->bind_out[j], body->graph->nodes.at[inst->node[j]].outs, id);
            fits &= body->copies.at[id].value == node->in[k];
            if (!made)
                good = check_fault(check, "class %s: %s reads %s, which its kernel does not have",
                                   body->graph->name, node->name, value_name(body, id));
        }
        for (int k = 0; k < node->outs; k++) {
            int id = inst->bind_out[i][k];
            fits &= body->copies.at[id].value == node->out[k];
            if (!holds(inst->out, inst->outs, id) && body->copies.at[id].home != HOME_FUSED)
                good = check_fault(check, "class %s: %s makes %s and never stores it",
                                   body->graph->name, node->name, value_name(body, id));
        }
        if (!fits)
            good = check_fault(check, "class %s: %s works on other values than the graph says",
                               body->graph->name, node->name);
        else
            good &= check_extents(check, body, inst, i);
    }
    return good;
}

/* Rows go by the choices of all tokens among which the group cuts: of the rows that it has
 * together. */
static bool check_route(Check *check, const Body *body, const Inst *inst)
{
    const Copy *from = &body->copies.at[inst->in[0]], *to = &body->copies.at[inst->out[0]],
               *by = &body->copies.at[inst->in[inst->ins - 1]];
    const Value *value = &body->graph->values.at[from->value],
                *choice = &body->graph->values.at[by->value];
    int axis = value_routed_axis(body->net, value);
    const Copy *dense = inst->move.to == axis ? from : to, *rows = dense == from ? to : from;
    bool good = by->value == graph_route(body->graph, from->value) && choice->axes == axis + 1 &&
                by->place.partial == 0 && by->place.shard[axis].n == 0;
    if (body->net->exchange == EXCHANGE_PADDED) /* messages of one size make up the room */
        good &= rows->local[axis] % list_extent(body->mesh, &inst->move.atoms) == 0;
    AtomList own[2] = {{0}, {0}};
    int heads = inst->move.atoms.n - inst->move.tail;
    for (int i = 0; i < inst->move.atoms.n && inst->move.kind != MOVE_SLICE; i++) {
        AtomList *list = &own[i < heads ? 0 : 1];
        list->at[list->n++] = inst->move.atoms.at[i];
    }
    for (int i = 0; i < inst->move.atoms.n; i++) { /* a member's tokens are those of its roles */
        Role role = body->mesh->atom[inst->move.atoms.at[i]].role;
        good &= (i < heads) == (role == ROLE_DP);
    }
    for (int a = 0; a < axis && good; a++) {
        AtomList tokens = dense->place.shard[a];
        bool cut = a > 1 || list_cut(&tokens, &own[a]);
        good = cut && memcmp(&tokens, &by->place.shard[a], sizeof tokens) == 0;
    }
    if (!good)
        return check_fault(check, "class %s: rows of %s do not go by the choices of their tokens",
                           body->graph->name, from->name);
    return true;
}

static bool check_move(Check *check, const Body *body, const Inst *inst)
{
    const Copy *from = &body->copies.at[inst->in[0]], *to = &body->copies.at[inst->out[0]];
    bool routed = move_is_routed(body->net, &body->graph->values.at[from->value], &inst->move);
    Placement after;
    if ((inst->ins != 1 && !(routed && inst->ins == 2)) || inst->outs != 1 ||
        from->value != to->value)
        return check_fault(check, "class %s: a move makes %s of %s", body->graph->name, to->name,
                           from->name);
    if (!move_apply(&from->place, &inst->move, &after) || !place_equal(&after, &to->place))
        return check_fault(check, "class %s: the %s of %s does not lead to the placement of %s",
                           body->graph->name, move_text[inst->move.kind], from->name, to->name);
    return !routed || check_route(check, body, inst);
}

static bool check_accumulate(Check *check, const Body *body, const Inst *inst)
{
    const Copy *from = &body->copies.at[inst->in[0]], *to = &body->copies.at[inst->out[0]];
    bool gradient = to->home == HOME_ACC && to->param != NONE &&
                    body->graph->params.at[to->param].grad == from->value;
    if (inst->ins != 1 || inst->outs != 1 || !gradient || !place_equal(&from->place, &to->place))
        return check_fault(
            check,
            "class %s: %s is added to %s, which is not its accumulator or is placed otherwise",
            body->graph->name, from->name, to->name);
    return true;
}

/* ---- lists ---- */

/* Copies that exist without an instruction of the list. */
static bool given(const Body *body, int id, Segment seg)
{
    switch (body->copies.at[id].home) {
    case HOME_DATA:
    case HOME_PARAM:
        return true;
    case HOME_IN:
        return seg == SEG_FORWARD || body->saves_in;
    case HOME_GRAD_IN:
        return seg == SEG_BACKWARD;
    default:
        return false;
    }
}

/* Turns of one ring after another: check_turns.c says whether they may make one copy. */
static bool more_of(const Inst *before, const Inst *inst)
{
    return before->kind == INST_KERNEL && inst->kind == INST_KERNEL && before->nodes == 1 &&
           inst->nodes == 1 && before->node[0] == inst->node[0] && inst->turn == before->turn + 1;
}

static bool check_list(Check *check, const Body *body, const InstList *list, Segment seg,
                       int *made_at, bool *saved)
{
    bool good = true;
    for (int i = 0; i < body->copies.n; i++)
        made_at[i] = NONE;
    for (int i = 0; i < list->n; i++) {
        const Inst *inst = &list->at[i];
        for (int k = 0; k < inst->ins; k++) {
            int id = inst->in[k];
            if (made_at[id] == NONE && !given(body, id, seg) && !(seg == SEG_BACKWARD && saved[id]))
                good = check_fault(check, "class %s: %s reads %s before it is there",
                                   body->graph->name, seg == SEG_FORWARD ? "forward" : "backward",
                                   value_name(body, id));
        }
        if (inst->kind == INST_KERNEL)
            good &= check_kernel(check, body, inst);
        else if (inst->kind == INST_MOVE)
            good &= check_move(check, body, inst);
        else if (inst->kind == INST_ACCUMULATE)
            good &= check_accumulate(check, body, inst);
        for (int k = 0; k < inst->outs; k++) {
            int id = inst->out[k];
            if ((made_at[id] != NONE && !more_of(&list->at[made_at[id]], inst)) ||
                given(body, id, seg))
                good = check_fault(check, "class %s: %s is made twice", body->graph->name,
                                   value_name(body, id));
            if (body->copies.at[id].home == HOME_FUSED)
                good = check_fault(check, "class %s: %s is stored and has no place",
                                   body->graph->name, value_name(body, id));
            made_at[id] = i;
            saved[id] |=
                body->copies.at[id].home >= HOME_SAVED && body->copies.at[id].home <= HOME_SAVED_IW;
        }
    }
    return good;
}

/* W reads nothing whose life ends with I, and I adds to no gradient when there is a W. */
static bool check_late(Check *check, const Body *body)
{
    bool good = true;
    for (int i = 0; i < body->weight.n; i++)
        for (int k = 0; k < body->weight.at[i].ins; k++) {
            const Copy *copy = &body->copies.at[body->weight.at[i].in[k]];
            if (copy->home == HOME_SAVED || (copy->home == HOME_IN && !body->saves_in_late) ||
                (copy->home == HOME_GRAD_IN && !body->saves_grad_in))
                good = check_fault(check, "class %s: W reads %s, whose life ends before",
                                   body->graph->name, copy->name);
        }
    for (int i = 0; body->weight.n > 0 && i < body->backward.n; i++)
        for (int k = 0; k < body->backward.at[i].outs; k++)
            if (body->copies.at[body->backward.at[i].out[k]].home == HOME_ACC)
                good = check_fault(check, "class %s: I adds to a gradient", body->graph->name);
    return good;
}

/* Nodes of the segment run once (in each turn of a ring: check_turns.c); forward nodes may run
 * again in backward, at most once, or there alone when forward has no use for them. What reads
 * nothing may run for each of its readers. */
static bool check_nodes(Check *check, const Body *body)
{
    const Graph *graph = body->graph;
    Arena *scratch = arena_new("nodes");
    int *runs[2] = {ARENA_ARRAY(scratch, int, graph->nodes.n + 1),
                    ARENA_ARRAY(scratch, int, graph->nodes.n + 1)};
    for (int l = 0; l < BODY_LISTS; l++) {
        const InstList *list = body_list(body, l);
        for (int i = 0; i < list->n; i++)
            for (int k = 0;
                 list->at[i].kind == INST_KERNEL && list->at[i].turn == 0 && k < list->at[i].nodes;
                 k++)
                runs[l > 0][list->at[i].node[k]]++;
    }
    bool good = true;
    for (int n = 0; n < graph->nodes.n; n++) {
        bool forward = graph->nodes.at[n].seg == SEG_FORWARD;
        bool once = forward ? runs[0][n] + runs[1][n] >= 1 : runs[0][n] == 0 && runs[1][n] == 1;
        bool again = forward && graph->nodes.at[n].ins == 0;
        if (!once || runs[0][n] > 1 || (runs[1][n] > 1 && !again))
            good =
                check_fault(check, "class %s: %s runs %d times in forward and %d times in backward",
                            graph->name, graph->nodes.at[n].name, runs[0][n], runs[1][n]);
    }
    arena_free(scratch);
    return good;
}

/* Accumulators: one for every trained parameter, and each is an output of one instruction. */
static bool check_accumulators(Check *check, const Body *body)
{
    const Graph *graph = body->graph;
    bool good = true;
    for (int p = 0; p < graph->params.n; p++) {
        int id = body->acc_copy[p], writes = 0;
        if ((id == NONE) != (graph->params.at[p].grad == NONE)) {
            good = check_fault(check, "class %s: the gradient of %s is not accumulated",
                               graph->name, graph->params.at[p].name);
            continue;
        }
        const InstList *adds = body->weight.n ? &body->weight : &body->backward;
        for (int i = 0; id != NONE && i < adds->n; i++)
            writes += adds->at[i].turn == 0 && holds(adds->at[i].out, adds->at[i].outs, id);
        if (id != NONE &&
            (writes != 1 || body->copies.at[id].home != HOME_ACC || body->copies.at[id].param != p))
            good =
                check_fault(check, "class %s: the gradient of %s is added %d times a micro-batch",
                            graph->name, graph->params.at[p].name, writes);
    }
    return good;
}

static int storage_of(const Body *body, int id)
{
    for (int hops = 0; body->copies.at[id].alias != NONE && hops < body->copies.n; hops++)
        id = body->copies.at[id].alias;
    return id;
}

typedef struct Life {
    int64_t begin, end; /* bytes */
    int first, last;    /* instructions */
    int id;
} Life;

/* No two temps of one list live in the same bytes at once. A life runs from the maker to the last
 * reader; that a move may still be reading behind it is the events' concern. */
static bool check_temps(Check *check, const Body *body, const InstList *list, int64_t area)
{
    Arena *scratch = arena_new("lives");
    Life *life = ARENA_ARRAY(scratch, Life, body->copies.n + 1);
    for (int i = 0; i < body->copies.n; i++)
        life[i] = (Life){.first = NONE, .id = i};
    for (int i = list->n - 1; i >= 0; i--) {
        const Inst *inst = &list->at[i];
        for (int k = 0; k < inst->ins; k++)
            if (life[inst->in[k]].last < i)
                life[inst->in[k]].last = i;
        for (int k = 0; k < inst->outs; k++) {
            life[inst->out[k]].first = i;
            if (life[inst->out[k]].last < i)
                life[inst->out[k]].last = i;
        }
    }
    bool good = true;
    VEC(Life) temps = {0};
    for (int i = 0; i < body->copies.n; i++) {
        const Copy *home = &body->copies.at[storage_of(body, i)];
        if (life[i].first == NONE || home->home != HOME_TEMP)
            continue;
        life[i].begin = home->offset;
        life[i].end = home->offset + body->copies.at[i].bytes;
        if (life[i].begin < 0 || life[i].begin % 64 != 0 || life[i].end > area)
            good = check_fault(check, "class %s: %s leaves the scratch area of %lld bytes",
                               body->graph->name, value_name(body, i), (long long)area);
        vec_push(scratch, &temps) = life[i];
    }
    for (int i = 0; i < temps.n; i++)
        for (int j = 0; j < i; j++) {
            const Life *a = &temps.at[i], *b = &temps.at[j];
            bool in_place = storage_of(body, a->id) == storage_of(body, b->id);
            if (!in_place && a->begin < b->end && b->begin < a->end && a->first <= b->last &&
                b->first <= a->last)
                good = check_fault(
                    check, "class %s: %s and %s live at once in the same scratch bytes",
                    body->graph->name, value_name(body, a->id), value_name(body, b->id));
        }
    arena_free(scratch);
    return good;
}

/* Saved copies lie side by side in the link's block. */
static bool check_saved(Check *check, const Body *body)
{
    bool good = true;
    for (int i = 0; i < body->copies.n; i++) {
        const Copy *a = &body->copies.at[i];
        if (a->home < HOME_SAVED || a->home > HOME_SAVED_IW || a->alias != NONE)
            continue;
        int64_t block = body->saved_bytes[a->home - HOME_SAVED];
        if (a->offset < 0 || a->offset + a->bytes > block)
            good = check_fault(check, "class %s: %s leaves the saved block of %lld bytes",
                               body->graph->name, a->name, (long long)block);
        for (int j = 0; j < i; j++) {
            const Copy *b = &body->copies.at[j];
            if (b->home == a->home && b->alias == NONE && a->offset < b->offset + b->bytes &&
                b->offset < a->offset + a->bytes)
                good = check_fault(check, "class %s: %s and %s are saved in the same bytes",
                                   body->graph->name, a->name, b->name);
        }
    }
    return good;
}

bool check_body(Check *check, const Body *body)
{
    Arena *scratch = arena_new("body");
    int *made_at = ARENA_ARRAY(scratch, int, body->copies.n + 1);
    bool *saved = ARENA_ARRAY(scratch, bool, body->copies.n + 1);
    int before = diag_errors(check->diag);
    bool good = body_verify(body, check->diag);
    check->report->faults += diag_errors(check->diag) - before;
    good &= check_copies(check, body);
    good &= check_list(check, body, &body->forward, SEG_FORWARD, made_at, saved);
    good &= check_list(check, body, &body->backward, SEG_BACKWARD, made_at, saved);
    good &= check_late(check, body);
    good &= check_list(check, body, &body->weight, SEG_BACKWARD, made_at, saved);
    good &= check_turns(check, body, &body->forward);
    good &= check_turns(check, body, &body->backward);
    good &= check_turns(check, body, &body->weight);
    good &= check_nodes(check, body);
    good &= check_accumulators(check, body);
    good &= check_saved(check, body);
    good &= check_temps(check, body, &body->forward, body->forward_temp_bytes);
    good &= check_temps(check, body, &body->backward, body->backward_temp_bytes);
    good &= check_temps(check, body, &body->weight, body->weight_temp_bytes);
    arena_free(scratch);
    return good;
}

/* ---- the chain ---- */

static bool same_block(const Body *a, int x, const Body *b, int y)
{
    if (x == NONE || y == NONE)
        return false;
    const Copy *from = &a->copies.at[x], *to = &b->copies.at[y];
    return place_equal(&from->place, &to->place) && from->dtype == to->dtype &&
           from->bytes == to->bytes && memcmp(from->local, to->local, sizeof from->local) == 0;
}

/* Every link of the chain is on one stage, and the chunks of a stage are its links in order. */
static bool check_cover(Check *check)
{
    const Program *program = check->program;
    const Net *net = program->net;
    int at = 0;
    for (int c = 0; c < program->chunks; c++) {
        const StageProgram *stage = &program->stage[chunk_stage(program, c)];
        const Chunk *chunk = &stage->chunk[chunk_of_stage(program, c)];
        if (chunk->index != c || chunk->begin >= chunk->end)
            return check_fault(check, "stage %d: chunk %d is not where it should be", stage->index,
                               c);
        for (int i = chunk->begin; i < chunk->end; i++, at++) {
            const StageLink *link = &stage->link[i];
            if (link->link != at || at >= net->chain.n || &stage->chunk[link->chunk] != chunk ||
                link->body != program->body[net->chain.at[at].class])
                return check_fault(check, "stage %d: its link %d is not link %d of the chain",
                                   stage->index, i, at);
        }
    }
    return at == net->chain.n ||
           check_fault(check, "the stages hold %d of the %d links of the chain", at, net->chain.n);
}

bool check_chain(Check *check)
{
    const Program *program = check->program;
    const Net *net = program->net;
    bool good = true;
    for (int i = 0; i + 1 < net->chain.n; i++) {
        const Body *a = program->body[net->chain.at[i].class],
                   *b = program->body[net->chain.at[i + 1].class];
        if (!same_block(a, a->out, b, b->in))
            good = check_fault(check,
                               "links %d and %d: %s hands on its output otherwise than %s takes it",
                               i, i + 1, a->graph->name, b->graph->name);
        if (!same_block(b, b->grad_out, a, a->grad_in))
            good = check_fault(
                check, "links %d and %d: %s hands back its gradient otherwise than %s takes it", i,
                i + 1, b->graph->name, a->graph->name);
    }
    return check_cover(check) && good;
}
