/* spill.h - saved values whose home is another memory than the device's: how those of a link leave
 * behind its forward, and come back ahead of its backward.
 *
 * What a link saves of a kind is a block. Its home is a ring of the far memory, slot by
 * micro-batch, as the ring on the device would be without. On the device, and in every memory
 * between, a block has one place whatever the micro-batch: links that run one after the other have
 * different ones, links further apart share them (first fit). So a block is on its way while its
 * neighbours are at work:
 *
 *     F: link ─► block ─ copy out ─► ring            (m behind, for the hop out of memory m)
 *     B: link ◄─ block ◄─ copy in ── ring            (m + 1 ahead)
 *
 * Links may keep what they save on the device (Homes.stays), in rings as without. The others, block
 * by block in the order of the links, are as neighbours: what is between two of them is more time
 * for the same hop.
 *
 * Where backward follows at once upon the forward of its micro-batch, the last blocks of a chunk
 * stay where they are (`Entry.stays`): their place in the far ring is not touched; in an evaluation
 * all do, for nobody reads them. Where a forward and a backward of one chunk run as one row, the
 * places of either are their own, and no block stays. What I makes for W stays on the device, for
 * it does not live long; so does what waits at the edge of a chunk. (Rhu et al., vDNN, 2016; Ren et
 * al., ZeRO-Offload, 2021.) */
#ifndef LPLAN_IR_LOWER_SPILL_H
#define LPLAN_IR_LOWER_SPILL_H

#include "ir/lower/life.h"
#include "ir/lower/program.h"

enum { SPILL_STAYS = 3 }; /* blocks whose places on the device differ */

/* Fills Entry.stays of all tables: for whole backwards that are the next row of their stage after
 * their forward, and these. */
void spill_mark_stays(Program *program);
/* Numbers the blocks of a stage that leave: StageLink.block, Chunk.first_block, block_link. */
void spill_number(Program *program, StageProgram *stage);
/* Does what the link saves of this kind leave, and where is it on the device: of RING_SAVED or
 * RING_STAYS, and those behind them. */
bool spill_leaves(const StageLink *link, SavedKind kind);
RingKind spill_ring(const Program *program, const StageLink *link, SavedKind kind);
/* Bytes of a link's block as hops carry it: in grains where its home is a file. */
int64_t spill_bytes(Memory home, int64_t saved_bytes);
/* When a block's place in a memory is its own: as a life over blocks. */
Life spill_life(int block, Memory memory, int64_t bytes);
/* Does what a link of the chunk saves stay on the device in this row? */
bool spill_stays(const StageProgram *stage, const Entry *entry, int link);
/* Does a list of this row read the kind, or make it? */
bool spill_in_row(const Entry *entry, SavedKind kind);

/* Where a link's block is in a memory, for a micro-batch by number; back: on its way to backward.
 */
int64_t spill_address(const Program *program, const StageProgram *stage, int link, SavedKind kind,
                      Memory memory, int number, bool back);

/* Places of the blocks of one kind of a chunk, some of which leave and whose lengths are known:
 * device bytes from `at` on, whose end it returns; sets far_bytes. */
int64_t spill_layout(const Program *program, StageProgram *stage, Chunk *chunk, SavedKind kind,
                     int64_t at);

#endif
