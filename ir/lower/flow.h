/* flow.h - the tables of a program whose steps flow into each other. */
#ifndef LPLAN_IR_LOWER_FLOW_H
#define LPLAN_IR_LOWER_FLOW_H

#include "ir/lower/program.h"

/* One turn of the steady state as every stage's table, with how far an entry is ahead of the turn;
 * fills the stages' delay, ahead and lag, and the chunks' first and last rows. The order of
 * communication is that of the periodic run in time, which all runs of so many steps are parts of:
 * what is left out is whole steps. So no two ranks wait for each other in a circle. */
void flow_tables(Program *program, const Schedule *schedule, const RowTimes *times);

/* Tables of evaluations: the forwards of one step and their messages, turn by turn. Leaving rows
 * out keeps the one order. */
void flow_put_evaluations(Program *program);

#endif
