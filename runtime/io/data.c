/* data.c - tokens from files, and the global batch cut out of them.
 *
 * A batch is named by (step, micro-batch, row): samples are counted over the whole job, so every
 * plan, any data-parallel layout and a resumed run read the same tokens. Files are mapped, not
 * read: ranks on one machine share the pages. */
#include "runtime/io/data.h"

#include "runtime/io/philox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_BYTES 1024
#define HEADER_MAGIC_U16 20240520
#define HEADER_MAGIC_U32 20240801
#define RANDOM_TOKENS ((int64_t)1 << 20)

typedef enum Kind { KIND_BYTES, KIND_U16, KIND_U32, KIND_RANDOM } Kind;

struct LpData {
    Kind kind;
    const char *path;
    const unsigned char *map; /* the whole file */
    int64_t map_bytes;
    const unsigned char *first; /* token */
    int64_t tokens;
    uint64_t seed;
    int vocab;
    int64_t document_begin, document_end; /* tokens, or NO_TOKEN */
    int64_t counted_step, valid;          /* tokens with a valid label in that step */
    bool once; /* each token has one turn, and behind the last there is nothing */
};

enum { NO_TOKEN = -1 };

static int64_t kind_bytes(Kind kind)
{
    return kind == KIND_U32 ? 4 : kind == KIND_U16 ? 2 : 1;
}

static bool ends_in(const char *text, const char *tail)
{
    size_t n = strlen(text), k = strlen(tail);
    return n >= k && strcmp(text + n - k, tail) == 0;
}

static int32_t header_word(const LpData *data, int index)
{
    int32_t word;
    memcpy(&word, data->map + 4 * index, sizeof word);
    return word;
}

/* llm.c .bin: 256 int32 of header {magic, version, tokens}, then the tokens. */
static void bin_open(LpData *data)
{
    int magic = header_word(data, 0), version = header_word(data, 1);
    data->kind = magic == HEADER_MAGIC_U32 ? KIND_U32 : KIND_U16;
    int expected = data->kind == KIND_U32 ? 7 : 1;
    if (version != expected)
        lp_fail_all(1, "%s: byte 4: version %d of the token format, expected %d", data->path,
                    version, expected);
    data->tokens = header_word(data, 2);
    int64_t bytes = HEADER_BYTES + data->tokens * kind_bytes(data->kind);
    if (data->tokens < 0 || bytes != data->map_bytes)
        lp_fail_all(
            1, "%s: byte 8: the header says %lld tokens, that is %lld bytes, but the file has %lld",
            data->path, (long long)data->tokens, (long long)bytes, (long long)data->map_bytes);
    data->first = data->map + HEADER_BYTES;
}

static void file_open(LpData *data)
{
    struct stat status;
    /* A pipe without a writer would hold the job for ever. */
    int file = open(data->path, O_RDONLY | O_NONBLOCK);
    if (file < 0 || fstat(file, &status) != 0)
        lp_fail_all(1, "%s: %s", data->path, strerror(errno));
    if (!S_ISREG(status.st_mode))
        lp_fail_all(1, "%s: not a file", data->path);
    if (status.st_size == 0)
        lp_fail_all(1, "%s: no tokens: the file is empty", data->path);
    data->map_bytes = status.st_size;
    void *map = mmap(NULL, (size_t)data->map_bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (map == MAP_FAILED)
        lp_fail_all(1, "%s: %s", data->path, strerror(errno));
    close(file);
    data->map = map;
    int magic = data->map_bytes >= HEADER_BYTES ? header_word(data, 0) : 0;
    if (magic == HEADER_MAGIC_U16 || magic == HEADER_MAGIC_U32) {
        bin_open(data);
    } else if (ends_in(data->path, ".bin")) {
        lp_fail_all(1,
                    "%s: byte 0: not a token file: no magic %d or %d (text needs another ending)",
                    data->path, HEADER_MAGIC_U16, HEADER_MAGIC_U32);
    } else {
        data->kind = KIND_BYTES;
        data->first = data->map;
        data->tokens = data->map_bytes;
    }
    if (data->tokens == 0)
        lp_fail_all(1, "%s: no tokens", data->path);
}

static int64_t boundary_token(const LpJob *job, const char *option, const char *text)
{
    if (!text)
        return NO_TOKEN;
    char *end = NULL;
    long long token = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || token < 0 || token >= job->vocab)
        lp_fail_all(2, "--%s %s: a token is a number from 0 to %d", option, text, job->vocab - 1);
    if (!job->packed)
        lp_fail_all(2,
                    "--%s: this trainer was not planned for packed documents: lplan plan --packed",
                    option);
    return token;
}

static LpData *open_data(const LpJob *job, const LpOptions *options, const char *path, bool once)
{
    LpData *data = lp_new(1, sizeof *data);
    *data =
        (LpData){.path = path,
                 .seed = options->seed + once,
                 .once = once,
                 .vocab = job->vocab,
                 .document_begin = boundary_token(job, "document-begin", options->document_begin),
                 .document_end = boundary_token(job, "document-end", options->document_end),
                 .counted_step = -1};
    if (job->packed && data->document_begin == NO_TOKEN && data->document_end == NO_TOKEN)
        lp_fail_all(2, "packed documents need --document-begin TOKEN or --document-end TOKEN");
    if (strcmp(data->path, "random") == 0) {
        data->kind = KIND_RANDOM;
        data->tokens = RANDOM_TOKENS;
    } else {
        file_open(data);
    }
    return data;
}

LpData *lp_data_open(const LpJob *job, const LpOptions *options)
{
    return open_data(job, options, options->data, false);
}

LpData *lp_data_open_evaluation(const LpJob *job, const LpOptions *options)
{
    LpData *data = options->eval_data ? open_data(job, options, options->eval_data, true) : NULL;
    if (data && data->tokens < 2)
        lp_fail_all(1, "%s: %lld tokens: an evaluation needs two", data->path,
                    (long long)data->tokens);
    return data;
}

void lp_data_close(LpData *data)
{
    if (data && data->map)
        munmap((void *)(uintptr_t)data->map, (size_t)data->map_bytes);
    free(data);
}

int64_t lp_data_tokens(const LpData *data)
{
    return data->tokens;
}

static int32_t token_at(const LpData *data, int64_t index)
{
    uint32_t token = 0;
    if (data->once && index >= data->tokens)
        return 0;
    if (data->kind == KIND_RANDOM) {
        uint32_t numbers[4];
        lp_philox(data->seed, 0, LP_STREAM_DATA, (uint64_t)index / 4, numbers);
        return (int32_t)(((uint64_t)numbers[index % 4] * (uint64_t)data->vocab) >> 32);
    }
    if (data->kind == KIND_BYTES) {
        token = data->first[index];
    } else if (data->kind == KIND_U16) {
        uint16_t half;
        memcpy(&half, data->first + 2 * index, sizeof half);
        token = half;
    } else {
        memcpy(&token, data->first + 4 * index, sizeof token);
    }
    if (token >= (uint32_t)data->vocab)
        lp_fail(1, "%s: token %lld is %u, the model's vocabulary has %d: another tokenizer made it",
                data->path, (long long)index, token, data->vocab);
    return (int32_t)token;
}

/* Does a document begin at this token of the stream? */
static bool begins_document(const LpData *data, int64_t index)
{
    int64_t before = (index + data->tokens - 1) % data->tokens;
    if (data->once && (index == 0 || index >= data->tokens))
        return index == 0;
    return (data->document_begin != NO_TOKEN && token_at(data, index) == data->document_begin) ||
           (data->document_end != NO_TOKEN && token_at(data, before) == data->document_end);
}

static int64_t first_token(const LpData *data, const LpJob *job, int64_t row)
{
    int64_t samples = data->tokens > job->seq ? (data->tokens - 1) / job->seq : 1;
    return (data->once ? row : row % samples) * job->seq;
}

/* A place of the stream, which begins again behind its end unless each token has one turn. */
static int64_t place_of(const LpData *data, int64_t index)
{
    return data->once ? index : index % data->tokens;
}

/* The token has a label, of its own document in packed jobs. */
static bool is_valid(const LpData *data, const LpJob *job, int64_t index)
{
    if (data->once && index + 1 >= data->tokens)
        return false;
    return !job->packed || !begins_document(data, place_of(data, index + 1));
}

/* Tokens of the step whose labels are of their own document; all but in packed jobs. */
static int64_t valid_tokens(LpData *data, const LpJob *job, int64_t step)
{
    int64_t rows = (int64_t)job->micro_batches * job->rows;
    if (!job->packed && !data->once)
        return rows * job->seq;
    if (data->counted_step != step) {
        data->valid = 0;
        for (int64_t row = 0; row < rows; row++) {
            int64_t at = first_token(data, job, step * rows + row);
            for (int i = 0; i < job->seq; i++)
                data->valid += is_valid(data, job, place_of(data, at + i));
        }
        data->counted_step = step;
    }
    return data->valid > 0 ? data->valid : 1;
}

/* The position of the sample at which the document of position `pos` begins. */
static int document_start(const LpData *data, int64_t at, int pos)
{
    while (pos > 0 && !begins_document(data, place_of(data, at + pos)))
        pos--;
    return pos;
}

/* Where a batch's rows go; NULL: nowhere. */
typedef struct Cells {
    int32_t *ids, *labels;
    float *weight;
    int32_t *starts;
} Cells;

/* Rows of a micro-batch, and the runs of positions that are wanted of each. */
typedef struct Wanted {
    int64_t step;
    int micro, row_begin, rows, runs, each;
    const int *pos_begin;
    int ahead; /* of the labels, further than the next token */
} Wanted;

/* The label and all tokens between are of the sample and the document of the token at `pos`. */
static bool counts(const LpData *data, const LpJob *job, int64_t at, int pos, int ahead)
{
    bool there = pos + ahead < job->seq;
    for (int i = 0; i <= ahead && there && (job->packed || data->once); i++)
        there = is_valid(data, job, place_of(data, at + pos + i));
    return there;
}

/* One run of one row, whose first token is `at`. */
static void read_run(LpData *data, const LpJob *job, const Wanted *want, int64_t at, int pos_begin,
                     float share, const Cells *to)
{
    int start = to->starts ? document_start(data, at, pos_begin) : 0;
    for (int i = 0; i < want->each; i++) {
        int pos = pos_begin + i, label = pos + want->ahead < job->seq ? pos + want->ahead : pos;
        int64_t token = at + pos;
        if (to->ids)
            to->ids[i] = token_at(data, place_of(data, token));
        if (to->labels)
            to->labels[i] = token_at(data, place_of(data, at + label + 1));
        if (to->weight)
            to->weight[i] = counts(data, job, at, pos, want->ahead) ? share : 0;
        if (to->starts && i > 0 && begins_document(data, place_of(data, token)))
            start = pos;
        if (to->starts)
            to->starts[i] = start;
    }
}

static void read_rows(const Wanted *want, const Cells *to)
{
    const LpSelf *self = lp_self;
    const LpJob *job = self->rank.job;
    LpData *data = self->evaluating ? self->evaluation : self->data;
    float share = (float)(1.0 / (double)valid_tokens(data, job, want->step));
    for (int row = 0; row < want->rows; row++) {
        int64_t at = first_token(data, job,
                                 (want->step * job->micro_batches + want->micro) * job->rows +
                                     want->row_begin + row);
        for (int run = 0; run < want->runs; run++) {
            int64_t cell = ((int64_t)row * want->runs + run) * want->each;
            Cells cells = {to->ids ? to->ids + cell : NULL, to->labels ? to->labels + cell : NULL,
                           to->weight ? to->weight + cell : NULL,
                           to->starts ? to->starts + cell : NULL};
            read_run(data, job, want, at, want->pos_begin[run], share, &cells);
        }
    }
}

void lp_batch_runs(int64_t step, int micro, int row_begin, int rows, int runs, int each,
                   const int *pos_begin, int32_t *ids, int32_t *labels, float *weight,
                   int32_t *starts)
{
    read_rows(&(Wanted){step, micro, row_begin, rows, runs, each, pos_begin, 0},
              &(Cells){ids, labels, weight, starts});
}

void lp_batch(int64_t step, int micro, int row_begin, int rows, int pos_begin, int positions,
              int32_t *ids, int32_t *labels, float *weight, int32_t *starts)
{
    lp_batch_runs(step, micro, row_begin, rows, 1, positions, &pos_begin, ids, labels, weight,
                  starts);
}

void lp_batch_ahead_runs(int ahead, int64_t step, int micro, int row_begin, int rows, int runs,
                         int each, const int *pos_begin, int32_t *labels, float *weight)
{
    read_rows(&(Wanted){step, micro, row_begin, rows, runs, each, pos_begin, ahead},
              &(Cells){NULL, labels, weight, NULL});
}

void lp_batch_ahead(int ahead, int64_t step, int micro, int row_begin, int rows, int pos_begin,
                    int positions, int32_t *labels, float *weight)
{
    lp_batch_ahead_runs(ahead, step, micro, row_begin, rows, 1, positions, &pos_begin, labels,
                        weight);
}

/* ---- evaluation ---- */

int64_t lp_evaluation_begin(void)
{
    LpSelf *self = lp_self;
    const LpJob *job = self->rank.job;
    const LpData *data = self->evaluation;
    int64_t samples = (data->tokens - 1 + job->seq - 1) / job->seq,
            each = (int64_t)job->micro_batches * job->rows, batches = (samples + each - 1) / each,
            most = self->rank.options->eval_steps;
    lp_at("evaluation");
    self->evaluating = true;
    self->evaluated_batches = 0;
    self->evaluated_tokens = 0;
    for (int k = 0; k <= LP_MAX_AHEAD; k++)
        self->evaluated[k] = 0;
    return most > 0 && most < batches ? most : batches;
}

/* A loss is the sum over a batch divided by its tokens. */
void lp_evaluated(const float *losses, int count)
{
    LpSelf *self = lp_self;
    double tokens =
        (double)valid_tokens(self->evaluation, self->rank.job, self->evaluated_batches++);
    for (int k = 0; k < count; k++)
        self->evaluated[k] += tokens * (double)losses[k];
    self->evaluated_losses = count;
    self->evaluated_tokens += tokens;
}
