/* traffic.c - the rows of a simulation's communication, in words and in order. */
#include "planner/traffic.h"

#include <stdlib.h>

#include "planner/report.h"

static int by_time(const void *a, const void *b)
{
    const HotRow *x = a, *y = b;
    int64_t s = x->traffic->ns[x->stage], t = y->traffic->ns[y->stage];
    if (s != t)
        return s > t ? -1 : 1;
    return x->traffic < y->traffic ? -1 : x->traffic > y->traffic;
}

const char *traffic_role(Arena *arena, const Assessment *it, const Traffic *traffic)
{
    const Mesh *mesh = &it->plan->mesh;
    switch (traffic->step) {
    case STEP_MOVE: /* inside of layers dp ranks that share experts meet for these alone */
        if (traffic->stream == STREAM_BLOCK && traffic->atoms && !(traffic->atoms & ~mesh->ep) &&
            ((traffic->atoms & role_atoms(mesh, ROLE_DP)) || traffic->move == MOVE_ALL_TO_ALL))
            return role_text[ROLE_EP];
        return text_all_roles(arena, it, traffic->atoms);
    case STEP_WORLD:
        return "world";
    case STEP_COPY:
        return "rank";
    default:
        return "pp";
    }
}

const char *traffic_kind(const Traffic *traffic)
{
    switch (traffic->step) {
    case STEP_MOVE:
        return move_text[traffic->move];
    case STEP_SEND:
        return "send";
    case STEP_COPY:
        return stream_text[traffic->stream];
    default:
        return "all_reduce";
    }
}

/* A forward value that backward needs whole again is a row of its own. */
const char *traffic_what(Arena *arena, const Traffic *traffic)
{
    bool again = traffic->backward && str_eq(traffic->what, "activations");
    return again ? arena_printf(arena, "%s, again", traffic->what) : traffic->what;
}

int hot_rows(Arena *arena, const StepTimes *times, HotRow **ret)
{
    HotRow *row = ARENA_ARRAY(arena, HotRow, times->traffic.n + 1);
    int n = 0;
    for (int i = 0; i < times->traffic.n; i++) {
        const Traffic *traffic = &times->traffic.at[i];
        int worst = 0;
        for (int s = 1; s < times->stages; s++)
            worst = traffic->ns[s] > traffic->ns[worst] ? s : worst;
        if (traffic->stream == STREAM_RECV_ACT || traffic->stream == STREAM_RECV_GRAD)
            continue; /* the other end of a send */
        if (traffic->count[worst])
            row[n++] = (HotRow){traffic, worst};
    }
    qsort(row, (size_t)n, sizeof *row, by_time);
    *ret = row;
    return n;
}

/* A send is exposed where its receiver waits. */
int64_t hot_exposed(const StepTimes *times, const HotRow *row)
{
    int64_t most = 0;
    for (int i = 0; i < times->traffic.n; i++) {
        const Traffic *other = &times->traffic.at[i];
        bool own = other == row->traffic;
        bool received = row->traffic->step == STEP_SEND && other->step == STEP_SEND &&
                        other->level == row->traffic->level &&
                        str_eq(other->what, row->traffic->what);
        if (!own && !received)
            continue;
        for (int s = 0; s < times->stages; s++)
            if ((received || s == row->stage) && other->exposed_ns[s] > most)
                most = other->exposed_ns[s];
    }
    return most;
}

json_t *traffic_json(Arena *arena, const Assessment *it)
{
    HotRow *row;
    int n = hot_rows(arena, it->times, &row);
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        const Traffic *traffic = row[i].traffic;
        int s = row[i].stage;
        Algorithm by = traffic_algorithm(it->plan, traffic, s);
        const char *over = traffic->memory ? memory_text[traffic->memory]
                                           : it->plan->cluster->level[traffic->level].name;
        json_t *object =
            json_pack("{s:s, s:s, s:s, s:s, s:i, s:o}", "role", traffic_role(arena, it, traffic),
                      "collective", traffic_kind(traffic), "of", traffic_what(arena, traffic),
                      "over", over, "stage", s, "algorithm",
                      by < ALGORITHM_COUNT ? json_string(algorithm_text[by]) : json_null());
        json_object_set_new(object, "in_layers", json_boolean(traffic->stream == STREAM_BLOCK));
        json_object_set_new(object, "count", json_integer((json_int_t)traffic->count[s]));
        json_object_set_new(object, "sent_bytes", json_integer((json_int_t)traffic->bytes[s]));
        json_object_set_new(object, "ns", json_integer((json_int_t)traffic->ns[s]));
        json_object_set_new(object, "exposed_ns",
                            json_integer((json_int_t)hot_exposed(it->times, &row[i])));
        json_array_append_new(list, object);
    }
    return list;
}
