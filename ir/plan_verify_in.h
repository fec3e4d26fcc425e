/* plan_verify_in.h - what the parts of a plan's verifier share. Private to ir. */
#ifndef LPLAN_IR_PLAN_VERIFY_IN_H
#define LPLAN_IR_PLAN_VERIFY_IN_H

#include "ir/plan.h"

/* file: the object whose members say it; doc NULL when the plan was made in memory. */
typedef struct Verify {
    const Plan *plan;
    const Net *net;
    Arena *scratch;
    Diag *diag;
    Json file;
} Verify;

static inline Json at_key(Json object, const char *key)
{
    return object.doc ? json_get(object, key) : object;
}

static inline Json at_index(Json array, int index)
{
    return array.doc ? json_at(array, index) : array;
}

static inline bool fault(const Verify *v, Json at, const char *text)
{
    if (at.doc)
        json_fail(at, "%s", text);
    else
        diag_error(v->diag, NO_SPAN, "%s", text);
    return false;
}

#define SAY(v, ...) arena_printf((v)->scratch, __VA_ARGS__)

/* plan_verify_memory.c: what lives away from its device lives in a memory that the machine has. */
bool verify_memory(const Verify *v);
/* Far weights and far gradients may live where the plan says. */
bool verify_far(const Verify *v);

#endif
