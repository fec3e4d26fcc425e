/* compile.h - the files of a trainer on disk, and the system's compiler over them. */
#ifndef LPLAN_CODEGEN_COMPILE_H
#define LPLAN_CODEGEN_COMPILE_H

#include "codegen/build.h"
#include "ir/base/vec.h"

typedef VEC(const char *) TextList;

/* Makes the folder and takes it for this build until the process and its children have ended: two
 * at once would mix their files. What an earlier build made of other texts, folder/trainer, is
 * removed. False after an error. */
bool folder_take(Arena *arena, Diag *diag, const char *folder);

/* Writes the texts, the templates and the runtime under `folder`; their
 * paths, relative to it, are appended. False after an error. */
bool trainer_write(Arena *arena, Diag *diag, const char *folder, const TrainerText *text,
                   TextList *ret_files);
/* The same for a text without a trainer: kernels.cu and what it begins with. */
bool kernels_write(Arena *arena, Diag *diag, const char *folder, const TrainerText *text,
                   TextList *ret_files);
/* Leaves the command that compiles folder/trainer in folder/build.sh and, with `compile`, runs it.
 * False after an error with the compiler's first words. Under `gemm_bf16` it is linked with oneDNN
 * where that is found. */
bool trainer_compile(Arena *arena, Diag *diag, const char *folder, bool gemm_bf16, bool compile,
                     TextList *ret_files);
/* What a command prints on standard output, without the last newline; NULL when it fails. */
char *command_output(Arena *arena, const char *command);

#endif
