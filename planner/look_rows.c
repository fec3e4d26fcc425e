/* look_rows.c - whose rows a plan runs. */
#include "planner/look.h"

static bool same_rows(const Schedule *a, const Schedule *b)
{
    if (a->stages != b->stages || a->chunks != b->chunks || a->micros != b->micros ||
        (a->delay == NULL) != (b->delay == NULL))
        return false;
    for (int c = 0; c < a->chunks; c++)
        if (a->holder[c] != b->holder[c])
            return false;
    for (int s = 0; s < a->stages; s++) {
        if (a->rows[s].n != b->rows[s].n)
            return false;
        for (int i = 0; i < a->rows[s].n; i++) {
            const Row *x = &a->rows[s].at[i], *y = &b->rows[s].at[i];
            if (x->part != y->part || x->chunk != y->chunk || x->micro != y->micro ||
                x->ahead != y->ahead)
                return false;
        }
    }
    return true;
}

/* Most micro-batches whose forward has begun on a stage before their backward has: what it keeps.
 */
static int most_alive(const Schedule *schedule, int stage)
{
    int alive = 0, most = 0;
    for (int i = 0; i < schedule->rows[stage].n; i++) {
        PartKind part = schedule->rows[stage].at[i].part;
        alive += part == PART_F;
        most = alive > most ? alive : most;
        alive -= part == PART_B || part == PART_W;
    }
    return most;
}

bool look_runs_as(const Look *look, ScheduleKind kind, Str *says)
{
    Arena *arena = look->arena;
    const Plan *plan = look->plan;
    const Schedule *rows = plan_rows(arena, diag_new(arena), plan);
    if (plan->stages < 2 || !rows)
        return false;
    bool braids = rows->braids && schedule_info[kind].braids;
    const Schedule *made = kind == SCHEDULE_TABLE
                               ? rows
                               : (braids ? schedule_make_braided : schedule_make)(
                                     arena, diag_new(arena), kind, plan->stages,
                                     plan->chunks / plan->stages, plan->micro_batches);
    if (!made || !same_rows(rows, made))
        return false;
    str_putf(says, "%d stages", plan->stages);
    if (plan->chunks > plan->stages)
        str_putf(says, " of %d chunks", plan->chunks / plan->stages);
    str_putf(says, ", %d micro-batch%s", plan->micro_batches, plan->micro_batches == 1 ? "" : "es");
    int first = look->it->program->stage[0].delay,
        last = look->it->program->stage[plan->stages - 1].delay;
    if (rows->delay && first == last)
        str_putf(says, ", never drained: weights %d step%s old", first, first == 1 ? "" : "s");
    else if (rows->delay)
        str_putf(says, ", never drained: weights %d to %d steps old", last, first);
    else
        str_putf(says, "; stage 0 keeps %d at most, the last %d", most_alive(rows, 0),
                 most_alive(rows, plan->stages - 1));
    if (schedule_splits(rows))
        str_put(says, "; gradients of weights fill in");
    return true;
}

bool look_has_pairs(const Look *look, Str *says)
{
    const StageProgram *stage = &look->it->program->stage[look->it->busiest];
    int pairs = 0, forwards = 0;
    for (int i = 0; i < stage->table.n; i++) {
        pairs += stage->table.at[i].braids;
        forwards += stage->table.at[i].kind == ENTRY_COMPUTE && stage->table.at[i].part == PART_F;
    }
    if (pairs == 0)
        return false;
    str_putf(says, "%d of %d forwards of stage %d run beside a backward of another micro-batch",
             pairs, forwards, stage->index);
    return true;
}
