/* safetensors.h - the format: which tensor lies where, in one file or in several behind an index.
 *
 * Nothing here ends the job: errors come back as text, located in the file, so a test can see them.
 */
#ifndef LPLAN_RUNTIME_IO_SAFETENSORS_H
#define LPLAN_RUNTIME_IO_SAFETENSORS_H

#include "runtime/io/bits.h"
#include "runtime/lp.h"

#include <stddef.h>

#define LP_FILE_DIMS 8

typedef struct LpFileType {
    const char *name;
    int bytes;
    double (*load)(const unsigned char *at); /* NULL: not a type of weights */
} LpFileType;

typedef struct LpEntry {
    char *name;
    const LpFileType *type;
    int ndims;
    int64_t dims[LP_FILE_DIMS];
    int64_t begin, end; /* bytes in the file */
    int file;
} LpEntry;

typedef struct LpWeights {
    LpEntry *entries; /* sorted by name */
    int count, capacity;
    char **paths;
    int *files; /* descriptors */
    int file_count;
} LpWeights;

/* `path` is a .safetensors file or an index ending in .json beside its files. NULL after an error.
 */
LpWeights *lp_weights_open(const char *path, char *error, size_t error_size);
void lp_weights_close(LpWeights *weights); /* NULL is fine */
const LpEntry *lp_weights_find(const LpWeights *weights, const char *name);

/* Reads elements [first, first + n) of an entry to data[at], ..., and adds what the file holds
 * there to `bits`, if it is not NULL. False after an error of the disk. */
bool lp_weights_read_run(const LpWeights *weights, const LpEntry *entry, int64_t first, int64_t n,
                         void *data, int64_t at, LpDtype dtype, LpBits *bits, char *error,
                         size_t error_size);
/* Reads a box of an entry whose element count is the shard's. False after an error of the disk. */
bool lp_weights_read(const LpWeights *weights, const LpEntry *entry, const LpShard *shard,
                     void *data, LpDtype dtype, char *error, size_t error_size);

/* Header (8 bytes of length, JSON, blanks up to a multiple of 8) for a table of tensors stored in
 * order as `dtype`. malloc'd; ret_bytes its size. */
char *lp_weights_header(const LpTensor *tensors, int count, LpDtype dtype, int64_t *ret_bytes);

int64_t lp_tensor_count(const LpTensor *tensor); /* elements */

#endif
