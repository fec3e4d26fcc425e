/* fit.h - which tensors of a file the model's are, and everything that does not fit. */
#ifndef LPLAN_RUNTIME_IO_FIT_H
#define LPLAN_RUNTIME_IO_FIT_H

#include "runtime/io/safetensors.h"
#include "runtime/io/stored.h"

/* Per stored tensor its entry, or NULL: under its name; under its name with or without one prefix
 * ("transformer."), where that is right for all; or, when it is tied, under the one name that
 * nobody else has and that has its shape. ret_used: per entry, whether a tensor is there. malloc'd.
 */
const LpEntry **lp_fit_entries(const LpStored *stored, const LpWeights *weights, bool *ret_used);

/* A line for each tensor that is missing, unknown, of another shape or of no type of weights; ""
 * when all fits. A second copy of a tied tensor fits when it is equal; tables and masks that old
 * versions stored are passed over. malloc'd. */
char *lp_fit_faults(const LpStored *stored, const LpWeights *weights, const LpEntry *const *entries,
                    const bool *used);

#endif
