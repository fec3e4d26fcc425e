/* test_random_plans.c - the strongest test of the algebra: plans that nobody would choose, every
 * choice legal and random, lowered, proven statically, executed on all ranks and compared with the
 * un-placed graph.
 *
 *     test_random_plans [FIRST [COUNT [MODEL]]] runs those seeds; one alone says more. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ir/lower/handmade.h"
#include "tests/ir/lower/ranks.h"
#include "tests/ir/tiny_models.h"

typedef struct Tiny {
    const char *name, *text;
    const char *dims; /* the tiny models' own hardly divide */
    bool looped;      /* both layers are one: every parameter of theirs is tied */
} Tiny;
static const Tiny models[] = {
    {"llama", tiny_llama, "\"h\":12,\"f\":24,\"v\":11,\"g\":4,\"r\":6,\"d\":4", false},
    {"gpt2", tiny_gpt2, "\"h\":12,\"f\":24,\"v\":11,\"p\":24,\"c\":3,\"g\":12,\"d\":4", false},
    {"looped", tiny_llama, "\"h\":12,\"f\":24,\"v\":11,\"g\":4,\"r\":6,\"d\":4", true},
};
enum { MODELS = sizeof models / sizeof models[0] };

static const char *model_text(Arena *arena, const Tiny *tiny)
{
    static const char twice[] = "{\"block\":\"layer\",\"repeat\":2}";
    const char *at = strstr(tiny->text, "\"dims\":{"), *end = strchr(at, '}');
    const char *text = arena_printf(arena, "%.*s\"dims\":{%s%s", (int)(at - tiny->text), tiny->text,
                                    tiny->dims, end);
    if (!tiny->looped)
        return text;
    at = strstr(text, twice);
    return arena_printf(arena, "%.*s{\"block\":\"layer\"},{\"block\":\"layer\"}%s",
                        (int)(at - text), text, at + strlen(twice));
}

typedef struct Draw {
    Arena *arena;
    Rng rng;
    const Net *net;
    Plan *plan;
} Draw;

static int draw(Draw *d, int below)
{
    return (int)rng_draw(&d->rng, (uint64_t)below);
}

static bool chance(Draw *d, int percent)
{
    return draw(d, 100) < percent;
}

static Mesh draw_mesh(Draw *d)
{
    static const int shape[][3] = {{2},    {3},       {4},    {2, 2},   {2, 3},
                                   {3, 2}, {2, 2, 2}, {2, 2}, {2, 2, 2}};
    Mesh mesh = {0};
    const int *extent = shape[draw(d, 9)];
    for (int a = 0; a < 3 && extent[a]; a++) {
        /* choices do not look at roles */
        mesh.atom[a] = (Atom){extent[a], chance(d, 40) ? ROLE_DP : ROLE_TP, 0};
        mesh.n++;
    }
    return mesh;
}

/* Shards on random atoms and axes, in random order; never Partial. */
static Placement draw_shards(Draw *d, const Value *value, int percent)
{
    for (;;) {
        Placement place = place_replicate();
        int order[MAX_ATOMS], n = d->plan->mesh.n;
        for (int a = 0; a < n; a++) {
            int at = draw(d, a + 1);
            order[a] = order[at];
            order[at] = a;
        }
        for (int i = 0; i < n && value->axes > 0; i++)
            if (chance(d, percent)) {
                AtomList *list = &place.shard[draw(d, value->axes)];
                list->at[list->n++] = (int8_t)order[i];
            }
        if (place_fits(&d->plan->mesh, d->net, value, &place))
            return place;
    }
}

static void draw_choice(Draw *d, const Graph *graph, const Node *node, NodeChoice *ret)
{
    Placement in[MAX_IN], out[MAX_OUT];
    int sets = node_linear_sets(node);
    for (int tries = 0; tries < 100; tries++) {
        memset(ret, 0, sizeof *ret);
        for (int a = 0; a < d->plan->mesh.n; a++) {
            int pick = draw(d, 1 + node->sig.letters + 2 * sets);
            if (pick >= 1 + node->sig.letters)
                ret->atom[a] = (Choice)(CHOICE_LINEAR + (pick - 1 - node->sig.letters) % sets);
            else if (pick > 0)
                ret->atom[a] = (Choice)(CHOICE_LETTER + pick - 1);
        }
        if (place_node(&d->plan->mesh, d->net, graph, node, ret, in, out))
            return;
    }
    memset(ret, 0, sizeof *ret);
}

/* A copy to keep: what forward makes, a shard of it, or anything else that moves lead to. */
static Placement draw_saved(Draw *d, const Value *value, const Placement *made)
{
    if (value->number == NUM_INDEX || made->monoid == MONOID_MAX || chance(d, 50))
        return *made;
    Placement want = *made;
    for (int a = 0; a < d->plan->mesh.n; a++) {
        if ((place_used(made) >> a & 1) || !chance(d, 50) || value->axes == 0)
            continue;
        AtomList *list = &want.shard[draw(d, value->axes)];
        if (list->n < MAX_PER_AXIS)
            list->at[list->n++] = (int8_t)a;
    }
    if (!place_fits(&d->plan->mesh, d->net, value, &want))
        return *made;
    return chance(d, 70) ? want : draw_shards(d, value, 40);
}

static void draw_class(Draw *d, int c, const Placement *boundary, int keep_percent)
{
    const Graph *graph = d->net->classes.at[c];
    ClassPlan *plan = &d->plan->class[c];
    plan->boundary_in = plan->boundary_out = *boundary;
    for (int n = 0; n < graph->nodes.n; n++)
        draw_choice(d, graph, &graph->nodes.at[n], &plan->choice[n]);
    for (int p = 0; p < graph->params.n; p++)
        plan->home[p] = draw_shards(d, &graph->values.at[graph->params.at[p].value], 40);
    handmade_keep(plan, d->net, graph, &d->plan->mesh);
    for (int v = 0; v < graph->values.n; v++) {
        plan->keep[v] = chance(d, keep_percent) ? KEEP_SAVED : KEEP_NONE;
        plan->saved[v] = draw_saved(d, &graph->values.at[v], &plan->saved[v]);
    }
}

/* Nested sets: half of the plans cut nothing but the state, a third of the others no weights. */
static Homes draw_homes(Draw *d)
{
    int atoms = 1 << d->plan->mesh.n;
    Homes homes = {.state = (AtomSet)draw(d, atoms)};
    if (chance(d, 50))
        return homes;
    homes.gradient = chance(d, 60) ? homes.state : (AtomSet)(homes.state & draw(d, atoms));
    if (chance(d, 67))
        homes.weight = chance(d, 60) ? homes.gradient : (AtomSet)(homes.gradient & draw(d, atoms));
    return homes;
}

/* Some classes have homes of their own; those that share a parameter stay alike. */
static void draw_cuts(Draw *d)
{
    if (!chance(d, 30))
        return;
    for (int c = 0; c < d->net->classes.n; c++) {
        Homes *own = ARENA_NEW(d->arena, Homes);
        bool tied = false;
        for (int i = 0; i < d->net->params.n; i++)
            for (int use = 0; use < d->net->params.at[i].uses; use++)
                tied |= d->net->params.at[i].uses > 1 && d->net->params.at[i].use_class[use] == c;
        *own = draw_homes(d);
        if (!tied)
            d->plan->class[c].cut = own;
    }
}

/* Where weights are cut as far as their state, they may live in another memory. */
static bool may_fetch(const Draw *d)
{
    bool even = d->plan->weight_atoms == d->plan->state_atoms;
    for (int c = 0; c < d->net->classes.n; c++) {
        const Homes *own = d->plan->class[c].cut;
        even = even && (!own || own->weight == own->state);
    }
    return even;
}

/* Most plans keep everything on the device. */
static void draw_memories(Draw *d)
{
    bool far = chance(d, 40);
    for (int k = 0; k < KEPT_COUNT && far; k++) {
        Memory memory = (Memory)draw(d, MEMORY_COUNT);
        if (k != KEPT_WEIGHTS || may_fetch(d))
            d->plan->memory[k] = memory;
    }
    Rng aside = d->rng; /* the others stay what they were */
    for (int c = 0; c < d->net->classes.n && rng_draw(&aside, 2); c++)
        if (d->plan->class[c].cut) {
            Homes *own = ARENA_NEW(d->arena, Homes);
            *own = *d->plan->class[c].cut;
            for (int k = 0; k < KEPT_COUNT; k++) /* of all but state on the device, or there */
                own->nearer[k] =
                    (uint8_t)(k == KEPT_STATE ? rng_draw(&aside, 3) : 2 * rng_draw(&aside, 2));
            d->plan->class[c].cut = own;
        }
}

static void draw_plan(Draw *d, const Mesh *mesh)
{
    const Net *net = d->net;
    Plan *plan = d->plan = handmade_plan(d->arena, net, mesh, 1 + draw(d, 3));
    Homes homes = draw_homes(d);
    plan->state_atoms = homes.state;
    plan->gradient_atoms = homes.gradient;
    plan->weight_atoms = homes.weight;
    plan->schedule = chance(d, 50) ? SCHEDULE_1F1B : SCHEDULE_GPIPE;
    plan->bucket_bytes = 500 << draw(d, 6);
    if (chance(d, 40)) {
        plan->stages = 2 + chance(d, 30);
        plan->ranks *= plan->stages;
        plan->first_link = ARENA_ARRAY(d->arena, int, plan->stages + 1);
        for (int s = 1; s < plan->stages; s++)
            plan->first_link[s] = s + 1;
        plan->first_link[plan->stages] = net->chain.n;
        plan_chunk_per_stage(d->arena, plan);
    }
    const Graph *head = net->classes.at[net->chain.at[net->chain.n - 1].class];
    const Value *chain = &head->values.at[head->chain_in];
    Placement boundary = chance(d, 30) ? place_replicate() : draw_shards(d, chain, 50);
    int keep_percent = chance(d, 30) ? 100 : 60;
    for (int c = 0; c < net->classes.n; c++)
        draw_class(d, c, &boundary, keep_percent);
    draw_cuts(d);
    for (int i = 0; i < net->params.n; i++) {
        const NetParam *param = &net->params.at[i];
        if (param->uses == 2)
            plan->class[param->use_class[1]].home[param->use_param[1]] =
                plan->class[param->use_class[0]].home[param->use_param[0]];
    }
    draw_memories(d);
}

/* The largest error of one random plan. */
static double run_one(int model, uint64_t seed, bool loud)
{
    Arena *arena = arena_new("random plan");
    Draw d = {.arena = arena, .rng = {seed, 0}};
    const char *text = model_text(arena, &models[model]);
    Mesh mesh = draw_mesh(&d);
    bool wide = mesh_extent(&mesh, role_atoms(&mesh, ROLE_DP)) == 8;
    const Net *net = d.net = net_from(arena, text, wide ? 24 : 12, 12, 12);
    draw_plan(&d, &mesh);
    Diag *diag = diag_new(arena);
    if (!plan_verify(d.plan, net, diag))
        BUG("a drawn plan is not legal: %s", diag_item(diag, 0)->text);
    if (loud) {
        printf("# %s seed %llu: %d stages, %d atoms, %d micro-batches\n", models[model].name,
               (unsigned long long)seed, d.plan->stages, d.plan->mesh.n, d.plan->micro_batches);
        fflush(stdout);
    }
    const char *what = "";
    double error = handmade_error(arena, d.plan, net, seed, &what);
    if (loud || !(error < 1e-10))
        printf("# %s seed %llu: error %.3g at %s\n", models[model].name, (unsigned long long)seed,
               error, what);
    fflush(stdout);
    arena_free(arena);
    return error;
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : argc > 1 ? 1 : 100;
    int bad = 0;
    for (int model = 0; model < MODELS; model++) {
        if (argc > 3 && strcmp(argv[3], models[model].name) != 0)
            continue;
        double worst = 0;
        int wrong = 0;
        for (uint64_t seed = first; seed < first + count; seed++) {
            double error = run_one(model, seed, count == 1);
            wrong += !(error < 1e-10);
            worst = error > worst ? error : worst;
        }
        printf("%s %d - %llu random plans of %s, largest error %.2g, %d wrong\n",
               wrong ? "not ok" : "ok", model + 1, (unsigned long long)count, models[model].name,
               worst, wrong);
        bad += wrong;
    }
    printf("1..%d\n", MODELS);
    return bad != 0;
}
