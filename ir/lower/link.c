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

int64_t price_collective(const Cluster *cluster, const Mesh *mesh, MoveKind kind,
                         const AtomList *atoms, int64_t wire_bytes)
{
    int64_t ranks[MAX_LEVELS];
    for (int i = 0; i < cluster->levels; i++)
        ranks[i] = 1;
    for (int i = 0; i < atoms->n; i++) {
        const Atom *atom = &mesh->atom[atoms->at[i]];
        ranks[atom->level < cluster->levels ? atom->level : cluster->levels - 1] *= atom->extent;
    }
    int64_t inside = 1, ring = 0, tree = 0, wire = 0, hop = 0;
    for (int i = 0; i < cluster->levels; i++) {
        if (ranks[i] == 1)
            continue;
        const LinkLevel *link = &cluster->level[i];
        ring += (ranks[i] - 1) * link->latency_ns;
        tree += log2_up(ranks[i]) * link->latency_ns;
        hop = num_larger(hop, price_p2p(cluster, i, wire_bytes)); /* one of a unit crosses it */
        /* in an exchange every pair has its own bytes, so only rings share the links of a unit */
        bool shared = kind != MOVE_ALL_TO_ALL && kind != MOVE_PERMUTE;
        wire = num_larger(wire, wire_ns(link, wire_bytes, shared ? inside : 1));
        inside *= ranks[i];
    }
    if (kind == MOVE_ROTATE)
        return hop;
    if (kind == MOVE_ALL_TO_ALL || kind == MOVE_PERMUTE)
        return ring + wire;
    /* a tree's pipeline fills less well: nine tenths of a ring's bandwidth, of half a tree (a
     * gather or a scatter) three quarters */
    int passes = kind == MOVE_ALL_REDUCE ? 2 : 1;
    int64_t as_ring = passes * ring + wire;
    int64_t as_tree = passes * tree + wire + wire / (passes == 2 ? 9 : 3);
    return as_ring < as_tree ? as_ring : as_tree;
}

static int64_t move_ns(const void *context, const Mesh *mesh, const Move *move, int64_t bytes)
{
    if (move->kind > MOVE_PERMUTE)
        return 0;
    return price_collective(context, mesh, move->kind, &move->atoms, bytes);
}

MovePrice link_price(const Cluster *cluster, const Recipe *recipe)
{
    return (MovePrice){
        .cost = move_ns, .context = cluster, .element_bytes = dtype_bytes(recipe->activation)};
}
