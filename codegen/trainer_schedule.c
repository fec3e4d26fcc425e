/* trainer_schedule.c - a stage's table folded into loops: warm-up, steady state, cool-down.
 *
 * Entries that repeat with a fixed step of the micro-batch (or of the bucket) are a loop; the
 * longest repetition at each place is taken. A table without any is a list of calls. */
#include <string.h>

#include "codegen/trainer.h"

/* Entries of a loop's turn: more where a stage has several chunks. */
static int longest_period(const Program *program)
{
    return program->chunks == program->stages ? 24 : 8 * program->chunks;
}

static bool shifts(const Entry *e)
{
    return e->micro != NONE;
}

/* Is `b` the entry `a`, `micro` micro-batches and `index` buckets later? */
static bool is_later(const Entry *a, const Entry *b, int micro, int index)
{
    if (a->kind != b->kind || a->ahead != b->ahead || a->part != b->part || a->chunk != b->chunk ||
        shifts(a) != shifts(b) || a->resumes != b->resumes || a->stays != b->stays ||
        a->braids != b->braids || a->braided != b->braided)
        return false;
    bool message = a->kind == ENTRY_SEND || a->kind == ENTRY_RECV;
    if ((message && a->message != b->message) ||
        ((message || a->kind == ENTRY_TIED) && a->peer != b->peer))
        return false;
    if (shifts(a))
        return b->micro - a->micro == micro;
    return b->index - a->index == index;
}

typedef struct Fold {
    int period, count, micro,
        index; /* entries of one turn, turns, steps of micro-batch and bucket */
} Fold;

static int repetitions(const Entry *entry, int left, int period, Fold *ret)
{
    if (2 * period > left)
        return 1;
    int micro = 0, index = 0;
    for (int i = 0; i < period; i++) {
        if (shifts(&entry[i]))
            micro = entry[i + period].micro - entry[i].micro;
        else
            index = entry[i + period].index - entry[i].index;
    }
    int n = 1;
    for (bool same = true; same && (n + 1) * period <= left; n += same) {
        for (int i = 0; i < period && same; i++)
            same = is_later(&entry[(n - 1) * period + i], &entry[n * period + i], micro, index);
    }
    *ret = (Fold){period, n, micro, index};
    return n;
}

static Fold best_fold(const Entry *entry, int left, int longest)
{
    Fold best = {1, 1, 0, 0};
    for (int period = 1; period <= longest; period++) {
        Fold fold;
        int n = repetitions(entry, left, period, &fold);
        if (n > 1 && n * period > best.count * best.period && (fold.micro || fold.index))
            best = fold;
    }
    return best;
}

static const char *number_at(Trainer *t, const char *var, int begin, int step)
{
    if (!var)
        return arena_printf(t->arena, "%d", begin);
    if (step == 0)
        return arena_printf(t->arena, "%d", begin);
    const char *product = step == 1 ? var : arena_printf(t->arena, "%d * %s", step, var);
    if (step < 0)
        return arena_printf(t->arena, step == -1 ? "%d - %s" : "%d - %s", begin,
                            step == -1 ? var : arena_printf(t->arena, "%d * %s", -step, var));
    return begin ? arena_printf(t->arena, begin > 0 ? "%s + %d" : "%s - %d", product,
                                begin > 0 ? begin : -begin)
                 : product;
}

/* The last argument of a row: how many of its blocks stay. */
static const char *stay_text(Trainer *t, int s, const Entry *entry)
{
    bool spills = entry->kind == ENTRY_COMPUTE && trainer_chunk_spills(t, s, entry->chunk);
    return spills ? arena_printf(t->arena, ", %d", entry->stays) : "";
}

static void print_entry(Trainer *t, Emit *out, int s, const Entry *entry, const char *var,
                        const Fold *fold)
{
    const char *micro = number_at(t, var, entry->micro, fold->micro),
               *index = number_at(t, var, entry->index, fold->index);
    const char *resumes = !stage_fetches(&t->program->stage[s]) ? ""
                          : entry->resumes                      ? ", true"
                                                                : ", false";
    const char *stay = stay_text(t, s, entry);
    switch (entry->kind) {
    case ENTRY_COMPUTE: {
        if (entry->braids)
            emit_line(out, "%s(s, %s%s, %s);", trainer_beside(t, s, entry),
                      t->program->stage[s].chunk[entry->chunk].ring[RING_DATA].n > 0 ? "step, "
                                                                                     : "",
                      micro, number_at(t, var, entry[1].micro, fold->micro));
        if (entry->braids || entry->braided)
            break;
        bool loads =
            entry->part == PART_F && t->program->stage[s].chunk[entry->chunk].ring[RING_DATA].n > 0;
        emit_line(out, "%s_%s(s, %s%s%s%s);", trainer_chunk(t, s, entry->chunk),
                  part_name[entry->part], loads && !t->program->flows ? "step, " : "", micro,
                  resumes, stay);
        break;
    }
    case ENTRY_SEND:
    case ENTRY_RECV:
        emit_line(out, "%s_%s_%s(s, %s);", trainer_chunk(t, s, entry->chunk),
                  entry->kind == ENTRY_SEND ? "send" : "recv",
                  entry->message == MSG_ACTIVATION ? "activation" : "gradient", micro);
        break;
    case ENTRY_REDUCE:
        emit_line(out, "stage%d_reduce(s, %s);", s, index);
        break;
    case ENTRY_TIED:
        if (trainer_one_tie(t))
            emit_line(out, "stage%d_tied(s, %s);", s, index);
        else
            emit_line(out, "stage%d_tied(s, %s, %d);", s, index, entry->peer);
        break;
    case ENTRY_NORM:
        emit_line(out, "stage%d_norm(s);", s);
        emit_line(out, "if (step == 0 && s->rank->options->dump_grads)");
        emit_line(out, "    stage%d_dump(s);", s);
        break;
    case ENTRY_UPDATE:
        emit_line(out, "stage%d_update(s, %s);", s, index);
        break;
    case ENTRY_LOSS:
        emit_line(out, "stage%d_evaluated(s);", s);
        break;
    case ENTRY_WORLD:
    case ENTRY_COUNT:
        BUG("no such entry");
    }
}

static bool has_part(const Entry *entry, int n, PartKind part)
{
    for (int i = 0; i < n; i++) {
        if (entry[i].kind == ENTRY_COMPUTE && (entry[i].part == PART_F) == (part == PART_F))
            return true;
    }
    return false;
}

/* The longest loop that runs forwards and backwards is the steady state; NONE when there is none.
 */
static int find_steady(const StageProgram *stage, int longest)
{
    int best = NONE, most = 0;
    for (int i = 0; i < stage->table.n;) {
        const Entry *entry = &stage->table.at[i];
        Fold fold = best_fold(entry, stage->table.n - i, longest);
        bool both = has_part(entry, fold.period, PART_F) && has_part(entry, fold.period, PART_B);
        if (both && fold.count > 1 && fold.count > most) {
            best = i;
            most = fold.count;
        }
        i += fold.period * fold.count;
    }
    return best;
}

/* "Warm-up", "Steady state" and "Cool-down" where a pipeline has them. */
static void print_phase(Emit *out, const StageProgram *stage, int i, int steady, bool *cooling)
{
    if (steady == NONE || steady == 0 || *cooling)
        return;
    if (i == 0)
        emit_comment(out, "Warm-up: forwards fill the pipeline.");
    else if (i == steady)
        emit_comment(out, "Steady state: each turn is %s.",
                     stage->chunks > 1 ? "forwards and backwards of all chunks"
                                       : "one forward and one backward");
    else if (i > steady && stage->table.at[i].micro != NONE) {
        emit_comment(out, "Cool-down: backwards drain it.");
        *cooling = true;
    }
}

/* The number of a micro-batch since the last drain. */
static const char *number_text(Trainer *t, const char *step, const char *micro)
{
    int micros = t->plan->micro_batches;
    const char *base = strchr(step, ' ') ? arena_printf(t->arena, "(%s)", step) : step;
    if (micros == 1)
        return step;
    return str_eq(micro, "0") ? arena_printf(t->arena, "%s * %d", base, micros)
                              : arena_printf(t->arena, "%s * %d + %s", base, micros, micro);
}

/* An entry of a turn, whose step is one of the run. */
static void print_flow_entry(Trainer *t, Emit *out, int s, const Entry *entry, const char *var,
                             const Fold *fold)
{
    const char *micro = number_at(t, var, entry->micro, fold->micro),
               *index = number_at(t, var, entry->index, fold->index),
               *step = trainer_flow_step(t, entry), *number = number_text(t, step, micro),
               *chunk = entry->micro == NONE ? "" : trainer_chunk(t, s, entry->chunk);
    switch (entry->kind) {
    case ENTRY_COMPUTE:
        emit_line(out, "%s_%s(s, %s%s%s);", chunk, part_name[entry->part], number,
                  !stage_fetches(&t->program->stage[s]) ? ""
                  : entry->resumes                      ? ", true"
                                                        : ", false",
                  stay_text(t, s, entry));
        break;
    case ENTRY_SEND:
    case ENTRY_RECV:
        emit_line(out, "%s_%s_%s(s, %s);", chunk, entry->kind == ENTRY_SEND ? "send" : "recv",
                  entry->message == MSG_ACTIVATION ? "activation" : "gradient", number);
        break;
    case ENTRY_NORM:
        emit_line(out, "stage%d_norm(s, %s);", s, step);
        emit_line(out, "if (s->begin + %s == 0 && s->rank->options->dump_grads)", step);
        emit_line(out, "    stage%d_dump(s);", s);
        break;
    case ENTRY_UPDATE:
        emit_line(out, "stage%d_update(s, %s, %s);", s, step, index);
        break;
    case ENTRY_WORLD:
        emit_line(out, "stage%d_world(s, %s);", s, step);
        break;
    default:
        BUG("steps that flow have no %s", entry_text[entry->kind]);
    }
}

/* Entries in a row that are of one step ask once whether it is one of the run. */
static void print_flow_entries(Trainer *t, Emit *out, int s, const Entry *entry, int n,
                               const char *var, const Fold *fold)
{
    for (int k = 0; k < n;) {
        int end = k + 1;
        while (end < n && entry[end].ahead == entry[k].ahead)
            end++;
        emit_open(out, "if (in_run(s, %s))", trainer_flow_step(t, &entry[k]));
        for (; k < end; k++)
            print_flow_entry(t, out, s, &entry[k], var, fold);
        emit_close_slim(out);
    }
}

static void print_turn(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    emit_comment(out,
                 "One turn of stage %d: schedule %s, %s. Steps flow into each other; turns and "
                 "steps count from the last drain, and turns before and behind the steps of a run "
                 "do what is left of it.",
                 s, schedule_text[t->plan->schedule],
                 trainer_count(t, t->plan->micro_batches, "micro-batch", "micro-batches"));
    emit_open_function(out, "static void stage%d_turn(State *s, int turn)", s);
    for (int i = 0; i < stage->table.n;) {
        const Entry *entry = &stage->table.at[i];
        Fold fold = best_fold(entry, stage->table.n - i, longest_period(t->program));
        if (fold.count > 1) {
            emit_open(out, "for (int i = 0; i < %d; i++)", fold.count);
            print_flow_entries(t, out, s, entry, fold.period, "i", &fold);
            emit_close_slim(out);
            i += fold.period * fold.count;
            continue;
        }
        int n = 1; /* up to the next loop */
        while (i + n < stage->table.n &&
               best_fold(&entry[n], stage->table.n - i - n, longest_period(t->program)).count == 1)
            n++;
        print_flow_entries(t, out, s, entry, n, NULL, &fold);
        i += n;
    }
    emit_close(out, "");
    emit_blank(out);
}

void trainer_print_schedule(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    if (t->program->flows) {
        print_turn(t, out, s);
        return;
    }
    int longest = longest_period(t->program), steady = find_steady(stage, longest);
    bool cooling = false, ended = false;
    emit_comment(out, "One optimizer step of stage %d: schedule %s, %s.", s,
                 schedule_text[t->plan->schedule],
                 trainer_count(t, t->plan->micro_batches, "micro-batch", "micro-batches"));
    emit_open_function(out, "static void stage%d_step(State *s, int64_t step)", s);
    for (int i = 0; i < stage->table.n;) {
        const Entry *entry = &stage->table.at[i];
        Fold fold = best_fold(entry, stage->table.n - i, longest);
        print_phase(out, stage, i, steady, &cooling);
        if (entry->micro == NONE && !ended && t->plan->stages > 1)
            emit_comment(out, "Every gradient of the step is there, or under way.");
        ended = ended || entry->micro == NONE;
        if (fold.count == 1) {
            print_entry(t, out, s, entry, NULL, &fold);
            i++;
            continue;
        }
        emit_open(out, "for (int i = 0; i < %d; i++)", fold.count);
        for (int k = 0; k < fold.period; k++)
            print_entry(t, out, s, &entry[k], "i", &fold);
        emit_close_slim(out);
        i += fold.period * fold.count;
    }
    emit_close(out, "");
    emit_blank(out);
}

/* An evaluation's share of the losses, and their sums over the world. */
static void print_evaluated(Trainer *t, Emit *out, int s)
{
    int losses = net_losses(t->net);
    Place place = {.kind = PLACE_EVALUATED, .stage = s};
    emit_open_function(out, "static void stage%d_evaluated(State *s)", s);
    emit_line(out, "float *sums = arena_at(s, %lldL);",
              (long long)evaluation_address(t->program, &t->program->stage[s]));
    trainer_print_waits(t, out, &place, NULL);
    for (int k = 0; k < losses; k++)
        emit_line(out, "sums[%d] = %s;", k, trainer_loss_owner(t, s, k));
    emit_line(out, "lp_all_reduce(&s->world, LP_WORLD, sums, %d, LP_F32, LP_SUM);", losses);
    emit_line(out, "lp_wait(&s->world);");
    emit_line(out, "lp_evaluated(sums, %d);", losses);
    emit_close(out, "");
    emit_blank(out);
}

void trainer_print_evaluation(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    print_evaluated(t, out, s);
    emit_comment(out, "One batch of an evaluation: the forwards of a step alone.");
    bool steps = false;
    for (int c = 0; c < stage->chunks; c++)
        steps = steps || (stage->chunk[c].ring[RING_DATA].n > 0 && !t->program->flows);
    emit_open_function(out, "static void stage%d_evaluate(State *s%s)", s,
                       steps ? ", int64_t step" : "");
    for (int i = 0; i < stage->evaluation.n;) {
        const Entry *entry = &stage->evaluation.at[i];
        Fold fold = best_fold(entry, stage->evaluation.n - i, longest_period(t->program));
        if (fold.count > 1)
            emit_open(out, "for (int i = 0; i < %d; i++)", fold.count);
        for (int k = 0; k < fold.period; k++)
            print_entry(t, out, s, &entry[k], fold.count > 1 ? "i" : NULL, &fold);
        if (fold.count > 1)
            emit_close_slim(out);
        i += fold.period * fold.count;
    }
    emit_close(out, "");
    emit_blank(out);
}

static void print_evaluate_call(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    bool steps = false;
    for (int c = 0; c < stage->chunks; c++)
        steps = steps || (stage->chunk[c].ring[RING_DATA].n > 0 && !t->program->flows);
    emit_line(out, "stage%d_evaluate(s%s);", s, steps ? ", batch" : "");
}

void trainer_print_evaluate(Trainer *t, Emit *out)
{
    bool flows = t->program->flows, draws = trainer_draws(t);
    emit_comment(out,
                 "An evaluation behind a step (-1: of a run without steps). Nothing of training "
                 "is moved by it.");
    emit_open_function(out, "static void evaluate(State *s, int64_t step)");
    emit_line(out, "const int64_t batches = lp_evaluation_begin();");
    if (flows)
        emit_line(out, "const int64_t begin = s->begin;");
    if (draws)
        emit_line(out, "s->evaluates = true;");
    emit_open(out, "for (int64_t batch = 0; batch < batches; batch++)");
    if (flows)
        emit_line(out, "s->begin = batch;");
    if (t->plan->stages == 1) {
        print_evaluate_call(t, out, 0);
    } else {
        emit_line(out, "switch (s->rank->stage) {");
        for (int i = 0; i < t->plan->stages; i++) {
            emit_line(out, "case %d:", i);
            out->depth++;
            print_evaluate_call(t, out, i);
            emit_line(out, "break;");
            out->depth--;
        }
        emit_line(out, "}");
    }
    emit_close(out, "");
    if (draws)
        emit_line(out, "s->evaluates = false;");
    if (flows)
        emit_line(out, "s->begin = begin;");
    emit_line(out, "lp_evaluation_end(step);");
    emit_close(out, "");
    emit_blank(out);
}
