/* walk_sums.c - hops of gradients that live in another memory. */
#include "ir/lower/home.h"
#include "ir/lower/state.h"
#include "ir/lower/walk_in.h"

/* Between `near` and the memory behind it: this rank's block, or its share of the optimizer. */
static void put_hop(Walk *walk, int index, int micro, Memory near, bool in, bool share)
{
    const Program *program = walk->program;
    const Bucket *bucket = &walk->stage->buckets.at[index];
    const AtomList *list = &walk->stage->groups.at[bucket->group].gradient_share;
    Memory home = program->plan->memory[KEPT_GRADIENTS];
    int width = dtype_bytes(program->recipe->gradient), rank = walk->coordinate;
    int64_t elements = bucket->elements / list_extent(&program->plan->mesh, list), from = 0;
    if (share && gradient_share_hops(home)) {
        elements = bucket->share_elements;
        from = bucket_share_begin(program, walk->stage, bucket, rank) -
               bucket_block_begin(program, bucket, list, rank);
    }
    Step *step = walk_put(walk, STEP_COPY, hop_stream(near, in));
    step->bucket = index;
    step->micro = micro;
    for (int to = 0; to < 2; to++) {
        Memory memory = (Memory)(near + (in != to));
        uint64_t name = memory == home ? walk_name(NAME_STATIC, 0, 0, 0)
                                       : walk_name(NAME_SUMS, (int)memory, 0, index);
        walk_operand(step, bucket->gradient[memory] + from * width,
                     carried_bytes(home, elements, width), name, NULL, !to, to);
    }
}

void walk_share_in(Walk *walk, int index)
{
    const StageProgram *stage = walk->stage;
    if (!stage->groups.at[stage->buckets.at[index].group].far_gradients)
        return;
    for (int near = (int)walk->program->plan->memory[KEPT_GRADIENTS] - 1; near >= 0; near--)
        put_hop(walk, index, NONE, (Memory)near, true, true);
}

/* Those around a place of the row; NONE: before its first. */
static void put_hops(Walk *walk, const Entry *entry, int place, bool in)
{
    const StageProgram *stage = walk->stage;
    const Chunk *chunk = &stage->chunk[entry->chunk];
    Hop hop[MAX_HOPS];
    int n = hops_around(walk->program->plan->memory[KEPT_GRADIENTS], chunk->end - chunk->begin,
                        place, in, hop);
    for (int i = 0; i < n; i++)
        for (int b = 0; b < stage->buckets.n; b++) {
            const Bucket *bucket = &stage->buckets.at[b];
            const Group *group = &stage->groups.at[bucket->group];
            int at = in ? gradient_first_link(group, bucket->close_link, bucket->open_link)
                        : bucket->close_link;
            if (group->far_gradients && at == chunk->end - 1 - hop[i].bucket)
                put_hop(walk, b, entry->micro, hop[i].near, in, !in && entry->last);
        }
}

void walk_sums(Walk *walk, const Entry *entry, int link, bool in)
{
    int place = walk->stage->chunk[entry->chunk].end - 1 - link;
    bool adds = entry->part == PART_B || entry->part == PART_W;
    if (!adds || (in && entry->first)) /* nothing is there yet */
        return;
    if (in && place == 0)
        put_hops(walk, entry, NONE, true);
    put_hops(walk, entry, place, in);
}
