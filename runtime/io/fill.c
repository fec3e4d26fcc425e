/* fill.c - initial values as a function of (seed, tensor, global element), whatever the shard.
 *
 * Block k of a tensor's stream gives elements 4k..4k+3: Philox, then two Box-Muller pairs in
 * double. */
#include "runtime/core/bf16.h"
#include "runtime/core/self.h"
#include "runtime/io/philox.h"
#include "runtime/io/shard.h"

#include <math.h>
#include <string.h>

static void normal_block(uint64_t seed, int tensor, int64_t block, double ret[4])
{
    const double turn = 2 * acos(-1.0), unit = 1.0 / 4294967296.0;
    uint32_t bits[4];
    lp_philox(seed, (uint32_t)tensor, LP_STREAM_INIT, (uint64_t)block, bits);
    for (int i = 0; i < 4; i += 2) {
        double radius = sqrt(-2 * log((bits[i] + 0.5) * unit));
        double angle = turn * ((bits[i + 1] + 0.5) * unit);
        ret[i] = radius * cos(angle);
        ret[i + 1] = radius * sin(angle);
    }
}

/* Blocks are independent: threads change nothing but the time. */
static void normal_run(void *data, LpDtype dtype, const LpRuns *run, double std, uint64_t seed,
                       int tensor)
{
    int64_t first = run->global / 4, last = (run->global + run->length - 1) / 4;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) if (last - first > 4096)
#endif
    for (int64_t block = first; block <= last; block++) {
        double values[4];
        normal_block(seed, tensor, block, values);
        for (int i = 0; i < 4; i++) {
            int64_t at = 4 * block + i - run->global;
            if (at >= 0 && at < run->length)
                lp_number_put(data, dtype, run->local + at, std * values[i]);
        }
    }
}

void lp_fill_shard(void *data, LpDtype dtype, const LpShard *shard, LpFill fill, double std,
                   uint64_t seed, int tensor)
{
    memset(data, 0, (size_t)(lp_shard_count(shard) * lp_dtype_bytes(dtype)));
    if (fill == LP_ZEROS)
        return;
    LpRuns runs = lp_runs_begin(shard);
    while (lp_runs_next(&runs)) {
        if (fill == LP_NORMAL)
            normal_run(data, dtype, &runs, std, seed, tensor);
        else
            for (int64_t i = 0; i < runs.length; i++)
                lp_number_put(data, dtype, runs.local + i, 1);
    }
}
