/* test_data.c - token files, good and bad, and the global batch cut out of them. */
#include "tests/runtime/forked.h"

#include <math.h>

enum { SEQ = 4, MICRO = 2, ROWS = 3 };

/* Writes what a rank sees: every cell of two steps, read whole and again in pieces. */
static void read_all(const LpRank *rank)
{
    (void)rank;
    float sum = 0;
    for (int64_t step = 0; step < 2; step++)
        for (int micro = 0; micro < MICRO; micro++) {
            int32_t ids[ROWS * SEQ], labels[ROWS * SEQ], piece[SEQ], after[SEQ];
            float weight[ROWS * SEQ];
            lp_batch(step, micro, 0, ROWS, 0, SEQ, ids, labels, weight, NULL);
            for (int i = 0; i < ROWS * SEQ; i++)
                sum += step == 0 ? weight[i] : 0;
            for (int row = 0; row < ROWS; row++)
                for (int half = 0; half < SEQ; half += 2) {
                    lp_batch(step, micro, row, 1, half, 2, piece, after, NULL, NULL);
                    if (memcmp(piece, ids + row * SEQ + half, 8) ||
                        memcmp(after, labels + row * SEQ + half, 8))
                        lp_fail(9, "a piece differs from the whole");
                }
            for (int i = 0; i < ROWS * SEQ; i++)
                printf("%d>%d ", ids[i], labels[i]);
            printf("\n");
        }
    printf("weights %.6f\n", sum);
}

static const int64_t arena = 64;
static const LpJob job = {
    .name = "data",
    .plan_hash = "none",
    .ranks = 1,
    .stages = 1,
    .ranks_per_stage = 1,
    .arena_bytes = &arena,
    .seq = SEQ,
    .vocab = 300,
    .micro_batches = MICRO,
    .rows = ROWS,
    .run = read_all,
};

static int read_file(const char *path, char *said, size_t size)
{
    const char *arguments[] = {"--data", path, "--quiet", NULL};
    return forked_run(&job, arguments, said, size);
}

static void text_is_read_by_bytes_in_order(void **state)
{
    (void)state;
    char said[4096], text[200], want[32];
    for (int i = 0; i < 200; i++)
        text[i] = (char)(i + 1);
    write_file("long.txt", text, 200);
    assert_int_equal(read_file("long.txt", said, sizeof said), 0);
    const char *at = said;
    /* 2 steps of 2 micro-batches of 3 rows of 4 positions: tokens 0..47, each followed by the next.
     */
    for (int i = 0; i < 48; i++) {
        int length = snprintf(want, sizeof want, "%d>%d ", i + 1, i + 2);
        at += *at == '\n';
        assert_memory_equal(at, want, (size_t)length);
        at += length;
    }
    assert_says(said, "weights 1.000000\n");
}

static void short_files_start_again(void **state)
{
    (void)state;
    char said[4096];
    /* 10 tokens: two samples of 4 (the last token is only a label), so rows alternate. */
    write_file("ten.txt", "abcdefghij", 10);
    assert_int_equal(read_file("ten.txt", said, sizeof said), 0);
    assert_says(said, "97>98 98>99 99>100 100>101 101>102 102>103 103>104 104>105 97>98 ");
    /* Shorter than one sample: circular. */
    write_file("two.txt", "ab", 2);
    assert_int_equal(read_file("two.txt", said, sizeof said), 0);
    assert_says(said, "97>98 98>97 97>98 98>97 97>98 ");
    write_file("one.txt", "a", 1);
    assert_int_equal(read_file("one.txt", said, sizeof said), 0);
    assert_says(said, "97>97 97>97 ");
}

static size_t bin_make(unsigned char *out, int magic, int version, int said_tokens, int tokens,
                       int width)
{
    int32_t header[256] = {magic, version, said_tokens};
    memcpy(out, header, sizeof header);
    for (int i = 0; i < tokens; i++) {
        uint32_t token = (uint32_t)(i % 290);
        memcpy(out + sizeof header + i * width, &token, (size_t)width); /* little endian */
    }
    return sizeof header + (size_t)(tokens * width);
}

static void llmc_files_hold_wide_tokens(void **state)
{
    (void)state;
    unsigned char file[8192];
    char said[4096], again[4096];
    size_t bytes = bin_make(file, 20240520, 1, 600, 600, 2);
    write_file("a.bin", file, bytes);
    assert_int_equal(read_file("a.bin", said, sizeof said), 0);
    assert_says(said, "0>1 1>2 2>3 3>4 4>5 ");
    bytes = bin_make(file, 20240801, 7, 600, 600, 4);
    write_file("b.bin", file, bytes);
    assert_int_equal(read_file("b.bin", again, sizeof again), 0);
    assert_string_equal(said, again);
}

static void broken_files_are_named_and_located(void **state)
{
    (void)state;
    unsigned char file[8192] = {0};
    char said[4096];
    size_t bytes = bin_make(file, 20240520, 1, 600, 599, 2);
    write_file("short.bin", file, bytes);
    assert_int_equal(read_file("short.bin", said, sizeof said), 1);
    assert_says(
        said,
        "short.bin: byte 8: the header says 600 tokens, that is 2224 bytes, but the file has 2222");
    bytes = bin_make(file, 20240520, 1, 600, 601, 2);
    write_file("long.bin", file, bytes);
    assert_int_equal(read_file("long.bin", said, sizeof said), 1);
    assert_says(said, "long.bin: byte 8:");
    bytes = bin_make(file, 20240520, 7, 600, 600, 2);
    write_file("version.bin", file, bytes);
    assert_int_equal(read_file("version.bin", said, sizeof said), 1);
    assert_says(said, "version.bin: byte 4: version 7 of the token format, expected 1");
    bytes = bin_make(file, 20240520, 1, -5, 600, 2);
    write_file("negative.bin", file, bytes);
    assert_int_equal(read_file("negative.bin", said, sizeof said), 1);
    assert_says(said, "negative.bin: byte 8:");
    write_file("magic.bin", "hello", 5);
    assert_int_equal(read_file("magic.bin", said, sizeof said), 1);
    assert_says(said, "magic.bin: byte 0: not a token file");
    write_file("empty.txt", "", 0);
    assert_int_equal(read_file("empty.txt", said, sizeof said), 1);
    assert_says(said, "empty.txt: no tokens");
    assert_int_equal(read_file("absent.txt", said, sizeof said), 1);
    assert_says(said, "absent.txt: No such file");
    assert_int_equal(read_file("/tmp", said, sizeof said), 1);
    assert_says(said, "/tmp: not a file");
    bytes = bin_make(file, 20240520, 1, 600, 600, 2);
    file[1024 + 2 * 7 + 1] = 200;
    write_file("vocab.bin", file, bytes);
    assert_int_equal(read_file("vocab.bin", said, sizeof said), 1);
    assert_says(said, "vocab.bin: token 7 is 51207, the model's vocabulary has 300");
}

static void random_data_repeats(void **state)
{
    (void)state;
    char said[4096], again[4096];
    assert_int_equal(read_file("random", said, sizeof said), 0);
    assert_int_equal(read_file("random", again, sizeof again), 0);
    assert_string_equal(said, again);
    const char *arguments[] = {"--data", "random", "--seed", "9", "--quiet", NULL};
    assert_int_equal(forked_run(&job, arguments, again, sizeof again), 0);
    assert_string_not_equal(said, again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_read_by_bytes_in_order),
        cmocka_unit_test(short_files_start_again),
        cmocka_unit_test(llmc_files_hold_wide_tokens),
        cmocka_unit_test(broken_files_are_named_and_located),
        cmocka_unit_test(random_data_repeats),
    };
    enter_folder();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
