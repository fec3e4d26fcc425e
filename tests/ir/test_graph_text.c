/* test_graph_text.c - a net as text and back, and texts that are no net. */
#include <string.h>

#include "tests/ir/nets.h"
#include "tests/ir/tiny_models.h"

static Net *parse(Arena *arena, Diag *diag, const char *text)
{
    return net_parse_text(arena, diag, "net.txt", text, strlen(text));
}

static void assert_same_graph(const Graph *a, const Graph *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->values.n, b->values.n);
    assert_int_equal(a->nodes.n, b->nodes.n);
    assert_int_equal(a->params.n, b->params.n);
    for (int i = 0; i < a->values.n; i++) {
        const Value *v = &a->values.at[i], *w = &b->values.at[i];
        assert_string_equal(v->name, w->name);
        assert_true(v->kind == w->kind && v->number == w->number && v->axes == w->axes &&
                    v->made == w->made && v->out == w->out);
        assert_memory_equal(v->dim, w->dim, sizeof v->dim);
    }
    for (int i = 0; i < a->nodes.n; i++) {
        const Node *v = &a->nodes.at[i], *w = &b->nodes.at[i];
        assert_string_equal(v->name, w->name);
        assert_true(v->op == w->op && v->seg == w->seg && v->flow == w->flow && v->ins == w->ins &&
                    v->outs == w->outs);
        assert_memory_equal(v->in, w->in, sizeof v->in);
        assert_memory_equal(v->out, w->out, sizeof v->out);
        assert_memory_equal(&v->sig, &w->sig, sizeof v->sig);
        assert_true(op_attrs_equal(op_info[v->op].attrs, &v->attrs, &w->attrs));
    }
    for (int i = 0; i < a->params.n; i++) {
        const Param *v = &a->params.at[i], *w = &b->params.at[i];
        assert_string_equal(v->name, w->name);
        assert_true(v->value == w->value && v->grad == w->grad && v->init == w->init &&
                    v->std == w->std && v->decay == w->decay && v->stored == w->stored);
        assert_memory_equal(v->group, w->group, sizeof v->group);
    }
    assert_memory_equal(a->data, b->data, sizeof a->data);
    assert_true(a->chain_in == b->chain_in && a->chain_out == b->chain_out &&
                a->grad_in == b->grad_in && a->grad_out == b->grad_out && a->loss == b->loss);
}

static void check_round_trip(const char *model)
{
    Arena *arena = arena_new("test");
    Diag *diag = diag_new(arena);
    Net *net = net_from(arena, model, 4, 7, 8);
    Str text = str_new(arena), again = str_new(arena);
    net_put_text(&text, net);
    Net *back = parse(arena, diag, text.at);
    assert_non_null(back);
    assert_int_equal(diag_errors(diag), 0);
    net_put_text(&again, back);
    assert_string_equal(text.at, again.at);
    assert_int_equal(net->classes.n, back->classes.n);
    for (int i = 0; i < net->classes.n; i++)
        assert_same_graph(net->classes.at[i], back->classes.at[i]);
    assert_int_equal(net->dims.n, back->dims.n);
    for (int i = 0; i < net->dims.n; i++) {
        const Dim *d = &net->dims.at[i], *e = &back->dims.at[i];
        assert_true(strcmp(d->name, e->name) == 0 && d->letter == e->letter && d->kind == e->kind &&
                    d->extent == e->extent && d->used == e->used);
    }
    assert_int_equal(net->chain.n, back->chain.n);
    assert_memory_equal(net->chain.at, back->chain.at, (size_t)net->chain.n * sizeof(Link));
    assert_int_equal(net->params.n, back->params.n);
    assert_true(net->batch == back->batch && net->sequence == back->sequence);
    arena_free(arena);
}

static void test_round_trip(void **state)
{
    (void)state;
    check_round_trip(tiny_llama);
    check_round_trip(tiny_gpt2);
    check_round_trip(tiny_everything);
}

/* The same model gives the same text, also with other memory around it. */
static void test_deterministic(void **state)
{
    (void)state;
    Arena *one = arena_new("one"), *two = arena_new("two");
    arena_alloc(two, 12345);
    Str a = str_new(one), b = str_new(two);
    net_put_text(&a, net_from(one, tiny_gpt2, 4, 7, 8));
    net_put_text(&b, net_from(two, tiny_gpt2, 4, 7, 8));
    assert_string_equal(a.at, b.at);
    arena_free(one);
    arena_free(two);
}

#define HEAD                                                                                       \
    "net n\ndim b batch letter=b extent=2 used=2\ndim s sequence letter=s extent=3 used=3\n"       \
    "dim h other letter=h extent=4 used=4\n"
#define CLASS HEAD "class c\n"

/* Each is refused with an error that points at the line. */
static void test_bad_text(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
        int line;
    } cases[] = {
        {"", "needs a name", 0},
        {"graph n\n", "begins with", 1},
        {"net n\ndim b batch letter=b extent=2\n", "a dim has", 2},
        {"net n\ndim b big letter=b extent=2 used=2\n", "batch, sequence, other or routed", 2},
        {"net n\ndim b batch letter=t extent=2 used=2\n", "free letter", 2},
        {"net n\ndim b batch letter=bb extent=2 used=2\n", "free letter", 2},
        {"net n\ndim b batch letter=b extent=0 used=0\n", "1 to 2^40", 2},
        {"net n\ndim b batch letter=b extent=2 used=3\n", "1 to the extent", 2},
        {HEAD "dim h other letter=i extent=4 used=4\n", "new identifier", 5},
        {HEAD "dim i other letter=h extent=4 used=4\n", "free letter", 5},
        {HEAD "dim i batch letter=i extent=4 used=4\n", "a second batch", 5},
        {HEAD "what is this\n", "no line begins", 5},
        {HEAD "data ids b s\n", "stands in a class", 5},
        {HEAD "link c 0\n", "unknown class", 5},
        {CLASS "class c\n", "a second class", 6},
        {CLASS "data tokens b s\n", "data is ids, labels", 6},
        {CLASS "data ids b q\n", "unknown dim", 6},
        {CLASS "data ids b s\ndata ids b s\n", "made twice", 7},
        {CLASS "chain_in x b s h\nchain_in y b s h\n", "a second chain_in", 7},
        {CLASS "chain_in x b s h h h h h\n", "more than 6 axes", 6},
        {CLASS "param w h name=w init=often std=1 decay=0 groups=1\n", "begins as", 6},
        {CLASS "param w h name=w init=ones std=0 decay=2 groups=1\n", "decay is", 6},
        {CLASS "param w h name=w init=ones std=0 decay=0 groups=1,\n", "proper", 0},
        {CLASS "param w h name=w init=ones std=0 decay=0 groups=0\n", "counts of axes", 6},
        {CLASS "param w h name=w std=0 decay=0 groups=1\n", "init= expected", 6},
        {CLASS "chain_in x b s h\nF y = conv bsh->bsh x\n", "unknown op", 7},
        {CLASS "chain_in x b s h\nF y = act bsh->bsh z kind=silu\n", "unknown value", 7},
        {CLASS "chain_in x b s h\nF y = act bsh->bsh x kind=sine\n", "no such attribute", 7},
        {CLASS "chain_in x b s h\nF y = act bsh->bs x kind=silu\n", "does not match", 7},
        {CLASS "chain_in x b s h\nF y = act bsq->bsq x kind=silu\n", "its letter 'q'", 7},
        {CLASS "chain_in x b s h\nF y z = act bsh->bsh x kind=silu\n", "2 names for 1", 7},
        {CLASS "chain_in x b s h\nF x = act bsh->bsh x kind=silu\n", "made twice", 7},
        {CLASS "chain_in x b s h\nF y act bsh->bsh x kind=silu\n", "a node is", 7},
        {CLASS "chain_in x b s h\nchain_out y\n", "no such value", 7},
        {CLASS "chain_in x b s h\ngrad x x\n", "no parameter", 7},
        {CLASS "link c -1\n", "a class and a number", 6},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *arena = arena_new("test");
        Diag *diag = diag_new(arena);
        assert_null(parse(arena, diag, cases[i].text));
        assert_true(diag_count(diag) >= 1);
        const DiagItem *item = diag_item(diag, 0);
        if (cases[i].line > 0 &&
            (!strstr(item->text, cases[i].says) || item->span.line != cases[i].line))
            fail_msg("case %zu says line %d: %s", i, item->span.line, item->text);
        arena_free(arena);
    }
}

/* A good text with any one word taken out is refused, or means another net; it never crashes. */
static void test_torn_text(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    Str text = str_new(arena);
    net_put_text(&text, net_from(arena, tiny_llama, 4, 7, 8));
    int refused = 0, tried = 0;
    for (size_t at = 0; at < text.n; at++) {
        if (text.at[at] != ' ' && text.at[at] != '\n')
            continue;
        Arena *scratch = arena_new("scratch");
        Diag *diag = diag_new(scratch);
        size_t end = at + strcspn(text.at + at + 1, " \n") + 1;
        Str torn = str_new(scratch);
        str_putn(&torn, text.at, at);
        str_put(&torn, text.at + (end < text.n ? end : text.n));
        refused += net_parse_text(scratch, diag, "torn.txt", torn.at, torn.n) == NULL;
        tried++;
        arena_free(scratch);
    }
    assert_true(tried > 700);
    /* What may go without being noticed: nothing but attributes whose zero is legal and
     * indentation. */
    assert_true(refused > tried * 8 / 10);
    arena_free(arena);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_round_trip),
    cmocka_unit_test(test_deterministic),
    cmocka_unit_test(test_bad_text),
    cmocka_unit_test(test_torn_text),
};

RUN(tests)
