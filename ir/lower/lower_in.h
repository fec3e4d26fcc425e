/* lower_in.h - the state of lowering one class, shared by lower.c and rotate.c. */
#ifndef LPLAN_IR_LOWER_LOWER_IN_H
#define LPLAN_IR_LOWER_LOWER_IN_H

#include "ir/lower/body.h"

typedef VEC(int) CopySet;

typedef struct Lowering {
    Arena *arena;
    Body *body;
    PathTable *paths;
    VEC(Inst) insts; /* of the segment being built */
    Segment seg;
    bool split;    /* backward is cut into I and W */
    CopySet *have; /* per value: copies that exist in this segment */
    CopySet *made; /* per value: copies that exist at the end of forward */
} Lowering;

/* A new copy of a value, and an instruction at the end of the list; the pointer lives until the
 * next one. */
int lower_copy(Lowering *lo, ValueId id, const Placement *place, Home home);
Inst *lower_inst(Lowering *lo, InstKind kind);
/* The copy is as wide as gradients are. */
void lower_widen(Lowering *lo, int copy);
/* The same values in memory of their own, as wide as the value is. */
int lower_own_copy(Lowering *lo, ValueId id, int copy, Home home);
/* The copy may serve later uses of the value. */
void lower_remember(Lowering *lo, ValueId value, int copy);
/* The copy of a value under a placement, moved from the cheapest copy there is. */
int lower_deliver(Lowering *lo, ValueId id, const Placement *want);
/* In backward a forward value exists because it was saved, or is made again. */
void lower_materialise(Lowering *lo, ValueId id);
/* One run of a node on these copies. */
Inst *lower_kernel(Lowering *lo, NodeId id, const int *operand, const int *result);

/* rotate.c: a node that sees blocks pass by. `operand`: each its own block, at home; `out`: where
 * the results are to be; ret_result: complete copies of them. */
void lower_turns(Lowering *lo, NodeId id, const AtomList *ring, const int *operand,
                 const Placement *out, int *ret_result);

#endif
