/* stored.c - names with marks become the tensors of files. */
#include "runtime/io/stored.h"

#include "runtime/io/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One tensor of the model, or one expert of it, with the name that files give it. */
typedef struct Part {
    char *name;
    int tensor, piece;
    int ndims;
    const int64_t *dims;
    int64_t from, to; /* rows of the stored tensor; to < 0: all of it */
} Part;

typedef struct Parts {
    Part *at;
    Part **sorted;
    int count;
} Parts;

/* ---- names ---- */

/* The rows behind a name: true with to = -1 when it has none, false when they are malformed. */
static bool rows_read(const char *name, size_t *ret_length, int64_t *ret_from, int64_t *ret_to)
{
    const char *open = strchr(name, '[');
    *ret_length = open ? (size_t)(open - name) : strlen(name);
    *ret_from = 0;
    *ret_to = -1;
    if (!open)
        return true;
    char *colon = NULL, *end = NULL;
    long long from = strtoll(open + 1, &colon, 10);
    if (colon == open + 1 || *colon != ':')
        return false;
    long long to = strtoll(colon + 1, &end, 10);
    if (end == colon + 1 || strcmp(end, "]") != 0 || from < 0 || to <= from)
        return false;
    *ret_from = from;
    *ret_to = to;
    return true;
}

/* The name with {e} replaced. */
static char *name_of(const char *name, size_t length, int expert)
{
    char *text = malloc(length + 16);
    const char *hole = strstr(name, "{e}");
    if (!text)
        return NULL;
    if (hole)
        sprintf(text, "%.*s%d%.*s", (int)(hole - name), name, expert,
                (int)(length - (size_t)(hole + 3 - name)), hole + 3);
    else
        sprintf(text, "%.*s", (int)length, name);
    return text;
}

static int pieces_of(const LpTensor *tensor)
{
    return strstr(tensor->name, "{e}") && tensor->ndims > 0 ? (int)tensor->dims[0] : 1;
}

static bool parts_of_tensor(Parts *parts, const LpTensor *tensors, int index, char *error,
                            size_t size)
{
    const LpTensor *tensor = &tensors[index];
    bool experts = strstr(tensor->name, "{e}") != NULL;
    size_t length;
    int64_t from, to;
    int skip = experts ? 1 : 0;
    bool fine = rows_read(tensor->name, &length, &from, &to) && tensor->ndims >= skip;
    if (!fine || (to >= 0 && (tensor->ndims == skip || tensor->dims[skip] != to - from))) {
        snprintf(error, size, "%s: the marks of the name do not fit the shape", tensor->name);
        return false;
    }
    for (int piece = 0; piece < pieces_of(tensor); piece++) {
        Part *part = &parts->at[parts->count++];
        *part = (Part){.name = name_of(tensor->name, length, piece),
                       .tensor = index,
                       .piece = piece,
                       .ndims = tensor->ndims - skip,
                       .dims = tensor->dims + skip,
                       .from = from,
                       .to = to};
        if (!part->name) {
            snprintf(error, size, "%s: out of memory", tensor->name);
            return false;
        }
    }
    return true;
}

static int by_name_and_rows(const void *a, const void *b)
{
    const Part *x = *(Part *const *)a, *y = *(Part *const *)b;
    int names = strcmp(x->name, y->name);
    if (names != 0)
        return names;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return x->tensor - y->tensor;
}

/* ---- tiles ---- */

/* `n` parts of one name, by their rows: they must be all of it, and of one width. */
static bool group_check(Part *const *part, int n, const LpTensor *tensors, char *error, size_t size)
{
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        const Part *p = part[i];
        if (n > 1 && (p->to < 0 || p->from < at)) {
            snprintf(error, size, "%s and %s hold the same elements of `%s`",
                     tensors[part[i > 0 ? i - 1 : 0]->tensor].name,
                     tensors[part[i > 0 ? i : 1]->tensor].name, p->name);
            return false;
        }
        if (p->to >= 0 && p->from > at) {
            snprintf(error, size, "no tensor holds rows %lld to %lld of `%s`", (long long)at,
                     (long long)p->from, p->name);
            return false;
        }
        at = p->to;
        bool same = p->ndims == part[0]->ndims;
        for (int d = 1; same && d < p->ndims; d++)
            same = p->dims[d] == part[0]->dims[d];
        if (!same) {
            snprintf(error, size, "%s and %s are rows of different widths",
                     tensors[part[0]->tensor].name, tensors[p->tensor].name);
            return false;
        }
    }
    return true;
}

/* The stored tensor of a group becomes number `index`. */
static void group_add(LpStored *stored, Part *const *part, int n, const LpTensor *tensors,
                      int index)
{
    LpTensor *made = &stored->tensors[index];
    const Part *first = part[0], *last = part[n - 1];
    *made = (LpTensor){.name = first->name, .ndims = first->ndims};
    for (int d = 0; d < first->ndims; d++)
        made->dims[d] = first->dims[d];
    if (last->to >= 0)
        made->dims[0] = last->to;
    int64_t row = 1;
    for (int d = 1; d < first->ndims; d++)
        row *= first->dims[d];
    for (int i = 0; i < n; i++) {
        stored->pieces[stored->first[part[i]->tensor] + part[i]->piece] =
            (LpPiece){index, part[i]->from * row};
        made->tied = made->tied || tensors[part[i]->tensor].tied;
    }
}

static int group_length(const Parts *parts, int begin)
{
    int n = 1;
    while (begin + n < parts->count &&
           strcmp(parts->sorted[begin]->name, parts->sorted[begin + n]->name) == 0)
        n++;
    return n;
}

/* Groups in the order of names make by_name; their first parts in the order of the table make the
 * tensors. owner: per part, the group that it begins, or -1. */
static bool groups_read(LpStored *stored, Parts *parts, const LpTensor *tensors, char *error,
                        size_t size)
{
    int *owner = malloc(((size_t)parts->count + 1) * sizeof *owner), groups = 0;
    if (!owner) {
        snprintf(error, size, "out of memory");
        return false;
    }
    bool fine = true;
    for (int i = 0; i < parts->count; i++)
        owner[i] = -1;
    for (int i = 0, n; fine && i < parts->count; i += n) {
        n = group_length(parts, i);
        fine = group_check(parts->sorted + i, n, tensors, error, size);
        const Part *earliest = parts->sorted[i];
        for (int k = 1; k < n; k++)
            earliest = parts->sorted[i + k] < earliest ? parts->sorted[i + k] : earliest;
        owner[earliest - parts->at] = i;
        groups++;
    }
    for (int p = 0; fine && p < parts->count; p++) {
        if (owner[p] < 0)
            continue;
        int begin = owner[p];
        group_add(stored, parts->sorted + begin, group_length(parts, begin), tensors,
                  stored->count);
        stored->count++;
    }
    free(owner);
    return fine && groups == stored->count;
}

/* ---- the table ---- */

static int by_tensor_name(const void *a, const void *b)
{
    return strcmp((*(const LpTensor *const *)a)->name, (*(const LpTensor *const *)b)->name);
}

static bool names_sort(LpStored *stored)
{
    const LpTensor **order = malloc(((size_t)stored->count + 1) * sizeof *order);
    if (!order)
        return false;
    for (int i = 0; i < stored->count; i++)
        order[i] = &stored->tensors[i];
    qsort(order, (size_t)stored->count, sizeof *order, by_tensor_name);
    for (int i = 0; i < stored->count; i++)
        stored->by_name[i] = (int)(order[i] - stored->tensors);
    free(order);
    return true;
}

static bool stored_read(LpStored *stored, Parts *parts, const LpTensor *tensors, int count,
                        char *error, size_t size)
{
    for (int i = 0; i < count; i++) {
        stored->first[i] = parts->count;
        stored->chunk[i] = lp_tensor_count(&tensors[i]) / pieces_of(&tensors[i]);
        if (!parts_of_tensor(parts, tensors, i, error, size))
            return false;
    }
    for (int i = 0; i < parts->count; i++)
        parts->sorted[i] = &parts->at[i];
    if (parts->count > 0)
        qsort(parts->sorted, (size_t)parts->count, sizeof *parts->sorted, by_name_and_rows);
    if (!groups_read(stored, parts, tensors, error, size))
        return false;
    if (!names_sort(stored)) {
        snprintf(error, size, "out of memory");
        return false;
    }
    return true;
}

/* Keeps the names that stored tensors have taken. */
static void parts_free(Parts *parts, const LpStored *stored)
{
    for (int i = 0; i < parts->count; i++) {
        bool taken = false;
        int index = stored->pieces[stored->first[parts->at[i].tensor] + parts->at[i].piece].stored;
        taken = index < stored->count && stored->tensors[index].name == parts->at[i].name;
        if (!taken)
            free(parts->at[i].name);
    }
    free(parts->at);
    free(parts->sorted);
}

LpStored *lp_stored_new(const LpTensor *tensors, int count, char *error, size_t error_size)
{
    size_t most = 1;
    for (int i = 0; i < count; i++)
        most += (size_t)pieces_of(&tensors[i]);
    LpStored *stored = calloc(1, sizeof *stored);
    Parts parts = {.at = calloc(most, sizeof *parts.at), .sorted = calloc(most, sizeof(Part *))};
    bool fine = stored && parts.at && parts.sorted;
    if (fine) {
        stored->tensors = calloc(most, sizeof *stored->tensors);
        stored->by_name = calloc(most, sizeof *stored->by_name);
        stored->pieces = calloc(most, sizeof *stored->pieces);
        stored->first = calloc((size_t)count + 1, sizeof *stored->first);
        stored->chunk = calloc((size_t)count + 1, sizeof *stored->chunk);
        fine =
            stored->tensors && stored->by_name && stored->pieces && stored->first && stored->chunk;
    }
    if (!fine) {
        snprintf(error, error_size, "out of memory for the table of tensors");
        free(parts.at);
        free(parts.sorted);
        lp_stored_free(stored);
        return NULL;
    }
    fine = stored_read(stored, &parts, tensors, count, error, error_size);
    parts_free(&parts, stored);
    if (fine)
        return stored;
    lp_stored_free(stored);
    return NULL;
}

void lp_stored_free(LpStored *stored)
{
    if (!stored)
        return;
    for (int i = 0; stored->tensors && i < stored->count; i++)
        free((char *)(uintptr_t)stored->tensors[i].name);
    free(stored->tensors);
    free(stored->by_name);
    free(stored->pieces);
    free(stored->first);
    free(stored->chunk);
    free(stored);
}

int lp_stored_find(const LpStored *stored, const char *name)
{
    int low = 0, high = stored->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        int order = strcmp(stored->tensors[stored->by_name[middle]].name, name);
        if (order == 0)
            return stored->by_name[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

int64_t lp_stored_run(const LpStored *stored, int tensor, int64_t at, int64_t n, int *ret_stored,
                      int64_t *ret_begin)
{
    int64_t chunk = stored->chunk[tensor], inside = at % chunk;
    const LpPiece *piece = &stored->pieces[stored->first[tensor] + at / chunk];
    *ret_stored = piece->stored;
    *ret_begin = piece->begin + inside;
    return n < chunk - inside ? n : chunk - inside;
}
