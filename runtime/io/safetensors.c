/* safetensors.c - the format: which tensor lies where, in one file or in several behind an index.
 *
 * The format's own laws are checked: no overlap, no hole, no duplicate, sizes that agree with
 * shapes, the last byte of the last tensor is the last byte of the file. */
#include "runtime/io/safetensors.h"

#include "runtime/core/bf16.h"
#include "runtime/io/json.h"
#include "runtime/io/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_HEADER_BYTES ((int64_t)100000000)
/* TUNE: on the stack, and long enough that a read costs more than its call. */
#define READ_BYTES 65536

static double load_f64(const unsigned char *at)
{
    double value;
    memcpy(&value, at, sizeof value);
    return value;
}

static double load_f32(const unsigned char *at)
{
    float value;
    memcpy(&value, at, sizeof value);
    return value;
}

static double load_bf16(const unsigned char *at)
{
    return lp_bf16_to_f32((uint16_t)(at[0] | at[1] << 8));
}

static double load_f16(const unsigned char *at)
{
    int bits = at[0] | at[1] << 8, exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                   : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                  : ldexp(fraction, -24);
    return bits & 0x8000 ? -value : value;
}

static const LpFileType file_types[] = {
    {"F32", 4, load_f32}, {"BF16", 2, load_bf16}, {"F16", 2, load_f16}, {"F64", 8, load_f64},
    {"I64", 8, NULL},     {"U64", 8, NULL},       {"I32", 4, NULL},     {"U32", 4, NULL},
    {"I16", 2, NULL},     {"U16", 2, NULL},       {"I8", 1, NULL},      {"U8", 1, NULL},
    {"BOOL", 1, NULL},    {"F8_E4M3", 1, NULL},   {"F8_E5M2", 1, NULL},
};

int64_t lp_tensor_count(const LpTensor *tensor)
{
    int64_t count = 1;
    for (int i = 0; i < tensor->ndims; i++)
        count *= tensor->dims[i];
    return count;
}

/* ---- reading a header ---- */

static void parse_type(LpJson *json, LpEntry *entry)
{
    char *name = lp_json_string(json);
    for (size_t i = 0; name && i < sizeof file_types / sizeof *file_types; i++)
        if (strcmp(file_types[i].name, name) == 0)
            entry->type = &file_types[i];
    if (name && !entry->type)
        lp_json_fail(json, "unknown dtype");
    free(name);
}

static void parse_shape(LpJson *json, LpEntry *entry)
{
    bool first = true;
    entry->ndims = 0;
    if (!lp_json_take(json, '['))
        return;
    while (lp_json_item(json, ']', &first)) {
        if (entry->ndims == LP_FILE_DIMS)
            lp_json_fail(json, "more than 8 dims");
        else if (lp_json_int(json, &entry->dims[entry->ndims]))
            entry->ndims++;
    }
}

static void parse_offsets(LpJson *json, LpEntry *entry)
{
    bool first = true;
    int64_t ends[2] = {0, 0};
    int count = 0;
    if (!lp_json_take(json, '['))
        return;
    while (lp_json_item(json, ']', &first)) {
        if (count == 2)
            lp_json_fail(json, "data_offsets are two numbers");
        else if (lp_json_int(json, &ends[count]))
            count++;
    }
    if (count != 2)
        lp_json_fail(json, "data_offsets are two numbers");
    entry->begin = ends[0];
    entry->end = ends[1];
}

static void parse_entry(LpJson *json, LpEntry *entry, int64_t data_bytes)
{
    bool first = true;
    unsigned seen = 0;
    if (!lp_json_take(json, '{'))
        return;
    while (lp_json_item(json, '}', &first)) {
        char *key = lp_json_key(json);
        unsigned bit = !key                               ? 0
                       : strcmp(key, "dtype") == 0        ? 1
                       : strcmp(key, "shape") == 0        ? 2
                       : strcmp(key, "data_offsets") == 0 ? 4
                                                          : 0;
        free(key);
        if (bit == 0 || seen & bit)
            lp_json_fail(json, bit ? "a key twice in one tensor"
                                   : "expected dtype, shape or data_offsets");
        else if (bit == 1)
            parse_type(json, entry);
        else if (bit == 2)
            parse_shape(json, entry);
        else
            parse_offsets(json, entry);
        seen |= bit;
    }
    if (seen != 7)
        lp_json_fail(json, "a tensor needs dtype, shape and data_offsets");
    if (json->error)
        return;
    int64_t bytes = entry->type->bytes;
    for (int i = 0; i < entry->ndims; i++) {
        if (entry->dims[i] > 0 && bytes > INT64_MAX / entry->dims[i]) {
            lp_json_fail(json, "a shape too large");
            return;
        }
        bytes *= entry->dims[i];
    }
    if (entry->begin > entry->end || entry->end > data_bytes)
        lp_json_fail(json, "data_offsets outside the file");
    else if (entry->end - entry->begin != bytes)
        lp_json_fail(json, "data_offsets and shape disagree on the size");
}

static LpEntry *entry_add(LpWeights *weights)
{
    if (weights->count == weights->capacity) {
        int capacity = weights->capacity ? 2 * weights->capacity : 64;
        LpEntry *entries = realloc(weights->entries, (size_t)capacity * sizeof *entries);
        if (!entries)
            return NULL;
        weights->entries = entries;
        weights->capacity = capacity;
    }
    LpEntry *entry = &weights->entries[weights->count++];
    *entry = (LpEntry){.file = weights->file_count - 1};
    return entry;
}

static void parse_header(LpJson *json, LpWeights *weights, int64_t data_bytes)
{
    bool first = true;
    if (!lp_json_take(json, '{'))
        return;
    while (lp_json_item(json, '}', &first)) {
        char *name = lp_json_key(json);
        if (name && strcmp(name, "__metadata__") == 0) {
            free(name);
            lp_json_skip(json);
            continue;
        }
        LpEntry *entry = name ? entry_add(weights) : NULL;
        if (!entry) {
            free(name);
            lp_json_fail(json, "out of memory");
            return;
        }
        entry->name = name;
        parse_entry(json, entry, data_bytes);
    }
    lp_json_end(json);
}

static int by_place(const void *a, const void *b)
{
    const LpEntry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const LpEntry *)a)->name, ((const LpEntry *)b)->name);
}

/* The tensors of one file, entries [from, count), must tile its data. Turns offsets into file
 * positions. */
static bool check_places(LpWeights *weights, int from, int64_t data_begin, int64_t data_bytes,
                         char *error, size_t size)
{
    const char *path = weights->paths[weights->file_count - 1];
    int64_t at = 0;
    if (weights->count > from)
        qsort(weights->entries + from, (size_t)(weights->count - from), sizeof(LpEntry), by_place);
    for (int i = from; i < weights->count; i++) {
        LpEntry *entry = &weights->entries[i];
        if (entry->begin != at) {
            snprintf(error, size, "%s: `%s` begins at byte %lld of the data, %s %lld", path,
                     entry->name, (long long)entry->begin,
                     entry->begin < at ? "inside the tensor that ends at" : "after a hole from",
                     (long long)at);
            return false;
        }
        at = entry->end;
        entry->begin += data_begin;
        entry->end += data_begin;
    }
    if (at != data_bytes) {
        snprintf(error, size, "%s: the tensors end at byte %lld of the data, the file has %lld",
                 path, (long long)at, (long long)data_bytes);
        return false;
    }
    return true;
}

static bool read_fully(int file, void *data, int64_t bytes, int64_t offset)
{
    unsigned char *at = data;
    while (bytes > 0) {
        ssize_t got = pread(file, at, (size_t)bytes, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        bytes -= got;
        offset += got;
    }
    return true;
}

static bool file_add(LpWeights *weights, const char *path, char *error, size_t size)
{
    char **paths = realloc(weights->paths, (size_t)(weights->file_count + 1) * sizeof *paths);
    weights->paths = paths ? paths : weights->paths;
    int *files = realloc(weights->files, (size_t)(weights->file_count + 1) * sizeof *files);
    weights->files = files ? files : weights->files;
    char *copy = malloc(strlen(path) + 1);
    if (!paths || !files || !copy) {
        free(copy);
        snprintf(error, size, "%s: out of memory", path);
        return false;
    }
    weights->paths[weights->file_count] = strcpy(copy, path);
    int file = weights->files[weights->file_count++] = open(path, O_RDONLY | O_NONBLOCK);
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0) {
        snprintf(error, size, "%s: %s", path, strerror(errno));
        return false;
    }
    unsigned char word[8];
    int64_t length = 0;
    if (status.st_size < 8 || !read_fully(file, word, 8, 0)) {
        snprintf(error, size, "%s: byte 0: no safetensors file: shorter than its length field",
                 path);
        return false;
    }
    for (int i = 7; i >= 0; i--)
        length = (int64_t)((uint64_t)length << 8 | word[i]);
    if (length < 0 || length > MAX_HEADER_BYTES || length > status.st_size - 8) {
        snprintf(error, size,
                 "%s: byte 0: a header of %lld bytes in a file of %lld (truncated, or no "
                 "safetensors file)",
                 path, (long long)length, (long long)status.st_size);
        return false;
    }
    char *text = malloc((size_t)length + 1);
    if (!text || !read_fully(file, text, length, 8)) {
        free(text);
        snprintf(error, size, "%s: cannot read the header of %lld bytes", path, (long long)length);
        return false;
    }
    LpJson json = {.text = text, .length = length};
    int from = weights->count;
    int64_t data_bytes = status.st_size - 8 - length;
    parse_header(&json, weights, data_bytes);
    free(text);
    if (json.error) {
        bool named = weights->count > from && weights->entries[weights->count - 1].name;
        snprintf(error, size, "%s: byte %lld: %s%s%s%s", path, (long long)(8 + json.at), json.error,
                 named ? " (at `" : "", named ? weights->entries[weights->count - 1].name : "",
                 named ? "`)" : "");
        return false;
    }
    return check_places(weights, from, 8 + length, data_bytes, error, size);
}

/* ---- several files behind an index ---- */

static char *read_text(const char *path, int64_t *ret_length, char *error, size_t size)
{
    struct stat status;
    int file = open(path, O_RDONLY | O_NONBLOCK);
    char *text = NULL;
    if (file < 0 || fstat(file, &status) != 0)
        snprintf(error, size, "%s: %s", path, strerror(errno));
    else if (status.st_size > MAX_HEADER_BYTES || !(text = malloc((size_t)status.st_size + 1)))
        snprintf(error, size, "%s: too large for an index", path);
    else if (!read_fully(file, text, status.st_size, 0)) {
        snprintf(error, size, "%s: %s", path, strerror(errno));
        free(text);
        text = NULL;
    } else
        *ret_length = status.st_size;
    if (file >= 0)
        close(file);
    return text;
}

/* Opens `name`, which lies beside the index at `path`. */
static bool index_file_add(LpWeights *weights, const char *path, const char *name, char *error,
                           size_t size)
{
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path) + 1 : 0;
    char *full = malloc((size_t)folder + strlen(name) + 1);
    if (!full || strchr(name, '/')) {
        snprintf(error, size, "%s: weight_map names `%s`, which is no file beside the index", path,
                 name);
        free(full);
        return false;
    }
    sprintf(full, "%.*s%s", folder, path, name);
    bool ok = file_add(weights, full, error, size);
    free(full);
    return ok;
}

/* Where an index says each tensor is. */
typedef struct Index {
    struct {
        char *tensor, *file;
    } * at;
    int count, capacity;
} Index;

static void index_free(Index *index)
{
    for (int i = 0; i < index->count; i++) {
        free(index->at[i].tensor);
        free(index->at[i].file);
    }
    free(index->at);
}

/* Takes both texts over. */
static bool index_add(Index *index, char *tensor, char *file)
{
    if (index->count == index->capacity) {
        int capacity = index->capacity ? 2 * index->capacity : 64;
        void *at = realloc(index->at, (size_t)capacity * sizeof *index->at);
        index->at = at ? at : index->at;
        index->capacity = at ? capacity : index->capacity;
    }
    if (!tensor || !file || index->count == index->capacity) {
        free(tensor);
        free(file);
        return false;
    }
    index->at[index->count].tensor = tensor;
    index->at[index->count++].file = file;
    return true;
}

static bool index_parse(Index *index, const char *path, char *error, size_t size)
{
    int64_t length = 0;
    char *text = read_text(path, &length, error, size);
    if (!text)
        return false;
    LpJson json = {.text = text, .length = length};
    bool first = true, mapped = false;
    lp_json_take(&json, '{');
    while (lp_json_item(&json, '}', &first)) {
        char *key = lp_json_key(&json);
        bool map = key && strcmp(key, "weight_map") == 0, first_name = true;
        free(key);
        if (!map) {
            lp_json_skip(&json);
            continue;
        }
        mapped = true;
        lp_json_take(&json, '{');
        while (lp_json_item(&json, '}', &first_name)) {
            char *tensor = lp_json_key(&json), *name = tensor ? lp_json_string(&json) : NULL;
            if (!index_add(index, tensor, name) && !json.error)
                lp_json_fail(&json, "out of memory");
        }
    }
    bool ok = !json.error && lp_json_end(&json) && mapped;
    if (!ok)
        snprintf(error, size, "%s: byte %lld: %s", path, (long long)json.at,
                 json.error ? json.error : "no weight_map");
    free(text);
    return ok;
}

/* Opens every file of the index; what is wrong with each of them goes into one message. */
static bool index_open(LpWeights *weights, const Index *index, const char *path, char *error,
                       size_t size)
{
    size_t n = 0;
    for (int i = 0; i < index->count; i++) {
        bool tried = false;
        for (int k = i - 1; k >= 0 && !tried; k--)
            tried = strcmp(index->at[k].file, index->at[i].file) == 0;
        if (tried || index_file_add(weights, path, index->at[i].file, error + n, size - n))
            continue;
        n += strlen(error + n);
        if (n + 2 < size)
            error[n++] = '\n';
    }
    if (n > 0)
        error[n - 1] = '\0';
    return n == 0;
}

/* Every name of the map is in the file that the map says. */
static bool index_check(const LpWeights *weights, const Index *index, char *error, size_t size)
{
    for (int i = 0; i < index->count; i++) {
        const LpEntry *entry = lp_weights_find(weights, index->at[i].tensor);
        const char *path = entry ? weights->paths[entry->file] : "";
        const char *slash = strrchr(path, '/');
        if (strcmp(slash ? slash + 1 : path, index->at[i].file) == 0)
            continue;
        snprintf(error, size, "the index is wrong: `%s` is not in %s", index->at[i].tensor,
                 index->at[i].file);
        return false;
    }
    return true;
}

static bool names_check(LpWeights *weights, const char *path, char *error, size_t size)
{
    if (weights->count > 0)
        qsort(weights->entries, (size_t)weights->count, sizeof(LpEntry), by_name);
    for (int i = 1; i < weights->count; i++)
        if (strcmp(weights->entries[i - 1].name, weights->entries[i].name) == 0) {
            snprintf(error, size, "%s: `%s` is there twice", path, weights->entries[i].name);
            return false;
        }
    return true;
}

LpWeights *lp_weights_open(const char *path, char *error, size_t error_size)
{
    LpWeights *weights = calloc(1, sizeof *weights);
    Index index = {0};
    size_t n = strlen(path);
    if (!weights) {
        snprintf(error, error_size, "%s: out of memory", path);
        return NULL;
    }
    bool is_index = n > 5 && strcmp(path + n - 5, ".json") == 0;
    bool ok = is_index ? index_parse(&index, path, error, error_size) &&
                             index_open(weights, &index, path, error, error_size)
                       : file_add(weights, path, error, error_size);
    ok = ok && names_check(weights, path, error, error_size) &&
         index_check(weights, &index, error, error_size);
    index_free(&index);
    if (ok)
        return weights;
    lp_weights_close(weights);
    return NULL;
}

void lp_weights_close(LpWeights *weights)
{
    if (!weights)
        return;
    for (int i = 0; i < weights->count; i++)
        free(weights->entries[i].name);
    for (int i = 0; i < weights->file_count; i++) {
        free(weights->paths[i]);
        if (weights->files[i] >= 0)
            close(weights->files[i]);
    }
    free(weights->entries);
    free(weights->paths);
    free(weights->files);
    free(weights);
}

const LpEntry *lp_weights_find(const LpWeights *weights, const char *name)
{
    LpEntry key = {.name = (char *)(uintptr_t)name};
    if (weights->count == 0)
        return NULL;
    return bsearch(&key, weights->entries, (size_t)weights->count, sizeof key, by_name);
}

bool lp_weights_read_run(const LpWeights *weights, const LpEntry *entry, int64_t first, int64_t n,
                         void *data, int64_t at, LpDtype dtype, LpBits *bits, char *error,
                         size_t error_size)
{
    unsigned char buffer[READ_BYTES];
    int64_t width = entry->type->bytes, chunk = READ_BYTES / width;
    for (int64_t done = 0; done < n; done += chunk) {
        int64_t part = n - done < chunk ? n - done : chunk;
        if (!read_fully(weights->files[entry->file], buffer, part * width,
                        entry->begin + (first + done) * width)) {
            snprintf(error, error_size, "%s: cannot read `%s`: %s", weights->paths[entry->file],
                     entry->name, strerror(errno));
            return false;
        }
        if (bits)
            lp_bits_add(bits, entry->name, first + done, part, buffer, (int)width);
        for (int64_t k = 0; k < part; k++)
            lp_number_put(data, dtype, at + done + k, entry->type->load(buffer + k * width));
    }
    return true;
}

bool lp_weights_read(const LpWeights *weights, const LpEntry *entry, const LpShard *shard,
                     void *data, LpDtype dtype, char *error, size_t error_size)
{
    bool ok = true;
    LpRuns runs = lp_runs_begin(shard);
    while (ok && lp_runs_next(&runs))
        ok = lp_weights_read_run(weights, entry, runs.global, runs.length, data, runs.local, dtype,
                                 NULL, error, error_size);
    return ok;
}

/* ---- writing a header ---- */

static size_t put_name(char *out, const char *name)
{
    size_t n = 0;
    for (; *name; name++) {
        if (*name == '"' || *name == '\\')
            out[n++] = '\\';
        out[n++] = *name;
    }
    return n;
}

char *lp_weights_header(const LpTensor *tensors, int count, LpDtype dtype, int64_t *ret_bytes)
{
    size_t size = 128;
    for (int i = 0; i < count; i++)
        size += 2 * strlen(tensors[i].name) + 128 + 24 * LP_MAX_DIMS;
    char *text = malloc(size);
    if (!text)
        return NULL;
    size_t n = 8;
    int64_t at = 0;
    n += (size_t)sprintf(text + n, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = 0; i < count; i++) {
        const LpTensor *tensor = &tensors[i];
        int64_t bytes = lp_tensor_count(tensor) * (dtype == LP_F64                       ? 8
                                                   : dtype == LP_BF16 || dtype == LP_F16 ? 2
                                                                                         : 4);
        n += (size_t)sprintf(text + n, ",\"");
        n += put_name(text + n, tensor->name);
        n += (size_t)sprintf(text + n, "\":{\"dtype\":\"%s\",\"shape\":[",
                             dtype == LP_F64    ? "F64"
                             : dtype == LP_BF16 ? "BF16"
                             : dtype == LP_F16  ? "F16"
                                                : "F32");
        for (int d = 0; d < tensor->ndims; d++)
            n += (size_t)sprintf(text + n, "%s%lld", d ? "," : "", (long long)tensor->dims[d]);
        n += (size_t)sprintf(text + n, "],\"data_offsets\":[%lld,%lld]}", (long long)at,
                             (long long)(at + bytes));
        at += bytes;
    }
    text[n++] = '}';
    while (n % 8 != 0)
        text[n++] = ' ';
    for (int i = 0; i < 8; i++)
        text[i] = (char)((uint64_t)(n - 8) >> (8 * i) & 0xff);
    *ret_bytes = (int64_t)n;
    return text;
}
