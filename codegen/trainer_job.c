/* trainer_job.c - a rank's run from its first step to its last, and the table of the job. */
#include "codegen/trainer.h"

#include "ir/lower/roofline.h"

/* What a checkpoint holds. */
static void print_states(Trainer *t, Emit *out)
{
    bool fewer = t->program->matrices.n > 0; /* second moments than first ones */
    if (fewer)
        emit_line(out, "lp_sparse_state(\"exp_avg_sq\");");
    if (any_cut(t)) {
        emit_line(out, "const int count = boxes_of(s, &moments[rank->stage], WEIGHTS, parts);");
        emit_line(out, "LpPart *boxes = parts + count;");
        emit_line(out, "const int shares = boxes_of(s, &moments[rank->stage], MOMENT1, boxes);");
        emit_line(out, "LpPart *second = boxes + shares;");
        emit_line(out, "%sboxes_of(s, &moments[rank->stage], MOMENT2, second);",
                  fewer ? "const int squares = " : "");
    } else if (fewer) {
        emit_line(out, "const int count = parts_of(s, parts, false);");
        emit_line(out, "const int shares = moments_of(s, &moments[rank->stage], false, boxes);");
        emit_line(out, "LpPart *second = boxes + shares;");
        emit_line(out, "const int squares = moments_of(s, &moments[rank->stage], true, second);");
    } else {
        emit_line(out, "const int count = parts_of(s, parts, false);");
        emit_line(out,
                  "LpPart *second = boxes + moments_of(s, &moments[rank->stage], false, boxes);");
        emit_line(out, "const int shares = moments_of(s, &moments[rank->stage], true, second);");
    }
    emit_line(out, "const LpState states[] = {");
    emit_line(out, "    {\"model\", parts, count, LP_F32},");
    emit_line(out, "    {\"exp_avg\", boxes, shares, LP_F32},");
    emit_line(out, "    {\"exp_avg_sq\", second, %s, LP_F32},", fewer ? "squares" : "shares");
    emit_line(out, "};");
}

/* The same of weights that are stored in 16 bits: files hold those that the optimizer steps. */
static void print_master_states(Trainer *t, Emit *out)
{
    emit_line(out, "const Moments *held = &moments[rank->stage];");
    emit_line(out, "LpPart *parts = boxes;");
    const char *of = any_cut(t) ? "boxes" : "moments";
    emit_line(out, "const int count = %s_of(s, held, MASTER, parts);", of);
    emit_line(out, "LpPart *first = parts + count, *second = first + count;");
    emit_line(out, "%s_of(s, held, MOMENT1, first);", of);
    bool fewer = t->program->matrices.n > 0;
    if (fewer)
        emit_line(out, "lp_sparse_state(\"exp_avg_sq\");");
    emit_line(out, "%s%s_of(s, held, MOMENT2, second);", fewer ? "const int squares = " : "", of);
    emit_line(out, "const LpState states[] = {");
    emit_line(out, "    {\"model\", parts, count, LP_F32},");
    emit_line(out, "    {\"exp_avg\", first, count, LP_F32},");
    emit_line(out, "    {\"exp_avg_sq\", second, %s, LP_F32},", fewer ? "squares" : "count");
    emit_line(out, "};");
    emit_line(out, "const int64_t begin = lp_begin(states, 3);");
    emit_open(out, "for (int b = 0; b < held->bucket_count; b++)");
    if (t->plan->stages == 1) {
        emit_line(out, "stage0_publish(s, b);");
    } else {
        emit_line(out, "switch (rank->stage) {");
        for (int i = 0; i < t->plan->stages; i++) {
            emit_line(out, "case %d:", i);
            emit_line(out, "    stage%d_publish(s, b);", i);
            emit_line(out, "    break;");
        }
        emit_line(out, "}");
    }
    emit_close_slim(out);
    emit_line(out, "for (int b = 0; b < held->bucket_count; b++)");
    emit_line(out, "    lp_wait(&s->bucket[b]);");
}

static void print_run_end(Emit *out, const char *table)
{
    emit_line(out, "if (lp_evaluation_due(-1))");
    emit_line(out, "    evaluate(s, -1);");
    emit_line(out, "updates_end(s);");
    emit_line(out, "lp_finish(parts, count);");
    emit_line(out, "free(%s);", table);
    emit_line(out, "state_end(s);");
    emit_close(out, "");
    emit_blank(out);
}

void trainer_print_run(Trainer *t, Emit *out)
{
    emit_comment(out, "What updates began has ended: weights and state are at home, whole.");
    emit_open_function(out, "static void updates_end(State *s)");
    emit_line(out, "for (int b = 0; b < LP_COUNT(s->bucket); b++)");
    emit_line(out, "    lp_wait(&s->bucket[b]);");
    trainer_print_hops_end(t, out);
    trainer_print_carry_end(t, out);
    trainer_print_sums_end(t, out);
    emit_close(out, "");
    emit_blank(out);
    emit_comment(out, "Nothing is under way when the run ends; bodies finish what they start.");
    emit_open_function(out, "static void state_end(State *s)");
    emit_line(out, "lp_wait(&s->world);");
    emit_line(out, "updates_end(s);");
    trainer_print_spills_end(t, out);
    if (t->plan->stages > 1) {
        emit_open(out, "for (int slot = 0; slot < LP_COUNT(s->send_activation); slot++)");
        emit_line(out, "lp_wait(&s->send_activation[slot]);");
        emit_line(out, "lp_wait(&s->recv_activation[slot]);");
        emit_line(out, "lp_wait(&s->send_gradient[slot]);");
        emit_line(out, "lp_wait(&s->recv_gradient[slot]);");
        emit_close(out, "");
    }
    emit_line(out, "free(s->scratch);");
    emit_line(out, "free(s->pack);");
    emit_close(out, "");
    emit_blank(out);
    emit_open_function(out, "static void run_rank(const LpRank *rank)");
    emit_line(out, "State state = {0}, *s = &state;");
    bool master = t->program->recipe->has_master, cut = any_cut(t) && !master;
    if (!master && !cut)
        emit_line(out, "LpPart parts[MAX_PARTS];");
    const char *table = cut ? "parts" : "boxes";
    emit_line(out, "LpPart *%s = calloc(%d * MAX_MOMENT_PARTS, sizeof *%s);", table,
              master || cut ? 3 : 2, table);
    emit_line(out, "if (!%s)", table);
    emit_line(out, "    lp_fail(3, \"no memory for the table of the optimizer's state\");");
    emit_line(out, "state_begin(s, rank);");
    if (master)
        print_master_states(t, out);
    else
        print_states(t, out);
    if (t->program->flows) {
        trainer_print_flow_run(t, out, master ? "begin" : "lp_begin(states, 3)");
        print_run_end(out, table);
        return;
    }
    emit_open(out, "for (int64_t step = %s; lp_step_begin(step); step++)",
              master ? "begin" : "lp_begin(states, 3)");
    const char *counted = t->program->recipe->scales_loss ? "lp_updates(step)" : "step";
    emit_line(out, "s->lr = lp_lr(%s);", counted);
    emit_line(out, "s->step = (double)%s + 1.0;", counted);
    if (trainer_draws(t)) {
        emit_line(out, "s->seed = (long)rank->options->seed;");
        emit_line(out, "s->begun = step * %lldL;",
                  (long long)(t->plan->micro_batches * t->net->dims.at[t->net->batch].extent));
    }
    if (t->plan->stages == 1) {
        emit_line(out, "stage0_step(s, step);");
    } else {
        emit_line(out, "switch (rank->stage) {");
        for (int i = 0; i < t->plan->stages; i++) {
            emit_line(out, "case %d:", i);
            emit_line(out, "    stage%d_step(s, step);", i);
            emit_line(out, "    break;");
        }
        emit_line(out, "}");
    }
    emit_line(out, "lp_step_end(rank->index == 0 ? s->loss : 0.0, s->norm, s->lr);");
    emit_open(out, "if (lp_checkpoint_due(step))");
    emit_line(out, "updates_end(s);");
    emit_line(out, "lp_checkpoint(step, states, 3);");
    emit_close_slim(out);
    emit_line(out, "if (lp_evaluation_due(step))");
    emit_line(out, "    evaluate(s, step);");
    emit_close(out, "");
    print_run_end(out, table);
}

static int64_t flops_per_step(const Trainer *t)
{
    int64_t flops = 0;
    for (int l = 0; l < t->net->chain.n; l++) {
        const Graph *graph = t->net->classes.at[t->net->chain.at[l].class];
        for (int n = 0; n < graph->nodes.n; n++)
            flops += node_flops(t->net, &graph->nodes.at[n]);
    }
    return flops * t->plan->micro_batches;
}

/* Ids lie below the used rows of the table they are looked up in. */
static int64_t vocabulary(const Trainer *t)
{
    for (int c = 0; c < t->net->classes.n; c++) {
        const Graph *graph = t->net->classes.at[c];
        for (int n = 0; n < graph->nodes.n; n++) {
            const Node *node = &graph->nodes.at[n];
            if (node->op == OP_LOOKUP && node->in[0] == graph->data[DATA_IDS])
                return t->net->dims.at[graph->values.at[node->in[1]].dim[0]].used;
        }
    }
    return 1;
}

/* Sequences hold several documents: some link reads where they begin. */
static bool is_packed(const Net *net)
{
    bool packed = false;
    for (int c = 0; c < net->classes.n; c++)
        packed = packed || net->classes.at[c]->data[DATA_STARTS] != NONE;
    return packed;
}

void trainer_print_job(Trainer *t, Emit *out)
{
    const Plan *plan = t->plan;
    const Job *job = &plan->job;
    Str arenas = str_new(t->arena);
    for (int s = 0; s < plan->stages; s++)
        str_putf(&arenas, "%s%lldL", s ? ", " : "", (long long)t->program->stage[s].arena_bytes);
    emit_line(out, "static const int64_t arena_bytes[] = {%s};", arenas.at);
    for (int m = MEMORY_DRAM; m <= (int)plan_farthest(plan); m++) {
        Str bytes = str_new(t->arena);
        for (int s = 0; s < plan->stages; s++)
            str_putf(&bytes, "%s%lldL", s ? ", " : "",
                     (long long)t->program->stage[s].far_bytes[m]);
        emit_line(out, "static const int64_t %s_bytes[] = {%s};",
                  m == MEMORY_DRAM ? "dram" : "file", bytes.at);
    }
    emit_blank(out);
    emit_line(out, "static const LpJob job = {");
    out->depth++;
    emit_line(out, ".name = \"%s%s\",", emit_clean(t->arena, t->net->name, CLEAN_NAME),
              t->options->gemm_bf16 ? ", products in bf16" : "");
    emit_line(out, ".plan_hash = \"%s\",",
              emit_clean(t->arena, t->options->plan_hash, CLEAN_IDENT));
    emit_line(out, ".ranks = %d,", plan->ranks);
    emit_line(out, ".stages = %d,", plan->stages);
    emit_line(out, ".ranks_per_stage = RANKS_PER_STAGE,");
    emit_line(out, ".params_total = %lld,", (long long)net_param_count(t->net));
    emit_line(out, ".flops_per_step = %lld,", (long long)flops_per_step(t));
    DType factors = t->program->recipe->activation;
    emit_line(out, ".peak_flops = %lld,",
              plan->cluster ? (long long)device_peak_flops(&plan->cluster->device, factors) : 0LL);
    emit_line(out, ".tokens_per_step = %lld,", (long long)(job->global_batch * job->sequence));
    emit_line(out, ".arena_bytes = arena_bytes,");
    if (plan_farthest(plan) >= MEMORY_DRAM)
        emit_line(out, ".dram_bytes = dram_bytes,");
    if (plan_farthest(plan) >= MEMORY_NVME)
        emit_line(out, ".file_bytes = file_bytes,");
    emit_line(out, ".device_bytes = %lld,",
              plan->cluster ? (long long)plan->cluster->device.memory_bytes : 0LL);
    emit_line(out, ".tensors = tensors,");
    emit_line(out, ".tensor_count = LP_COUNT(tensors),");
    if (t->program->recipe->scales_loss)
        emit_line(out, ".scales_loss = true,");
    if (is_packed(t->net))
        emit_line(out, ".packed = true,");
    emit_line(out, ".seq = %lld,", (long long)t->net->dims.at[t->net->sequence].extent);
    emit_line(out, ".vocab = %lld,", (long long)vocabulary(t));
    emit_line(out, ".micro_batches = %d,", plan->micro_batches);
    emit_line(out, ".rows = %lld,", (long long)t->net->dims.at[t->net->batch].extent);
    emit_line(out, ".defaults = {");
    out->depth++;
    emit_line(out,
              ".lr = 3e-4, .weight_decay = %.9g, .beta1 = %.9g, .beta2 = %.9g, .eps = %.9g, .clip "
              "= %.9g,",
              job->decay, job->beta1, job->beta2, job->eps, job->clip > 0 ? job->clip : 0.0);
    emit_line(out, ".steps = 10, .schedule = LP_CONSTANT,");
    if (t->program->recipe->has_master)
        emit_line(out, ".save_dtype = %s,", dtype_constant(t->program->recipe->weight));
    out->depth--;
    emit_line(out, "},");
    emit_line(out, ".run = run_rank,");
    out->depth--;
    emit_line(out, "};");
    emit_blank(out);
    emit_open_function(out, "int main(int argc, char **argv)");
    emit_line(out, "return lp_main(argc, argv, &job);");
    emit_close(out, "");
}
