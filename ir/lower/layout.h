/* layout.h - addresses: where everything of a stage rank is in its one arena. */
#ifndef LPLAN_IR_LOWER_LAYOUT_H
#define LPLAN_IR_LOWER_LAYOUT_H

#include "ir/lower/program.h"

/* Fills the stage's addresses from its groups, links and table. Order: scalars, weights, gradients,
 * optimizer state, data, rings, transients between links, scratch. Everything is 64-aligned. */
void stage_layout(Program *program, StageProgram *stage);

/* Address of a copy of one link for one micro-batch of a step, as a list of forward finds it or one
 * of backward; BUG for fused copies. */
int64_t copy_address(const Program *program, const StageProgram *stage, int link, int copy,
                     int step, int micro, bool back);
/* The copy in whose memory this one stands. */
int copy_storage(const Body *body, int copy);
/* The first and last place in the table that touch ring `kind` of a chunk for a micro-batch; false
 * when none does. A send holds its buffer for `slack` more compute rows. Where steps flow, `micro`
 * counts through the run and places through the turns: entry i of turn t, counted from the earliest
 * one, is place t * entries + i. */
bool ring_life(const Program *program, const StageProgram *stage, const Chunk *chunk, RingKind kind,
               int micro, int *ret_first, int *ret_last);
/* The ring that holds a copy of one link, and where in its slot; NULL for what lives elsewhere. */
const Ring *copy_ring(const Program *program, const StageProgram *stage, int link, int copy,
                      int64_t *ret_offset);

/* Slots for a ring whose lives are those of this kind: n, and a column where that takes fewer. */
void layout_choose_slots(const Program *program, const StageProgram *stage, const Chunk *chunk,
                         RingKind kind, Ring *ring);

#endif
