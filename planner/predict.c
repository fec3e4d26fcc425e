/* predict.c - from a plan to its Steps' times: lowers it in the order that its own lengths give,
 * and runs it, or two shorter steps of it. */
#include "planner/card.h"
#include "planner/pair.h"
#include "planner/simulate.h"

/* Beyond this many Steps a step is extrapolated. */
enum { STEPS_AT_MOST = 150000 };

static int64_t *time_pairs(Arena *scratch, const Plan *plan, const Net *net, const Pricer *pricer,
                           const Schedule *rows)
{
    const Body **body = ARENA_ARRAY(scratch, const Body *, net->classes.n);
    for (int c = 0; c < net->classes.n; c++)
        body[c] = card_body(scratch, pricer, &plan->class[c], c, schedule_splits(rows));
    PairShelf *shelf = pair_shelf_new(scratch, pricer, body);
    int64_t *ns = ARENA_ARRAY(plan->arena, int64_t, plan->chunks);
    const int *first = plan->first_link;
    for (int s = 0; s < rows->stages; s++)
        for (int i = 0; i < rows->rows[s].n; i++) {
            const Row *row = &rows->rows[s].at[i];
            if (!schedule_pair(rows, s, i) || ns[row->chunk])
                continue;
            int there = row[0].chunk, back = row[1].chunk;
            PairRow forward = pair_row(scratch, net, first[there], first[there + 1], true),
                    backward = pair_row(scratch, net, first[back], first[back + 1], false);
            ns[there] = pair_row_times(shelf, &forward, &backward, row[1].part, NULL, NULL).ns;
        }
    return ns;
}

void plan_time_rows(Plan *plan, const Net *net)
{
    Arena *scratch = arena_new("times");
    Pricer pricer = {plan->cluster,     net,        &plan->mesh, recipe_by_name(plan->job.recipe),
                     plan->state_atoms, &plan->job, NULL};
    const Schedule *rows = plan_rows(scratch, diag_new(scratch), plan);
    bool split = schedule_splits(rows);
    int64_t *ns[PART_COUNT] = {NULL};
    for (int part = 0; part < (split ? PART_COUNT : PART_I); part++)
        ns[part] = ARENA_ARRAY(plan->arena, int64_t, plan->chunks);
    Card *card = ARENA_ARRAY(scratch, Card, net->classes.n);
    for (int c = 0; c < net->classes.n; c++)
        card[c] = card_make(scratch, scratch, &pricer, &plan->class[c], c, split);
    int64_t hop = 0;
    for (int c = 0; c < plan->chunks; c++) {
        for (int i = plan->first_link[c]; i < plan->first_link[c + 1]; i++) {
            const Card *at = &card[net->chain.at[i].class];
            bool first = i == plan->first_link[c], last = i + 1 == plan->first_link[c + 1];
            int64_t input = last ? at->backward.ns : at->backward.next_ns,
                    weight = last ? at->weight.ns : at->weight.next_ns;
            ns[PART_F][c] += first ? at->forward.ns : at->forward.next_ns;
            ns[PART_B][c] += input + weight;
            if (split) {
                ns[PART_I][c] += input;
                ns[PART_W][c] += weight;
            }
        }
        if (c + 1 == plan->chunks || plan->holder[c] == plan->holder[c + 1])
            continue;
        int level = stage_level(plan->cluster, mesh_ranks(&plan->mesh), plan->holder[c],
                                plan->holder[c + 1]);
        int64_t bytes = card[net->chain.at[plan->first_link[c + 1] - 1].class].out_bytes;
        int64_t one = price_p2p(plan->cluster, level, bytes);
        hop = one > hop ? one : hop;
    }
    for (int part = 0; part < PART_COUNT; part++)
        plan->row_ns[part] = ns[part];
    plan->pair_ns = plan->braid ? time_pairs(scratch, plan, net, &pricer, rows) : NULL;
    plan->hop_ns = hop;
    arena_free(scratch);
}

/* ---- extrapolation ---- */

/* The line through two points, at `m`. */
typedef struct Line {
    int m1, m2, m;
} Line;

static int64_t along(const Line *line, int64_t a, int64_t b)
{
    return b + (b - a) * (line->m - line->m2) / (line->m2 - line->m1);
}

static void along_all(const Line *line, const int64_t *a, const int64_t *b, int64_t *ret, int n)
{
    for (int i = 0; i < n; i++)
        ret[i] = along(line, a[i], b[i]);
}

static void extrapolate(const Line *line, const StepTimes *a, StepTimes *b)
{
    b->step_ns = along(line, a->step_ns, b->step_ns);
    b->steps = along(line, a->steps, b->steps);
    for (int s = 0; s < b->stages; s++) {
        const StageTimes *x = &a->stage[s];
        StageTimes *y = &b->stage[s];
        along_all(line, x->spent_ns, y->spent_ns, y->spent_ns, SPENT_COUNT);
        along_all(line, x->busy_ns, y->busy_ns, y->busy_ns, STREAM_COUNT);
        along_all(line, x->level_ns, y->level_ns, y->level_ns, MAX_LEVELS);
        along_all(line, x->level_bytes, y->level_bytes, y->level_bytes, MAX_LEVELS);
        along_all(line, x->store_ns, y->store_ns, y->store_ns, MEMORY_COUNT);
        along_all(line, x->store_bytes, y->store_bytes, y->store_bytes, MEMORY_COUNT);
        y->flops = along(line, x->flops, y->flops);
        /* lines are rounded one by one: the account of a stage stays the whole step */
        int64_t spent = 0;
        for (int k = 0; k < SPENT_COUNT; k++)
            spent += y->spent_ns[k];
        y->spent_ns[SPENT_COMPUTE] += b->step_ns - spent;
    }
    /* one schedule meets its kinds of traffic in one order */
    CHECK(a->traffic.n == b->traffic.n);
    for (int i = 0; i < b->traffic.n; i++) {
        const Traffic *x = &a->traffic.at[i];
        Traffic *y = &b->traffic.at[i];
        along_all(line, x->count, y->count, y->count, b->stages);
        along_all(line, x->bytes, y->bytes, y->bytes, b->stages);
        along_all(line, x->ns, y->ns, y->ns, b->stages);
        along_all(line, x->exposed_ns, y->exposed_ns, y->exposed_ns, b->stages);
    }
}

static StepTimes *shorter_step(Arena *arena, const Plan *plan, const Net *net, int micros)
{
    Plan shorter = *plan;
    shorter.micro_batches = micros;
    shorter.job.global_batch = plan->job.global_batch / plan->micro_batches * micros;
    Arena *scratch = arena_new("shorter");
    StepTimes *times =
        simulate_program(arena, program_build(scratch, &shorter, net, NULL, NULL), NULL);
    arena_free(scratch);
    return times;
}

StepTimes *simulate_plan(Arena *arena, const Plan *plan, const Net *net, const Program *program)
{
    int64_t per_micro = 0;
    for (int i = 0; i < net->chain.n; i++) {
        const Body *body = program->body[net->chain.at[i].class];
        per_micro += body->forward.n + body->backward.n + body->weight.n;
    }
    /* interleaved groups are as long as there are stages */
    int more = plan->chunks > plan->stages ? 2 * plan->stages : 4;
    int warm = 2 * plan->chunks + 2 + (plan->micro_batches - 2 * plan->chunks - 2) % more;
    if (plan->chunks == plan->stages)
        warm = 2 * plan->stages + 2;
    if (per_micro * plan->micro_batches <= STEPS_AT_MOST || plan->micro_batches <= warm + more ||
        plan->schedule == SCHEDULE_TABLE || program->flows)
        return simulate_program(arena, program, NULL);
    Line line = {warm, warm + more, plan->micro_batches};
    StepTimes *a = shorter_step(arena, plan, net, line.m1);
    StepTimes *b = shorter_step(arena, plan, net, line.m2);
    extrapolate(&line, a, b);
    b->simulated_micros = line.m2;
    return b;
}
