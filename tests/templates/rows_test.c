/* rows_test.c - rows to the ranks that have what they choose, and back: all members in one process,
 * judged by going through the choices one by one. */
#include "templates/host/rows.c"

#include <stdlib.h>

#include "ir/base/rng.h"
#include "tests/check.h"

enum { MOST_MEMBERS = 5, EACH = 12, MOST_ROWS = MOST_MEMBERS * (EACH + 1), ELEMENTS = 3 };

/* How the choices of a case are made: `skew` of 0 is even, -1 chooses nobody, other numbers only
 * things of member skew - 1. */
typedef struct Game {
    int members, named, skew;
    uint64_t seed;
    int32_t choice[MOST_ROWS];
    int16_t rows[MOST_ROWS][ELEMENTS]; /* whose values are their own numbers: any width will do */
    int16_t sent[MOST_MEMBERS][MOST_ROWS][ELEMENTS];
    int16_t came[MOST_MEMBERS][MOST_ROWS][ELEMENTS];
    int64_t out[MOST_MEMBERS][MOST_MEMBERS], in[MOST_MEMBERS][MOST_MEMBERS];
} Game;

static LpRows rows_of(const Game *g, int me)
{
    return (LpRows){.rows = g->members * EACH,
                    .members = g->members,
                    .me = me,
                    .named = g->named,
                    .elements = ELEMENTS,
                    .width = sizeof(int16_t),
                    .room = g->members * EACH};
}

static void make_choices(Game *g)
{
    for (int i = 0; i < g->members * EACH; i++) {
        double u = rng_unit(g->seed, 3, (uint64_t)i);
        int all = g->members * g->named;
        g->choice[i] = g->skew == 0  ? (int32_t)(u * (all + 1)) - 1
                       : g->skew < 0 ? -1
                                     : (g->skew - 1) * g->named + (int32_t)(u * g->named);
        for (int k = 0; k < ELEMENTS; k++)
            g->rows[i][k] = (int16_t)(1 + i * ELEMENTS + k);
    }
}

/* What an all-to-all of the given sizes does, blocks one behind the other on both sides. */
static void exchange(const Game *g, int64_t give[][MOST_MEMBERS], int64_t take[][MOST_MEMBERS],
                     int16_t (*from)[MOST_ROWS][ELEMENTS], int16_t (*to)[MOST_ROWS][ELEMENTS])
{
    for (int a = 0; a < g->members; a++) {
        int64_t at = 0;
        for (int b = 0; b < g->members; b++) {
            int64_t begin = 0;
            for (int i = 0; i < a; i++)
                begin += take[b][i];
            assert_int_equal(give[a][b], take[b][a]);
            memcpy(&to[b][0][0] + begin, &from[a][0][0] + at, (size_t)give[a][b] * sizeof(int16_t));
            at += give[a][b];
        }
    }
}

static void check_out(const Game *g, int me)
{
    static int16_t want[MOST_ROWS][ELEMENTS], cut[MOST_ROWS][ELEMENTS];
    const LpRows r = rows_of(g, me);
    long got = 0;
    memset(want, 0, sizeof want);
    for (int i = 0; i < r.rows; i++)
        if (g->choice[i] >= me * g->named && g->choice[i] < (me + 1) * g->named)
            memcpy(want[got++], g->rows[i], sizeof want[0]);
    assert_memory_equal(g->came[me], want, (size_t)r.rows * sizeof want[0]);
    /* The same out of everybody's rows, and as much of it as there is room for. */
    memset(cut, 1, sizeof cut);
    assert_int_equal(lp_rows_cut(&r, g->choice, g->rows, 0, cut), got);
    assert_memory_equal(cut, want, (size_t)r.rows * sizeof want[0]);
    LpRows tight = r;
    tight.room = 2;
    memset(cut, 1, sizeof cut);
    assert_int_equal(lp_rows_cut(&tight, g->choice, g->rows, 255, cut), got);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < ELEMENTS; k++)
            assert_int_equal(cut[i][k], i < got ? want[i][k] : -1);
    assert_int_equal(cut[2][0], 0x0101);
}

static void check_back(const Game *g, int me, const int16_t (*back)[ELEMENTS])
{
    static int16_t home[EACH][ELEMENTS];
    static const int16_t nothing[ELEMENTS];
    const LpRows r = rows_of(g, me);
    memset(home, 1, sizeof home);
    lp_rows_unpack(&r, g->choice, back, home);
    for (int i = 0; i < EACH; i++)
        assert_memory_equal(home[i],
                            g->choice[me * EACH + i] < 0 ? nothing : g->rows[me * EACH + i],
                            sizeof home[i]);
}

static void check_game(int members, int named, int skew, uint64_t seed)
{
    static Game g;
    static int16_t back[MOST_MEMBERS][MOST_ROWS][ELEMENTS];
    g = (Game){.members = members, .named = named, .skew = skew, .seed = seed};
    make_choices(&g);
    for (int me = 0; me < members; me++) {
        const LpRows r = rows_of(&g, me);
        int64_t came = 0;
        long got = lp_rows_sizes(&r, g.choice, g.out[me], g.in[me]);
        for (int i = 0; i < members; i++)
            came += g.in[me][i];
        assert_int_equal(got * ELEMENTS, came);
        lp_rows_pack(&r, g.choice, g.out[me], g.rows[me * EACH], g.sent[me]);
        memset(g.came[me], 1, sizeof g.came[me]);
        lp_rows_fill(&r, g.in[me], g.came[me]);
    }
    exchange(&g, g.out, g.in, g.sent, g.came);
    for (int me = 0; me < members; me++)
        check_out(&g, me);
    exchange(&g, g.in, g.out, g.came, back);
    for (int me = 0; me < members; me++)
        check_back(&g, me, back[me]);
}

/* Messages of one size: as many rows as any member gives another, behind which zeros go out and
 * anything may come back; one row less is noticed by who sends and by who cuts. */
static void check_padded(int members, int named, int skew, uint64_t seed)
{
    static Game g;
    static int16_t back[MOST_ROWS][ELEMENTS], home[EACH][ELEMENTS], cut[MOST_ROWS][ELEMENTS];
    static const int16_t nothing[ELEMENTS];
    g = (Game){.members = members, .named = named, .skew = skew, .seed = seed};
    make_choices(&g);
    long most = 0, count[MOST_MEMBERS][MOST_MEMBERS] = {{0}};
    for (int i = 0; i < members * EACH; i++)
        if (g.choice[i] >= 0)
            count[i / EACH][g.choice[i] / named]++;
    for (int i = 0; i < members * members; i++)
        most = count[i / members][i % members] > most ? count[i / members][i % members] : most;
    const long message = most + 1;
    for (int me = 0; me < members; me++) {
        LpRows r = rows_of(&g, me);
        r.message = message;
        r.room = members * message;
        memset(g.sent[me], 1, sizeof g.sent[me]);
        long fullest = lp_rows_pad(&r, g.choice, g.rows[me * EACH], g.sent[me]);
        for (int to = 0; to < members; to++)
            assert_true(count[me][to] <= fullest);
        assert_true(fullest <= most);
        r.message = 1;
        assert_int_equal(lp_rows_pad(&r, g.choice, g.rows[me * EACH], back), fullest);
    }
    for (int me = 0; me < members; me++) {
        LpRows r = rows_of(&g, me);
        r.message = message;
        r.room = members * message;
        long fullest = 0;
        for (int from = 0; from < members; from++) {
            memcpy(g.came[me][from * message], g.sent[from][me * message],
                   (size_t)message * sizeof g.came[me][0]);
            fullest = count[from][me] > fullest ? count[from][me] : fullest;
            for (long i = count[from][me]; i < message; i++)
                assert_memory_equal(g.came[me][from * message + i], nothing, sizeof nothing);
        }
        assert_int_equal(lp_rows_cut(&r, g.choice, g.rows, 0, cut), fullest);
        assert_memory_equal(cut, g.came[me], (size_t)r.room * sizeof cut[0]);
    }
    for (int me = 0; me < members; me++) {
        LpRows r = rows_of(&g, me);
        r.message = message;
        memset(back, 1, sizeof back);
        for (int from = 0; from < members; from++)
            memcpy(back[from * message], g.came[from][me * message],
                   (size_t)count[me][from] * sizeof back[0]);
        memset(home, 1, sizeof home);
        lp_rows_unpad(&r, g.choice, back, home);
        for (int i = 0; i < EACH; i++)
            assert_memory_equal(home[i],
                                g.choice[me * EACH + i] < 0 ? nothing : g.rows[me * EACH + i],
                                sizeof home[i]);
    }
}

static void test_even(void **state)
{
    (void)state;
    for (int members = 1; members <= MOST_MEMBERS; members++)
        for (int named = 1; named <= 4; named++)
            for (uint64_t seed = 0; seed < 5; seed++) {
                check_game(members, named, 0, seed);
                check_padded(members, named, 0, seed);
            }
}

/* Everybody chooses one member's things, so the others get nothing; or nobody chooses at all. */
static void test_skewed(void **state)
{
    (void)state;
    for (int skew = -1; skew <= 3; skew++)
        check_game(3, 2, skew, 9);
    for (int skew = -1; skew <= 3; skew++)
        check_padded(3, 2, skew, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_even),
        cmocka_unit_test(test_skewed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
