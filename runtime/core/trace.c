/* trace.c - the measured timeline (--trace), in the form Perfetto and chrome://tracing open.
 *
 * A process of the trace is a rank; its threads are the lanes. Spans are kept in a buffer of fixed
 * size, so that tracing allocates nothing while it measures; when it is full the rest of the run is
 * left out, and the file says so. Times count from the moment all ranks had met, so clocks need not
 * agree. */
#include "runtime/core/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPANS ((int64_t)1 << 17)
#define SPAN_CHARS 240
#define TEXT_CHARS 100

typedef struct Span {
    const char *text;
    int64_t begin_ns, end_ns;
    int32_t step;
    LpLane lane;
} Span;

struct LpTrace {
    int64_t zero_ns, count, left_out;
    const char *at; /* open span of the work lane */
    int64_t at_ns;
    Span spans[];
};

void lp_trace_open(LpSelf *self)
{
    if (!self->rank.options->trace)
        return;
    self->trace = lp_new(1, sizeof *self->trace + SPANS * sizeof(Span));
    self->trace->zero_ns = lp_now_ns();
}

void lp_trace_span(LpSelf *self, LpLane lane, const char *text, int64_t begin_ns, int64_t end_ns)
{
    LpTrace *trace = self->trace;
    if (!trace)
        return;
    if (trace->count == SPANS) {
        trace->left_out++;
        return;
    }
    int64_t step = atomic_load_explicit(&self->track.step, memory_order_relaxed);
    trace->spans[trace->count++] = (Span){
        .text = text, .begin_ns = begin_ns, .end_ns = end_ns, .step = (int32_t)step, .lane = lane};
}

void lp_trace_at(LpSelf *self, const char *text)
{
    LpTrace *trace = self->trace;
    if (!trace)
        return;
    int64_t now_ns = lp_now_ns();
    if (trace->at)
        lp_trace_span(self, LP_LANE_WORK, trace->at, trace->at_ns, now_ns);
    trace->at = text;
    trace->at_ns = now_ns;
}

/* ---- writing ---- */

static int put_name(char *out, size_t size, const char *text)
{
    char plain[TEXT_CHARS + 1];
    int n = 0;
    for (; text[n] && n < TEXT_CHARS; n++)
        plain[n] =
            (unsigned char)text[n] < ' ' || text[n] == '"' || text[n] == '\\' ? '_' : text[n];
    plain[n] = '\0';
    return snprintf(out, size, "\"name\":\"%s\"", plain);
}

/* Operations in flight overlap, which only asynchronous events may. */
static int put_span(char *out, int rank, int64_t id, const Span *span, int64_t zero_ns)
{
    static const char *const lanes[] = {"work", "wait", "comm"};
    double begin_us = (double)(span->begin_ns - zero_ns) * 1e-3;
    double end_us = (double)(span->end_ns - zero_ns) * 1e-3;
    char name[TEXT_CHARS + 16];
    put_name(name, sizeof name, span->text);
    if (span->lane != LP_LANE_COMM)
        return snprintf(out, SPAN_CHARS,
                        ",\n{%s,\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"
                        "\"args\":{\"step\":%d}}",
                        name, rank, (int)span->lane, begin_us, end_us - begin_us, span->step);
    int n = 0;
    for (int end = 0; end < 2; end++)
        n += snprintf(out + n, SPAN_CHARS,
                      ",\n{%s,\"cat\":\"%s\",\"ph\":\"%s\",\"id\":\"%d.%lld\",\"pid\":%d,\"tid\":%"
                      "d,\"ts\":%.3f}",
                      name, lanes[span->lane], end ? "e" : "b", rank, (long long)id, rank,
                      (int)span->lane, end ? end_us : begin_us);
    return n;
}

/* This rank's part of the list; the first line has no comma for rank 0. */
static char *rank_text(const LpSelf *self, int64_t *ret_length)
{
    const LpTrace *trace = self->trace;
    int rank = self->rank.index;
    char *text = lp_new((size_t)trace->count + 4, 2 * SPAN_CHARS);
    int64_t n = snprintf(text, SPAN_CHARS,
                         "%s{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":"
                         "\"rank %d (stage %d)%s\"}}",
                         rank == 0 ? "[\n" : ",\n", rank, rank, self->rank.stage,
                         trace->left_out > 0 ? ", cut short" : "");
    static const char *const lanes[] = {"work", "wait"};
    for (int lane = 0; lane < 2; lane++)
        n += snprintf(text + n, SPAN_CHARS,
                      ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{"
                      "\"name\":\"%s\"}}",
                      rank, lane, lanes[lane]);
    for (int64_t i = 0; i < trace->count; i++)
        n += put_span(text + n, rank, i, &trace->spans[i], trace->zero_ns);
    *ret_length = n;
    return text;
}

static void texts_write(LpSelf *self, const char *own, int64_t own_length, const double *lengths)
{
    const char *path = self->rank.options->trace;
    FILE *file = fopen(path, "w");
    bool ok = file && fwrite(own, 1, (size_t)own_length, file) == (size_t)own_length;
    for (int i = 1; i < self->rank.job->ranks; i++) {
        LpEvent event = {0};
        size_t length = (size_t)lengths[i];
        char *text = lp_new(length, 1);
        lp_recv(&event, i, LP_ACTIVATION, text, (int64_t)length);
        lp_wait(&event);
        ok = ok && fwrite(text, 1, length, file) == length;
        free(text);
    }
    ok = ok && fputs("\n]\n", file) >= 0;
    if (!file || fclose(file) != 0 || !ok)
        lp_fail(1, "--trace %s: %s", path, strerror(errno));
}

void lp_trace_close(LpSelf *self)
{
    LpTrace *trace = self->trace;
    if (!trace)
        return;
    if (trace->at)
        lp_trace_span(self, LP_LANE_WORK, trace->at, trace->at_ns, lp_now_ns());
    int64_t length = 0;
    char *text = rank_text(self, &length);
    free(trace);
    self->trace = NULL; /* what follows is not part of the run */
    double *lengths = lp_new((size_t)self->rank.job->ranks, sizeof *lengths);
    double mine = (double)length;
    LpEvent event = {0};
    lp_all_gather(&event, LP_WORLD, &mine, lengths, 1, LP_F64);
    lp_wait(&event);
    if (self->rank.index == 0) {
        texts_write(self, text, length, lengths);
    } else {
        lp_send(&event, 0, LP_ACTIVATION, text, length);
        lp_wait(&event);
    }
    free(lengths);
    free(text);
}
