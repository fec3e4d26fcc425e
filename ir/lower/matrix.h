/* matrix.h - whole matrices: their step as a placed body, and how their buckets are cut.
 *
 * Muon needs all of a matrix (ir/optimizer.h). Its step is a class like any other: the solver
 * chooses how its products use the ranks that hold blocks of the matrix, lowering derives what
 * moves. A group of such parameters is a row of equal matrices; its buckets and shares are cut
 * between them, never through one (DESIGN section 5, the bucket cut rule `tensor`), so that the
 * ordinary reduction along the flat axis brings each matrix to one owner. */
#ifndef LPLAN_IR_LOWER_MATRIX_H
#define LPLAN_IR_LOWER_MATRIX_H

#include "ir/lower/body.h"

/* What a step's body depends on, besides the job. Compared with memcmp: unused entries are zero. */
typedef struct MatrixKey {
    int32_t rows, cols;       /* axes */
    int64_t extent[MAX_AXES]; /* of the whole matrix */
    AtomList shard[MAX_AXES]; /* of its home */
} MatrixKey;

/* One kind of matrices: where a stage's parameters of this kind lie, and their step. */
typedef struct MatrixKind {
    MatrixKey key;
    Body *body;
} MatrixKind;

/* Does the job move this parameter as whole matrices? Its kind, when it lies so, and the matrices
 * in a rank's block and the elements of a rank's part of each. */
bool matrix_key(const Net *net, const Graph *graph, int param, const Placement *home,
                const Mesh *mesh, const Job *job, MatrixKey *ret_key, int64_t *ret_count,
                int64_t *ret_elements);
AtomSet matrix_atoms(const MatrixKey *key); /* that cut it */
/* The step of one matrix: `param` is any of its kind. */
Body *matrix_body(Arena *arena, const Net *net, const Graph *graph, int param, const MatrixKey *key,
                  const Mesh *ranks, const Recipe *recipe, const Cluster *cluster, const Job *job);
/* The elements that a matrix takes in its group, where a rank's block of a tensor has `count` of
 * them: matrices that are tensors of their own begin at multiples of 16. */
int64_t matrix_unit(int64_t count, int64_t elements);

#endif
