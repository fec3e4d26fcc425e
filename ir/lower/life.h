/* life.h - blocks of memory that live for a while, placed by first fit. */
#ifndef LPLAN_IR_LOWER_LIFE_H
#define LPLAN_IR_LOWER_LIFE_H

#include <stdint.h>

typedef struct Life {
    int id;
    int64_t bytes;
    int first, last; /* both ends included */
} Life;

/* First fit in the given order: no two lives that overlap in time share a byte. Offsets into `ret`.
 * Returns the area's size, bytes. */
int64_t lives_fit(const Life *life, int n, int64_t *ret);

/* The same in an order that hangs on nothing but the lives: the largest first, which are sorted so.
 */
int64_t lives_place(Life *life, int n, int64_t *ret);

#endif
