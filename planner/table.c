/* table.c - lines figures up in columns. */
#include "planner/table.h"

#include <string.h>

Style style_for(bool colour)
{
    if (!colour)
        return (Style){"", "", "", "", "", ""};
    return (Style){"\033[1m", "\033[2m", "\033[32m", "\033[33m", "\033[31m", "\033[0m"};
}

char *text_time_like(Arena *arena, int64_t ns, int64_t like)
{
    static const struct {
        double ns;
        const char *name;
    } units[] = {{1, "ns"}, {1e3, "us"}, {1e6, "ms"}, {1e9, "s"}, {3600e9, "h"}};
    int at = 0;
    /* 999.96 us are 1.00 ms */
    while (at < 4 && (double)like >= units[at + 1].ns * 0.99995)
        at++;
    double figure = (double)ns / units[at].ns;
    return arena_printf(arena,
                        at == 0          ? "%.0f %s"
                        : figure < 9.995 ? "%.2f %s"
                                         : "%.1f %s",
                        figure, units[at].name);
}

char *text_time(Arena *arena, int64_t ns)
{
    return text_time_like(arena, ns, ns);
}

int text_width(const char *text)
{
    int width = 0;
    for (; text && *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

Table table_new(Arena *arena, const char *align, const char *const *heads)
{
    Table table = {.arena = arena, .columns = (int)strlen(align), .align = align};
    table_row(&table, NULL, heads);
    return table;
}

void table_row(Table *table, const char *style, const char *const *cells)
{
    TableRow *row = &vec_push(table->arena, &table->rows);
    *row = (TableRow){.style = style};
    for (int c = 0; c < table->columns; c++)
        row->cell[c] = cells[c] ? cells[c] : "";
}

static void put_spaces(Str *str, int n)
{
    for (int i = 0; i < n; i++)
        str_putc(str, ' ');
}

void table_put(Str *str, const Table *table, int indent, const Style *style)
{
    int width[TABLE_COLUMNS] = {0};
    for (int r = 0; r < table->rows.n; r++)
        for (int c = 0; c < table->columns; c++) {
            int own = text_width(table->rows.at[r].cell[c]);
            width[c] = own > width[c] ? own : width[c];
        }
    for (int r = 0; r < table->rows.n; r++) {
        const TableRow *row = &table->rows.at[r];
        const char *line = r == 0 ? style->dim : row->style ? row->style : "";
        int last = table->columns - 1;
        while (last > 0 && !*row->cell[last])
            last--;
        put_spaces(str, indent);
        str_put(str, line);
        for (int c = 0; c <= last; c++) {
            int fill = width[c] - text_width(row->cell[c]);
            if (table->align[c] == 'r')
                put_spaces(str, fill);
            str_put(str, row->cell[c]);
            if (c < last && table->align[c] == 'l')
                put_spaces(str, fill);
            put_spaces(str, c < last ? 2 : 0);
        }
        str_put(str, *line ? style->off : "");
        str_putc(str, '\n');
    }
}

void text_wrap(Str *str, const char *text, int indent, int width)
{
    int at = 0;
    while (*text) {
        const char *end = text + strcspn(text, " ");
        int own = 0;
        for (const char *c = text; c < end; c++)
            own += ((unsigned char)*c & 0xc0) != 0x80;
        if (at > 0 && at + 1 + own > width) {
            str_putc(str, '\n');
            at = 0;
        }
        if (at == 0) {
            put_spaces(str, indent);
            at = indent;
        } else {
            str_putc(str, ' ');
            at++;
        }
        str_putn(str, text, (size_t)(end - text));
        at += own;
        text = *end ? end + 1 : end;
    }
    str_putc(str, '\n');
}
