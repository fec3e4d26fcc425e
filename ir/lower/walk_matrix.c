/* walk_matrix.c - the steps of whole matrices, one after the other. */
#include "ir/lower/home.h"
#include "ir/lower/layout.h"
#include "ir/lower/matrix_row.h"
#include "ir/lower/walk_in.h"

/* One instruction on the matrix that begins at an element of the group. */
static void put_inst(Walk *walk, int index, const Body *body, const Inst *inst, int64_t from)
{
    const StageProgram *stage = walk->stage;
    const Bucket *bucket = &stage->buckets.at[index];
    const Group *group = &stage->groups.at[bucket->group];
    Step *step = walk_inst(walk, body, inst);
    step->bucket = index;
    step->first = true;
    step->from_element = from;
    step->count = group->unit;
    bool stepped = false, away = group->state_home != MEMORY_HBM;
    uint64_t weight = group->far ? walk_fetched_name(walk, index, MEMORY_HBM, false, walk->round)
                                 : walk_name(NAME_STATIC, 0, 0, 0);
    for (int k = 0; k < inst->ins + inst->outs; k++) {
        bool out = k >= inst->ins;
        int id = out ? inst->out[k - inst->ins] : inst->in[k];
        const Copy *copy = &body->copies.at[id], *home = &body->copies.at[copy_storage(body, id)];
        bool temp = home->home == HOME_TEMP, state = matrix_is_state(group, home->param);
        uint64_t name = temp            ? walk_name(NAME_TEMP, 0xffff, id, 0)
                        : away && state ? walk_name(NAME_STATE, MEMORY_HBM, 0, index)
                        : home->param == MATRIX_WEIGHT && !state ? weight
                                                                 : walk_name(NAME_STATIC, 0, 0, 0);
        walk_operand(step,
                     temp ? stage->scratch + home->offset
                          : matrix_operand(walk->program, stage, bucket, walk->coordinate, from,
                                           home->param, walk->round + (home->home == HOME_ACC)),
                     copy->bytes, name, copy, !out, out);
        stepped |= out && home->home == HOME_ACC && home->param == MATRIX_WEIGHT;
    }
    /* where weights are stored in 16 bits, what steps is the master, and the weight follows it */
    if (stepped && group->master != NONE)
        walk_operand(
            step,
            matrix_weight(walk->program, stage, bucket, walk->coordinate, from, walk->round + 1),
            group->unit * dtype_bytes(walk->program->recipe->weight), weight, NULL, false, true);
}

void walk_matrices(Walk *walk, int index)
{
    const Bucket *bucket = &walk->stage->buckets.at[index];
    const Group *group = &walk->stage->groups.at[bucket->group];
    const Body *body = walk->program->matrices.at[group->matrix].body;
    int64_t begin = bucket_share_begin(walk->program, walk->stage, bucket, walk->coordinate);
    for (int64_t from = begin; from < begin + bucket->share_elements; from += group->unit)
        for (int i = 0; from < bucket->begin + bucket->filled && i < body->backward.n; i++)
            put_inst(walk, index, body, &body->backward.at[i], from);
}
