/* plan_parts.h - layers of one kind with choices of their own.
 *
 * A plan may divide the links of one kind into parts (Plan.part). A part is a class like any other:
 * it has the graph of its kind, and a ClassPlan of its own, so placements, homes, what is kept and
 * what the atoms of the stage do (ClassPlan.mesh) may differ from those of its neighbours. Where
 * the boundary placements of two neighbours differ, the receiving or the handing link has a part of
 * its own whose two boundaries differ: its body moves the value, and its gradient, as any use. */
#ifndef LPLAN_IR_PLAN_PARTS_H
#define LPLAN_IR_PLAN_PARTS_H

#include "ir/plan.h"

enum { MAX_PARTS = 256 }; /* classes of a net that is divided */

/* Makes a class of every pair of class and part, in the order in which the chain meets them:
 * `part` has a number for each link. Graphs share what they hold. A net that was divided so is left
 * as it is. */
void net_split(Net *net, const int *part);

/* Do the atoms of two meshes do the same? */
bool mesh_same_roles(const Mesh *a, const Mesh *b);
/* The atoms that have a role in some class. */
AtomSet plan_role_atoms(const Plan *plan, const Net *net, Role role);
/* Do ranks share experts in some class, so that the model is read with rows for single choices? The
 * same of a plan's text, whose classes cannot be read before. */
bool plan_is_routed(const Plan *plan, const Net *net);
bool plan_text_is_routed(Json root);
/* What the model of a plan is read for. */
Reading plan_reading(const Plan *plan, bool routed);
/* Room for rows, and the rounds in which they come. */
void plan_put_room(json_t *root, const Plan *plan);
bool plan_read_room(Json root, Plan *plan);
/* The atoms by which a class reads rows of the batch: those of its boundary, or what the plan's
 * classes share. */
AtomList class_rows(const Graph *graph, const ClassPlan *class, const Mesh *mesh);
/* Where classes cut the batch over different ranks all read it by the atoms that they share: each
 * then cuts it further for nothing. Sets ClassPlan.rows of all classes, or of none. */
void plan_share_rows(Plan *plan, const Net *net);

/* The words of plan.json: "role" and "experts" of an atom, the list of a class, "parts". Readers
 * report errors and say false. */
void mesh_put_roles(json_t *object, const Mesh *mesh, int atom);
bool mesh_read_roles(Json object, Mesh *mesh, int atom);
json_t *class_mesh_json(const Mesh *mesh);
bool class_read_mesh(Json list, const Plan *plan, ClassPlan *ret);
json_t *plan_parts_json(const Plan *plan, const Net *net);
bool plan_read_parts(Json list, Plan *plan, const Net *net);

#endif
