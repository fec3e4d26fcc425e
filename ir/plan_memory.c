/* plan_memory.c - in which memories a plan keeps what outlives its use: words, pins and JSON. */
#include "ir/plan_memory.h"

#include "ir/plan_rows.h"

const char *const kept_pin[KEPT_COUNT] = {"optimizer_home", "activation_home", "weight_home",
                                          "gradient_home"};
const char *const kept_text[KEPT_COUNT] = {"the optimizer's state", "saved activations", "weights",
                                           "gradients"};
const char *const kept_short[KEPT_COUNT] = {"optimizer", "activations", "weights", "gradients"};
const char *const kept_key[KEPT_COUNT] = {"state_memory", "saved_memory", "weight_memory",
                                          "gradient_memory"};

Memory plan_farthest(const Plan *plan)
{
    Memory farthest = MEMORY_HBM;
    for (int k = 0; k < KEPT_COUNT; k++)
        farthest = plan->memory[k] > farthest ? plan->memory[k] : farthest;
    return farthest;
}

Memory home_memory(const Memory *memory, const Homes *homes, Kept kept)
{
    return homes->nearer[kept] < memory[kept] ? memory[kept] - homes->nearer[kept] : MEMORY_HBM;
}

bool plan_keeps_some(const Plan *plan, const Net *net, Kept kept)
{
    bool some = false;
    for (int c = 0; c < net->classes.n && plan->memory[kept] != MEMORY_HBM; c++) {
        Homes homes = plan_homes(plan, c);
        some = some || home_memory(plan->memory, &homes, kept) != plan->memory[kept];
    }
    return some;
}

void pins_memories(const Pins *pins, Memory *ret)
{
    for (int k = 0; k < KEPT_COUNT; k++)
        ret[k] = pins->home[k] > MEMORY_HBM ? (Memory)pins->home[k] : MEMORY_HBM;
}

int plan_classes_in(const Plan *plan, const Net *net, Kept kept, Memory memory)
{
    int n = 0;
    for (int c = 0; c < net->classes.n; c++) {
        Homes homes = plan_homes(plan, c);
        n += home_memory(plan->memory, &homes, kept) == memory;
    }
    return n;
}

char *plan_memory_words(Arena *arena, const Plan *plan, const Net *net, Memory memory)
{
    Str text = str_new(arena);
    for (int passes = 0; passes < 2; passes++) {
        int n = 0;
        for (int k = 0; k < KEPT_COUNT; k++) {
            int there = passes ? 0 : plan_classes_in(plan, net, (Kept)k, memory);
            for (int m = (int)memory + 1; m < MEMORY_COUNT && passes; m++)
                there += plan_classes_in(plan, net, (Kept)k, (Memory)m);
            if (there == 0)
                continue;
            const char *joint = n++ || text.n ? ", " : "";
            str_putf(&text, "%s%s%s", joint, passes && n == 1 ? "slots for " : "", kept_text[k]);
        }
        if (passes && n)
            str_put(&text, " on its way");
    }
    return text.n ? text.at : arena_strdup(arena, "");
}

Kept kept_of_pin(const char *key)
{
    int k = 0;
    while (k < KEPT_COUNT && !str_eq(key, kept_pin[k]))
        k++;
    return (Kept)k;
}

bool pin_memory(Diag *diag, const char *key, const char *text, int *ret)
{
    for (int i = 0; i < MEMORY_COUNT; i++)
        if (str_eq(text, memory_text[i])) {
            *ret = i;
            return true;
        }
    diag_error(diag, NO_SPAN, "pin %s=%s: hbm, dram or nvme", key, text);
    diag_help(diag, "the device's own memory, the host's, or a file of the host");
    return false;
}

void plan_memories_put(json_t *root, const Plan *plan)
{
    for (int k = 0; k < KEPT_COUNT; k++)
        if (plan->memory[k] != MEMORY_HBM)
            json_object_set_new(root, kept_key[k], json_string(memory_text[plan->memory[k]]));
}

json_t *homes_json(const Memory *memory, const Homes *homes)
{
    json_t *object = json_object();
    json_object_set_new(object, "state_atoms", plan_atoms_json(homes->state));
    json_object_set_new(object, "gradient_atoms", plan_atoms_json(homes->gradient));
    json_object_set_new(object, "weight_atoms", plan_atoms_json(homes->weight));
    for (int k = 0; k < KEPT_COUNT; k++) {
        Memory own = home_memory(memory, homes, (Kept)k);
        if (own != memory[k])
            json_object_set_new(object, kept_key[k], json_string(memory_text[own]));
    }
    return object;
}

bool homes_memories_read(Json object, const Memory *memory, Homes *ret)
{
    for (int k = 0; k < KEPT_COUNT; k++) {
        int own;
        if (!json_has(object, kept_key[k]))
            continue;
        Json at = json_get(object, kept_key[k]);
        if (!json_word(at, memory_text, MEMORY_COUNT, &own))
            return false;
        if (own > (int)memory[k]) {
            json_fail(at, "a class keeps %s in %s, behind the plan's home for it", kept_text[k],
                      memory_text[own]);
            diag_help(at.doc->diag, "the plan's \"%s\" is the farthest that any class has",
                      kept_key[k]);
            return false;
        }
        ret->nearer[k] = (uint8_t)(memory[k] - own);
    }
    return true;
}

bool plan_memories_read(Json root, Plan *plan)
{
    for (int k = 0; k < KEPT_COUNT; k++) {
        int memory = MEMORY_HBM;
        if (json_has(root, kept_key[k]) &&
            !json_word(json_get(root, kept_key[k]), memory_text, MEMORY_COUNT, &memory))
            return false;
        plan->memory[k] = (Memory)memory;
    }
    return true;
}
