/* loop.c - the loop of a schedule table. */
#include "ir/lower/loop.h"

static bool same_entry(const Entry *a, const Entry *b)
{
    return a->kind == b->kind && a->part == b->part && a->chunk == b->chunk &&
           a->first == b->first && a->last == b->last && a->message == b->message &&
           a->peer == b->peer && a->index == b->index && a->resumes == b->resumes &&
           a->braids == b->braids && a->braided == b->braided;
}

/* How many entries from `at` on equal those `n` further, always `ret_shift` micro-batches later. */
static int run_length(const StageProgram *stage, int at, int n, int *ret_shift)
{
    const Entry *entry = stage->table.at;
    int count = 0;
    *ret_shift = 0;
    for (int i = at; i + n < stage->table.n && entry[i].micro != NONE; i++, count++) {
        int shift = entry[i + n].micro - entry[i].micro;
        if (!same_entry(&entry[i], &entry[i + n]) || shift == 0 ||
            (count > 0 && shift != *ret_shift))
            break;
        *ret_shift = shift;
    }
    return count;
}

Loop table_loop(const StageProgram *stage, int longest)
{
    Loop best = {0};
    for (int n = 1; n <= longest && 2 * n <= stage->table.n; n++)
        for (int at = 0; at + 2 * n <= stage->table.n;) {
            int shift, count = run_length(stage, at, n, &shift);
            int repeats = count >= n ? count / n + 1 : 0;
            if (repeats >= 2 && shift > 0 && repeats * n > best.repeats * best.entries)
                best = (Loop){at, n, repeats, shift};
            at += count > 1 ? count : 1;
        }
    return best;
}

Loop table_loop_at(const StageProgram *stage, int at, int longest)
{
    Loop best = {0};
    for (int n = 1; n <= longest && at + 2 * n <= stage->table.n; n++) {
        int shift, count = run_length(stage, at, n, &shift);
        int repeats = count >= n ? count / n + 1 : 0;
        if (repeats >= 2 && repeats * n > best.repeats * best.entries)
            best = (Loop){at, n, repeats, shift};
    }
    return best;
}
