/* trace.c - writes trace events. */
#include "planner/trace.h"

static void put_name(Str *str, const char *what, int stage, int stream, const char *name)
{
    str_putf(str,
             "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}},\n",
             what, stage, stream, name);
}

static void put_micros(Str *str, const char *key, int64_t ns)
{
    str_putf(str, ",\"%s\":%lld.%03d", key, (long long)(ns / 1000), (int)(ns % 1000));
}

char *trace_text(Arena *arena, const Program *program, const TraceEvents *events)
{
    Str text = str_new(arena);
    str_put(&text, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    for (int s = 0; s < program->stages; s++) {
        put_name(&text, "process_name", s, 0, arena_printf(arena, "stage %d", s));
        for (int stream = 0; stream < STREAM_COUNT; stream++)
            put_name(&text, "thread_name", s, stream, stream_text[stream]);
    }
    for (int i = 0; i < events->n; i++) {
        const TraceEvent *event = &events->at[i];
        /* names come from the model's own identifiers, which need no escapes */
        str_putf(&text, "{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d",
                 event->name, event->part, event->stage, (int)event->stream);
        put_micros(&text, "ts", event->start);
        put_micros(&text, "dur", event->ns);
        str_put(&text, ",\"args\":{");
        if (event->link != NONE)
            str_putf(&text, "\"link\":%d", event->link);
        if (event->micro != NONE)
            str_putf(&text, "%s\"micro_batch\":%d", event->link != NONE ? "," : "", event->micro);
        str_putf(&text, "}}%s\n", i + 1 < events->n ? "," : "");
    }
    str_put(&text, "]}\n");
    return text.at;
}
