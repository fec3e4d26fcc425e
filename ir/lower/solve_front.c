/* solve_front.c - the exact frontier: lists of (time, bytes, transient bytes) through the tree of
 * an elimination.
 *
 * Sums and maxima are monotone, so a list may drop what is dominated in all three. The tree's
 * tables say what the best completion of a label costs on the weighted sum: a label that cannot end
 * below the caller's cost limit goes too. */
#include <stdlib.h>
#include <string.h>

#include "ir/lower/solve_in.h"

/* A partial sum and how it was made: the value of the bucket's variable and one label of each
 * message it read. */
typedef struct Mark {
    int64_t ns, bytes, transient;
    int32_t child; /* first of the labels read, in the pool of children */
    uint16_t value;
} Mark;

/* The labels of one table cell. */
typedef struct Cell {
    int32_t first, n;
} Cell;

typedef struct Front {
    Arena *arena;
    Tree *tree;
    int64_t limit, cost_limit;
    VEC(Mark) marks; /* of all finished cells */
    VEC(int32_t) children;
    Cell **cell;     /* per bucket, per cell of its message */
    VEC(Mark) fresh; /* of the cell being built */
    VEC(int32_t) fresh_children;
    int fan; /* messages with lists that the bucket reads */
    const Message **lists;
    int64_t *at;    /* cell of each list under the assignment at hand */
    int32_t *child; /* label picked of each */
} Front;

static int mark_compare(const void *a, const void *b)
{
    const Mark *x = a, *y = b;
    if (x->ns != y->ns)
        return x->ns < y->ns ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    if (x->transient != y->transient)
        return x->transient < y->transient ? -1 : 1;
    return x->child < y->child ? -1 : x->child > y->child;
}

/* Sorts the labels and drops dominated ones. */
static int marks_prune(Mark *marks, int n)
{
    int kept = 0;
    if (n > 1)
        qsort(marks, (size_t)n, sizeof *marks, mark_compare);
    for (int i = 0; i < n; i++) {
        bool beaten = false;
        for (int k = 0; k < kept && !beaten; k++)
            beaten = marks[k].bytes <= marks[i].bytes && marks[k].transient <= marks[i].transient;
        if (!beaten)
            marks[kept++] = marks[i];
    }
    return kept;
}

/* Keeps what is fresh as a list of its own. */
static Cell marks_keep(Front *front)
{
    Cell cell = {front->marks.n, marks_prune(front->fresh.at, front->fresh.n)};
    for (int i = 0; i < cell.n; i++) {
        Mark mark = front->fresh.at[i];
        int32_t from = mark.child;
        mark.child = front->children.n;
        for (int k = 0; k < front->fan; k++)
            vec_push(front->arena, &front->children) = front->fresh_children.at[from + k];
        vec_push(front->arena, &front->marks) = mark;
    }
    if (front->marks.n > INT32_MAX / 4)
        BUG("the exact solve keeps more than %d labels", INT32_MAX / 4);
    return cell;
}

/* One way to go on: labels of the lists from `k` on are still to be picked. */
typedef struct Pick {
    Mark sum;
    int64_t rest; /* least cost of the lists to come and of everything outside */
} Pick;

static void pick_labels(Front *front, Pick *pick, int k)
{
    if (pick->sum.bytes + pick->sum.transient > front->limit ||
        cost_add(weights_cost(front->tree->weights, pick->sum.ns, pick->sum.bytes), pick->rest) >
            front->cost_limit)
        return;
    if (k == front->fan) {
        pick->sum.child = front->fresh_children.n;
        for (int i = 0; i < front->fan; i++)
            vec_push(front->arena, &front->fresh_children) = front->child[i];
        vec_push(front->arena, &front->fresh) = pick->sum;
        return;
    }
    const Message *message = front->lists[k];
    Cell cell = front->cell[message->from][front->at[k]];
    Mark sum = pick->sum;
    int64_t rest = pick->rest;
    for (int i = 0; i < cell.n; i++) {
        Mark add = front->marks.at[cell.first + i];
        pick->sum.ns = sum.ns + add.ns;
        pick->sum.bytes = sum.bytes + add.bytes;
        pick->sum.transient = add.transient > sum.transient ? add.transient : sum.transient;
        front->child[k] = cell.first + i;
        pick->rest = rest - message->cost[front->at[k]];
        pick_labels(front, pick, k + 1);
    }
    pick->sum = sum;
    pick->rest = rest;
}

/* Index of the assignment in a message's table. */
static int64_t message_index(const Front *front, const Message *message, const int *digit)
{
    int64_t at = 0;
    for (int i = 0; i < message->n; i++)
        at = at * front->tree->alive_n[message->var[i]] + digit[message->var[i]];
    return at;
}

/* The labels of one cell for one value of the bucket's variable. */
static void bucket_value(Front *front, const Bucket *bucket, int64_t cell, const int *digit)
{
    const Tree *tree = front->tree;
    const SolveSetup *setup = &tree->problem->setup;
    Pick pick = {.rest = bucket->down[cell]};
    int lists = 0;
    for (int m = 0; m < bucket->in.n; m++) {
        const Message *message = &tree->messages.at[bucket->in.at[m]];
        int64_t index = message_index(front, message, digit);
        if (message->from != NONE) {
            front->at[lists++] = index;
            pick.rest = cost_add(pick.rest, message->cost[index]);
            continue;
        }
        const Label *label = &tree->problem->factors.at[bucket->in.at[m]].table[index];
        if (label_forbidden(label))
            return;
        pick.sum.ns += label_ns(setup, label);
        pick.sum.bytes += label_bytes(setup, label);
        if (label->transient_bytes > pick.sum.transient)
            pick.sum.transient = label->transient_bytes;
    }
    if (pick.rest >= COST_MAX)
        return;
    pick.sum.value = (uint16_t)digit[bucket->var];
    pick_labels(front, &pick, 0);
}

static void bucket_lists(Front *front, int b)
{
    const Tree *tree = front->tree;
    const Bucket *bucket = &tree->bucket[b];
    int *digit = ARENA_ARRAY(front->arena, int, tree->n);
    front->cell[b] = ARENA_ARRAY(front->arena, Cell, bucket->out.size);
    front->fan = 0;
    for (int m = 0; m < bucket->in.n; m++)
        if (tree->messages.at[bucket->in.at[m]].from != NONE)
            front->lists[front->fan++] = &tree->messages.at[bucket->in.at[m]];
    for (int64_t cell = 0; cell < bucket->out.size; cell++) {
        front->fresh.n = front->fresh_children.n = 0;
        for (int x = 0; x < tree->alive_n[bucket->var]; x++) {
            digit[bucket->var] = x;
            bucket_value(front, bucket, cell, digit);
        }
        front->cell[b][cell] = marks_keep(front);
        for (int i = bucket->out.n - 1; i >= 0; i--) {
            int var = bucket->out.var[i];
            if (++digit[var] < tree->alive_n[var])
                break;
            digit[var] = 0;
        }
    }
}

/* Writes the values that a label of a bucket stands for. */
static void mark_values(const Front *front, int b, int32_t mark, uint16_t *ret)
{
    const Tree *tree = front->tree;
    const Bucket *bucket = &tree->bucket[b];
    int32_t child = front->marks.at[mark].child;
    ret[bucket->var] = front->marks.at[mark].value;
    for (int m = 0; m < bucket->in.n; m++) {
        int from = tree->messages.at[bucket->in.at[m]].from;
        if (from != NONE)
            mark_values(front, from, front->children.at[child++], ret);
    }
}

/* A variable that no other one touches has a table of its own: the roots add up as if one bucket
 * read them all. */
static Cell front_roots(Front *front, int *ret_root, int32_t *ret_roots)
{
    const Tree *tree = front->tree;
    Pick pick = {.rest = tree->best};
    front->fan = 0;
    for (int b = 0; b < tree->n; b++) {
        if (tree->bucket[b].out.n != 0)
            continue;
        front->at[front->fan] = 0;
        ret_root[front->fan] = b;
        front->lists[front->fan++] = &tree->bucket[b].out;
    }
    front->fresh.n = front->fresh_children.n = 0;
    pick_labels(front, &pick, 0);
    *ret_roots = front->fan;
    return marks_keep(front);
}

int front_find(Arena *arena, Tree *tree, int64_t limit, int64_t cost_limit, Point **ret,
               int64_t *ret_labels)
{
    Front front = {.arena = arena, .tree = tree, .limit = limit, .cost_limit = cost_limit};
    int *root = ARENA_ARRAY(arena, int, tree->n), found = 0;
    int32_t roots;
    front.cell = ARENA_ARRAY(arena, Cell *, tree->n);
    front.lists = ARENA_ARRAY(arena, const Message *, tree->n);
    front.at = ARENA_ARRAY(arena, int64_t, tree->n);
    front.child = ARENA_ARRAY(arena, int32_t, tree->n);
    for (int b = 0; b < tree->n; b++)
        bucket_lists(&front, b);
    Cell all = front_roots(&front, root, &roots);
    *ret = ARENA_ARRAY(arena, Point, all.n);
    for (int i = 0; i < all.n; i++) {
        const Mark *mark = &front.marks.at[all.first + i];
        int64_t bytes = mark->bytes + mark->transient;
        /* sorted by time: a point is on the frontier when it has fewer bytes than those before */
        if (bytes > limit || (found > 0 && bytes >= (*ret)[found - 1].bytes))
            continue;
        Point *point = &(*ret)[found++];
        *point = (Point){mark->ns, bytes, ARENA_ARRAY(arena, uint16_t, tree->n)};
        for (int k = 0; k < roots; k++)
            mark_values(&front, root[k], front.children.at[mark->child + k], point->value);
    }
    *ret_labels = front.marks.n;
    return found;
}
