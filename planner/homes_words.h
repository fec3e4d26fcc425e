/* homes_words.h - the names that others gave to cuts of homes. */
#ifndef LPLAN_PLANNER_HOMES_WORDS_H
#define LPLAN_PLANNER_HOMES_WORDS_H

#include "ir/plan.h"

/* How homes of parameters are cut over dp and cp ranks, by the names others gave it: "ZeRO-1",
 * "ZeRO-3 (FSDP)", "ZeRO-3 inside a node (HSDP)"; NULL where they are not. */
const char *homes_name(const Pins *pins, bool brief);

#endif
