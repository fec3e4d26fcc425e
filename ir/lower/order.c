/* order.c - list scheduling of items on a compute stream and a stream of collectives. */
#include "ir/lower/order.h"

#include <string.h>

#include "ir/lower/roofline.h"

typedef struct Numbers {
    int n;
    int *at;
} Numbers;

/* What does not change from try to try. */
typedef struct Web {
    const OrderItem *item;
    int n;
    Numbers *readers; /* per item: who needs it */
    Numbers *after;   /* per item: who comes behind it and may not wait */
    int64_t *to_end;  /* its time and that of the longest way behind it */
} Web;

/* One try. */
typedef struct Try {
    const Web *web;
    bool by_way; /* the longest way to the end goes first; else the lowest number */
    int *open;   /* per item: what it needs, or is behind, that has not been issued; -1: issued */
    int64_t *ready;   /* per item: when what it needs has ended */
    int64_t clock[2]; /* ends of the streams; of collectives the second */
    int *order, issued;
} Try;

static void push(Arena *scratch, Numbers *list, int most, int number)
{
    if (!list->at)
        list->at = ARENA_ARRAY(scratch, int, most);
    list->at[list->n++] = number;
}

static Web web_make(Arena *scratch, const OrderItem *item, int n)
{
    Web web = {.item = item,
               .n = n,
               .readers = ARENA_ARRAY(scratch, Numbers, n + 1),
               .after = ARENA_ARRAY(scratch, Numbers, n + 1),
               .to_end = ARENA_ARRAY(scratch, int64_t, n + 1)};
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < item[i].needs.n; k++)
            push(scratch, &web.readers[item[i].needs.at[k]], n, i);
        if (item[i].behind != NONE)
            push(scratch, &web.after[item[i].behind], n, i);
    }
    for (int i = n - 1; i >= 0; i--) {
        for (int k = 0; k < web.readers[i].n; k++) {
            int64_t way = web.to_end[web.readers[i].at[k]];
            web.to_end[i] = way > web.to_end[i] ? way : web.to_end[i];
        }
        web.to_end[i] += item[i].ns;
    }
    return web;
}

static int64_t stall(const Try *run, int i)
{
    bool waits = !run->web->item[i].collective && run->ready[i] > run->clock[0];
    return waits ? run->ready[i] - run->clock[0] : 0;
}

/* Does `a` go before `b`, which is looked at first where neither rule tells them apart? */
static bool goes_before(const Try *run, int a, int b)
{
    return run->by_way && run->web->to_end[a] > run->web->to_end[b];
}

/* The first of all by the rule; but where that would stand still, the first that does not, and
 * where all would, the one that does so least. */
static int choose(const Try *run)
{
    int first = NONE, free = NONE, least = NONE;
    for (int i = 0; i < run->web->n; i++) {
        if (run->open[i] != 0)
            continue;
        int64_t wait = stall(run, i);
        if (first == NONE || goes_before(run, i, first))
            first = i;
        if (wait == 0 && (free == NONE || goes_before(run, i, free)))
            free = i;
        if (least == NONE || wait < stall(run, least))
            least = i;
    }
    return stall(run, first) == 0 ? first : free != NONE ? free : least;
}

static void issue(Try *run, int i)
{
    const Web *web = run->web;
    int64_t *clock = &run->clock[web->item[i].collective];
    int64_t start = run->ready[i] > *clock ? run->ready[i] : *clock;
    *clock = start + web->item[i].ns;
    for (int k = 0; k < web->readers[i].n; k++) {
        int reader = web->readers[i].at[k];
        run->ready[reader] = *clock > run->ready[reader] ? *clock : run->ready[reader];
        run->open[reader]--;
    }
    for (int k = 0; k < web->after[i].n; k++)
        run->open[web->after[i].at[k]]--;
    run->open[i] = -1;
    run->order[run->issued++] = i;
}

static int64_t try_end(const Try *run)
{
    return run->clock[0] > run->clock[1] ? run->clock[0] : run->clock[1];
}

static Try try_begin(Arena *scratch, const Web *web)
{
    Try run = {.web = web,
               .open = ARENA_ARRAY(scratch, int, web->n + 1),
               .ready = ARENA_ARRAY(scratch, int64_t, web->n + 1),
               .order = ARENA_ARRAY(scratch, int, web->n + 1)};
    for (int i = 0; i < web->n; i++)
        run.open[i] = web->item[i].needs.n + (web->item[i].behind != NONE);
    return run;
}

int64_t order_items(Arena *scratch, const OrderItem *item, int n, int *ret_order)
{
    Web web = web_make(scratch, item, n);
    Try given = try_begin(scratch, &web);
    for (int i = 0; i < n; i++)
        issue(&given, i);
    int64_t best = try_end(&given);
    memcpy(ret_order, given.order, (size_t)n * sizeof *ret_order);
    for (int by_way = 0; by_way < 2; by_way++) {
        Try run = try_begin(scratch, &web);
        run.by_way = by_way;
        while (run.issued < n)
            issue(&run, choose(&run));
        if (try_end(&run) >= best - best / 256)
            continue;
        best = try_end(&run);
        memcpy(ret_order, run.order, (size_t)n * sizeof *ret_order);
    }
    return best;
}

/* ---- instructions ---- */

static bool has(const int *list, int n, int id)
{
    for (int i = 0; i < n; i++)
        if (list[i] == id)
            return true;
    return false;
}

/* One of the two writes what the other reads or writes. */
static bool meets(const Inst *a, const Inst *b)
{
    for (int k = 0; k < a->outs; k++)
        if (has(b->in, b->ins, a->out[k]) || has(b->out, b->outs, a->out[k]))
            return true;
    for (int k = 0; k < b->outs; k++)
        if (has(a->in, a->ins, b->out[k]))
            return true;
    return false;
}

void order_read(Arena *scratch, const Body *body, const InstList *list, const Cluster *cluster,
                int first, OrderItem *ret)
{
    const Roofline roof = {cluster, body->net, body->mesh, body->recipe};
    for (int i = 0; i < list->n; i++) {
        const Inst *inst = &list->at[i];
        ret[i] = (OrderItem){.ns = inst_ns(&roof, body, inst),
                             .collective = inst_is_collective(inst),
                             .behind = NONE};
        for (int j = 0; j < i; j++)
            if (meets(&list->at[j], inst))
                vec_push(scratch, &ret[i].needs) = first + j;
    }
}

static bool any_collective(const InstList *list)
{
    for (int i = 0; i < list->n; i++)
        if (inst_is_collective(&list->at[i]))
            return true;
    return false;
}

static void order_list(Body *body, InstList *list, const Cluster *cluster)
{
    if (!any_collective(list))
        return;
    Arena *scratch = arena_new("order");
    OrderItem *item = ARENA_ARRAY(scratch, OrderItem, list->n);
    int *order = ARENA_ARRAY(scratch, int, list->n);
    order_read(scratch, body, list, cluster, 0, item);
    order_items(scratch, item, list->n, order);
    Inst *inst = ARENA_ARRAY(scratch, Inst, list->n);
    memcpy(inst, list->at, (size_t)list->n * sizeof *inst);
    for (int i = 0; i < list->n; i++)
        list->at[i] = inst[order[i]];
    arena_free(scratch);
}

void body_order(Body *body, const Cluster *cluster)
{
    if (!cluster)
        return;
    order_list(body, &body->forward, cluster);
    order_list(body, &body->backward, cluster);
    order_list(body, &body->weight, cluster);
}
