/* homes_words.c - the names that others gave to cuts of homes. */
#include "planner/homes_words.h"

const char *homes_name(const Pins *pins, bool brief)
{
    static const char *const whole[] = {NULL, "ZeRO-1", "ZeRO-2", "ZeRO-3 (FSDP)"};
    static const char *const node[] = {NULL, "ZeRO-1 inside a node", "ZeRO-2 inside a node",
                                       "ZeRO-3 inside a node (HSDP)"};
    static const char *const few[] = {NULL, "ZeRO-1", "ZeRO-2", "ZeRO-3"};
    if (pins->zero <= 0 || pins->dp * pins->cp == 1)
        return NULL;
    if (pins->shard == SHARD_NODE)
        return brief && pins->zero == 3 ? "HSDP" : node[pins->zero];
    if (pins->shard == SHARD_WEIGHTS && pins->zero == 3)
        return brief ? "ZeRO-3, weights in a node" : "ZeRO-3, weights cut inside a node";
    return (brief ? few : whole)[pins->zero];
}
