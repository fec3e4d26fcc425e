/* stage.h - how an emitted trainer finds its values and steps its weights.
 *
 * An address is a base and an offset. Bases are the arena, its scratch area, and the slots that one
 * micro-batch has in the rings of its chunk; offsets are numbers that the compiler chose. Gradients
 * that take one path to their optimizer lie side by side as a group, and move in buckets. */
#ifndef LP_STAGE_H
#define LP_STAGE_H

#include <stdbool.h>

#include "templates/host/flat.h"
#include "templates/host/real.h"

typedef enum LpBase {
    LP_AT_ARENA,
    LP_AT_SCRATCH,
    LP_AT_SCRATCH_BACK, /* of backward, where it runs beside a forward */
    LP_AT_DATA,
    LP_AT_SAVED,
    LP_AT_IN,
    LP_AT_OUT,
    LP_AT_GRAD_IN,
    LP_AT_GRAD_OUT,
    LP_AT_SAVED_W,  /* of a backward in two parts: forward makes it, W reads it, */
    LP_AT_SAVED_IW, /* I makes it, W reads it */
    LP_AT_STAYS,    /* what some layers keep in the arena, where others do not */
    LP_AT_STAYS_W,
    LP_AT_COUNT
} LpBase;

typedef struct LpSlots {
    unsigned char *base[LP_AT_COUNT];
} LpSlots;

typedef struct LpWhere {
    LpBase base;
    int64_t offset;
} LpWhere;

static LP_MAYBE_UNUSED void *lp_place_after(const LpSlots *at, LpWhere where, int64_t offset)
{
    return at->base[where.base] + where.offset + offset;
}

static LP_MAYBE_UNUSED void *lp_place(const LpSlots *at, LpWhere where)
{
    return lp_place_after(at, where, 0);
}

static LP_MAYBE_UNUSED void *lp_scratch(const LpSlots *at, int64_t offset)
{
    return at->base[LP_AT_SCRATCH] + offset;
}

static LP_MAYBE_UNUSED void *lp_scratch_back(const LpSlots *at, int64_t offset)
{
    return at->base[LP_AT_SCRATCH_BACK] + offset;
}

/* Elements [begin, end) of a group, all with or all without weight decay. */
typedef struct LpRun {
    int64_t begin, end;
    bool decay;
} LpRun;

/* How a home is cut: by which list, into how many blocks; ranks 0: every rank holds it whole. */
typedef struct LpCut {
    int list, ranks;
} LpCut;

typedef struct LpGroup {
    int64_t weight, gradient, moment1, moment2; /* addresses */
    int64_t master; /* fp32 weights of the optimizer's share, where weights are stored in 16 bits */
    int share;      /* list that cuts the optimizer's share */
    int owner;      /* list at whose coordinate 0 an element counts for the norm */
    int state_home; /* where groups differ in it, that of its moments and masters: 0 the arena, 1
                       the host's memory, 2 a file */
    bool far;       /* the home of its weights is in another memory than the arena */
    bool far_gradients; /* that of its gradients is in another memory than the arena */
    bool home;          /* in the first home stage of tied parameters */
    const LpRun *runs;
    int run_count;
    int matrix; /* not 0: whole matrices of this kind, each of `unit` elements; no second moment */
    int64_t unit;
    float rate; /* not 0: a step against the sign of the gradient, in place of AdamW */
    LpCut weight_cut, gradient_cut; /* of the homes */
    int weight_owner;               /* as `owner`, of weights */
    bool buffered; /* every micro-batch's gradients pass through a buffer on their way home */
} LpGroup;

typedef struct LpBucket {
    int group;
    int close_link;          /* complete once backward of this link is done */
    int64_t begin, elements; /* of the group */
    int64_t share_begin;     /* of the group's moments, which hold this rank's share only */
    int64_t share_elements;
    int64_t filled;  /* elements, of whole matrices: without the padding behind them */
    int open_link;   /* the highest link that uses it */
    int64_t fetch;   /* address of its weights for a use, where their home is cut */
    int64_t between; /* of weights in a file: this rank's block in the host's memory, and how */
    int64_t weight_shift; /* many elements behind its place it begins at home, at a grain */
    int64_t buffer;       /* address of its accumulators, where they are buffered */
    int64_t sums[3];     /* far gradients: this rank's block in the arena while layers add to it, in
                            the host's memory, in a file */
    int gaps, gap_count; /* of padding in the buffer that is to be cleared */
} LpBucket;

/* Saved values of a link that live in another memory: where they are in the arena and in the
 * host's memory on their way, in a slot of their home; 0 bytes: none. */
typedef struct LpSpill {
    int64_t near[2], away, bytes;
} LpSpill;

/* Elements of a group that lie between its blocks. */
typedef struct LpGap {
    int64_t begin, elements;
} LpGap;

/* First element of this rank's share of a bucket, in its group. index: of this rank, by list. */
static LP_MAYBE_UNUSED int64_t lp_bucket_share(const int *index, const LpGroup *groups,
                                               const LpBucket *bucket)
{
    return bucket->begin + bucket->share_elements * index[groups[bucket->group].share];
}

static LP_MAYBE_UNUSED void lp_sign_step(int64_t n, float rate, float *w, const float *g)
{
    for (int64_t i = 0; i < n; i++)
        w[i] -= g[i] > 0.0f ? rate : g[i] < 0.0f ? -rate : 0.0f;
}

/* This rank's block of a bucket in a home: its first element, and how many. */
static LP_MAYBE_UNUSED int64_t lp_block_count(const LpBucket *bucket, LpCut cut)
{
    return bucket->elements / (cut.ranks ? cut.ranks : 1);
}

static LP_MAYBE_UNUSED int64_t lp_block_begin(const int *index, const LpBucket *bucket, LpCut cut)
{
    return bucket->begin + (cut.ranks ? lp_block_count(bucket, cut) * index[cut.list] : 0);
}

/* How many elements of a home precede element `at` of its group; the bucket holds it, and this
 * rank's block. */
static LP_MAYBE_UNUSED int64_t lp_home_before(const int *index, const LpBucket *bucket, LpCut cut,
                                              int64_t at)
{
    const int64_t before = bucket->begin / (cut.ranks ? cut.ranks : 1);
    return before + at - lp_block_begin(index, bucket, cut);
}

/* Element `at` of a group in an fp32 home at `address`. */
static LP_MAYBE_UNUSED float *lp_home(unsigned char *arena, int64_t address, const int *index,
                                      const LpBucket *bucket, LpCut cut, int64_t at)
{
    return (float *)(arena + address) + lp_home_before(index, bucket, cut, at);
}

/* The same of its gradients: at home, or of far ones at their place in the arena. */
static LP_MAYBE_UNUSED float *lp_gradient(unsigned char *arena, const int *index,
                                          const LpGroup *group, const LpBucket *bucket, int64_t at)
{
    const LpCut cut = group->gradient_cut;
    if (group->far_gradients)
        return (float *)(arena + bucket->sums[0]) + (at - lp_block_begin(index, bucket, cut));
    return lp_home(arena, group->gradient, index, bucket, cut, at);
}

/* The same of its weights. */
static LP_MAYBE_UNUSED LpReal *lp_home_weight(unsigned char *arena, const int *index,
                                              const LpGroup *group, const LpBucket *bucket,
                                              int64_t at)
{
    return (LpReal *)(arena + group->weight) + bucket->weight_shift +
           lp_home_before(index, bucket, group->weight_cut, at);
}

/* The weights that products read, from those that the optimizer steps. */
static LP_MAYBE_UNUSED void lp_publish_cut(unsigned char *arena, const int *index,
                                           const LpGroup *group, const LpBucket *bucket,
                                           int64_t begin)
{
    if (LP_REAL_NARROW)
        lp_real_store(bucket->share_elements, lp_home_weight(arena, index, group, bucket, begin),
                      (const float *)(arena + group->master) + bucket->share_begin);
}

/* AdamW on the share of a bucket that begins at element `begin` of its group; all arrays begin
 * there. adam.decay is that of the runs that decay. */
static LP_MAYBE_UNUSED void lp_update_range(const LpGroup *group, const LpBucket *bucket,
                                            int64_t begin, LpAdam adam, float *w, float *m,
                                            float *v, const float *g)
{
    const int64_t end = begin + bucket->share_elements;
    const float decay = adam.decay;
    if (group->rate != 0.0f)
        lp_sign_step(bucket->share_elements, group->rate, w, g);
    for (int i = 0; group->rate == 0.0f && i < group->run_count; i++) {
        const LpRun *run = &group->runs[i];
        const int64_t from = (run->begin > begin ? run->begin : begin) - begin;
        const int64_t to = (run->end < end ? run->end : end) - begin;
        adam.decay = run->decay ? decay : 0.0f;
        if (from < to)
            lp_adamw(to - from, adam, w + from, m + from, v + from, g + from);
    }
}

/* The same on homes that may be cut: the share's gradients to its weights, and to those that
 * products read. */
static LP_MAYBE_UNUSED void lp_update_cut(unsigned char *arena, const int *index,
                                          const LpGroup *group, const LpBucket *bucket,
                                          int64_t begin, LpAdam adam)
{
    unsigned char *stepped =
        LP_REAL_NARROW ? arena + group->master + bucket->share_begin * 4
                       : (unsigned char *)lp_home_weight(arena, index, group, bucket, begin);
    lp_update_range(group, bucket, begin, adam, (float *)stepped,
                    (float *)(arena + group->moment1) + bucket->share_begin,
                    (float *)(arena + group->moment2) + bucket->share_begin,
                    lp_gradient(arena, index, group, bucket, begin));
    lp_publish_cut(arena, index, group, bucket, begin);
}

/* Where every rank holds weights and gradients whole, its place among them does not matter. */
static LP_MAYBE_UNUSED void lp_publish_share(unsigned char *arena, const LpGroup *group,
                                             const LpBucket *bucket, int64_t begin)
{
    lp_publish_cut(arena, NULL, group, bucket, begin);
}

static LP_MAYBE_UNUSED void lp_update_share(unsigned char *arena, const LpGroup *group,
                                            const LpBucket *bucket, int64_t begin, LpAdam adam)
{
    lp_update_cut(arena, NULL, group, bucket, begin, adam);
}

/* Weights have versions, which lie so many bytes behind their first slot: this rank's share of a
 * bucket is carried from one to the next, where the update then steps it. The group as the update
 * knows it. */
static LP_MAYBE_UNUSED LpGroup lp_next_version(unsigned char *arena, const int *index,
                                               const LpGroup *group, const LpBucket *bucket,
                                               int64_t begin, int64_t older, int64_t newer)
{
    LpGroup next = *group;
    next.weight += newer;
    if (older != newer)
        memcpy(lp_home_weight(arena + newer, index, group, bucket, begin),
               lp_home_weight(arena + older, index, group, bucket, begin),
               (size_t)bucket->share_elements * sizeof(LpReal));
    return next;
}

#define LP_BLOCK_DIMS 6

/* The block of a tensor that the ranks of a stage hold. */
typedef struct LpBlock {
    int tensor, group;
    int64_t weight, gradient; /* addresses */
    int ndims;
    int64_t dims[LP_BLOCK_DIMS], extent[LP_BLOCK_DIMS];
    int list[LP_BLOCK_DIMS]; /* by which list each dim is cut */
    int owner;               /* list at whose coordinate 0 a rank writes it to files */
    bool home;
    int64_t offset; /* of the group, in elements */
} LpBlock;

static LP_MAYBE_UNUSED int64_t lp_block_elements(const LpBlock *block)
{
    int64_t count = 1;
    for (int a = 0; a < block->ndims; a++)
        count *= block->extent[a];
    return count;
}

static LP_MAYBE_UNUSED size_t lp_larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Threads that a parallel region would have. */
static LP_MAYBE_UNUSED int lp_thread_limit(void)
{
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

#endif
