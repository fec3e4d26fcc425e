/* ask.h - what several verbs read from their command line: the model, the cluster, the job, the
 * pins. */
#ifndef LPLAN_PLANNER_ASK_H
#define LPLAN_PLANNER_ASK_H

#include "ir/base/cli.h"
#include "planner/variant.h"

/* Flags that ask_problem and ask_pins read. */
#define ASK_FLAGS                                                                                  \
    {"gpus", "N", "how many devices of the cluster's kind (default: all it has)", false},          \
        {"global-batch", "B", "sequences per optimizer step (default: 8)", false},                 \
        {"seq", "S", "tokens per sequence (default: the model's, at most 4096; else 2048)",        \
         false},                                                                                   \
        {"recipe", "NAME", "fp32, bf16, fp16 or fp64 (default: bf16 on a GPU cluster, else fp32)", \
         false},                                                                                   \
        {"optimizer", "NAME", "adamw, or muon for matrices of hidden layers (muon,steps=5,...)",   \
         false},                                                                                   \
        {"packed", NULL, "sequences hold documents that do not see each other", false},            \
        {"imbalance", "PERCENT",                                                                   \
         "rows of experts of the fullest device, in % of an even share (150)", false},             \
        {"collectives", "NAME,...",                                                                \
         "how groups reduce and gather: the fastest of ring, tree, hierarchical,\n"                \
         "                            nvls, server (default: the cluster's; ring,tree)",           \
         false},                                                                                   \
    {                                                                                              \
        "pin", "KEY=VALUE,...",                                                                    \
            "tp cp dp pp ep etp room rounds exchange zero sp recompute mbs schedule\n"             \
            "                            chunks layers tp_by cp_by cp_heads order shard block\n"   \
            "                            braid, and homes: optimizer_home activation_home\n"       \
            "                            weight_home gradient_home",                               \
            true                                                                                   \
    }
enum { ASK_FLAG_COUNT = 9 };

/* From args[0] (a model file or a Hugging Face config.json) and args[1] (a cluster file or preset).
 * False after errors. */
bool ask_problem(Cli *cli, Problem *ret);
bool ask_pins(Cli *cli, Pins *ret);
/* A deadline such as "0.5s", "300ms" or "2m", in ns. False after an error. */
bool ask_time(Cli *cli, const char *flag, int64_t *ret_ns);

#endif
