/* table.h - columns of text: every report's one way to line figures up. */
#ifndef LPLAN_PLANNER_TABLE_H
#define LPLAN_PLANNER_TABLE_H

#include "ir/base/str.h"
#include "ir/base/vec.h"

enum { TABLE_COLUMNS = 12 };

typedef struct TableRow {
    const char *cell[TABLE_COLUMNS];
    const char *style; /* of the whole line, or NULL */
} TableRow;

typedef struct Table {
    Arena *arena;
    int columns;
    const char *align;  /* a letter a column: l or r */
    VEC(TableRow) rows; /* the first is the heading */
} Table;

/* Escape sequences, or empty texts where colour is not wanted. */
typedef struct Style {
    const char *bold, *dim, *good, *warn, *bad, *off;
} Style;
Style style_for(bool colour);

Table table_new(Arena *arena, const char *align, const char *const *heads);
/* Cells are kept by reference; NULL is empty. */
void table_row(Table *table, const char *style, const char *const *cells);
/* Two spaces between columns, `indent` before; the heading dim. */
void table_put(Str *str, const Table *table, int indent, const Style *style);
/* A time with three or four digits: "3.38 s", "60.8 s", "230.1 ms"; seconds up to an hour. In the
 * unit that suits `like`, so that an interval has one. */
char *text_time(Arena *arena, int64_t ns);
char *text_time_like(Arena *arena, int64_t ns, int64_t like);
/* Columns that a text takes on a terminal: code points. */
int text_width(const char *text);
/* Wraps words to `width` columns behind an indent. */
void text_wrap(Str *str, const char *text, int indent, int width);

#endif
