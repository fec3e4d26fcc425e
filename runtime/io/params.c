/* params.c - the parameters of a rank: initial values, and logical tensors written from every rank.
 *
 * A file of weights knows nothing of the plan: names, whole shapes, values. Each rank reads or
 * writes the runs of its own boxes; the owners' boxes must tile every tensor, which is counted
 * before the rename. */
#include "runtime/io/params.h"

#include "runtime/core/bf16.h"
#include "runtime/core/lanes.h"
#include "runtime/core/log.h"
#include "runtime/io/fit.h"
#include "runtime/io/safetensors.h"
#include "runtime/io/shard.h"
#include "runtime/io/stored.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_ELEMENTS ((int64_t)1 << 17)

/* ---- loading ---- */

static LpStored *stored_of(const LpJob *job)
{
    char error[1024];
    LpStored *stored = lp_stored_new(job->tensors, job->tensor_count, error, sizeof error);
    if (!stored)
        lp_fail_all(70, "%s", error);
    return stored;
}

static void parts_check(const LpJob *job, const LpPart *parts, int count)
{
    for (int i = 0; i < count; i++) {
        if (parts[i].tensor < 0 || parts[i].tensor >= job->tensor_count)
            lp_fail(70, "part %d is of tensor %d of %d", i, parts[i].tensor, job->tensor_count);
        const LpTensor *tensor = &job->tensors[parts[i].tensor];
        const char *error = lp_shard_error(&parts[i].shard, tensor);
        if (error)
            lp_fail(70, "%s: %s", tensor->name, error);
    }
}

static void part_read(const LpPart *part, const LpStored *stored, const LpWeights *weights,
                      const LpEntry *const *entries, LpBits *bits)
{
    char error[1024];
    memset(part->data, 0, (size_t)(lp_shard_count(&part->shard) * lp_dtype_bytes(part->dtype)));
    LpRuns runs = lp_runs_begin(&part->shard);
    while (lp_runs_next(&runs))
        for (int64_t i = 0, n; i < runs.length; i += n) {
            int index;
            int64_t begin;
            n = lp_stored_run(stored, part->tensor, runs.global + i, runs.length - i, &index,
                              &begin);
            if (!lp_weights_read_run(weights, entries[index], begin, n, part->data, runs.local + i,
                                     part->dtype, part->owner ? bits : NULL, error, sizeof error))
                lp_fail(1, "%s", error);
        }
}

static void sum_over_world(double *values, int count)
{
    LpEvent event = {0};
    lp_all_reduce(&event, LP_WORLD, values, count, LP_F64, LP_SUM);
    lp_wait(&event);
}

/* Of all ranks: the sum, in 63 bits, and *elements. Doubles add quarters of 64 bits exactly. */
static int64_t bits_of_world(LpBits bits, int64_t *elements)
{
    double part[5];
    for (int i = 0; i < 4; i++)
        part[i] = (double)(bits.sum >> 16 * i & 0xffff);
    part[4] = (double)bits.elements;
    sum_over_world(part, 5);
    uint64_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (uint64_t)part[i] << 16 * i;
    *elements = (int64_t)part[4];
    return (int64_t)(sum & INT64_MAX);
}

static int64_t elements_of(const LpStored *stored)
{
    int64_t elements = 0;
    for (int i = 0; i < stored->count; i++)
        elements += lp_tensor_count(&stored->tensors[i]);
    return elements;
}

void lp_load_file(const LpSelf *self, const char *path, const LpPart *parts, int count,
                  const LpSaved *saved)
{
    const LpJob *job = self->rank.job;
    char error[1024];
    parts_check(job, parts, count);
    LpStored *stored = stored_of(job);
    LpWeights *weights = lp_weights_open(path, error, sizeof error);
    if (!weights)
        lp_fail_all(1, "%s%s", error, saved ? saved->remedy : "");
    bool *used = lp_new((size_t)weights->count + 1, sizeof *used);
    const LpEntry **entries = lp_fit_entries(stored, weights, used);
    /* Copies of tied tensors are compared once. */
    char *faults = self->rank.index == 0 ? lp_fit_faults(stored, weights, entries, used) : NULL;
    double any = faults && faults[0];
    sum_over_world(&any, 1);
    if (any > 0)
        lp_fail_all(1, "%s does not fit the model:%s", path, faults ? faults : "");
    free(faults);
    free(used);
    LpBits bits = {0};
    for (int i = 0; i < count; i++)
        part_read(&parts[i], stored, weights, entries, saved ? &bits : NULL);
    free(entries);
    int64_t elements = 0, held = saved ? bits_of_world(bits, &elements) : 0;
    /* a plan that has not this state of every tensor has not read all */
    if (saved && saved->bits >= 0 && elements == elements_of(stored) && held != saved->bits)
        lp_fail_all(1, "%s is damaged: it does not hold the bits that were saved%s", path,
                    saved->remedy);
    lp_weights_close(weights);
    lp_stored_free(stored);
}

void lp_load(const LpPart *parts, int count)
{
    LpSelf *self = lp_self;
    const LpJob *job = self->rank.job;
    const char *init = self->rank.options->init;
    lp_at("load parameters");
    parts_check(job, parts, count);
    if (init && strcmp(init, "random") != 0) {
        lp_load_file(self, init, parts, count, NULL);
        return;
    }
    for (int i = 0; i < count; i++) {
        const LpTensor *tensor = &job->tensors[parts[i].tensor];
        lp_fill_shard(parts[i].data, parts[i].dtype, &parts[i].shard, tensor->fill, tensor->std,
                      self->rank.options->seed, parts[i].tensor);
    }
}

/* ---- saving ---- */

static bool write_fully(int file, const void *data, int64_t bytes, int64_t offset)
{
    const unsigned char *at = data;
    while (bytes > 0) {
        ssize_t put = pwrite(file, at, (size_t)bytes, (off_t)offset);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        at += put;
        bytes -= put;
        offset += put;
    }
    return true;
}

/* Elements [local, local + n) of the part as the file stores them. */
static void encode(const LpPart *part, int64_t local, int64_t n, LpDtype dtype, void *out)
{
    if (part->dtype == dtype) {
        int64_t width = lp_dtype_bytes(dtype);
        memcpy(out, (const unsigned char *)part->data + local * width, (size_t)(n * width));
        return;
    }
    for (int64_t i = 0; i < n; i++)
        lp_number_put(out, dtype, i, lp_number_at(part->data, part->dtype, local + i));
}

/* Returns the elements written; -1 after an error. offsets: bytes in the file, per stored tensor.
 */
static int64_t part_write(int file, const LpPart *part, const LpStored *stored,
                          const int64_t *offsets, LpDtype dtype, void *buffer, LpBits *bits)
{
    int64_t width = lp_dtype_bytes(dtype), written = 0;
    LpRuns runs = lp_runs_begin(&part->shard);
    while (lp_runs_next(&runs))
        for (int64_t i = 0, n; i < runs.length; i += n) {
            int index;
            int64_t begin, left = runs.length - i;
            n = lp_stored_run(stored, part->tensor, runs.global + i,
                              left < CHUNK_ELEMENTS ? left : CHUNK_ELEMENTS, &index, &begin);
            encode(part, runs.local + i, n, dtype, buffer);
            if (!write_fully(file, buffer, n * width, offsets[index] + begin * width))
                return -1;
            lp_bits_add(bits, stored->tensors[index].name, begin, n, buffer, (int)width);
            written += n;
        }
    return written;
}

/* Closes the file of a write that went well or not; 0 or an errno. */
static int closed(int file, bool good)
{
    int error = good ? 0 : errno;
    if (file >= 0 && close(file) != 0 && error == 0)
        error = errno;
    return error;
}

static int header_write(const char *aside, const char *header, int64_t header_bytes,
                        int64_t file_bytes)
{
    int file = open(aside, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    return closed(file, file >= 0 && write_fully(file, header, header_bytes, 0) &&
                            ftruncate(file, (off_t)file_bytes) == 0);
}

static int parts_write(const char *aside, const LpPart *parts, int count, const LpStored *stored,
                       const int64_t *offsets, LpDtype dtype, double *written, LpBits *bits)
{
    int file = open(aside, O_WRONLY);
    bool good = file >= 0;
    void *buffer = lp_new((size_t)CHUNK_ELEMENTS, 8);
    for (int i = 0; good && i < count; i++) {
        if (!parts[i].owner)
            continue;
        int64_t elements = part_write(file, &parts[i], stored, offsets, dtype, buffer, bits);
        good = elements >= 0;
        written[parts[i].tensor] += (double)elements;
    }
    int error = closed(file, good && fsync(file) == 0);
    free(buffer);
    return error;
}

int lp_save_state(const char *path, const LpState *state, int64_t *ret_bits)
{
    const LpPart *parts = state->parts;
    int count = state->count;
    LpDtype dtype = state->dtype;
    LpSelf *self = lp_self;
    const LpJob *job = self->rank.job;
    bool first = self->rank.index == 0;
    lp_at("save parameters");
    parts_check(job, parts, count);
    int64_t at = 0;
    LpStored *stored = stored_of(job);
    char *header = lp_weights_header(stored->tensors, stored->count, dtype, &at);
    char *aside = lp_new(strlen(path) + 8, 1);
    int64_t *offsets = lp_new((size_t)stored->count + 1, sizeof *offsets);
    double *written = lp_new((size_t)job->tensor_count + 1, sizeof *written);
    if (!header)
        lp_fail(1, "out of memory for the header of %s", path);
    int64_t header_bytes = at;
    for (int i = 0; i < stored->count; i++) {
        offsets[i] = at;
        at += lp_tensor_count(&stored->tensors[i]) * lp_dtype_bytes(dtype);
    }
    sprintf(aside, "%s.part", path);
    LpBits bits = {0};
    /* Nobody opens the file before it is there; nobody renames it before all have synced. */
    int error = lp_agree(first ? header_write(aside, header, header_bytes, at) : 0);
    if (error == 0)
        error = lp_agree(parts_write(aside, parts, count, stored, offsets, dtype, written, &bits));
    sum_over_world(written, job->tensor_count);
    *ret_bits = bits_of_world(bits, &at);
    for (int i = 0; error == 0 && i < job->tensor_count; i++) {
        int64_t wanted = lp_tensor_count(&job->tensors[i]);
        bool none = written[i] == 0 && self->sparse_state && state->name &&
                    strcmp(self->sparse_state, state->name) == 0;
        if (written[i] != (double)wanted && !none)
            lp_fail_all(70, "%s: owners wrote %.0f elements of %s, which has %lld", path,
                        written[i], job->tensors[i].name, (long long)wanted);
    }
    error = lp_agree(first && error == 0 && rename(aside, path) != 0 ? errno : error);
    if (first && error != 0)
        unlink(aside);
    free(header);
    free(aside);
    free(offsets);
    free(written);
    lp_stored_free(stored);
    return error;
}

void lp_sparse_state(const char *name)
{
    lp_self->sparse_state = name;
}

void lp_save(const char *path, const LpPart *parts, int count, LpDtype dtype)
{
    const LpState whole = {.parts = parts, .count = count, .dtype = dtype};
    int64_t bits;
    int error = lp_save_state(path, &whole, &bits);
    if (error != 0)
        lp_fail_all(1, "cannot write %s: %s", path, strerror(error));
}

void lp_finish(const LpPart *parts, int count)
{
    LpSelf *self = lp_self;
    if (self->rank.options->save)
        lp_save(self->rank.options->save, parts, count, self->rank.options->save_dtype);
    lp_log_end(self);
    lp_lanes_measure(self);
}
