/* options.h - the trainer's command line. */
#ifndef LPLAN_RUNTIME_CORE_OPTIONS_H
#define LPLAN_RUNTIME_CORE_OPTIONS_H

#include "runtime/lp.h"

#include <stdio.h>

/* Fills `ret_options` from job->defaults and the command line. Returns -1 to go on, or an exit
 * status: 0 after --help, 2 after an error. Writes to `out`, which may be NULL (a rank that keeps
 * silent). */
int lp_options_parse(const LpJob *job, int argc, char **argv, FILE *out, LpOptions *ret_options);

#endif
