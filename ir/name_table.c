/* name_table.c - names in the order of their adding, found in constant time. */
#include "ir/name_table.h"

#include <string.h>

NameTable name_table_new(Arena *arena)
{
    NameTable table = {.arena = arena, .slots = 64};
    table.slot = ARENA_ARRAY(arena, int, table.slots);
    return table;
}

/* FNV-1a: the order of names never depends on it. */
static uint64_t hash(const char *name)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * UINT64_C(1099511628211);
    return h;
}

/* The slot that holds the name, or the free one where it belongs. */
static int *find(const NameTable *table, const char *name)
{
    uint64_t mask = (uint64_t)table->slots - 1, at = hash(name) & mask;
    while (table->slot[at] != 0 && strcmp(table->names.at[table->slot[at] - 1], name) != 0)
        at = (at + 1) & mask;
    return &table->slot[at];
}

int name_table_add(NameTable *table, const char *name, bool *ret_new)
{
    int *slot = find(table, name);
    *ret_new = *slot == 0;
    if (!*ret_new)
        return *slot - 1;
    vec_push(table->arena, &table->names) = name;
    *slot = table->names.n;
    if (table->names.n > table->slots / 2) {
        table->slots *= 2;
        table->slot = ARENA_ARRAY(table->arena, int, table->slots);
        for (int i = 0; i < table->names.n; i++)
            *find(table, table->names.at[i]) = i + 1;
    }
    return table->names.n - 1;
}
