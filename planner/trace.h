/* trace.h - the Step simulation as Chrome trace events, which Perfetto opens. */
#ifndef LPLAN_PLANNER_TRACE_H
#define LPLAN_PLANNER_TRACE_H

#include "planner/simulate.h"

/* A process per stage, a thread per stream; times in microseconds with three digits. */
char *trace_text(Arena *arena, const Program *program, const TraceEvents *events);

#endif
