/* goodput.h - what a long run loses beside its steps: to failures, to checkpoints, and to the
 * slowest of many. */
#ifndef LPLAN_PLANNER_GOODPUT_H
#define LPLAN_PLANNER_GOODPUT_H

#include "planner/assess.h"

typedef struct Goodput {
    int64_t checkpoint_bytes;
    int writers;
    double device_hours;       /* between failures of one device */
    double mtbf_s;             /* between failures of the job */
    double write_s, restart_s; /* of a checkpoint; of the job */
    double interval_s;         /* between checkpoints, Daly's optimum */
    int64_t interval_steps;    /* at least one */
    double goodput;            /* share of the time that steps get, which count in the end */
    double jitter;             /* deviation of one device's compute in a step, of its mean */
    double slowest;            /* expected excess of the slowest of all devices, of the mean */
    int64_t slowest_ns;        /* the same of this plan's step */
} Goodput;

Goodput goodput_of(const Assessment *assessment);
/* The expected largest of n standard normal numbers. */
double normal_max(int64_t n);

#endif
