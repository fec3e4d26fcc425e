/* draw.c - lanes of characters on a time axis. */
#include "planner/draw.h"

#include <string.h>

enum { COLUMNS = 84, MOST_BANDS = 4 };

/* Lanes of one length; blanks where nothing runs. */
typedef struct Canvas {
    Arena *arena;
    int lanes, columns;
    int64_t ns; /* of a column */
    char **lane;
    const char **name;
} Canvas;

static Canvas canvas_new(Arena *arena, int lanes, int64_t length_ns, int64_t column_ns)
{
    Canvas canvas = {.arena = arena, .lanes = lanes, .ns = column_ns};
    int64_t columns = (length_ns + column_ns - 1) / column_ns;
    canvas.columns = (int)(columns < COLUMNS * MOST_BANDS ? columns : COLUMNS * MOST_BANDS);
    canvas.lane = ARENA_ARRAY(arena, char *, lanes);
    canvas.name = ARENA_ARRAY(arena, const char *, lanes);
    for (int i = 0; i < lanes; i++) {
        canvas.lane[i] = arena_alloc(arena, (size_t)canvas.columns + 1);
        memset(canvas.lane[i], ' ', (size_t)canvas.columns);
        canvas.lane[i][canvas.columns] = '\0';
    }
    return canvas;
}

/* A piece takes the columns whose middle it covers; its label stands at its begin. */
static void canvas_fill(Canvas *canvas, int lane, int64_t begin, int64_t end, const char *label,
                        char fill)
{
    int64_t first = (begin + canvas->ns / 2) / canvas->ns,
            last = (end + canvas->ns / 2) / canvas->ns;
    size_t length = strlen(label);
    for (int64_t i = first; i < last && i < canvas->columns; i++) {
        size_t at = (size_t)(i - first);
        canvas->lane[lane][i] = at < length ? label[at] : fill;
    }
}

static void canvas_put(Str *str, const Canvas *canvas, bool whole, const Style *style)
{
    int widest = 0;
    for (int i = 0; i < canvas->lanes; i++)
        widest = text_width(canvas->name[i]) > widest ? text_width(canvas->name[i]) : widest;
    for (int from = 0; from < canvas->columns; from += COLUMNS) {
        int n = canvas->columns - from < COLUMNS ? canvas->columns - from : COLUMNS;
        for (int i = 0; i < canvas->lanes; i++) {
            int end = n;
            while (end > 0 && canvas->lane[i][from + end - 1] == ' ')
                end--;
            str_putf(str, "  %-*s %s|%s%.*s\n", widest, canvas->name[i], style->dim, style->off,
                     end, canvas->lane[i] + from);
        }
        if (from + n < canvas->columns)
            str_putc(str, '\n');
    }
    str_putf(str, "  %sa column is %s%s%s\n", style->dim, text_time(canvas->arena, canvas->ns),
             whole ? "" : "; the rest is left out", style->off);
}

/* ---- the rows of several stages ---- */

/* So that the shortest row has room for its label. */
static int64_t column_of(const Order *order, const OrderTimes *length, int64_t last, int label)
{
    int64_t shortest = INT64_MAX, whole = (last + COLUMNS - 1) / COLUMNS;
    for (int i = 0; i < order->n; i++) {
        int64_t ns = length->time[order->row[i].part][order->row[i].chunk];
        shortest = ns > 0 && ns < shortest ? ns : shortest;
    }
    int64_t fine = shortest / label;
    return fine > 0 && fine < whole ? fine : whole;
}

static void draw_rows(Str *str, Arena *arena, const Assessment *it, const Style *style)
{
    static const char fill[PART_COUNT] = {
        [PART_F] = '-', [PART_B] = '=', [PART_I] = '=', [PART_W] = '+'};
    const Order *order = it->family->order;
    OrderTimes length;
    int64_t *end = ARENA_ARRAY(arena, int64_t, order->n), last = 0;
    family_lengths(it->family, it->plan->first_link, &length);
    order_simulate(order, &length, end);
    int runs = 0;
    for (int i = 0; i < order->n; i++) {
        last = end[i] > last ? end[i] : last;
        runs = order->row[i].micro > runs ? order->row[i].micro : runs;
    }
    bool chunks = order->chunks > order->stages;
    int label = 1 + chunks + (runs > 9) + (runs > 99);
    Canvas canvas = canvas_new(arena, order->stages, last, column_of(order, &length, last, label));
    for (int s = 0; s < order->stages; s++)
        canvas.name[s] = arena_printf(arena, "stage %d", s);
    for (int i = 0; i < order->n; i++) {
        const OrderRow *row = &order->row[i];
        int chunk = 0;
        for (int c = 0; c < row->chunk; c++)
            chunk += order->holder[c] == row->stage;
        int64_t ns = length.time[row->part][row->chunk];
        const char *text = chunks ? arena_printf(arena, "%c%d", 'a' + chunk, row->micro)
                                  : arena_printf(arena, "%d", row->micro);
        canvas_fill(&canvas, row->stage, end[i] - ns, end[i], text, fill[row->part]);
    }
    str_putf(str, "  micro-batches: - forward  = %s%s\n",
             order->splits ? "backward, of the input  + of weights" : "backward",
             chunks ? "; a, b: chunks of a stage" : "");
    canvas_put(str, &canvas, (int64_t)canvas.columns * canvas.ns >= last, style);
}

/* ---- the streams of one stage ---- */

static const struct {
    Stream stream;
    const char *name;
    char fill;
} lanes[] = {{STREAM_COMPUTE, "compute", '-'},     {STREAM_BLOCK, "in layers", '#'},
             {STREAM_WEIGHT, "weights", '#'},      {STREAM_GRADIENT, "gradients", '#'},
             {STREAM_COPY_IN, "from memory", '#'}, {STREAM_COPY_OUT, "to memory", '#'},
             {STREAM_FILE_READ, "from file", '#'}, {STREAM_FILE_WRITE, "to file", '#'}};
enum { LANES = sizeof lanes / sizeof *lanes };

/* What fills more than half of a column shows; beginnings of micro-batches are numbered. */
static void draw_streams(Str *str, Arena *arena, const Assessment *it, const Style *style)
{
    TraceEvents events = {0};
    StepTimes *times = simulate_program(arena, it->program, &events);
    int64_t column = (times->step_ns + COLUMNS - 1) / COLUMNS;
    Canvas canvas = canvas_new(arena, LANES, times->step_ns, column);
    int64_t(*busy)[2] = arena_alloc(arena, sizeof *busy * (size_t)(LANES * canvas.columns));
    memset(busy, 0, sizeof *busy * (size_t)(LANES * canvas.columns));
    bool used[LANES] = {false};
    for (int i = 0; i < events.n; i++) {
        const TraceEvent *event = &events.at[i];
        for (int l = 0; l < LANES; l++) {
            if (lanes[l].stream != event->stream)
                continue;
            used[l] |= event->ns > 0;
            for (int64_t c = event->start / column;
                 c < canvas.columns && c * column < event->start + event->ns; c++) {
                int64_t begin = c * column > event->start ? c * column : event->start;
                int64_t end = (c + 1) * column < event->start + event->ns
                                  ? (c + 1) * column
                                  : event->start + event->ns;
                busy[l * canvas.columns + c][event->backward] += end - begin;
            }
        }
    }
    int shown = 0;
    for (int l = 0; l < LANES; l++) {
        if (!used[l])
            continue;
        for (int c = 0; c < canvas.columns; c++) {
            const int64_t *own = busy[l * canvas.columns + c];
            char fill = lanes[l].stream == STREAM_COMPUTE && own[1] > own[0] ? '=' : lanes[l].fill;
            canvas.lane[shown][c] = 2 * (own[0] + own[1]) >= column ? fill
                                    : own[0] + own[1] > 0           ? '.'
                                                                    : ' ';
        }
        canvas.name[shown++] = lanes[l].name;
    }
    canvas.lanes = shown;
    str_put(str, "  compute: - forward and the update  = backward; # a stream busy for most of a "
                 "column, . for a part\n");
    canvas_put(str, &canvas, true, style);
}

void draw_put(Str *str, Arena *arena, const Assessment *it, const Style *style)
{
    if (it->plan->stages > 1)
        draw_rows(str, arena, it, style);
    else
        draw_streams(str, arena, it, style);
}
