/* test_agree.c - cards against Programs: segment time and Step time within 1 %, card bytes and
 * layout bytes within 2 % and never below, and two accounts of a step that say the same. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "ir/lower/state.h"
#include "ir/plan_job.h"
#include "planner/assess.h"
#include "planner/search.h"
#include "tests/check.h"
#include "tests/planner/made.h"

static const Case cases[] = {
    {"llama-10m", "host", 1, 8, 128, "fp32", "tp=1"},
    {"llama-10m", "host", 2, 8, 128, "fp32", "tp=2"},
    {"llama-10m", "host", 2, 8, 128, "fp32", "tp=2,sp=1"},
    {"llama-10m", "host", 2, 8, 128, "fp32", "dp=2"},
    {"llama-10m", "host", 2, 8, 128, "fp32", "dp=2,zero=0,mbs=2"},
    {"llama-10m", "host", 2, 8, 128, "fp32", "pp=2"},
    {"llama-10m", "host", 2, 8, 128, "bf16", "pp=2,schedule=gpipe"},
    {"llama-10m", "host", 2, 8, 128, "fp32", "pp=2,recompute=full,layers=3+5"},
    {"llama-10m", "host", 4, 8, 128, "fp32", "tp=2,dp=2,sp=1,recompute=full"},
    {"llama-10m", "host", 4, 8, 128, "fp32", "tp=2,pp=2,sp=1"},
    {"llama-10m", "host", 4, 8, 128, "fp32", "dp=2,pp=2,schedule=gpipe"},
    {"llama-10m", "host", 4, 8, 128, "fp32", "pp=4"},
    {"llama-10m", "host", 4, 8, 128, "fp32", "dp=4,mbs=2"},
    {"llama-10m", "host", 4, 8, 128, "fp32", "tp=4"},
    {"llama-10m", "host", 1, 8, 128, "fp32 muon", "tp=1"},
    {"llama-10m", "host", 4, 8, 128, "bf16 muon", "dp=4,zero=1,mbs=2"},
    {"llama-10m", "host", 8, 8, 128, "fp32 muon", "tp=2,dp=2,pp=2,sp=1,zero=1"},
    {"llama-3-8b", "dgx-h100", 64, 64, 8192, "bf16 muon", "tp=8,sp=1,dp=4,pp=2,zero=1"},
    {"llama-3-8b", "dgx-h100", 32, 64, 4096, "bf16 muon", "dp=32,zero=1,recompute=full"},
    {"gpt2", "dgx-h100", 8, 64, 1024, "bf16", "dp=8"},
    {"gpt2", "dgx-h100", 8, 64, 1024, "bf16", "dp=2,pp=4"},
    {"gpt2", "dgx-h100", 8, 64, 1024, "bf16", "tp=2,dp=2,pp=2"},
    {"gpt2", "dgx-a100", 4, 16, 1024, "bf16", "tp=2,sp=1,pp=2,recompute=full"},
    {"qwen2.5-7b", "dgx-h100", 16, 32, 4096, "bf16", "tp=4,sp=1,dp=4"},
    {"qwen3-8b", "dgx-h200", 16, 32, 4096, "bf16", "tp=2,pp=4,dp=2,sp=1"},
    {"llama-3-8b", "dgx-h100", 64, 64, 8192, "bf16", "tp=8,sp=1,dp=4,pp=2"},
    {"llama-3-8b", "dgx-h100", 32, 64, 4096, "bf16", "tp=4,dp=2,pp=4,recompute=full,sp=1"},
    {"pythia-160m", "dgx-a100", 8, 32, 2048, "bf16", "dp=2,pp=4,schedule=gpipe"},
    {"mixtral-8x7b", "dgx-h100", 8, 16, 4096, "bf16",
     "dp=8,ep=8,room=150,exchange=padded,recompute=full"},
    {"mistral-7b", "dgx-a100", 32, 64, 4096, "bf16", "tp=8,sp=1,dp=2,pp=2"},
};
enum { CASES = sizeof cases / sizeof *cases };

static void test_segment_time_is_step_time(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = 0; i < CASES; i++) {
        Made made = make(&cases[i]);
        int64_t *end = ARENA_ARRAY(made.arena, int64_t, made.family->order->n);
        int64_t segment = family_segment(made.family, made.plan->first_link, end);
        int64_t step = simulate_program(made.arena, made.program, NULL)->step_ns;
        if (off(segment, step) > 0.01)
            fail_msg("%s %s: segments %lld ns, Steps %lld ns", cases[i].model, cases[i].pins,
                     (long long)segment, (long long)step);
        worst = off(segment, step) > worst ? off(segment, step) : worst;
        done(&made);
    }
    print_message("# %d plans, at most %.2f %% apart\n", CASES, 100 * worst);
}

static void test_card_bytes_cover_the_layout(void **state)
{
    (void)state;
    int exact = 0, stages = 0;
    for (int i = 0; i < CASES; i++) {
        Made made = make(&cases[i]);
        for (int s = 0; s < made.plan->stages; s++) {
            const int *first = made.plan->first_link;
            const StageCost *cost = family_stage(made.family, s, first[s], first[s + 1]);
            const StageProgram *stage = &made.program->stage[s];
            int64_t card = stage_bytes(made.family, cost, s);
            if (card < stage->arena_bytes || off(card, stage->arena_bytes) > 0.02)
                fail_msg("%s %s, stage %d: cards %lld bytes, layout %lld", cases[i].model,
                         cases[i].pins, s, (long long)card, (long long)stage->arena_bytes);
            assert_int_equal(cost->weight_bytes, stage->group_bytes[0]);
            assert_int_equal(cost->gradient_bytes, stage->group_bytes[1]);
            assert_int_equal(cost->state_bytes, stage->group_bytes[2]);
            assert_int_equal(cost->buckets, stage->buckets.n);
            for (int ring = 0; ring < RING_COUNT; ring++) {
                if (stage->chunk[0].ring[ring].stride)
                    assert_true(made.family->order->slots[ring][s] >= stage->chunk[0].ring[ring].n);
                assert_int_equal(cost->stride[ring], stage->chunk[0].ring[ring].stride);
            }
            exact += card == stage->arena_bytes;
            stages++;
        }
        done(&made);
    }
    print_message("# %d of %d stages to the byte\n", exact, stages);
}

/* Several chunks on a stage, backward in two parts: cards are those of the split bodies, and bytes
 * are at least those of the layout, whose lives may be shorter. */
static const Case many[] = {
    {"llama-10m", "host", 2, 8, 128, "fp32", "pp=2,schedule=interleaved"},
    {"llama-10m", "host", 4, 8, 128, "fp32", "dp=2,pp=2,schedule=zbv"},
    {"llama-10m", "host", 4, 8, 128, "fp32", "pp=4,schedule=zbh1"},
    {"gpt2", "dgx-h100", 8, 64, 1024, "bf16", "dp=2,pp=4,schedule=interleaved,chunks=3"},
    {"gpt2", "dgx-h100", 8, 64, 1024, "bf16", "tp=2,pp=4,schedule=zbv"},
    {"gpt2", "dgx-h100", 8, 64, 1024, "bf16", "tp=2,pp=4,schedule=dualpipev,recompute=full"},
    {"llama-3-8b", "dgx-h100", 32, 64, 4096, "bf16", "tp=4,dp=2,pp=4,sp=1,schedule=zbh1"},
    {"llama-3-8b", "dgx-h100", 32, 64, 4096, "bf16",
     "tp=8,pp=4,sp=1,schedule=interleaved,chunks=4"},
};

static void test_chunks_agree(void **state)
{
    (void)state;
    double worst = 0, fullest = 0;
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        Made made = make(&many[i]);
        int64_t *end = ARENA_ARRAY(made.arena, int64_t, made.family->order->n);
        int64_t segment = family_segment(made.family, made.plan->first_link, end);
        StepTimes *steps = simulate_program(made.arena, made.program, NULL);
        double apart = off(segment, steps->step_ns);
        if (apart > 0.015)
            fail_msg("%s %s: segments %lld ns, Steps %lld ns", many[i].model, many[i].pins,
                     (long long)segment, (long long)steps->step_ns);
        worst = apart > worst ? apart : worst;
        for (int s = 0; s < made.plan->stages; s++) {
            StageBytes bytes = family_bytes(made.family, made.plan->first_link, s);
            const StageProgram *stage = &made.program->stage[s];
            assert_int_equal(spent_sum(&steps->stage[s]), steps->step_ns);
            if (bytes.all < stage->arena_bytes)
                fail_msg("%s %s, stage %d: cards %lld bytes, layout %lld", many[i].model,
                         many[i].pins, s, (long long)bytes.all, (long long)stage->arena_bytes);
            assert_int_equal(bytes.state, stage->group_bytes[2]);
            double more = off(bytes.all, stage->arena_bytes);
            fullest = more > fullest ? more : fullest;
        }
        StepTimes *account = account_plan(made.arena, made.family, made.plan->first_link);
        assert_int_equal(account->step_ns, segment);
        for (int s = 0; s < made.plan->stages; s++)
            assert_int_equal(spent_sum(&account->stage[s]), segment);
        done(&made);
    }
    print_message("# at most %.2f %% apart in time, %.1f %% above in bytes\n", 100 * worst,
                  100 * fullest);
}

/* Every nanosecond of every stage has one cause, and both accounts see the same work and the same
 * bytes. */
static void test_accounts_are_whole_and_agree(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        Made made = make(&cases[i]);
        StepTimes *steps = simulate_program(made.arena, made.program, NULL);
        StepTimes *cards = account_plan(made.arena, made.family, made.plan->first_link);
        for (int s = 0; s < made.plan->stages; s++) {
            const StageTimes *a = &steps->stage[s], *b = &cards->stage[s];
            assert_int_equal(spent_sum(a), steps->step_ns);
            assert_int_equal(spent_sum(b), cards->step_ns);
            assert_int_equal(a->flops, b->flops);
            assert_true(off(a->spent_ns[SPENT_COMPUTE], b->spent_ns[SPENT_COMPUTE]) < 0.005);
            assert_int_equal(a->busy_ns[STREAM_BLOCK], b->busy_ns[STREAM_BLOCK]);
            assert_int_equal(a->busy_ns[STREAM_SEND_ACT], b->busy_ns[STREAM_SEND_ACT]);
        }
        done(&made);
    }
}

/* The plan's own classes, lifted to its mesh, are the classes the search added up. */
static void test_a_plan_file_prices_as_it_was_found(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i += 3) {
        Made made = make(&cases[i]);
        int64_t *end = ARENA_ARRAY(made.arena, int64_t, made.family->order->n);
        Family *own = family_of_plan(made.arena, made.problem, made.plan, made.net);
        assert_int_equal(family_segment(own, made.plan->first_link, end),
                         family_segment(made.family, made.plan->first_link, end));
        done(&made);
    }
}

/* Every plan file of examples/plans keeps the same promises. */
static void test_example_plans(void **state)
{
    (void)state;
    const char *root = getenv("LPLAN_SOURCE_ROOT");
    Arena *arena = arena_new("examples");
    DIR *folder = root ? opendir(arena_printf(arena, "%s/examples/plans", root)) : NULL;
    int plans = 0;
    for (struct dirent *at = folder ? readdir(folder) : NULL; at; at = readdir(folder)) {
        if (!strstr(at->d_name, ".json"))
            continue;
        Net *net;
        Diag *diag = diag_new(arena);
        Plan *plan = plan_load(arena, diag,
                               arena_printf(arena, "%s/examples/plans/%s", root, at->d_name), &net);
        if (!plan)
            fail_msg("%s: %s", at->d_name, diag_item(diag, 0)->text);
        const Assessment *it = assess_plan(arena, plan, net, INT64_MAX);
        if (off(it->segment_ns, it->step_ns) > 0.01)
            fail_msg("%s: segments %lld ns, Steps %lld ns", at->d_name, (long long)it->segment_ns,
                     (long long)it->step_ns);
        assert_true(it->peak_bytes <= it->budget_bytes);
        plans++;
    }
    if (folder)
        closedir(folder);
    arena_free(arena);
    print_message("# %d example plans\n", plans);
}

/* Homes of gradients and weights that are cut: bytes to the byte, and rows that wait for weights
 * and for buffers as long as in the Steps. Where rows of one direction follow each other, or those
 * of other chunks, what waits hangs on more than the row before. */
static const Case cut[] = {
    {"llama-10m", "host", 2, 8, 128, "fp32", "dp=2,zero=2"},
    {"llama-10m", "host", 2, 8, 128, "fp32", "dp=2,zero=3"},
    {"llama-10m", "host", 4, 8, 128, "fp32", "tp=2,dp=2,sp=1,zero=3"},
    {"llama-10m", "host", 4, 8, 128, "fp32", "dp=2,pp=2,zero=3"},
    {"gpt2", "dgx-h100", 8, 64, 1024, "bf16", "dp=8,zero=2"},
    {"gpt2", "dgx-h100", 8, 64, 1024, "bf16", "dp=8,zero=3,mbs=4"},
    {"gpt2", "dgx-h100", 16, 64, 1024, "bf16", "dp=16,zero=3,shard=node"},
    {"qwen2.5-7b", "dgx-h100", 16, 32, 4096, "bf16", "tp=2,sp=1,dp=8,zero=3"},
    {"llama-3-8b", "dgx-h100", 64, 64, 4096, "bf16", "dp=64,zero=3,recompute=full"},
    {"llama-3-8b", "dgx-h100", 32, 64, 4096, "bf16", "dp=32,zero=3,shard=weights"},
    {"llama-3-8b", "dgx-h100", 32, 64, 4096, "bf16", "tp=4,dp=2,pp=4,sp=1,zero=3,schedule=zbh1"},
    {"llama-10m", "host", 4, 8, 128, "fp32", "dp=2,pp=2,zero=2,schedule=gpipe"},
    {"llama-10m", "host", 4, 8, 128, "fp32", "dp=2,pp=2,zero=3,schedule=gpipe"},
    {"gpt2", "dgx-h100", 8, 64, 1024, "bf16", "dp=2,pp=4,zero=3,schedule=gpipe"},
    {"llama-10m", "host", 4, 8, 128, "fp32", "dp=2,pp=2,zero=3,schedule=zbv"},
    {"llama-10m", "host", 4, 8, 128, "fp32", "dp=2,pp=2,zero=3,schedule=interleaved"},
    {"gpt2", "dgx-h100", 8, 64, 1024, "bf16", "dp=2,pp=4,zero=3,schedule=interleaved,chunks=3"},
};
enum { CUT = sizeof cut / sizeof *cut, CUT_TURNS = 11 }; /* those in which directions alternate */

static void test_cut_homes_agree(void **state)
{
    (void)state;
    double worst[2] = {0};
    for (int i = 0; i < CUT; i++) {
        Made made = make(&cut[i]);
        const int *first = made.plan->first_link;
        int64_t *end = ARENA_ARRAY(made.arena, int64_t, made.family->order->n);
        int64_t segment = family_segment(made.family, first, end);
        StepTimes *steps = simulate_program(made.arena, made.program, NULL);
        double apart = off(segment, steps->step_ns), most = i < CUT_TURNS ? 0.015 : 0.06;
        if (apart > most)
            fail_msg("%s %s: segments %lld ns, Steps %lld ns", cut[i].model, cut[i].pins,
                     (long long)segment, (long long)steps->step_ns);
        worst[i >= CUT_TURNS] = apart > worst[i >= CUT_TURNS] ? apart : worst[i >= CUT_TURNS];
        StepTimes *account = account_plan(made.arena, made.family, first);
        assert_int_equal(account->step_ns, segment);
        for (int s = 0; s < made.plan->stages; s++) {
            StageBytes bytes = family_bytes(made.family, first, s);
            const StageProgram *stage = &made.program->stage[s];
            assert_int_equal(bytes.weights, stage->group_bytes[0]);
            assert_int_equal(bytes.gradients, stage->group_bytes[1]);
            assert_int_equal(bytes.state, stage->group_bytes[2]);
            assert_int_equal(bytes.transients, stage->scratch_bytes + 4 * stage->pass_bytes +
                                                   stage->fetched_bytes + stage->buffers_bytes);
            assert_true(bytes.all >= stage->arena_bytes);
            assert_true(i >= CUT_TURNS || off(bytes.all, stage->arena_bytes) < 0.02);
            assert_int_equal(spent_sum(&steps->stage[s]), steps->step_ns);
            assert_int_equal(spent_sum(&account->stage[s]), segment);
        }
        done(&made);
    }
    print_message("# %d plans, at most %.2f %% apart, and %.2f %% where rows follow their like\n",
                  CUT, 100 * worst[0], 100 * worst[1]);
}

/* What lives in other memories: the device's bytes and theirs, what passes between, and rows and
 * updates that wait for it. */
static const Case far[] = {
    {"llama-10m", "host", 1, 8, 128, "fp32", "tp=1,activation_home=dram"},
    {"llama-10m", "host", 2, 8, 128, "fp32", "pp=2,activation_home=nvme"},
    {"llama-10m", "host", 2, 8, 128, "fp32", "dp=2,optimizer_home=nvme"},
    {"llama-10m", "host", 4, 8, 128, "bf16", "dp=2,pp=2,zero=3,activation_home=dram"},
    {"llama-10m", "host", 4, 16, 128, "fp32", "pp=4,schedule=zbh1,activation_home=dram"},
    {"gpt2", "dgx-h100", 8, 64, 1024, "bf16", "dp=8,activation_home=dram,optimizer_home=dram"},
    {"gpt2", "dgx-h100", 8, 64, 1024, "bf16",
     "dp=2,pp=4,mbs=4,schedule=gpipe,activation_home=dram"},
    {"llama-3-8b", "dgx-h100", 32, 64, 8192, "bf16",
     "tp=4,dp=2,pp=4,sp=1,recompute=full,activation_home=dram"},
    {"llama-3-8b", "dgx-h100", 8, 64, 8192, "bf16", "tp=8,sp=1,activation_home=dram"},
    {"llama-3-8b", "dgx-h100", 8, 64, 8192, "bf16",
     "tp=8,sp=1,activation_home=dram,0:activation_home=hbm,2:activation_home=hbm,"
     "8-12:activation_home=hbm,20-24:recompute=full"},
    {"llama-10m", "host", 4, 16, 128, "fp32",
     "pp=4,schedule=zbh1,activation_home=dram,0-3:activation_home=hbm"},
    {"gpt2", "dgx-h100", 8, 64, 1024, "bf16",
     "dp=2,pp=4,mbs=4,schedule=gpipe,1-3:activation_home=dram,7-:activation_home=dram"},
    {"llama-3-8b", "dgx-h100", 8, 64, 4096, "bf16", "tp=8,sp=1,zero=1,optimizer_home=nvme"},
    {"qwen2.5-7b", "dgx-h100", 16, 32, 4096, "bf16",
     "tp=2,sp=1,dp=4,pp=2,zero=1,optimizer_home=dram,activation_home=nvme"},
    {"llama-10m", "host", 2, 8, 128, "fp32", "pp=2,weight_home=nvme"},
    {"llama-10m", "host", 2, 8, 128, "fp32", "pp=2,schedule=gpipe,weight_home=nvme"},
    {"llama-10m", "host", 2, 8, 128, "bf16", "dp=2,zero=3,weight_home=dram"},
    {"llama-3-8b", "dgx-h100", 32, 64, 4096, "bf16",
     "dp=32,zero=3,recompute=full,weight_home=nvme"},
    {"llama-3-8b", "dgx-h100", 8, 64, 8192, "bf16",
     "tp=8,sp=1,mbs=4,weight_home=nvme,optimizer_home=nvme"},
    {"llama-3-8b", "dgx-h100", 8, 8, 8192, "bf16",
     "dp=8,zero=3,recompute=full,weight_home=dram,optimizer_home=dram"},
    {"llama-10m", "host", 4, 8, 128, "fp32 muon",
     "dp=2,pp=2,zero=3,weight_home=dram,optimizer_home=dram"},
    {"llama-10m", "host", 2, 8, 128, "fp32", "pp=2,schedule=2bw,optimizer_home=dram"},
    {"llama-10m", "host", 4, 8, 128, "bf16",
     "dp=2,pp=2,zero=3,schedule=2bw,weight_home=dram,optimizer_home=dram,activation_home=dram"},
    {"llama-10m", "host", 4, 2, 128, "fp32",
     "dp=2,pp=2,zero=3,mbs=1,schedule=pipedream,weight_home=dram"},
    {"llama-3-8b", "dgx-h100", 8, 64, 8192, "bf16",
     "dp=8,zero=3,recompute=full,weight_home=dram,gradient_home=dram,optimizer_home=dram,"
     "activation_home=dram"},
    {"llama-10m", "host", 2, 64, 128, "fp32", "pp=2,mbs=1,gradient_home=nvme"},
    {"llama-10m", "host", 2, 8, 128, "fp32", "dp=2,zero=1,gradient_home=dram"},
    {"llama-10m", "host", 2, 8, 128, "bf16", "dp=2,zero=2,mbs=1,gradient_home=dram"},
    {"llama-3-8b", "dgx-h100", 8, 64, 8192, "bf16",
     "dp=8,zero=2,recompute=full,gradient_home=dram"},
    {"llama-3-8b", "dgx-h100", 8, 64, 8192, "bf16",
     "tp=8,sp=1,mbs=4,gradient_home=dram,optimizer_home=dram"},
};
enum { FAR = sizeof far / sizeof *far };

static void test_far_homes_agree(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = 0; i < FAR; i++) {
        Made made = make(&far[i]);
        const int *first = made.plan->first_link;
        int64_t *end = ARENA_ARRAY(made.arena, int64_t, made.family->order->n);
        int64_t segment = family_segment(made.family, first, end);
        StepTimes *steps = simulate_program(made.arena, made.program, NULL);
        double apart = off(segment, steps->step_ns);
        bool cuts = made.plan->weight_atoms != 0; /* rows then wait for two things at once, */
        bool flows = made.program->flows; /* and those of short steps while others are at work */
        double most = cuts && flows && made.plan->micro_batches == 1 ? 0.04 : cuts ? 0.03 : 0.01;
        if (apart > most)
            fail_msg("%s %s: segments %lld ns, Steps %lld ns", far[i].model, far[i].pins,
                     (long long)segment, (long long)steps->step_ns);
        worst = apart > worst ? apart : worst;
        StepTimes *account = /* of a step from begin to end */
            flows ? steps : account_plan(made.arena, made.family, first);
        assert_true(flows || account->step_ns == segment);
        for (int s = 0; s < made.plan->stages; s++) {
            StageBytes bytes = family_bytes(made.family, first, s);
            const StageProgram *stage = &made.program->stage[s];
            assert_int_equal(bytes.state, stage->group_bytes[2]);
            assert_int_equal(bytes.weights, stage->group_bytes[0]);
            assert_int_equal(bytes.gradients, stage->group_bytes[1]);
            if (made.plan->memory[KEPT_WEIGHTS] != MEMORY_HBM && stage->delay > 0)
                assert_true(bytes.far[MEMORY_DRAM] >= stage->versions.stride * stage->versions.n);
            for (int m = MEMORY_DRAM; m < MEMORY_COUNT; m++) /* slots of state are not counted */
                if (made.plan->memory[KEPT_WEIGHTS] == MEMORY_NVME &&
                    made.plan->memory[KEPT_STATE] == MEMORY_HBM)
                    assert_int_equal(bytes.far[m], stage->far_bytes[m]);
            assert_true(bytes.all >= stage->arena_bytes);
            assert_true(off(bytes.all, stage->arena_bytes) < 0.07); /* rings of GPipe's edges */
            Memory home = made.plan->memory[KEPT_SAVED];
            const StageCost *cost = family_stage(made.family, s, first[s], first[s + 1]);
            for (int kind = 0; kind < SAVED_IW && home != MEMORY_HBM; kind++) {
                const Chunk *chunk = &stage->chunk[0];
                assert_int_equal(cost->stride[RING_SAVED + kind], chunk->away[kind].stride);
                assert_int_equal(cost->stride[RING_STAYS + kind],
                                 chunk->ring[RING_STAYS + kind].stride);
            }
            if (home != MEMORY_HBM)
                assert_true(bytes.far[home] >= stage->chunk[0].away[0].stride);
            for (int m = MEMORY_DRAM; m < MEMORY_COUNT; m++) {
                assert_int_equal(steps->stage[s].store_bytes[m], account->stage[s].store_bytes[m]);
                assert_int_equal(steps->stage[s].store_ns[m], account->stage[s].store_ns[m]);
            }
            assert_int_equal(spent_sum(&steps->stage[s]), steps->step_ns);
            assert_int_equal(spent_sum(&account->stage[s]), account->step_ns);
        }
        done(&made);
    }
    print_message("# %d plans, at most %.2f %% apart\n", FAR, 100 * worst);
}

/* Layers that differ: what cards say of each is what the Steps of the whole plan take. */
static const Case divided[] = {
    {"llama-10m", "host", 4, 8, 128, "fp32", "tp=2,dp=2,zero=1,0-1:zero=3,2:tp=4:sp=1"},
    {"llama-10m", "host", 8, 8, 128, "fp32", "tp=2,dp=2,pp=2,1-2:tp=4,3:recompute=full:zero=0"},
    {"llama-3-8b", "dgx-h100", 16, 64, 8192, "bf16",
     "tp=8,sp=1,dp=2,mbs=2,0-7:recompute=full,8-15:tp=4:cp=2,16-31:zero=2:recompute=attention"},
    {"llama-10m", "host", 2, 8, 128, "bf16",
     "dp=2,zero=3,mbs=1,weight_home=dram,1-2:weight_home=hbm,0-1:gradient_home=dram"},
    {"llama-10m", "host", 4, 8, 128, "fp32",
     "dp=2,pp=2,zero=3,0-1:weight_home=dram:gradient_home=nvme,last:zero=0:weight_home=dram"},
    {"llama-3-8b", "dgx-h100", 8, 64, 8192, "bf16",
     "tp=8,sp=1,8-15:optimizer_home=nvme,24-:optimizer_home=dram,last:optimizer_home=dram"},
    {"llama-10m", "host", 4, 8, 128, "bf16 muon",
     "dp=2,pp=2,zero=3,optimizer_home=nvme,first:optimizer_home=hbm,2-5:optimizer_home=hbm"},
    {"llama-10m", "host", 2, 8, 128, "fp32", "dp=2,zero=1,-3:optimizer_home=dram"},
};
enum { DIVIDED = sizeof divided / sizeof *divided };

static void test_layers_that_differ(void **state)
{
    (void)state;
    for (int i = 0; i < DIVIDED; i++) {
        const Case *at = &divided[i];
        Arena *arena = arena_new("divided");
        Problem *problem = case_problem(arena, at);
        Pins pins = pins_complete(problem, pins_given(problem, at->pins));
        Net *net;
        Plan *plan = plan_make(problem, &pins, NULL, &net);
        if (!plan)
            fail_msg("%s: %s", at->pins, diag_item(problem->diag, 0)->text);
        assert_true(plan->part != NULL && net->classes.n > problem->net->classes.n);
        Pins said = pins_of_plan(plan, net);
        assert_true(said.ranges > 0);
        Net *again_net; /* and what it is said by makes it again */
        Plan *again = plan_make(problem, &said, NULL, &again_net);
        assert_non_null(again);
        assert_string_equal(plan_text(arena, again, again_net), plan_text(arena, plan, net));
        const Program *program = program_build(arena, plan, net, NULL, NULL);
        Problem own = problem_of_plan(arena, plan, net);
        Family *family = family_of_plan(arena, &own, plan, net);
        int64_t step = simulate_program(arena, program, NULL)->step_ns,
                segment = account_plan(arena, family, plan->first_link)->step_ns;
        if (off(segment, step) > 0.03)
            fail_msg("%s %s: segments %lld ns, Steps %lld ns", at->model, at->pins,
                     (long long)segment, (long long)step);
        for (int s = 0; s < plan->stages; s++) {
            const int *first = plan->first_link;
            const StageCost *cost = family_stage(family, s, first[s], first[s + 1]);
            const StageProgram *stage = &program->stage[s];
            assert_int_equal(cost->weight_bytes, stage->group_bytes[0]);
            assert_int_equal(cost->gradient_bytes, stage->group_bytes[1]);
            assert_int_equal(cost->state_bytes, stage->group_bytes[2]);
            assert_int_equal(cost->buckets, stage->buckets.n);
            StageBytes bytes = family_bytes(family, first, s);
            for (int m = MEMORY_DRAM; m < MEMORY_COUNT; m++) { /* without slots */
                int slots = state_slots((Memory)m, stage->state_way.n[m]) * state_fields(program);
                int64_t far = stage->far_bytes[m] - slots * stage->state_slot_bytes[m];
                assert_true(bytes.far[m] <= far && far - bytes.far[m] <= FILE_GRAIN);
            }
        }
        problem_free(problem);
        arena_free(arena);
    }
}

/* A plan of chunks of so many layers, of which the last off[chunk] are let off recomputing; its
 * bytes by the cost of its stages, and its step. */
static int64_t let_off(Problem *problem, const Pins *base, const int *off, int64_t *ret_ns)
{
    Pins pins = *base;
    int layers = (problem->net->chain.n - 2) / pins_chunks(&pins);
    for (int c = 0; c < pins_chunks(&pins); c++)
        if (off[c] > 0)
            assert_true(pins_parse(problem->arena, problem->diag,
                                   arena_printf(problem->arena, "%d-%d:recompute=none",
                                                (c + 1) * layers - off[c], (c + 1) * layers - 1),
                                   &pins));
    Net *net;
    Plan *plan = plan_make(problem, &pins, NULL, &net);
    assert_non_null(plan);
    const Assessment *it = assess_plan(problem->arena, plan, net, ASSESS_STEPS);
    int64_t most = 0;
    for (int s = 0; s < plan->stages; s++) {
        int64_t own = family_bytes(it->family, plan->first_link, s).all;
        most = own > most ? own : most;
    }
    *ret_ns = it->step_ns;
    return most;
}

enum { MOST_CHUNKS = 4 };

/* Of all numbers of layers of its chunks the fastest that fits. */
static int64_t fastest_let_off(Problem *problem, const Pins *base, int64_t budget)
{
    int chunks = pins_chunks(base), each = (problem->net->chain.n - 2) / chunks + 1, all = 1;
    int64_t best = INT64_MAX, ns;
    for (int c = 0; c < chunks; c++)
        all *= each;
    for (int i = 0; i < all; i++) {
        int off[MOST_CHUNKS], rest = i;
        for (int c = 0; c < chunks; c++, rest /= each)
            off[c] = rest % each;
        if (let_off(problem, base, off, &ns) <= budget && ns < best)
            best = ns;
    }
    return best;
}

/* What memory has room for is found as by trying every number of layers of every chunk, by the
 * Steps of whole plans. Of schedules with several chunks a stage's layers may be spread so that the
 * step ends a little sooner. */
static void test_mixes_by_brute_force(void **state)
{
    (void)state;
    static const char *const base[] = {
        "tp=1,dp=2,pp=1,sp=0,mbs=4,zero=1,schedule=1f1b",
        "tp=1,dp=1,pp=2,sp=0,mbs=4,zero=0,schedule=1f1b,layers=4+4",
        "tp=1,dp=1,pp=2,sp=0,mbs=1,zero=0,schedule=zbh1,layers=4+4",
        "tp=1,dp=1,pp=2,sp=0,mbs=1,zero=0,schedule=interleaved,layers=2+2+2+2",
        "tp=1,dp=1,pp=2,sp=0,mbs=1,zero=0,schedule=zbv,layers=2+2+2+2",
    };
    enum { BASES = sizeof base / sizeof *base };
    int mixed = 0;
    for (int i = 0; i < 4 * BASES; i++) {
        if (i % BASES > 1 && i / BASES != 2)
            continue;
        Arena *arena = arena_new("mix");
        Problem *problem = problem_example(arena, "llama-10m", "host", 2, 8, 128, "fp32");
        Pins given = pins_none(),
             pins = pins_given(problem, arena_printf(arena, "%s,recompute=full", base[i % BASES]));
        int layers = (problem->net->chain.n - 2) / pins_chunks(&pins);
        const int no[MOST_CHUNKS] = {0}, every[MOST_CHUNKS] = {layers, layers, layers, layers};
        int64_t ns, all = let_off(problem, &pins, no, &ns),
                    none = let_off(problem, &pins, every, &ns);
        int64_t budget = all + (none - all) * (i / BASES + 1) / 5;
        problem->cluster->device.memory_bytes = budget + problem->cluster->device.margin_bytes;
        SearchResult result;
        SearchLimits limits = {0};
        Search *search = search_new(problem);
        assert_true(pins_parse(arena, problem->diag, base[i % BASES], &given));
        search_run(search, &given, &limits, &result);
        assert_true(result.found);
        mixed += result.best.pins.ranges > 0;
        Net *net;
        Plan *plan = plan_make(problem, &result.best.pins, NULL, &net);
        const Assessment *it = assess_plan(arena, plan, net, ASSESS_STEPS);
        assert_true(it->peak_bytes <= budget);
        assert_int_equal(it->segment_ns, result.best.step_ns);
        assert_true(off(it->segment_ns, it->step_ns) < 0.01);
        /* or the head, too */
        assert_true((double)it->step_ns <= 1.001 * (double)fastest_let_off(problem, &pins, budget));
        search_free(search);
        problem_free(problem);
        arena_free(arena);
    }
    assert_true(mixed >= 9);
}

/* A long step from two short ones. */
static void test_extrapolation(void **state)
{
    (void)state;
    static const Case at = {
        "llama-3.1-70b", "dgx-h100", 64, 128, 4096, "bf16", "tp=8,sp=1,dp=2,pp=4,recompute=full"};
    Made made = make(&at);
    StepTimes *whole = simulate_program(made.arena, made.program, NULL);
    StepTimes *drawn = simulate_plan(made.arena, made.plan, made.net, made.program);
    assert_true(drawn->simulated_micros < made.plan->micro_batches);
    assert_true(off(drawn->step_ns, whole->step_ns) < 0.001);
    assert_true(off(drawn->steps, whole->steps) < 0.001);
    for (int s = 0; s < made.plan->stages; s++) {
        assert_int_equal(spent_sum(&drawn->stage[s]), drawn->step_ns);
        assert_true(off(drawn->stage[s].flops, whole->stage[s].flops) < 0.001);
    }
    done(&made);
}

/* A label that the blocks do not have is no plan, not the nearest one. */
static void test_labels_that_are_not_there(void **state)
{
    (void)state;
    Arena *arena = arena_new("labels");
    Problem *problem = problem_example(arena, "llama-10m", "host", 1, 8, 128, "fp32");
    Pins pins = pins_complete(problem, pins_given(problem, "tp=1"));
    Net *net;
    pins.block = 7;
    assert_null(plan_make(problem, &pins, NULL, &net));
    assert_non_null(strstr(diag_item(problem->diag, 0)->text, "pin block=7"));
    pins.block = 0;
    assert_non_null(plan_make(problem, &pins, NULL, &net));
    problem_free(problem);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_segment_time_is_step_time),
        cmocka_unit_test(test_card_bytes_cover_the_layout),
        cmocka_unit_test(test_chunks_agree),
        cmocka_unit_test(test_accounts_are_whole_and_agree),
        cmocka_unit_test(test_a_plan_file_prices_as_it_was_found),
        cmocka_unit_test(test_example_plans),
        cmocka_unit_test(test_cut_homes_agree),
        cmocka_unit_test(test_far_homes_agree),
        cmocka_unit_test(test_layers_that_differ),
        cmocka_unit_test(test_mixes_by_brute_force),
        cmocka_unit_test(test_extrapolation),
        cmocka_unit_test(test_labels_that_are_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
