/* nvrtc_check.c - compiles every CUDA template for real architectures and reads ptxas' verdict.
 *
 * libnvrtc is looked for under $CUDA_HOME, $CUDA_PATH and the folder above nvcc's on $PATH, then by
 * the loader; exit 77 (the test is skipped) when there is none. No GPU and no driver are needed,
 * and no include path is given: the texts must be complete. Fails on any diagnostic and on any
 * register spill. */
#include "templates/templates.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 4096

typedef struct NvrtcProgram *NvrtcProgramRef;

typedef struct Nvrtc {
    int (*version)(int *, int *);
    int (*create)(NvrtcProgramRef *, const char *, const char *, int, const char *const *,
                  const char *const *);
    int (*compile)(NvrtcProgramRef, int, const char *const *);
    int (*log_size)(NvrtcProgramRef, size_t *);
    int (*log)(NvrtcProgramRef, char *);
    int (*destroy)(NvrtcProgramRef *);
    int (*arch_count)(int *);
    int (*archs)(int *);
} Nvrtc;

typedef struct Instance {
    const char *template;
    const char *defines;
} Instance;

static const Instance instances[] = {
    {"cuda/attention.cu", "LP_D=64 LP_ATTENTION_T=float LP_GRADIENT_T=float"},
    {"cuda/attention.cu", "LP_D=128 LP_ATTENTION_T=float LP_GRADIENT_T=float"},
    {"cuda/attention.cu", "LP_D=80 LP_ATTENTION_T=lp_bf16 LP_GRADIENT_T=float LP_RESULT_T=float"},
    {"cuda/attention.cu", "LP_D=64 LP_BENT=1 LP_ATTENTION_T=float LP_GRADIENT_T=float"},
    {"cuda/attention.cu",
     "LP_D=192 LP_DV=128 LP_BENT=1 LP_ATTENTION_T=lp_bf16 LP_GRADIENT_T=float"},
    {"cuda/attention_mma.cu", "LP_D=64 LP_GRADIENT_T=lp_bf16"},
    {"cuda/attention_mma.cu", "LP_D=80 LP_GRADIENT_T=lp_bf16"},
    {"cuda/attention_mma.cu", "LP_D=128 LP_GRADIENT_T=float LP_RESULT_T=float"},
    {"cuda/attention_mma.cu", "LP_D=16 LP_GRADIENT_T=float"},
    {"cuda/embedding.cu", "LP_EMBEDDING_T=lp_bf16 LP_GRADIENT_T=float"},
    {"cuda/embedding.cu", "LP_EMBEDDING_T=float LP_GRADIENT_T=float"},
    {"cuda/route.cu", "LP_ROUTE_T=lp_bf16"},
    {"cuda/route.cu", "LP_ROUTE_T=float"},
    {"cuda/expert.cu", "LP_EXPERT_T=lp_bf16 LP_GRADIENT_T=float"},
    {"cuda/expert.cu", "LP_EXPERT_T=float LP_GRADIENT_T=lp_bf16"},
};

static const char *const architectures[] = {"sm_80", "sm_90a", "sm_100a"};

static void *open_in(const char *folder, const char *name)
{
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) {
        return NULL;
    }
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

/* The builtins library first, and global: nvrtc looks for it by name alone, which fails for a
 * folder that the loader does not know. */
static void *open_toolkit(const char *root)
{
    static const char *const folders[] = {"lib64", "lib", "targets/x86_64-linux/lib",
                                          "targets/sbsa-linux/lib"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char folder[PATH_BYTES];
        snprintf(folder, sizeof folder, "%s/%s", root, folders[i]);
        open_in(folder, "libnvrtc-builtins.so");
        void *lib = open_in(folder, "libnvrtc.so");
        if (lib) {
            return lib;
        }
    }
    return NULL;
}

/* The toolkit whose bin/nvcc $PATH finds. */
static void *open_beside_nvcc(void)
{
    const char *path = getenv("PATH");
    while (path && *path) {
        const size_t n = strcspn(path, ":");
        char root[PATH_BYTES];
        if (snprintf(root, sizeof root, "%.*s/nvcc", (int)n, path) < (int)sizeof root) {
            FILE *nvcc = fopen(root, "rb");
            if (nvcc) {
                fclose(nvcc);
                snprintf(root, sizeof root, "%.*s/..", (int)n, path);
                return open_toolkit(root);
            }
        }
        path += n + (path[n] == ':');
    }
    return NULL;
}

static void *open_nvrtc(void)
{
    static const char *const names[] = {"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"};
    static const char *const roots[] = {"CUDA_HOME", "CUDA_PATH"};
    void *lib = NULL;
    for (int i = 0; i < 2 && !lib; i++) {
        const char *root = getenv(roots[i]);
        lib = root ? open_toolkit(root) : NULL;
    }
    lib = lib ? lib : open_beside_nvcc();
    for (int i = 0; i < 3 && !lib; i++) {
        lib = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
    }
    return lib;
}

static int load(void *lib, const char *name, void *ret_function)
{
    void *symbol = dlsym(lib, name);
    memcpy(ret_function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static int load_all(void *lib, Nvrtc *n)
{
    return load(lib, "nvrtcVersion", &n->version) && load(lib, "nvrtcCreateProgram", &n->create) &&
           load(lib, "nvrtcCompileProgram", &n->compile) &&
           load(lib, "nvrtcGetProgramLogSize", &n->log_size) &&
           load(lib, "nvrtcGetProgramLog", &n->log) &&
           load(lib, "nvrtcDestroyProgram", &n->destroy) &&
           load(lib, "nvrtcGetNumSupportedArchs", &n->arch_count) &&
           load(lib, "nvrtcGetSupportedArchs", &n->archs);
}

static int knows(const Nvrtc *n, const char *architecture)
{
    int list[64];
    int count = 0;
    if (n->arch_count(&count) || count > 64 || n->archs(list)) {
        return 0;
    }
    for (int i = 0; i < count; i++) {
        if (list[i] == atoi(architecture + 3)) {
            return 1;
        }
    }
    return 0;
}

/* Prints one line a kernel ("lp_x 96 registers"), returns the bytes of register spills, or -1 if
 * the log does not have ptxas' lines. */
static int read_log(char *log)
{
    int spills = 0;
    int kernels = 0;
    char name[128] = "";
    for (char *line = strtok(log, "\n"); line; line = strtok(NULL, "\n")) {
        int stack = 0;
        int stores = 0;
        int loads = 0;
        int registers = 0;
        char *at = strstr(line, "Compiling entry function '");
        if (at) {
            sscanf(at, "Compiling entry function '%127[^']", name);
        }
        at = strstr(line, " bytes stack frame");
        if (at && sscanf(line, "%d bytes stack frame, %d bytes spill stores, %d bytes spill loads",
                         &stack, &stores, &loads) == 3) {
            spills += stores + loads;
        }
        at = strstr(line, "Used ");
        if (at && sscanf(at, "Used %d registers", &registers) == 1) {
            printf("    %-26s %3d registers\n", name, registers);
            kernels++;
        }
    }
    return kernels > 0 ? spills : -1;
}

static int check(const Nvrtc *n, const Instance *x, const char *architecture)
{
    char arch_option[64];
    char defines[256];
    const char *options[16] = {arch_option, "-std=c++17", "--ptxas-options=-v"};
    char define_options[8][96];
    int count = 3;
    snprintf(arch_option, sizeof arch_option, "-arch=%s", architecture);
    snprintf(defines, sizeof defines, "%s", x->defines);
    for (char *word = strtok(defines, " "); word && count < 11; word = strtok(NULL, " ")) {
        snprintf(define_options[count - 3], sizeof define_options[0], "-D%s", word);
        options[count] = define_options[count - 3];
        count++;
    }
    const char *prelude = template_text("cuda/prelude.cuh");
    const char *text = template_text(x->template);
    const size_t size = strlen(prelude) + strlen(text) + 1;
    char *source = malloc(size);
    if (!source) {
        return 0;
    }
    snprintf(source, size, "%s%s", prelude, text);
    NvrtcProgramRef program = NULL;
    int status = n->create(&program, source, x->template, 0, NULL, NULL);
    free(source);
    if (status) {
        return 0;
    }
    status = n->compile(program, count, options);
    size_t log_bytes = 0;
    n->log_size(program, &log_bytes);
    char *log = calloc(log_bytes + 1, 1);
    int ok = log != NULL && n->log(program, log) == 0;
    printf("%s %s %s\n", x->template, x->defines, architecture);
    if (ok && (status || strstr(log, "warning") || strstr(log, "error"))) {
        printf("%s\n", log);
        ok = 0;
    }
    if (ok) {
        const int spills = read_log(log);
        if (spills != 0) {
            printf("    %d bytes of spills\n", spills);
            ok = 0;
        }
    }
    free(log);
    n->destroy(&program);
    return ok;
}

int main(void)
{
    Nvrtc n;
    int major = 0;
    int minor = 0;
    int ran = 0;
    int failed = 0;
    void *lib = open_nvrtc();
    if (!lib || !load_all(lib, &n) || n.version(&major, &minor)) {
        printf("skipped: no libnvrtc; set CUDA_HOME to the toolkit's folder\n");
        return 77;
    }
    printf("nvrtc %d.%d\n", major, minor);
    for (size_t i = 0; i < sizeof instances / sizeof *instances; i++) {
        for (size_t j = 0; j < sizeof architectures / sizeof *architectures; j++) {
            if (!knows(&n, architectures[j])) {
                printf("%s is unknown to this nvrtc\n", architectures[j]);
                continue;
            }
            ran++;
            failed += !check(&n, &instances[i], architectures[j]);
        }
    }
    printf("%d compiled, %d failed\n", ran, failed);
    return ran == 0 ? 77 : failed != 0;
}
