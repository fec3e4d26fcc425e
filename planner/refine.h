/* refine.h - what is left of memory, spent layer by layer. */
#ifndef LPLAN_PLANNER_REFINE_H
#define LPLAN_PLANNER_REFINE_H

#include "planner/assess.h"
#include "planner/search.h"

/* A plan that the search found makes every layer pay for the fullest stage. Where it makes all
 * again in backward, or cuts homes further than the state's, as many layers of each stage as fit
 * are let off that: the last ones of the stage, as many as the layout has room for. Greedy, beyond
 * the declared space: one rule after the other, each kept only where the step is faster. One chunk
 * a stage. Changes *found, *plan, *net and *it to the better plan; false where there is none. */
bool refine_plan(Problem *problem, Found *found, Plan **plan, Net **net, const Assessment **it);

#endif
