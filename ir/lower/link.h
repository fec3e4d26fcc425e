/* link.h - what communication costs on a cluster's links, ns: the price by which moves are derived,
 * and read again by the planner.
 *
 * A reduction or a gather is carried out by one of the algorithms that the cluster's library has,
 * the fastest for this group and size: a ring of n ranks takes its steps x latency + (bytes on the
 * wire + half_bytes) / bandwidth of the slowest level it crosses; the table of the others, with
 * their sources, is in link.c. */
#ifndef LPLAN_IR_LOWER_LINK_H
#define LPLAN_IR_LOWER_LINK_H

#include "ir/lower/place.h"
#include "ir/plan.h"

/* One collective over the atoms, of what each rank sends (wire_bytes). */
int64_t price_collective(const Cluster *cluster, const Mesh *mesh, MoveKind kind,
                         const AtomList *atoms, int64_t wire_bytes);
/* Which algorithm that price is of; ALGORITHM_COUNT where there is no choice: exchanges, blocks
 * that pass by. */
Algorithm collective_algorithm(const Cluster *cluster, const Mesh *mesh, MoveKind kind,
                               const AtomList *atoms, int64_t wire_bytes);
int64_t price_p2p(const Cluster *cluster, int level, int64_t bytes);
/* A small all-reduce over all ranks: a tree. */
int64_t price_world(const Cluster *cluster, int ranks, int64_t bytes);
/* The sum of a tied gradient over its two home stages. */
int64_t price_pair(const Cluster *cluster, int level, int64_t bytes);
/* The level that a message between stages `a` and `b` of `stage_ranks` ranks crosses. */
int stage_level(const Cluster *cluster, int stage_ranks, int a, int b);
/* The highest level that a group over these atoms crosses. */
int atoms_level(const Mesh *mesh, const AtomList *atoms);

/* The price of moves under a recipe on this cluster, for path_find. */
MovePrice link_price(const Cluster *cluster, const Recipe *recipe);

#endif
