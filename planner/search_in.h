/* search_in.h - the parts of the search: its space, the bound without solving, and the best cuts of
 * one family. Private to search*.c. */
#ifndef LPLAN_PLANNER_SEARCH_IN_H
#define LPLAN_PLANNER_SEARCH_IN_H

#include "planner/search.h"

/* ---- search_work.c ---- */

/* A matrix product with a parameter of two axes or more, its gradient, or attention. */
typedef struct WorkProduct {
    int64_t flops; /* of one micro-batch of one sequence; */
    bool crosses;  /* of attention, as many as its time is of (attention_flops) */
    /* that pass through memory: of parameters and their gradients, whether choices name a part of
     * them or not, and of all else for one sequence */
    int64_t named_bytes, param_bytes, moving_bytes;
    int class;
    PartKind part;    /* F, I or W */
    bool again;       /* of forward, and full recompute runs it again, */
    bool again_early; /* in I for certain */
} WorkProduct;

/* Elements of a link: parameters, those that choices name a part of, and for one sequence the
 * values that backward reads, of these the rows that nodes of experts read, and the chain input. */
typedef struct WorkLink {
    int64_t params, named, kept, rows, inputs;
    int64_t step_flops, named_step_flops; /* of products in the update, of whole matrices */
} WorkLink;

/* What no placement avoids, of one form of the model. */
typedef struct WorkForm {
    const Net *net;
    WorkProduct *product; /* of the classes */
    int n;
    WorkLink *link, all; /* of the chain; their sum */
} WorkForm;

typedef struct Work {
    WorkForm form[2]; /* as it is read, and so that experts may live apart from the tokens */
} Work;
Work work_of(Arena *arena, const Problem *problem);
/* Ns of all links for one micro-batch, forward and backward, on tp ranks: never more than any
 * card's sum. */
int64_t work_ns(const Work *work, const Problem *problem, const Pins *pins);
/* The same of each chunk and part: rows of no plan with these cuts are shorter, and hops nothing.
 */
void work_rows(const Work *work, const Problem *problem, const Pins *pins, const int *first_link,
               OrderTimes *ret);
/* Ns of the products of the update on the rank that has most of them: at least its share. */
int64_t work_update_ns(const Work *work, const Problem *problem, const Pins *pins);
/* Ns of all links of the chain before a link, of each part alone: never more than a row has. */
typedef struct LinkSum {
    int64_t ns[PART_COUNT];
} LinkSum;
/* By their work; links + 1 of them, the first of which is 0. */
void work_sums(const Work *work, const Problem *problem, const Pins *pins, LinkSum *ret);
/* The least makespan of `micros` passes through `stages` stages that share `work` as suits best:
 * stages before the busiest have to run once before it begins. */
int64_t pipeline_bound(int64_t work, int stages, int64_t micros);
/* Bytes that a rank of some stage needs at least: its share of weights, gradients and optimizer
 * state, and of one micro-batch's saved values. */
int64_t memory_bound(const Work *work, const Problem *problem, const Pins *pins);
/* Can stages that keep as many micro-batches as these rows ask for fit the budget, with these cuts,
 * or NULL: with some cuts? False only when they cannot. */
bool rows_fit(const Work *work, const Problem *problem, const Pins *pins, const Order *order,
              const int *first_link, int64_t budget);

/* Bytes and ns of every link, at least, under the pins of a family, and of its tail. */
typedef struct MixLink {
    int64_t ns[2], fixed[2], saved[2]; /* fixed: static bytes; saved: of a micro-batch */
} MixLink;
void work_links(const Work *work, const Problem *problem, const Pins *pins, MixLink *ret);

/* What rows take at least. */
typedef struct RowSums {
    const LinkSum *sum;  /* links + 1 */
    const MixLink *link; /* of a mix, which has the budget; else NULL */
    int64_t budget;
} RowSums;
/* Slots of what a chunk keeps, at least. */
int64_t order_slots(const Order *order, int chunk);

/* ---- search_deck.c ---- */

/* A pass over one link in each part, at least; braided: what others cannot hide. */
LinkSum card_least(const Card *card, bool braided);
int64_t card_least_ns(const Card *card, bool braided); /* forward and backward */
/* LinkSums by cards: of two choices (other not NULL) the shorter parts. */
void deck_sums(const Pins *pins, const Deck *deck, const Deck *other, LinkSum *ret);
/* Steps of whole matrices, at least, on the rank that has most of them: of each kind its share of
 * those of a stage, and where one stage has all, one. */
int64_t deck_update_ns(const Pins *pins, const Deck *deck);

/* ---- search_mix.c ---- */

/* Is a family one whose stages have the pins of a tail for their last links, as many as there is
 * room for? Its pins are those of all other links. */
bool pins_mix(const Pins *pins);
/* The pins of its tail alone; of the others alone. Of a family that is no mix: its own. */
Pins pins_of_tail(const Pins *pins);
Pins pins_of_base(const Pins *pins);
/* What is solved of a family: nothing, the tail of a mix (of whatever label, where the pins say
 * none), all of it. */
typedef enum { SOLVED_NONE, SOLVED_TAIL, SOLVED_BOTH } Solved;
/* By what is solved: of no plan more, in arrays of the arena. */
RowSums search_sums(Search *search, Arena *arena, const Pins *pins, int64_t budget, Solved solved);
/* Ns until the last row of a mix ends, at least, when the stages of the order hold it in the
 * budget; INT64_MAX when they cannot. */
int64_t mix_rows(Search *search, const Order *order, const Pins *pins, int64_t budget,
                 Solved solved);
/* Ns of the links of a stage for one micro-batch, at least, when it holds them in the budget;
 * INT64_MAX when it cannot. */
int64_t mix_stage_ns(const Order *order, const int *first_link, int stage, const RowSums *sums);
/* Tails are to be faster, and layers of either choice handed on as the other has them. */
bool mix_pairs(Search *search, const Pins *pins);
/* The pins of a plan of a mix: its tails become ranges of links, or its only pins. No other's
 * change. */
void mix_ranges(Arena *arena, Family *family, const int *first_link, Pins *pins);

/* ---- search_keep.c ---- */

typedef struct KeptWidth KeptWidth;
typedef struct KeptVariant KeptVariant;
typedef struct KeptOrder KeptOrder;

struct Search {
    Arena *arena;
    Arena *scratch; /* of the cards that are made at the moment */
    const Problem *problem;
    Work work;
    KeptWidth *widths;
    KeptVariant *variants;
    KeptOrder *orders[SCHEDULE_COUNT];
    int64_t solved;
};

/* The cards of complete pins: NULL when their layers cannot be placed so, or share no experts. */
const Deck *search_deck(Search *search, const Pins *pins);
/* Their schedule; NULL when it does not run with these numbers. */
const Order *search_order(Search *search, const Pins *pins);

/* ---- search_space.c ---- */

/* One chunk on every stage, and backward in one part: busy paths bound such plans. */
bool pins_plain(const Pins *pins);
bool pins_few_cuts(const Pins *pins); /* others, and pinned ones: chunk_cuts has them all */
bool pins_split(const Pins *pins);
bool pins_flow(const Pins *pins); /* from step to step: nobody waits for the world */

/* ---- search_cuts.c ---- */

typedef struct Cuts {
    int64_t step_ns; /* INT64_MAX: none is better than `below` */
    int first_link[MAX_CHUNKS + 1];
    int64_t bytes;
} Cuts;

typedef struct CutStats {
    int64_t simulated;
    bool complete; /* false: out of time, or of nodes; `bound` is what remains */
    bool left;     /* of nodes: the tree has more than it may */
    int64_t bound;
} CutStats;

/* Where a search stops. A node is an end of a stage that is looked at; every plan simulated makes
 * each of them dearer. */
enum { TREE_NODES = 1 << 18, TREE_PLANS = 1 << 12 };
typedef struct Deadline {
    int64_t end_ns;       /* of the monotonic clock; 0: none */
    int64_t nodes, plans; /* of the tree of one family; 0: any number */
} Deadline;
/* Called now and then; true: time is up. */
bool deadline_passed(const Deadline *deadline);

/* A lower bound over all cuts that fit, from busy paths; INT64_MAX when none fits under `below`.
 * `fixed` has the pinned cuts or is NULL. */
typedef struct CutTable CutTable;
CutTable *cuts_table(Arena *arena, Family *family, const int *fixed, int64_t below);
int64_t cuts_bound(const CutTable *table);
bool cuts_fit(const CutTable *table);
/* The cuts that the busy paths like best, and even ones, where they are faster than `below`. */
Cuts cuts_first(CutTable *table, int64_t below, CutStats *stats);
/* The best cuts of the family that are faster than `below`. */
Cuts cuts_search(CutTable *table, int64_t below, const Deadline *deadline, CutStats *stats);

/* ---- search_chunks.c ---- */

/* Of chunks that have layers / chunks layers each, from `begin` on `more` have one more, and the
 * first and the last may have one less. */
typedef struct ChunkCut {
    int begin, more;
    bool first, last;
} ChunkCut;
enum { MAX_CHUNK_CUTS = 4 * MAX_CHUNKS + 4 };

/* All cuts that the space has of a family with several chunks on a stage, or with W apart: pinned
 * ones; else even ones, and where layers do not divide, all of these. Returns their number; 0: some
 * chunk has no link. */
int chunk_cuts(const Problem *problem, const Pins *pins, ChunkCut *ret);
void chunk_links(const Problem *problem, const Pins *pins, const ChunkCut *cut,
                 int *ret_first_link);
/* No plan of these cuts has its last row end before: the shortest rows that any of them has, in the
 * schedule's order (which is not looked at for a mix); and the busiest stage, where that is
 * shortest. INT64_MAX: with none of them stages hold a mix. */
int64_t chunk_rows_bound(Arena *scratch, const Problem *problem, const Pins *pins,
                         const Order *order, const RowSums *sums, const ChunkCut *cut, int n);
/* The best of them that fits, if one may be faster than `below`; step_ns INT64_MAX when none was
 * simulated, and then stats->bound what those take that might fit, or INT64_MAX when none does.
 * `sums`: by cards. `tail`: what follows the last row at least. The family's tails are left as the
 * best has them. */
Cuts chunk_best(Arena *scratch, const Pins *pins, Family *family, const RowSums *sums,
                int64_t below, int64_t tail, CutStats *stats);

#endif
