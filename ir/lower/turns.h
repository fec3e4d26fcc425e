/* turns.h - what a rank sees of the blocks that pass by: nothing at all of those that a mask hides
 * whole. Turns of which no rank sees anything do not exist; of the others, a rank skips the
 * kernels and merges of those that show it nothing. Moves are never skipped. */
#ifndef LPLAN_IR_LOWER_TURNS_H
#define LPLAN_IR_LOWER_TURNS_H

#include "ir/lower/body.h"

/* A node that sets positions of the sequence against others, its operands placed so; of any other
 * node with a ring, every rank sees every block. */
typedef struct Meeting {
    const Mesh *mesh;
    const Net *net;
    const Graph *graph;
    const Node *node;
    const Placement *in; /* of the node's operands */
    AtomList ring;       /* along which blocks pass by; empty: all is there at once, in turn 0 */
} Meeting;

/* Pairs that meet on a rank in a turn (node_pairs), and the most that any rank has: the others wait
 * for it. */
int64_t turn_pairs(const Meeting *meeting, int turn, int rank);
int64_t turn_most_pairs(const Meeting *meeting, int turn);
/* The first turn behind this one in which some rank sees something; the number of blocks when there
 * is none. */
int turn_next(const Meeting *meeting, int turn);
/* Of the turns that there are, bit j for turn j: turn 0, and those in which some rank sees
 * something. */
uint64_t turns_set(const Meeting *meeting);

/* A kernel in whose turn the rank sees nothing, or the merge of its results. */
bool inst_idle(const Body *body, const Inst *inst, int rank);
/* The ring of such a kernel or merge; empty for other instructions. */
AtomList inst_ring(const Body *body, const Inst *inst);

#endif
