/* data.h - a file of tokens, opened once per rank. */
#ifndef LPLAN_RUNTIME_IO_DATA_H
#define LPLAN_RUNTIME_IO_DATA_H

#include "runtime/core/self.h"

/* Of options->data. Ends the job (all ranks alike) when the file cannot be what it should be. */
LpData *lp_data_open_evaluation(const LpJob *job, const LpOptions *options); /* or NULL */
LpData *lp_data_open(const LpJob *job, const LpOptions *options);
void lp_data_close(LpData *data); /* NULL is fine */

int64_t lp_data_tokens(const LpData *data);

#endif
