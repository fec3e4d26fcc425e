/* special.c - faults and checks of single rows of the table of bugs. */
#include "tests/bugs/special.h"

#include <math.h>
#include <string.h>

#include "ir/lower/check.h"
#include "ir/lower/machine.h"
#include "ir/lower/turns.h"
#include "tests/ir/nets.h"

static bool near(double a, double b)
{
    return machine_relative(a, b) <= 1e-10;
}

/* A trial of `pins` on a bug that differs from a row in some fields. */
static Trial *trial_of(Arena *arena, const Bug *bug, const char *pins)
{
    const char *waits, *why;
    Trial *trial = bug_trial(arena, bug, pins, &waits, &why);
    if (!trial)
        BUG("no trial: %s", waits ? waits : why);
    return trial;
}

static bool says(const Program *program, const char *piece, const char **ret_said)
{
    Diag *diag = diag_new(program->arena);
    CheckReport report;
    *ret_said = "the static proof holds";
    if (program_check(program->arena, program, 2, diag, &report))
        return false;
    for (int i = 0; i < diag_count(diag); i++) {
        *ret_said = diag_item(diag, i)->text;
        if (strstr(*ret_said, piece))
            return true;
    }
    return false;
}

/* ---- data ---- */

bool special_mean_of_means(const Bug *bug, Arena *arena, const char **ret_what)
{
    Bug means = *bug;
    means.spec.mean_of_means = true;
    const Trial *right = trial_of(arena, bug, "mbs=1"), *wrong = trial_of(arena, &means, "mbs=1");
    *ret_what = "means of micro-batches give the same loss";
    return !near(right->loss[0], wrong->loss[0]) && !near(right->norm[0], wrong->norm[0]);
}

bool special_balance_of_batches(const Bug *bug, Arena *arena, const char **ret_what)
{
    Bug batches = *bug;
    batches.model = model_moe_batch;
    const Trial *one = trial_of(arena, &batches, "mbs=8"),
                *many = trial_of(arena, &batches, "mbs=1");
    *ret_what = "a balance over micro-batches does not show";
    return near(one->loss[0], many->loss[0]) && !near(one->norm[0], many->norm[0]);
}

bool special_weights_scale_all(const Bug *bug, Arena *arena, const char **ret_what)
{
    Bug seven = *bug, half = *bug;
    seven.spec.weight_scale = 7;
    half.model = model_moe_half;
    half.spec.weight_scale = 7;
    Trial *one = trial_of(arena, bug, "dp=2"), *all = trial_of(arena, &seven, "dp=2");
    const Trial *other = trial_of(arena, &half, "dp=2");
    const char *where;
    if (!(trial_run(all, 0, NULL, &where) <= 1e-10)) {
        *ret_what = where;
        return false;
    }
    *ret_what = "the terms of the objective scale apart";
    return near(all->loss[0], 7 * one->loss[0]) && near(all->norm[0], 7 * one->norm[0]) &&
           !near(other->norm[0], 7 * one->norm[0]);
}

bool special_padding(const Bug *bug, Arena *arena, const char **ret_what)
{
    Bug shorter = *bug;
    shorter.sequence = 6;
    shorter.spec.mask = MASK_ALL;
    const Trial *padded = trial_of(arena, bug, "mbs=1"),
                *plain = trial_of(arena, &shorter, "mbs=1");
    *ret_what = "padding changes the loss or the norm";
    if (!near(padded->loss[0], plain->loss[0]) || !near(padded->norm[0], plain->norm[0]))
        return false;
    Bug counted = *bug;
    counted.spec.mask = MASK_ALL;
    *ret_what = "to count padding does not show";
    return !near(trial_of(arena, &counted, "mbs=1")->loss[0], plain->loss[0]);
}

/* ---- programs ---- */

static bool reads(const Inst *inst, int copy)
{
    for (int k = 0; k < inst->ins; k++)
        if (inst->in[k] == copy)
            return true;
    return false;
}

/* The first sum in place, and a later reader of the result who gets the operand instead; or a sum
 * into memory of its own that is made one in place although its operand is read again. */
static bool read_before_sum(Body *body)
{
    InstList *part[2] = {&body->forward, &body->backward};
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < part[p]->n; i++) {
            const Inst *sum = &part[p]->at[i];
            if (sum->kind != INST_MOVE || sum->move.kind != MOVE_ALL_REDUCE)
                continue;
            bool in_place = body->copies.at[sum->in[0]].alias == sum->out[0];
            for (int k = i + 1; k < part[p]->n; k++) {
                Inst *later = &part[p]->at[k];
                if (in_place && reads(later, sum->out[0])) {
                    for (int r = 0; r < later->ins; r++)
                        if (later->in[r] == sum->out[0])
                            later->in[r] = sum->in[0];
                    return true;
                }
                if (!in_place && reads(later, sum->in[0]) &&
                    body->copies.at[sum->in[0]].home == HOME_TEMP) {
                    body->copies.at[sum->in[0]].alias = sum->out[0];
                    return true;
                }
            }
        }
    return false;
}

bool special_alias(const Bug *bug, Arena *arena, const char **ret_what)
{
    int tried = 0;
    for (int i = 0; bug->plans[i]; i++) {
        const Program *program = trial_of(arena, bug, bug->plans[i])->program;
        for (int c = 0; c < program->net->classes.n; c++) {
            Body *body = program->body[c];
            if (!read_before_sum(body))
                continue;
            tried++;
            CheckReport report;
            Diag *diag = diag_new(arena);
            *ret_what = "a sum over what is read again passes";
            if (program_check(arena, program, 2, diag, &report))
                return false;
            break;
        }
    }
    *ret_what = "no plan sums in place";
    return tried > 0;
}

bool special_same_optimizer(const Bug *bug, Arena *arena, const char **ret_what)
{
    int tried = 0;
    for (int i = 0; bug->plans[i] && tried < 2; i++) {
        const char *waits, *why;
        Trial *trial = bug_trial(arena, bug, bug->plans[i], &waits, &why);
        for (int s = 0; trial && s < trial->program->stages; s++)
            for (int g = 0; g < trial->program->stage[s].groups.n; g++) {
                Group *group = &trial->program->stage[s].groups.at[g];
                if (group->tied_stage == NONE || group->tied_stage > s)
                    continue;
                tried++;
                group->members.at[0].decay = !group->members.at[0].decay;
                if (!says(trial->program, "another weight decay", ret_what))
                    return false;
            }
    }
    *ret_what = "no plan ties across stages";
    return tried > 0;
}

static void swap_receives(StageProgram *stage)
{
    int i = 0, j;
    while (stage->table.at[i].kind != ENTRY_RECV)
        i++;
    for (j = i + 1; stage->table.at[j].kind != ENTRY_RECV; j++)
        continue;
    Entry entry = stage->table.at[i];
    stage->table.at[i] = stage->table.at[j];
    stage->table.at[j] = entry;
}

static int row_at(const StageProgram *stage, PartKind part, int micro)
{
    for (int i = 0; i < stage->table.n; i++)
        if (stage->table.at[i].kind == ENTRY_COMPUTE && stage->table.at[i].part == part &&
            stage->table.at[i].micro == micro)
            return i;
    BUG("no row of micro-batch %d", micro);
}

/* Forward of a micro-batch and its send, to right behind backward of micro-batch 0. */
static void put_behind(StageProgram *stage, int micro)
{
    int from = row_at(stage, PART_F, micro), to = row_at(stage, PART_B, 0);
    CHECK(from < to && stage->table.at[from + 1].kind == ENTRY_SEND);
    Entry moved[2] = {stage->table.at[from], stage->table.at[from + 1]};
    memmove(&stage->table.at[from], &stage->table.at[from + 2],
            (size_t)(to - from - 1) * sizeof moved[0]);
    memcpy(&stage->table.at[to - 1], moved, sizeof moved);
}

bool special_swapped_messages(const Bug *bug, Arena *arena, const char **ret_what)
{
    /* two receives of one channel the other way round: each meets another send */
    const Program *program = trial_of(arena, bug, bug->plans[0])->program;
    swap_receives(&program->stage[1]);
    if (!says(program, " meets ", ret_what))
        return false;
    /* the first stage wants a gradient before it gives what that is made of */
    program = trial_of(arena, bug, "pp=4,mbs=2")->program;
    for (int micro = 3; micro > 0; micro--)
        put_behind(&program->stage[0], micro);
    return says(program, "deadlock", ret_what);
}

bool special_many_orders(const Bug *bug, Arena *arena, const char **ret_what)
{
    for (int i = 0; i < 2; i++) {
        Trial *trial = trial_of(arena, bug, bug->plans[i]);
        uint64_t bits = 0;
        for (uint64_t order = 0; order < 10; order++) {
            double error = trial_run(trial, order, NULL, ret_what);
            if (!(error <= 1e-10))
                return false;
            if (order > 0 && trial_bits(trial) != bits) {
                *ret_what = "another order, other bits";
                return false;
            }
            bits = trial_bits(trial);
        }
    }
    /* an order that events do not allow shows, or says that it cannot be */
    Trial *trial = trial_of(arena, bug, bug->plans[0]);
    bool hit;
    return tap_caught(trial->program, TAP_UPDATE, &hit, ret_what) && hit;
}

/* ---- parameters ---- */

static int64_t rows_of(const Net *net, int p)
{
    const NetParam *use = &net->params.at[p];
    const Graph *graph = net->classes.at[use->class];
    return net->dims.at[graph->values.at[graph->params.at[use->param].value].dim[0]].extent;
}

void special_starve(const Net *net, double *const *param)
{
    for (int p = 0; p < net->params.n; p++)
        for (int64_t e = 0; strstr(net->params.at[p].name, ".bias") && e < rows_of(net, p) / 2; e++)
            param[p][e] = -1000;
}

bool special_starved_expert(const Bug *bug, Arena *arena, const char **ret_what)
{
    int experts = 0;
    Trial *trial = trial_of(arena, bug, bug->plans[0]);
    const Net *net = trial->net;
    double **grad = net_zero_params(arena, net);
    eval_net(net, (const double *const *)trial->param, trial->batch, trial->plan->micro_batches,
             grad);
    if (!(trial_run(trial, 0, NULL, ret_what) <= 1e-10))
        return false;
    double stays = pow(1 - trial->lr * trial->plan->job.decay, trial->spec.rounds);
    for (int p = 0; p < net->params.n; p++) {
        if (!strstr(net->params.at[p].name, ".experts."))
            continue;
        int64_t n = eval_param_elements(net, p), starved = n / 2;
        double *now = ARENA_ARRAY(arena, double, n), moved = 0;
        machine_param(trial->machine, p, now);
        *ret_what = net->params.at[p].name;
        for (int64_t i = 0; i < starved; i++)
            if (grad[p][i] != 0 || fabs(now[i] - stays * trial->param[p][i]) > 1e-14)
                return false;
        for (int64_t i = starved; i < n; i++)
            moved += fabs(grad[p][i]);
        if (!(moved > 0))
            return false;
        experts++;
    }
    /* one rank gets all rows: room for an even share stops the run, rounds of it do not */
    static const char *const tight[] = {"dp=2,ep=2,room=100", "dp=2,ep=2,room=100,exchange=padded"};
    for (int i = 0; i < 2; i++)
        if (trial_run(trial_of(arena, bug, tight[i]), 0, NULL, ret_what) < INFINITY) {
            *ret_what = "rows without room are lost";
            return false;
        }
    *ret_what = "there is no expert";
    return experts > 0;
}

bool special_every_parameter(const Bug *bug, Arena *arena, const char **ret_what)
{
    Trial *trial = trial_of(arena, bug, bug->plans[0]);
    double sum = 0;
    if (!(trial_run(trial, 0, NULL, ret_what) <= 1e-10))
        return false;
    double norm2 = machine_norm2(trial->machine, 0);
    for (int p = 0; p < trial->net->params.n; p++) {
        const NetParam *use = &trial->net->params.at[p];
        bool trained = eval_param_rate(trial->net, p) == 0 &&
                       !trial->net->classes.at[use->class]->params.at[use->param].frozen;
        double own = trial_param_norm2(trial, p);
        *ret_what = use->name;
        /* a parameter that a norm could lose without being missed */
        if (trained && !strstr(use->name, ".bias") && !(own > 1e-9 * norm2))
            return false;
        sum += trained ? own : 0;
        double kept = trial->param[p][0];
        trial->param[p][0] += 0.01;
        const char *where;
        double before = trial->norm[0];
        trial_run(trial, 0, NULL, &where);
        double moved = machine_norm2(trial->machine, 0) - before * before;
        double want = trial_norm2(trial) - before * before;
        trial->param[p][0] = kept;
        if (fabs(moved - want) > 1e-9 * norm2)
            return false;
    }
    *ret_what = "the parts of the norm are not the whole";
    return near(norm2, sum);
}

bool special_idle_experts(const Bug *bug, Arena *arena, const char **ret_what)
{
    const Trial *trial = trial_of(arena, bug, "mbs=1");
    const Net *net = trial->net;
    int idle = 0, busy = 0;
    for (int m = 0; m < trial->plan->micro_batches; m++) {
        double **grad = net_zero_params(arena, net);
        eval_net(net, (const double *const *)trial->param, &trial->batch[m], 1, grad);
        for (int p = 0; p < net->params.n; p++) {
            int64_t experts = rows_of(net, p), each = eval_param_elements(net, p) / experts;
            for (int64_t e = 0; strstr(net->params.at[p].name, ".experts.") && e < experts; e++) {
                double sum = 0;
                for (int64_t i = e * each; i < (e + 1) * each; i++)
                    sum += fabs(grad[p][i]);
                idle += sum == 0;
                busy += sum > 0;
            }
        }
    }
    *ret_what = "every expert has tokens in every micro-batch";
    return idle > 0 && busy > idle;
}

/* Pairs that meet on a rank in all turns of all kernels of a plan. */
static int64_t work_of(const Trial *trial, int rank)
{
    int64_t pairs = 0;
    for (int c = 0; c < trial->net->classes.n; c++) {
        const Body *body = trial->program->body[c];
        for (int l = 0; l < BODY_LISTS; l++)
            for (int i = 0; i < body_list(body, l)->n; i++) {
                const Inst *inst = &body_list(body, l)->at[i];
                AtomList ring = inst_ring(body, inst);
                if (inst->kind != INST_KERNEL || ring.n == 0)
                    continue;
                const Node *node = &body->graph->nodes.at[inst->node[0]];
                Placement in[MAX_IN];
                for (int k = 0; k < node->ins; k++)
                    in[k] = body->copies.at[inst->bind_in[0][k]].place;
                Meeting meeting = {body->mesh, body->net, body->graph, node, in, ring};
                pairs += turn_pairs(&meeting, inst->turn, rank);
            }
    }
    return pairs;
}

static bool is_balanced(const Trial *trial, int ranks)
{
    int64_t most = 0, sum = 0;
    for (int rank = 0; rank < ranks; rank++) {
        int64_t work = work_of(trial, rank);
        sum += work;
        most = work > most ? work : most;
    }
    return sum > 0 && (most * ranks - sum) * 2 * ranks <= sum;
}

bool special_balanced_ring(const Bug *bug, Arena *arena, const char **ret_what)
{
    *ret_what = "the work of a ring's ranks is not that of its order";
    return is_balanced(trial_of(arena, bug, "cp=4,cp_by=ring,order=zigzag"), 4) &&
           !is_balanced(trial_of(arena, bug, "cp=4,cp_by=ring,order=identity"), 4);
}

/* ---- evaluations ---- */

/* They wait for nothing that the streams of gradients and weights do. */
static bool hurry(void *context, Step *step)
{
    int kept = 0, *hit = context;
    for (int w = 0; step->evaluates && w < step->waits; w++) {
        bool gathers = step->wait[w].stream == STREAM_GRADIENT;
        *hit += gathers;
        if (!gathers)
            step->wait[kept++] = step->wait[w];
    }
    step->waits = step->evaluates ? kept : step->waits;
    return true;
}

bool special_evaluation(const Bug *bug, Arena *arena, const char **ret_what)
{
    Bug alone = *bug;
    alone.spec.evaluates = false;
    int draws = 0, waits = 0;
    for (int i = 0; bug->plans[i]; i++) {
        const char *what;
        Trial *with = trial_of(arena, bug, bug->plans[i]),
              *without = trial_of(arena, &alone, bug->plans[i]);
        *ret_what = "an evaluation changes bits of training";
        if (!(trial_run(with, 0, NULL, &what) <= 1e-10) ||
            !(trial_run(without, 0, NULL, &what) <= 1e-10) ||
            trial_bits(with) != trial_bits(without))
            return false;
        draws += bug->model == model_dropout;
        *ret_what = "an evaluation draws";
        if (bug->model == model_dropout && near(with->evaluated[0], with->loss[0]))
            return false;
        int hit = 0;
        CheckReport report;
        const CheckTap tap = {hurry, &hit};
        bool holds =
            program_check_evaluating(arena, with->program, 2, &tap, diag_new(arena), &report);
        waits += hit > 0 && !holds;
        *ret_what = "an evaluation may begin before the weights are updated";
        if (hit > 0 && holds)
            return false;
    }
    *ret_what = "no plan draws, and none gathers weights";
    return draws + waits > 0;
}
