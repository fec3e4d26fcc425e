/* launch.h - starts a trainer with its ranks and says in one line how it died. */
#ifndef LPLAN_CODEGEN_LAUNCH_H
#define LPLAN_CODEGEN_LAUNCH_H

#include <stdio.h>

#include "ir/base/arena.h"

typedef struct Launch {
    const char *trainer; /* the executable */
    int ranks;           /* processes to start; 1: no mpirun */
    int sharing;         /* ranks that share this machine's cores: with --virtual more than ranks */
    int ranks_per_stage;
    const char *hosts;            /* hostfile of mpirun, or NULL: this machine */
    const char *log;              /* the ranks' --log directory */
    double start_s;               /* by when every rank of this machine must have begun */
    const char *const *arguments; /* of the trainer, --log among them */
    int argument_count;
} Launch;

/* Runs it to its end and returns its exit status (128 + signal for a killed one, 124 when
 * it was ended for not moving). The trainer's
 * lines pass; mpirun's own are kept back, and when no rank has said why the job ended, one line to
 * `err` does. SIGINT and SIGTERM ask the ranks to save and stop; a second one ends the job. */
int launch_run(Arena *arena, const Launch *launch, FILE *err);

#endif
