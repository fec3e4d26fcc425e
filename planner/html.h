/* html.h - a report as one self-contained page: memory and time of every stage as bars, the
 * pipeline's rows, the text. */
#ifndef LPLAN_PLANNER_HTML_H
#define LPLAN_PLANNER_HTML_H

#include "planner/report.h"

char *html_text(const Report *report);

#endif
