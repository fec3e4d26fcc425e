/* trainer_hops.c - what copies between memories have in common, whatever they carry: lanes, bases
 * of memories, and waits of buckets or links for others of them. */
#include "codegen/trainer.h"

const char *const trainer_lane[] = {"LP_COPY_IN", "LP_COPY_OUT", "LP_FILE_READ", "LP_FILE_WRITE"};
const char *const trainer_memory[] = {"s->arena", "s->rank->dram", "s->rank->file"};

enum { MAX_DISTANCES = 16 };

typedef struct Distance {
    int field, by;
} Distance;

/* How far one is behind another: by their turns, where only some take part. */
static int distance_of(const HopWaits *waits, int from, int to)
{
    CHECK(!waits->turn || waits->turn[to] != NONE);
    return waits->turn ? waits->turn[to] - waits->turn[from] : to - from;
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
            Distance own = {.field = waits->field_of(&place, &events[e])};
            if (own.field == NONE)
                continue;
            own.by = distance_of(waits, place.index, events[e].bucket);
            int k = 0;
            while (k < n && (ret[k].field != own.field || ret[k].by != own.by))
                k++;
            if (k < n)
                continue;
            if (n == MAX_DISTANCES)
                return n + 1;
            ret[n++] = own;
        }
    }
    return n;
}

void trainer_print_distant_waits(Trainer *t, Emit *out, const HopWaits *waits)
{
    Distance distance[MAX_DISTANCES];
    int n = find_distances(t, waits, distance);
    const char *at = waits->turn ? waits->turn_name : waits->index,
               *begin = waits->turn ? arena_printf(t->arena, "%s[", waits->all) : "",
               *end = waits->turn ? "]" : "";
    const char *count =
        waits->turn ? arena_printf(t->arena, "LP_COUNT(%s)", waits->all) : waits->all;
    if (n > MAX_DISTANCES) {
        emit_open(out, "for (int other = 0; other < %s; other++)", count);
        for (int f = 0; f < waits->fields; f++)
            emit_line(out, "lp_wait(&s->%s[%sother%s]);", waits->field[f], begin, end);
        emit_close_slim(out);
        return;
    }
    for (int k = 0; k < n; k++) {
        int by = distance[k].by;
        const char *field = waits->field[distance[k].field];
        if (by < 0) {
            emit_line(out, "if (%s >= %d)", at, -by);
            emit_line(out, "    lp_wait(&s->%s[%s%s - %d%s]);", field, begin, at, -by, end);
        } else if (by > 0) {
            emit_line(out, "if (%s + %d < %s)", at, by, count);
            emit_line(out, "    lp_wait(&s->%s[%s%s + %d%s]);", field, begin, at, by, end);
        } else {
            emit_line(out, "lp_wait(&s->%s[%s]);", field, waits->index);
        }
    }
}

void trainer_print_lane_waits(Emit *out, const char *field, const char *index)
{
    emit_line(out, "for (int lane = 0; lane < LP_COUNT(s->%s); lane++)", field);
    emit_line(out, "    for (int %s = 0; %s < LP_COUNT(s->%s[lane]); %s++)", index, index, field,
              index);
    emit_line(out, "        lp_wait(&s->%s[lane][%s]);", field, index);
}
