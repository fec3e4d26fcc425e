/* trainer_hops.c - what copies between memories have in common, whatever they carry: lanes, bases
 * of memories, and waits of buckets or links for others of them. */
#include "codegen/trainer.h"

const char *const trainer_lane[] = {"LP_COPY_IN", "LP_COPY_OUT", "LP_FILE_READ", "LP_FILE_WRITE"};
const char *const trainer_memory[] = {"s->arena", "s->rank->dram", "s->rank->file"};

enum { MAX_DISTANCES = 16 };

HopWaits trainer_bucket_hops(Trainer *t, int s, PlaceKind kind, int lane)
{
    return (HopWaits){.place = {.kind = kind, .stage = s, .which = lane},
                      .end = t->program->stage[s].buckets.n,
                      .index = "b",
                      .all = arena_printf(t->arena, "LP_COUNT(stage%d_buckets)", s)};
}

/* Of what, and how far behind the place it is, by turns where only some take part; `only`: this
 * one, of which that says nothing, or NONE. Lanes run in order, so who waits for a hop waits for
 * those before it. */
typedef struct Distance {
    int field, by, only;
} Distance;

static Distance distance_of(const HopWaits *waits, const Place *place, const Event *event)
{
    const int *turn = waits->turn;
    Distance own = {waits->field_of(place, event), event->bucket - place->index, NONE};
    bool apart =
        turn && own.field != NONE && (turn[event->bucket] == NONE || turn[place->index] == NONE);
    if (apart)
        own = (Distance){own.field, 0, event->bucket};
    else if (turn && own.field != NONE)
        own.by = turn[event->bucket] - turn[place->index];
    return own;
}

/* Distances to what places wait for, each once; MAX_DISTANCES + 1: there are more. */
static int find_distances(const Trainer *t, const HopWaits *waits, Distance *ret)
{
    int n = 0;
    Place place = waits->place;
    for (; place.index < waits->end; place.index++) {
        const Event *events;
        int count = waits_at(t->waits, &place, &events);
        for (int e = 0; e < count; e++) {
            Distance own = distance_of(waits, &place, &events[e]);
            int k = 0;
            while (k < n &&
                   (ret[k].field != own.field || ret[k].by != own.by || ret[k].only != own.only))
                k++;
            if (own.field == NONE || k < n)
                continue;
            if (n == MAX_DISTANCES)
                return n + 1;
            ret[n++] = own;
        }
    }
    return n;
}

static void print_distance(Trainer *t, Emit *out, const HopWaits *waits, const Distance *distance)
{
    int by = distance->by;
    const char *field = waits->field[distance->field], *sign = by < 0 ? "-" : "+";
    const char *at = waits->turn ? waits->turn_name : waits->index,
               *all =
                   waits->turn ? arena_printf(t->arena, "LP_COUNT(%s)", waits->list) : waits->all,
               *other = arena_printf(t->arena, "%s %s %d", at, sign, by < 0 ? -by : by);
    if (distance->only != NONE || by == 0) {
        emit_line(out, "lp_wait(&s->%s[%s]);", field,
                  by == 0 && distance->only == NONE ? waits->index
                                                    : arena_printf(t->arena, "%d", distance->only));
        return;
    }
    if (by < 0)
        emit_line(out, "if (%s >= %d)", at, -by);
    else
        emit_line(out, "if (%s < %s)", other, all);
    emit_line(out, "    lp_wait(&s->%s[%s]);", field,
              waits->turn ? arena_printf(t->arena, "%s[%s]", waits->list, other) : other);
}

void trainer_print_distant_waits(Trainer *t, Emit *out, const HopWaits *waits)
{
    Distance distance[MAX_DISTANCES];
    int n = find_distances(t, waits, distance);
    if (n > MAX_DISTANCES) {
        emit_open(out, "for (int other = 0; other < %s; other++)", waits->all);
        for (int f = 0; f < waits->fields; f++)
            emit_line(out, "lp_wait(&s->%s[other]);", waits->field[f]);
        emit_close_slim(out);
        return;
    }
    for (int k = 0; k < n; k++)
        print_distance(t, out, waits, &distance[k]);
}

void trainer_print_lane_waits(Emit *out, const char *field, const char *index)
{
    emit_line(out, "for (int lane = 0; lane < LP_COUNT(s->%s); lane++)", field);
    emit_line(out, "    for (int %s = 0; %s < LP_COUNT(s->%s[lane]); %s++)", index, index, field,
              index);
    emit_line(out, "        lp_wait(&s->%s[lane][%s]);", field, index);
}
