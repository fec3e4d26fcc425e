/* compile.c - the files of a trainer on disk, and the system's compiler over them. */
#include "codegen/compile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codegen/files.h"
#include "ir/base/str.h"
#include "templates/templates.h"

/* ---- files ---- */

/* Makes every folder of the path but the last part. */
static bool make_folders(Arena *arena, const char *path)
{
    char *copy = arena_strdup(arena, path);
    for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(copy, 0777) != 0 && errno != EEXIST)
            return false;
        *slash = '/';
    }
    return true;
}

static bool cannot_write(Diag *diag, const char *path)
{
    diag_error(diag, NO_SPAN, "cannot write %s: %s", path, strerror(errno));
    diag_help(diag, errno == ENOSPC ? "make room there, or choose another folder with -o DIR"
                                    : "choose a folder that may be written with -o DIR");
    return false;
}

bool folder_take(Arena *arena, Diag *diag, const char *folder)
{
    const char *trainer = arena_printf(arena, "%s/trainer", folder);
    if (!make_folders(arena, trainer))
        return cannot_write(diag, folder);
    /* Stays open, in children too: a compiler may outlive us. Not all file systems can lock. */
    int lock = open(folder, O_RDONLY);
    if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        diag_error(diag, NO_SPAN, "another build is writing %s", folder);
        diag_help(diag, "wait for it, or choose another folder with -o DIR");
        return false;
    }
    if (unlink(trainer) != 0 && errno != ENOENT)
        return cannot_write(diag, trainer);
    return true;
}

static bool write_one(Arena *arena, Diag *diag, const char *folder, const char *name,
                      const char *text, TextList *ret_files)
{
    const char *path = arena_printf(arena, "%s/%s", folder, name);
    if (!make_folders(arena, path) || !file_write(path, text, strlen(text)))
        return cannot_write(diag, path);
    vec_push(arena, ret_files) = name;
    return true;
}

bool trainer_write(Arena *arena, Diag *diag, const char *folder, const TrainerText *text,
                   TextList *ret_files)
{
    bool fine = write_one(arena, diag, folder, "trainer.c", text->trainer, ret_files) &&
                write_one(arena, diag, folder, "kernels.h", text->kernels, ret_files) &&
                write_one(arena, diag, folder, "kernels.cu", text->cuda, ret_files);
    for (int i = 0; fine && template_name(i); i++) {
        const char *name = arena_printf(arena, "templates/%s", template_name(i));
        fine = write_one(arena, diag, folder, name, template_text(template_name(i)), ret_files);
    }
    for (int i = 0; fine && i < embedded_file_count; i++) {
        const char *name = arena_printf(arena, "runtime/%s", embedded_files[i].path);
        fine = write_one(arena, diag, folder, name, embedded_files[i].text, ret_files);
    }
    return fine;
}

bool kernels_write(Arena *arena, Diag *diag, const char *folder, const TrainerText *text,
                   TextList *ret_files)
{
    static const char prelude[] = "cuda/prelude.cuh";
    return write_one(arena, diag, folder, "kernels.cu", text->cuda, ret_files) &&
           write_one(arena, diag, folder, arena_printf(arena, "templates/%s", prelude),
                     template_text(prelude), ret_files);
}

/* ---- the compiler ---- */

char *command_output(Arena *arena, const char *command)
{
    FILE *pipe = popen(command, "r");
    if (!pipe)
        return NULL;
    char buffer[1024];
    Str text = str_new(arena);
    while (fgets(buffer, sizeof buffer, pipe))
        str_put(&text, buffer);
    if (pclose(pipe) != 0)
        return NULL;
    while (text.n && (text.at[text.n - 1] == '\n' || text.at[text.n - 1] == ' '))
        text.at[--text.n] = 0;
    return text.at;
}

static const char *quoted(Arena *arena, const char *text)
{
    Str out = str_new(arena);
    str_putc(&out, '\'');
    for (const char *c = text; *c; c++) {
        if (*c == '\'')
            str_put(&out, "'\\''");
        else
            str_putc(&out, *c);
    }
    str_putc(&out, '\'');
    return out.at;
}

/* Compiler and linker flags of MPI, or NULL. */
static const char *mpi_flags(Arena *arena)
{
    static const char *const asks[][2] = {
        {"mpicc --showme:compile 2>/dev/null", "mpicc --showme:link 2>/dev/null"},
        {"pkg-config --cflags ompi-c 2>/dev/null", "pkg-config --libs ompi-c 2>/dev/null"},
        {"pkg-config --cflags mpi-c 2>/dev/null", "pkg-config --libs mpi-c 2>/dev/null"},
        {"pkg-config --cflags mpich 2>/dev/null", "pkg-config --libs mpich 2>/dev/null"},
    };
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        const char *compile = command_output(arena, asks[i][0]),
                   *link = command_output(arena, asks[i][1]);
        if (compile && link)
            return arena_printf(arena, "%s %s", compile, link);
    }
    return NULL;
}

/* The openmp build of OpenBLAS where the system keeps it apart: all builds share one soname, and
 * the pthread one competes with OpenMP for the cores. */
static const char *blas_flags(Arena *arena, const char *cc)
{
    const char *triplet =
        command_output(arena, arena_printf(arena, "%s -print-multiarch 2>/dev/null", cc));
    const char *apart = triplet ? arena_printf(arena, "/usr/lib/%s/openblas-openmp", triplet) : "";
    struct stat info;
    if (triplet && stat(apart, &info) == 0)
        return arena_printf(arena, "-L%s -Wl,-rpath,%s -lopenblas", apart, apart);
    const char *found = command_output(arena, "pkg-config --libs openblas 2>/dev/null");
    return found && *found ? found : "-lopenblas";
}

static const char *sources(Arena *arena)
{
    Str list = str_new(arena);
    str_put(&list, "trainer.c");
    for (int i = 0; i < embedded_file_count; i++) {
        size_t n = strlen(embedded_files[i].path);
        if (n > 2 && strcmp(embedded_files[i].path + n - 2, ".c") == 0)
            str_putf(&list, " runtime/%s", embedded_files[i].path);
    }
    return list.at;
}

/* Not every compiler knows every flag: asked on an empty file. */
static bool takes(Arena *arena, const char *cc, const char *flag)
{
    return command_output(
               arena, arena_printf(arena, "%s %s -Werror -fsyntax-only -x c /dev/null 2>/dev/null",
                                   cc, flag)) != NULL;
}

/* Flags of oneDNN where its headers and library are of the version that gemm_bf16.h is written for;
 * none where not. */
static const char *onednn_flags(Arena *arena, const char *cc)
{
    const char *probe = "printf '#include <oneapi/dnnl/dnnl.h>\n#if DNNL_VERSION_MAJOR != 2\n"
                        "#error\n#endif\nint main(void) { return dnnl_version() == 0; }\n'";
    bool found = command_output(arena, arena_printf(arena,
                                                    "%s | %s -x c - -ldnnl -o /dev/null "
                                                    "2>/dev/null",
                                                    probe, cc)) != NULL;
    return found ? " -DLP_ONEDNN -ldnnl" : "";
}

static const char *build_script(Arena *arena, const char *cc, const char *mpi, const char *blas)
{
    return arena_printf(
        arena,
        "#!/bin/sh\n"
        "# Compiles this trainer; run it again after a change, or on another machine.\n"
        "cd \"$(dirname \"$0\")\" || exit 1\n"
        "exec ${CC:-%s} -std=c11 -D_DEFAULT_SOURCE -O3 -march=native%s \\\n"
        "    -fno-math-errno -fno-trapping-math -ffp-contract=fast -fopenmp -I. \\\n"
        "    %s \\\n"
        "    %s %s -lm -lpthread -ldl -o trainer\n",
        cc, takes(arena, cc, "-mprefer-vector-width=512") ? " -mprefer-vector-width=512" : "",
        sources(arena), mpi, blas);
}

static bool write_script(Arena *arena, Diag *diag, const char *folder, const char *script)
{
    const char *path = arena_printf(arena, "%s/build.sh", folder);
    return (file_write(path, script, strlen(script)) && chmod(path, 0755) == 0) ||
           cannot_write(diag, path);
}

static bool run_script(Arena *arena, const char *folder, const char **ret_words)
{
    const char *path = arena_printf(arena, "%s/build.sh", folder);
    FILE *pipe = popen(arena_printf(arena, "sh %s 2>&1", quoted(arena, path)), "r");
    if (!pipe)
        return false;
    char buffer[1024];
    Str text = str_new(arena);
    while (fgets(buffer, sizeof buffer, pipe)) {
        if (text.n < 4000)
            str_put(&text, buffer);
    }
    *ret_words = text.at;
    return pclose(pipe) == 0;
}

static bool refused(Diag *diag, const char *folder, const char *words)
{
    diag_error(diag, NO_SPAN, "the compiler refused %s/trainer.c", folder);
    diag_said(diag, words);
    diag_help(diag, "run %s/build.sh to see it again; CC names another compiler", folder);
    return false;
}

bool trainer_compile(Arena *arena, Diag *diag, const char *folder, bool gemm_bf16, bool compile,
                     TextList *ret_files)
{
    const char *cc = getenv("CC"), *mpi = mpi_flags(arena), *words = "";
    if (!cc || !*cc)
        cc = mpi ? "cc" : "mpicc";
    const char *onednn = gemm_bf16 ? onednn_flags(arena, cc) : "",
               *libraries = arena_printf(arena, "%s%s", blas_flags(arena, cc), onednn),
               *script = build_script(arena, cc, mpi ? mpi : "", libraries);
    if (!write_script(arena, diag, folder, script))
        return false;
    vec_push(arena, ret_files) = "build.sh";
    if (!compile)
        return true;
    if (!mpi) {
        diag_error(diag, NO_SPAN, "no MPI found: neither mpicc nor pkg-config knows one");
        diag_help(diag, "install OpenMPI's headers, or run %s/build.sh where there is mpicc",
                  folder);
        return false;
    }
    if (!run_script(arena, folder, &words)) {
        if (!strstr(words, "openblas"))
            return refused(diag, folder, words);
        diag_warning(diag, NO_SPAN,
                     "no OpenBLAS to link: the trainer multiplies matrices in plain C");
        diag_help(diag, "install the openmp build of OpenBLAS and build again");
        libraries = arena_printf(arena, "-DLP_NO_BLAS%s", onednn);
        if (!write_script(arena, diag, folder, build_script(arena, cc, mpi, libraries)))
            return false;
        if (!run_script(arena, folder, &words))
            return refused(diag, folder, words);
    }
    vec_push(arena, ret_files) = "trainer";
    return true;
}
