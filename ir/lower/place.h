/* place.h - the placement algebra: where the elements of a value are, and the moves that change it.
 *
 * The ranks of a pipeline stage form a mesh of atoms, small extents in rank order, fastest link
 * first (atom 0 has stride 1). A placement gives each axis of a value an ordered list of atoms
 * (major to minor), plus a set of atoms on which the value is Partial under one monoid; every atom
 * not named is Replicate. Moves touch only the minor end of an axis, so a shard is always one
 * block. Moves between placements are searched, never written down (DESIGN section 5). */
#ifndef LPLAN_IR_LOWER_PLACE_H
#define LPLAN_IR_LOWER_PLACE_H

#include "ir/graph.h"

enum { MAX_ATOMS = 8, MAX_PER_AXIS = 4, MAX_MOVES = 8 };

typedef enum { ROLE_TP, ROLE_CP, ROLE_DP, ROLE_EP, ROLE_ETP, ROLE_COUNT } Role;
extern const char *const role_text[ROLE_COUNT];

typedef struct Atom {
    int extent;
    Role role; /* of dense layers */
    int level; /* index of the cluster's link level that one step along this atom crosses; 0 is the
                  fastest */
} Atom;

typedef uint8_t AtomSet; /* bit a: atom a */

typedef struct Mesh {
    int n;
    Atom atom[MAX_ATOMS];
    AtomSet ep;  /* whose ranks share experts: in layers of experts this is their role */
    AtomSet etp; /* atoms of dp whose ranks there cut each expert, as those of tp do */
    AtomSet edp; /* atoms of tp that do not: their ranks hold the same experts for other tokens */
} Mesh;

/* Ordered atoms, major to minor. */
typedef struct AtomList {
    int8_t n;
    int8_t at[MAX_PER_AXIS];
} AtomList;

/* Compared with memcmp: unused entries are zero.
 *
 * An axis of a routed dim is cut *raggedly*: a rank has the rows (of all axes up to and with this
 * one) whose choices name what it holds, in their order, and behind them room to a static bound
 * (zeros; in the choices themselves -1, nobody). Where messages are padded (Net.exchange), the rows
 * from each rank have an equal part of the room, and behind them the rest of that part, which holds
 * anything. Its local extents are 1 for the axes before and
 * the bound for the axis (route_room). It is entered and left whole: by an exchange with the axes
 * of the tokens, whose minor ends it takes, and by a cut of what is whole. Its atoms of dp are
 * those of axis 0 (the batch) and come first, those of tp and cp those of axis 1 (the sequence).
 * Rows come in the order of the ranks whose tokens they are, and then of these tokens. All of these
 * moves read the choices, whole over the atoms; so choices themselves are only cut. */
typedef struct Placement {
    AtomList shard[MAX_AXES];
    AtomSet partial;
    uint8_t monoid; /* Monoid; MONOID_NONE unless partial */
} Placement;

typedef enum {
    MOVE_ALL_REDUCE,     /* Partial -> Replicate */
    MOVE_REDUCE_SCATTER, /* Partial -> Shard(to) */
    MOVE_ALL_GATHER,     /* Shard(from) -> Replicate */
    MOVE_ALL_TO_ALL,     /* Shard(from) -> Shard(to) */
    MOVE_ROTATE,         /* every block goes `by` places on along the group; of rings only */
    MOVE_PERMUTE,        /* Shard(from), atoms reordered */
    MOVE_SLICE,          /* Replicate -> Shard(to), free */
    MOVE_OWN,            /* Replicate -> Partial: coordinate 0 keeps it, free */
    MOVE_PAD,            /* Shard(from) -> Partial: zeros elsewhere, free */
    MOVE_KIND_COUNT
} MoveKind;
extern const char *const move_text[MOVE_KIND_COUNT];

typedef struct Move {
    MoveKind kind;
    AtomList atoms; /* the group; its order is the order of blocks */
    int from, to;   /* axes, NONE where they do not apply */
    AtomList order; /* permute: the axis's new list */
    int by;         /* rotate */
    uint8_t monoid;
    int8_t tail; /* of a ragged cut: so many of the atoms, the last ones, are of axis 1 */
} Move;

typedef struct Path {
    int64_t cost; /* of the moves, in the price's unit */
    int n;
    Move move[MAX_MOVES];
    Placement after[MAX_MOVES]; /* placement after each move; the last is the destination */
} Path;

/* What a move costs. Units are the caller's (ns in the planner); `bytes` is what each rank sends,
 * by wire_bytes. Free moves cost 0 and are not asked for. */
typedef struct MovePrice {
    int64_t (*cost)(const void *context, const Mesh *mesh, const Move *move, int64_t bytes);
    const void *context;
    int element_bytes;
    const struct Cluster *cluster; /* what kernels cost too, by which instructions are ordered;
                                      NULL: in the order of the nodes */
    bool in_place; /* no copy stands for a Partial: zeros would have to be written for that */
} MovePrice;

int mesh_ranks(const Mesh *mesh);
int mesh_extent(const Mesh *mesh, AtomSet atoms);
int list_extent(const Mesh *mesh, const AtomList *list);
AtomSet list_set(const AtomList *list);
/* Coordinate of rank `rank` on atom a; index of a rank along a list (mixed radix, major first). */
int mesh_coordinate(const Mesh *mesh, int rank, int atom);
int list_index(const Mesh *mesh, const AtomList *list, int rank);
/* The ranks of the group of `rank` along the list, ordered by list_index. Returns their number. */
int mesh_group(const Mesh *mesh, const AtomList *list, int rank, int *ret_ranks, int cap);
/* The rank whose index along the list is `by` more than that of `rank`, all round; else it. */
int mesh_turned(const Mesh *mesh, const AtomList *list, int rank, int by);
/* Those that have the role in dense layers or, ep, in layers of experts. */
AtomSet role_atoms(const Mesh *mesh, Role role);
bool mesh_has_experts(const Mesh *mesh); /* some atom has a role of its own in their layers */
AtomSet token_atoms(const Mesh *mesh);   /* of dp and cp: every gradient is a sum over them */

Placement place_replicate(void);
bool place_equal(const Placement *a, const Placement *b);
AtomSet place_used(const Placement *place); /* shard or partial */
AtomSet place_sharded(const Placement *place);
/* Every axis divides by its atoms. */
bool place_fits(const Mesh *mesh, const Net *net, const Value *value, const Placement *place);
/* Local elements; those of one axis. */
int64_t place_elements(const Mesh *mesh, const Net *net, const Value *value,
                       const Placement *place);
int64_t place_local(const Mesh *mesh, const Net *net, const Value *value, const Placement *place,
                    int axis);
/* Global index of the first local element along the axis, on a rank. */
int64_t place_origin(const Mesh *mesh, const Net *net, const Value *value, const Placement *place,
                     int axis, int rank);
/* "{s:a0 h:a2.a1 sum(a3)}" with dim names; parsed back by place_parse (axes by position of the
 * value). */
void place_put(Str *str, const Net *net, const Value *value, const Placement *place);
bool place_parse(const Net *net, const Value *value, const char *text, Placement *ret);

/* What one node does on each atom: exactly one of a letter, Replicate, or a linear operand set. */
typedef uint8_t Choice;
enum {
    CHOICE_REPLICATE = 0,
    CHOICE_LETTER = 1 /* + letter index */,
    CHOICE_LINEAR = 64 /* + index of the set */
};
typedef struct NodeChoice {
    Choice atom[MAX_ATOMS];
    /* CHOICE_LETTER + a letter whose blocks pass by on this atom, while the letter of `atom` stays;
     * or 0. Operands without the staying letter are sharded along the passing one and travel;
     * so do results, as sums that are complete when they come home. What has both is whole along
     * the passing letter, and each turn works on one block of it where it lies; what has neither is
     * merged by the op's monoid. Together these atoms are a ring: the node runs once a block
     * (DESIGN section 5, rotate; Liu et al. 2023, ring attention; Wang et al. 2023, products that
     * overlap with their collectives). */
    Choice travel[MAX_ATOMS];
} NodeChoice;

/* The axis that a placement cuts raggedly, or NONE. */
int place_routed(const Net *net, const Value *value, const Placement *place);
/* Is this a move into or out of a ragged cut? */
bool move_is_routed(const Net *net, const Value *value, const Move *move);
/* The axis of the tokens that an atom of a ragged cut takes its ranks' rows from: 0 or 1. NONE when
 * the value has no such axis. */
int route_axis(const Mesh *mesh, const Net *net, const Value *value, int atom);
/* How the rows of a group lie among the choices of all its tokens, an array of these extents:
 * [ranks / cuts][..][cuts][run], so that rank i has the runs at i / cuts, i % cuts. */
typedef struct RouteRuns {
    int64_t cuts, run;
} RouteRuns;
RouteRuns route_runs(const Mesh *mesh, const Move *move, const int64_t choices[MAX_AXES], int axes);
/* Where the choices must be for a routed move between these two placements of a value. */
Placement place_of_route(const Net *net, const Value *value, const Placement *from,
                         const Placement *to, const Move *move);

/* The whole legality rule. Operand and output placements that a choice means; false when illegal
 * (one monoid per value, letters that may not be split, or extents that do not divide). Several
 * atoms on one letter are ordered with the highest atom (the slowest link) major. On a letter that
 * counts no tokens the atoms of tp are major to all others: those lend it ranks that they take from
 * the tokens, and moves touch the minor end only. What is named by choices is cut as their rows. */
bool place_node(const Mesh *mesh, const Net *net, const Graph *graph, const Node *node,
                const NodeChoice *choice, Placement *ret_in, Placement *ret_out);
/* Turns are unrolled, and proofs know them as the bits of a word: no longer ring is legal. */
enum { MAX_TURNS = 64 };
/* The atoms on which blocks pass by, major first; empty when the node runs once. */
AtomList node_ring(const Mesh *mesh, const NodeChoice *choice);
/* May the node see the letter block by block? One that no atom may shard, when the node takes its
 * origin; any other, when the kernel works on a block of an operand where it lies (kernels.def). */
bool letter_travels(const Node *node, int letter);
/* The axis of an operand or result, of these letters, of which a node of this ring works on one
 * block a turn: that of the passing letter, where it has the staying one too. NONE without. */
int ring_block_axis(const AtomList *ring, const NodeChoice *choice, const int8_t *letters,
                    int axes);
/* Operand sets that must be Partial together, of those the op's row names and the node has. */
int node_linear_sets(const Node *node);
uint8_t node_linear_set(const Node *node, int index); /* set of operand positions */

/* Copies that cost nothing: a whole copy stands for its shards (slice) and, under sum, for its
 * Partial (own); a shard stands for a Partial (pad). True when `want` is `have` or such a view of
 * it. */
bool place_is_view(const Placement *have, const Placement *want);

/* Of what a rank holds before a move and behind it, the elements that the move carries: what is
 * there before, but of rows that go by whom they name, on either way, the even share of tokens that
 * an even router sends, not their room, and none of a late round; where they are padded, their
 * room. */
int64_t move_elements(const Net *net, const Value *value, const Move *move, int64_t before,
                      int64_t behind);
/* Bytes each rank sends for one move that carries n_local elements of it (move_elements). */
int64_t wire_bytes(const Mesh *mesh, const Move *move, int64_t n_local, int element_bytes);

/* Cheapest path between two placements of a value (Dijkstra over whole collectives: one edge spans
 * any set of atoms, priced as one). Memoised in the table. False when there is none, or either end
 * does not fit the value. Ties: fewer moves, then the order in which move.c writes successors. No
 * path: another monoid, or Partial wanted where the value is not a sum. */
typedef struct PathTable PathTable;
PathTable *path_table_new(Arena *arena, const Mesh *mesh, const Net *net, const MovePrice *price);
bool path_find(PathTable *table, const Value *value, const Placement *from, const Placement *to,
               Path *ret);
/* The cheapest of several copies to start from; *ret_from is its index. */
bool path_nearest(PathTable *table, const Value *value, const Placement *copies, int n,
                  const Placement *to, int *ret_from, Path *ret);
/* The price the prototypes use: 1 unit of latency a collective, 1000 a byte, free moves 0. */
MovePrice path_plain_price(int element_bytes);

#endif
