/* search.h - the fastest plan of the declared space, exactly.
 *
 * Declared space: tp x cp x dp x pp over the devices, micro-batch, ZeRO 0 to 3, sequence parallel
 * or not, recompute or not, the label of the blocks, numbers of dp ranks that share experts where a
 * model has any (with room for the rows that the job's imbalance brings), and schedules. GPipe and
 * 1F1B come with every cut of the layers into stages; ZB-H1, and ZB-V and interleaved 1F1B of two
 * chunks a stage, with even layers, where these do not divide with any neighbours that have one
 * more and ends that have one less, or with pinned ones. Homes are cut over all ranks that cut
 * tokens or those inside a unit of the fastest link. Sequences of LONG_SEQUENCE and more are
 * cut over cp ranks where tp stays inside the fastest domain: some of these exchange heads, the
 * others gather or pass by blocks, whichever the solver of blocks finds better, and under a mask
 * that hides all that comes later have the sequence in a zigzag; where a mask hides what is far
 * away too, in a row as well. Layers of a stage are alike, or all make their forward again but as
 * many of the last ones as the stage has room for, whose blocks may have another label; of several
 * chunks those first whose slots take least for it, or of each as many, as far as there is room.
 * Where the problem says refine, as many of the last ones as well may have whole what the others
 * cut beyond the state. Where ranks that share experts have room for all that can come, rows may
 * come in two or four rounds, where no block is cut. A wide space has WideKind too. Pins narrow it;
 * more chunks, DualPipeV and rows of a file are there when they are pinned. A *family* is a plan
 * without its cuts. The objective is the segment simulation in integer ns; equal plans are ordered
 * by family: fewer stages, smaller tp, smaller cp, exchanged heads before a zigzag, no recompute,
 * no sp, no ZeRO, fewer ranks that share experts, larger micro-batch, 1F1B before GPipe, ZB-H1,
 * ZB-V and interleaved, the faster label.
 *
 * Best first, by a lower bound that gets better level by level: work that no placement avoids (no
 * block is solved); the schedule's rows with it, in which what they keep must fit; cards; the best
 * cuts of the busy paths, within memory; then a tree of cuts
 * under the critical paths of every plan simulated so far. When the smallest bound is no less than
 * the best plan, that plan is optimal; `gap` is what is left when time ran out before, or a tree
 * had more nodes than it may: then the best cuts found stand for the family, the same on every
 * machine.
 */
#ifndef LPLAN_PLANNER_SEARCH_H
#define LPLAN_PLANNER_SEARCH_H

#include "planner/make.h"
#include "planner/stage.h"

typedef struct Search Search;

/* The last layers of every stage, as many of them as it has room for (family_set_tail): the one
 * range of a family that is a mix. */
enum { RANGE_TAIL = RANGE_LAST + 1 };
/* Shorter sequences are cut over cp ranks only where a pin says so. */
enum { LONG_SEQUENCE = 16384 };

typedef struct SearchStats {
    /* every family considered is in one of the next four */
    int64_t considered;
    int64_t cut_memory; /* that fit no device, at any cut */
    int64_t cut_bound;  /* that cannot be faster */
    int64_t simulated;  /* of which at least one plan was simulated */
    int64_t open;       /* that time did not suffice for */
    int64_t left;       /* of those simulated: whose tree of cuts was left at TREE_NODES */
    int64_t illegal;    /* whose layers cannot be placed so; not considered */
    int64_t plans;      /* simulated: a family has many cuts */
    int64_t solved;     /* variants whose blocks were solved */
    int64_t wall_ns;
} SearchStats;

/* A plan that was simulated. */
typedef struct Found {
    Pins pins;              /* complete, with its cuts; ranges are in the problem's arena */
    int64_t step_ns, bytes; /* bytes: of the largest stage */
} Found;

/* The plan nearest to fitting, when none does: its largest stage. */
typedef struct Tightest {
    bool known;
    Pins pins;
    int stage;
    int64_t bytes, budget_bytes;
    int64_t weight_bytes, gradient_bytes, state_bytes, saved_bytes, transient_bytes;
} Tightest;

enum { MAX_RUNNERS = 8 };

/* What is dear to search and seldom faster: Problem.wide has it. */
typedef enum {
    WIDE_ETP,     /* ranks of tp share experts, or have them all, where they else cut them */
    WIDE_PASSING, /* blocks of a sequence on tp pass by products */
    WIDE_BRAID,   /* two rows in one, and DualPipeV, which was made for them */
    WIDE_CROSS,   /* tp beyond the fastest domain beside cp */
    WIDE_PADDED,  /* messages of rows have the size of their bound: no host waits for another */
    WIDE_COUNT
} WideKind;
extern const char *const wide_text[WIDE_COUNT];
/* Those of them that these pins leave open. */
unsigned wide_choices(const Problem *problem, const Pins *pins);

/* What the families of a run differ in, beyond degrees, micro-batch and yes or no. */
typedef struct SearchedSpace {
    unsigned schedules; /* set of ScheduleKind */
    int chunks;         /* most of a stage */
    int ep;             /* most ranks that share experts */
    int room;           /* where they do: percent of an even share of the rows; 0: for all */
    int rounds;         /* most in which rows come */
    int home;           /* a Memory: the farthest that any of them keeps something in */
    bool mixes;         /* stages may have layers of two choices, */
    bool mixed_homes;   /* also of homes */
    bool wide;
    unsigned open; /* set of WideKind: choices that a wide space has, and only a wide one */
} SearchedSpace;

typedef struct SearchResult {
    bool found, complete; /* complete: nothing better can exist in the space */
    Found best;
    int64_t bound_ns; /* no plan of the space is faster than this */
    int runners;      /* the best plans of other families that were simulated, fastest first */
    Found runner[MAX_RUNNERS];
    Tightest tightest;
    SearchedSpace space;
    SearchStats stats;
} SearchResult;

/* Solved variants, cards and orders are kept from one run to the next: they belong to the problem.
 */
Search *search_new(const Problem *problem);
void search_free(Search *search);
typedef struct SearchLimits {
    int64_t time_ns; /* 0: none */
    bool inside;     /* no tp group beyond the fastest domain */
    bool any;        /* is there a plan? stops at the first that fits */
} SearchLimits;
/* With no family at all (stats.considered and stats.illegal 0) the pins contradict the job. */
void search_run(Search *search, const Pins *pins, const SearchLimits *limits, SearchResult *ret);
/* Sequences of a micro-batch, where no pin says it, and micro-batches of a step. */
enum { MAX_MICRO_BATCH = 32, MAX_MICROS = 1 << 15 };
/* How many labels the blocks of these pins have, with more than one of them: pins then say which.
 * 1: there is nothing to choose, and their block is NONE; 0: their layers cannot be placed so. */
int search_labels(Search *search, const Pins *pins);
/* Has it none because the solver gave up? */
bool search_too_wide(Search *search, const Pins *pins);
/* The families that one of the space becomes once its blocks are solved: one a label; of a mix, one
 * a pair of choices. MAX_PICKS at most; 0: its layers cannot be placed so. */
enum { MAX_PICKS = MAX_LABELS * MAX_LABELS };
int search_picks(Search *search, Arena *arena, const Pins *pins, Pins **ret);
/* The variant of these pins, as a run solved it; NULL when its layers cannot be placed so. */
const Variant *search_variant(Search *search, const Pins *pins);
/* The family of complete pins, in the arena; NULL when it cannot be. Cuts of `pins` are left aside.
 */
Family *search_family(Search *search, Arena *arena, const Pins *pins);
/* Links of the cuts in complete pins, stages + 1; even ones when it has none. */
void search_links(const Problem *problem, const Pins *pins, int *ret_first_link);
/* Every family of the pins' space, in written order; for tests, which search them by brute force.
 */
int search_space(const Problem *problem, const Pins *pins, Arena *arena, Pins **ret);

#endif
