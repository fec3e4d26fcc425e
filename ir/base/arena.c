/* arena.c - a list of blocks with a bump pointer in each. */
#include "ir/base/arena.h"

#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/diag.h"

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#endif

#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
/* A poisoned gap behind every allocation, so that running over its end is seen at once. */
enum { RED_ZONE = 16 };
#define POISON(at, bytes) ASAN_POISON_MEMORY_REGION((at), (bytes))
#define UNPOISON(at, bytes) ASAN_UNPOISON_MEMORY_REGION((at), (bytes))
#else
enum { RED_ZONE = 0 };
#define POISON(at, bytes) ((void)(at), (void)(bytes))
#define UNPOISON(at, bytes) ((void)(at), (void)(bytes))
#endif

enum { ALIGNMENT = 16 };
/* Blocks grow with the arena: a small one, of which there are many, asks for little. */
static const size_t first_block_bytes = 16 << 10;
static const size_t usual_block_bytes = 1 << 20;

/* Invariant: fresh <= size, and data[fresh..size) is still zero as calloc gave it; used <= fresh.
 */
typedef struct Block {
    struct Block *next;
    size_t size, used, fresh;
    alignas(ALIGNMENT) unsigned char data[];
} Block;

/* Lies in the arena itself. */
typedef struct Deferred {
    struct Deferred *next;
    void (*release)(void *);
    void *what;
} Deferred;

struct Arena {
    Block *first, *current;
    Deferred *deferred;
    size_t used_bytes;
    char name[32];
};

Arena *arena_new(const char *name)
{
    Arena *arena = calloc(1, sizeof *arena);
    if (!arena)
        BUG("out of memory for arena '%s'", name);
    snprintf(arena->name, sizeof arena->name, "%s", name);
    return arena;
}

static void release_deferred(Arena *arena)
{
    for (const Deferred *each = arena->deferred; each; each = each->next)
        each->release(each->what);
    arena->deferred = NULL;
}

void arena_free(Arena *arena)
{
    if (!arena)
        return;
    release_deferred(arena);
    Block *next = NULL;
    for (Block *block = arena->first; block; block = next) {
        next = block->next;
        UNPOISON(block->data, block->size);
        free(block);
    }
    free(arena);
}

void arena_reset(Arena *arena)
{
    release_deferred(arena);
    for (Block *block = arena->first; block; block = block->next) {
        block->used = 0;
        POISON(block->data, block->size);
    }
    arena->current = arena->first;
    arena->used_bytes = 0;
}

size_t arena_used(const Arena *arena)
{
    return arena->used_bytes;
}

static Block *block_new(Arena *arena, size_t bytes)
{
    Block *block = bytes > SIZE_MAX - sizeof(Block) ? NULL : calloc(1, sizeof(Block) + bytes);
    if (!block)
        BUG("out of memory: arena '%s' holds %zu bytes and asks for %zu more", arena->name,
            arena->used_bytes, bytes);
    block->size = bytes;
    POISON(block->data, bytes);
    /* Behind the current block, so that blocks kept by a reset stay in reach. */
    if (arena->current) {
        block->next = arena->current->next;
        arena->current->next = block;
    } else {
        arena->first = arena->current = block;
    }
    return block;
}

static bool block_fits(const Block *block, size_t bytes)
{
    return block->size - block->used >= bytes;
}

/* A block with room. A big request does not move `current`: the rest of that block stays in use. */
static Block *block_for(Arena *arena, size_t bytes)
{
    bool big = bytes > usual_block_bytes / 2;
    Block *block = arena->current;
    while (block && !block_fits(block, bytes))
        block = block->next;
    if (!block) {
        size_t size = arena->first ? arena->used_bytes : first_block_bytes;
        size = size < first_block_bytes   ? first_block_bytes
               : size > usual_block_bytes ? usual_block_bytes
                                          : size;
        block = block_new(arena, size > bytes ? size : bytes);
    }
    if (!big)
        arena->current = block;
    return block;
}

void *arena_alloc(Arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX - 2 * ALIGNMENT - RED_ZONE)
        BUG("out of memory: arena '%s' asked for %zu bytes", arena->name, bytes);
    size_t wanted = bytes > 0 ? bytes : 1;
    size_t rounded = (wanted + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + RED_ZONE;
    Block *block = arena->current && block_fits(arena->current, rounded)
                       ? arena->current
                       : block_for(arena, rounded);
    unsigned char *at = block->data + block->used;
    UNPOISON(at, bytes);
    if (block->used < block->fresh) {
        size_t dirty = block->fresh - block->used;
        memset(at, 0, dirty < bytes ? dirty : bytes);
    }
    block->used += rounded;
    if (block->fresh < block->used)
        block->fresh = block->used;
    arena->used_bytes += rounded;
    return at;
}

void arena_defer(Arena *arena, void (*release)(void *), void *what)
{
    Deferred *deferred = arena_alloc(arena, sizeof *deferred);
    *deferred = (Deferred){arena->deferred, release, what};
    arena->deferred = deferred;
}

void *arena_array(Arena *arena, size_t count, size_t size)
{
    if (size > 0 && count > SIZE_MAX / size)
        BUG("out of memory: arena '%s' asked for %zu elements of %zu bytes", arena->name, count,
            size);
    return arena_alloc(arena, count * size);
}

char *arena_strndup(Arena *arena, const char *text, size_t length)
{
    char *copy = arena_alloc(arena, length + 1);
    if (length > 0)
        memcpy(copy, text, length);
    return copy;
}

char *arena_strdup(Arena *arena, const char *text)
{
    return arena_strndup(arena, text, strlen(text));
}

char *arena_vprintf(Arena *arena, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    if (length < 0)
        BUG("cannot format \"%s\"", format);
    char *text = arena_alloc(arena, (size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

char *arena_printf(Arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = arena_vprintf(arena, format, args);
    va_end(args);
    return text;
}
