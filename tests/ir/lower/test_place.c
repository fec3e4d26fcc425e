/* test_place.c - placements and moves: every path of random pairs is executed on all ranks and
 * compared. */
#include "tests/check.h"

#include <math.h>
#include <string.h>

#include "ir/lower/place.h"
#include "tests/ir/lower/ranks.h"

typedef struct World {
    Arena *arena;
    Net net;
    Mesh mesh;
    Value value;
} World;

static World world_new(const int64_t *extent, int axes, const int *atom, int atoms)
{
    static const char *const dim_name[] = {"i", "j", "k", "l"};
    World world = {.arena = arena_new("test")};
    world.net.arena = world.arena;
    for (int i = 0; i < axes; i++) {
        Dim dim = {dim_name[i], dim_name[i][0], DIM_OTHER, extent[i], extent[i], 0, 0};
        vec_push(world.arena, &world.net.dims) = dim;
        world.value.dim[i] = (DimId)i;
    }
    world.value.axes = axes;
    world.value.name = "x";
    world.mesh.n = atoms;
    for (int a = 0; a < atoms; a++)
        world.mesh.atom[a] = (Atom){atom[a], ROLE_TP, 0};
    return world;
}

/* A placement from random draws: each atom, in random order, is Replicate, on an axis, or Partial.
 */
static Placement place_random(const World *world, Rng *rng, bool partial)
{
    Placement place = place_replicate();
    int order[MAX_ATOMS], n = world->mesh.n;
    for (int a = 0; a < n; a++)
        order[a] = a;
    for (int a = n - 1; a > 0; a--) {
        int b = (int)rng_draw(rng, (uint64_t)a + 1), keep = order[a];
        order[a] = order[b];
        order[b] = keep;
    }
    for (int i = 0; i < n; i++) {
        int draw = (int)rng_draw(rng, (uint64_t)(world->value.axes + 1 + partial));
        if (draw < world->value.axes) {
            AtomList *list = &place.shard[draw];
            if (list->n < MAX_PER_AXIS)
                list->at[list->n++] = (int8_t)order[i];
        } else if (draw > world->value.axes) {
            place.partial = (AtomSet)(place.partial | 1u << order[i]);
            place.monoid = MONOID_SUM;
        }
    }
    return place;
}

/* A path says where the value is after each of its moves. */
static void error_of_step(Arena *arena, const World *world, const Ranks *at, const Placement *place,
                          const Tensor *whole)
{
    assert_true(ranks_error(arena, &world->mesh, at, place, whole) < 1e-12);
}

static void run_pairs(const int64_t *extent, int axes, const int *atom, int atoms, int pairs,
                      uint64_t seed)
{
    World world = world_new(extent, axes, atom, atoms);
    MovePrice price = path_plain_price(8);
    PathTable *table = path_table_new(world.arena, &world.mesh, &world.net, &price);
    Rng rng = {seed, 0};
    int done = 0;
    while (done < pairs) {
        Placement from = place_random(&world, &rng, true), to = place_random(&world, &rng, true);
        if (!place_fits(&world.mesh, &world.net, &world.value, &from) ||
            !place_fits(&world.mesh, &world.net, &world.value, &to))
            continue;
        Arena *arena = arena_new("pair");
        Tensor whole = tensor_random(arena, &world.net, &world.value, &rng);
        Ranks at = ranks_scatter(arena, &world.mesh, &whole, &from, &rng);
        Path path;
        assert_true(path_find(table, &world.value, &from, &to, &path));
        int64_t cost = 0;
        for (int i = 0; i < path.n; i++) {
            int64_t bytes = wire_bytes(&world.mesh, &path.move[i], tensor_elements(&at.at[0]), 8);
            at = ranks_move(arena, &world.mesh, &at, &path.move[i]);
            cost += path.move[i].kind >= MOVE_SLICE ? 0 : 1 + 1000 * bytes;
            error_of_step(arena, &world, &at, &path.after[i], &whole);
        }
        assert_int_equal(cost, path.cost);
        double error = ranks_error(arena, &world.mesh, &at, &to, &whole);
        if (!(error < 1e-12))
            fail_msg("pair %d: error %g after %d moves", done, error, path.n);
        arena_free(arena);
        done++;
    }
    arena_free(world.arena);
}

static void test_pairs(void **state)
{
    (void)state;
    run_pairs((int64_t[]){8, 8, 8}, 3, (int[]){2, 2, 2}, 3, 1500, 1);
    run_pairs((int64_t[]){12, 18, 6}, 3, (int[]){2, 3}, 2, 400, 2);
    run_pairs((int64_t[]){16, 16}, 2, (int[]){2, 2, 2, 2}, 4, 100, 3);
}

/* A value that is Partial under max has no free view, and reduces. */
static void test_max(void **state)
{
    (void)state;
    World world = world_new((int64_t[]){8, 4}, 2, (int[]){2, 2}, 2);
    MovePrice price = path_plain_price(8);
    PathTable *table = path_table_new(world.arena, &world.mesh, &world.net, &price);
    Rng rng = {7, 0};
    Placement from = place_replicate(), to = place_replicate();
    Path path;
    from.partial = 3;
    from.monoid = MONOID_MAX;
    to.shard[0] = (AtomList){2, {1, 0}};
    assert_true(path_find(table, &world.value, &from, &to, &path));
    assert_int_equal(path.n, 1);
    assert_int_equal(path.move[0].kind, MOVE_REDUCE_SCATTER);
    Tensor whole = tensor_random(world.arena, &world.net, &world.value, &rng);
    Ranks at = ranks_scatter(world.arena, &world.mesh, &whole, &from, &rng);
    at = ranks_move(world.arena, &world.mesh, &at, &path.move[0]);
    assert_true(ranks_error(world.arena, &world.mesh, &at, &to, &whole) == 0);
    assert_false(path_find(table, &world.value, &to, &from, &path));
    assert_false(place_is_view(&to, &from));
    arena_free(world.arena);
}

/* A view is exactly what a path of cost zero reaches. */
static void test_views(void **state)
{
    (void)state;
    World world = world_new((int64_t[]){8, 8}, 2, (int[]){2, 2, 2}, 3);
    MovePrice price = path_plain_price(8);
    PathTable *table = path_table_new(world.arena, &world.mesh, &world.net, &price);
    Rng rng = {11, 0};
    int views = 0;
    for (int i = 0; i < 4000; i++) {
        Placement have = place_random(&world, &rng, true), want = place_random(&world, &rng, true);
        Path path;
        assert_true(path_find(table, &world.value, &have, &want, &path));
        assert_int_equal(place_is_view(&have, &want), path.cost == 0);
        views += path.cost == 0;
    }
    assert_true(views > 100);
    arena_free(world.arena);
}

/* own: coordinate 0 keeps the value, the others zeros. pad: everyone keeps their block among zeros.
 */
static void test_own_pad(void **state)
{
    (void)state;
    World world = world_new((int64_t[]){4}, 1, (int[]){2}, 1);
    MovePrice price = path_plain_price(8);
    PathTable *table = path_table_new(world.arena, &world.mesh, &world.net, &price);
    Rng rng = {17, 0};
    Placement whole = place_replicate(), shard = whole, partial = whole;
    shard.shard[0] = (AtomList){1, {0}};
    partial.partial = 1;
    partial.monoid = MONOID_SUM;
    Tensor x = tensor_random(world.arena, &world.net, &world.value, &rng);
    for (int pad = 0; pad < 2; pad++) {
        const Placement *from = pad ? &shard : &whole;
        Path path;
        assert_true(path_find(table, &world.value, from, &partial, &path));
        assert_int_equal(path.n, 1);
        assert_int_equal(path.cost, 0);
        assert_int_equal(path.move[0].kind, pad ? MOVE_PAD : MOVE_OWN);
        Ranks at = ranks_scatter(world.arena, &world.mesh, &x, from, &rng);
        at = ranks_move(world.arena, &world.mesh, &at, &path.move[0]);
        for (int r = 0; r < 2; r++)
            for (int i = 0; i < 4; i++)
                assert_true(at.at[r].at[i] == (r == (pad ? i / 2 : 0) ? x.at[i] : 0));
        /* and back: one reduction, that counts every element once */
        assert_true(path_find(table, &world.value, &partial, &whole, &path));
        assert_int_equal(path.n, 1);
        at = ranks_move(world.arena, &world.mesh, &at, &path.move[0]);
        assert_true(ranks_error(world.arena, &world.mesh, &at, &whole, &x) == 0);
    }
    arena_free(world.arena);
}

static void test_text(void **state)
{
    (void)state;
    World world = world_new((int64_t[]){8, 8}, 2, (int[]){2, 2, 2}, 3);
    Rng rng = {13, 0};
    world.value.axes = 3; /* the first dim twice */
    world.value.dim[2] = 0;
    for (int i = 0; i < 500; i++) {
        Placement place = place_random(&world, &rng, true), back;
        Str str = str_new(world.arena);
        place_put(&str, &world.net, &world.value, &place);
        assert_true(place_parse(&world.net, &world.value, str.at, &back));
        assert_true(place_equal(&place, &back));
    }
    Placement place = place_replicate();
    place.shard[1] = (AtomList){2, {2, 0}};
    place.partial = 2;
    place.monoid = MONOID_MAX;
    Str str = str_new(world.arena);
    place_put(&str, &world.net, &world.value, &place);
    assert_string_equal(str.at, "{j:a2.a0 max(a1)}");
    static const char *const bad[] = {
        "",          "{",          "{}x",         "{i}",     "{i:}",
        "{i:a0.a0}", "{i:a0,a1}",  "{i:a9}",      "{x:a0}",  "{i:a0 }",
        "{ i:a0}",   "{none(a0)}", "{i:a0 i:a1}", "{sum()}", "{sum(a0) sum(a1)}",
        "{i:a0j:a1}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (place_parse(&world.net, &world.value, bad[i], &place))
            fail_msg("parsed %s", bad[i]);
    arena_free(world.arena);
}

static void test_mesh(void **state)
{
    (void)state;
    World world = world_new((int64_t[]){8, 8}, 2, (int[]){2, 3, 2}, 3);
    AtomList list = {2, {2, 0}};
    int ranks[4];
    assert_int_equal(mesh_ranks(&world.mesh), 12);
    assert_int_equal(mesh_coordinate(&world.mesh, 11, 1), 2);
    for (int rank = 0; rank < 12; rank++) {
        assert_int_equal(mesh_group(&world.mesh, &list, rank, ranks, 4), 4);
        assert_int_equal(ranks[list_index(&world.mesh, &list, rank)], rank);
        for (int i = 0; i < 4; i++)
            assert_int_equal(list_index(&world.mesh, &list, ranks[i]), i);
    }
    arena_free(world.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mesh),  cmocka_unit_test(test_text), cmocka_unit_test(test_views),
        cmocka_unit_test(test_pairs), cmocka_unit_test(test_max),  cmocka_unit_test(test_own_pad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
