/* test_check_layout.c - the static proof sees every layout, table, bucket and body that is broken
 * on purpose. */
#include "ir/lower/check.h"

#include <string.h>

#include "ir/lower/layout.h"
#include "ir/lower/prove.h"
#include "tests/check.h"
#include "tests/ir/lower/plans.h"
#include "tests/ir/tiny_models.h"

/* ---- layout ---- */

static void check_rings(Arena *arena, Program *program, int at)
{
    (void)arena;
    program->slack = 0; /* slack is the slot that only saves waiting */
    for (int s = 0; s < program->stages; s++) {
        StageProgram *stage = &program->stage[s];
        stage_layout(program, stage);
        CheckReport report;
        assert_true(stage_holds(program, s, 0, NULL, &report));
        for (int k = 0; k < RING_COUNT; k++) {
            if (stage->chunk[0].ring[k].n < 2)
                continue;
            stage->chunk[0].ring[k].n--;
            if (stage_holds(program, s, 0, NULL, &report))
                fail_msg("case %d, stage %d: the %s ring does without its last slot", at, s,
                         ring_text[k]);
            stage->chunk[0].ring[k].n++;
        }
    }
}

static void test_short_rings(void **state)
{
    (void)state;
    program_each(check_rings);
}

/* Every address of a layout, moved by one grain towards its neighbour, and one ring onto another.
 */
static void check_overlaps(Arena *arena, Program *program, int at)
{
    (void)arena;
    for (int s = 0; s < program->stages; s++) {
        StageProgram *stage = &program->stage[s];
        int64_t *address[64];
        int n = 0;
        for (int g = 0; g < stage->groups.n && n < 40; g++) {
            Group *group = &stage->groups.at[g];
            address[n++] = &group->weight;
            address[n++] = &group->gradient;
            address[n++] = &group->moment1;
            address[n++] = &group->moment2;
        }
        for (int k = 0; k < RING_COUNT; k++)
            if (stage->chunk[0].ring[k].n)
                address[n++] = &stage->chunk[0].ring[k].base;
        for (int k = 0; k < 4 && stage->pass_bytes; k++)
            address[n++] = &stage->pass[k];
        address[n++] = &stage->scratch;
        for (int i = 0; i < n; i++) {
            CheckReport report;
            *address[i] -= 64;
            if (program_holds(program, NULL, &report))
                fail_msg("case %d, stage %d: region %d may begin one grain earlier", at, s, i);
            *address[i] += 64;
        }
        for (int a = 0; a < RING_COUNT; a++)
            for (int b = 0; b < RING_COUNT; b++) {
                if (a == b || !stage->chunk[0].ring[a].n || !stage->chunk[0].ring[b].n)
                    continue;
                CheckReport report;
                int64_t base = stage->chunk[0].ring[a].base;
                stage->chunk[0].ring[a].base = stage->chunk[0].ring[b].base;
                if (program_holds(program, NULL, &report))
                    fail_msg("case %d, stage %d: the %s ring may lie on the %s ring", at, s,
                             ring_text[a], ring_text[b]);
                stage->chunk[0].ring[a].base = base;
            }
        int64_t bytes = stage->arena_bytes;
        stage->arena_bytes -= 64;
        CheckReport report;
        assert_false(program_holds(program, NULL, &report));
        stage->arena_bytes = bytes;
    }
}

static void test_overlapping_regions(void **state)
{
    (void)state;
    program_each(check_overlaps);
}

/* Two rings in the same bytes are also seen without the layout, by what the bytes hold. */
static void check_overlap_by_name(Arena *arena, Program *program, int at)
{
    (void)arena;
    for (int s = 0; s < program->stages; s++) {
        StageProgram *stage = &program->stage[s];
        CheckReport report;
        int64_t base = stage->chunk[0].ring[RING_SAVED].base;
        stage->chunk[0].ring[RING_SAVED].base = stage->scratch;
        if (stage_holds(program, s, 0, NULL, &report))
            fail_msg("case %d, stage %d: saved values may lie in the scratch area", at, s);
        stage->chunk[0].ring[RING_SAVED].base = base;
    }
}

static void test_overlaps_seen_by_name(void **state)
{
    (void)state;
    program_each(check_overlap_by_name);
}

/* ---- tables ---- */

static void swap_entries(StageProgram *stage, int a, int b)
{
    Entry entry = stage->table.at[a];
    stage->table.at[a] = stage->table.at[b];
    stage->table.at[b] = entry;
}

/* Two messages of one channel in the other order. */
static void check_swaps(Arena *arena, Program *program, int at)
{
    (void)arena;
    for (int s = 0; s < program->stages; s++) {
        StageProgram *stage = &program->stage[s];
        for (int i = 0; i < stage->table.n; i++)
            for (int j = i + 1; j < stage->table.n; j++) {
                const Entry *a = &stage->table.at[i], *b = &stage->table.at[j];
                bool message = a->kind == ENTRY_SEND || a->kind == ENTRY_RECV;
                if (!message || a->kind != b->kind || a->message != b->message)
                    continue;
                CheckReport report;
                swap_entries(stage, i, j);
                if (program_holds(program, NULL, &report))
                    fail_msg("case %d, stage %d: entries %d and %d may change places", at, s, i, j);
                swap_entries(stage, i, j);
                break;
            }
    }
}

static void test_swapped_messages(void **state)
{
    (void)state;
    program_each(check_swaps);
}

/* No entry of a table may be missing. */
static void check_missing_entries(Arena *arena, Program *program, int at)
{
    for (int s = 0; s < program->stages; s++) {
        StageProgram *stage = &program->stage[s];
        Entry *whole = stage->table.at;
        int n = stage->table.n;
        for (int i = 0; i < n; i++) {
            Entry *without = ARENA_ARRAY(arena, Entry, n);
            memcpy(without, whole, (size_t)i * sizeof *whole);
            memcpy(without + i, whole + i + 1, (size_t)(n - i - 1) * sizeof *whole);
            stage->table.at = without;
            stage->table.n = n - 1;
            CheckReport report;
            if (program_holds(program, NULL, &report))
                fail_msg("case %d, stage %d: entry %d (%s) may be missing", at, s, i,
                         entry_text[whole[i].kind]);
        }
        stage->table.at = whole;
        stage->table.n = n;
    }
}

static void test_missing_entries(void **state)
{
    (void)state;
    program_each(check_missing_entries);
}

/* The send of micro-batch 0's activation waits for backward of the same micro-batch, which needs
 * it. */
typedef struct Circle {
    int backward; /* entry on stage 0 */
    int64_t last; /* its last compute Step */
} Circle;

static bool close_circle(void *context, Step *step)
{
    Circle *circle = context;
    if (step->stage != 0 || step->round != 0)
        return true;
    if (step->entry == circle->backward && step->stream == STREAM_COMPUTE)
        circle->last = step->seq;
    if (step->kind == STEP_SEND && step->micro == 0)
        step->wait[step->waits++] = (Wait){STREAM_COMPUTE, circle->last};
    return true;
}

/* All sends in front of an entry, behind it. */
static void delay_sends(Arena *arena, StageProgram *stage, int entry)
{
    Entry *table = ARENA_ARRAY(arena, Entry, stage->table.n);
    int n = 0;
    for (int late = 0; late < 2; late++)
        for (int i = 0; i <= entry; i++)
            if ((stage->table.at[i].kind == ENTRY_SEND) == late)
                table[n++] = stage->table.at[i];
    memcpy(stage->table.at, table, (size_t)n * sizeof *table);
}

/* Sends in the table behind the backward of their own micro-batch: streams run on, so it is right,
 * if late. Only when one of them also waits for that backward does everybody stop. */
static void check_deadlock(Arena *arena, Program *program, int at)
{
    (void)at;
    if (program->stages < 2)
        return;
    StageProgram *stage = &program->stage[0];
    int backward = NONE, sends = 0;
    for (int i = 0; i < stage->table.n; i++) {
        const Entry *entry = &stage->table.at[i];
        if (entry->kind == ENTRY_COMPUTE && entry->part == PART_B && entry->micro == 0)
            backward = i;
        sends += backward == NONE && entry->kind == ENTRY_SEND;
    }
    Ring *out = &stage->chunk[0].ring[RING_OUT]; /* long enough for it, behind everything else */
    out->base = stage->arena_bytes;
    out->n = program->plan->micro_batches;
    stage->arena_bytes += out->stride * out->n;
    delay_sends(arena, stage, backward);
    CheckReport report;
    assert_true(program_holds(program, NULL, &report));
    Circle circle = {.backward = backward - sends};
    CheckTap tap = {close_circle, &circle};
    Diag *diag = diag_new(arena);
    assert_false(program_check_tapped(arena, program, 2, &tap, diag, &report));
    assert_int_equal(report.faults, 1);
    bool named = false;
    for (int i = 0; i < diag_count(diag); i++)
        named |= strstr(diag_item(diag, i)->text, "deadlock: these wait for each other: rank 0 ") !=
                 NULL;
    assert_true(named);
}

static void test_deadlock(void **state)
{
    (void)state;
    program_each(check_deadlock);
}

/* ---- two rows in one ---- */

/* Both on the bytes of one: weights that are whole for a use, saved values on their way. */
static void test_sides(void **state)
{
    (void)state;
    Arena *arena = arena_new("case");
    PlanCase apart = {.model = model_with_layers(arena, tiny_llama, 8), /* places are shared */
                      .ranks = 4,
                      .batch = 8,
                      .sequence = 6,
                      .pins = "tp=1,dp=2,pp=2,zero=3,mbs=1,braid=1,activation_home=dram",
                      .recipe = "bf16",
                      .bucket_bytes = 1000};
    Program *program = program_of(arena, &apart);
    CheckReport report;
    assert_true(program_holds(program, NULL, &report));
    for (int s = 0; s < program->stages; s++) {
        StageProgram *stage = &program->stage[s];
        Ring *ring = &stage->chunk[0].ring[RING_SAVED], sides = *ring;
        int64_t back = stage->fetched_back;
        assert_true(back > 0 && ring->sides && ring->n == 2);
        stage->fetched_back = 0;
        if (program_holds(program, NULL, &report))
            fail_msg("stage %d: weights of both rows in one buffer are not seen", s);
        stage->fetched_back = back;
        ring->sides = false;
        ring->n = 1;
        if (program_holds(program, NULL, &report))
            fail_msg("stage %d: saved values of both rows in one place are not seen", s);
        *ring = sides;
    }
    arena_free(arena);
}

/* ---- saved values that leave, and such as stay ---- */

static void expect_seen(const Program *program, const StageProgram *stage, const char *what)
{
    CheckReport report;
    if (program_holds(program, NULL, &report))
        fail_msg("stage %d: %s is not seen", stage->index, what);
}

/* Blocks that leave have others between them, of layers that keep theirs. Hops that do not happen,
 * or carry another micro-batch's, are among the mutations of the numbers. */
static void test_blocks(void **state)
{
    (void)state;
    Arena *arena = arena_new("case");
    PlanCase some = {.model = model_with_layers(arena, tiny_llama, 16),
                     .ranks = 2,
                     .batch = 4,
                     .sequence = 6,
                     .pins = "tp=1,pp=2,mbs=1,activation_home=nvme,1:activation_home=hbm,"
                             "3:activation_home=hbm,9-10:activation_home=hbm:recompute=full"};
    Program *program = program_of(arena, &some);
    CheckReport report;
    assert_true(program_holds(program, NULL, &report));
    for (int s = 0; s < program->stages; s++) {
        StageProgram *stage = &program->stage[s];
        Chunk *chunk = &stage->chunk[0];
        assert_true(stage->blocks == stage->links - 2 && stage->blocks > 4);
        Ring *stays = &chunk->ring[RING_STAYS], whole = *stays;
        assert_true(stays->stride > 0 && chunk->ring[RING_SAVED].n == 1);
        stays->base = chunk->ring[RING_SAVED].base;
        expect_seen(program, stage, "what stays in the place of what leaves");
        *stays = whole;
        if (stays->n > 1) {
            stays->n--;
            expect_seen(program, stage, "what stays in too few slots");
            stays->n++;
        }
        StageLink *near = NULL, *far = &stage->link[stage->block_link[2]],
                  *next = &stage->link[stage->block_link[3]];
        for (int i = 0; i < stage->links; i++)
            near = stage->link[i].block == NONE ? &stage->link[i] : near;
        int64_t offset = far->saved_offset[0];
        far->saved_offset[0] = next->saved_offset[0];
        expect_seen(program, stage, "neighbours in one place");
        far->saved_offset[0] = offset;
        offset = far->away_offset[0];
        far->away_offset[0] = next->away_offset[0];
        expect_seen(program, stage, "neighbours in one place of their home");
        far->away_offset[0] = offset;
        int own = stage->block_link[2];
        stage->block_link[2] = (int)(near - stage->link);
        expect_seen(program, stage, "a hop of what stays");
        stage->block_link[2] = own;
        for (int i = 0; i < stage->table.n; i++) {
            Entry *entry = &stage->table.at[i];
            if (entry->stays == 0)
                continue;
            entry->stays += 2;
            expect_seen(program, stage, "a block that stays though others need its place");
            entry->stays -= 2;
            break;
        }
    }
    assert_true(program_holds(program, NULL, &report));
    Diag *diag = diag_new(arena);
    ProveOptions options = prove_default();
    ProveReport numbers;
    assert_true(prove_numeric(arena, diag, program->plan, program->net, &options, &numbers));
    arena_free(arena);
}

/* ---- state in three memories ---- */

static void swap_ints(int *a, int *b)
{
    int other = *a;
    *a = *b;
    *b = other;
}

/* What passes through a memory takes its turns there, in slots that hold it, on the way to a home
 * where the plan has it. */
static void test_state_homes(void **state)
{
    (void)state;
    Arena *arena = arena_new("case");
    PlanCase some = {.model = model_with_layers(arena, tiny_llama, 12),
                     .ranks = 2,
                     .batch = 2,
                     .sequence = 6,
                     .pins = "dp=2,zero=1,mbs=1,optimizer_home=nvme,0-3:optimizer_home=dram,"
                             "5-6:optimizer_home=hbm,last:optimizer_home=hbm",
                     .recipe = "bf16",
                     .bucket_bytes = 500};
    Program *program = program_of(arena, &some);
    StageProgram *stage = &program->stage[0];
    CheckReport report;
    assert_true(program_holds(program, NULL, &report));
    HopWay *way = &stage->state_way;
    assert_true(way->n[MEMORY_DRAM] > 5 && way->n[MEMORY_HBM] > way->n[MEMORY_DRAM] + 3 &&
                stage->buckets.n > way->n[MEMORY_HBM]);
    for (int m = MEMORY_HBM; m < MEMORY_NVME; m++) {
        int *at = way->at[m], *turn = way->turn[m];
        int own = at[1];
        at[1] = at[2];
        expect_seen(program, stage, "a bucket that comes twice, and one that does not");
        at[1] = own;
        swap_ints(&turn[at[1]], &turn[at[2]]);
        expect_seen(program, stage, "two buckets that have each other's turn");
        swap_ints(&turn[at[1]], &turn[at[2]]);
        way->n[m]--;
        expect_seen(program, stage, "a bucket that does not pass");
        way->n[m]++;
        stage->state_slot_bytes[m] -= 64;
        expect_seen(program, stage, "slots of less than they hold");
        stage->state_slot_bytes[m] += 64;
        int64_t begin = stage->state_slot[m];
        stage->state_slot[m] -= 64;
        expect_seen(program, stage, "slots in the place of something else");
        stage->state_slot[m] = begin;
    }
    for (int g = 0; g < stage->groups.n; g++) {
        Group *group = &stage->groups.at[g];
        Memory home = group->state_home;
        group->state_home = home == MEMORY_HBM ? MEMORY_DRAM : MEMORY_HBM;
        expect_seen(program, stage, "a home that the plan does not say");
        group->state_home = home;
    }
    assert_true(program_holds(program, NULL, &report));
    Diag *diag = diag_new(arena);
    ProveOptions options = prove_default();
    ProveReport numbers;
    assert_true(prove_numeric(arena, diag, program->plan, program->net, &options, &numbers));
    arena_free(arena);
}

/* ---- groups, buckets, bodies ---- */

static void expect_broken(const Program *program, int at, const char *what)
{
    CheckReport report;
    if (program_holds(program, NULL, &report))
        fail_msg("case %d: %s is not seen", at, what);
}

static void check_buckets(Arena *arena, Program *program, int at)
{
    (void)arena;
    for (int s = 0; s < program->stages; s++) {
        StageProgram *stage = &program->stage[s];
        for (int b = 0; b < stage->buckets.n; b++) {
            Bucket whole = stage->buckets.at[b];
            stage->buckets.at[b].elements -= 16;
            expect_broken(program, at, "a short bucket");
            stage->buckets.at[b] = whole;
            stage->buckets.at[b].share_begin += 16;
            expect_broken(program, at, "a bucket with another's optimizer state");
            stage->buckets.at[b] = whole;
            const Path *path = &stage->groups.at[whole.group].reduce;
            if (whole.close_link < stage->links - 1 && path->n && path->move[0].kind < MOVE_SLICE) {
                stage->buckets.at[b].close_link = whole.close_link + 1;
                expect_broken(program, at, "a bucket reduced before its gradients are complete");
            }
            stage->buckets.at[b] = whole;
        }
        for (int g = 0; g < stage->groups.n; g++) {
            Group *group = &stage->groups.at[g];
            Group whole = *group;
            group->members.at[0].decay = !group->members.at[0].decay;
            expect_broken(program, at, "a wrong weight decay");
            group->members.at[0].decay = !group->members.at[0].decay;
            if (group->reduce.n) {
                group->reduce.n--;
                expect_broken(program, at, "a path without its last move");
                group->reduce.n++;
            }
            if (group->gather.n) {
                group->gather.n--;
                expect_broken(program, at, "weights that do not come home");
                group->gather.n++;
            }
            if (group->partial) {
                group->partial = 0;
                expect_broken(program, at, "partial gradients called whole");
            }
            *group = whole;
        }
    }
}

static void test_broken_buckets(void **state)
{
    (void)state;
    program_each(check_buckets);
}

static void check_moves_of(Program *program, int at, Body *body, InstList *list)
{
    for (int i = 0; i < list->n; i++) {
        Inst *inst = &list->at[i];
        if (inst->kind != INST_MOVE) {
            int was = inst->kind == INST_KERNEL ? inst->bind_in[0][0] : NONE;
            for (int id = 0; was != NONE && id < body->copies.n; id++)
                if (body->copies.at[id].value != body->copies.at[was].value &&
                    op_info[body->graph->nodes.at[inst->node[0]].op].pattern[0] != '-') {
                    inst->bind_in[0][0] = id;
                    expect_broken(program, at, "a kernel on another value");
                    break;
                }
            if (was != NONE)
                inst->bind_in[0][0] = was;
            continue;
        }
        Move whole = inst->move;
        inst->move.kind = whole.kind == MOVE_ALL_REDUCE ? MOVE_ALL_GATHER : MOVE_ALL_REDUCE;
        expect_broken(program, at, "another collective");
        inst->move = whole;
        if (whole.atoms.n) {
            inst->move.atoms.at[0] = (int8_t)(whole.atoms.at[0] ? 0 : 1);
            expect_broken(program, at, "a collective over other atoms");
        }
        inst->move = whole;
    }
}

static void check_bodies(Arena *arena, Program *program, int at)
{
    (void)arena;
    for (int c = 0; c < program->net->classes.n; c++) {
        Body *body = program->body[c];
        check_moves_of(program, at, body, &body->forward);
        check_moves_of(program, at, body, &body->backward);
        for (int i = 0; i < body->copies.n; i++) {
            Copy *copy = &body->copies.at[i];
            Copy whole = *copy;
            if (body->graph->values.at[copy->value].axes) {
                copy->local[0]++;
                expect_broken(program, at, "a block of another shape");
                *copy = whole;
            }
            if (copy->home != HOME_SAVED || copy->alias != NONE || copy->offset == 0)
                continue;
            copy->offset -= 64;
            expect_broken(program, at, "saved values in the same bytes");
            *copy = whole;
        }
    }
}

static void test_broken_bodies(void **state)
{
    (void)state;
    program_each(check_bodies);
}

int main(void)
{
    const struct CMUnitTest group[] = {
        cmocka_unit_test(test_short_rings),
        cmocka_unit_test(test_overlapping_regions),
        cmocka_unit_test(test_overlaps_seen_by_name),
        cmocka_unit_test(test_swapped_messages),
        cmocka_unit_test(test_missing_entries),
        cmocka_unit_test(test_deadlock),
        cmocka_unit_test(test_sides),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_state_homes),
        cmocka_unit_test(test_broken_buckets),
        cmocka_unit_test(test_broken_bodies),
    };
    return cmocka_run_group_tests(group, NULL, NULL) != 0;
}
