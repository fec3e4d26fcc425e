/* price.h - what kernels, moves and copies cost on a cluster, as the planner's parts ask for it.
 *
 * Kernels: a roofline per kernel form (ir/lower/roofline.h). Communication of a group: one hop of
 * latency per rank passed, at the level which that hop crosses, plus bytes / bandwidth of the level
 * that is slowest for it. A group with g ranks in each lower unit has g links out of the unit, and
 * its rings use all of them (COSTS section 5). A reduction or a gather takes the faster of ring and
 * tree (ir/lower/link.h). */
#ifndef LPLAN_PLANNER_PRICE_H
#define LPLAN_PLANNER_PRICE_H

#include "ir/lower/link.h"
#include "ir/lower/program.h"
#include "ir/lower/roofline.h"
#include "ir/lower/solve.h"

typedef struct Pricer {
    const Cluster *cluster;
    const Net *net;
    const Mesh *mesh;
    const Recipe *recipe;
    AtomSet state_atoms;
    const Job *job;          /* whose optimizer it is */
    struct StepShelf *steps; /* where cards find steps of matrices they have seen, or NULL */
} Pricer;

/* Bytes of one transfer between neighbouring memories. */
int64_t price_copy(const Cluster *cluster, Memory from, Memory to, int64_t bytes);

/* Callbacks of the solver and the path search; the context is a Pricer. */
int64_t price_move(const void *pricer, const Mesh *mesh, const Move *move, int64_t bytes);
int64_t price_node(const void *pricer, const Graph *graph, const Node *node, const Placement *in,
                   const Placement *out);
int64_t price_state_bytes(const void *pricer, const Graph *graph, int param, const Placement *home);
MovePrice pricer_moves(const Pricer *pricer);
SolveModel pricer_model(const Pricer *pricer);

/* One instruction of a body: inst_ns(). */
int64_t price_inst(const Pricer *pricer, const Body *body, const Inst *inst);

#endif
