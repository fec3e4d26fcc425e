/* check.c - emitted text through libclang and NVRTC, before anybody compiles it.
 *
 * libclang is linked when the compiler was built with it (LPLAN_LIBCLANG); NVRTC is opened at run
 * time. Either may be absent: that is said, and is no failure. */
#include "codegen/build.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/str.h"
#include "templates/templates.h"

#ifdef LPLAN_LIBCLANG
#include <clang-c/Index.h>

static int count_problems(Diag *diag, CXTranslationUnit unit)
{
    int problems = 0;
    unsigned n = clang_getNumDiagnostics(unit);
    for (unsigned i = 0; i < n; i++) {
        CXDiagnostic found = clang_getDiagnostic(unit, i);
        CXString text = clang_formatDiagnostic(found, CXDiagnostic_DisplaySourceLocation |
                                                          CXDiagnostic_DisplayColumn);
        if (clang_getDiagnosticSeverity(found) >= CXDiagnostic_Warning) {
            diag_error(diag, NO_SPAN, "emitted text: %s", clang_getCString(text));
            problems++;
        }
        clang_disposeString(text);
        clang_disposeDiagnostic(found);
    }
    return problems;
}

static int check_with(Arena *arena, Diag *diag, const char *path, struct CXUnsavedFile *unsaved,
                      int unsaved_count, const char *const *args, int arg_count,
                      const char **ret_by)
{
    CXString version = clang_getClangVersion();
    *ret_by = arena_strdup(arena, clang_getCString(version));
    clang_disposeString(version);
    CXIndex index = clang_createIndex(0, 0);
    CXTranslationUnit unit = NULL;
    enum CXErrorCode code =
        clang_parseTranslationUnit2(index, path, args, arg_count, unsaved, (unsigned)unsaved_count,
                                    CXTranslationUnit_None, &unit);
    int problems = 1;
    if (code == CXError_Success)
        problems = count_problems(diag, unit);
    else
        diag_error(diag, NO_SPAN, "libclang could not parse %s (code %d)", path, (int)code);
    clang_disposeTranslationUnit(unit);
    clang_disposeIndex(index);
    return problems;
}

int check_c_text(Arena *arena, Diag *diag, const char *path, const char *const *args, int arg_count,
                 const char **ret_by)
{
    return check_with(arena, diag, path, NULL, 0, args, arg_count, ret_by);
}

int check_cuda_text(Arena *arena, Diag *diag, const char *path, const char *text,
                    const char **ret_by)
{
    /* Device only: there `asm` constraints are checked; sm_80 is what old versions know. An
     * installed toolkit is not looked at. */
    static const char *const args[] = {"-x",
                                       "cuda",
                                       "--cuda-device-only",
                                       "--cuda-gpu-arch=sm_80",
                                       "-nocudainc",
                                       "-nocudalib",
                                       "--cuda-path=/nonexistent",
                                       "-Wall",
                                       "-Wno-unused-function"};
    const char *whole = arena_printf(arena, "%s\n%s\n%s", template_text("cuda/stub.h"),
                                     template_text("cuda/prelude.cuh"), text);
    struct CXUnsavedFile file = {path, whole, (unsigned long)strlen(whole)};
    return check_with(arena, diag, path, &file, 1, args, sizeof args / sizeof *args, ret_by);
}

#else

int check_c_text(Arena *arena, Diag *diag, const char *path, const char *const *args, int arg_count,
                 const char **ret_by)
{
    (void)arena;
    (void)diag;
    (void)path;
    (void)args;
    (void)arg_count;
    *ret_by = "none: built without libclang";
    return 0;
}

int check_cuda_text(Arena *arena, Diag *diag, const char *path, const char *text,
                    const char **ret_by)
{
    (void)text;
    return check_c_text(arena, diag, path, NULL, 0, ret_by);
}

#endif

/* ---- NVRTC ---- */

typedef struct Nvrtc {
    void *library;
    int (*version)(int *major, int *minor);
    int (*arch_count)(int *n);
    int (*archs)(int *arch);
    int (*create)(void **program, const char *text, const char *name, int headers,
                  const char *const *header, const char *const *header_name);
    int (*compile)(void *program, int options, const char *const *option);
    int (*log_size)(void *program, size_t *bytes);
    int (*log)(void *program, char *text);
    int (*destroy)(void **program);
} Nvrtc;

static void *open_library(Arena *arena)
{
    static const char *const variables[] = {"CUDA_HOME", "CUDA_PATH"};
    static const char *const folders[] = {"lib64", "lib", "targets/x86_64-linux/lib",
                                          "targets/sbsa-linux/lib"};
    static const char *const names[] = {"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"};
    for (size_t v = 0; v < 2; v++) {
        const char *root = getenv(variables[v]);
        for (size_t f = 0; root && f < sizeof folders / sizeof *folders; f++) {
            /* Found by name alone from inside libnvrtc: opened first, and global. */
            dlopen(arena_printf(arena, "%s/%s/libnvrtc-builtins.so", root, folders[f]),
                   RTLD_NOW | RTLD_GLOBAL);
            void *library =
                dlopen(arena_printf(arena, "%s/%s/libnvrtc.so", root, folders[f]), RTLD_NOW);
            if (library)
                return library;
        }
    }
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        void *library = dlopen(names[n], RTLD_NOW);
        if (library)
            return library;
    }
    return NULL;
}

/* POSIX lets a pointer from dlsym be a function; ISO C has no cast for it. */
static bool load(void *library, const char *name, void *ret_function)
{
    void *symbol = dlsym(library, name);
    memcpy(ret_function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool nvrtc_open(Arena *arena, Nvrtc *ret)
{
    ret->library = open_library(arena);
    return ret->library && load(ret->library, "nvrtcVersion", &ret->version) &&
           load(ret->library, "nvrtcGetNumSupportedArchs", &ret->arch_count) &&
           load(ret->library, "nvrtcGetSupportedArchs", &ret->archs) &&
           load(ret->library, "nvrtcCreateProgram", &ret->create) &&
           load(ret->library, "nvrtcCompileProgram", &ret->compile) &&
           load(ret->library, "nvrtcGetProgramLogSize", &ret->log_size) &&
           load(ret->library, "nvrtcGetProgramLog", &ret->log) &&
           load(ret->library, "nvrtcDestroyProgram", &ret->destroy);
}

static int nvrtc_try(Arena *arena, Diag *diag, const Nvrtc *nvrtc, const char *path,
                     const char *text, const char *arch)
{
    void *program = NULL;
    const char *options[] = {arena_printf(arena, "-arch=%s", arch)};
    if (nvrtc->create(&program, text, path, 0, NULL, NULL) != 0)
        return 0;
    int code = nvrtc->compile(program, 1, options);
    size_t bytes = 0;
    char *log = "";
    if (nvrtc->log_size(program, &bytes) == 0 && bytes > 1) {
        log = arena_alloc(arena, bytes + 1);
        nvrtc->log(program, log);
    }
    nvrtc->destroy(&program);
    bool refused = code != 0, warned = strstr(log, "warning") != NULL;
    if (refused || warned)
        diag_error(diag, NO_SPAN, "emitted text for %s: %s", arch, log);
    return refused || warned;
}

/* Old versions lack new architectures, new versions drop old ones. */
static bool nvrtc_knows(const Nvrtc *nvrtc, int arch)
{
    int known[128], n = 0;
    if (nvrtc->arch_count(&n) != 0 || n > 128 || nvrtc->archs(known) != 0)
        return false;
    for (int i = 0; i < n; i++) {
        if (known[i] == arch)
            return true;
    }
    return false;
}

int check_cuda_nvrtc(Arena *arena, Diag *diag, const char *path, const char *text,
                     const char **ret_by)
{
    /* Real ones: only there is inline PTX assembled. */
    static const struct {
        int number;
        const char *name;
    } archs[] = {{80, "sm_80"}, {90, "sm_90a"}, {100, "sm_100a"}};
    Nvrtc nvrtc = {0};
    if (!nvrtc_open(arena, &nvrtc)) {
        *ret_by = "none: libnvrtc was not found (CUDA_HOME says where)";
        return 0;
    }
    int major = 0, minor = 0, problems = 0;
    nvrtc.version(&major, &minor);
    Str by = str_new(arena);
    str_putf(&by, "NVRTC %d.%d", major, minor);
    const char *whole = arena_printf(arena, "%s\n%s", template_text("cuda/prelude.cuh"), text);
    int tried = 0;
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        if (!nvrtc_knows(&nvrtc, archs[i].number))
            continue;
        problems += nvrtc_try(arena, diag, &nvrtc, path, whole, archs[i].name);
        str_putf(&by, "%s %s", tried++ ? "," : " for", archs[i].name);
    }
    *ret_by = tried ? by.at : arena_printf(arena, "none: %s knows no architecture of ours", by.at);
    return problems;
}
