/* price.h - what a kernel and a move cost on a cluster: a roofline per kernel form, rings and trees
 * per link level.
 *
 * All costs are integer ns. Compute: max(FLOPs / rate, bytes / bandwidth) + launch, the GEMM rate
 * rising with its size: rate = peak x permille x f / (f + small_gemm_flops). Attention counts its
 * pairs in full; where ranks have parts of the sequence, those that the mask leaves to the rank
 * with most of them, against what it leaves of all: an unbalanced ring costs twice a balanced one.
 *
 * Communication of a group: one hop of latency per rank passed, at the level which that hop
 * crosses, plus bytes / bandwidth of the level that is slowest for it. A group with g ranks in each
 * lower unit has g links out of the unit, and its rings use all of them (COSTS section 5). A
 * reduction or a gather takes the faster of ring and tree. */
#ifndef LPLAN_PLANNER_PRICE_H
#define LPLAN_PLANNER_PRICE_H

#include "ir/lower/link.h"
#include "ir/lower/program.h"
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

int64_t price_flops(const Device *device, const Recipe *recipe, int64_t flops); /* one GEMM */
int64_t price_stream(const Device *device, int64_t bytes); /* bytes through memory */

/* Bytes of one transfer between neighbouring memories. */
int64_t price_copy(const Cluster *cluster, Memory from, Memory to, int64_t bytes);

/* Callbacks of the solver and the path search; the context is a Pricer. */
int64_t price_move(const void *pricer, const Mesh *mesh, const Move *move, int64_t bytes);
int64_t price_node(const void *pricer, const Graph *graph, const Node *node, const Placement *in,
                   const Placement *out);
int64_t price_state_bytes(const void *pricer, const Graph *graph, int param, const Placement *home);
MovePrice pricer_moves(const Pricer *pricer);
SolveModel pricer_model(const Pricer *pricer);

/* One instruction of a body, all its nodes: FLOPs of each, bytes of the stored operands only. */
int64_t price_inst(const Pricer *pricer, const Body *body, const Inst *inst);
/* The matrix-product FLOPs of an instruction on this rank. */
int64_t inst_flops(const Body *body, const Inst *inst);
/* What each rank sends in a collective of a body. */
int64_t inst_wire_bytes(const Body *body, const Inst *inst);
bool inst_is_collective(const Inst *inst);
/* Is what a move carries a gradient, rather than a forward value gathered again? */
bool inst_moves_gradient(const Body *body, const Inst *inst);
/* Local FLOPs of one placed node (2 per multiply-add; causal attention counted in full). */
int64_t local_flops(const Net *net, const Mesh *mesh, const Node *node, const Placement *in,
                    const Placement *out, const Graph *graph);

#endif
