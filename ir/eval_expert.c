/* eval_expert.c - the meaning of routing and of expert layers. */
#include <math.h>
#include <string.h>

#include "ir/eval_walk.h"

void eval_softmax(const Eval *e)
{
    int l = eval_last_letter(e, 0);
    WALK(w, e, (uint16_t)(e->set[0] & ~(1u << l)))
    {
        const double *x = e->in[0] + w.offset[0];
        double *y = eval_out(e, &w, 0), max = -INFINITY, sum = 0;
        for (int64_t i = 0; i < e->extent[l]; i++)
            max = eval_larger(max, x[i * e->stride[0][l]]);
        for (int64_t i = 0; i < e->extent[l]; i++)
            sum += y[i * e->stride[MAX_IN][l]] = exp(x[i * e->stride[0][l]] - max);
        for (int64_t i = 0; i < e->extent[l]; i++)
            y[i * e->stride[MAX_IN][l]] /= sum;
    }
}

/* Inputs y and dy: dx = y (dy - sum y dy). */
void eval_softmax_grad(const Eval *e)
{
    int l = eval_last_letter(e, 0);
    WALK(w, e, (uint16_t)(e->set[0] & ~(1u << l)))
    {
        const double *y = e->in[0] + w.offset[0], *dy = e->in[1] + w.offset[1];
        double *dx = eval_out(e, &w, 0), along = 0;
        for (int64_t i = 0; i < e->extent[l]; i++)
            along += y[i * e->stride[0][l]] * dy[i * e->stride[1][l]];
        for (int64_t i = 0; i < e->extent[l]; i++)
            dx[i * e->stride[MAX_IN][l]] =
                y[i * e->stride[0][l]] * (dy[i * e->stride[1][l]] - along);
    }
}

/* ---- choosing ---- */

static double group_worth(GroupScore by, const double *x, int64_t n, int64_t stride)
{
    double best = -INFINITY, second = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        double score = x[i * stride];
        if (score > best) {
            second = best;
            best = score;
        } else if (score > second) {
            second = score;
        }
    }
    return by == GROUP_MAX ? best : n > 1 ? best + second : best;
}

/* The largest of the `n` scores that are not taken yet, the first among equals. */
static int64_t largest(const double *score, const bool *taken, int64_t n)
{
    int64_t best = NONE;
    for (int64_t i = 0; i < n; i++) {
        if (!taken[i] && (best == NONE || score[i] > score[best]))
            best = i;
    }
    return best;
}

static void choose(const Eval *e, const double *x, int64_t in_stride, double *y, int64_t out_stride,
                   int64_t experts, int64_t k)
{
    const Attr_topk *attrs = &e->node->attrs.topk;
    int64_t groups = attrs->groups > 0 ? attrs->groups : 1, each = experts / groups;
    Arena *scratch = arena_new("choices");
    double *worth = ARENA_ARRAY(scratch, double, groups),
           *score = ARENA_ARRAY(scratch, double, experts);
    bool *kept = ARENA_ARRAY(scratch, bool, groups), *taken = ARENA_ARRAY(scratch, bool, experts);
    bool poisoned = false;
    for (int64_t i = 0; i < experts; i++) {
        score[i] = x[i * in_stride];
        poisoned = poisoned || isnan(score[i]);
    }
    for (int64_t g = 0; g < groups; g++)
        worth[g] = group_worth(attrs->by, score + g * each, each, 1);
    for (int64_t g = 0; g < (attrs->groups > 0 ? attrs->kept : 1); g++)
        kept[largest(worth, kept, groups)] = true;
    for (int64_t i = 0; i < experts; i++)
        taken[i] = !kept[i / each];
    for (int64_t i = 0; i < k; i++) {
        int64_t best = largest(score, taken, experts);
        taken[best] = true;
        y[i * out_stride] = poisoned ? NAN : (double)best;
    }
    arena_free(scratch);
}

void eval_topk(const Eval *e)
{
    int l = eval_last_letter(e, 0), k = 0;
    while (!(e->set[MAX_IN] >> k & 1) || (e->set[0] >> k & 1))
        k++;
    WALK(w, e, (uint16_t)(e->set[0] & ~(1u << l)))
    choose(e, e->in[0] + w.offset[0], e->stride[0][l], eval_out(e, &w, 0), e->stride[MAX_IN][k],
           e->extent[l], e->extent[k]);
}

/* Per sequence and expert the first `bound` choices stay: first choices of all tokens before second
 * ones, then by position (Switch, GShard). The others become no expert, -1. */
void eval_capacity(const Eval *e)
{
    const Attr_capacity *attrs = &e->node->attrs.capacity;
    const int8_t *letter = e->node->sig.in[0];
    int b = letter[0], s = letter[1], k = letter[2];
    Arena *scratch = arena_new("capacity");
    int64_t *used = ARENA_ARRAY(scratch, int64_t, attrs->experts);
    for (int64_t row = 0; row < e->extent[b]; row++) {
        memset(used, 0, (size_t)attrs->experts * sizeof *used);
        for (int64_t choice = 0; choice < e->extent[k]; choice++) {
            for (int64_t token = 0; token < e->extent[s]; token++) {
                int64_t at = row * e->stride[0][b] + token * e->stride[0][s] + choice;
                double id = e->in[0][at];
                bool stays = !(id >= 0) || used[(int64_t)id]++ < attrs->bound;
                e->out[0][at] = stays ? id : -1;
            }
        }
    }
    arena_free(scratch);
}

/* The choices of this round: a rank's share of them in turn, those that are left in the last. */
void eval_deal(const Eval *e)
{
    const Attr_deal *attrs = &e->node->attrs.deal;
    int64_t rows = 1, named = attrs->experts / attrs->ranks;
    for (int l = 0; l < e->node->sig.letters; l++)
        rows *= e->extent[l];
    int64_t bound = deal_bound(attrs, rows);
    Arena *scratch = arena_new("deal");
    int64_t *seen = ARENA_ARRAY(scratch, int64_t, attrs->ranks);
    for (int64_t i = 0; i < rows; i++) {
        double id = e->in[0][i];
        int64_t round = attrs->round;
        if (id >= 0)
            round = seen[(int64_t)id / named]++ / bound;
        if (round >= attrs->rounds)
            round = attrs->rounds - 1;
        e->out[0][i] = round == attrs->round ? id : -1;
    }
    arena_free(scratch);
}

/* Choice, share, drawn word: the first choice stays, a later one with twice its part of the share
 * that both have together, which is at most 1 (Lepikhin et al. 2020, GShard). Nothing is drawn in
 * evaluations: all stay. */
void eval_chance(const Eval *e)
{
    int k = eval_last_letter(e, 0);
    WALK(w, e, (uint16_t)(e->set[0] & ~(1u << k)))
    {
        const double *choice = e->in[0] + w.offset[0], *share = e->in[1] + w.offset[1];
        double *out = eval_out(e, &w, 0), word = e->draw->off ? 0 : eval_in(e, &w, 2);
        for (int64_t c = 0; c < e->extent[k]; c++) {
            double own = share[c * e->stride[1][k]], both = share[0] + own;
            bool stays = c == 0 || 2 * own > ldexp(word, -31) * both;
            out[c * e->stride[MAX_IN][k]] = isnan(both + word) ? NAN
                                            : stays            ? choice[c * e->stride[0][k]]
                                                               : -1;
        }
    }
}

void eval_tally(const Eval *e)
{
    int l = eval_only_letter(e->node->sig.base);
    eval_clear_outputs(e);
    WALK(w, e, e->set[0])
    {
        int64_t row = eval_local_row(e, &w, l);
        double *count = eval_out(e, &w, 0);
        if (row != NONE)
            count[row * e->stride[MAX_IN][l]] += 1;
        else
            *count += eval_id_poison(e, &w);
    }
}

/* A choice among experts that no block cuts: no origin is told. */
static int64_t whole_row(const Eval *e, const EvalWalk *w, int l)
{
    double id = eval_in(e, w, 0);
    return id >= 0 && id < (double)e->extent[l] ? (int64_t)llround(id) : NONE;
}

void eval_take_choice(const Eval *e)
{
    int l = eval_last_letter(e, 1);
    WALK(w, e, e->set[0])
    {
        int64_t row = whole_row(e, &w, l);
        *eval_out(e, &w, 0) =
            row == NONE ? eval_id_poison(e, &w) : e->in[1][w.offset[1] + row * e->stride[1][l]];
    }
}

void eval_spread(const Eval *e)
{
    int l = 0;
    while (!(e->set[MAX_IN] >> l & 1) || (e->set[0] >> l & 1))
        l++;
    eval_clear_outputs(e);
    WALK(w, e, e->set[0])
    {
        int64_t row = whole_row(e, &w, l);
        if (row != NONE)
            eval_out(e, &w, 0)[row * e->stride[MAX_IN][l]] += eval_in(e, &w, 1);
        else
            *eval_out(e, &w, 0) += eval_id_poison(e, &w);
    }
}

/* ---- expert layers ---- */

/* y[A k C] = sum over B of x[A (k) B] w[choice[A k], ...]; nothing where another block has the
 * expert. */
void eval_expert(const Eval *e)
{
    int l = eval_only_letter(e->node->sig.base);
    uint16_t summed = (uint16_t)(e->set[1] & ~e->set[MAX_IN]);
    WALK(w, e, e->set[MAX_IN])
    {
        int64_t row = eval_local_row(e, &w, l);
        double sum = row == NONE ? eval_id_poison(e, &w) : 0;
        if (row != NONE) {
            const double *x = e->in[1] + w.offset[1];
            const double *weight = e->in[2] + w.offset[2] + row * e->stride[2][l];
            WALK(v, e, summed)
            sum += x[v.offset[1]] * weight[v.offset[2]];
        }
        *eval_out(e, &w, 0) = sum;
    }
}

/* Inputs choice, dy[A k C], x[A (k) B]. */
void eval_expert_dw(const Eval *e)
{
    int l = eval_only_letter(e->node->sig.base);
    uint16_t other = (uint16_t)(e->set[2] & ~e->set[1]);
    eval_clear_outputs(e);
    WALK(w, e, e->set[1])
    {
        int64_t row = eval_local_row(e, &w, l);
        double *y = eval_out(e, &w, 0) + (row == NONE ? 0 : row * e->stride[MAX_IN][l]);
        WALK(v, e, other)
        y[v.offset[MAX_IN]] += row == NONE
                                   ? eval_id_poison(e, &w)
                                   : eval_in(e, &w, 1) * e->in[2][w.offset[2] + v.offset[2]];
    }
}
