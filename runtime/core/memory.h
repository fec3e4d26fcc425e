/* memory.h - the arena of a rank, and what memory the machine has. */
#ifndef LPLAN_RUNTIME_CORE_MEMORY_H
#define LPLAN_RUNTIME_CORE_MEMORY_H

#include <stdint.h>

/* Zeroed, 2 MiB aligned, huge pages asked for; NULL when the system refuses. Lives as long as the
 * process unless unmapped. */
unsigned char *lp_arena_map(int64_t bytes);
void lp_arena_unmap(unsigned char *arena, int64_t bytes);

/* What may still be used: the system's and the container's limit, whichever is less; -1 if unknown.
 */
int64_t lp_memory_available(void);

/* What of this process is resident outside the arena: the program, its libraries, their buffers,
 * shared memory; -1 if unknown. A BLAS takes memory when first used, so it first multiplies a
 * matrix of so many rows and columns. */
int64_t lp_memory_outside(const unsigned char *arena, int64_t arena_bytes, int64_t rows,
                          int64_t inner);

/* What of a mapped arena is in memory, in bytes; -1 if unknown. */
int64_t lp_memory_resident(const unsigned char *arena, int64_t bytes);

/* Largest resident size of this process so far. */
int64_t lp_memory_peak(void);

#endif
