/* compare.h - plans side by side: rows are terms, columns are plans. explain, diff and what-if are
 * this one table. */
#ifndef LPLAN_PLANNER_COMPARE_H
#define LPLAN_PLANNER_COMPARE_H

#include "planner/report.h"

typedef struct Column {
    const char *title;
    const Assessment *it;       /* NULL: there is no plan */
    const Tightest *tightest;   /* then: what is missing, or NULL */
    const SearchResult *search; /* how the plan was found, or NULL */
} Column;

typedef VEC(Column) Columns;

/* Blocks of as many columns as fit 100 characters; the first column stands in each. */
void columns_put(Str *str, Arena *arena, const Columns *columns, const Style *style);
/* Does one of the columns from this one on have a plan that fits? */
bool columns_fit(const Columns *columns, int from);
/* A list of {title, fits, placement, predicted, search}; a new reference. */
json_t *columns_json(Arena *arena, const Columns *columns);
/* The same with the first column's placement, predicted and search on top. */
json_t *compare_json(Arena *arena, const Columns *columns);

/* A plan file as a problem that can be planned again. NULL after errors. */
Plan *compare_load(Arena *arena, Diag *diag, const char *path, Net **ret_net, Problem *ret_problem);

#endif
