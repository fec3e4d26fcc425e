/* solve_elim.c - variable elimination on one number, a weighted sum of time and bytes: the tree of
 * buckets, its best assignment and, per table cell, the least that everything outside can cost. */
#include <string.h>

#include "ir/lower/solve_in.h"

/* ---- one number per label ---- */

int64_t weights_cost(Weights weights, int64_t ns, int64_t bytes)
{
    return cost_add(cost_times(ns, weights.ns), cost_times(bytes, weights.byte));
}

static int64_t label_cost(const SolveSetup *setup, Weights weights, const Label *label)
{
    if (label_forbidden(label))
        return COST_MAX;
    return weights_cost(weights, label_ns(setup, label), label_bytes(setup, label));
}

static void message_of_factor(Tree *tree, const Factor *factor)
{
    Message message = {.n = factor->n, .size = 1, .from = NONE};
    for (int i = 0; i < factor->n; i++) {
        message.var[i] = factor->var[i];
        message.size *= tree->problem->vars.at[factor->var[i]].n;
    }
    message.cost = ARENA_ARRAY(tree->arena, int64_t, message.size);
    for (int64_t i = 0; i < message.size; i++)
        message.cost[i] = label_cost(&tree->problem->setup, tree->weights, &factor->table[i]);
    vec_push(tree->arena, &tree->messages) = message;
}

/* ---- values that another value always beats ---- */

static int64_t message_at(const Tree *tree, const Message *message, int side, int value, int other)
{
    if (message->n == 1)
        return message->cost[value];
    int64_t n1 = tree->problem->vars.at[message->var[1]].n;
    return side == 0 ? message->cost[value * n1 + other] : message->cost[other * n1 + value];
}

/* The least by which `b` is cheaper than `a`, whatever the other variable is. */
static int64_t message_gain(const Tree *tree, const Message *message, int side, int a, int b)
{
    int64_t least = COST_MAX;
    int other = message->n == 2 ? message->var[1 - side] : NONE;
    int n = other == NONE ? 1 : tree->alive_n[other];
    for (int i = 0; i < n; i++) {
        int at = other == NONE ? 0 : tree->alive[other][i];
        int64_t cost_a = message_at(tree, message, side, a, at);
        int64_t cost_b = message_at(tree, message, side, b, at);
        int64_t gain = cost_a >= COST_MAX   ? COST_MAX
                       : cost_b >= COST_MAX ? -COST_MAX
                                            : cost_a - cost_b;
        if (gain < least)
            least = gain;
        if (least <= -COST_MAX)
            break;
    }
    return least;
}

typedef struct Touch {
    int message, side;
} Touch;
typedef VEC(Touch) TouchList;

/* True when b costs at most as much as a in all company. Equal ones keep the first. */
static bool value_beaten(const Tree *tree, const TouchList *touch, int a, int b)
{
    int64_t gain = 0;
    for (int i = 0; i < touch->n; i++) {
        const Message *message = &tree->messages.at[touch->at[i].message];
        int64_t one = message_gain(tree, message, touch->at[i].side, a, b);
        if (one <= -COST_MAX)
            return false;
        gain = cost_add(gain, one);
    }
    return gain > 0 || (gain == 0 && b < a);
}

static bool var_prune(Tree *tree, int var, const TouchList *touch)
{
    uint16_t *alive = tree->alive[var];
    int n = tree->alive_n[var], kept = 0;
    bool gone[UINT8_MAX + 1] = {false};
    if (n > UINT8_MAX)
        return false;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n && !gone[i]; j++)
            if (j != i && !gone[j] && value_beaten(tree, touch, alive[i], alive[j]))
                gone[i] = true;
    for (int i = 0; i < n; i++)
        if (!gone[i])
            alive[kept++] = alive[i];
    tree->alive_n[var] = kept;
    return kept < n;
}

/* Sweeps until nothing changes, looking again only at neighbours of what changed. */
static void tree_prune(Tree *tree)
{
    int vars = tree->problem->vars.n;
    TouchList *touch = ARENA_ARRAY(tree->arena, TouchList, vars);
    bool *dirty = ARENA_ARRAY(tree->arena, bool, vars);
    for (int m = 0; m < tree->messages.n; m++)
        for (int side = 0; side < tree->messages.at[m].n; side++)
            vec_push(tree->arena, &touch[tree->messages.at[m].var[side]]) = (Touch){m, side};
    for (int v = 0; v < vars; v++)
        dirty[v] = true;
    for (bool changed = true; changed;) {
        changed = false;
        for (int v = 0; v < vars; v++) {
            if (!dirty[v])
                continue;
            dirty[v] = false;
            if (!var_prune(tree, v, &touch[v]))
                continue;
            changed = true;
            for (int i = 0; i < touch[v].n; i++) {
                const Message *message = &tree->messages.at[touch[v].at[i].message];
                for (int k = 0; k < message->n; k++)
                    dirty[message->var[k]] = true;
            }
        }
    }
}

/* The table of a factor over the values that are left. */
static void message_compact(Tree *tree, Message *message)
{
    int v0 = message->var[0], n1 = 1, full1 = 1;
    int64_t at = 0;
    if (message->n == 2) {
        n1 = tree->alive_n[message->var[1]];
        full1 = tree->problem->vars.at[message->var[1]].n;
    }
    for (int i = 0; i < tree->alive_n[v0]; i++) {
        const int64_t *row = message->cost + (int64_t)tree->alive[v0][i] * full1;
        for (int j = 0; j < n1; j++)
            message->cost[at++] = row[message->n == 2 ? tree->alive[message->var[1]][j] : 0];
    }
    message->size = at;
}

/* ---- order ---- */

/* The variables that share a table, as the elimination goes on. */
typedef struct Order {
    int vars;
    bool *near; /* vars x vars */
    bool *gone;
    double *fill; /* rows of the table that eliminating the variable would make */
} Order;

static void order_fill(const Tree *tree, Order *order, int var)
{
    double rows = tree->alive_n[var];
    for (int v = 0; v < order->vars; v++)
        if (order->near[var * order->vars + v])
            rows *= tree->alive_n[v];
    order->fill[var] = rows;
}

static Order order_new(const Tree *tree)
{
    int vars = tree->problem->vars.n;
    Order order = {.vars = vars,
                   .near = ARENA_ARRAY(tree->arena, bool, (int64_t)vars *vars),
                   .gone = ARENA_ARRAY(tree->arena, bool, vars),
                   .fill = ARENA_ARRAY(tree->arena, double, vars)};
    for (int m = 0; m < tree->messages.n; m++) {
        const Message *message = &tree->messages.at[m];
        if (message->n == 2 && message->var[0] != message->var[1])
            order.near[message->var[0] * vars + message->var[1]] =
                order.near[message->var[1] * vars + message->var[0]] = true;
    }
    for (int v = 0; v < vars; v++)
        order_fill(tree, &order, v);
    return order;
}

/* The variable whose elimination makes the smallest table; ties: the first. */
static int order_next(Order *order)
{
    int best = NONE;
    for (int v = 0; v < order->vars; v++)
        if (!order->gone[v] && (best == NONE || order->fill[v] < order->fill[best]))
            best = v;
    return best;
}

static void order_eliminate(const Tree *tree, Order *order, int var)
{
    int vars = order->vars, n = 0;
    int *near = ARENA_ARRAY(tree->arena, int, vars);
    order->gone[var] = true;
    for (int v = 0; v < vars; v++) {
        if (!order->near[var * vars + v])
            continue;
        near[n++] = v;
        order->near[v * vars + var] = false;
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (i != j)
                order->near[near[i] * vars + near[j]] = true;
    for (int i = 0; i < n; i++)
        order_fill(tree, order, near[i]);
}

/* ---- walking a table ---- */

/* All assignments of the scope of a bucket, and the offset of each into every message. */
typedef struct Walk {
    int n, extent[MAX_SCOPE], digit[MAX_SCOPE];
    int messages;
    const Message *message[MAX_SCOPE * 4];
    int64_t stride[MAX_SCOPE * 4][MAX_SCOPE], inner[MAX_SCOPE * 4], offset[MAX_SCOPE * 4];
} Walk;

static int64_t message_stride(const Tree *tree, const Message *message, int var)
{
    int64_t stride = 1;
    for (int i = message->n - 1; i >= 0; i--) {
        if (message->var[i] == var)
            return stride;
        stride *= tree->alive_n[message->var[i]];
    }
    return 0;
}

static void walk_add(const Tree *tree, Walk *walk, const Bucket *bucket, const Message *message)
{
    CHECK(walk->messages < MAX_SCOPE * 4);
    int m = walk->messages++;
    walk->message[m] = message;
    walk->offset[m] = 0;
    walk->inner[m] = message_stride(tree, message, bucket->var);
    for (int i = 0; i < walk->n; i++)
        walk->stride[m][i] = message_stride(tree, message, bucket->out.var[i]);
}

static void walk_new(const Tree *tree, const Bucket *bucket, Walk *walk)
{
    walk->n = bucket->out.n;
    walk->messages = 0;
    for (int i = 0; i < walk->n; i++) {
        walk->extent[i] = tree->alive_n[bucket->out.var[i]];
        walk->digit[i] = 0;
    }
    for (int m = 0; m < bucket->in.n; m++)
        walk_add(tree, walk, bucket, &tree->messages.at[bucket->in.at[m]]);
}

static void walk_step(Walk *walk, int fastest)
{
    for (int i = fastest; i >= 0; i--) {
        bool carry = ++walk->digit[i] == walk->extent[i];
        int64_t steps = carry ? 1 - walk->extent[i] : 1;
        for (int m = 0; m < walk->messages; m++)
            walk->offset[m] += steps * walk->stride[m][i];
        if (!carry)
            return;
        walk->digit[i] = 0;
    }
}

static void walk_next(Walk *walk)
{
    walk_step(walk, walk->n - 1);
}

/* ---- elimination ---- */

/* False when the table would be too large. */
static bool bucket_scope(const Tree *tree, Bucket *bucket)
{
    int vars = tree->problem->vars.n;
    bool *in = ARENA_ARRAY(tree->arena, bool, vars);
    for (int m = 0; m < bucket->in.n; m++) {
        const Message *message = &tree->messages.at[bucket->in.at[m]];
        for (int i = 0; i < message->n; i++)
            in[message->var[i]] = true;
    }
    bucket->out.size = 1;
    for (int v = 0; v < vars; v++) {
        /* a variable of one value has nothing to tell */
        if (!in[v] || v == bucket->var || tree->alive_n[v] == 1)
            continue;
        CHECK(bucket->out.n < MAX_SCOPE);
        bucket->out.var[bucket->out.n++] = v;
        bucket->out.size *= tree->alive_n[v];
        if (bucket->out.size > MAX_ROWS)
            return false;
    }
    return true;
}

/* What the messages that the fastest variable of the walk does not move add up to, per value of the
 * bucket's variable; the others go to the front of `moving`. Returns their number. */
static int sum_still(const Walk *walk, int n, int *moving, int64_t *ret_still)
{
    int moves = 0, last = walk->n - 1;
    memset(ret_still, 0, (size_t)n * sizeof *ret_still);
    for (int m = 0; m < walk->messages; m++) {
        if (last >= 0 && walk->stride[m][last] != 0) {
            moving[moves++] = m;
            continue;
        }
        const int64_t *cost = walk->message[m]->cost + walk->offset[m];
        for (int x = 0; x < n; x++)
            ret_still[x] = cost_add(ret_still[x], cost[x * walk->inner[m]]);
    }
    return moves;
}

/* Cells of the fastest variable are a run: what it does not move is added up once for all of them,
 * and the rest along the run, as it lies in memory. */
static void bucket_minimise(Tree *tree, Bucket *bucket)
{
    Walk walk;
    walk_new(tree, bucket, &walk);
    int n = tree->alive_n[bucket->var], last = walk.n - 1, moving[MAX_SCOPE * 4];
    int run = last >= 0 ? walk.extent[last] : 1;
    int64_t *still = ARENA_ARRAY(tree->arena, int64_t, n);
    int64_t *sum = ARENA_ARRAY(tree->arena, int64_t, run);
    bucket->out.cost = ARENA_ARRAY(tree->arena, int64_t, bucket->out.size);
    bucket->arg = ARENA_ARRAY(tree->arena, uint16_t, bucket->out.size);
    for (int64_t cell = 0; cell < bucket->out.size; cell += run) {
        int64_t *best = &bucket->out.cost[cell];
        uint16_t *arg = &bucket->arg[cell];
        int moves = sum_still(&walk, n, moving, still);
        for (int j = 0; j < run; j++)
            best[j] = COST_MAX;
        for (int x = 0; x < n; x++) {
            if (still[x] >= COST_MAX)
                continue;
            for (int j = 0; j < run; j++)
                sum[j] = still[x];
            for (int k = 0; k < moves; k++) {
                int m = moving[k];
                const int64_t *cost = walk.message[m]->cost + walk.offset[m] + x * walk.inner[m];
                int64_t stride = walk.stride[m][last];
                for (int j = 0; j < run; j++)
                    sum[j] = cost_add(sum[j], cost[j * stride]);
            }
            for (int j = 0; j < run; j++)
                if (sum[j] < best[j]) {
                    best[j] = sum[j];
                    arg[j] = (uint16_t)x;
                }
        }
        walk_step(&walk, last - 1);
    }
    tree->rows += bucket->out.size * n;
    tree->width = bucket->out.n + 1 > tree->width ? bucket->out.n + 1 : tree->width;
}

static bool message_covers(const Message *large, const Message *small)
{
    for (int i = 0; i < small->n; i++) {
        bool in = false;
        for (int k = 0; k < large->n; k++)
            in |= large->var[k] == small->var[i];
        if (!in)
            return false;
    }
    return true;
}

/* Adds a message to one over more variables. */
static void message_fold(const Tree *tree, Message *large, const Message *small)
{
    int digit[MAX_SCOPE] = {0};
    int64_t stride[MAX_SCOPE], at = 0;
    for (int i = 0; i < large->n; i++)
        stride[i] = message_stride(tree, small, large->var[i]);
    for (int64_t cell = 0; cell < large->size; cell++) {
        large->cost[cell] = cost_add(large->cost[cell], small->cost[at]);
        for (int i = large->n - 1; i >= 0; i--) {
            at += stride[i];
            if (++digit[i] < tree->alive_n[large->var[i]])
                break;
            at -= digit[i] * stride[i];
            digit[i] = 0;
        }
    }
}

/* Fewer messages to add per cell: each goes into one that covers it, where there is one. */
static void bucket_fold(Tree *tree, Bucket *bucket)
{
    int kept = 0;
    for (int m = 0; m < bucket->in.n; m++) {
        const Message *small = &tree->messages.at[bucket->in.at[m]];
        bool folded = false;
        for (int k = 0; k < bucket->in.n && !folded; k++) {
            Message *large = &tree->messages.at[bucket->in.at[k]];
            bool before = k < kept || k > m; /* still in the list */
            if (!before || large == small || !message_covers(large, small))
                continue;
            message_fold(tree, large, small);
            folded = true;
        }
        if (!folded)
            bucket->in.at[kept++] = bucket->in.at[m];
    }
    bucket->in.n = kept;
}

static bool tree_eliminate(Tree *tree, bool fold)
{
    Order order = order_new(tree);
    bool *taken = ARENA_ARRAY(tree->arena, bool, tree->messages.n + tree->n);
    tree->best = 0;
    for (int b = 0; b < tree->n; b++) {
        Bucket *bucket = &tree->bucket[b];
        *bucket = (Bucket){.var = order_next(&order), .parent = NONE};
        order_eliminate(tree, &order, bucket->var);
        for (int m = 0; m < tree->messages.n; m++) {
            const Message *message = &tree->messages.at[m];
            bool touches = false;
            for (int i = 0; i < message->n && !taken[m]; i++)
                touches |= message->var[i] == bucket->var;
            if (!touches)
                continue;
            taken[m] = true;
            vec_push(tree->arena, &bucket->in) = m;
            if (message->from != NONE)
                tree->bucket[message->from].parent = b;
        }
        bucket->out.from = b;
        if (!bucket_scope(tree, bucket))
            return false;
        if (fold)
            bucket_fold(tree, bucket);
        bucket_minimise(tree, bucket);
        if (bucket->out.n == 0)
            tree->best = cost_add(tree->best, bucket->out.cost[0]);
        vec_push(tree->arena, &tree->messages) = bucket->out;
    }
    return true;
}

Tree *tree_new(Arena *arena, const Problem *problem, Weights weights, bool prune)
{
    Tree *tree = ARENA_NEW(arena, Tree);
    *tree = (Tree){.arena = arena, .problem = problem, .weights = weights, .n = problem->vars.n};
    tree->alive_n = ARENA_ARRAY(arena, int, tree->n);
    tree->alive = ARENA_ARRAY(arena, uint16_t *, tree->n);
    tree->bucket = ARENA_ARRAY(arena, Bucket, tree->n);
    for (int v = 0; v < tree->n; v++) {
        int n = problem->vars.at[v].n;
        tree->alive_n[v] = n;
        tree->alive[v] = ARENA_ARRAY(arena, uint16_t, n);
        for (int i = 0; i < n; i++)
            tree->alive[v][i] = (uint16_t)i;
    }
    for (int f = 0; f < problem->factors.n; f++)
        message_of_factor(tree, &problem->factors.at[f]);
    if (prune) {
        tree_prune(tree);
        for (int m = 0; m < tree->messages.n; m++)
            message_compact(tree, &tree->messages.at[m]);
    }
    return tree_eliminate(tree, prune) ? tree : NULL;
}

void tree_values(const Tree *tree, uint16_t *ret_value)
{
    int *index = ARENA_ARRAY(tree->arena, int, tree->n);
    for (int b = tree->n - 1; b >= 0; b--) {
        const Bucket *bucket = &tree->bucket[b];
        int64_t cell = 0;
        for (int i = 0; i < bucket->out.n; i++)
            cell = cell * tree->alive_n[bucket->out.var[i]] + index[bucket->out.var[i]];
        index[bucket->var] = bucket->arg[cell];
        ret_value[bucket->var] = tree->alive[bucket->var][index[bucket->var]];
    }
}

/* ---- the least cost of everything outside ---- */

static void bucket_down(Tree *tree, Bucket *bucket)
{
    Walk walk;
    int n = tree->alive_n[bucket->var];
    walk_new(tree, bucket, &walk);
    for (int64_t cell = 0; cell < bucket->out.size; cell++, walk_next(&walk)) {
        for (int x = 0; x < n; x++) {
            int64_t sum = bucket->down[cell];
            for (int m = 0; m < walk.messages; m++)
                sum = cost_add(sum, walk.message[m]->cost[walk.offset[m] + x * walk.inner[m]]);
            if (sum >= COST_MAX)
                continue;
            for (int m = 0; m < walk.messages; m++) {
                if (walk.message[m]->from == NONE)
                    continue;
                int64_t at = walk.offset[m] + x * walk.inner[m];
                int64_t *down = &tree->bucket[walk.message[m]->from].down[at];
                int64_t rest = sum - walk.message[m]->cost[at];
                *down = rest < *down ? rest : *down;
            }
        }
    }
}

void tree_down(Tree *tree)
{
    for (int b = 0; b < tree->n; b++) {
        Bucket *bucket = &tree->bucket[b];
        bucket->down = ARENA_ARRAY(tree->arena, int64_t, bucket->out.size);
        for (int64_t cell = 0; cell < bucket->out.size; cell++)
            bucket->down[cell] = COST_MAX;
        if (bucket->parent == NONE && tree->best < COST_MAX)
            bucket->down[0] = tree->best - bucket->out.cost[0];
    }
    for (int b = tree->n - 1; b >= 0; b--)
        bucket_down(tree, &tree->bucket[b]);
}
