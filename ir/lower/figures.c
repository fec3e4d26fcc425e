/* figures.c - memory in three figures. */
#include "ir/lower/figures.h"

static int64_t listed(const json_t *object, const char *key, int at)
{
    const json_t *value = json_array_get(json_object_get(object, key), (size_t)at);
    return json_is_integer(value) ? (int64_t)json_integer_value(value) : NONE;
}

Figures figures_of(const Program *program)
{
    Figures figures = {.outside_bytes = NONE};
    for (int s = 1; s < program->stages; s++)
        if (program->stage[s].arena_bytes > program->stage[figures.stage].arena_bytes)
            figures.stage = s;
    for (int s = 0; s < program->stages; s++)
        for (int m = MEMORY_DRAM; m < MEMORY_COUNT; m++)
            if (program->stage[s].far_bytes[m] > figures.far_bytes[m])
                figures.far_bytes[m] = program->stage[s].far_bytes[m];
    const json_t *predicted = program->plan->predicted, *line;
    figures.layout_bytes = program->stage[figures.stage].arena_bytes;
    figures.searched_bytes = listed(predicted, "peak_bytes", figures.stage);
    figures.outside = json_object_get(predicted, "outside");
    size_t i;
    if (figures.outside)
        figures.outside_bytes = 0;
    json_array_foreach(figures.outside, i, line) figures.outside_bytes +=
        json_integer_value(json_object_get(line, "bytes"));
    return figures;
}

static void put_outside(Str *text, const Figures *figures)
{
    const json_t *line;
    const char *comma = ": ";
    size_t i;
    json_array_foreach(figures->outside, i, line)
    {
        const char *name = json_string_value(json_object_get(line, "name"));
        const char *tag = json_string_value(json_object_get(line, "tag"));
        json_int_t bytes = json_integer_value(json_object_get(line, "bytes"));
        if (!name || !tag || bytes == 0)
            continue;
        str_putf(text, "%s%s %lld MiB (%s)", comma, name, (long long)(bytes >> 20), tag);
        comma = ", ";
    }
}

static void put_touched(Str *text, const char *const *touched, Memory memory)
{
    if (touched)
        str_putf(text, "; %s", touched[memory]);
    str_putc(text, '\n');
}

void figures_put(Str *text, const Figures *figures, const char *const touched[MEMORY_COUNT])
{
    str_put(text, "  searched ");
    if (figures->searched_bytes == NONE)
        str_put(text, "no figure: this plan's file has none\n");
    else
        str_putf(text, "%lld bytes a rank of stage %d, counted by the search%s\n",
                 (long long)figures->searched_bytes, figures->stage,
                 figures->searched_bytes == figures->layout_bytes ? ": the layout's to the byte"
                                                                  : "");
    str_putf(text, "  layout   %lld bytes, the arena that the trainer asks for",
             (long long)figures->layout_bytes);
    put_touched(text, touched, MEMORY_HBM);
    for (int m = MEMORY_DRAM; m < MEMORY_COUNT; m++) {
        if (figures->far_bytes[m] == 0)
            continue;
        str_putf(text, "  in %s  %lld bytes behind the arena", memory_text[m],
                 (long long)figures->far_bytes[m]);
        put_touched(text, touched, (Memory)m);
    }
    str_put(text, "  outside  ");
    if (figures->outside_bytes == NONE) {
        str_put(text, "no figure: this plan's file has none\n");
        return;
    }
    str_putf(text, "%lld bytes beside the arena", (long long)figures->outside_bytes);
    put_outside(text, figures);
    str_putc(text, '\n');
}

static json_t *known(int64_t bytes)
{
    return bytes == NONE ? json_null() : json_integer(bytes);
}

json_t *figures_json(const Figures *figures)
{
    json_t *object = json_object();
    json_object_set_new(object, "searched", known(figures->searched_bytes));
    json_object_set_new(object, "layout", known(figures->layout_bytes));
    json_object_set_new(object, "outside", known(figures->outside_bytes));
    for (int m = MEMORY_DRAM; m < MEMORY_COUNT; m++)
        if (figures->far_bytes[m] > 0)
            json_object_set_new(object, memory_text[m], json_integer(figures->far_bytes[m]));
    return object;
}
