/* report.h - what an engineer reads about a plan: six questions in order, and why no simpler plan
 * would do. */
#ifndef LPLAN_PLANNER_REPORT_H
#define LPLAN_PLANNER_REPORT_H

#include <jansson.h>

#include "planner/assess.h"
#include "planner/ladder.h"
#include "planner/table.h"

typedef struct Report {
    Arena *arena;
    const Assessment *it;
    const SearchResult *search; /* NULL: the plan was given, not searched */
    const Rung *ladder;         /* or NULL */
    int rungs;                  /* of the ladder */
    const Found *found;         /* the plan as the search found it, or NULL */
    bool pinned;                /* the search was of a part of the declared space */
    bool laid_over;             /* pins of some layers were, over what it found */
    const char *defaulted;      /* the flags whose values nobody gave, or NULL */
    Style style;
} Report;

/* The sections of a report, and their words on the command line: the head with the names of what
 * the plan does, the six questions, the simpler plans. */
typedef enum {
    SECTION_HEAD,
    SECTION_NAMED,
    SECTION_SEARCH,
    SECTION_RESIDENT,
    SECTION_SHARDING,
    SECTION_TRAFFIC,
    SECTION_EXPOSED,
    SECTION_LINKS,
    SECTION_RISKS,
    SECTION_LADDER,
    SECTION_COUNT
} Section;
/* "head,2,3": a set of sections. False after an error that says which there are. */
bool report_sections(Diag *diag, const char *text, unsigned *ret);
enum { REPORT_WHOLE = (1 << SECTION_COUNT) - 1 };

/* The report, 100 columns: the sections of a set. */
void report_put(Str *str, const Report *report, unsigned sections);
/* Its machine form: placement, predicted, search and more; a new reference. */
json_t *report_json(const Report *report);
/* The part that goes into a plan file. */
json_t *predicted_json(const Assessment *assessment);
/* What lies outside the arena, line by line. */
json_t *outside_json(Arena *arena, const Assessment *assessment);
/* When nothing fits: what is missing, and what would help. */
json_t *search_json(const SearchResult *search);

/* What can go wrong, question 6: the worst first. */
typedef struct Risk {
    const char *name;  /* "bubble" */
    const char *brief; /* "4.9 % bubble" */
    const char *text;  /* in full */
} Risk;
typedef VEC(Risk) Risks;
Risks risks_of(const Report *report);

/* ---- the parts, in files of their own ---- */

void report_head(Str *str, const Report *report);
void report_named(Str *str, const Report *report); /* techniques */
void report_search(Str *str, const Report *report);
void report_labels(Str *str, const Report *report);   /* of the blocks, where there is a choice */
void report_resident(Str *str, const Report *report); /* 1 */
void report_sharding(Str *str, const Report *report); /* 2 */
void report_traffic(Str *str, const Report *report);  /* 3 */
void report_exposed(Str *str, const Report *report);  /* 4 */
void report_links(Str *str, const Report *report);    /* 5 */
void report_risks(Str *str, const Report *report);    /* 6 */
void report_ladder(Str *str, const Report *report);

/* ---- words they share ---- */

void report_question(Str *str, const Report *report, const char *title, const char *aside);
/* "12.3" of a unit that suits the largest figure of a table. */
char *text_unit(Arena *arena, int64_t bytes, int64_t unit);
/* "387 TFLOP/s". */
char *text_flops(Arena *arena, double flops_per_s);
char *text_percent(Arena *arena, int64_t part, int64_t whole);
/* Whose exchanges layers wait for: "tp, in layers", "ep, in layers". */
const char *text_in_layers(const Mesh *mesh);
/* "tp", "dp", "tp, dp" of a set of atoms; "all ranks" when empty and between stages "neighbour
 * stage". */
/* The same for a plan whose atoms have other roles in some layers: "dp|tp". */
const char *text_all_roles(Arena *arena, const Assessment *it, AtomSet atoms);
const char *text_roles(Arena *arena, const Mesh *mesh, AtomSet atoms);
/* The stages worth a line: the ends, the fullest and the busiest; returns their number, in order.
 */
int telling_stages(const Assessment *assessment, int ret[8]);
char *text_layers(Arena *arena, const Assessment *assessment, int stage);

#endif
