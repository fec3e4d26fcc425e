/* test_lower.c - bodies by hand: each file of bodies/ holds a class, its choices, and the
 * instructions they must become.
 *
 *     graph mlp                       one of the graphs below
 *     mesh tp 2, dp 2                 atoms, a0 first
 *     boundary {s:a0}                 of chain input and output
 *     home w.up {f:a0}                of a parameter
 *     choose up d.up : f R            nodes, then a choice an atom: a letter, R, or +k, the k-th
 * linear set keep act : none                 values made again in backward, or save n : {s:a0} kept
 * under another placement than they are made
 *     ----
 *     the body as text
 *
 * Nodes that are not named are Replicate. LPLAN_BLESS=1 writes what stands behind the line. */
#include "tests/check.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ir/lower/handmade.h"

/* ---- graphs ---- */

typedef struct Sheet {
    Graph *graph;
    Net *net;
} Sheet;

static ValueId given(Sheet *s, ValueKind kind, const char *name, const char *dims)
{
    DimId dim[MAX_AXES];
    int axes = 0;
    for (; dims[axes]; axes++)
        dim[axes] = net_dim(s->net, (char[2]){dims[axes], '\0'});
    return graph_value(s->graph, kind, name, axes, dim);
}

static ValueId op(Sheet *s, OpId id, const char *name, const char *sig, ValueId x, ValueId y)
{
    Attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    if (id == OP_NORM)
        attrs.norm.eps = 1e-5;
    return graph_out(s->graph, graph_node(s->graph, id, name, sig, &attrs, (ValueId[]){x, y},
                                          y == NONE ? 1 : 2));
}

static ValueId param(Sheet *s, const char *name, const char *dims)
{
    return given(s, VALUE_PARAM, name, dims);
}

/* out = x + (act(norm(x) up) down + bias) */
static void make_mlp(Sheet *s)
{
    ValueId x = given(s, VALUE_CHAIN_IN, "x", "bsh");
    ValueId n = op(s, OP_NORM, "n", "bsh,h->bsh", x, param(s, "gain", "h"));
    ValueId u = op(s, OP_EINSUM, "up", "bsh,fh->bsf", n, param(s, "w.up", "fh"));
    ValueId a = op(s, OP_ACT, "act", "bsf->bsf", u, NONE);
    ValueId d = op(s, OP_EINSUM, "down", "bsf,hf->bsh", a, param(s, "w.down", "hf"));
    ValueId y = op(s, OP_BIAS, "y", "bsh,h->bsh", d, param(s, "b.down", "h"));
    s->graph->chain_out = op(s, OP_ADD, "out", "bsh,bsh->bsh", x, y);
}

/* a = attention(q(x), k(x), v(x)) */
static ValueId put_heads(Sheet *s)
{
    ValueId x = given(s, VALUE_CHAIN_IN, "x", "bsh");
    ValueId q = op(s, OP_EINSUM, "q", "bsh,grdh->bsgrd", x, param(s, "w.q", "grdh"));
    ValueId k = op(s, OP_EINSUM, "k", "bsh,gdh->bsgd", x, param(s, "w.k", "gdh"));
    ValueId v = op(s, OP_EINSUM, "v", "bsh,gdh->bsgd", x, param(s, "w.v", "gdh"));
    Attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.attention.scale = 0.5;
    attrs.attention.causal = 1;
    return graph_out(s->graph,
                     graph_node(s->graph, OP_ATTENTION, "a", "bsgrd,btgd,btgd->bsgrd,bsgr", &attrs,
                                (ValueId[]){q, k, v}, 3));
}

/* The last op of the class is one whose result backward reads. */
static void make_heads(Sheet *s)
{
    s->graph->chain_out = put_heads(s);
}

/* out = x + o(a) */
static void make_attention(Sheet *s)
{
    ValueId a = put_heads(s), w = param(s, "w.o", "hgrd");
    ValueId o = op(s, OP_EINSUM, "o", "bsgrd,hgrd->bsh", a, w);
    s->graph->chain_out = op(s, OP_ADD, "out", "bsh,bsh->bsh", s->graph->chain_in, o);
}

/* One matrix, there and back: out = x + act(x w) w^T */
static void make_twice(Sheet *s)
{
    ValueId x = given(s, VALUE_CHAIN_IN, "x", "bsh"), w = param(s, "w", "fh");
    ValueId u = op(s, OP_EINSUM, "up", "bsh,fh->bsf", x, w);
    ValueId a = op(s, OP_ACT, "act", "bsf->bsf", u, NONE);
    ValueId d = op(s, OP_EINSUM, "down", "bsf,fh->bsh", a, w);
    s->graph->chain_out = op(s, OP_ADD, "out", "bsh,bsh->bsh", x, d);
}

/* Logits and the cross-entropy. */
static void make_head(Sheet *s)
{
    ValueId x = given(s, VALUE_CHAIN_IN, "x", "bsh");
    ValueId labels = given(s, VALUE_DATA, "labels", "bs"),
            weight = given(s, VALUE_DATA, "weight", "bs");
    ValueId z = op(s, OP_EINSUM, "z", "bsh,vh->bsv", x, param(s, "w", "vh"));
    ValueId m = op(s, OP_VMAX, "max", "bsv->bs", z, NONE);
    ValueId e = op(s, OP_SUMEXP, "sumexp", "bsv,bs->bs", z, m);
    ValueId p = op(s, OP_PICK, "pick", "bs,bsv->bs", labels, z);
    ValueId l = graph_out(s->graph, graph_node(s->graph, OP_NLL, "nll", "bs,bs,bs->bs", NULL,
                                               (ValueId[]){e, m, p}, 3));
    s->graph->loss = op(s, OP_EINSUM, "loss", "bs,bs->", l, weight);
}

static const struct {
    const char *name;
    void (*make)(Sheet *s);
} graphs[] = {{"mlp", make_mlp},
              {"attention", make_attention},
              {"heads", make_heads},
              {"twice", make_twice},
              {"head", make_head}};

static Sheet sheet_new(Arena *arena, const char *name)
{
    static const struct {
        const char *name;
        DimKind kind;
        int64_t extent;
    } dims[] = {{"b", DIM_BATCH, 2}, {"s", DIM_SEQUENCE, 4}, {"h", DIM_OTHER, 4},
                {"f", DIM_OTHER, 8}, {"g", DIM_OTHER, 2},    {"r", DIM_OTHER, 2},
                {"d", DIM_OTHER, 2}, {"v", DIM_OTHER, 6}};
    Sheet s = {.net = net_new(arena, name)};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        net_add_dim(s.net, dims[i].name, dims[i].kind, dims[i].extent);
    s.graph = net_add_class(s.net, name);
    for (size_t i = 0; i < sizeof graphs / sizeof graphs[0]; i++)
        if (strcmp(graphs[i].name, name) == 0) {
            graphs[i].make(&s);
            graph_differentiate(s.graph);
            return s;
        }
    fail_msg("no graph %s", name);
    return s;
}

/* ---- scripts ---- */

typedef struct Script {
    Sheet sheet;
    Mesh mesh;
    ClassPlan plan;
} Script;

static ValueId value_of(const Script *script, const char *name)
{
    ValueId id = graph_find(script->sheet.graph, name);
    if (id == NONE)
        fail_msg("no value %s", name);
    return id;
}

static Placement place_of(const Script *script, ValueId id, const char *text)
{
    Placement place;
    if (!place_parse(script->sheet.net, &script->sheet.graph->values.at[id], text, &place))
        fail_msg("%s is no placement of %s", text, script->sheet.graph->values.at[id].name);
    return place;
}

static void read_mesh(Script *script, const char *text)
{
    char role[8];
    int extent, used;
    for (; sscanf(text, " %7s %d%n", role, &extent, &used) == 2;
         text += used + (text[used] == ',')) {
        int r = 0;
        while (strcmp(role_text[r], role) != 0)
            r++;
        script->mesh.atom[script->mesh.n++] = (Atom){extent, (Role)r, 0};
    }
}

/* "up d.up : f R": calls back with each name in front of the colon. */
static void each_name(Script *script, char *text,
                      void (*one)(Script *, const char *name, const char *what))
{
    char *what = strstr(text, " : ");
    if (!what)
        fail_msg("no ' : ' in '%s'", text);
    *what = '\0';
    what += 3;
    for (char *name = text; name;) {
        char *next = strchr(name, ' ');
        if (next)
            *next++ = '\0';
        one(script, name, what);
        name = next;
    }
}

static void read_choice(Script *script, const char *name, const char *what)
{
    handmade_choose(&script->plan, script->sheet.graph, name, what);
}

static void read_keep(Script *script, const char *name, const char *what)
{
    script->plan.keep[value_of(script, name)] = strcmp(what, "none") == 0 ? KEEP_NONE : KEEP_SAVED;
}

static void read_save(Script *script, const char *name, const char *what)
{
    ValueId id = value_of(script, name);
    script->plan.saved[id] = place_of(script, id, what);
}

/* Choices first: what is saved by default follows from them. */
static void read_line(Arena *arena, Script *script, const char *line, bool saves)
{
    char *text = arena_strdup(arena, line), *rest = strchr(text, ' ');
    if (!rest)
        return;
    *rest++ = '\0';
    const Graph *graph = script->sheet.graph;
    if (strcmp(text, "keep") == 0 || strcmp(text, "save") == 0) {
        if (saves)
            each_name(script, rest, text[0] == 'k' ? read_keep : read_save);
    } else if (saves) {
        return;
    } else if (strcmp(text, "graph") == 0) {
        script->sheet = sheet_new(arena, rest);
        class_plan_alloc(arena, script->sheet.graph, &script->plan);
    } else if (strcmp(text, "mesh") == 0) {
        read_mesh(script, rest);
    } else if (strcmp(text, "boundary") == 0) {
        script->plan.boundary_in = script->plan.boundary_out =
            place_of(script, graph->chain_in, rest);
    } else if (strcmp(text, "home") == 0) {
        char *place = strchr(rest, ' ');
        *place++ = '\0';
        handmade_home(&script->plan, script->sheet.net, graph, rest, place);
    } else if (strcmp(text, "choose") == 0) {
        each_name(script, rest, read_choice);
    } else if (strcmp(text, "#") != 0) {
        fail_msg("unknown line: %s %s", text, rest);
    }
}

static Body *read_script(Arena *arena, const char *text, size_t length)
{
    Script *script = ARENA_NEW(arena, Script);
    for (int saves = 0; saves < 2; saves++) {
        for (const char *at = text; at < text + length;) {
            size_t n = strcspn(at, "\n");
            read_line(arena, script, arena_strndup(arena, at, n), saves);
            at += n + 1;
        }
        if (!saves)
            handmade_keep(&script->plan, script->sheet.net, script->sheet.graph, &script->mesh);
    }
    MovePrice price = path_plain_price(8);
    return body_lower(arena, script->sheet.net, script->sheet.graph, &script->plan, &script->mesh,
                      recipe_by_name("fp64"), &price, false);
}

/* ---- the files ---- */

static const char rule[] = "----\n";

static const char *folder(Arena *arena)
{
    return arena_printf(arena, "%s/tests/ir/lower/bodies", getenv("LPLAN_SOURCE_ROOT"));
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool check_file(Arena *arena, const char *path, bool bless)
{
    char *text = file_read(arena, path, NULL);
    assert_non_null(text);
    char *end = strstr(text, rule);
    if (!end)
        fail_msg("%s has no line %s", path, rule);
    Str got = str_new(arena);
    str_putn(&got, text, (size_t)(end - text) + strlen(rule));
    body_put_text(&got, read_script(arena, text, (size_t)(end - text)));
    if (strcmp(got.at, text) == 0)
        return true;
    if (bless) {
        assert_true(file_write(path, got.at, got.n));
        print_message("%s: written\n", path);
        return true;
    }
    fprintf(stderr, "%s: the body is now\n%s", path, strstr(got.at, rule) + strlen(rule));
    return false;
}

static void bodies(void **state)
{
    (void)state;
    Arena *arena = arena_new("test");
    DIR *dir = opendir(folder(arena));
    assert_non_null(dir);
    const char *name[64];
    int files = 0, wrong = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (strstr(entry->d_name, ".txt") && files < 64)
            name[files++] = arena_strdup(arena, entry->d_name);
    closedir(dir);
    assert_true(files > 8);
    qsort(name, (size_t)files, sizeof name[0], by_name);
    for (int i = 0; i < files; i++)
        wrong += !check_file(arena, arena_printf(arena, "%s/%s", folder(arena), name[i]),
                             getenv("LPLAN_BLESS") != NULL);
    assert_int_equal(wrong, 0);
    arena_free(arena);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(bodies)};
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
