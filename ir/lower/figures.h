/* figures.h - the three figures of a device's memory: what the search counted, what the layout
 * takes, what lies outside of it. */
#ifndef LPLAN_IR_LOWER_FIGURES_H
#define LPLAN_IR_LOWER_FIGURES_H

#include "ir/lower/program.h"

/* Of the stage whose layout is largest. What the search counted and what lies outside the arena
 * stand in the plan file; NONE in a plan that no search made. */
typedef struct Figures {
    int stage;
    int64_t searched_bytes, layout_bytes, outside_bytes;
    const json_t *outside; /* its lines: name, formula, bytes, tag; or NULL */
} Figures;
Figures figures_of(const Program *program);
/* Three lines, indented by two; `touched`: what an image's run touched of its own layout, or NULL.
 */
void figures_put(Str *text, const Figures *figures, const char *touched);
/* {"searched", "layout", "outside"}; null for what is not known. A new reference. */
json_t *figures_json(const Figures *figures);

#endif
