/* life.c - first fit of lives. */
#include "ir/lower/life.h"

#include <stdbool.h>
#include <stdlib.h>

int64_t lives_fit(const Life *life, int n, int64_t *ret)
{
    int64_t top = 0;
    for (int i = 0; i < n; i++) {
        int64_t at = 0;
        for (bool moved = true; moved;) {
            moved = false;
            for (int j = 0; j < i; j++) {
                bool together = life[j].first <= life[i].last && life[i].first <= life[j].last;
                if (together && at < ret[j] + life[j].bytes && ret[j] < at + life[i].bytes) {
                    at = ret[j] + life[j].bytes;
                    moved = true;
                }
            }
        }
        ret[i] = at;
        top = at + life[i].bytes > top ? at + life[i].bytes : top;
    }
    return top;
}

/* Largest first; then what is used first in backward. */
static int by_size(const void *a, const void *b)
{
    const Life *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    if (x->last != y->last)
        return y->last - x->last;
    if (x->first != y->first)
        return y->first - x->first;
    return x->id - y->id;
}

int64_t lives_place(Life *life, int n, int64_t *ret)
{
    if (n > 0)
        qsort(life, (size_t)n, sizeof *life, by_size);
    return lives_fit(life, n, ret);
}
