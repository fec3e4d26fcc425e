/* matrix_row.h - parameters of whole matrices as groups of a Program: rows of equal matrices. */
#ifndef LPLAN_IR_LOWER_MATRIX_ROW_H
#define LPLAN_IR_LOWER_MATRIX_ROW_H

#include "ir/lower/program.h"

/* The kind of a parameter's matrices (Program.matrices, to which it is added when it is the first)
 * and the elements that a matrix takes in its group; NONE and 1 for what is moved by elements. */
int program_matrix(Program *program, const Graph *graph, int param, const Placement *home,
                   int64_t *ret_unit);
/* Cuts the homes of a group over no more ranks than there are whole matrices: over the first atoms
 * of its lists. */
void group_narrow(const Mesh *mesh, Group *group, int64_t matrices);
/* Where the members of a group of whole matrices lie, and its buckets, which are pushed. No bucket
 * and no share ends within a matrix. */
void group_lay_matrices(Program *program, StageProgram *stage, int group);
/* The steps of all kinds stand behind the bodies of the classes. */
void program_add_steps(Program *program);
/* Is an operand (MATRIX_WEIGHT ...) what the optimizer keeps? */
bool matrix_is_state(const Group *group, int operand);
/* Where an operand (MATRIX_WEIGHT ...) of the step of the matrix is that begins at element `from`
 * of the bucket's group, on a rank that owns it. The weight is the master where there is one, else
 * of this version. */
int64_t matrix_operand(const Program *program, const StageProgram *stage, const Bucket *bucket,
                       int coordinate, int64_t from, int operand, int version);
/* The weight itself: at home in this version, or in the buffer to which it was brought. */
int64_t matrix_weight(const Program *program, const StageProgram *stage, const Bucket *bucket,
                      int coordinate, int64_t from, int version);

#endif
