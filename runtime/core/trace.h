/* trace.h - the measured timeline (--trace), in the form Perfetto and chrome://tracing open. */
#ifndef LPLAN_RUNTIME_CORE_TRACE_H
#define LPLAN_RUNTIME_CORE_TRACE_H

#include "runtime/core/self.h"

typedef enum LpLane {
    LP_LANE_WORK, /* between one lp_at and the next */
    LP_LANE_WAIT, /* inside lp_wait */
    LP_LANE_COMM  /* from the start of an operation to its end; these overlap */
} LpLane;

/* All do nothing without --trace. */
void lp_trace_open(LpSelf *self); /* time zero: called when all ranks have met */
void lp_trace_at(LpSelf *self, const char *text);
void lp_trace_span(LpSelf *self, LpLane lane, const char *text, int64_t begin_ns, int64_t end_ns);
void lp_trace_close(LpSelf *self); /* collective: rank 0 writes the file */

#endif
