/* link.c - rings, trees and messages over the levels of a cluster's links. */
#include "ir/lower/link.h"

#include "ir/base/num.h"

static const int64_t second_ns = 1000000000;

static int64_t wire_ns(const LinkLevel *link, int64_t bytes, int64_t links)
{
    /* more links carry the message in as many parts: each part has its own half size */
    return num_scale_up(bytes + link->half_bytes * links, second_ns, link->bytes_per_s * links);
}

static const LinkLevel *link_at(const Cluster *cluster, int level)
{
    return &cluster->level[level < cluster->levels ? level : cluster->levels - 1];
}

int64_t price_p2p(const Cluster *cluster, int level, int64_t bytes)
{
    const LinkLevel *link = link_at(cluster, level);
    return link->latency_ns + wire_ns(link, bytes, 1);
}

int64_t price_pair(const Cluster *cluster, int level, int64_t bytes)
{
    const LinkLevel *link = link_at(cluster, level);
    return 2 * link->latency_ns + wire_ns(link, bytes, 1);
}

static int log2_up(int64_t n)
{
    int log = 0;
    while (INT64_C(1) << log < n)
        log++;
    return log;
}

int64_t price_world(const Cluster *cluster, int ranks, int64_t bytes)
{
    int64_t ns = 0, joined = 1;
    for (int i = 0; i < cluster->levels && joined < ranks; i++) {
        int64_t width = cluster->level[i].width, left = (ranks + joined - 1) / joined;
        width = width < left || i == cluster->levels - 1 ? width : left;
        ns += 2 * log2_up(width < left ? width : left) * cluster->level[i].latency_ns;
        joined *= width;
    }
    return ranks < 2 ? 0 : ns + wire_ns(link_at(cluster, cluster->levels - 1), 2 * bytes, 1);
}

int atoms_level(const Mesh *mesh, const AtomList *atoms)
{
    int level = 0;
    for (int i = 0; i < atoms->n; i++)
        if (mesh->atom[atoms->at[i]].level > level)
            level = mesh->atom[atoms->at[i]].level;
    return level;
}

int stage_level(const Cluster *cluster, int stage_ranks, int a, int b)
{
    int64_t joined = 1, from = (int64_t)a * stage_ranks, to = (int64_t)b * stage_ranks;
    for (int i = 0; i < cluster->levels; i++) {
        joined *= cluster->level[i].width;
        int64_t end = stage_ranks - 1;
        if (from / joined == to / joined && (from + end) / joined == (to + end) / joined)
            return i;
    }
    return cluster->levels - 1;
}

/* ---- one table of collective algorithms ---- */

/* A group over the levels of the links, and what it reduces or gathers. */
typedef struct Meet {
    const Cluster *cluster;
    int64_t ranks[MAX_LEVELS]; /* of the group, joined at each level */
    int64_t all;               /* their product */
    int64_t wire_bytes;        /* that a rank sends in a ring */
    int64_t bytes;             /* of the whole value: what a rank holds before an all-reduce */
    int passes;                /* 2: all-reduce, down and up; 1: a scatter or a gather */
} Meet;

typedef int64_t (*AlgorithmPrice)(const Meet *meet); /* ns, NONE where there is no such thing */

/* Rings through all units, each over the link of another rank, so that the links out of a unit
 * carry the message in parts; a datum passes every rank (Patarasuk & Yuan 2009; NCCL). */
static int64_t ring_ns(const Meet *meet)
{
    int64_t inside = 1, hops = 0, wire = 0;
    for (int i = 0; i < meet->cluster->levels; i++) {
        if (meet->ranks[i] == 1)
            continue;
        const LinkLevel *link = &meet->cluster->level[i];
        hops += (meet->ranks[i] - 1) * (meet->all / (inside * meet->ranks[i])) * link->latency_ns;
        wire = num_larger(wire, wire_ns(link, meet->wire_bytes, inside));
        inside *= meet->ranks[i];
    }
    return meet->passes * hops + wire;
}

/* Double binary trees (Sanders et al. 2009; NCCL 2.4). A tree's pipeline fills less well: nine
 * tenths of a ring's bandwidth, of half a tree (a gather or a scatter) three quarters. */
static int64_t tree_ns(const Meet *meet)
{
    int64_t inside = 1, hops = 0, wire = 0;
    for (int i = 0; i < meet->cluster->levels; i++) {
        if (meet->ranks[i] == 1)
            continue;
        const LinkLevel *link = &meet->cluster->level[i];
        hops += log2_up(meet->ranks[i]) * link->latency_ns;
        wire = num_larger(wire, wire_ns(link, meet->wire_bytes, inside));
        inside *= meet->ranks[i];
    }
    return meet->passes * hops + wire + wire / (meet->passes == 2 ? 9 : 3);
}

/* From a level on: what is left there is scattered over its ranks, each part goes on to the next
 * level, and the parts are gathered. */
static int64_t levels_ns(const Meet *meet, int first, int64_t inside)
{
    int64_t ns = 0;
    for (int i = first; i < meet->cluster->levels; i++) {
        int64_t ranks = meet->ranks[i];
        if (ranks == 1)
            continue;
        const LinkLevel *link = &meet->cluster->level[i];
        int64_t own = (meet->bytes / inside) / ranks * (ranks - 1);
        ns += meet->passes * ((ranks - 1) * link->latency_ns + wire_ns(link, own, 1));
        inside *= ranks;
    }
    return ns;
}

/* A ring inside each unit, then rings of parts across, one level at a time (Jia et al. 2018;
 * Cho et al. 2019, BlueConnect). */
static int64_t hierarchical_ns(const Meet *meet)
{
    return levels_ns(meet, 0, 1);
}

/* The switch of the fastest links adds what all send and hands out the sum: everything crosses a
 * link once each way, at 0.85 of its bandwidth, behind 25 us (NCCL's tuning for Hopper; COSTS
 * section 5). Across units what a rank holds goes on in rings. */
static int64_t nvls_ns(const Meet *meet)
{
    enum { LATENCY_NS = 25000, PERMILLE = 850 };
    const LinkLevel *link = &meet->cluster->level[0];
    if (meet->ranks[0] < 3)
        return NONE;
    int64_t own =
        meet->passes == 2 ? meet->bytes : meet->bytes / meet->ranks[0] * (meet->ranks[0] - 1);
    return LATENCY_NS + wire_ns(link, own, 1) * 1000 / PERMILLE +
           levels_ns(meet, 1, meet->ranks[0]);
}

/* One rank keeps the sum: all others send it everything and take back the result, both at once in
 * parts, so that its link carries what all of them have (Li et al. 2014; the load of one server in
 * Jiang et al. 2020). */
static int64_t server_ns(const Meet *meet)
{
    int64_t inside = 1, hops = 0, wire = 0;
    for (int i = 0; i < meet->cluster->levels; i++) {
        if (meet->ranks[i] == 1)
            continue;
        const LinkLevel *link = &meet->cluster->level[i];
        hops += 2 * link->latency_ns;
        wire = num_larger(wire, wire_ns(link, meet->bytes * (meet->ranks[i] - 1) * inside, 1));
        inside *= meet->ranks[i];
    }
    return hops + wire;
}

static const AlgorithmPrice algorithm_price[ALGORITHM_COUNT] = {[ALGORITHM_RING] = ring_ns,
                                                                [ALGORITHM_TREE] = tree_ns,
                                                                [ALGORITHM_HIERARCHICAL] =
                                                                    hierarchical_ns,
                                                                [ALGORITHM_NVLS] = nvls_ns,
                                                                [ALGORITHM_SERVER] = server_ns};

/* The fastest that the library has; rings, where it has none for this group. */
static int64_t fastest_ns(const Meet *meet, Algorithm *ret)
{
    int64_t best = NONE;
    for (int a = 0; a < ALGORITHM_COUNT; a++) {
        int64_t ns = meet->cluster->collectives >> a & 1 ? algorithm_price[a](meet) : NONE;
        if (ns == NONE || (best != NONE && ns >= best))
            continue;
        best = ns;
        *ret = (Algorithm)a;
    }
    if (best == NONE)
        *ret = ALGORITHM_RING;
    return best == NONE ? ring_ns(meet) : best;
}

static Meet meet_of(const Cluster *cluster, const Mesh *mesh, MoveKind kind, const AtomList *atoms,
                    int64_t wire_bytes)
{
    Meet meet = {.cluster = cluster,
                 .all = 1,
                 .wire_bytes = wire_bytes,
                 .passes = kind == MOVE_ALL_REDUCE ? 2 : 1};
    for (int i = 0; i < cluster->levels; i++)
        meet.ranks[i] = 1;
    for (int i = 0; i < atoms->n; i++) {
        const Atom *atom = &mesh->atom[atoms->at[i]];
        meet.ranks[atom->level < cluster->levels ? atom->level : cluster->levels - 1] *=
            atom->extent;
        meet.all *= atom->extent;
    }
    meet.bytes =
        meet.all > 1 ? num_scale_up(wire_bytes, meet.all, meet.passes * (meet.all - 1)) : 0;
    return meet;
}

/* Every pair has its own bytes, so that no ranks share the links of a unit. */
static int64_t exchange_ns(const Meet *meet)
{
    int64_t hops = 0, wire = 0;
    for (int i = 0; i < meet->cluster->levels; i++) {
        if (meet->ranks[i] == 1)
            continue;
        hops += (meet->ranks[i] - 1) * meet->cluster->level[i].latency_ns;
        wire = num_larger(wire, wire_ns(&meet->cluster->level[i], meet->wire_bytes, 1));
    }
    return hops + wire;
}

/* One of a unit crosses the slowest level. */
static int64_t rotate_ns(const Meet *meet)
{
    int64_t hop = 0;
    for (int i = 0; i < meet->cluster->levels; i++)
        if (meet->ranks[i] > 1)
            hop = num_larger(hop, price_p2p(meet->cluster, i, meet->wire_bytes));
    return hop;
}

Algorithm collective_algorithm(const Cluster *cluster, const Mesh *mesh, MoveKind kind,
                               const AtomList *atoms, int64_t wire_bytes)
{
    Algorithm algorithm = ALGORITHM_COUNT;
    if (kind > MOVE_ALL_GATHER)
        return algorithm;
    Meet meet = meet_of(cluster, mesh, kind, atoms, wire_bytes);
    fastest_ns(&meet, &algorithm);
    return algorithm;
}

int64_t price_collective(const Cluster *cluster, const Mesh *mesh, MoveKind kind,
                         const AtomList *atoms, int64_t wire_bytes)
{
    Algorithm algorithm;
    Meet meet = meet_of(cluster, mesh, kind, atoms, wire_bytes);
    return kind == MOVE_ROTATE      ? rotate_ns(&meet)
           : kind > MOVE_ALL_GATHER ? exchange_ns(&meet)
                                    : fastest_ns(&meet, &algorithm);
}

static int64_t move_ns(const void *context, const Mesh *mesh, const Move *move, int64_t bytes)
{
    if (move->kind > MOVE_PERMUTE)
        return 0;
    return price_collective(context, mesh, move->kind, &move->atoms, bytes);
}

MovePrice link_price(const Cluster *cluster, const Recipe *recipe)
{
    return (MovePrice){.cost = move_ns,
                       .context = cluster,
                       .cluster = cluster,
                       .element_bytes = dtype_bytes(recipe->activation)};
}
