/* figures.h - the three figures of a device's memory: what the search counted, what the layout
 * takes, what lies outside of it; and what the layout takes of memories behind it. */
#ifndef LPLAN_IR_LOWER_FIGURES_H
#define LPLAN_IR_LOWER_FIGURES_H

#include "ir/lower/program.h"

/* Of the stage whose layout is largest. What the search counted and what lies outside the arena
 * stand in the plan file; NONE in a plan that no search made. */
typedef struct Figures {
    int stage;
    int64_t searched_bytes, layout_bytes, outside_bytes;
    int64_t far_bytes[MEMORY_COUNT]; /* what the layout takes of memories behind the device's, of
                                        the stage that takes most; 0: none */
    const json_t *outside;           /* its lines: name, formula, bytes, tag; or NULL */
} Figures;
Figures figures_of(const Program *program);
/* Three lines and one a memory behind, indented by two; `touched`: what an image's run touched of
 * each memory of its own layout, or NULL. */
void figures_put(Str *text, const Figures *figures, const char *const touched[MEMORY_COUNT]);
/* {"searched", "layout", "outside"}; null for what is not known; "dram", "nvme" where they have a
 * layout. A new reference. */
json_t *figures_json(const Figures *figures);

#endif
