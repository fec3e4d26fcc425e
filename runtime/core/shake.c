/* shake.c - fault injection: a network that is slow where and when a seed says.
 *
 * A buffer that is reused before its operation is over, or read before it, holds the right bytes as
 * long as messages are quick. Here any of them may be late, on any rank: what events keep apart is
 * not changed by it, and everything else shows. */
#include "runtime/core/shake.h"

#include <stddef.h>

#define SHORT_NS 150000
#define LONG_NS 3000000

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t draw(LpSelf *self)
{
    uint64_t x = self->rank.options->shake * UINT64_C(0xd1342543de82ef95) +
                 (uint64_t)self->rank.index * UINT64_C(0xaf251af3b0f025b5) +
                 ++self->shaken * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Half of all rounds go at once, most others are a little late, a few very. */
static int64_t delay_ns(LpSelf *self)
{
    uint64_t x = draw(self);
    if (x % 2)
        return 0;
    return (int64_t)((x >> 8) % (x / 2 % 32 ? SHORT_NS : LONG_NS));
}

/* An older message of its kind is not posted yet. */
static bool out_of_turn(const LpSelf *self, const LpWork *work)
{
    if (work->comm || work->phase > 0)
        return false;
    for (const LpWork *older = self->active; older && older != work; older = older->next)
        if (!older->comm && older->phase == 0 && older->peer == work->peer &&
            older->tag == work->tag && !older->src == !work->src)
            return true;
    return false;
}

bool lp_shake_holds(LpSelf *self, LpWork *work)
{
    if (!self->rank.options->shake)
        return false;
    if (out_of_turn(self, work))
        return true;
    if (!work->held_until_ns)
        work->held_until_ns = lp_now_ns() + delay_ns(self);
    if (lp_now_ns() < work->held_until_ns)
        return true;
    work->held_until_ns = 0;
    return false;
}
