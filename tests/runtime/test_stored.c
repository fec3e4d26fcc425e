/* test_stored.c - tensors of files that are parts of the model's, or the model's parts of theirs.
 */
#include "runtime/io/stored.h"

#include "runtime/core/bf16.h"
#include "runtime/io/safetensors.h"
#include "tests/runtime/forked.h"

static char error[4096], said[8192];

/* ---- the table ---- */

static LpStored *read_table(const LpTensor *tensors, int count)
{
    error[0] = '\0';
    return lp_stored_new(tensors, count, error, sizeof error);
}

static void check_at(const LpStored *stored, int tensor, int64_t at, int64_t n, const char *name,
                     int64_t begin, int64_t run)
{
    int index;
    int64_t got;
    assert_int_equal(lp_stored_run(stored, tensor, at, n, &index, &got), run);
    assert_string_equal(stored->tensors[index].name, name);
    assert_int_equal(got, begin);
}

static void marks_say_what_files_hold(void **state)
{
    (void)state;
    static const LpTensor model[] = {
        {"z", 2, {2, 3}, LP_ONES, 0, true},
        {"m.{e}.up[4:6]", 3, {3, 2, 5}, LP_ONES, 0, false},
        {"m.{e}.down", 2, {3, 7}, LP_ONES, 0, false},
        {"m.{e}.up[0:4]", 3, {3, 4, 5}, LP_ONES, 0, false},
        {"a.{e}", 1, {2}, LP_ONES, 0, false},
    };
    LpStored *stored = read_table(model, LP_COUNT(model));
    if (!stored)
        fail_msg("%s", error);
    static const char *const names[] = {"z",        "m.0.up",   "m.1.up", "m.2.up", "m.0.down",
                                        "m.1.down", "m.2.down", "a.0",    "a.1"};
    assert_int_equal(stored->count, LP_COUNT(names));
    for (int i = 0; i < stored->count; i++) {
        assert_string_equal(stored->tensors[i].name, names[i]);
        assert_int_equal(lp_stored_find(stored, names[i]), i);
    }
    assert_int_equal(lp_stored_find(stored, "m.{e}.down"), -1);
    assert_int_equal(stored->tensors[2].ndims, 2);
    assert_int_equal(stored->tensors[2].dims[0], 6);
    assert_int_equal(stored->tensors[2].dims[1], 5);
    assert_int_equal(stored->tensors[8].ndims, 0);
    assert_true(stored->tensors[0].tied && !stored->tensors[1].tied);
    check_at(stored, 0, 2, 4, "z", 2, 4);
    check_at(stored, 1, 0, 30, "m.0.up", 20, 10);
    check_at(stored, 1, 13, 2, "m.1.up", 23, 2);
    check_at(stored, 3, 59, 9, "m.2.up", 19, 1);
    check_at(stored, 2, 6, 8, "m.0.down", 6, 1);
    lp_stored_free(stored);
}

static void tables_that_make_no_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        LpTensor tensors[3];
        const char *says;
    } bad[] = {
        {{{"a[0:2]", 2, {2, 3}, LP_ONES, 0, false}, {"a[3:4]", 2, {1, 3}, LP_ONES, 0, false}},
         "no tensor holds rows 2 to 3 of `a`"},
        {{{"a[1:3]", 1, {2}, LP_ONES, 0, false}}, "no tensor holds rows 0 to 1 of `a`"},
        {{{"a[0:3]", 1, {3}, LP_ONES, 0, false}, {"a[2:4]", 1, {2}, LP_ONES, 0, false}},
         "a[0:3] and a[2:4] hold the same elements of `a`"},
        {{{"a[0:3]", 1, {3}, LP_ONES, 0, false}, {"a", 1, {3}, LP_ONES, 0, false}},
         "a[0:3] and a hold the same elements of `a`"},
        {{{"a.1", 1, {3}, LP_ONES, 0, false}, {"a.{e}", 2, {2, 3}, LP_ONES, 0, false}},
         "a.1 and a.{e} hold the same elements of `a.1`"},
        {{{"a[0:2]", 2, {2, 3}, LP_ONES, 0, false}, {"a[2:4]", 2, {2, 4}, LP_ONES, 0, false}},
         "a[0:2] and a[2:4] are rows of different widths"},
        {{{"a[0:2]", 2, {3, 3}, LP_ONES, 0, false}}, "the marks of the name do not fit the shape"},
        {{{"a[2:0]", 1, {2}, LP_ONES, 0, false}}, "the marks of the name do not fit the shape"},
        {{{"a[0:2", 1, {2}, LP_ONES, 0, false}}, "the marks of the name do not fit the shape"},
        {{{"a[0:2]b", 1, {2}, LP_ONES, 0, false}}, "the marks of the name do not fit the shape"},
        {{{"a.{e}[0:2]", 1, {2}, LP_ONES, 0, false}}, "the marks of the name do not fit the shape"},
        {{{"a.{e}", 0, {0}, LP_ONES, 0, false}}, "the marks of the name do not fit the shape"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int count = 0;
        while (count < 3 && bad[i].tensors[count].name)
            count++;
        assert_null(read_table(bad[i].tensors, count));
        assert_says(error, bad[i].says);
    }
}

/* ---- files of many tensors ---- */

typedef struct Stored {
    const char *name;
    int64_t dims[2];
    const char *type;
} Stored;

/* Element i of a tensor: small whole numbers that every type holds. */
static float element(const char *name, int64_t i)
{
    unsigned sum = 0;
    for (; *name; name++)
        sum = sum * 31 + (unsigned char)*name;
    return (float)((sum + 7 * i) % 61) - 30;
}

static uint16_t half_of(float x)
{
    int sign = x < 0 ? 0x8000 : 0, exponent = 15;
    if (x == 0)
        return 0;
    for (x = x < 0 ? -x : x; x >= 2; x /= 2)
        exponent++;
    return (uint16_t)(sign | exponent << 10 | (int)((x - 1) * 1024));
}

/* `values` names the tensor whose numbers a copy has. */
static void write_stored(const char *path, const Stored *tensors, int n, const char *const *values)
{
    static char header[8192];
    static unsigned char data[16384];
    size_t at = 0, length = (size_t)sprintf(header, "{");
    for (int i = 0; i < n; i++) {
        const Stored *t = &tensors[i];
        int64_t count = t->dims[0] * (t->dims[1] ? t->dims[1] : 1);
        size_t width = strcmp(t->type, "F32") == 0 ? 4 : 2, begin = at;
        for (int64_t k = 0; k < count; k++, at += width) {
            float x = element(values && values[i] ? values[i] : t->name, k);
            uint16_t small = strcmp(t->type, "F16") == 0 ? half_of(x) : lp_f32_to_bf16(x);
            memcpy(data + at, width == 4 ? (void *)&x : (void *)&small, width);
        }
        length += (size_t)sprintf(header + length, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%lld",
                                  i ? "," : "", t->name, t->type, (long long)t->dims[0]);
        if (t->dims[1])
            length += (size_t)sprintf(header + length, ",%lld", (long long)t->dims[1]);
        length += (size_t)sprintf(header + length, "],\"data_offsets\":[%zu,%zu]}", begin, at);
    }
    length += (size_t)sprintf(header + length, "}");
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int i = 0; i < 8; i++)
        fputc((int)(length >> (8 * i) & 0xff), file);
    assert_int_equal(fwrite(header, 1, length, file), length);
    assert_int_equal(fwrite(data, 1, at, file), at);
    assert_int_equal(fclose(file), 0);
}

/* ---- a job: four ranks, experts over the stages, columns over the ranks of one ---- */

enum { E = 4, F = 4, H = 6, V = 5 };

static const LpTensor model[] = {
    {"emb.weight", 2, {V, H}, LP_NORMAL, 1, true},
    {"qkv.weight[0:4]", 2, {4, H}, LP_NORMAL, 1, false},
    {"qkv.weight[4:6]", 2, {2, H}, LP_NORMAL, 1, false},
    {"qkv.weight[6:8]", 2, {2, H}, LP_NORMAL, 1, false},
    {"experts.{e}.w", 3, {E, F, H}, LP_NORMAL, 1, false},
    {"experts.{e}.gu[0:2]", 3, {E, 2, H}, LP_NORMAL, 1, false},
    {"experts.{e}.gu[2:4]", 3, {E, 2, H}, LP_NORMAL, 1, false},
};

static const Stored files[] = {
    {"emb.weight", {V, H}, "F32"},   {"qkv.weight", {8, H}, "F32"},
    {"experts.0.w", {F, H}, "F32"},  {"experts.1.w", {F, H}, "F32"},
    {"experts.2.w", {F, H}, "F32"},  {"experts.3.w", {F, H}, "F32"},
    {"experts.0.gu", {4, H}, "F32"}, {"experts.1.gu", {4, H}, "F32"},
    {"experts.2.gu", {4, H}, "F32"}, {"experts.3.gu", {4, H}, "F32"},
};
enum { FILES = sizeof files / sizeof *files };

static void load_and_save(const LpRank *rank)
{
    static const int rows[] = {V, 4, 2, 2, F, 2, 2};
    float data[LP_COUNT(model)][E * F * H];
    LpPart parts[LP_COUNT(model)];
    int half = rank->index % 2, block = rank->index / 2;
    for (int i = 0; i < LP_COUNT(model); i++) {
        bool experts = model[i].ndims == 3;
        parts[i] = (LpPart){.tensor = i, .data = data[i], .owner = experts || block == 0};
        if (experts)
            parts[i].shard =
                (LpShard){3, {E, rows[i], H}, {block * 2, 0, half * 3}, {2, rows[i], 3}};
        else
            parts[i].shard = (LpShard){2, {rows[i], H}, {0, half * 3}, {rows[i], 3}};
    }
    lp_load(parts, LP_COUNT(parts));
    lp_finish(parts, LP_COUNT(parts));
}

static const int64_t arenas[2] = {64, 64};
static const LpJob job = {
    .name = "stored",
    .plan_hash = "none",
    .ranks = 4,
    .stages = 2,
    .ranks_per_stage = 2,
    .arena_bytes = arenas,
    .tensors = model,
    .tensor_count = LP_COUNT(model),
    .seq = 1,
    .vocab = 1,
    .micro_batches = 1,
    .rows = 1,
    .run = load_and_save,
};

static int run_job(const char *init)
{
    const char *words[] = {"--virtual", "--data", "random",          "--quiet", "--init",
                           init,        "--save", "out.safetensors", NULL};
    unlink("out.safetensors");
    return forked_run(&job, words, said, sizeof said);
}

static void check_refused(const char *init, const char *const *says, int n)
{
    assert_int_equal(run_job(init), 1);
    for (int i = 0; i < n; i++)
        assert_says(said, says[i]);
}

/* What was written: every stored tensor whole, under its own name, with the numbers read. */
static void check_out(void)
{
    LpWeights *weights = lp_weights_open("out.safetensors", error, sizeof error);
    if (!weights)
        fail_msg("%s", error);
    assert_int_equal(weights->count, FILES);
    for (int i = 0; i < FILES; i++) {
        const LpEntry *entry = lp_weights_find(weights, files[i].name);
        assert_non_null(entry);
        assert_string_equal(entry->type->name, "F32");
        assert_int_equal(entry->ndims, 2);
        assert_int_equal(entry->dims[0], files[i].dims[0]);
        assert_int_equal(entry->dims[1], files[i].dims[1]);
        float got[E * F * H];
        int64_t count = files[i].dims[0] * files[i].dims[1];
        assert_true(lp_weights_read_run(weights, entry, 0, count, got, 0, LP_F32, NULL, error,
                                        sizeof error));
        for (int64_t k = 0; k < count; k++)
            assert_true(got[k] == element(files[i].name, k));
    }
    lp_weights_close(weights);
}

static void check_accepted(const char *init)
{
    if (run_job(init) != 0)
        fail_msg("%s", said);
    check_out();
}

static void files_come_and_go_under_their_names(void **state)
{
    (void)state;
    static const char *const types[] = {"F32", "BF16", "F16"};
    for (int t = 0; t < 3; t++) {
        Stored mixed[FILES];
        memcpy(mixed, files, sizeof files);
        for (int i = 0; i < FILES; i++)
            mixed[i].type = types[(t + i) % 3];
        write_stored("in.safetensors", mixed, FILES, NULL);
        check_accepted("in.safetensors");
    }
    assert_int_equal(rename("out.safetensors", "in.safetensors"), 0);
    check_accepted("in.safetensors");
}

static void write_index(int per_file)
{
    char index[4096];
    int length = sprintf(index, "{\"metadata\":{},\"weight_map\":{");
    for (int i = 0; i < FILES; i++)
        length += sprintf(index + length, "%s\"%s\":\"model-%d.safetensors\"", i ? "," : "",
                          files[i].name, i / per_file);
    length += sprintf(index + length, "}}");
    write_file("model.safetensors.index.json", index, (size_t)length);
}

static void shards_are_one_file(void **state)
{
    (void)state;
    enum { EACH = 4 };
    char path[64];
    for (int begin = 0; begin < FILES; begin += EACH) {
        int n = FILES - begin < EACH ? FILES - begin : EACH;
        sprintf(path, "model-%d.safetensors", begin / EACH);
        write_stored(path, files + begin, n, NULL);
    }
    write_index(EACH);
    check_accepted("model.safetensors.index.json");
    assert_int_equal(unlink("model-1.safetensors"), 0);
    assert_int_equal(unlink("model-2.safetensors"), 0);
    check_refused("model.safetensors.index.json",
                  (const char *[]){"model-1.safetensors", "model-2.safetensors"}, 2);
    /* A shard that lacks what the index promises. */
    write_stored("model-1.safetensors", files + EACH, EACH - 1, NULL);
    write_stored("model-2.safetensors", files + 2 * EACH, FILES - 2 * EACH, NULL);
    check_refused("model.safetensors.index.json",
                  (const char *[]){"`experts.1.gu` is not in model-1.safetensors"}, 1);
}

static void everything_wrong_is_listed_by_stored_name(void **state)
{
    (void)state;
    Stored some[FILES];
    int n = 0;
    for (int i = 0; i < FILES; i++) {
        if (strcmp(files[i].name, "experts.3.w") != 0 && strcmp(files[i].name, "experts.0.gu") != 0)
            some[n++] = files[i];
    }
    some[1].dims[0] = 6;
    some[n++] = (Stored){"experts.4.w", {F, H}, "F32"};
    some[n++] = (Stored){"qkv.bias", {8, 0}, "F32"};
    write_stored("in.safetensors", some, n, NULL);
    static const char *const says[] = {
        "in.safetensors does not fit the model:",
        "shape of qkv.weight: [6,6] in the file, [8,6] in the model",
        "missing in the file: experts.3.w [4,6]",
        "missing in the file: experts.0.gu [4,6]",
        "unknown to the model: experts.4.w [4,6]",
        "unknown to the model: qkv.bias [8]",
    };
    check_refused("in.safetensors", says, LP_COUNT(says));
    assert_null(strstr(said, "experts.2"));
}

static void a_tied_tensor_may_come_twice(void **state)
{
    (void)state;
    Stored twice[FILES + 1];
    const char *values[FILES + 1] = {NULL};
    memcpy(twice, files, sizeof files);
    twice[FILES] = (Stored){"lm_head.weight", {V, H}, "BF16"};
    values[FILES] = "emb.weight";
    write_stored("in.safetensors", twice, FILES + 1, values);
    check_accepted("in.safetensors");
    values[FILES] = "another";
    write_stored("in.safetensors", twice, FILES + 1, values);
    check_refused("in.safetensors",
                  (const char *[]){"unknown to the model: lm_head.weight [5,6], and not equal to "
                                   "emb.weight, which is tied"},
                  1);
    /* Under the head's name only. */
    twice[0] = twice[FILES];
    values[0] = "emb.weight";
    write_stored("in.safetensors", twice, FILES, values);
    check_accepted("in.safetensors");
    /* Two candidates: nobody guesses. */
    twice[FILES].name = "other.weight";
    write_stored("in.safetensors", twice, FILES + 1, values);
    check_refused("in.safetensors",
                  (const char *[]){"missing in the file: emb.weight [5,6]",
                                   "unknown to the model: lm_head.weight [5,6]",
                                   "unknown to the model: other.weight [5,6]"},
                  3);
}

static void buffers_of_old_versions_are_passed_over(void **state)
{
    (void)state;
    Stored more[FILES + 2];
    memcpy(more, files, sizeof files);
    more[FILES] = (Stored){"h.0.attn.masked_bias", {1, 0}, "F32"};
    more[FILES + 1] = (Stored){"h.0.rotary_emb.inv_freq", {4, 0}, "F32"};
    write_stored("in.safetensors", more, FILES + 2, NULL);
    check_accepted("in.safetensors");
    more[FILES + 1] = (Stored){"h.0.attn.bias", {4, 0}, "F32"};
    write_stored("in.safetensors", more, FILES + 2, NULL);
    check_refused("in.safetensors", (const char *[]){"unknown to the model: h.0.attn.bias [4]"}, 1);
}

/* Checkpoints of one model with and without the name of its body; nobody mixes them. */
static void one_prefix_for_all_is_passed_over(void **state)
{
    (void)state;
    static char name[FILES][64];
    Stored some[FILES];
    const char *values[FILES];
    for (int i = 0; i < FILES; i++) {
        some[i] = files[i];
        values[i] = files[i].name;
        sprintf(name[i], "%s%s", strncmp(files[i].name, "emb", 3) ? "model." : "", files[i].name);
        some[i].name = name[i];
    }
    write_stored("in.safetensors", some, FILES, values);
    check_accepted("in.safetensors");
    for (int i = 0; i < FILES; i++) {
        sprintf(name[i], "%s",
                strncmp(files[i].name, "experts.", 8) ? files[i].name : files[i].name + 8);
    }
    write_stored("in.safetensors", some, FILES, values);
    check_accepted("in.safetensors");
    /* One tensor would be two. */
    some[2].name = "model.qkv.weight";
    write_stored("in.safetensors", some, FILES, values);
    check_refused("in.safetensors",
                  (const char *[]){"missing in the file: experts.1.w [4,6]",
                                   "unknown to the model: 1.w [4,6]"},
                  2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks_say_what_files_hold),
        cmocka_unit_test(tables_that_make_no_files_are_refused),
        cmocka_unit_test(files_come_and_go_under_their_names),
        cmocka_unit_test(shards_are_one_file),
        cmocka_unit_test(everything_wrong_is_listed_by_stored_name),
        cmocka_unit_test(a_tied_tensor_may_come_twice),
        cmocka_unit_test(buffers_of_old_versions_are_passed_over),
        cmocka_unit_test(one_prefix_for_all_is_passed_over),
    };
    enter_folder();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
