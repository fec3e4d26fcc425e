/* bench_solve.c - time of the block solver on a 70B-like layer, over one width atom of 8 and over
 * two of 2 x 4. */
#include <stdio.h>
#include <time.h>

#include "tests/ir/lower/solve_world.h"

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void bench(const char *title, const BlockShape *shape, const Mesh *mesh, AtomSet width,
                  AtomSet tokens)
{
    Arena *arena = arena_new("bench");
    Net *net = block_net(arena, shape);
    PlainModel plain = {.net = net,
                        .mesh = mesh,
                        .flops_per_us = 400000000,
                        .bytes_per_us = 3000000,
                        .link_bytes_per_us = 360000,
                        .link_ns = 1000,
                        .element_bytes = 2,
                        .state_bytes = 18};
    plain_model_bind(&plain);
    SolveSetup setup = {.net = net,
                        .graph = net->classes.at[0],
                        .mesh = mesh,
                        .width = width,
                        .tokens = tokens,
                        .model = &plain.model,
                        .micro_batches = 64,
                        .live = 1};
    static const int64_t weights[][2] = {{1, 0}, {10, 1}, {1, 10}, {0, 1}};
    double start = now_ms();
    Solver *solver = solver_new(arena, &setup);
    double built = now_ms();
    SolveStats stats = solver_stats(solver);
    printf("%s: build %.1f ms, %d variables, %d factors\n", title, built - start, stats.variables,
           stats.factors);
    Solution solution;
    for (int i = 0; i < 4; i++) {
        start = now_ms();
        if (!solver_at(solver, weights[i][0], weights[i][1], &solution))
            BUG("no solution");
        built = now_ms();
        stats = solver_stats(solver);
        printf("  weights %2lld:%-2lld %6.2f ms, %lld rows, width %d\n", (long long)weights[i][0],
               (long long)weights[i][1], built - start, (long long)stats.rows, stats.width);
    }
    Solution hull[32];
    start = now_ms();
    int n = solver_hull(solver, hull, 32);
    built = now_ms();
    printf("  hull of %d corners %.1f ms\n", n, built - start);
    start = now_ms();
    if (!solver_within(solver, (hull[0].bytes + 4 * hull[n - 1].bytes) / 5, &solution))
        BUG("no solution within the budget");
    built = now_ms();
    stats = solver_stats(solver);
    printf("  exact within a budget %.1f ms, %lld rows, %lld labels\n", built - start,
           (long long)stats.rows, (long long)stats.labels);
    arena_free(arena);
}

int main(void)
{
    BlockShape shape = {1, 8192, 8192, 8, 8, 128, 28672, false, false, false};
    Mesh one = mesh_of(1, (int[]){8}, (Role[]){ROLE_TP});
    bench("one atom", &shape, &one, 1, 0);
    shape.parallel = true;
    bench("one atom, parallel residual", &shape, &one, 1, 0);
    Mesh three = mesh_of(3, (int[]){4, 2, 2}, (Role[]){ROLE_TP, ROLE_TP, ROLE_DP});
    shape = (BlockShape){2, 8192, 8192, 2, 32, 128, 28672, false, false, false};
    bench("two atoms and tokens", &shape, &three, 3, 4);
    return 0;
}
