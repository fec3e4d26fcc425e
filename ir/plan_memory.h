/* plan_memory.h - in which memories a plan keeps what outlives its use, as words and as JSON. */
#ifndef LPLAN_IR_PLAN_MEMORY_H
#define LPLAN_IR_PLAN_MEMORY_H

#include "ir/plan.h"

/* How many classes keep it there. */
int plan_classes_in(const Plan *plan, const Net *net, Kept kept, Memory memory);
/* What of a plan lives in a memory, or passes through it on its way: "the optimizer's state and
 * saved activations"; "" for nothing. */
char *plan_memory_words(Arena *arena, const Plan *plan, const Net *net, Memory memory);

/* A pin like "activation_home", or KEPT_COUNT. */
Kept kept_of_pin(const char *key);
/* "hbm", "dram", "nvme". False after an error. */
bool pin_memory(Diag *diag, const char *key, const char *text, int *ret);

/* Keys of plan.json, for memories behind the device's alone; reading leaves the device's where a
 * key is absent. False after an error. */
extern const char *const kept_key[KEPT_COUNT];
void plan_memories_put(json_t *root, const Plan *plan);
bool plan_memories_read(Json root, Plan *plan);
/* The "cut" of a class of a plan with these memories, a new reference; reading sets what lives
 * nearer. False after an error. */
json_t *homes_json(const Memory *memory, const Homes *homes);
bool homes_memories_read(Json object, const Memory *memory, Homes *ret);

#endif
