/* options.c - the trainer's command line: one row per option. */
#include "runtime/core/options.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef enum Kind {
    KIND_TEXT,
    KIND_INT,
    KIND_COUNT,
    KIND_SEED,
    KIND_REAL,
    KIND_FLAG,
    KIND_SCHEDULE,
    KIND_DTYPE
} Kind;

typedef struct Option {
    const char *name, *value, *help;
    Kind kind;
    size_t offset;
    double min, max;
} Option;

#define AT(field) offsetof(LpOptions, field)
#define BIG 9e15 /* below 2^53: exact as a double */

static const Option options_table[] = {
    {"data", "PATH", "text (a byte is a token), llm.c .bin, or `random`", KIND_TEXT, AT(data), 0,
     0},
    {"eval-data", "PATH", "the same for evaluations, which train nothing", KIND_TEXT, AT(eval_data),
     0, 0},
    {"eval-every", "N", "steps between evaluations; 0: only behind the last", KIND_COUNT,
     AT(eval_every), 0, BIG},
    {"eval-steps", "N", "batches of an evaluation; 0: all of its data", KIND_COUNT, AT(eval_steps),
     0, BIG},
    {"eval-only", NULL, "one evaluation of the weights of --init or --resume, and no step",
     KIND_FLAG, AT(eval_only), 0, 0},
    {"document-begin", "TOKEN", "the token that begins every document of packed data", KIND_TEXT,
     AT(document_begin), 0, 0},
    {"document-end", "TOKEN", "the token that ends every document of packed data", KIND_TEXT,
     AT(document_end), 0, 0},
    {"init", "WHAT", "random, or weights: FILE.safetensors or its .index.json", KIND_TEXT, AT(init),
     0, 0},
    {"save", "FILE", "write weights here after the last step, or when told to stop", KIND_TEXT,
     AT(save), 0, 0},
    {"save-as", "TYPE", "numbers of --save: fp32, bf16 or fp16", KIND_DTYPE, AT(save_dtype), 0, 0},
    {"dump-grads", "FILE", "write the first step's gradients here", KIND_TEXT, AT(dump_grads), 0,
     0},
    {"log", "DIR", "write log.jsonl and the ranks' status here", KIND_TEXT, AT(log), 0, 0},
    {"checkpoint", "DIR", "write checkpoints here: at the end, or when told to stop", KIND_TEXT,
     AT(checkpoint), 0, 0},
    {"checkpoint-every", "N", "and every N steps", KIND_COUNT, AT(every), 0, BIG},
    {"keep", "N", "newest checkpoints to leave on disk; 0 is all", KIND_INT, AT(keep), 0, 1e6},
    {"resume", "DIR", "go on from the newest checkpoint there", KIND_TEXT, AT(resume), 0, 0},
    {"offload-dir", "DIR", "folder for the state of plans that keep it in files", KIND_TEXT,
     AT(offload_dir), 0, 0},
    {"trace", "FILE", "write the measured timeline here, for Perfetto", KIND_TEXT, AT(trace), 0, 0},
    {"steps", "N", "steps to run", KIND_COUNT, AT(steps), 0, BIG},
    {"warmup", "N", "steps of linear warm-up", KIND_COUNT, AT(warmup), 0, BIG},
    {"schedule", "NAME", "cosine or constant, after the warm-up", KIND_SCHEDULE, AT(schedule), 0,
     0},
    {"seed", "N", "of initial values and of random data", KIND_SEED, AT(seed), 0, 0},
    {"lr", "F", "largest learning rate", KIND_REAL, AT(lr), 0, 1e6},
    {"min-lr", "F", "learning rate at the end of the cosine", KIND_REAL, AT(min_lr), 0, 1e6},
    {"weight-decay", "F", "decoupled weight decay", KIND_REAL, AT(weight_decay), 0, 1e6},
    {"beta1", "F", "of the first moment", KIND_REAL, AT(beta1), 0, 1},
    {"beta2", "F", "of the second moment", KIND_REAL, AT(beta2), 0, 1},
    {"eps", "F", "added to the root of the second moment", KIND_REAL, AT(eps), 0, 1e6},
    {"clip", "F", "largest global gradient norm; 0 is off", KIND_REAL, AT(clip), 0, 1e30},
    {"loss-scale", "F", "of fp16: where the scale of the loss begins, a power of two", KIND_REAL,
     AT(loss_scale), 1, 16777216},
    {"loss-scale-window", "N", "of fp16: good steps until it doubles", KIND_COUNT,
     AT(loss_scale_window), 1, BIG},
    {"inject-overflow", "STEP:RANK",
     "of fp16: make a gradient infinite there, to see the step skipped", KIND_TEXT, AT(inject), 0,
     0},
    {"timeout", "SECONDS", "end the job after so long a wait without progress", KIND_REAL,
     AT(timeout_s), 0.1, 1e9},
    {"threads", "N", "OpenMP threads of a rank", KIND_INT, AT(threads), 1, 4096},
    {"shake", "SEED", "hold messages back by random times, to look for races; 0 is off", KIND_SEED,
     AT(shake), 0, 0},
    {"synchronous-sends", NULL, "a send ends when its receive has begun, to look for deadlocks",
     KIND_FLAG, AT(synchronous_sends), 0, 0},
    {"deterministic", NULL, "refuse unordered shortcuts", KIND_FLAG, AT(deterministic), 0, 0},
    {"virtual", NULL, "run all ranks as threads of this process", KIND_FLAG, AT(virtual_ranks), 0,
     0},
    {"quiet", NULL, "no line per step", KIND_FLAG, AT(quiet), 0, 0},
};

/* For a launcher, which must know how many ranks to start. */
static void say_job(const LpJob *job, FILE *out)
{
    fprintf(out, "{\"ranks\":%d,\"stages\":%d,\"ranks_per_stage\":%d,\"plan\":\"%s\"}\n",
            job->ranks, job->stages, job->ranks_per_stage, job->plan_hash);
}

static void say_help(const LpJob *job, const char *program, FILE *out)
{
    fprintf(out, "%s: trains %s on %d rank%s\nusage: %s --data PATH [options]\n", program,
            job->name, job->ranks, job->ranks == 1 ? "" : "s", program);
    for (size_t i = 0; i < sizeof options_table / sizeof *options_table; i++) {
        const Option *option = &options_table[i];
        char left[48];
        snprintf(left, sizeof left, "--%s %s", option->name, option->value ? option->value : "");
        fprintf(out, "  %-24s%s\n", left, option->help);
    }
    fprintf(out, "  %-24s%s\n  %-24s%s\n", "--describe", "ranks and plan, as JSON", "--help",
            "this");
}

/* False when `text` is not a value of the option. */
static bool option_set(const Option *option, const char *text, LpOptions *options)
{
    void *field = (char *)options + option->offset;
    char *end = NULL;
    errno = 0;
    switch (option->kind) {
    case KIND_TEXT:
        *(const char **)field = text;
        return *text != '\0';
    case KIND_FLAG:
        *(bool *)field = true;
        return true;
    case KIND_SCHEDULE:
        *(LpSchedule *)field = strcmp(text, "constant") == 0 ? LP_CONSTANT : LP_COSINE;
        return strcmp(text, "constant") == 0 || strcmp(text, "cosine") == 0;
    case KIND_DTYPE:
        *(LpDtype *)field = strcmp(text, "bf16") == 0   ? LP_BF16
                            : strcmp(text, "fp16") == 0 ? LP_F16
                                                        : LP_F32;
        return strcmp(text, "fp32") == 0 || *(LpDtype *)field != LP_F32;
    case KIND_SEED:
        *(uint64_t *)field = strtoull(text, &end, 10);
        return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
    case KIND_INT:
    case KIND_COUNT: {
        long long value = strtoll(text, &end, 10);
        if (end == text || *end != '\0' || errno != 0 || (double)value < option->min ||
            (double)value > option->max)
            return false;
        if (option->kind == KIND_INT)
            *(int *)field = (int)value;
        else
            *(int64_t *)field = value;
        return true;
    }
    default: {
        double value = strtod(text, &end);
        if (end == text || *end != '\0' || !isfinite(value) || value < option->min ||
            value > option->max)
            return false;
        *(double *)field = value;
        return true;
    }
    }
}

static const Option *option_find(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof options_table / sizeof *options_table; i++)
        if (strlen(options_table[i].name) == length &&
            memcmp(options_table[i].name, name, length) == 0)
            return &options_table[i];
    return NULL;
}

static int usage_error(FILE *out, const char *program, const char *what, const char *text)
{
    if (out)
        fprintf(out, "lplan: %s `%s`; see `%s --help`\n", what, text, program);
    return 2;
}

int lp_options_parse(const LpJob *job, int argc, char **argv, FILE *out, LpOptions *ret_options)
{
    *ret_options = job->defaults;
    if (ret_options->timeout_s <= 0)
        ret_options->timeout_s = 25;
    if (job->scales_loss && ret_options->loss_scale <= 0)
        ret_options->loss_scale = 65536;
    if (ret_options->loss_scale_window <= 0)
        ret_options->loss_scale_window = 1000;
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (strcmp(argument, "--describe") == 0) {
            if (out)
                say_job(job, stdout);
            return 0;
        }
        if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
            if (out)
                say_help(job, argv[0], stdout);
            return 0;
        }
        size_t length = strcspn(argument, "=");
        const Option *option = length > 2 && memcmp(argument, "--", 2) == 0
                                   ? option_find(argument + 2, length - 2)
                                   : NULL;
        if (!option)
            return usage_error(out, argv[0], "unknown option", argument);
        const char *value = argument[length] == '=' ? argument + length + 1 : NULL;
        if (option->kind == KIND_FLAG && value)
            return usage_error(out, argv[0], "an option without value has one", argument);
        if (option->kind != KIND_FLAG && !value) {
            if (i + 1 == argc)
                return usage_error(out, argv[0], "no value for", argument);
            value = argv[++i];
        }
        if (!option_set(option, value, ret_options)) {
            char both[256];
            snprintf(both, sizeof both, "--%s %s", option->name, value);
            return usage_error(out, argv[0], "bad value in", both);
        }
    }
    int exponent;
    if (!job->scales_loss && (ret_options->loss_scale > 0 || ret_options->inject))
        return usage_error(out, argv[0], "for plans in fp16 only:",
                           ret_options->inject ? "--inject-overflow" : "--loss-scale");
    if (job->scales_loss && frexp(ret_options->loss_scale, &exponent) != 0.5)
        return usage_error(out, argv[0], "no power of two:", "--loss-scale");
    if (!ret_options->eval_data && (ret_options->eval_only || ret_options->eval_every > 0))
        return usage_error(out, argv[0], "nothing to evaluate on: give", "--eval-data PATH");
    if (ret_options->eval_only && !ret_options->data)
        ret_options->data = ret_options->eval_data;
    if (!ret_options->data)
        return usage_error(out, argv[0], "nothing to train on: give",
                           "--data PATH (or --data random)");
    return -1;
}
