/* test_safetensors.c - weight files: what is read, what is refused and how it is said, what is
 * written. */
#include "runtime/io/safetensors.h"

#include "runtime/io/json.h"
#include "tests/runtime/forked.h"

#include <math.h>

static char error[4096];

/* A file of a header text and data bytes 0, 1, 2, ... */
static void write_tensors(const char *path, const char *header, int data_bytes)
{
    unsigned char file[4096];
    size_t length = strlen(header);
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)(length >> (8 * i));
    memcpy(file + 8, header, length);
    for (int i = 0; i < data_bytes; i++)
        file[8 + length + (size_t)i] = (unsigned char)i;
    write_file(path, file, 8 + length + (size_t)data_bytes);
}

static LpWeights *open_text(const char *header, int data_bytes)
{
    write_tensors("t.safetensors", header, data_bytes);
    error[0] = '\0';
    return lp_weights_open("t.safetensors", error, sizeof error);
}

static void good_headers_are_read(void **state)
{
    (void)state;
    LpWeights *weights =
        open_text(" { \"b\" : {\"shape\":[2,1], \"dtype\":\"F32\",\"data_offsets\":[4,12]},\n"
                  "\"__metadata__\":{\"format\":\"pt\",\"x\":\"\\u00e9\\ud83d\\ude00\"}, "
                  "\"a\\u002e\\\"w\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"
                  "\"none\":{\"dtype\":\"F16\",\"shape\":[0,5],\"data_offsets\":[4,4]},"
                  "\"scalar\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[12,13]}}   ",
                  13);
    if (!weights)
        fail_msg("%s", error);
    assert_int_equal(weights->count, 4);
    const LpEntry *entry = lp_weights_find(weights, "a.\"w");
    assert_non_null(entry);
    assert_string_equal(entry->type->name, "BF16");
    assert_int_equal(entry->end - entry->begin, 4);
    entry = lp_weights_find(weights, "b");
    assert_int_equal(entry->ndims, 2);
    assert_null(lp_weights_find(weights, "c"));
    lp_weights_close(weights);
    weights = open_text("{}", 0);
    assert_non_null(weights);
    lp_weights_close(weights);
}

#define T(name, type, shape, begin, end)                                                           \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":[" shape "],\"data_offsets\":[" begin "," end  \
    "]}"

static void bad_headers_are_refused_and_located(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        int data_bytes;
        const char *says;
    } bad[] = {
        {"{" T("a", "F32", "2", "0", "8") "}", 7, "data_offsets outside the file"},
        {"{" T("a", "F32", "2", "0", "8") "}", 9,
         "the tensors end at byte 8 of the data, the file has 9"},
        {"{" T("a", "F32", "2", "0", "4") "}", 4,
         "data_offsets and shape disagree on the size (at `a`)"},
        {"{" T("a", "F32", "2", "8", "0") "}", 8, "data_offsets outside the file"},
        {"{" T("a", "F32", "1", "0", "4") "," T("b", "F32", "1", "5", "9") "}", 9,
         "`b` begins at byte 5 of the data, after a hole from 4"},
        {"{" T("a", "F32", "2", "0", "8") "," T("b", "F32", "1", "4", "8") "}", 8,
         "`b` begins at byte 4 of the data, inside the tensor that ends at 8"},
        {"{" T("a", "F32", "1", "0", "4") "," T("a", "F32", "1", "4", "8") "}", 8,
         "`a` is there twice"},
        {"{" T("a", "F33", "1", "0", "4") "}", 4, "unknown dtype"},
        {"{" T("a", "F32", "-1", "0", "4") "}", 4, "expected a number that is not negative"},
        {"{" T("a", "F32", "1.0", "0", "4") "}", 4, "expected a whole number"},
        {"{" T("a", "F32", "01", "0", "4") "}", 4, "leading zero"},
        {"{" T("a", "F32", "9223372036854775807,9", "0", "4") "}", 4, "a shape too large"},
        {"{" T("a", "F32", "99999999999999999999", "0", "4") "}", 4, "a number too large"},
        {"{" T("a", "F32", "1,1,1,1,1,1,1,1,1", "0", "4") "}", 4, "more than 8 dims"},
        {"{" T("a", "F32", "1", "0", "4,5") "}", 4, "data_offsets are two numbers"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "needs dtype, shape and data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
         "a key twice"},
        {"{\"a\":{\"type\":\"F32\"}}", 4, "expected dtype, shape or data_offsets"},
        {"{" T("a", "F32", "1", "0", "4") ",}", 4, "expected a string"},
        {"{" T("a", "F32", "1", "0", "4") "", 4, "expected `,`"},
        {"{" T("a", "F32", "1", "0", "4") "} x", 4, "text after the end"},
        {"[1]", 0, "expected `{`"},
        {"", 0, "expected `{`"},
        {"{\"a", 0, "a string without end"},
        {"{\"\\x\":1}", 0, "bad escape"},
        {"{\"\\ud800\":1}", 0, "half a surrogate pair"},
        {"{\"\\u0000\":1}", 0, "a NUL in a string"},
        {"{\"\\u00g0\":1}", 0, "bad \\u escape"},
        {"{\"\n\":1}", 0, "a control character"},
        {"{\"__metadata__\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]", 0, "nested too deeply"},
        {"{\"__metadata__\":nul}", 0, "expected a value"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        LpWeights *weights = open_text(bad[i].header, bad[i].data_bytes);
        if (weights)
            fail_msg("accepted: %s", bad[i].header);
        assert_says(error, "t.safetensors: ");
        assert_says(error, bad[i].says);
    }
}

static void truncated_files_never_open(void **state)
{
    (void)state;
    const char *header = "{" T("a", "F32", "2", "0", "8") "," T("b", "BF16", "3", "8", "14") "}";
    unsigned char file[4096];
    write_tensors("t.safetensors", header, 14);
    FILE *whole = fopen("t.safetensors", "rb");
    assert_non_null(whole);
    size_t length = fread(file, 1, sizeof file, whole);
    fclose(whole);
    for (size_t n = 0; n < length; n++) {
        write_file("cut.safetensors", file, n);
        assert_null(lp_weights_open("cut.safetensors", error, sizeof error));
        assert_says(error, "cut.safetensors: ");
    }
    /* Any one byte of the length or header changed: refused or read, but never past the file. */
    for (size_t i = 0; i < length - 14; i++)
        for (int bit = 0; bit < 8; bit++) {
            file[i] ^= (unsigned char)(1 << bit);
            write_file("flip.safetensors", file, length);
            LpWeights *weights = lp_weights_open("flip.safetensors", error, sizeof error);
            for (int k = 0; weights && k < weights->count; k++)
                assert_true(weights->entries[k].end <= (int64_t)length);
            lp_weights_close(weights);
            file[i] ^= (unsigned char)(1 << bit);
        }
    assert_null(lp_weights_open("absent.safetensors", error, sizeof error));
    assert_says(error, "absent.safetensors: No such file");
}

static void every_type_of_weights_is_converted(void **state)
{
    (void)state;
    /* 1, -2.5, smallest subnormal half, infinity, NaN in half precision; then bf16, f64, f32. */
    static const uint16_t half[5] = {0x3c00, 0xc100, 0x0001, 0x7c00, 0x7e01};
    static const uint16_t brain[2] = {0x3f80, 0xc020};
    static const double wide[2] = {1.0 / 3, -2.5};
    static const float single[2] = {0.1f, -2.5f};
    const char *header =
        "{" T("h", "F16", "5", "0", "10") "," T("b", "BF16", "2", "10", "14") "," T(
            "w", "F64", "2", "14", "30") "," T("s", "F32", "2", "30", "38") "}";
    unsigned char file[1024];
    size_t n = strlen(header), at = 8 + n;
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)(n >> (8 * i));
    memcpy(file + 8, header, n);
    memcpy(file + at, half, 10);
    memcpy(file + at + 10, brain, 4);
    memcpy(file + at + 14, wide, 16);
    memcpy(file + at + 30, single, 8);
    write_file("types.safetensors", file, at + 38);
    LpWeights *weights = lp_weights_open("types.safetensors", error, sizeof error);
    assert_non_null(weights);
    LpShard five = {1, {5}, {0}, {5}}, two = {1, {2}, {0}, {2}}, second = {1, {2}, {1}, {1}};
    float got[5];
    double exact[2];
    assert_true(lp_weights_read(weights, lp_weights_find(weights, "h"), &five, got, LP_F32, error,
                                sizeof error));
    assert_true(got[0] == 1 && got[1] == -2.5f && got[2] == ldexpf(1, -24) && isinf(got[3]) &&
                isnan(got[4]));
    assert_true(lp_weights_read(weights, lp_weights_find(weights, "b"), &two, got, LP_F32, error,
                                sizeof error));
    assert_true(got[0] == 1 && got[1] == -2.5f);
    assert_true(lp_weights_read(weights, lp_weights_find(weights, "w"), &two, exact, LP_F64, error,
                                sizeof error));
    assert_true(exact[0] == 1.0 / 3 && exact[1] == -2.5);
    assert_true(lp_weights_read(weights, lp_weights_find(weights, "s"), &second, got, LP_F32, error,
                                sizeof error));
    assert_true(got[0] == -2.5f);
    lp_weights_close(weights);
}

static void an_index_joins_files(void **state)
{
    (void)state;
    static const char index[] = "{\"metadata\":{\"total_size\":8},\"weight_map\":{\"a\":\"1."
                                "safetensors\",\"b\":\"2.safetensors\",\"c\":\"1.safetensors\"}}";
    write_tensors("1.safetensors",
                  "{" T("a", "F32", "1", "0", "4") "," T("c", "F32", "1", "4", "8") "}", 8);
    write_tensors("2.safetensors", "{" T("b", "F32", "1", "0", "4") "}", 4);
    write_file("m.index.json", index, sizeof index - 1);
    LpWeights *weights = lp_weights_open("m.index.json", error, sizeof error);
    if (!weights)
        fail_msg("%s", error);
    assert_int_equal(weights->count, 3);
    assert_int_equal(weights->file_count, 2);
    lp_weights_close(weights);
    static const char outside[] = "{\"weight_map\":{\"a\":\"../1.safetensors\"}}";
    write_file("m.index.json", outside, sizeof outside - 1);
    assert_null(lp_weights_open("m.index.json", error, sizeof error));
    assert_says(error, "which is no file beside the index");
    write_file("m.index.json", "{}", 2);
    assert_null(lp_weights_open("m.index.json", error, sizeof error));
    assert_says(error, "no weight_map");
    static const char absent[] = "{\"weight_map\":{\"a\":\"9.safetensors\"}}";
    write_file("m.index.json", absent, sizeof absent - 1);
    assert_null(lp_weights_open("m.index.json", error, sizeof error));
    assert_says(error, "9.safetensors: No such file");
}

/* ---- through a job: loading, and writing what was loaded ---- */

enum { ROWS = 6, COLUMNS = 4 };

static const LpTensor table[] = {
    {"w", 2, {ROWS, COLUMNS}, LP_NORMAL, 1, false},
    {"gain", 1, {3}, LP_ONES, 0, false},
};

/* Four virtual ranks hold w as 2 x 2 boxes, the rows padded from 6 to 8 in the second layout. */
static void load_and_save(const LpRank *rank)
{
    float w[16], gain[3];
    int row = rank->index / 2, column = rank->index % 2;
    bool padded = getenv("LP_PADDED") != NULL, gap = getenv("LP_GAP") != NULL;
    int64_t rows = padded ? 4 : 3;
    LpPart parts[] = {
        {.tensor = 0,
         .data = w,
         .owner = !(gap && rank->index == 2),
         .shard = {2, {ROWS, COLUMNS}, {row * rows, column * 2}, {rows, 2}}},
        {.tensor = 1, .data = gain, .owner = rank->index == 3, .shard = {1, {3}, {0}, {3}}},
    };
    lp_load(parts, LP_COUNT(parts));
    if (padded && row == 1)
        for (int i = 4; i < 8; i++)
            if (w[i] != 0)
                lp_fail(9, "padding is not zero");
    lp_finish(parts, LP_COUNT(parts));
}

static const int64_t arenas[2] = {64, 64};
static const LpJob job = {
    .name = "weights",
    .plan_hash = "none",
    .ranks = 4,
    .stages = 2,
    .ranks_per_stage = 2,
    .arena_bytes = arenas,
    .tensors = table,
    .tensor_count = 2,
    .seq = 1,
    .vocab = 1,
    .micro_batches = 1,
    .rows = 1,
    .run = load_and_save,
};

static void compare_files(const char *a, const char *b)
{
    char x[2048], y[2048];
    FILE *first = fopen(a, "rb"), *second = fopen(b, "rb");
    assert_true(first && second);
    size_t n = fread(x, 1, sizeof x, first), k = fread(y, 1, sizeof y, second);
    assert_int_equal(n, k);
    assert_memory_equal(x, y, n);
    fclose(first);
    fclose(second);
}

static void what_is_saved_loads_under_another_layout(void **state)
{
    (void)state;
    char said[4096];
    const char *save[] = {"--virtual", "--data",         "random", "--quiet",
                          "--save",    "s1.safetensors", NULL};
    const char *load[] = {
        "--virtual", "--data",         "random", "--quiet", "--init", "s1.safetensors",
        "--save",    "s2.safetensors", "--seed", "5",       NULL};
    if (forked_run(&job, save, said, sizeof said) != 0)
        fail_msg("%s", said);
    assert_int_equal(setenv("LP_PADDED", "1", 1), 0);
    if (forked_run(&job, load, said, sizeof said) != 0)
        fail_msg("%s", said);
    compare_files("s1.safetensors", "s2.safetensors");
    /* Random values too do not know the layout. */
    const char *other[] = {"--virtual", "--data",         "random", "--quiet",
                           "--save",    "s3.safetensors", NULL};
    assert_int_equal(forked_run(&job, other, said, sizeof said), 0);
    compare_files("s1.safetensors", "s3.safetensors");
    unsetenv("LP_PADDED");
    LpWeights *weights = lp_weights_open("s1.safetensors", error, sizeof error);
    assert_non_null(weights);
    float w[ROWS * COLUMNS], want[ROWS * COLUMNS], gain[3];
    LpShard all = {2, {ROWS, COLUMNS}, {0, 0}, {ROWS, COLUMNS}}, three = {1, {3}, {0}, {3}};
    assert_true(lp_weights_read(weights, lp_weights_find(weights, "w"), &all, w, LP_F32, error,
                                sizeof error));
    lp_fill_shard(want, LP_F32, &all, LP_NORMAL, 1, 0, 0);
    assert_memory_equal(w, want, sizeof w);
    assert_true(lp_weights_read(weights, lp_weights_find(weights, "gain"), &three, gain, LP_F32,
                                error, sizeof error));
    assert_true(gain[0] == 1 && gain[2] == 1);
    lp_weights_close(weights);
}

static void a_file_without_owner_is_not_written(void **state)
{
    (void)state;
    char said[4096];
    const char *save[] = {"--virtual", "--data",          "random", "--quiet",
                          "--save",    "gap.safetensors", NULL};
    assert_int_equal(setenv("LP_GAP", "1", 1), 0);
    assert_int_equal(forked_run(&job, save, said, sizeof said), 70);
    assert_says(said, "owners wrote 18 elements of w, which has 24");
    unsetenv("LP_GAP");
    assert_int_equal(access("gap.safetensors", F_OK), -1);
    const char *nowhere[] = {
        "--virtual", "--data", "random", "--quiet", "--save", "no/such/w.safetensors", NULL};
    assert_int_equal(forked_run(&job, nowhere, said, sizeof said), 1);
    assert_says(said, "cannot write no/such/w.safetensors: No such file");
}

static void all_that_does_not_fit_is_listed_at_once(void **state)
{
    (void)state;
    char said[4096];
    const char *load[] = {"--virtual",         "--data", "random", "--quiet", "--init",
                          "other.safetensors", NULL};
    write_tensors("other.safetensors",
                  "{" T("w", "F32", "4,6", "0", "96") "," T("bias", "F32", "2", "96", "104") "}",
                  104);
    assert_int_equal(forked_run(&job, load, said, sizeof said), 1);
    assert_says(said, "other.safetensors does not fit the model:");
    assert_says(said, "shape of w: [4,6] in the file, [6,4] in the model");
    assert_says(said, "missing in the file: gain [3]");
    assert_says(said, "unknown to the model: bias [2]");
    write_tensors("other.safetensors",
                  "{" T("w", "F32", "6,4", "0", "96") "," T("gain", "I32", "3", "96", "108") "}",
                  108);
    assert_int_equal(forked_run(&job, load, said, sizeof said), 1);
    assert_says(said, "type of gain: I32 holds no weights");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_headers_are_read),
        cmocka_unit_test(bad_headers_are_refused_and_located),
        cmocka_unit_test(truncated_files_never_open),
        cmocka_unit_test(every_type_of_weights_is_converted),
        cmocka_unit_test(an_index_joins_files),
        cmocka_unit_test(what_is_saved_loads_under_another_layout),
        cmocka_unit_test(a_file_without_owner_is_not_written),
        cmocka_unit_test(all_that_does_not_fit_is_listed_at_once),
    };
    enter_folder();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
