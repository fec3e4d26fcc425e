/* draw.h - a step drawn in text: the rows of a pipeline's stages, or the streams of one stage. */
#ifndef LPLAN_PLANNER_DRAW_H
#define LPLAN_PLANNER_DRAW_H

#include "planner/assess.h"
#include "planner/table.h"

/* Time runs to the right. With several stages a line a stage, and a row of the schedule is the
 * number of its micro-batch, filled by what it is; with one stage a line a stream, from the
 * simulated Steps. Too long a step is drawn as far as some bands of lines go. */
void draw_put(Str *str, Arena *arena, const Assessment *assessment, const Style *style);

#endif
