/* bodies.c - lowered bodies for tests of the printers. */
#include "tests/codegen/bodies.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ir/base/str.h"
#include "tests/check.h"

const char every_op_model[] =
    "{\"format\":\"lplan-model/1\",\"name\":\"every\",\"init_std\":0.3,\n"
    " \"dims\":{\"h\":24,\"f\":20,\"v\":21,\"p\":16,\"g\":2,\"r\":3,\"d\":8},\n"
    " \"blocks\":{\n"
    "  \"embed\":{\"out\":\"x\",\"ops\":[\n"
    "   "
    "{\"op\":\"embedding\",\"in\":\"ids\",\"out\":\"e\",\"rows\":\"v\",\"cols\":[\"h\"],\"table\":"
    "\"wte.weight\"},\n"
    "   {\"op\":\"embedding\",\"in\":\"positions\",\"out\":\"pe\",\"rows\":\"p\",\"cols\":[\"h\"],"
    "\"table\":\"wpe.weight\"},\n"
    "   {\"op\":\"add\",\"in\":[\"e\",\"pe\"],\"out\":\"x\"}]},\n"
    "  \"attend\":{\"in\":\"x\",\"out\":\"x1\",\"ops\":[\n"
    "   "
    "{\"op\":\"norm\",\"kind\":\"layer\",\"eps\":1e-5,\"in\":\"x\",\"out\":\"n1\",\"gain\":\"a.{i}."
    "n.weight\","
    "\"bias\":\"a.{i}.n.bias\"},\n"
    "   "
    "{\"op\":\"linear\",\"in\":\"n1\",\"out\":\"q\",\"to\":[\"g\",\"r\",\"d\"],\"weight\":\"a.{i}."
    "q.weight\","
    "\"bias\":\"a.{i}.q.bias\"},\n"
    "   "
    "{\"op\":\"linear\",\"in\":\"n1\",\"out\":\"k\",\"to\":[\"g\",\"d\"],\"weight\":\"a.{i}.k."
    "weight\"},\n"
    "   "
    "{\"op\":\"linear\",\"in\":\"n1\",\"out\":\"v\",\"to\":[\"g\",\"d\"],\"weight\":\"a.{i}.v."
    "weight\"},\n"
    "   "
    "{\"op\":\"norm\",\"kind\":\"rms\",\"eps\":1e-6,\"in\":\"q\",\"out\":\"qn\",\"gain\":\"a.{i}."
    "qn.weight\"},\n"
    "   {\"op\":\"rope\",\"in\":\"qn\",\"out\":\"qr\",\"theta\":100.0,\"rotary\":4},\n"
    "   "
    "{\"op\":\"rope\",\"in\":\"k\",\"out\":\"kr\",\"theta\":100.0,\"rotary\":6,\"interleaved\":"
    "true},\n"
    "   {\"op\":\"attention\",\"in\":[\"qr\",\"kr\",\"v\"],\"out\":\"a\"},\n"
    "   {\"op\":\"linear\",\"in\":\"a\",\"out\":\"o\",\"from\":[\"g\",\"r\",\"d\"],\"to\":[\"h\"],"
    "\"weight\":\"a.{i}.o.weight\",\"bias\":\"a.{i}.o.bias\"},\n"
    "   {\"op\":\"add\",\"in\":[\"x\",\"o\"],\"out\":\"x1\"}]},\n"
    "  \"mlp\":{\"in\":\"x\",\"out\":\"x1\",\"ops\":[\n"
    "   "
    "{\"op\":\"norm\",\"kind\":\"rms\",\"eps\":1e-5,\"in\":\"x\",\"out\":\"n\",\"gain\":\"m.{i}.n."
    "weight\"},\n"
    "   "
    "{\"op\":\"linear\",\"in\":\"n\",\"out\":\"u0\",\"to\":[\"f\"],\"weight\":\"m.{i}.u0.weight\"},"
    "\n"
    "   "
    "{\"op\":\"linear\",\"in\":\"n\",\"out\":\"u1\",\"to\":[\"f\"],\"weight\":\"m.{i}.u1.weight\"},"
    "\n"
    "   "
    "{\"op\":\"linear\",\"in\":\"n\",\"out\":\"u2\",\"to\":[\"f\"],\"weight\":\"m.{i}.u2.weight\"},"
    "\n"
    "   "
    "{\"op\":\"linear\",\"in\":\"n\",\"out\":\"u3\",\"to\":[\"f\"],\"weight\":\"m.{i}.u3.weight\"},"
    "\n"
    "   "
    "{\"op\":\"linear\",\"in\":\"n\",\"out\":\"u4\",\"to\":[\"f\"],\"weight\":\"m.{i}.u4.weight\"},"
    "\n"
    "   {\"op\":\"act\",\"kind\":\"silu\",\"in\":\"u0\",\"out\":\"s0\"},\n"
    "   {\"op\":\"act\",\"kind\":\"gelu_tanh\",\"in\":\"u1\",\"out\":\"s1\"},\n"
    "   {\"op\":\"act\",\"kind\":\"gelu_erf\",\"in\":\"u2\",\"out\":\"s2\"},\n"
    "   {\"op\":\"act\",\"kind\":\"relu\",\"in\":\"u3\",\"out\":\"s3\"},\n"
    "   {\"op\":\"act\",\"kind\":\"relu2\",\"in\":\"u4\",\"out\":\"s4\"},\n"
    "   {\"op\":\"mul\",\"in\":[\"s0\",\"s1\"],\"out\":\"m0\"},\n"
    "   {\"op\":\"mul\",\"in\":[\"s2\",\"s3\"],\"out\":\"m1\"},\n"
    "   {\"op\":\"add\",\"in\":[\"m0\",\"m1\"],\"out\":\"m2\"},\n"
    "   {\"op\":\"add\",\"in\":[\"m2\",\"s4\"],\"out\":\"m3\"},\n"
    "   {\"op\":\"scale\",\"factor\":0.5,\"in\":\"m3\",\"out\":\"m\"},\n"
    "   "
    "{\"op\":\"linear\",\"in\":\"m\",\"out\":\"y\",\"to\":[\"h\"],\"weight\":\"m.{i}.y.weight\"},\n"
    "   {\"op\":\"add\",\"in\":[\"x\",\"y\"],\"out\":\"x1\"}]},\n"
    "  \"head\":{\"in\":\"x\",\"ops\":[\n"
    "   "
    "{\"op\":\"norm\",\"kind\":\"layer\",\"eps\":1e-5,\"in\":\"x\",\"out\":\"n\",\"gain\":\"nf."
    "weight\"},\n"
    "   "
    "{\"op\":\"linear\",\"in\":\"n\",\"out\":\"logits\",\"to\":[\"v\"],\"weight\":\"lm.weight\"},\n"
    "   {\"op\":\"cross_entropy\",\"in\":\"logits\"}]}},\n"
    " \"chain\":[{\"block\":\"embed\"},{\"block\":\"attend\"},{\"block\":\"mlp\"},{\"block\":"
    "\"head\"}]}\n";

const char twin_gain_model[] =
    "{\"format\":\"lplan-model/1\",\"name\":\"twin\",\"init_std\":0.3,\n"
    " \"dims\":{\"h\":24,\"f\":20,\"v\":21},\n"
    " \"blocks\":{\n"
    "  \"embed\":{\"out\":\"x\",\"ops\":[\n"
    "   {\"op\":\"embedding\",\"in\":\"ids\",\"out\":\"x\",\"rows\":\"v\",\"cols\":[\"h\"],"
    "\"table\":\"wte.weight\"}]},\n"
    "  \"mlp\":{\"in\":\"x\",\"out\":\"x1\",\"ops\":[\n"
    "   {\"op\":\"norm\",\"kind\":\"rms\",\"eps\":1e-5,\"in\":\"x\",\"out\":\"n\","
    "\"gain\":\"m.{i}.n.weight\"},\n"
    "   {\"op\":\"linear\",\"in\":\"n\",\"out\":\"u\",\"to\":[\"f\"],"
    "\"weight\":\"m.{i}.u.weight\"},\n"
    "   {\"op\":\"act\",\"kind\":\"silu\",\"in\":\"u\",\"out\":\"a\"},\n"
    "   {\"op\":\"linear\",\"in\":\"a\",\"out\":\"y\",\"to\":[\"h\"],"
    "\"weight\":\"m.{i}.y.weight\"},\n"
    "   {\"op\":\"norm\",\"kind\":\"rms\",\"eps\":1e-5,\"in\":\"y\",\"out\":\"z\","
    "\"gain\":\"m.{i}.n.weight\"},\n"
    "   {\"op\":\"add\",\"in\":[\"x\",\"z\"],\"out\":\"x1\"}]},\n"
    "  \"head\":{\"in\":\"x\",\"ops\":[\n"
    "   {\"op\":\"linear\",\"in\":\"x\",\"out\":\"logits\",\"to\":[\"v\"],"
    "\"weight\":\"lm.weight\"},\n"
    "   {\"op\":\"cross_entropy\",\"in\":\"logits\"}]}},\n"
    " \"chain\":[{\"block\":\"embed\"},{\"block\":\"mlp\"},{\"block\":\"head\"}]}\n";

static Program *build(Arena *arena, const char *text, const char *recipe, int64_t batch,
                      int64_t sequence, int64_t pad, int stages, int micro_batches)
{
    Diag *diag = diag_new(arena);
    JsonDoc *doc = json_parse(arena, diag, "test", text, strlen(text));
    Net *net = doc ? model_read(arena, diag, json_root(doc), batch, sequence, pad) : NULL;
    diag_print(diag, stderr, false);
    assert_non_null(net);
    Plan *plan = ARENA_NEW(arena, Plan);
    *plan = (Plan){.arena = arena,
                   .ranks = stages,
                   .stages = stages,
                   .micro_batch = batch,
                   .micro_batches = micro_batches,
                   .pad_vocabulary = pad,
                   .schedule = SCHEDULE_1F1B,
                   .bucket_bytes = 1 << 20};
    plan->job = job_default();
    plan->job.recipe = recipe;
    plan->job.global_batch = micro_batches * batch;
    plan->job.sequence = sequence;
    plan->first_link = ARENA_ARRAY(arena, int, stages + 1);
    for (int s = 0; s <= stages; s++)
        plan->first_link[s] = s * net->chain.n / stages;
    plan_chunk_per_stage(arena, plan);
    plan->class = ARENA_ARRAY(arena, ClassPlan, net->classes.n);
    for (int c = 0; c < net->classes.n; c++)
        class_plan_alloc(arena, net->classes.at[c], &plan->class[c]);
    MovePrice price = path_plain_price(dtype_bytes(recipe_by_name(recipe)->activation));
    return program_build(arena, plan, net, &price, NULL);
}

Program *program_from(Arena *arena, const char *text, int64_t batch, int64_t sequence, int64_t pad)
{
    return build(arena, text, "fp32", batch, sequence, pad, 1, 2);
}

Program *program_in(Arena *arena, const char *text, const char *recipe, int64_t batch,
                    int64_t sequence, int64_t pad)
{
    return build(arena, text, recipe, batch, sequence, pad, 1, 2);
}

Program *pipeline_from(Arena *arena, const char *text, int stages, int micro_batches)
{
    return build(arena, text, "fp32", 2, 8, 1, stages, micro_batches);
}

void *compiled(Arena *arena, const char *text, bool cplusplus)
{
    const char *cc = getenv(cplusplus ? "CXX" : "CC");
    if (!cc || !*cc)
        cc = cplusplus ? "c++" : "cc";
    const char *folder = getenv("TMPDIR"), *root = getenv("LPLAN_SOURCE_ROOT");
    /* A fresh name each time: the loader knows a library again by its path. */
    char *made = mkdtemp(arena_printf(arena, "%s/lplan-kernels-XXXXXX", folder ? folder : "/tmp"));
    assert_non_null(made);
    char *source = arena_printf(arena, "%s/kernels.%s", made, cplusplus ? "cc" : "c");
    char *object = arena_printf(arena, "%s/kernels.so", made);
    assert_true(file_write(source, text, strlen(text)));
    const char *flags = cplusplus ? "-std=c++17 -O1 -Wall -Wno-unused-function -pthread"
                                  : "-std=c11 -O2 -fopenmp -Wall -Wextra -Werror";
    int code = system(arena_printf(
        arena, "%s %s -fno-math-errno -fno-trapping-math -shared -fPIC -I'%s' '%s' -lm -o '%s'", cc,
        flags, root ? root : ".", source, object));
    assert_int_equal(code, 0);
    /* Never closed: threads of OpenMP still wait inside it. */
    void *library = dlopen(object, RTLD_NOW);
    if (!library)
        fprintf(stderr, "%s\n", dlerror());
    assert_non_null(library);
    unlink(source);
    unlink(object);
    rmdir(made);
    return library;
}
