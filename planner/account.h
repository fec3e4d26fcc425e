/* account.h - the segment simulation of a plan as the same account that the Step simulation gives:
 * where every stage's compute stream spends the step, and what crosses which link. */
#ifndef LPLAN_PLANNER_ACCOUNT_H
#define LPLAN_PLANNER_ACCOUNT_H

#include "planner/simulate.h"
#include "planner/stage.h"

/* How a segment's waiting splits over its collectives is in proportion to their lengths; all else
 * is added up. */
StepTimes *account_plan(Arena *arena, Family *family, const int *first_link);

#endif
