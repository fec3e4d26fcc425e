/* recall.c - a table of blocks by their contents. */
#include "ir/lower/recall.h"

#include <string.h>

typedef struct Block {
    uint64_t hash;
    int64_t elements;
    const double *at; /* NULL: a free place */
} Block;

struct Recall {
    Arena *arena;
    int64_t bytes_left;
    Block *block; /* [places], a power of two; at most half of them are taken */
    uint64_t places, taken;
};

Recall *recall_new(Arena *arena, int64_t most_bytes)
{
    Recall *recall = ARENA_NEW(arena, Recall);
    *recall = (Recall){.arena = arena, .bytes_left = most_bytes, .places = 1 << 10};
    recall->block = ARENA_ARRAY(arena, Block, recall->places);
    return recall;
}

/* In four chains, so that one product need not wait for the one before. It only finds a block: who
 * is found is compared. */
static uint64_t block_hash(const double *block, int64_t elements)
{
    enum { CHAINS = 4 };
    const uint64_t odd = 0x9e3779b97f4a7c15u;
    uint64_t chain[CHAINS] = {1, 2, 3, 4}, hash = (uint64_t)elements;
    for (int64_t i = 0; i < elements; i++) {
        uint64_t bits, *own = &chain[i % CHAINS];
        memcpy(&bits, &block[i], sizeof bits);
        *own = (*own ^ bits) * odd;
        *own ^= *own >> 29;
    }
    for (int c = 0; c < CHAINS; c++)
        hash = ((hash ^ chain[c]) * odd) ^ hash >> 31;
    return hash;
}

static void grow(Recall *recall)
{
    Block *old = recall->block;
    uint64_t places = recall->places;
    recall->places *= 2;
    recall->block = ARENA_ARRAY(recall->arena, Block, recall->places);
    for (uint64_t i = 0; i < places; i++) {
        uint64_t at = old[i].hash % recall->places;
        while (old[i].at && recall->block[at].at)
            at = (at + 1) % recall->places;
        if (old[i].at)
            recall->block[at] = old[i];
    }
}

const double *recall_keep(Recall *recall, const double *block, int64_t elements)
{
    uint64_t hash = block_hash(block, elements), at = hash % recall->places;
    size_t bytes = (size_t)elements * sizeof *block;
    for (; recall->block[at].at; at = (at + 1) % recall->places) {
        const Block *old = &recall->block[at];
        if (old->hash == hash && old->elements == elements && memcmp(old->at, block, bytes) == 0)
            return old->at;
    }
    if ((int64_t)bytes > recall->bytes_left)
        return NULL;
    recall->bytes_left -= (int64_t)bytes;
    double *kept = arena_alloc(recall->arena, bytes);
    memcpy(kept, block, bytes);
    recall->block[at] = (Block){hash, elements, kept};
    if (2 * ++recall->taken > recall->places)
        grow(recall);
    return kept;
}
