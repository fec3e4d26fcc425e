/* plan_rows.h - the schedule's part of plan.json. Private to plan_text.c. */
#ifndef LPLAN_IR_PLAN_ROWS_H
#define LPLAN_IR_PLAN_ROWS_H

#include "ir/plan.h"

/* "braid" and "rows", the lengths of rows, where a plan has them. */
void plan_put_rows(json_t *root, const Plan *plan);
/* A new reference: "table", the lines of a schedule that a file gave. */
json_t *plan_table_json(const Schedule *table);
/* Atoms by number. */
json_t *plan_atoms_json(AtomSet atoms);
/* "chunks" and "table"; the numbers of stages and micro-batches and the schedule are known. Which
 * stage has which chunk is the schedule's to say. False after an error. */
bool plan_read_chunks(Json root, Plan *plan);
/* "rows", which may be absent. */
bool plan_read_rows(Json rows, Plan *plan);

#endif
