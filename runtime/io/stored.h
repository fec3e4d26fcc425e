/* stored.h - the tensors of files, and which elements of the model's tensors each of them holds.
 *
 * Files know tensors under Hugging Face names; the model may hold several of them as one (experts),
 * or parts of one as several (rows of a fused weight). Marks in a tensor's name say which (lp.h).
 */
#ifndef LPLAN_RUNTIME_IO_STORED_H
#define LPLAN_RUNTIME_IO_STORED_H

#include "runtime/lp.h"

#include <stddef.h>

/* Consecutive elements of a model's tensor that lie in one tensor of a file. */
typedef struct LpPiece {
    int stored;
    int64_t begin; /* in the stored tensor */
} LpPiece;

typedef struct LpStored {
    LpTensor *tensors; /* of files, in the order of their first use: name, ndims, dims, tied */
    int count;
    int *by_name; /* indices of tensors, sorted */
    LpPiece *pieces;
    int *first;     /* per tensor of the model: its first piece */
    int64_t *chunk; /* per tensor of the model: elements of each of its pieces */
} LpStored;

/* NULL with the reason in `error`: malformed names, two tensors in one place, rows that nobody
 * holds. */
LpStored *lp_stored_new(const LpTensor *tensors, int count, char *error, size_t error_size);
void lp_stored_free(LpStored *stored); /* NULL is fine */
/* Index of a stored tensor, or -1. */
int lp_stored_find(const LpStored *stored, const char *name);

/* Where element `at` of a model's tensor lies; returns how many of the next `n` elements follow it
 * there. */
int64_t lp_stored_run(const LpStored *stored, int tensor, int64_t at, int64_t n, int *ret_stored,
                      int64_t *ret_begin);

#endif
