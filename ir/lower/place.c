/* place.c - placements: where the elements of a value are, and which placements one node may have.
 */
#include "ir/lower/place.h"

#include <stdlib.h>
#include <string.h>

const char *const role_text[ROLE_COUNT] = {
    [ROLE_TP] = "tp", [ROLE_CP] = "cp", [ROLE_DP] = "dp", [ROLE_EP] = "ep", [ROLE_ETP] = "etp",
};

/* ---- placements ---- */

Placement place_replicate(void)
{
    Placement place;
    memset(&place, 0, sizeof place);
    return place;
}

bool place_equal(const Placement *a, const Placement *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

AtomSet place_sharded(const Placement *place)
{
    AtomSet set = 0;
    for (int i = 0; i < MAX_AXES; i++)
        set |= list_set(&place->shard[i]);
    return set;
}

AtomSet place_used(const Placement *place)
{
    return place_sharded(place) | place->partial;
}

static int64_t axis_extent(const Net *net, const Value *value, int axis)
{
    return net->dims.at[value->dim[axis]].extent;
}

int place_routed(const Net *net, const Value *value, const Placement *place)
{
    int axis = value_routed_axis(net, value);
    return axis != NONE && place->shard[axis].n > 0 ? axis : NONE;
}

/* What the elements of an axis are told apart by when it is cut: its own index, or what is named.
 */
static int64_t cut_extent(const Net *net, const Value *value, int axis)
{
    const Dim *dim = &net->dims.at[value->dim[axis]];
    return dim->kind == DIM_ROUTED ? net->dims.at[dim->among].extent : dim->extent;
}

bool place_fits(const Mesh *mesh, const Net *net, const Value *value, const Placement *place)
{
    for (int i = 0; i < MAX_AXES; i++) {
        const AtomList *list = &place->shard[i];
        if (list->n == 0)
            continue;
        if (i >= value->axes || cut_extent(net, value, i) % list_extent(mesh, list) != 0)
            return false;
    }
    return true;
}

static int64_t dense_local(const Mesh *mesh, const Net *net, const Value *value,
                           const Placement *place, int axis)
{
    return axis_extent(net, value, axis) / list_extent(mesh, &place->shard[axis]);
}

int64_t place_local(const Mesh *mesh, const Net *net, const Value *value, const Placement *place,
                    int axis)
{
    int routed = place_routed(net, value, place);
    if (routed == NONE || axis > routed)
        return dense_local(mesh, net, value, place, axis);
    if (axis < routed)
        return 1;
    int64_t tokens = 1;
    for (int i = 0; i < routed; i++)
        tokens *= dense_local(mesh, net, value, place, i);
    return route_room(net, tokens, axis_extent(net, value, axis), cut_extent(net, value, axis),
                      list_extent(mesh, &place->shard[axis]));
}

int64_t place_elements(const Mesh *mesh, const Net *net, const Value *value, const Placement *place)
{
    int64_t n = 1;
    for (int i = 0; i < value->axes; i++)
        n *= place_local(mesh, net, value, place, i);
    return n;
}

int64_t place_origin(const Mesh *mesh, const Net *net, const Value *value, const Placement *place,
                     int axis, int rank)
{
    int routed = place_routed(net, value, place);
    if (routed != NONE && axis <= routed)
        return 0; /* rows that came from anywhere */
    return list_index(mesh, &place->shard[axis], rank) * place_local(mesh, net, value, place, axis);
}

bool move_is_routed(const Net *net, const Value *value, const Move *move)
{
    int axis = value_routed_axis(net, value);
    return axis != NONE && move->atoms.n > 0 && (move->from == axis || move->to == axis);
}

int64_t move_elements(const Net *net, const Value *value, const Move *move, int64_t before,
                      int64_t behind)
{
    if (!move_is_routed(net, value, move))
        return before;
    if (net->exchange == EXCHANGE_PADDED)
        return before > behind ? before : behind;
    return value->late ? 0 : before < behind ? before : behind;
}

int route_axis(const Mesh *mesh, const Net *net, const Value *value, int atom)
{
    int axis = mesh->atom[atom].role == ROLE_DP ? 0 : 1, routed = value_routed_axis(net, value);
    if (axis == 1 && (routed < 2 || net->dims.at[value->dim[1]].kind != DIM_SEQUENCE))
        return NONE;
    return axis;
}

RouteRuns route_runs(const Mesh *mesh, const Move *move, const int64_t choices[MAX_AXES], int axes)
{
    RouteRuns runs = {1, 1};
    for (int i = move->atoms.n - move->tail; i < move->atoms.n; i++)
        runs.cuts *= mesh->atom[move->atoms.at[i]].extent;
    for (int a = move->tail > 0 ? 1 : 0; a < axes; a++)
        runs.run *= choices[a];
    runs.run /= runs.cuts;
    if (move->tail == 0)
        runs.run /= list_extent(mesh, &move->atoms);
    return runs;
}

Placement place_of_route(const Net *net, const Value *value, const Placement *from,
                         const Placement *to, const Move *move)
{
    int axis = value_routed_axis(net, value);
    const Placement *dense = move->to == axis ? from : to;
    Placement place = place_replicate();
    memcpy(place.shard, dense->shard, (size_t)axis * sizeof place.shard[0]);
    for (int i = 0; move->kind == MOVE_ALL_TO_ALL && i < move->atoms.n; i++) {
        AtomList *tokens = &place.shard[i < move->atoms.n - move->tail ? 0 : 1];
        tokens->at[--tokens->n] = 0;
    }
    return place;
}

/* ---- text ---- */

/* Which axis of its dim this is, when the value has the dim more than once: 0 for the first. */
static int axis_repeat(const Value *value, int axis)
{
    int repeat = 0;
    for (int i = 0; i < axis; i++)
        repeat += value->dim[i] == value->dim[axis];
    return repeat;
}

void place_put(Str *str, const Net *net, const Value *value, const Placement *place)
{
    const char *gap = "";
    str_putc(str, '{');
    for (int i = 0; i < value->axes; i++) {
        const AtomList *list = &place->shard[i];
        if (list->n == 0)
            continue;
        str_putf(str, "%s%s", gap, net->dims.at[value->dim[i]].name);
        if (axis_repeat(value, i) > 0)
            str_putf(str, "@%d", axis_repeat(value, i));
        for (int k = 0; k < list->n; k++)
            str_putf(str, "%sa%d", k == 0 ? ":" : ".", list->at[k]);
        gap = " ";
    }
    if (place->partial != 0) {
        const char *comma = "";
        str_putf(str, "%s%s(", gap, monoid_text[place->monoid]);
        for (int a = 0; a < MAX_ATOMS; a++) {
            if (place->partial >> a & 1) {
                str_putf(str, "%sa%d", comma, a);
                comma = ",";
            }
        }
        str_putc(str, ')');
    }
    str_putc(str, '}');
}

/* One atom, "a3"; -1 when it is none or was seen. */
static int atom_parse(const char **text, AtomSet *seen)
{
    if ((*text)[0] != 'a' || (*text)[1] < '0' || (*text)[1] >= '0' + MAX_ATOMS)
        return -1;
    int atom = (*text)[1] - '0';
    if (*seen >> atom & 1)
        return -1;
    *seen = (AtomSet)(*seen | 1u << atom);
    *text += 2;
    return atom;
}

/* The length of `word` when the text starts with it and goes on with `next`; 0 when not. */
static size_t word_match(const char *text, const char *word, const char *next)
{
    size_t n = strlen(word);
    return strncmp(text, word, n) == 0 && text[n] != '\0' && strchr(next, text[n]) != NULL ? n : 0;
}

static bool shard_parse(const Net *net, const Value *value, const char **text, AtomSet *seen,
                        Placement *ret)
{
    for (int i = 0; i < value->axes; i++) {
        size_t n = word_match(*text, net->dims.at[value->dim[i]].name, ":@");
        const char *at = *text + n;
        int repeat = 0;
        if (n == 0)
            continue;
        if (*at == '@' && at[1] >= '0' && at[1] <= '9') {
            repeat = at[1] - '0';
            at += 2;
        }
        if (*at != ':' || repeat != axis_repeat(value, i))
            continue;
        AtomList *list = &ret->shard[i];
        if (list->n != 0)
            return false;
        do {
            at++;
            int atom = list->n < MAX_PER_AXIS ? atom_parse(&at, seen) : -1;
            if (atom < 0)
                return false;
            list->at[list->n++] = (int8_t)atom;
        } while (*at == '.');
        *text = at;
        return true;
    }
    return false;
}

static bool partial_parse(const char **text, AtomSet *seen, Placement *ret)
{
    for (int m = MONOID_NONE + 1; m < MONOID_COUNT; m++) {
        size_t n = word_match(*text, monoid_text[m], "(");
        const char *at = *text + n;
        if (n == 0)
            continue;
        if (ret->partial != 0)
            return false;
        ret->monoid = (uint8_t)m;
        do {
            at++;
            int atom = atom_parse(&at, seen);
            if (atom < 0)
                return false;
            ret->partial = (AtomSet)(ret->partial | 1u << atom);
        } while (*at == ',');
        if (*at != ')')
            return false;
        *text = at + 1;
        return true;
    }
    return false;
}

bool place_parse(const Net *net, const Value *value, const char *text, Placement *ret)
{
    AtomSet seen = 0;
    Placement place = place_replicate();
    if (*text != '{')
        return false;
    text++;
    while (*text != '}') {
        if (!shard_parse(net, value, &text, &seen, &place) && !partial_parse(&text, &seen, &place))
            return false;
        if (*text == ' ' && text[1] != '}')
            text++;
        else if (*text != '}')
            return false;
    }
    if (text[1] != '\0')
        return false;
    *ret = place;
    return true;
}

/* ---- nodes ---- */

uint8_t node_linear_set(const Node *node, int index)
{
    int at = 0;
    uint8_t set = 0;
    for (const char *c = op_info[node->op].linear;; c++) {
        if (*c >= '0' && *c <= '9') {
            set = (uint8_t)(set | 1u << (*c - '0'));
        } else {
            /* A row that many signatures share may name operands that this node lacks. */
            bool real = set != 0 && set < 1u << node->ins;
            if (real && at++ == index)
                return set;
            if (*c == '\0')
                return 0;
            set = 0;
        }
    }
}

int node_linear_sets(const Node *node)
{
    int n = 0;
    while (node_linear_set(node, n) != 0)
        n++;
    return n;
}

static bool letters_have(const int8_t *letters, int axes, int letter)
{
    for (int i = 0; i < axes; i++)
        if (letters[i] == letter)
            return true;
    return false;
}

/* Adds a Partial atom; false when the value already has another monoid. */
static bool partial_add(Placement *place, int atom, Monoid monoid)
{
    if (place->partial != 0 && place->monoid != monoid)
        return false;
    place->partial = (AtomSet)(place->partial | 1u << atom);
    place->monoid = (uint8_t)monoid;
    return true;
}

/* Puts an atom on every axis of the value that has the letter. Atoms come highest first, so the
 * list is major to minor. */
static bool letter_add(Placement *place, const int8_t *letters, int axes, int letter, int atom)
{
    for (int i = 0; i < axes; i++) {
        if (letters[i] != letter)
            continue;
        AtomList *list = &place->shard[i];
        if (list->n == MAX_PER_AXIS)
            return false;
        list->at[list->n++] = (int8_t)atom;
    }
    return true;
}

/* The routed letter of a node, or NONE. */
static int routed_letter(const Net *net, const Node *node)
{
    for (int l = 0; l < node->sig.letters; l++)
        if (net->dims.at[node->sig.dim[l]].kind == DIM_ROUTED)
            return l;
    return NONE;
}

/* Rows of single choices lie close, by whom they name: an operand with letters of their tokens is
 * cut with them, so it has the choices too. */
static bool rows_go_along(const Graph *graph, const Node *node, int routed)
{
    uint16_t tokens = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < node->ins + node->outs; k++) {
            bool in = k < node->ins;
            const int8_t *letters = in ? node->sig.in[k] : node->sig.out[k - node->ins];
            int axes = graph->values.at[in ? node->in[k] : node->out[k - node->ins]].axes;
            bool own = letters_have(letters, axes, routed);
            for (int a = 0; a < axes && (pass == 1 || letters[a] != routed); a++) {
                if (pass == 0 && own)
                    tokens |= (uint16_t)(1u << letters[a]);
                if (pass == 1 && !own && (tokens >> letters[a] & 1))
                    return false;
            }
        }
    return true;
}

/* What is cut beside a letter: the rows of choices when it stands for what they name. A routed
 * letter is cut with that one, never alone. */
static bool letter_follower(const Graph *graph, const Node *node, int letter, int *ret)
{
    const Net *net = graph->net;
    int routed = routed_letter(net, node), naming = node_naming_letter(net, node);
    *ret = NONE;
    if (routed == NONE || (letter != routed && letter != naming))
        return true;
    *ret = letter == naming ? routed : NONE;
    return (letter == naming || naming == NONE) && rows_go_along(graph, node, routed);
}

bool letter_travels(const Node *node, int letter)
{
    if (letter < 0 || letter >= node->sig.letters)
        return false;
    return node->sig.nosplit >> letter & 1 ? node->sig.base >> letter & 1
                                           : kernel_info[op_info[node->op].form].in_place;
}

int ring_block_axis(const AtomList *ring, const NodeChoice *choice, const int8_t *letters, int axes)
{
    if (ring->n == 0 || !letters_have(letters, axes, choice->atom[ring->at[0]] - CHOICE_LETTER))
        return NONE;
    for (int a = 0; a < axes; a++)
        if (letters[a] == choice->travel[ring->at[0]] - CHOICE_LETTER)
            return a;
    return NONE;
}

AtomList node_ring(const Mesh *mesh, const NodeChoice *choice)
{
    AtomList ring = {0};
    for (int a = mesh->n - 1; a >= 0; a--)
        if (choice->travel[a] != 0 && ring.n < MAX_PER_AXIS)
            ring.at[ring.n++] = (int8_t)a;
    return ring;
}

/* `travel`: a letter that passes by, or NONE. */
static bool choice_letter(const Graph *graph, const Node *node, int letter, int travel, int atom,
                          Placement *ret_in, Placement *ret_out)
{
    int also;
    if (letter >= node->sig.letters || (node->sig.nosplit >> letter & 1) ||
        (travel != NONE && !letter_travels(node, travel)) ||
        !letter_follower(graph, node, letter, &also))
        return false;
    for (int k = 0; k < node->ins; k++) {
        const int8_t *letters = node->sig.in[k];
        int axes = graph->values.at[node->in[k]].axes;
        int cut = letters_have(letters, axes, letter) ? letter : travel;
        if (!letter_add(&ret_in[k], letters, axes, cut, atom) ||
            (also != NONE && !letter_add(&ret_in[k], letters, axes, also, atom)))
            return false;
    }
    for (int k = 0; k < node->outs; k++) {
        const int8_t *letters = node->sig.out[k];
        int axes = graph->values.at[node->out[k]].axes;
        int kept = letters_have(letters, axes, letter)   ? letter
                   : letters_have(letters, axes, travel) ? travel
                                                         : NONE;
        bool goes = also != NONE && letters_have(letters, axes, also);
        if ((kept != NONE && !letter_add(&ret_out[k], letters, axes, kept, atom)) ||
            (goes && !letter_add(&ret_out[k], letters, axes, also, atom)))
            return false;
        if (kept == NONE && !goes && !partial_add(&ret_out[k], atom, op_info[node->op].monoid))
            return false;
    }
    return true;
}

static bool choice_linear(const Node *node, uint8_t set, int atom, Placement *ret_in,
                          Placement *ret_out)
{
    if (set == 0)
        return false;
    for (int k = 0; k < node->ins; k++)
        if ((set >> k & 1) && !partial_add(&ret_in[k], atom, MONOID_SUM))
            return false;
    for (int k = 0; k < node->outs; k++)
        if (!partial_add(&ret_out[k], atom, MONOID_SUM))
            return false;
    return true;
}

static bool choose_atom(const Graph *graph, const Node *node, int atom, const NodeChoice *from,
                        Placement *ret_in, Placement *ret_out)
{
    int choice = from->atom[atom], travel = from->travel[atom] - CHOICE_LETTER;
    bool letter = choice >= CHOICE_LETTER && choice < CHOICE_LINEAR;
    if (from->travel[atom] == 0)
        travel = NONE;
    else if (!letter || travel == choice - CHOICE_LETTER)
        return false;
    if (choice >= CHOICE_LINEAR)
        return choice_linear(node, node_linear_set(node, choice - CHOICE_LINEAR), atom, ret_in,
                             ret_out);
    return !letter ||
           choice_letter(graph, node, choice - CHOICE_LETTER, travel, atom, ret_in, ret_out);
}

/* An atom of the tokens on a letter that counts none. */
static bool atom_is_lent(const Mesh *mesh, const Net *net, const Node *node, int atom, int choice)
{
    int letter = choice - CHOICE_LETTER;
    return choice != CHOICE_REPLICATE && choice < CHOICE_LINEAR && letter < node->sig.letters &&
           mesh->atom[atom].role != ROLE_TP && letter != node_naming_letter(net, node) &&
           net->dims.at[node->sig.dim[letter]].kind == DIM_OTHER;
}

/* Blocks of what has both letters lie together where they are those that pass by: the ring is the
 * minor end of what cuts these, and the rest cuts both alike. All atoms of a ring do one thing, and
 * it is no longer than turns can be told apart. */
static bool ring_fits(const Mesh *mesh, const Graph *graph, const Node *node,
                      const NodeChoice *choice, const Placement *in, const Placement *out)
{
    AtomList ring = node_ring(mesh, choice), passing = {.n = -1}, whole = {.n = -1};
    if (list_extent(mesh, &ring) > MAX_TURNS)
        return false;
    for (int i = 1; i < ring.n; i++)
        if (choice->atom[ring.at[i]] != choice->atom[ring.at[0]] ||
            choice->travel[ring.at[i]] != choice->travel[ring.at[0]])
            return false;
    for (int k = 0; ring.n > 0 && k < node->ins + node->outs; k++) {
        bool is_in = k < node->ins;
        const int8_t *letters = is_in ? node->sig.in[k] : node->sig.out[k - node->ins];
        int axes = graph->values.at[is_in ? node->in[k] : node->out[k - node->ins]].axes;
        const Placement *place = is_in ? &in[k] : &out[k - node->ins];
        int block = ring_block_axis(&ring, choice, letters, axes);
        for (int a = 0; a < axes; a++) {
            AtomList *seen = a == block ? &whole : &passing;
            if (letters[a] != choice->travel[ring.at[0]] - CHOICE_LETTER)
                continue;
            if (seen->n >= 0 && memcmp(seen, &place->shard[a], sizeof *seen) != 0)
                return false;
            *seen = place->shard[a];
        }
    }
    if (whole.n < 0 || passing.n < 0)
        return ring.n == 0 || whole.n < 0; /* what stays whole and meets nobody has no turns */
    for (int i = 0; i < ring.n && whole.n < MAX_PER_AXIS; i++)
        whole.at[whole.n++] = ring.at[i];
    return memcmp(&whole, &passing, sizeof whole) == 0;
}

/* What is dealt out to rounds fills the room of a receiver evenly when it deals with nobody else's
 * rows: ranks that hold the same experts for other tokens deal out blocks of their own. */
static bool deals_alone(const Mesh *mesh, const Node *node, const NodeChoice *choice)
{
    for (int a = 0; op_info[node->op].attrs == ATTRS_deal && a < mesh->n; a++)
        if ((mesh->edp >> a & 1) && choice->atom[a] == CHOICE_REPLICATE)
            return false;
    return true;
}

bool place_node(const Mesh *mesh, const Net *net, const Graph *graph, const Node *node,
                const NodeChoice *choice, Placement *ret_in, Placement *ret_out)
{
    for (int k = 0; k < node->ins; k++)
        ret_in[k] = place_replicate();
    for (int k = 0; k < node->outs; k++)
        ret_out[k] = place_replicate();
    for (int lent = 0; lent < 2; lent++)
        for (int a = mesh->n - 1; a >= 0; a--)
            if (atom_is_lent(mesh, net, node, a, choice->atom[a]) == (lent == 1) &&
                !choose_atom(graph, node, a, choice, ret_in, ret_out))
                return false;
    for (int k = 0; k < node->ins; k++)
        if (!place_fits(mesh, net, &graph->values.at[node->in[k]], &ret_in[k]))
            return false;
    for (int k = 0; k < node->outs; k++)
        if (!place_fits(mesh, net, &graph->values.at[node->out[k]], &ret_out[k]))
            return false;
    return deals_alone(mesh, node, choice) && ring_fits(mesh, graph, node, choice, ret_in, ret_out);
}

/* ---- views ---- */

bool place_is_view(const Placement *have, const Placement *want)
{
    AtomSet padded = 0, free_atoms = (AtomSet)~place_used(have);
    bool sum = want->partial == 0 || want->monoid == MONOID_SUM;
    for (int i = 0; i < MAX_AXES; i++) {
        const AtomList *h = &have->shard[i], *w = &want->shard[i];
        int same = 0;
        while (same < h->n && same < w->n && h->at[same] == w->at[same])
            same++;
        for (int k = same; k < h->n; k++)
            padded = (AtomSet)(padded | 1u << h->at[k]);
        for (int k = same; k < w->n; k++)
            if (!(free_atoms >> w->at[k] & 1))
                return false;
    }
    AtomSet added = (AtomSet)(want->partial & ~have->partial);
    if ((have->partial & ~want->partial) != 0 || (padded & ~added) != 0)
        return false;
    if ((added & ~padded & ~free_atoms) != 0)
        return false;
    if (added != 0)
        return sum && (have->partial == 0 || have->monoid == MONOID_SUM);
    return have->monoid == want->monoid;
}
