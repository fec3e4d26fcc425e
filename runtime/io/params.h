/* params.h - the parameters of a rank, as checkpoints need them. */
#ifndef LPLAN_RUNTIME_IO_PARAMS_H
#define LPLAN_RUNTIME_IO_PARAMS_H

#include "runtime/core/self.h"

/* What a checkpoint says of one of its files. */
typedef struct LpSaved {
    int64_t bits;       /* as lp_save_state gave them; -1: it does not say */
    const char *remedy; /* what to do where the file is damaged */
} LpSaved;

/* Fills the parts from a weight file; ends the job (all ranks alike) when it does not fit the
 * model, or, with `saved` (else NULL), when it does not hold the bits that were saved. */
void lp_load_file(const LpSelf *self, const char *path, const LpPart *parts, int count,
                  const LpSaved *saved);

/* lp_save of one kind of state, of which tensors may have none (collective). Gives 0, or, to all
 * ranks, an errno: then nothing is left of the file. ret_bits: the sum over all elements as they
 * lie in the file (bits.h), 63 bits. */
int lp_save_state(const char *path, const LpState *state, int64_t *ret_bits);

#endif
