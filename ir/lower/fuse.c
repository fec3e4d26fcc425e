/* fuse.c - neighbouring row kernels become one row program.
 *
 * A row kernel runs over a *space*: the axes of its widest operand, of which the last `cols` are
 * the columns that it reduces or broadcasts along; operands are the whole space or its rows. Two
 * kernels fuse when they have one space (or one works on the other's rows), one shares a stored
 * copy with the other or reads what it makes, and moving one of them to the other's place crosses
 * no reader. A copy that only its own kernel reads is then never stored. */
#include "ir/lower/body.h"

#include <string.h>

typedef struct Space {
    int axes, cols;
    DimId dim[MAX_AXES];
    int64_t local[MAX_AXES];
    AtomList
        shard[MAX_AXES]; /* blocks of one length may still be others: a kernel has one origin */
} Space;

static void space_of_copy(const Body *body, int id, Space *ret)
{
    const Copy *copy = &body->copies.at[id];
    const Value *value = &body->graph->values.at[copy->value];
    ret->axes = value->axes;
    ret->cols = 0;
    for (int a = 0; a < value->axes; a++) {
        ret->dim[a] = value->dim[a];
        ret->local[a] = copy->local[a];
        ret->shard[a] = copy->place.shard[a];
    }
}

/* An einsum is a row kernel when every operand is the space or its rows and what it contracts is
 * the columns of all. */
static bool einsum_space(const Body *body, const Node *node, const int *in, const int *out,
                         Space *ret)
{
    const Sig *sig = &node->sig;
    int axes[2] = {0, 0}, wide = 0;
    for (int k = 0; k < node->ins; k++) {
        axes[k] = body->graph->values.at[node->in[k]].axes;
        wide = axes[k] > axes[wide] ? k : wide;
    }
    int outs = body->graph->values.at[node->out[0]].axes;
    const int8_t *space = sig->in[wide];
    int n = axes[wide];
    if (outs > n) {
        space = sig->out[0];
        n = outs;
    }
    int rows = outs < n ? outs : n;
    for (int k = 0; k < node->ins; k++) {
        if (outs < n && axes[k] != n)
            return false; /* a contraction of rows with columns is a product of matrices */
        if (memcmp(sig->in[k], space, (size_t)axes[k]) != 0)
            return false;
        rows = axes[k] < rows ? axes[k] : rows;
    }
    if (memcmp(sig->out[0], space, (size_t)outs) != 0)
        return false;
    space_of_copy(body, outs == n ? out[0] : in[wide], ret);
    ret->cols = n - rows;
    return true;
}

/* One operand of a pattern such as "Av,A,A->Av": its text up to ',' or "->"; moves *at behind it.
 */
static int operand_text(const char **at, const char **ret)
{
    *ret = *at;
    int length = (int)strcspn(*at, ",-");
    *at += length;
    *at += **at == ',' ? 1 : **at == '-' ? 2 : 0;
    return length;
}

/* A row pattern: the widest operand is a run of rows, "A", and perhaps columns behind it; every
 * operand is all of it, its rows, or its columns; every result is all of it or its rows. *ret_wide
 * is the first operand that is the whole space (results count on behind the operands),
 * *ret_has_cols whether there are columns, *ret_has_run whether they are a run of axes. */
static bool row_pattern(const char *pattern, int operands, int results, int *ret_wide,
                        bool *ret_has_cols, bool *ret_has_run)
{
    const char *text[MAX_IN + MAX_OUT] = {pattern}, *at = pattern;
    int length[MAX_IN + MAX_OUT] = {0}, wide = 0;
    if (operands == 0)
        at += strlen("->");
    for (int k = 0; k < operands + results; k++) {
        length[k] = operand_text(&at, &text[k]);
        wide = length[k] > length[wide] ? k : wide;
    }
    if (text[wide][0] != 'A')
        return false;
    for (int k = 0; k < operands + results; k++) {
        bool whole =
            length[k] == length[wide] && memcmp(text[k], text[wide], (size_t)length[k]) == 0;
        bool rows = length[k] == 1 && text[k][0] == 'A';
        bool columns = k < operands && length[k] == length[wide] - 1 && length[k] > 0 &&
                       memcmp(text[k], text[wide] + 1, (size_t)length[k]) == 0;
        if (!whole && !rows && !columns)
            return false;
    }
    *ret_wide = wide;
    *ret_has_cols = length[wide] > 1;
    *ret_has_run = length[wide] > 1 && text[wide][1] >= 'A' && text[wide][1] <= 'Z';
    return true;
}

/* The space of one node of an instruction, false when it is no row kernel that may fuse. */
static bool node_space(const Body *body, const Inst *inst, int i, Space *ret)
{
    const Node *node = &body->graph->nodes.at[inst->node[i]];
    const OpInfo *info = &op_info[node->op];
    const int *in = inst->bind_in[i], *out = inst->bind_out[i];
    if (str_eq(info->pattern, "*"))
        return node->ins == 2 && einsum_space(body, node, in, out, ret);
    int wide;
    bool has_cols, has_run;
    if (info->form != FORM_rows ||
        !row_pattern(info->pattern, node->ins, node->outs, &wide, &has_cols, &has_run))
        return false;
    space_of_copy(body, wide < node->ins ? in[wide] : out[wide - node->ins], ret);
    /* columns of one letter; a run of them (a bias) leaves the rows open */
    ret->cols = has_cols && !has_run;
    return true;
}

static bool same_prefix(const Space *a, const Space *b, int n)
{
    for (int i = 0; i < n; i++)
        if (a->dim[i] != b->dim[i] || a->local[i] != b->local[i] ||
            memcmp(&a->shard[i], &b->shard[i], sizeof a->shard[i]) != 0)
            return false;
    return true;
}

/* The space of both, if there is one. */
static bool join_spaces(const Space *a, const Space *b, Space *ret)
{
    const Space *wide = a->axes >= b->axes ? a : b, *slim = wide == a ? b : a;
    if (!same_prefix(wide, slim, slim->axes))
        return false;
    *ret = *wide;
    if (wide->axes == slim->axes) {
        if (wide->cols && slim->cols && wide->cols != slim->cols)
            return false;
        ret->cols = wide->cols > slim->cols ? wide->cols : slim->cols;
        return true;
    }
    if (slim->cols)
        return false;
    int cols = wide->axes - slim->axes;
    if (wide->cols && wide->cols != cols)
        return false;
    ret->cols = cols;
    return true;
}

static bool lists(const int *list, int n, int id)
{
    for (int i = 0; i < n; i++)
        if (list[i] == id)
            return true;
    return false;
}

static bool reads(const Inst *inst, int copy)
{
    return lists(inst->in, inst->ins, copy);
}

static bool writes(const Inst *inst, int copy)
{
    return lists(inst->out, inst->outs, copy);
}

static bool related(const Inst *a, const Inst *b)
{
    for (int k = 0; k < b->ins; k++)
        if (reads(a, b->in[k]) || writes(a, b->in[k]))
            return true;
    return false;
}

/* Joined flow: clones of forward nodes go with whom they serve. False when the two must stay apart.
 */
static bool join_flows(Flow a, Flow b, Flow *ret)
{
    *ret = a == FLOW_FORWARD ? b : a;
    return a == b || a == FLOW_FORWARD || b == FLOW_FORWARD;
}

static bool merge_into(Inst *a, const Inst *b, Inst *ret)
{
    *ret = *a;
    if (a->nodes + b->nodes > MAX_FUSED)
        return false;
    for (int k = 0; k < b->ins; k++) {
        if (reads(ret, b->in[k]) || writes(a, b->in[k]))
            continue;
        if (ret->ins == MAX_OPERANDS)
            return false;
        ret->in[ret->ins++] = b->in[k];
    }
    for (int k = 0; k < b->outs; k++) {
        if (ret->outs == MAX_OPERANDS)
            return false;
        ret->out[ret->outs++] = b->out[k];
    }
    for (int i = 0; i < b->nodes; i++) {
        ret->node[ret->nodes] = b->node[i];
        memcpy(ret->bind_in[ret->nodes], b->bind_in[i], sizeof b->bind_in[i]);
        memcpy(ret->bind_out[ret->nodes], b->bind_out[i], sizeof b->bind_out[i]);
        ret->nodes++;
    }
    return true;
}

/* Instruction j may run at place i < j: whatever it reads is there by then. */
static bool may_rise(const InstList *list, int i, int j)
{
    for (int k = i + 1; k < j; k++)
        for (int o = 0; o < list->at[k].outs; o++)
            if (reads(&list->at[j], list->at[k].out[o]))
                return false;
    return true;
}

/* Instruction i may run at place j > i: nobody in between reads what it makes. */
static bool may_sink(const InstList *list, int i, int j)
{
    for (int k = i + 1; k < j; k++)
        for (int o = 0; o < list->at[i].outs; o++)
            if (reads(&list->at[k], list->at[i].out[o]))
                return false;
    return true;
}

static void remove_inst(InstList *list, int i)
{
    memmove(&list->at[i], &list->at[i + 1], (size_t)(list->n - i - 1) * sizeof list->at[0]);
    list->n--;
}

static bool fuse_one(const Body *body, InstList *list, Space *space, int j)
{
    if (space[j].axes < 0)
        return false;
    for (int i = j - 1; i >= 0; i--) {
        Space both;
        Flow flow;
        Inst *a = &list->at[i], *b = &list->at[j], merged;
        if (space[i].axes < 0 || !related(a, b) || !join_spaces(&space[i], &space[j], &both) ||
            !join_flows(a->flow, b->flow, &flow))
            continue;
        bool rise = may_rise(list, i, j), sink = !rise && may_sink(list, i, j);
        if ((!rise && !sink) || !merge_into(a, b, &merged))
            continue;
        merged.flow = flow;
        int keep = rise ? i : j, drop = rise ? j : i;
        list->at[keep] = merged;
        space[keep] = both;
        remove_inst(list, drop);
        memmove(&space[drop], &space[drop + 1], (size_t)(list->n - drop) * sizeof space[0]);
        (void)body;
        return true;
    }
    return false;
}

static void fuse_list(Arena *arena, Body *body, InstList *list)
{
    Space *space = ARENA_ARRAY(arena, Space, list->n + 1);
    for (int i = 0; i < list->n; i++) {
        Inst *inst = &list->at[i];
        if (inst->kind != INST_KERNEL || !node_space(body, inst, 0, &space[i]))
            space[i].axes = -1;
        else
            inst->form = FORM_rows;
    }
    for (int j = 1; j < list->n;)
        if (!fuse_one(body, list, space, j))
            j++;
        else
            j = j > 1 ? j - 1 : 1;
}

/* Copies that only their own kernel reads become fused: registers of it, never stored. */
static void drop_inner_copies(Body *body, InstList *list)
{
    for (int i = 0; i < list->n; i++) {
        Inst *inst = &list->at[i];
        if (inst->kind != INST_KERNEL || inst->nodes < 2)
            continue;
        int kept = 0;
        for (int o = 0; o < inst->outs; o++) {
            int id = inst->out[o];
            bool elsewhere = body->copies.at[id].home != HOME_TEMP;
            for (int k = 0; k < list->n; k++)
                elsewhere |= k != i && reads(&list->at[k], id);
            for (int l = 0; l < BODY_LISTS; l++)
                for (int k = 0; body_list(body, l) != list && k < body_list(body, l)->n; k++)
                    elsewhere |= reads(&body_list(body, l)->at[k], id);
            bool inside = false;
            for (int n = 0; n < inst->nodes; n++)
                inside |= lists(inst->bind_in[n], body->graph->nodes.at[inst->node[n]].ins, id);
            if (elsewhere || !inside)
                inst->out[kept++] = id;
            else
                body->copies.at[id].home = HOME_FUSED;
        }
        inst->outs = kept;
    }
}

void body_fuse(Arena *arena, Body *body)
{
    fuse_list(arena, body, &body->forward);
    fuse_list(arena, body, &body->backward);
    fuse_list(arena, body, &body->weight);
    drop_inner_copies(body, &body->forward);
    drop_inner_copies(body, &body->backward);
    drop_inner_copies(body, &body->weight);
}
