/* order.h - in which order work is issued on the two streams of a body, so that what a collective
 * is waited for by comes as late as what depends on it allows.
 *
 * List scheduling (Graham 1966) on prices: of the items whose needs have been issued the first by
 * some rule is taken; when the compute stream would stand still for a collective, the first that
 * does not wait for one goes before. Rules are the order that was given and the longest way to the
 * end (highest level first; Hu 1961). Whoever ends first is taken; an order that was given stays
 * unless another one is shorter by more than a 256th, so that lists are read as they were written
 * where nothing is won. */
#ifndef LPLAN_IR_LOWER_ORDER_H
#define LPLAN_IR_LOWER_ORDER_H

#include "ir/lower/body.h"

/* One thing to issue: it takes `ns` on its stream. It may be issued behind all that it needs, and
 * behind the item `behind`, which it need not wait for. Both have lower numbers. */
typedef struct OrderItem {
    int64_t ns;
    bool collective; /* its stream is that of collectives */
    int behind;      /* or NONE */
    VEC(int) needs;
} OrderItem;

/* An order of the items as numbers, and when its last item ends. The order given is that of the
 * numbers. */
int64_t order_items(Arena *scratch, const OrderItem *item, int n, int *ret_order);

/* What the instructions of a list need of each other, by the copies that they read and write; one
 * item each, in the list's order, numbered from `first` on. Prices are those of roofline.h. */
void order_read(Arena *scratch, const Body *body, const InstList *list, const Cluster *cluster,
                int first, OrderItem *ret);

/* Orders every list of a body that has no addresses yet. */
void body_order(Body *body, const Cluster *cluster);

#endif
