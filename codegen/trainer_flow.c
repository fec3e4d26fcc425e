/* trainer_flow.c - a trainer whose steps flow into each other: versions of weights, the world's sum
 * that nobody waits for, and the run from drain to drain. */
#include "codegen/trainer.h"
#include "ir/lower/state.h"

void trainer_print_flow_state(Emit *out)
{
    emit_line(out, "int64_t begin;   /* the first step since the pipeline was drained */");
    emit_line(out, "int steps;       /* until it drains again */");
    emit_line(out, "int summed;      /* the step whose loss and norm are under way; -1: none */");
    emit_line(out, "int64_t version; /* where the weights are that the row at work reads */");
}

const char *trainer_flow_step(Trainer *t, const Entry *entry)
{
    if (entry->ahead == 0)
        return "turn";
    return arena_printf(t->arena, entry->ahead > 0 ? "turn + %d" : "turn - %d",
                        entry->ahead > 0 ? entry->ahead : -entry->ahead);
}

const char *trainer_step(Trainer *t)
{
    if (!t->program->flows)
        return "step";
    return t->plan->micro_batches == 1
               ? "s->begin + micro"
               : arena_printf(t->arena, "s->begin + micro / %d", t->plan->micro_batches);
}

const char *trainer_micro(Trainer *t)
{
    if (!t->program->flows)
        return "micro";
    return t->plan->micro_batches == 1
               ? "0"
               : arena_printf(t->arena, "micro %% %d", t->plan->micro_batches);
}

/* Steps that may have begun when the sum of one is known, behind that one: the most of any stage.
 */
static int depth(const Trainer *t)
{
    int most = 0;
    for (int s = 0; s < t->program->stages; s++) {
        int own = t->program->stage[s].ahead + t->program->stage[s].lag;
        most = own > most ? own : most;
    }
    return most;
}

/* Homes have versions one behind the other; what is brought together for a use lies elsewhere. */
static void print_weight_at(Trainer *t, Emit *out)
{
    Str homes = str_new(t->arena);
    for (int s = 0; s < t->program->stages; s++) {
        const Ring *versions = &t->program->stage[s].versions;
        bool near = address_memory(versions->base) == MEMORY_HBM;
        str_putf(&homes, "%s%lldL", s ? ", " : "",
                 (long long)(near ? versions->base + versions->stride : 0));
    }
    emit_comment(out, "Weights of the version that the row at work reads, at home or where they "
                      "were brought together for it.");
    emit_open_function(out, "static inline void *weight_at(const State *s, int64_t address)");
    if (trainer_fetches(t)) {
        emit_line(out, "static const int64_t homes[] = {%s}; /* their end, by stage */", homes.at);
        emit_line(out, "if (address >= homes[s->rank->stage])");
        emit_line(out, "    return arena_at(s, address);");
    }
    emit_line(out, "return arena_at(s, s->version + address);");
    emit_close(out, "");
    emit_blank(out);
}

void trainer_print_flow_helpers(Trainer *t, Emit *out)
{
    emit_comment(out, "Is this a step of the run since the last drain? Steps and micro-batches "
                      "count from there.");
    emit_open_function(out, "static inline bool in_run(const State *s, int step)");
    emit_line(out, "return step >= 0 && step < s->steps;");
    emit_close(out, "");
    emit_blank(out);
    emit_comment(out, "Where a version of the weights is, behind the first slot: as many updates "
                      "since the last drain, of which a stage keeps n.");
    emit_open_function(out, "static inline int64_t version_at(int updates, int n, int64_t stride)");
    emit_line(out, "return (updates > 0 ? updates %% n : 0) * stride;");
    emit_close(out, "");
    emit_blank(out);
    print_weight_at(t, out);
    Str slots = str_new(t->arena);
    for (int s = 0; s < t->program->stages; s++)
        str_putf(&slots, "%s%d", s ? ", " : "", t->program->stage[s].pair.n);
    emit_comment(out, "Where a step's loss and norm are until the world's sum of them is there: a "
                      "ring, by stage.");
    emit_open_function(out, "static inline Totals *totals_of(const State *s, int step)");
    emit_line(out, "static const int totals[] = {%s};", slots.at);
    emit_line(out, "return arena_at(s, TOTALS_AT + step %% totals[s->rank->stage] * %d);",
              PAIR_BYTES);
    emit_close(out, "");
    emit_blank(out);
    emit_comment(out, "Turn i updates step i.");
    emit_open_function(out, "static void turn_begin(State *s, int turn)");
    emit_line(out, "if (!in_run(s, turn))");
    emit_line(out, "    return;");
    emit_line(out, "lp_flow_turn(s->begin + turn);");
    emit_line(out, "s->lr = lp_lr(s->begin + turn);");
    emit_line(out, "s->step = (double)(s->begin + turn) + 1.0;");
    emit_close(out, "");
    emit_blank(out);
    emit_comment(out,
                 "Loss and norm of a step are there, on all ranks at the same step: when one of "
                 "them wants to stop, no step begins that has not begun anywhere.");
    emit_open_function(out, "static void settle(State *s)");
    emit_line(out, "if (s->summed < 0)");
    emit_line(out, "    return;");
    emit_line(out, "lp_wait(&s->world);");
    emit_line(out, "const int step = s->summed;");
    emit_line(out, "const Totals *totals = totals_of(s, step);");
    emit_line(out, "s->summed = -1;");
    emit_line(out, "s->loss = totals->loss[0];");
    emit_line(out, "s->norm = sqrt(lp_exact_value(&totals->norm2));");
    int losses = net_losses(t->net);
    for (int k = 1; k < losses; k++)
        emit_line(out, "lp_loss_beside(%d, totals->loss[%d]);", k, k);
    emit_line(out, "lp_flow_end(s->begin + step, s->loss, s->norm, totals->stop > 0.0);");
    emit_line(out, "if (totals->stop > 0.0 && s->steps > step + %d)", depth(t) + 2);
    emit_line(out, "    s->steps = step + %d;", depth(t) + 2);
    emit_close(out, "");
    emit_blank(out);
}

void trainer_print_version(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    int micros = t->plan->micro_batches;
    const char *step = micros == 1 ? "micro" : arena_printf(t->arena, "micro / %d", micros);
    if (stage->delay > 0)
        emit_line(out, "s->version = version_at(%s - %d, %d, %lldL); /* %d stale */", step,
                  stage->delay, stage->delay + 1, (long long)stage->versions.stride, stage->delay);
    else
        emit_line(out, "s->version = 0;");
}

void trainer_print_versions(Trainer *t, Emit *out, int s)
{
    const Ring *versions = &t->program->stage[s].versions;
    static const char *const name[] = {"older", "newer"}, *const step[] = {"step", "step + 1"};
    for (int k = 0; k < 2; k++)
        emit_line(out, "const int64_t %s = version_at(%s, %d, %lldL);", name[k], step[k],
                  versions->n, (long long)versions->stride);
}

void trainer_print_world(Emit *out, int s)
{
    emit_comment(out, "The world's sum of loss and norm of a step, which nobody waits for until "
                      "that of the next begins.");
    emit_open_function(out, "static void stage%d_world(State *s, int step)", s);
    emit_line(out, "settle(s);");
    emit_line(out, "lp_all_reduce(&s->world, LP_WORLD, totals_of(s, step), sizeof(Totals) / "
                   "sizeof(double), LP_F64, LP_SUM);");
    emit_line(out, "s->summed = step;");
    emit_close(out, "");
    emit_blank(out);
}

/* All turns of a stage for so many steps. */
static void print_turns(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    emit_line(out, "for (int turn = %d; turn < s->steps + %d; turn++) {", -stage->ahead,
              stage->lag);
    emit_line(out, "    turn_begin(s, turn);");
    emit_line(out, "    stage%d_turn(s, turn);", s);
    emit_line(out, "}");
    emit_line(out, "updates_end(s);");
    if (stage->delay == 0)
        return;
    const Ring *versions = &stage->versions;
    long long base = address_offset(versions->base), stride = versions->stride;
    const char *memory = trainer_memory[address_memory(versions->base)];
    emit_line(out, "memmove(%s + %lldL, %s + %lldL + version_at(s->steps, %d, %lldL), %lldL);",
              memory, base, memory, base, versions->n, stride, stride);
}

void trainer_print_flow_run(Trainer *t, Emit *out, const char *begin)
{
    emit_line(out, "s->coef = 1.0;");
    emit_line(out, "s->summed = -1;");
    if (trainer_draws(t))
        emit_line(out, "s->seed = (long)rank->options->seed;");
    emit_line(out, "s->begin = %s;", begin);
    emit_line(out, "while ((s->steps = lp_flow_begin(s->begin)) > 0) {");
    out->depth++;
    if (t->plan->stages == 1) {
        print_turns(t, out, 0);
    } else {
        emit_line(out, "switch (rank->stage) {");
        for (int i = 0; i < t->plan->stages; i++) {
            emit_line(out, "case %d:", i);
            out->depth++;
            print_turns(t, out, i);
            emit_line(out, "break;");
            out->depth--;
        }
        emit_line(out, "}");
    }
    emit_line(out, "settle(s);");
    emit_comment(out, "Drained. The newest weights are in the first slot, and count as no update.");
    emit_line(out, "s->begin += s->steps;");
    emit_line(out, "lp_checkpoint(s->begin - 1, states, 3);");
    emit_line(out, "if (lp_evaluation_due(s->begin - 1))");
    emit_line(out, "    evaluate(s, s->begin - 1);");
    out->depth--;
    emit_line(out, "}");
}
