/* test_passing.c - blocks of the sequence pass by products on tp: what lowering makes of it, and
 * that the static proof notices every turn that works otherwise. */
#include "ir/lower/check.h"

#include <string.h>

#include "tests/check.h"
#include "tests/ir/lower/plans.h"
#include "tests/ir/tiny_models.h"

enum { RING = 4 };

/* The tiny model with dims that divide, and tokens enough that a gather of them is dear beside one
 * of weights. */
static Program *ring_program(Arena *arena)
{
    static const char old[] = "\"h\":6,\"f\":5,\"v\":11,\"g\":2,\"r\":2,\"d\":4",
                      new[] = "\"h\":256,\"f\":1024,\"v\":64,\"g\":4,\"r\":2,\"d\":32";
    const char *at = strstr(tiny_llama, old);
    assert_non_null(at);
    PlanCase ring = {.ranks = RING,
                     .batch = 4,
                     .sequence = 2048,
                     .pins = "tp=4,sp=1,tp_by=ring,mbs=2",
                     .recipe = "fp64"};
    ring.model = arena_printf(arena, "%.*s%s%s", (int)(at - tiny_llama), tiny_llama, new,
                              at + sizeof old - 1);
    return program_of(arena, &ring);
}

static int moves_of(const InstList *list, MoveKind kind, const Body *body, const char *value)
{
    int n = 0;
    for (int i = 0; i < list->n; i++) {
        const Inst *inst = &list->at[i];
        const Copy *from = &body->copies.at[inst->in[0]];
        n += inst->kind == INST_MOVE && inst->move.kind == kind &&
             (!value || str_eq(body->graph->values.at[from->value].name, value));
    }
    return n;
}

static const Body *layer_of(const Program *program)
{
    return program->body[program->net->chain.at[1].class];
}

/* The kernels of the node that makes a value; how many of them add to what is there. */
static int runs_of(const InstList *list, const Body *body, const char *value, int *ret_adds)
{
    int runs = 0;
    *ret_adds = 0;
    for (int i = 0; i < list->n; i++) {
        const Inst *inst = &list->at[i];
        if (inst->kind != INST_KERNEL || !str_eq(body->graph->nodes.at[inst->node[0]].name, value))
            continue;
        *ret_adds += inst->adds != 0;
        assert_int_equal(inst->turn, runs++);
    }
    return runs;
}

/* No tokens are gathered, no sum of them is scattered whole; what several products read passes by
 * once, and products write their blocks where they belong. */
static void test_bodies(void **state)
{
    (void)state;
    Arena *arena = arena_new("passing");
    Program *program = ring_program(arena);
    const Body *body = layer_of(program);
    int adds;
    assert_int_equal(moves_of(&body->forward, MOVE_ALL_GATHER, body, NULL), 0);
    assert_int_equal(moves_of(&body->forward, MOVE_REDUCE_SCATTER, body, NULL), 0);
    assert_int_equal(moves_of(&body->backward, MOVE_ALL_GATHER, body, NULL), 0);
    assert_int_equal(runs_of(&body->forward, body, "k", &adds), RING);
    assert_int_equal(runs_of(&body->forward, body, "v", &adds), RING);
    assert_int_equal(adds, 0);
    assert_int_equal(moves_of(&body->forward, MOVE_ROTATE, body, "n1"), RING - 1);
    assert_int_equal(runs_of(&body->forward, body, "o", &adds), RING);
    assert_int_equal(moves_of(&body->forward, MOVE_ROTATE, body, "o"), RING);
    assert_int_equal(runs_of(&body->backward, body, "d.mlp.up_proj.weight", &adds), RING);
    assert_int_equal(adds, RING - 1);
    arena_free(arena);
}

/* ---- what the proof notices ---- */

typedef struct Tamper {
    const char *what;
    bool (*apply)(Body *body, Inst *inst); /* false: not here */
} Tamper;

static bool is_turn(const Inst *inst)
{
    return inst->kind == INST_KERNEL && inst->turn > 0;
}

static bool overwrite_sum(Body *body, Inst *inst)
{
    (void)body;
    bool here = is_turn(inst) && inst->adds;
    inst->adds = here ? 0 : inst->adds;
    return here;
}

static bool add_to_nothing(Body *body, Inst *inst)
{
    AtomList ring = inst->kind == INST_KERNEL
                        ? node_ring(body->mesh, &body->plan->choice[inst->node[0]])
                        : (AtomList){0};
    bool here = ring.n > 0 && inst->turn == 0;
    inst->adds |= here;
    return here;
}

static bool same_turn_twice(Body *body, Inst *inst)
{
    (void)body;
    bool here = is_turn(inst);
    inst->turn -= here;
    return here;
}

static bool wrong_way(Body *body, Inst *inst)
{
    (void)body;
    bool here = inst->kind == INST_MOVE && inst->move.kind == MOVE_ROTATE;
    inst->move.by = here ? RING - 1 : inst->move.by;
    return here;
}

/* The turn's operand is that of another turn. */
static bool stale_block(Body *body, Inst *inst)
{
    for (int k = 0; is_turn(inst) && k < inst->ins; k++) {
        const Copy *copy = &body->copies.at[inst->in[k]];
        for (int i = 0; copy->turn > 0 && i < body->copies.n; i++)
            if (i != inst->in[k] && body->copies.at[i].value == copy->value &&
                place_equal(&body->copies.at[i].place, &copy->place)) {
                inst->bind_in[0][inst->bind_in[0][0] == inst->in[k] ? 0 : 1] = i;
                inst->in[k] = i;
                return true;
            }
    }
    return false;
}

static void test_tampered(void **state)
{
    (void)state;
    static const Tamper all[] = {{"overwrites a sum", overwrite_sum},
                                 {"adds to nothing", add_to_nothing},
                                 {"runs one turn twice", same_turn_twice},
                                 {"passes the wrong way", wrong_way},
                                 {"reads another turn's block", stale_block}};
    for (size_t t = 0; t < sizeof all / sizeof *all; t++) {
        int hits = 0;
        for (int at = 0, end = 1; at < end; at += 7) {
            Arena *arena = arena_new("tampered");
            Program *program = ring_program(arena);
            Body *body = program->body[program->net->chain.at[1].class];
            InstList *lists[] = {&body->forward, &body->backward};
            bool done = false;
            for (int l = 0, seen = 0; l < 2; l++)
                for (int i = 0; i < lists[l]->n && !done; i++, seen++)
                    done = seen >= at && all[t].apply(body, &lists[l]->at[i]);
            end = body->forward.n + body->backward.n;
            Diag *diag = diag_new(arena);
            CheckReport report;
            hits += done;
            if (done && program_check(arena, program, 2, diag, &report))
                fail_msg("a turn that %s is not noticed, behind instruction %d", all[t].what, at);
            arena_free(arena);
        }
        assert_true(hits > 5);
    }
}

/* In 16 bits, keys and values pass by as they are; what turns sum over tokens is fp32 until all of
 * them are in it, and one that is not is noticed. */
static void test_narrow(void **state)
{
    (void)state;
    PlanCase ring = {.model = tiny_llama,
                     .ranks = RING,
                     .batch = 2,
                     .sequence = 8,
                     .pins = "tp=1,cp=4,cp_by=ring,mbs=2",
                     .recipe = "bf16"};
    Arena *arena = arena_new("narrow");
    Program *program = program_of(arena, &ring);
    Body *body = program->body[program->net->chain.at[1].class];
    int narrow = 0, wide = 0, merges = 0;
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < body_list(body, l)->n; i++) {
            const Inst *inst = &body_list(body, l)->at[i];
            Copy *copy = &body->copies.at[inst->out[0]];
            if (inst->kind == INST_MOVE && inst->move.kind == MOVE_ROTATE) {
                narrow += copy->dtype == DT_BF16;
                wide += copy->dtype == DT_F32;
            }
            if (inst->kind != INST_MERGE)
                continue;
            Diag *diag = diag_new(arena);
            CheckReport report;
            bool noticed = false;
            copy->dtype = DT_BF16;
            copy->bytes /= 2;
            merges++;
            assert_false(program_check(arena, program, 2, diag, &report));
            for (int d = 0; d < diag_errors(diag); d++)
                noticed |= strstr(diag_item(diag, d)->text, "rounded in every turn") != NULL;
            assert_true(noticed);
            copy->dtype = DT_F32;
            copy->bytes *= 2;
        }
    assert_int_equal(narrow, 2 * 2 * (RING - 1)); /* keys and values, there and again in backward */
    assert_int_equal(wide, 2 * RING);             /* their gradients, on the way home */
    assert_int_equal(merges, (RING - 1) * (1 + 3));
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bodies), cmocka_unit_test(test_narrow),
                                       cmocka_unit_test(test_tampered)};
    return cmocka_run_group_tests_name("passing", tests, NULL, NULL);
}
