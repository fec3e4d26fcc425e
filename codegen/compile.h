/* compile.h - the files of a trainer on disk, and the system's compiler over them. */
#ifndef LPLAN_CODEGEN_COMPILE_H
#define LPLAN_CODEGEN_COMPILE_H

#include "codegen/build.h"
#include "ir/base/vec.h"

typedef VEC(const char *) TextList;

/* Writes the texts, the templates and the runtime under `folder` (made if it is not there); their
 * paths, relative to it, are appended. False after an error. */
bool trainer_write(Arena *arena, Diag *diag, const char *folder, const TrainerText *text,
                   TextList *ret_files);
/* The same for a text without a trainer: kernels.cu and what it begins with. */
bool kernels_write(Arena *arena, Diag *diag, const char *folder, const TrainerText *text,
                   TextList *ret_files);
/* Compiles folder/trainer; the command is left in folder/build.sh. False after an error with the
 * compiler's first words. Under `gemm_bf16` it is linked with oneDNN where that is found. */
bool trainer_compile(Arena *arena, Diag *diag, const char *folder, bool gemm_bf16,
                     TextList *ret_files);
/* What a command prints on standard output, without the last newline; NULL when it fails. */
char *command_output(Arena *arena, const char *command);

#endif
