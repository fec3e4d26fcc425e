/* build.h - from a Program to the files of a trainer, their checks, and the compiled trainer. */
#ifndef LPLAN_CODEGEN_BUILD_H
#define LPLAN_CODEGEN_BUILD_H

#include "ir/base/diag.h"
#include "ir/lower/program.h"

typedef struct TrainerOptions {
    const char *plan_hash; /* any text that names the plan */
    bool gemm_bf16;        /* products of matrices round their operands to bf16, sums stay fp32 */
} TrainerOptions;

/* Texts of one plan, the same for the same program and options. */
typedef struct TrainerText {
    const char *trainer; /* trainer.c, or NULL: kernels alone */
    const char *kernels; /* kernels.h, included by it, or NULL */
    const char *cuda;    /* kernels.cu: the same row programs */
    int kernel_count;
    bool gemm_bf16;
} TrainerText;

/* NULL after errors: what this printer cannot express, with a remedy. */
TrainerText *trainer_print(Arena *arena, Diag *diag, const Program *program,
                           const TrainerOptions *options);
/* kernels.cu alone, of any recipe: elements are loaded and stored as the recipe says, the
 * arithmetic between is fp32. */
TrainerText *kernels_print(Arena *arena, Diag *diag, const Program *program);

/* Checks of emitted text: how many problems were found; each is appended as an error with its line.
 * `*ret_by` names the checker, or says why there is none. */
int check_c_text(Arena *arena, Diag *diag, const char *path, const char *const *args, int arg_count,
                 const char **ret_by);
int check_cuda_text(Arena *arena, Diag *diag, const char *path, const char *text,
                    const char **ret_by);
int check_cuda_nvrtc(Arena *arena, Diag *diag, const char *path, const char *text,
                     const char **ret_by);

#endif
