/* change.h - "links.infiniband.bytes_per_s=x2": one change of a cluster, a job or the pins, by
 * name. */
#ifndef LPLAN_PLANNER_CHANGE_H
#define LPLAN_PLANNER_CHANGE_H

#include "planner/variant.h"

/* Applies KEY=VALUE to copies of the problem's cluster and job, and to the pins. Keys:
 * device.FIELD, links.NAME.FIELD (or a position), gpus, global_batch, sequence, recipe, and every
 * pin. Values: integers, 1e12, 80GiB, 400GB, or x2 for twice what it was. The problem must be read
 * again when *ret_reread is set. False after an error. */
bool change_apply(Problem *problem, Pins *pins, const char *key, const char *value,
                  bool *ret_reread);

#endif
