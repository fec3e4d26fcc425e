/* arena.h - memory by lifetime: allocate from a named arena, free the arena.
 *
 * Every function that returns memory takes the arena first: the signature is the ownership comment.
 * Memory is zeroed. Running out of memory aborts, so no caller tests for NULL. */
#ifndef LPLAN_IR_BASE_ARENA_H
#define LPLAN_IR_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Arena Arena;

/* What the attribute says to gcc and clang about printf-like functions. */
#define LP_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))

Arena *arena_new(const char *name);
void arena_free(Arena *arena);  /* NULL is fine */
void arena_reset(Arena *arena); /* keeps the blocks, forgets the contents */
size_t arena_used(const Arena *arena);
/* Calls release(what) when the arena is freed or reset, latest first: for what is not arena memory.
 */
void arena_defer(Arena *arena, void (*release)(void *), void *what);

/* `bytes` of zeroed memory, aligned to 16. Zero bytes give a valid, distinct pointer. */
void *arena_alloc(Arena *arena, size_t bytes);
char *arena_strdup(Arena *arena, const char *text);
char *arena_strndup(Arena *arena, const char *text, size_t length);
char *arena_printf(Arena *arena, const char *format, ...) LP_PRINTF(2, 3);
char *arena_vprintf(Arena *arena, const char *format, va_list args) LP_PRINTF(2, 0);

/* count * size, aborting on overflow. */
void *arena_array(Arena *arena, size_t count, size_t size);

#define ARENA_NEW(arena, Type) ((Type *)arena_alloc((arena), sizeof(Type)))
#define ARENA_ARRAY(arena, Type, count)                                                            \
    ((Type *)arena_array((arena), (size_t)(count), sizeof(Type)))

#endif
