/* plan_job.h - the optimizer of a job in words and in plan.json. */
#ifndef LPLAN_IR_PLAN_JOB_H
#define LPLAN_IR_PLAN_JOB_H

#include "ir/plan.h"

/* "adamw", "muon", or "muon,momentum=0.95,nesterov=1,steps=5,rate=1,match=rms". False after an
 * error that says what would do. */
bool job_set_optimizer(Arena *arena, Diag *diag, const char *text, Job *ret);
/* The object `muon` of a plan's job: a new reference; read back, absent keys by default. */
json_t *job_muon_json(const Job *job);
bool job_read_muon(Json object, Job *ret);

#endif
