/* name_table.h - names in the order of their adding, found in constant time. */
#ifndef LPLAN_IR_NAME_TABLE_H
#define LPLAN_IR_NAME_TABLE_H

#include <stdbool.h>

#include "ir/base/vec.h"

typedef struct NameTable {
    Arena *arena;
    VEC(const char *) names;
    int *slot; /* 1 + index of a name, 0 when free; open addressing */
    int slots; /* a power of two, at least twice the names */
} NameTable;

NameTable name_table_new(Arena *arena);
/* Index of the name; it is added (by reference) when it is new. */
int name_table_add(NameTable *table, const char *name, bool *ret_new);

#endif
