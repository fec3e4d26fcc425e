/* test_body.c - fused kernels, temps and saved values of bodies, and the text of bodies and
 * programs. */
#include "ir/lower/body.h"

#include <stdlib.h>
#include <string.h>

#include "ir/lower/program.h"
#include "tests/check.h"
#include "tests/ir/lower/plans.h"

static void for_each(void (*check)(Arena *arena, const Body *body))
{
    for (int i = 0; plan_case(i); i++) {
        Arena *arena = arena_new("case");
        const Program *program = program_of(arena, plan_case(i));
        for (int c = 0; c < program->net->classes.n; c++)
            check(arena, program->body[c]);
        arena_free(arena);
    }
}

static bool lists(const int *list, int n, int id)
{
    for (int i = 0; i < n; i++)
        if (list[i] == id)
            return true;
    return false;
}

/* ---- fusion ---- */

/* A fused copy is made and read inside one instruction, and no instruction has it as an operand. */
static void check_fused(Arena *arena, const Body *body)
{
    (void)arena;
    for (int id = 0; id < body->copies.n; id++) {
        if (body->copies.at[id].home != HOME_FUSED)
            continue;
        int made = 0, makers = 0, readers = 0, apart = 0;
        for (int b = 0; b < BODY_LISTS; b++)
            for (int i = 0; i < body_list(body, b)->n; i++) {
                const Inst *inst = &body_list(body, b)->at[i];
                assert_false(lists(inst->in, inst->ins, id));
                assert_false(lists(inst->out, inst->outs, id));
                bool here = false, read = false;
                for (int n = 0; inst->kind == INST_KERNEL && n < inst->nodes; n++) {
                    const Node *node = &body->graph->nodes.at[inst->node[n]];
                    bool reads = lists(inst->bind_in[n], node->ins, id);
                    assert_true(!reads || here); /* made by an earlier node of the kernel */
                    read |= reads;
                    here |= lists(inst->bind_out[n], node->outs, id);
                    made += lists(inst->bind_out[n], node->outs, id);
                }
                makers += here;
                readers += read;
                apart += here != read;
            }
        assert_int_equal(made, 1);
        assert_int_equal(makers, 1);
        assert_int_equal(readers, 1);
        assert_int_equal(apart, 0);
    }
}

static void test_fused_copies(void **state)
{
    (void)state;
    for_each(check_fused);
}

/* Only row kernels fuse, and something does fuse: a layer has fewer kernels than nodes. */
static void check_forms(Arena *arena, const Body *body)
{
    (void)arena;
    int kernels = 0, nodes = 0;
    for (int b = 0; b < BODY_LISTS; b++)
        for (int i = 0; i < body_list(body, b)->n; i++) {
            const Inst *inst = &body_list(body, b)->at[i];
            if (inst->kind != INST_KERNEL)
                continue;
            kernels++;
            nodes += inst->nodes;
            assert_true(inst->nodes == 1 || inst->form == FORM_rows);
        }
    if (body->graph->chain_in != NONE && body->graph->chain_out != NONE)
        assert_true(kernels < nodes);
}

static void test_what_fuses(void **state)
{
    (void)state;
    for_each(check_forms);
}

/* ---- temps ---- */

static int storage_of(const Body *body, int id)
{
    while (body->copies.at[id].alias != NONE)
        id = body->copies.at[id].alias;
    return id;
}

/* Every byte of the scratch area says whose it is: what is read is still there. */
static void check_scratch(Arena *arena, const Body *body)
{
    for (int b = 0; b < BODY_LISTS; b++) {
        int64_t bytes = b == 0   ? body->forward_temp_bytes
                        : b == 1 ? body->backward_temp_bytes
                                 : body->weight_temp_bytes;
        int *owner = ARENA_ARRAY(arena, int, bytes + 1);
        memset(owner, -1, (size_t)bytes * sizeof *owner);
        const InstList *list = body_list(body, b);
        for (int i = 0; i < list->n; i++)
            for (int k = 0; k < list->at[i].ins + list->at[i].outs; k++) {
                bool in = k < list->at[i].ins;
                int id = in ? list->at[i].in[k] : list->at[i].out[k - list->at[i].ins];
                const Copy *home = &body->copies.at[storage_of(body, id)];
                if (home->home != HOME_TEMP)
                    continue;
                assert_true(home->offset >= 0 && home->offset % 64 == 0 &&
                            home->offset + home->bytes <= bytes);
                for (int64_t at = home->offset; at < home->offset + body->copies.at[id].bytes;
                     at++) {
                    if (in && owner[at] != id)
                        fail_msg("class %s: %s is gone where it is read", body->graph->name,
                                 body->copies.at[id].name);
                    owner[at] = id;
                }
            }
    }
}

static void test_temps_stay(void **state)
{
    (void)state;
    for_each(check_scratch);
}

static bool reads_it(const InstList *list, int id)
{
    bool read = false;
    for (int i = 0; i < list->n; i++)
        read |= lists(list->at[i].in, list->at[i].ins, id);
    return read;
}

static bool makes_it(const InstList *list, int id)
{
    bool made = false;
    for (int i = 0; i < list->n; i++)
        made |= lists(list->at[i].out, list->at[i].outs, id);
    return made;
}

/* Saved bytes: all that backward reads of forward, and W of I, side by side, and nothing else; each
 * copy lives as long as its last reader needs it, and no longer. */
static void check_saved(Arena *arena, const Body *body)
{
    (void)arena;
    int64_t bytes[SAVED_KINDS] = {0};
    for (int id = 0; id < body->copies.n; id++) {
        const Copy *copy = &body->copies.at[id];
        int kind = (int)copy->home - HOME_SAVED;
        if (kind < SAVED_I || kind > SAVED_IW)
            continue;
        bytes[kind] += copy->alias == NONE ? (copy->bytes + 63) / 64 * 64 : 0;
        if (!reads_it(kind == SAVED_I ? &body->backward : &body->weight, id))
            fail_msg("class %s keeps %s and never reads it", body->graph->name, copy->name);
        assert_true(makes_it(kind == SAVED_IW ? &body->backward : &body->forward, id));
        assert_true(kind != SAVED_I || !reads_it(&body->weight, id));
    }
    for (int kind = 0; kind < SAVED_KINDS; kind++)
        assert_int_equal(bytes[kind], body->saved_bytes[kind]);
}

static void test_saved_values(void **state)
{
    (void)state;
    for_each(check_saved);
}

/* Recompute keeps less, and runs forward nodes again in backward. */
static void test_recompute(void **state)
{
    (void)state;
    Arena *arena = arena_new("case");
    PlanCase what = plan_cases[0];
    const Program *plain = program_of(arena, &what);
    what.pins = "mbs=1,recompute=full";
    const Program *again = program_of(arena, &what);
    int64_t saved[2] = {0, 0};
    int clones = 0;
    for (int c = 0; c < plain->net->classes.n; c++) {
        saved[0] += plain->body[c]->saved_bytes[SAVED_I];
        saved[1] += again->body[c]->saved_bytes[SAVED_I];
        for (int i = 0; i < again->body[c]->backward.n; i++) {
            const Inst *inst = &again->body[c]->backward.at[i];
            for (int n = 0; inst->kind == INST_KERNEL && n < inst->nodes; n++)
                clones += again->body[c]->graph->nodes.at[inst->node[n]].seg == SEG_FORWARD;
        }
    }
    assert_true(saved[1] < saved[0]);
    assert_true(clones > 0);
    arena_free(arena);
}

/* ---- text ---- */

static int count_lines(const char *text, const char *start)
{
    int n = 0;
    for (const char *at = text; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
        n += strncmp(at, start, strlen(start)) == 0;
    return n;
}

/* One line an instruction, in order, with the reason of every move. */
static void check_text(Arena *arena, const Body *body)
{
    Str text = str_new(arena), once_more = str_new(arena);
    body_put_text(&text, body);
    body_put_text(&once_more, body);
    assert_string_equal(text.at, once_more.at);
    int moves = 0, n = 0;
    for (int l = 0; l < BODY_LISTS; l++) {
        const InstList *list = body_list(body, l);
        n += list->n;
        for (int i = 0; i < list->n; i++)
            moves += list->at[i].kind == INST_MOVE;
    }
    assert_int_equal(count_lines(text.at, "  F ") + count_lines(text.at, "  I ") +
                         count_lines(text.at, "  W "),
                     n);
    assert_int_equal(count_lines(text.at, "body "), 1);
    int reasons = 0;
    for (const char *at = strstr(text.at, "  # "); at; at = strstr(at + 1, "  # "))
        reasons++;
    assert_true(reasons >= moves);
}

static void test_body_text(void **state)
{
    (void)state;
    for_each(check_text);
}

/* Entries that a line of program_put_tables stands for: its words, those of a loop as often as it
 * says. */
static int count_entries(const char *line)
{
    int n = 0, times = 1, repeats = 0;
    const char *end = strchr(line, '\n');
    for (const char *at = strchr(line, ':') + 1; at < end;) {
        at += strspn(at, " ");
        size_t length = strcspn(at, " \n");
        if (*at == '{')
            times = repeats;
        else if (*at == '}')
            times = 1;
        else if (*at >= '0' && *at <= '9')
            repeats = atoi(at);
        else if (length > 0 && *at != 'x')
            n += times;
        at += length;
    }
    return n;
}

/* The table of a long schedule is folded, and stands for all of it. */
static void test_folded_tables(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        Arena *arena = arena_new("tables");
        PlanCase what = plan_cases[1 + i];
        what.batch = 40;
        const Program *program = program_of(arena, &what);
        Str tables = str_new(arena);
        program_put_tables(&tables, program);
        assert_true(tables.n < 600);
        const char *line = tables.at;
        for (int s = 0; s < program->stages; s++) {
            assert_int_equal(count_entries(line), program->stage[s].table.n);
            assert_non_null(strstr(line, " x { "));
            line = strchr(line, '\n') + 1;
        }
        assert_string_equal(line, "");
        arena_free(arena);
    }
}

static void test_program_text(void **state)
{
    (void)state;
    for (int i = 0; plan_case(i); i++) {
        Arena *arena = arena_new("case");
        const Program *program = program_of(arena, plan_case(i));
        Str text = str_new(arena), tables = str_new(arena);
        program_put_text(&text, program);
        program_put_tables(&tables, program);
        assert_int_equal(count_lines(text.at, "stage "), program->stages);
        assert_int_equal(count_lines(tables.at, "stage "), program->stages);
        int groups = 0, buckets = 0;
        for (int s = 0; s < program->stages; s++) {
            groups += program->stage[s].groups.n;
            buckets += program->stage[s].buckets.n;
        }
        assert_int_equal(count_lines(text.at, "  group "), groups);
        assert_int_equal(count_lines(text.at, "  bucket "), buckets);
        for (int n = 0; n < program->net->params.n; n++)
            assert_non_null(strstr(text.at, program->net->params.at[n].name));
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest group[] = {
        cmocka_unit_test(test_fused_copies), cmocka_unit_test(test_what_fuses),
        cmocka_unit_test(test_temps_stay),   cmocka_unit_test(test_saved_values),
        cmocka_unit_test(test_recompute),    cmocka_unit_test(test_body_text),
        cmocka_unit_test(test_program_text), cmocka_unit_test(test_folded_tables),
    };
    return cmocka_run_group_tests(group, NULL, NULL) != 0;
}
