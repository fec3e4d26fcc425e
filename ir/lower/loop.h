/* loop.h - the loop of a schedule table: entries that come again and again, always the same number
 * of micro-batches later. */
#ifndef LPLAN_IR_LOWER_LOOP_H
#define LPLAN_IR_LOWER_LOOP_H

#include "ir/lower/program.h"

/* Entries [prefix, prefix + entries) occur `repeats` times in a row, `shift` micro-batches later
 * each time. repeats 0: nothing repeats. */
typedef struct Loop {
    int prefix, entries, repeats, shift;
} Loop;

/* The loop that covers most of the table, of at most `longest` entries, of micro-batches that grow;
 * the shorter and then the earlier of equal ones. */
Loop table_loop(const StageProgram *stage, int longest);
/* The loop that begins at `at` and covers most, micro-batches growing or falling. */
Loop table_loop_at(const StageProgram *stage, int at, int longest);

#endif
