/* lanes.h - memories behind the arena of a rank, and the threads that copy to and from them. */
#ifndef LPLAN_RUNTIME_CORE_LANES_H
#define LPLAN_RUNTIME_CORE_LANES_H

#include "runtime/core/self.h"

/* Bytes of the machine's memory and of a file that a rank of this stage keeps besides its arena. */
int64_t lp_dram_bytes(const LpJob *job, int stage);
int64_t lp_file_bytes(const LpJob *job, int stage);

/* Maps what the job asks for: rank.dram, rank.file; fails with one line when there is no room or no
 * folder. Nothing to do for most jobs. */
void lp_lanes_open(LpSelf *self);
void lp_lanes_close(LpSelf *self);

/* What of these memories is resident now: not the device's, nor outside of anything. */
int64_t lp_lanes_resident(LpSelf *self);

/* Behind the last step, by all ranks together: logs what the fullest ranks asked of these memories,
 * and what of it is there. */
void lp_lanes_measure(LpSelf *self);

/* Is what a lane was told to do done? Fails with one line when it could not be. */
bool lp_errand_done(LpSelf *self, LpErrand *errand);
void lp_errand_free(LpSelf *self, LpErrand *errand);

#endif
