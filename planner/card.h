/* card.h - what one link costs: a class lowered under one variant and simulated alone.
 *
 * A card holds everything the segment simulation and the memory sum need of a link, so that a
 * search adds cards and never lowers a plan. Figures are those of one stage rank. */
#ifndef LPLAN_PLANNER_CARD_H
#define LPLAN_PLANNER_CARD_H

#include "ir/lower/braid.h"
#include "ir/lower/matrix.h"
#include "planner/variant.h"

/* One pass over the link, forward or backward, on the compute and the block stream. */
typedef struct CardSegment {
    int64_t ns;                   /* until its last instruction ends */
    int64_t next_ns;              /* by how much it lengthens a row that it is not the first of */
    int64_t compute_ns;           /* the compute stream works */
    int64_t block_ns[MAX_LEVELS]; /* the block stream works, per link level */
    int64_t wire_bytes;           /* sent in collectives */
    int64_t flops;                /* of matrix products, recomputed ones included */
} CardSegment;

/* Steps of whole matrices by kind, mesh, machine and optimizer: many cards have the same. */
typedef struct StepShelf StepShelf;
StepShelf *step_shelf_new(Arena *arena);

/* The step of the whole matrices of a group. */
typedef struct CardMatrix {
    MatrixKey key;
    const Body *body;
    int64_t unit;                /* elements that one takes in its group */
    int64_t ns, block_ns, flops; /* of one: all, its collectives, its products */
    int64_t scratch_bytes;
} CardMatrix;

/* Parameters of the link that take one path to their optimizer: a part of a Program's group. */
typedef struct CardGroup {
    AtomSet sharded, partial;     /* of their accumulators, on the card's mesh */
    double rate;                  /* Param.rate of all of them */
    const CardMatrix *matrix;     /* they are whole matrices of one kind; or NULL */
    int tied;                     /* the other home link of a tied parameter, or NONE */
    bool second;                  /* this is the second use of it */
    int64_t elements;             /* local, each parameter padded to 16, or to whole units */
    int64_t ready_ns;             /* in backward (in W where it is split): all are complete */
    bool decay_first, decay_last; /* of its first and last parameter, in order */
    int decay_runs;               /* runs of parameters with one decay flag */
} CardGroup;

typedef struct Card {
    const Homes *cut;                      /* of its parameters; NULL: as the family says for all */
    CardSegment forward, backward, weight; /* of a split backward: I and W */
    int groups;
    CardGroup *group;
    int64_t saved_bytes[SAVED_KINDS]; /* of a slot of each kind, without values of the chain */
    int64_t in_bytes, out_bytes, grad_in_bytes, grad_out_bytes;
    int64_t scratch_bytes, forward_bytes, backward_bytes; /* all temps, and those of either */
    int64_t data_bytes[DATA_COUNT];
    bool saves_in, saves_in_late, saves_grad_in;
} Card;

/* So many pairs of links in a row, on made-up addresses. */
typedef struct BraidRun {
    int64_t ns;                /* when the last instruction has ended, */
    int64_t forward, backward; /* when the forward has, and when the backward begins */
    int64_t compute;           /* work of one pair on the compute stream */
} BraidRun;
BraidRun card_run_braid(const Pricer *pricer, const Braid *braid, int links);
/* The body that a card is made from. */
Body *card_body(Arena *arena, const Pricer *pricer, const ClassPlan *plan, int class, bool split);
/* The card of one class, on the pricer's net and mesh; split: with its backward in two parts. The
 * body that it is lowered to takes `scratch` for as long as this runs. */
Card card_make(Arena *arena, Arena *scratch, const Pricer *pricer, const ClassPlan *plan, int class,
               bool split);
/* Cards of all classes of a variant for so many sequences a micro-batch and rank, on its own mesh
 * and the ranks that share experts. */
typedef struct DeckKey {
    int64_t micro_batch;
    int ep, room, exchange; /* as in Pins */
    bool split;             /* backward in two parts */
} DeckKey;
typedef struct Deck {
    const Variant *variant;
    DeckKey key;
    Mesh mesh;
    Net *net;
    Pricer pricer;
    Card *card; /* per class */
} Deck;
/* NULL when there is no such mesh, or experts do not divide. `scratch` as in card_make. */
Deck *deck_new(Arena *arena, Arena *scratch, const Problem *problem, const Variant *variant,
               const DeckKey *key);
/* The body that a card was made from, lowered again. */
const Body *deck_body(Arena *arena, const Deck *deck, int class);
/* Both step by elements, or the same kind of matrices. */
bool card_same_matrix(const CardMatrix *a, const CardMatrix *b);
/* Lengths of the instructions of a body, list after list. */
int64_t *card_prices(Arena *arena, const Pricer *pricer, const Body *body);

#endif
