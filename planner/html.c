/* html.c - draws a report: no script, no file beside it. */
#include "planner/html.h"

enum { PAGE = 960, LABEL = 76, BAR = 14, GAP = 4, MOST_ROWS = 3000 };

static const char style_sheet[] =
    "<style>\n"
    ":root{--ink:#1b1f24;--dim:#667;--page:#fdfdfc;--line:#d8dade;--c0:#3b6ea8;--c1:#7a9cc6;--c2:#"
    "5a4b8a;"
    "--c3:#d08a2e;--c4:#b9bec6;--c5:#e9ebee;--bad:#b3372f}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e6e3;--dim:#9aa;--page:#16181b;--line:#"
    "3a3f46;--c0:#6ea2dd;"
    "--c1:#466a96;--c2:#9b8ad0;--c3:#dca250;--c4:#5a616b;--c5:#2a2e34;--bad:#e06a60}}\n"
    "body{font:15px/1.5 "
    "system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:1000px;"
    "margin:32px auto;padding:0 20px}\n"
    "h1{font-size:22px;margin:0 0 4px}h2{font-size:16px;margin:32px 0 8px}\n"
    ".figures{display:flex;gap:36px;flex-wrap:wrap;margin:16px 0}.figures "
    "b{display:block;font-size:24px}\n"
    ".figures span,.key,text{color:var(--dim);fill:var(--dim);font-size:12px}\n"
    ".key i{display:inline-block;width:10px;height:10px;margin:0 5px 0 14px}\n"
    "svg{display:block;width:100%;height:auto}pre{font:12px/1.45 "
    "ui-monospace,monospace;overflow-x:auto;"
    "border-top:1px solid var(--line);padding-top:16px}\n"
    "</style>\n";

static void put_escaped(Str *str, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            str_put(str, "&lt;");
        else if (*text == '>')
            str_put(str, "&gt;");
        else if (*text == '&')
            str_put(str, "&amp;");
        else
            str_putc(str, *text);
    }
}

static void put_key(Str *str, const char *const *names, int n)
{
    str_put(str, "<p class=key>");
    for (int i = 0; i < n; i++)
        str_putf(str, "<i style=\"background:var(--c%d)\"></i>%s", i, names[i]);
    str_put(str, "</p>\n");
}

static double along(int64_t part, int64_t whole)
{
    return whole > 0 ? (double)(PAGE - LABEL) * (double)part / (double)whole : 0;
}

static void begin_bars(Str *str, int rows)
{
    str_putf(str, "<svg viewBox=\"0 0 %d %d\">\n", PAGE, rows * (BAR + GAP));
}

static void put_label(Str *str, int row, const char *text)
{
    str_putf(str, "<text x=0 y=%d>%s</text>\n", row * (BAR + GAP) + BAR - 3, text);
}

/* One piece of a bar, with its figure when pointed at. */
static void put_piece(Str *str, int row, double x, double width, int colour, const char *what)
{
    if (width < 0.05)
        return;
    str_putf(str,
             "<rect x=\"%.1f\" y=%d width=\"%.1f\" height=%d "
             "fill=\"var(--c%d)\"><title>%s</title></rect>\n",
             LABEL + x, row * (BAR + GAP), width, BAR, colour, what);
}

static void put_memory(Str *str, const Report *report)
{
    const Assessment *it = report->it;
    Arena *arena = report->arena;
    int64_t whole = it->peak_bytes > it->budget_bytes ? it->peak_bytes : it->budget_bytes;
    str_putf(str, "<h2>What must be resident, per device (the line: %s)</h2>\n",
             str_gib(arena, it->budget_bytes));
    put_key(str, bytes_text, BYTES_COUNT);
    begin_bars(str, it->plan->stages);
    for (int s = 0; s < it->plan->stages; s++) {
        double x = 0;
        put_label(str, s, arena_printf(arena, "stage %d", s));
        for (int kind = 0; kind < BYTES_COUNT; kind++) {
            int64_t bytes = assessed_bytes(it, s, (BytesKind)kind);
            put_piece(str, s, x, along(bytes, whole), kind,
                      arena_printf(arena, "%s %s", bytes_text[kind], str_gib(arena, bytes)));
            x += along(bytes, whole);
        }
    }
    double limit = LABEL + along(it->budget_bytes, whole);
    str_putf(str, "<line x1=\"%.1f\" x2=\"%.1f\" y1=0 y2=%d stroke=\"var(--bad)\"/></svg>\n", limit,
             limit, it->plan->stages * (BAR + GAP));
}

static void put_spent(Str *str, const Report *report)
{
    static const int colour[SPENT_COUNT] = {0, 3, 2, 1, 4, 3, 5};
    const Assessment *it = report->it;
    const char *const names[SPENT_COUNT] = {"compute",       text_in_layers(&it->plan->mesh),
                                            "dp, gradients", "pp, messages",
                                            "all ranks",     "memories",
                                            "bubble"};
    Arena *arena = report->arena;
    str_put(str, "<h2>Where the step goes</h2>\n<p class=key>");
    for (int k = 0; k < SPENT_COUNT; k++)
        if (spent_shown(it->plan, (Spent)k))
            str_putf(str, "<i style=\"background:var(--c%d)\"></i>%s", colour[k], names[k]);
    str_put(str, "</p>\n");
    begin_bars(str, it->plan->stages);
    for (int s = 0; s < it->plan->stages; s++) {
        double x = 0;
        put_label(str, s, arena_printf(arena, "stage %d", s));
        for (int k = 0; k < SPENT_COUNT; k++) {
            int64_t ns = it->times->stage[s].spent_ns[k];
            if (!spent_shown(it->plan, (Spent)k))
                continue;
            put_piece(str, s, x, along(ns, it->step_ns), colour[k],
                      arena_printf(arena, "%s %s", names[k], text_time(arena, ns)));
            x += along(ns, it->step_ns);
        }
    }
    str_put(str, "</svg>\n");
}

/* The rows of the schedule, or the first of them when they are too many to draw. */
static void put_timeline(Str *str, const Report *report)
{
    const Assessment *it = report->it;
    const Order *order = it->family->order;
    if (order->stages < 2)
        return;
    Arena *arena = report->arena;
    OrderTimes length;
    int64_t *end = ARENA_ARRAY(arena, int64_t, order->n), last = 0;
    family_lengths(it->family, it->plan->first_link, &length);
    order_simulate(order, &length, end);
    /* rows are numbered as they become ready, so the first ones are also the earliest of each stage
     */
    int rows = order->n < MOST_ROWS ? order->n : MOST_ROWS;
    for (int i = 0; i < rows; i++)
        last = end[i] > last ? end[i] : last;
    str_putf(str, "<h2>The pipeline%s</h2>\n", rows < order->n ? ": how it begins" : "");
    static const char *const names[PART_COUNT] = {"forward", "backward", "gradients of the input",
                                                  "gradients of weights"};
    put_key(str, names, order->splits ? PART_COUNT : PART_I);
    begin_bars(str, order->stages);
    for (int s = 0; s < order->stages; s++)
        put_label(str, s, arena_printf(arena, "stage %d", s));
    for (int i = 0; i < rows; i++) {
        const OrderRow *row = &order->row[i];
        int64_t ns = order_length(&length, row);
        const char *chunk =
            order->chunks > order->stages ? arena_printf(arena, ", chunk %d", row->chunk) : "";
        put_piece(str, row->stage, along(end[i] - ns, last), along(ns, last) - 0.4, (int)row->part,
                  arena_printf(arena, "%s of micro-batch %d%s, %s", names[row->part], row->micro,
                               chunk, text_time(arena, ns)));
    }
    str_put(str, "</svg>\n");
}

static void put_figure(Str *str, const char *value, const char *name)
{
    str_putf(str, "<div><b>%s</b><span>%s</span></div>\n", value, name);
}

char *html_text(const Report *report)
{
    const Assessment *it = report->it;
    Arena *arena = report->arena;
    Str text = str_new(arena), body = str_new(arena);
    str_put(&text, "<!doctype html>\n<html lang=en><meta charset=utf-8>"
                   "<meta name=viewport content=\"width=device-width\">\n<title>");
    put_escaped(&text, it->net->name);
    str_putf(&text, "</title>\n%s<h1>", style_sheet);
    put_escaped(&text, it->net->name);
    str_putf(&text, " on %s x %s</h1>\n<p>%s</p>\n<div class=figures>\n",
             str_commas(arena, it->plan->ranks), it->plan->cluster->device.name,
             pins_words(arena, &it->pins));
    put_figure(&text, text_time(arena, it->step_ns),
               arena_printf(arena, "a step, %s to %s",
                            text_time_like(arena, it->low_ns, it->step_ns),
                            text_time_like(arena, it->high_ns, it->step_ns)));
    put_figure(&text, str_commas(arena, it->tokens_per_s), "tokens a second");
    put_figure(&text, arena_printf(arena, "%.1f %%", 100 * it->mfu), "of the devices' peak (MFU)");
    put_figure(
        &text, str_gib(arena, it->peak_bytes),
        arena_printf(arena, "on the fullest device, of %s", str_gib(arena, it->budget_bytes)));
    str_put(&text, "</div>\n");
    put_memory(&text, report);
    put_spent(&text, report);
    put_timeline(&text, report);
    report_put(&body, report, REPORT_WHOLE);
    str_put(&text, "<h2>The report</h2>\n<pre>");
    put_escaped(&text, body.at);
    str_put(&text, "</pre>\n</html>\n");
    return text.at;
}
