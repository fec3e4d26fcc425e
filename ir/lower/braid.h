/* braid.h - two rows in one: the forward of a micro-batch beside a part of the backward of another,
 * so that collectives of one run under kernels of the other.
 *
 * The links of both rows are set in pairs, in the order of each; a pair runs the instructions of
 * two bodies in one order, a merge of theirs that list scheduling finds (order.h). Which links meet
 * is found by price: an alignment of two sequences that takes least time in all (Needleman and
 * Wunsch 1970, with lengths for scores). What has one place whatever the micro-batch lies apart for
 * the two: temps (StageProgram.scratch_back), weights that are whole for a use (fetched_back), and
 * saved values on their way (Ring.sides). All else is what it is in rows by themselves. */
#ifndef LPLAN_IR_LOWER_BRAID_H
#define LPLAN_IR_LOWER_BRAID_H

#include "ir/lower/order.h"
#include "ir/lower/program.h"

/* An instruction of one of the two. */
typedef struct BraidInst {
    int list, inst; /* list of its body; of the forward's the first */
} BraidInst;

typedef struct Braid {
    const Body *forward, *backward;
    PartKind part; /* of the backward's lists: B, I or W */
    int n;
    BraidInst *inst;
    int64_t ns; /* on two streams, by itself */
} Braid;

typedef struct PairLink {
    int forward, backward; /* links, counted in their row's own order from 0; NONE: the other is
                              alone */
    const Braid *braid;    /* of both */
} PairLink;

struct Pairing {
    int forward, backward; /* chunks of the stage */
    PartKind part;
    int links;
    PairLink *link;
};

/* Braids that have been made, by bodies and part. */
typedef struct BraidShelf BraidShelf;
BraidShelf *braid_shelf_new(Arena *arena, const Cluster *cluster);
/* Bodies of a forward row's links, and of a backward row's, each in the order in which it runs. */
Pairing *pairing_make(BraidShelf *shelf, const Body *const *forward, int forwards,
                      const Body *const *backward, int backwards, PartKind part);

/* Makes the pairings that the tables of a program ask for. */
void program_add_pairings(Program *program);
/* Does a forward of this chunk of the stage run beside a backward of it? */
bool chunk_meets_itself(const StageProgram *stage, int chunk);
/* That of an entry that braids. */
const Pairing *entry_pairing(const StageProgram *stage, const Entry *entry);
/* The link of the stage that is number `at` of a chunk's row. */
int row_link(const Chunk *chunk, bool forward, int at);

/* The lists of a body that a part runs: the first, and the one behind the last. */
void part_lists(PartKind part, int *ret_begin, int *ret_end);
/* And the part that a list is by itself, in a program that splits backward (has a third list) or
 * does not. */
PartKind list_part(int which, bool splits);
bool program_splits(const Program *program);

#endif
