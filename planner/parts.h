/* parts.h - pins become the classes of a plan: one variant for all layers, or one for each set of
 * pins that some layers have of their own. */
#ifndef LPLAN_PLANNER_PARTS_H
#define LPLAN_PLANNER_PARTS_H

#include "planner/make.h"

/* What layers with one set of pins share. The mesh has the atoms of all of them, in which the roles
 * are its own. */
typedef struct LayerKind {
    Pins pins;         /* complete, of these layers; no ranges */
    const char *where; /* of the first link that has them, for messages */
    VariantKey key;
    Mesh mesh;
    const Variant *variant;
} LayerKind;

typedef struct Parts {
    const Problem *problem;
    int n; /* kinds; the first are the pins without ranges */
    LayerKind *kind;
    int *of;     /* per link of the chain */
    bool routed; /* some share experts */
    int64_t pad_vocabulary;
} Parts;

/* Checks complete pins and solves the variants of their kinds; `variant` may be that of all layers.
 * NULL after an error that says which layers cannot be so. */
Parts *parts_new(const Problem *problem, const Pins *pins, const Variant *variant);
/* The atoms that a zigzag deals the sequence out to; none without. */
AtomSet parts_zigzag(const Parts *parts);
/* The memories of a plan: of each kind the farthest in which some layers have it; [KEPT_COUNT].
 * False after an error: two of them have others, neither the device's, of what is not state. */
bool parts_memories(const Parts *parts, Memory *ret);
/* Fills plan->part and plan->class for a net that plan_tell has not divided yet, and divides it.
 * The plan's mesh and homes are those of the first kind. */
bool parts_fill(const Parts *parts, Plan *plan, Net *net);

/* The pins of one link: the ranges' words over those of all, and what follows from them. */
Pins pins_of_link(const Problem *problem, const Pins *pins, int link);
/* Do the ranks and sequences of a stage with complete pins have room for the degrees of its ranges?
 * Cheap: nothing is solved. */
bool parts_possible(const Problem *problem, const Pins *pins);
/* Do pins say more than one choice for all layers, so that the search prices them without it? */
bool pins_divide(const Pins *pins);
/* Do its layers have more than one choice, or homes or roles that are not the plan's? */
bool plan_is_divided(const Plan *plan, const Net *net);
/* What a class makes again in backward: sets recompute, or again. */
void class_recompute(Arena *arena, const Graph *graph, const ClassPlan *class, Pins *ret);
/* Is one of the names of Pins.again meant by a node of the graph? */
bool names_in_graph(const Net *net, const Graph *graph, const char *names);
/* Sets the pins that the layers of a divided plan have, and their ranges; the rest is set. */
void parts_say(const Plan *plan, const Net *net, Pins *ret);

/* Names in Pins.again are kinds of ops or values of the links that have them; ranges are inside the
 * model. False after an error. */
bool parts_known(Diag *diag, const Problem *problem, const Pins *pins);

#endif
