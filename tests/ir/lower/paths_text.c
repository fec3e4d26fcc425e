/* paths_text.c - prints cost, bytes and moves of paths asked for on standard input: one side of a
 * comparison.
 *
 * First line: axes, their extents, atoms, their extents. Then two placements a line, each as axes+1
 * words: the atoms of each axis, major to minor ("01", "-" for none), then those of sum. */
#include <stdio.h>
#include <string.h>

#include "ir/lower/place.h"

static bool read_place(int axes, Placement *ret)
{
    *ret = place_replicate();
    for (int i = 0; i <= axes; i++) {
        char word[16];
        if (scanf("%15s", word) != 1)
            return false;
        for (const char *c = word; *c != '\0' && *c != '-'; c++) {
            int atom = *c - '0';
            if (i == axes) {
                ret->partial = (AtomSet)(ret->partial | 1u << atom);
                ret->monoid = MONOID_SUM;
            } else {
                ret->shard[i].at[ret->shard[i].n++] = (int8_t)atom;
            }
        }
    }
    return true;
}

int main(void)
{
    Arena *arena = arena_new("paths");
    Net net = {.arena = arena};
    Value value = {.name = "x"};
    Mesh mesh = {0};
    if (scanf("%d", &value.axes) != 1 || value.axes > MAX_AXES)
        return 2;
    for (int i = 0; i < value.axes; i++) {
        Dim dim = {.name = "i", .letter = 'i', .kind = DIM_OTHER};
        long long extent;
        if (scanf("%lld", &extent) != 1)
            return 2;
        dim.extent = dim.used = extent;
        vec_push(arena, &net.dims) = dim;
        value.dim[i] = (DimId)i;
    }
    if (scanf("%d", &mesh.n) != 1 || mesh.n > MAX_ATOMS)
        return 2;
    for (int a = 0; a < mesh.n; a++)
        if (scanf("%d", &mesh.atom[a].extent) != 1)
            return 2;
    MovePrice price = path_plain_price(8);
    PathTable *table = path_table_new(arena, &mesh, &net, &price);
    Placement from, to;
    while (read_place(value.axes, &from) && read_place(value.axes, &to)) {
        Path path;
        if (!path_find(table, &value, &from, &to, &path)) {
            printf("none\n");
            continue;
        }
        int64_t bytes = 0;
        const Placement *at = &from;
        for (int i = 0; i < path.n; i++) {
            bytes += wire_bytes(&mesh, &path.move[i], place_elements(&mesh, &net, &value, at), 8);
            at = &path.after[i];
        }
        printf("%lld %lld", (long long)path.cost, (long long)bytes);
        for (int i = 0; i < path.n; i++)
            printf(" %s", move_text[path.move[i].kind]);
        printf("\n");
    }
    arena_free(arena);
    return 0;
}
