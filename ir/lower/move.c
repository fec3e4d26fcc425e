/* move.c - moves between placements: their successors, their bytes, and the cheapest path. */
#include "ir/lower/place.h"

#include <string.h>

const char *const move_text[MOVE_KIND_COUNT] = {
    [MOVE_ALL_REDUCE] = "all_reduce",
    [MOVE_REDUCE_SCATTER] = "reduce_scatter",
    [MOVE_ALL_GATHER] = "all_gather",
    [MOVE_ALL_TO_ALL] = "all_to_all",
    [MOVE_ROTATE] = "rotate",
    [MOVE_PERMUTE] = "permute",
    [MOVE_SLICE] = "slice",
    [MOVE_OWN] = "own",
    [MOVE_PAD] = "pad",
};

enum { NODE_CAP = 200000 }; /* placements one search may visit: far above what any mesh reaches */

/* ---- prices ---- */

static int64_t product(int64_t a, int64_t b)
{
    if (a != 0 && b > INT64_MAX / a)
        BUG("a move of %lld x %lld bytes overflows", (long long)a, (long long)b);
    return a * b;
}

static bool move_is_free(MoveKind kind)
{
    return kind >= MOVE_SLICE;
}

int64_t wire_bytes(const Mesh *mesh, const Move *move, int64_t n_local, int element_bytes)
{
    int64_t n = list_extent(mesh, &move->atoms), local = product(n_local, element_bytes);
    switch (move->kind) {
    case MOVE_ALL_REDUCE:
        return (product(local, 2 * (n - 1)) + n - 1) / n;
    case MOVE_REDUCE_SCATTER:
    case MOVE_ALL_TO_ALL:
        return product(local, n - 1) / n;
    case MOVE_ALL_GATHER:
        return product(local, n - 1);
    case MOVE_ROTATE:
    case MOVE_PERMUTE:
        return local;
    default:
        return 0;
    }
}

static int64_t plain_cost(const void *context, const Mesh *mesh, const Move *move, int64_t bytes)
{
    (void)context;
    (void)mesh;
    return move_is_free(move->kind) ? 0 : 1 + product(bytes, 1000);
}

MovePrice path_plain_price(int element_bytes)
{
    return (MovePrice){.cost = plain_cost, .context = NULL, .element_bytes = element_bytes};
}

/* ---- the table ---- */

/* A placement reached by one search, and the last move that reached it. */
typedef struct Reach {
    Placement place;
    Move move;
    int64_t cost, elements;
    int n, from; /* moves so far; index of the placement before */
} Reach;

typedef struct Queued {
    int64_t cost;
    int n, tick, reach; /* tick: order of discovery */
} Queued;

typedef struct Memo {
    int64_t extent[MAX_AXES];
    Placement from, to;
    bool found;
    Path path;
} Memo;

struct PathTable {
    Arena *arena;
    Mesh mesh;
    const Net *net;
    MovePrice price;
    VEC(Memo) memos;
    int32_t *memo_slot; /* index + 1 into memos */
    int memo_slots;
    /* One search, kept between searches for its memory only. */
    VEC(Reach) reached;
    VEC(Queued) queue;
    int32_t *reach_slot;
    int reach_slots;
    int tick;
    const Value *value;
    Placement to;
};

enum { FIRST_SLOTS = 256 };

PathTable *path_table_new(Arena *arena, const Mesh *mesh, const Net *net, const MovePrice *price)
{
    PathTable *table = ARENA_NEW(arena, PathTable);
    table->arena = arena;
    table->mesh = *mesh;
    table->net = net;
    table->price = *price;
    table->memo_slots = table->reach_slots = FIRST_SLOTS;
    table->memo_slot = ARENA_ARRAY(arena, int32_t, FIRST_SLOTS);
    table->reach_slot = ARENA_ARRAY(arena, int32_t, FIRST_SLOTS);
    return table;
}

_Static_assert(sizeof(Placement) % 8 == 0, "hashed by words");

/* Of whole words; the shift brings what a product moved up back to the bits that pick a slot. */
static uint64_t hash_words(uint64_t hash, const void *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word;
        memcpy(&word, (const char *)at + i, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return hash;
}

enum { HASH_SEED = 0x1505 };

static uint64_t memo_hash(const Memo *memo)
{
    uint64_t hash = hash_words(HASH_SEED, memo->extent, sizeof memo->extent);
    hash = hash_words(hash, &memo->from, sizeof memo->from);
    hash = hash_words(hash, &memo->to, sizeof memo->to);
    return hash;
}

static bool memo_same(const Memo *a, const Memo *b)
{
    return memcmp(a->extent, b->extent, sizeof a->extent) == 0 && place_equal(&a->from, &b->from) &&
           place_equal(&a->to, &b->to);
}

/* The slot of a key: its index + 1, or an empty one. Slot counts are powers of two. */
static int32_t *memo_find(PathTable *table, const Memo *key)
{
    uint64_t mask = (uint64_t)table->memo_slots - 1, at = memo_hash(key) & mask;
    while (table->memo_slot[at] != 0 && !memo_same(&table->memos.at[table->memo_slot[at] - 1], key))
        at = (at + 1) & mask;
    return &table->memo_slot[at];
}

static void memo_grow(PathTable *table)
{
    table->memo_slots *= 2;
    table->memo_slot = ARENA_ARRAY(table->arena, int32_t, table->memo_slots);
    for (int i = 0; i < table->memos.n; i++)
        *memo_find(table, &table->memos.at[i]) = i + 1;
}

static int32_t *reach_find(PathTable *table, const Placement *place)
{
    uint64_t hash = hash_words(HASH_SEED, place, sizeof *place);
    uint64_t mask = (uint64_t)table->reach_slots - 1, at = hash & mask;
    while (table->reach_slot[at] != 0 &&
           !place_equal(&table->reached.at[table->reach_slot[at] - 1].place, place))
        at = (at + 1) & mask;
    return &table->reach_slot[at];
}

static void reach_grow(PathTable *table)
{
    table->reach_slots *= 2;
    table->reach_slot = ARENA_ARRAY(table->arena, int32_t, table->reach_slots);
    for (int i = 0; i < table->reached.n; i++)
        *reach_find(table, &table->reached.at[i].place) = i + 1;
}

/* ---- the queue: a binary heap, smallest (cost, moves, tick) first ---- */

static bool queued_before(const Queued *a, const Queued *b)
{
    if (a->cost != b->cost)
        return a->cost < b->cost;
    if (a->n != b->n)
        return a->n < b->n;
    return a->tick < b->tick;
}

static void queue_push(PathTable *table, Queued item)
{
    vec_push(table->arena, &table->queue) = item;
    int at = table->queue.n - 1;
    while (at > 0 && queued_before(&item, &table->queue.at[(at - 1) / 2])) {
        table->queue.at[at] = table->queue.at[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    table->queue.at[at] = item;
}

static Queued queue_pop(PathTable *table)
{
    Queued top = table->queue.at[0], item = table->queue.at[--table->queue.n];
    int n = table->queue.n, at = 0;
    for (int child = 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && queued_before(&table->queue.at[child + 1], &table->queue.at[child]))
            child++;
        if (!queued_before(&table->queue.at[child], &item))
            break;
        table->queue.at[at] = table->queue.at[child];
        at = child;
    }
    if (n > 0)
        table->queue.at[at] = item;
    return top;
}

/* ---- successors ---- */

static void reach(PathTable *table, int from, const Move *move, const Placement *place)
{
    const Mesh *mesh = &table->mesh;
    if (!place_fits(mesh, table->net, table->value, place))
        return;
    Reach before = table->reached.at[from];
    int64_t cost = before.cost;
    if (!move_is_free(move->kind)) {
        int64_t elements = move_elements(table->net, table->value, move, before.elements,
                                         place_elements(mesh, table->net, table->value, place));
        int64_t bytes = wire_bytes(mesh, move, elements, table->price.element_bytes);
        cost += table->price.cost(table->price.context, mesh, move, bytes);
    }
    if (table->reached.n * 2 >= table->reach_slots)
        reach_grow(table);
    int32_t *slot = reach_find(table, place);
    if (*slot != 0) {
        const Reach *old = &table->reached.at[*slot - 1];
        if (cost > old->cost || (cost == old->cost && before.n + 1 >= old->n))
            return;
    } else {
        if (table->reached.n >= NODE_CAP)
            BUG("a path search visits more than %d placements", NODE_CAP);
        vec_push(table->arena, &table->reached) = (Reach){0};
        *slot = table->reached.n;
    }
    int at = *slot - 1;
    table->reached.at[at] =
        (Reach){.place = *place,
                .move = *move,
                .cost = cost,
                .elements = place_elements(mesh, table->net, table->value, place),
                .n = before.n + 1,
                .from = from};
    queue_push(table, (Queued){cost, before.n + 1, ++table->tick, at});
}

/* Axes that moves may cut and join: not those of rows that are cut raggedly. */
static bool axis_matters(const PathTable *table, const Placement *place, int axis)
{
    int routed = value_routed_axis(table->net, table->value);
    if (axis == routed || (axis < routed && place->shard[routed].n > 0))
        return false;
    const AtomList *rows = routed != NONE ? &table->to.shard[routed] : NULL;
    bool sent = false;
    for (int i = 0; rows && i < rows->n; i++) /* tokens are cut on the way to a ragged cut */
        sent |= axis == 1 && route_axis(&table->mesh, table->net, table->value, rows->at[i]) == 1;
    return sent || place->shard[axis].n > 0 || table->to.shard[axis].n > 0;
}

static void partial_drop(Placement *place, AtomSet atoms)
{
    place->partial = (AtomSet)(place->partial & ~atoms);
    if (place->partial == 0)
        place->monoid = MONOID_NONE;
}

static bool list_append(AtomList *list, const AtomList *more)
{
    if (list->n + more->n > MAX_PER_AXIS)
        return false;
    for (int i = 0; i < more->n; i++)
        list->at[list->n++] = more->at[i];
    return true;
}

/* The next order of the list, in dictionary order; false after the last. */
static bool list_permute(AtomList *list)
{
    int i = list->n - 2, j = list->n - 1;
    while (i >= 0 && list->at[i] > list->at[i + 1])
        i--;
    if (i < 0)
        return false;
    while (list->at[j] < list->at[i])
        j--;
    int8_t swap = list->at[i];
    list->at[i] = list->at[j];
    list->at[j] = swap;
    for (i++, j = list->n - 1; i < j; i++, j--) {
        swap = list->at[i];
        list->at[i] = list->at[j];
        list->at[j] = swap;
    }
    return true;
}

static AtomList list_of(AtomSet set)
{
    AtomList list = {0};
    for (int a = 0; a < MAX_ATOMS; a++)
        if (set >> a & 1)
            list.at[list.n++] = (int8_t)a;
    return list;
}

static int set_count(AtomSet set)
{
    int n = 0;
    for (; set != 0; set &= (AtomSet)(set - 1))
        n++;
    return n;
}

/* Partial -> Replicate and Partial -> Shard, over every set of the Partial atoms at once. */
static void reach_reductions(PathTable *table, int from, const Placement *place)
{
    for (unsigned set = 1; set <= place->partial; set++) {
        if ((set & ~place->partial) != 0)
            continue;
        Placement rest = *place;
        partial_drop(&rest, (AtomSet)set);
        if (set_count((AtomSet)set) > MAX_PER_AXIS)
            continue; /* a group is an AtomList; larger sets reduce in two moves */
        Move move = {MOVE_ALL_REDUCE, list_of((AtomSet)set), NONE, NONE, {0}, 0, place->monoid, 0};
        reach(table, from, &move, &rest);
        move.kind = MOVE_REDUCE_SCATTER;
        do {
            for (int i = 0; i < table->value->axes; i++) {
                Placement next = rest;
                if (!axis_matters(table, place, i) || !list_append(&next.shard[i], &move.atoms))
                    continue;
                move.to = i;
                reach(table, from, &move, &next);
            }
        } while (list_permute(&move.atoms));
    }
}

/* Every move of one axis's minor end: gather it, exchange it for another axis, pad with zeros. */
static void reach_suffixes(PathTable *table, int from, const Placement *place, int axis)
{
    const AtomList *list = &place->shard[axis];
    int routed = value_routed_axis(table->net, table->value);
    if (routed != NONE && axis <= routed && place->shard[routed].n > 0)
        return;
    for (int k = 0; k < list->n; k++) {
        Move move = {MOVE_ALL_GATHER, {0}, axis, NONE, {0}, 0, MONOID_NONE, 0};
        Placement rest = *place;
        for (int i = k; i < list->n; i++) {
            move.atoms.at[move.atoms.n++] = list->at[i];
            rest.shard[axis].at[i] = 0;
        }
        rest.shard[axis].n = (int8_t)k;
        reach(table, from, &move, &rest);

        AtomSet set = list_set(&move.atoms);
        if (!table->price.in_place && (place->partial == 0 || place->monoid == MONOID_SUM)) {
            Placement next = rest;
            next.partial |= set;
            next.monoid = MONOID_SUM;
            move.kind = MOVE_PAD;
            move.monoid = MONOID_SUM;
            reach(table, from, &move, &next);
        }
        move.kind = MOVE_ALL_TO_ALL;
        move.monoid = MONOID_NONE;
        for (int j = 0; j < table->value->axes; j++) {
            Placement next = rest;
            if (j == axis || !axis_matters(table, place, j) ||
                !list_append(&next.shard[j], &move.atoms))
                continue;
            move.to = j;
            reach(table, from, &move, &next);
        }
    }
}

static void reach_orders(PathTable *table, int from, const Placement *place, int axis)
{
    Move move = {MOVE_PERMUTE, place->shard[axis], axis, axis, {0}, 0, MONOID_NONE, 0};
    move.order = list_of(list_set(&move.atoms));
    do {
        Placement next = *place;
        next.shard[axis] = move.order;
        if (!place_equal(&next, place))
            reach(table, from, &move, &next);
    } while (list_permute(&move.order));
}

/* Free moves of atoms on which the value is whole. */
static void reach_free(PathTable *table, int from, const Placement *place, int atom)
{
    Move move = {MOVE_SLICE, {1, {(int8_t)atom}}, NONE, NONE, {0}, 0, MONOID_NONE, 0};
    for (int i = 0; i < table->value->axes; i++) {
        Placement next = *place;
        if (!axis_matters(table, place, i) || !list_append(&next.shard[i], &move.atoms))
            continue;
        move.to = i;
        reach(table, from, &move, &next);
    }
    if (table->price.in_place || !(table->to.partial >> atom & 1) ||
        table->to.monoid != MONOID_SUM || (place->partial != 0 && place->monoid != MONOID_SUM))
        return;
    Placement next = *place;
    next.partial = (AtomSet)(next.partial | 1u << atom);
    next.monoid = MONOID_SUM;
    move.kind = MOVE_OWN;
    move.to = NONE;
    move.monoid = MONOID_SUM;
    reach(table, from, &move, &next);
}

static bool list_equal(const AtomList *a, const AtomList *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* The atoms of a ragged cut by the axis of the tokens that they are of, those of axis 0 first. */
static bool route_split(const PathTable *table, const AtomList *atoms, AtomList ret_own[2])
{
    memset(ret_own, 0, 2 * sizeof ret_own[0]);
    for (int i = 0; i < atoms->n; i++) {
        int axis = route_axis(&table->mesh, table->net, table->value, atoms->at[i]);
        if (axis == NONE || (axis == 0 && ret_own[1].n > 0))
            return false;
        ret_own[axis].at[ret_own[axis].n++] = atoms->at[i];
    }
    return true;
}

/* The list without the atoms that it ends in. */
static bool list_drop(AtomList *list, const AtomList *end)
{
    int keep = list->n - end->n;
    for (int i = 0; i < end->n; i++)
        if (keep < 0 || list->at[keep + i] != end->at[i])
            return false;
    memset(&list->at[keep], 0, (size_t)end->n);
    list->n = (int8_t)keep;
    return true;
}

/* Into a ragged cut, to just the atoms that are wanted, and out of one: see Placement. Rows of
 * other tokens come by way of these. */
static void reach_routed(PathTable *table, int from, const Placement *place)
{
    int axis = value_routed_axis(table->net, table->value);
    if (axis == NONE || axis == 0)
        return;
    const AtomList *now = &place->shard[axis], *want = &table->to.shard[axis];
    AtomList own[2];
    bool there = list_equal(now, want) &&
                 (now->n == 0 ||
                  memcmp(place->shard, table->to.shard, (size_t)axis * sizeof *place->shard) == 0);
    bool names = table->value->number == NUM_INDEX; /* cut from what is whole, never sent */
    if (there || (names && now->n > 0) || !route_split(table, now->n > 0 ? now : want, own))
        return;
    Placement next = *place;
    Move move = {MOVE_ALL_TO_ALL, now->n > 0 ? *now : *want, axis, 0, {0}, 0, MONOID_NONE,
                 own[1].n};
    if (now->n > 0) {
        memset(&next.shard[axis], 0, sizeof next.shard[axis]);
        if (list_append(&next.shard[0], &own[0]) && list_append(&next.shard[1], &own[1]))
            reach(table, from, &move, &next);
        return;
    }
    move.from = NONE;
    move.to = axis;
    next.shard[axis] = *want;
    move.kind = MOVE_SLICE;
    if ((place_used(place) & list_set(want)) == 0)
        reach(table, from, &move, &next);
    move.kind = MOVE_ALL_TO_ALL;
    move.from = 0;
    if (!names && list_drop(&next.shard[0], &own[0]) && list_drop(&next.shard[1], &own[1]))
        reach(table, from, &move, &next);
}

static void reach_all(PathTable *table, int from)
{
    Placement place = table->reached.at[from].place;
    AtomSet used = place_used(&place);
    reach_reductions(table, from, &place);
    reach_routed(table, from, &place);
    for (int i = 0; i < table->value->axes; i++) {
        reach_suffixes(table, from, &place, i);
        if (place.shard[i].n > 1 && axis_matters(table, &place, i))
            reach_orders(table, from, &place, i);
    }
    for (int a = 0; a < table->mesh.n; a++)
        if (!(used >> a & 1))
            reach_free(table, from, &place, a);
}

/* ---- paths ---- */

static bool path_search(PathTable *table, const Placement *from, Path *ret)
{
    table->reached.n = table->queue.n = table->tick = 0;
    memset(table->reach_slot, 0, (size_t)table->reach_slots * sizeof *table->reach_slot);
    vec_push(table->arena, &table->reached) =
        (Reach){.place = *from,
                .elements = place_elements(&table->mesh, table->net, table->value, from),
                .from = NONE};
    *reach_find(table, from) = 1;
    queue_push(table, (Queued){0});
    while (table->queue.n > 0) {
        Queued at = queue_pop(table);
        Reach now = table->reached.at[at.reach];
        if (at.cost != now.cost || at.n != now.n)
            continue; /* a cheaper way was found since */
        if (!place_equal(&now.place, &table->to)) {
            if (now.n < MAX_MOVES)
                reach_all(table, at.reach);
            continue;
        }
        memset(ret, 0, sizeof *ret);
        ret->cost = now.cost;
        ret->n = now.n;
        for (int i = now.n - 1, k = at.reach; i >= 0; i--) {
            ret->move[i] = table->reached.at[k].move;
            ret->after[i] = table->reached.at[k].place;
            k = table->reached.at[k].from;
        }
        return true;
    }
    return false;
}

bool path_find(PathTable *table, const Value *value, const Placement *from, const Placement *to,
               Path *ret)
{
    if (place_equal(from, to)) {
        memset(ret, 0, sizeof *ret);
        return true;
    }
    Memo key;
    memset(&key, 0, sizeof key);
    for (int i = 0; i < value->axes; i++) {
        const Dim *dim = &table->net->dims.at[value->dim[i]];
        key.extent[i] = dim->kind == DIM_ROUTED ? -1 - 4 * value->dim[i] - 2 * value->late -
                                                      (value->number == NUM_INDEX)
                                                : dim->extent;
    }
    key.from = *from;
    key.to = *to;
    if (table->memos.n * 2 >= table->memo_slots)
        memo_grow(table);
    int32_t *slot = memo_find(table, &key);
    if (*slot == 0) {
        table->value = value;
        table->to = *to;
        if (place_fits(&table->mesh, table->net, value, from) &&
            place_fits(&table->mesh, table->net, value, to))
            key.found = path_search(table, from, &key.path);
        vec_push(table->arena, &table->memos) = key;
        *slot = table->memos.n;
    }
    const Memo *memo = &table->memos.at[*slot - 1];
    *ret = memo->path;
    return memo->found;
}

bool path_nearest(PathTable *table, const Value *value, const Placement *copies, int n,
                  const Placement *to, int *ret_from, Path *ret)
{
    bool found = false;
    for (int i = 0; i < n; i++) {
        Path path;
        if (!path_find(table, value, &copies[i], to, &path))
            continue;
        if (found && (path.cost > ret->cost || (path.cost == ret->cost && path.n >= ret->n)))
            continue;
        *ret = path;
        *ret_from = i;
        found = true;
    }
    return found;
}
