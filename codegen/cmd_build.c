/* cmd_build.c - lplan build: a plan becomes the source of its trainer, checked and compiled. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "codegen/compile.h"
#include "ir/base/cli.h"
#include "ir/base/str.h"
#include "ir/lower/figures.h"
#include "ir/plan.h"

typedef struct Report {
    TextList files;
    const char *c_by, *cuda_by, *nvrtc_by;
    int kernels;
} Report;

/* FNV-1a of the plan file: names it, guards against nobody. */
static const char *plan_hash(Arena *arena, const char *text, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    return arena_printf(arena, "%016" PRIx64, h);
}

static bool check_texts(Cli *cli, const char *folder, const TrainerText *text, Report *report)
{
    const char *cuda_path = arena_printf(cli->arena, "%s/kernels.cu", folder);
    int problems =
        check_cuda_text(cli->arena, cli->diag, cuda_path, text->cuda, &report->cuda_by) +
        check_cuda_nvrtc(cli->arena, cli->diag, cuda_path, text->cuda, &report->nvrtc_by);
    if (!text->trainer)
        return problems == 0;
    const char *args[] = {
        "-std=c11", "-D_DEFAULT_SOURCE",     "-Wall",
        "-Wextra",  "-Wno-unused-parameter", arena_printf(cli->arena, "-I%s", folder)};
    const char *c_path = arena_printf(cli->arena, "%s/trainer.c", folder);
    problems += check_c_text(cli->arena, cli->diag, c_path, args, sizeof args / sizeof *args,
                             &report->c_by);
    return problems == 0;
}

static int64_t peak_bytes(const Program *program)
{
    int64_t most = 0;
    for (int s = 0; s < program->stages; s++)
        most = program->stage[s].arena_bytes > most ? program->stage[s].arena_bytes : most;
    return most;
}

static json_t *json_report(const Program *program, const Report *report)
{
    json_t *files = json_array(), *peaks = json_array();
    for (int i = 0; i < report->files.n; i++)
        json_array_append_new(files, json_string(report->files.at[i]));
    for (int s = 0; s < program->stages; s++)
        json_array_append_new(peaks, json_integer(program->stage[s].arena_bytes));
    Figures figures = figures_of(program);
    return json_pack("{s:o, s:o, s:I, s:o, s:i, s:{s:s, s:s, s:s}}", "memory",
                     figures_json(&figures), "files", files, "peak_bytes",
                     (json_int_t)peak_bytes(program), "stage_bytes", peaks, "kernels",
                     report->kernels, "checks", "c", report->c_by ? report->c_by : "not printed",
                     "cuda", report->cuda_by, "nvrtc", report->nvrtc_by);
}

static void print_report(Cli *cli, const char *folder, const Program *program, const Report *report,
                         bool compiled)
{
    if (cli->json) {
        json_t *json = json_report(program, report);
        fputs(json_text(cli->arena, json), stdout);
        json_decref(json);
        return;
    }
    if (cli->quiet)
        return;
    printf("%s: %d files, %d row kernels", folder, report->files.n, report->kernels);
    Figures figures = figures_of(program);
    Str memory = str_new(cli->arena);
    figures_put(&memory, &figures, NULL);
    if (report->c_by)
        printf(", arena %s a rank\n%s  C checked by     %s",
               str_gib(cli->arena, peak_bytes(program)), memory.at, report->c_by);
    printf("\n  CUDA checked by  %s\n                   %s\n", report->cuda_by, report->nvrtc_by);
    if (compiled)
        printf("  run it           lplan run %s\n", folder);
}

static int build(Cli *cli, bool gemm_bf16)
{
    const char *path = cli->args[0], *folder = cli->output;
    size_t n = 0;
    Net *net = NULL;
    Plan *plan = plan_load(cli->arena, cli->diag, path, &net);
    char *plan_file = plan ? file_read(cli->arena, path, &n) : NULL;
    if (!plan_file)
        return CLI_INPUT;
    const Program *program = program_build(cli->arena, plan, net, NULL, NULL);
    const TrainerOptions options = {.plan_hash = plan_hash(cli->arena, plan_file, n),
                                    .gemm_bf16 = gemm_bf16};
    bool only = cli_has(cli, "kernels-only");
    const TrainerText *text = only ? kernels_print(cli->arena, cli->diag, program)
                                   : trainer_print(cli->arena, cli->diag, program, &options);
    Report report = {
        .c_by = only ? NULL : "not checked", .cuda_by = "not checked", .nvrtc_by = "not checked"};
    if (!text || !folder_take(cli->arena, cli->diag, folder) ||
        !(only ? kernels_write : trainer_write)(cli->arena, cli->diag, folder, text, &report.files))
        return CLI_INPUT;
    report.kernels = text->kernel_count;
    if (!cli_has(cli, "no-check") && !check_texts(cli, folder, text, &report))
        return CLI_BUG;
    bool compiled = !only && !cli_has(cli, "no-compile");
    if (!only &&
        !trainer_compile(cli->arena, cli->diag, folder, text->gemm_bf16, compiled, &report.files))
        return CLI_INPUT;
    print_report(cli, folder, program, &report, compiled);
    return CLI_OK;
}

int cmd_build(int argc, char **argv)
{
    static const CliFlag flags[] = {
        {"no-check", NULL, "leave out the checks by libclang and NVRTC", false},
        {"no-compile", NULL, "write the sources only", false},
        {"gemm", "TYPE", "products of matrices: fp32 (default), or bf16 operands with fp32 sums",
         false},
        {"kernels-only", NULL, "kernels.cu alone, of a plan in any recipe: written and checked",
         false},
    };
    static const CliSpec spec = {
        .verb = "build",
        .arguments = "PLAN",
        .about =
            "prints the plan's trainer as C and CUDA under -o DIR, checks both and compiles it",
        .flags = flags,
        .flag_count = sizeof flags / sizeof *flags,
        .min_args = 1,
        .max_args = 1,
    };
    Cli *cli = cli_begin(&spec, argc, argv);
    if (!cli->ready)
        return cli_end(cli, CLI_USAGE);
    const char *gemm = cli_value(cli, "gemm", 0);
    bool bf16 = gemm && str_eq(gemm, "bf16");
    if (gemm && !bf16 && !str_eq(gemm, "fp32")) {
        diag_error(cli->diag, NO_SPAN, "--gemm %s is no type of products", gemm);
        diag_help(cli->diag, "--gemm fp32, or --gemm bf16");
        return cli_end(cli, CLI_USAGE);
    }
    if (bf16 && cli_has(cli, "kernels-only")) {
        diag_error(cli->diag, NO_SPAN, "--gemm is of a trainer, which --kernels-only leaves out");
        diag_help(cli->diag, "leave one of them out");
        return cli_end(cli, CLI_USAGE);
    }
    if (str_eq(cli->output, "-") || str_eq(cli->args[0], "-")) {
        diag_error(cli->diag, NO_SPAN, "build reads a plan file and writes a folder");
        diag_help(cli->diag, "lplan build plan.json -o DIR");
        return cli_end(cli, CLI_USAGE);
    }
    int code = build(cli, bf16);
    return cli_end(cli, code);
}
