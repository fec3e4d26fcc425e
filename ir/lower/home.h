/* home.h - where what belongs to parameters lives: shares of flat groups, and the buffers through
 * which shares pass for a use. */
#ifndef LPLAN_IR_LOWER_HOME_H
#define LPLAN_IR_LOWER_HOME_H

#include "ir/lower/life.h"
#include "ir/lower/program.h"

/* Fills the lists that cut the homes of a group, from its atoms: what every rank holds whole is cut
 * first, for nothing; then one scatter cuts the rest. */
void group_cut(Group *group, const Homes *homes);
/* And the cheapest paths between them, for its elements: the flat value [c, e] as a net of its own.
 */
void group_find_paths(Arena *arena, const Mesh *mesh, const MovePrice *price, Group *group);

/* Which link uses which bucket: fills StageLink.bucket and member, Bucket.open_link. */
void stage_find_uses(Program *program, StageProgram *stage);

/* The life of a bucket's weights for use, or of its accumulators, over links [close, open]: one
 * link longer, so that neighbours do not share bytes and one may be on its way while the other is
 * in use; but not beyond the last link of its chunk, whose rows end there. Its length is that of
 * its elements of `width` bytes. */
Life bucket_life(int bucket, int close_link, int open_link, int last_link, int64_t elements,
                 int width);

/* Gives buckets their buffers, from `at` on, and finds the gaps to clear; where the buffers end. */
int64_t stage_place_buffers(const Program *program, StageProgram *stage, int64_t at);

/* Where a rank holds flat elements of a bucket's gradients (of far ones at their place on the
 * device), or of its weights at their home: the address that the group's element 0 would have if
 * its block went on down to it. */
int64_t gradient_base(const Program *program, const Group *group, const Bucket *bucket,
                      int coordinate);
int64_t weight_base(const Program *program, const Group *group, const Bucket *bucket,
                    int coordinate);

/* Does the path to the gradient's home end with a collective, so that what the home holds is added
 * ahead of it? */
bool group_folds_ahead(const Group *group);

/* Do weights of the group come together in a buffer, or to it, for each use? */
bool group_fetches(const Group *group);

/* Where a bucket's weights are whole for a use of forward, or of backward. */
int64_t bucket_fetched(const StageProgram *stage, const Bucket *bucket, bool back);
/* Sets where blocks of the buckets of a group lie in the home of its weights, and its elements. */
void weight_lay_home(const Program *program, StageProgram *stage, int group);
/* The memory where a group's weights live. */
Memory weight_memory(const Program *program, const Group *group);

/* Far gradients (Group.far_gradients): the first link of a row that needs the bucket's place on the
 * device. Where accumulators have a buffer, that is the last one, whose sums go on to the home. */
int gradient_first_link(const Group *group, int close_link, int open_link);
/* The life of that place, and of those in memories between, over links: hops run as ahead and
 * behind as those of state (state.h). `bytes` as hops carry them. */
Life gradient_life(const Group *group, int bucket, int close_link, int open_link, int last_link,
                   Memory memory, int64_t bytes);
/* Bytes of a block of gradients or weights as hops carry it: in grains where its home is a file. */
int64_t carried_bytes(Memory home, int64_t elements, int width);
/* Does the last hop out, and each hop to the norm and the update, carry this rank's share alone? A
 * file has its grains. */
bool gradient_share_hops(Memory home);
/* Gives the blocks of a far group their home: sets Group.gradient and far_bytes. */
void gradient_place_homes(const Program *program, StageProgram *stage, int group);

/* Bytes of a home of gradients that is cut over `ranks` ranks. */
int64_t home_bytes(const Group *group, int ranks, int width);

#endif
