/* problems.c - problems for the planner's tests. */
#include "tests/planner/problems.h"

#include <stdlib.h>
#include <string.h>

#include "planner/import_hf.h"
#include "tests/check.h"

static const char *root(void)
{
    const char *path = getenv("LPLAN_SOURCE_ROOT");
    return path ? path : ".";
}

static void must(const Problem *problem, bool good)
{
    if (!good)
        fail_msg("%s",
                 diag_count(problem->diag) ? diag_item(problem->diag, 0)->text : "no problem");
}

Problem *problem_example(Arena *arena, const char *model, const char *cluster, int devices,
                         int64_t batch, int64_t sequence, const char *recipe)
{
    Problem *problem = ARENA_NEW(arena, Problem);
    *problem =
        (Problem){.arena = arena, .diag = diag_new(arena), .job = job_default(), .ranks = devices};
    problem->job.global_batch = batch;
    problem->job.sequence = sequence;
    problem->job.recipe = recipe;
    const char *path = arena_printf(arena, "%s/examples/models/%s.json", root(), model);
    problem->model = import_model(arena, problem->diag, path, NULL);
    problem->cluster = cluster_load(arena, problem->diag, cluster);
    must(problem, problem->model && problem->cluster);
    must(problem, cluster_resize(problem->diag, problem->cluster, devices));
    must(problem, problem_read(problem));
    return problem;
}

void problem_free(Problem *problem)
{
    json_doc_free(problem->model);
}

Pins pins_given(const Problem *problem, const char *text)
{
    Pins pins = pins_none();
    must(problem, pins_parse(problem->arena, problem->diag, text, &pins));
    return pins_complete(problem, pins);
}

int64_t dice(Dice *dice, int64_t low, int64_t high)
{
    return low + (int64_t)(rng_u64(dice->seed, 0, dice->next++) % (uint64_t)(high - low + 1));
}

static const char *llama_config(Arena *arena, int heads, int layers, int vocabulary, bool tied)
{
    int width = 16 * heads;
    return arena_printf(
        arena,
        "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"],"
        " \"hidden_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d,"
        " \"num_key_value_heads\": %d, \"intermediate_size\": %d, \"vocab_size\": %d,"
        " \"max_position_embeddings\": 64, \"hidden_act\": \"silu\","
        " \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0,"
        " \"tie_word_embeddings\": %s}",
        width, layers, heads, heads / 2, 2 * width, vocabulary, tied ? "true" : "false");
}

static const char *mixtral_config(Arena *arena, int heads, int layers, int vocabulary, int experts,
                                  int chosen)
{
    int width = 16 * heads;
    return arena_printf(
        arena,
        "{\"model_type\": \"mixtral\", \"architectures\": [\"MixtralForCausalLM\"],"
        " \"hidden_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d,"
        " \"num_key_value_heads\": %d, \"intermediate_size\": %d, \"vocab_size\": %d,"
        " \"max_position_embeddings\": 64, \"hidden_act\": \"silu\","
        " \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, \"tie_word_embeddings\": false,"
        " \"num_local_experts\": %d, \"num_experts_per_tok\": %d}",
        width, layers, heads, heads / 2, 2 * width, vocabulary, experts, chosen);
}

/* Figures that make every term matter: compute, launches, links and memory are all of one order. */
static Cluster *small_cluster(Arena *arena, Dice *rng, int inner, int outer)
{
    Cluster *cluster = ARENA_NEW(arena, Cluster);
    *cluster = (Cluster){.name = "random",
                         .devices = inner * outer,
                         .levels = outer > 1 ? 2 : 1,
                         .collectives = ALGORITHMS_USUAL};
    cluster->device = (Device){.name = "toy",
                               .memory_bytes = dice(rng, 400, 4000) << 10,
                               .margin_bytes = 1 << 10,
                               .flops_f32 = dice(rng, 20, 200) * 1000000000,
                               .flops_bf16 = dice(rng, 20, 200) * 1000000000,
                               .memory_bytes_per_s = dice(rng, 5, 50) * 1000000000,
                               .launch_ns = dice(rng, 0, 5000),
                               .gemm_permille = 700,
                               .small_gemm_flops = dice(rng, 0, 1000000),
                               .memory_permille = 900,
                               .target = "host"};
    cluster->level[0] = (LinkLevel){.name = "inner",
                                    .width = inner,
                                    .bytes_per_s = dice(rng, 1, 20) * 1000000000,
                                    .latency_ns = dice(rng, 100, 5000),
                                    .half_bytes = dice(rng, 0, 20000)};
    cluster->level[1] = (LinkLevel){.name = "outer",
                                    .width = outer,
                                    .bytes_per_s = dice(rng, 1, 8) * 250000000,
                                    .latency_ns = dice(rng, 1000, 50000),
                                    .half_bytes = dice(rng, 0, 20000)};
    return cluster;
}

static void read_config(Problem *problem, const char *text)
{
    Import import;
    Arena *arena = problem->arena;
    JsonDoc *config = json_parse(arena, problem->diag, "<made>", text, strlen(text));
    must(problem,
         config && import_hf(arena, json_root(config), "made", &(ImportOptions){0}, &import));
    const char *model = json_text(arena, import.model);
    json_decref(import.model);
    json_doc_free(config);
    problem->model = json_parse(arena, problem->diag, "<model>", model, strlen(model));
    must(problem, problem->model && problem_read(problem));
}

Problem *problem_deep(Arena *arena, int layers, bool tied, int64_t batch)
{
    Problem *problem = ARENA_NEW(arena, Problem);
    Dice rng = {3, 0};
    *problem = (Problem){.arena = arena, .diag = diag_new(arena), .job = job_default(), .ranks = 8};
    problem->job.global_batch = batch;
    problem->job.sequence = 64;
    problem->job.recipe = "fp32";
    problem->cluster = small_cluster(arena, &rng, 8, 1);
    problem->cluster->device.memory_bytes = INT64_C(1) << 36;
    read_config(problem, llama_config(arena, 4, layers, 1024, tied));
    return problem;
}

static Problem *random_job(Arena *arena, Dice *rng)
{
    Problem *problem = ARENA_NEW(arena, Problem);
    int inner = 1 << dice(rng, 1, 2), outer = 1 << dice(rng, 0, 1);
    *problem = (Problem){
        .arena = arena, .diag = diag_new(arena), .job = job_default(), .ranks = inner * outer};
    problem->job.global_batch = 4 << dice(rng, 0, 2);
    problem->job.sequence = 16 << dice(rng, 0, 2);
    problem->job.recipe = dice(rng, 0, 1) ? "fp32" : "bf16";
    problem->cluster = small_cluster(arena, rng, inner, outer);
    return problem;
}

Problem *problem_sparse(Arena *arena, Dice *rng, int most_layers)
{
    Problem *problem = random_job(arena, rng);
    problem->cluster->device.memory_bytes *= 3;
    int layers = (int)dice(rng, 1, most_layers), vocabulary = (int)dice(rng, 2, 40) * 16;
    int experts = 4 << dice(rng, 0, 1), chosen = (int)dice(rng, 1, 2);
    problem->imbalance = (int)dice(rng, 0, 1) * 200;
    read_config(problem, mixtral_config(arena, 2, layers, vocabulary, experts, chosen));
    return problem;
}

Problem *problem_long(Arena *arena, Dice *rng, int most_layers)
{
    Problem *problem = random_job(arena, rng);
    Device *device = &problem->cluster->device;
    problem->job.sequence = LONG_SEQUENCE;
    problem->job.global_batch = 1 << dice(rng, 0, 1); /* dp has little to share */
    device->memory_bytes *= 128;
    device->attention_permille = dice(rng, 0, 1) * 500;
    device->attention_row_pairs = dice(rng, 0, 1) * 400;
    /* links as much faster as sequences are longer, so that each of them is worth something */
    for (int i = 0; i < problem->cluster->levels; i++)
        problem->cluster->level[i].bytes_per_s *= 16;
    int heads = 2 << dice(rng, 0, 1), layers = (int)dice(rng, 1, most_layers);
    read_config(problem, llama_config(arena, heads, layers, 64, false));
    return problem;
}

Problem *problem_random(Arena *arena, Dice *rng, int most_layers)
{
    Problem *problem = random_job(arena, rng);
    int heads = 2 << dice(rng, 0, 1), layers = (int)dice(rng, 2, most_layers),
        vocabulary = (int)dice(rng, 2, 40) * 16;
    read_config(problem, llama_config(arena, heads, layers, vocabulary, dice(rng, 0, 1)));
    return problem;
}
