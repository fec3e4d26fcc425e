/* fit.c - names, shapes, types and tied copies of a file against the model's table. */
#include "runtime/io/fit.h"

#include "runtime/core/self.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPORT_BYTES 3500

/* ---- which entry is which tensor ---- */

static bool same_shape(const LpTensor *tensor, const LpEntry *entry)
{
    bool same = tensor->ndims == entry->ndims;
    for (int d = 0; same && d < entry->ndims; d++)
        same = tensor->dims[d] == entry->dims[d];
    return same;
}

/* Files of one model differ by what stands before all names but the head's: `add` of a file stands
 * before a model's name, `drop` bytes of a model's name are missing in a file. */
typedef struct Prefix {
    const char *add;
    size_t add_bytes, drop;
    const char *dropped; /* a name that begins with what is dropped */
} Prefix;

static const LpEntry *entry_under(const LpWeights *weights, const char *name, const Prefix *prefix)
{
    const LpEntry *entry = lp_weights_find(weights, name);
    if (!entry && prefix->drop && strncmp(name, prefix->dropped, prefix->drop) == 0)
        entry = lp_weights_find(weights, name + prefix->drop);
    if (!entry && prefix->add_bytes) {
        char *longer = lp_new(prefix->add_bytes + strlen(name) + 1, 1);
        sprintf(longer, "%.*s%s", (int)prefix->add_bytes, prefix->add, name);
        entry = lp_weights_find(weights, longer);
        free(longer);
    }
    return entry;
}

/* What the first name that is not there suggests. */
static Prefix prefix_guess(const LpStored *stored, const LpWeights *weights)
{
    Prefix prefix = {0};
    const char *name = NULL;
    for (int i = 0; i < stored->count && !name; i++)
        if (!lp_weights_find(weights, stored->tensors[i].name))
            name = stored->tensors[i].name;
    const char *dot = name ? strchr(name, '.') : NULL;
    if (dot && lp_weights_find(weights, dot + 1)) {
        prefix.drop = (size_t)(dot + 1 - name);
        prefix.dropped = name;
        return prefix;
    }
    for (int k = 0; name && k < weights->count && !prefix.add; k++) {
        const char *longer = weights->entries[k].name;
        size_t n = strlen(longer), tail = strlen(name);
        if (n <= tail || strcmp(longer + n - tail, name) != 0 || longer[n - tail - 1] != '.')
            continue;
        prefix.add = longer;
        prefix.add_bytes = n - tail;
    }
    return prefix;
}

/* False when two tensors would be one entry, or one that `all` asks for is not there. */
static bool entries_under(const LpStored *stored, const LpWeights *weights, const Prefix *prefix,
                          bool all, const LpEntry **entries, bool *used)
{
    memset(used, 0, (size_t)weights->count * sizeof *used);
    for (int i = 0; i < stored->count; i++) {
        const LpEntry *entry = entries[i] = entry_under(weights, stored->tensors[i].name, prefix);
        if ((entry && used[entry - weights->entries]) || (!entry && all))
            return false;
        if (entry)
            used[entry - weights->entries] = true;
    }
    return true;
}

/* The one entry of the shape of a tied tensor that no other tensor is, or NULL. */
static const LpEntry *tied_entry(const LpTensor *tensor, const LpWeights *weights, const bool *used)
{
    const LpEntry *found = NULL;
    int candidates = 0;
    for (int k = 0; k < weights->count; k++) {
        if (used[k] || !same_shape(tensor, &weights->entries[k]))
            continue;
        candidates++;
        found = &weights->entries[k];
    }
    return candidates == 1 ? found : NULL;
}

const LpEntry **lp_fit_entries(const LpStored *stored, const LpWeights *weights, bool *ret_used)
{
    const LpEntry **entries = lp_new((size_t)stored->count + 1, sizeof *entries);
    const Prefix none = {0}, guess = prefix_guess(stored, weights);
    bool guessed = guess.drop || guess.add_bytes;
    if (!guessed || !entries_under(stored, weights, &guess, true, entries, ret_used))
        entries_under(stored, weights, &none, false, entries, ret_used);
    for (int i = 0; i < stored->count; i++) {
        if (entries[i] || !stored->tensors[i].tied)
            continue;
        entries[i] = tied_entry(&stored->tensors[i], weights, ret_used);
        if (entries[i])
            ret_used[entries[i] - weights->entries] = true;
    }
    return entries;
}

/* ---- what does not fit ---- */

typedef struct Report {
    char *text; /* REPORT_BYTES */
    size_t length;
    int left_out;
} Report;

static void put_shape(char *text, size_t size, const int64_t *dims, int ndims)
{
    size_t n = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < ndims && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%lld", i ? "," : "", (long long)dims[i]);
    if (n < size)
        snprintf(text + n, size - n, "]");
}

static void report_add(Report *report, const char *line)
{
    size_t n = strlen(line);
    if (report->length + n + 80 > REPORT_BYTES) {
        report->left_out++;
        return;
    }
    memcpy(report->text + report->length, line, n + 1);
    report->length += n;
}

/* Tensors of files that are no parameters: masks and tables that old versions stored. */
static bool is_buffer(const LpEntry *entry)
{
    static const char *const endings[] = {".attn.bias", ".attention.bias", ".masked_bias",
                                          ".rotary_emb.inv_freq"};
    size_t n = strlen(entry->name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t k = strlen(endings[i]);
        if (n <= k || strcmp(entry->name + n - k, endings[i]) != 0)
            continue;
        bool mask = entry->ndims == 4 && entry->dims[0] == 1 && entry->dims[1] == 1;
        return i < 2 ? mask : true;
    }
    return false;
}

static void compare_tensor(Report *report, const LpTensor *tensor, const LpEntry *entry)
{
    char line[512], model[160], file[200] = "";
    put_shape(model, sizeof model, tensor->dims, tensor->ndims);
    if (entry)
        put_shape(file, sizeof file, entry->dims, entry->ndims);
    if (!entry)
        snprintf(line, sizeof line, "\n  missing in the file: %.200s %s", tensor->name, model);
    else if (strcmp(model, file) != 0)
        snprintf(line, sizeof line, "\n  shape of %.200s: %s in the file, %s in the model",
                 tensor->name, file, model);
    else if (!entry->type->load)
        snprintf(line, sizeof line, "\n  type of %.200s: %s holds no weights", tensor->name,
                 entry->type->name);
    else
        return;
    report_add(report, line);
}

static bool same_contents(const LpWeights *weights, const LpEntry *a, const LpEntry *b)
{
    enum { EACH = 4096 };
    char error[512];
    double *x = lp_new(2 * EACH, sizeof *x), *y = x + EACH;
    int64_t n = (a->end - a->begin) / a->type->bytes;
    bool same = true;
    for (int64_t at = 0; same && at < n; at += EACH) {
        int64_t part = n - at < EACH ? n - at : EACH;
        if (!lp_weights_read_run(weights, a, at, part, x, 0, LP_F64, NULL, error, sizeof error) ||
            !lp_weights_read_run(weights, b, at, part, y, 0, LP_F64, NULL, error, sizeof error))
            lp_fail(1, "%s", error);
        same = memcmp(x, y, (size_t)part * sizeof *x) == 0;
    }
    free(x);
    return same;
}

/* A name that the model does not know: a second copy of a tied tensor, or an error. */
static void compare_unknown(Report *report, const LpStored *stored, const LpWeights *weights,
                            const LpEntry *const *entries, const LpEntry *entry)
{
    char line[1024], shape[200];
    int other = -1; /* a tied tensor that it is no copy of */
    if (is_buffer(entry))
        return;
    for (int i = 0; i < stored->count; i++) {
        const LpEntry *first = entries[i];
        bool comparable = stored->tensors[i].tied && first && first->type->load &&
                          entry->type->load && same_shape(&stored->tensors[i], entry) &&
                          same_shape(&stored->tensors[i], first);
        if (comparable && same_contents(weights, first, entry))
            return;
        other = comparable ? i : other;
    }
    put_shape(shape, sizeof shape, entry->dims, entry->ndims);
    int n = snprintf(line, sizeof line, "\n  unknown to the model: %.200s %s", entry->name, shape);
    if (other >= 0)
        snprintf(line + n, sizeof line - (size_t)n, ", and not equal to %.200s, which is tied",
                 stored->tensors[other].name);
    report_add(report, line);
}

char *lp_fit_faults(const LpStored *stored, const LpWeights *weights, const LpEntry *const *entries,
                    const bool *used)
{
    Report report = {.text = lp_new(REPORT_BYTES, 1)};
    for (int i = 0; i < stored->count; i++)
        compare_tensor(&report, &stored->tensors[i], entries[i]);
    for (int i = 0; i < weights->count; i++)
        if (!used[i])
            compare_unknown(&report, stored, weights, entries, &weights->entries[i]);
    if (report.left_out > 0)
        snprintf(report.text + report.length, REPORT_BYTES - report.length, "\n  and %d more",
                 report.left_out);
    return report.text;
}
