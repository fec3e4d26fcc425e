/* random_pins.c - random plans as a person would pin them: five tiny models, up to 16 ranks,
 * pins of every kind but rows in files; proven statically, run on all ranks in fp64 and compared
 * with the un-placed graph.
 *
 *     random_pins [FIRST [COUNT [MODEL]]]   COUNT plans of each model, drawn from FIRST on
 *     random_pins --list FIRST COUNT RANKS  prints plans of at most RANKS ranks, a line each: seed,
 *                                           model, batch, sequence, optimizer, pins
 *
 * With LPLAN_IMAGE set to 1 or "mutations", the numeric proof of `lplan prove` instead; with
 * LPLAN_LOUD, every plan is said. A plan that is refused with a reason is drawn again; one that
 * cannot be lowered, proven or run to 1e-10 fails, with the line that draws it again. A pin that
 * this version does not know is left out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/rng.h"
#include "ir/lower/check.h"
#include "ir/lower/prove.h"
#include "planner/import_hf.h"
#include "tests/ir/lower/plans.h"
#include "tests/ir/lower/ranks.h"
#include "tests/ir/lower/trial.h"

typedef struct Tiny {
    const char *name;
    int layers;
    bool experts;
} Tiny;
static const Tiny models[] = {
    {"gpt2", 4, false},   {"llama", 4, false},   {"gemma2", 4, false},
    {"mixtral", 4, true}, {"deepseek", 3, true},
};
enum { MODELS = sizeof models / sizeof *models };

typedef struct Draw {
    Arena *arena;
    Rng rng;
    int model, ranks;
    int64_t batch, sequence;
    char *pins;
    const char *recipe;
    bool flows;
    TrialSpec spec;
    int64_t bucket_bytes;
} Draw;

static int draw(Draw *d, int below)
{
    return (int)rng_draw(&d->rng, (uint64_t)below);
}

static bool chance(Draw *d, int percent)
{
    return draw(d, 100) < percent;
}

static bool pin_known(Arena *arena, const char *text)
{
    Pins pins = pins_none();
    return pins_parse(arena, diag_new(arena), text, &pins);
}

/* Appends a pin when this version knows it. */
static bool put_pin(Draw *d, const char *text)
{
    if (!pin_known(d->arena, text))
        return false;
    d->pins = arena_printf(d->arena, "%s%s%s", d->pins, *d->pins ? "," : "", text);
    return true;
}

static bool put_number(Draw *d, const char *key, int value)
{
    return put_pin(d, arena_printf(d->arena, "%s=%d", key, value));
}

static const char *random_cuts(Draw *d, int stages)
{
    int layers = models[d->model].layers;
    Str text = str_new(d->arena);
    for (int s = 0; s < stages; s++) {
        int most = layers - (stages - 1 - s), own = s + 1 == stages ? layers : 1 + draw(d, most);
        str_putf(&text, "%s%d", s ? "+" : "layers=", own);
        layers -= own;
    }
    return text.at;
}

/* One pipeline: its schedule, its cuts, its chunks. */
static void draw_stages(Draw *d, int stages)
{
    static const char *const schedules[] = {"1f1b",        "gpipe", "zbh1",
                                            "interleaved", "zbv",   "dualpipev"};
    const char *schedule = schedules[chance(d, 50) ? draw(d, 2) : draw(d, 6)];
    if (stages == 1)
        return;
    bool known = put_pin(d, arena_printf(d->arena, "schedule=%s", schedule));
    if (known && strcmp(schedule, "interleaved") == 0)
        put_number(d, "chunks", 2);
    else if (stages <= models[d->model].layers && chance(d, 50) && strchr("1g", schedule[0]))
        put_pin(d, random_cuts(d, stages));
}

/* Some pipelines never drain: their schedule, memories, and as many micro-batches as it needs. */
static void draw_flow(Draw *d, Rng *aside, int stages, int sequences)
{
    static const char *const away[] = {"activation_home=", "optimizer_home=", "weight_home="};
    char *at = strstr(d->pins, "schedule=");
    const char *odds = getenv("LPLAN_FLOWS"); /* of a hundred */
    if (!at || strstr(d->pins, "layers=") || strstr(d->pins, "chunks=") ||
        (int)rng_draw(aside, 100) >= (odds ? atoi(odds) : 12))
        return;
    bool each = rng_draw(aside, 2);
    const char *rest = at + strcspn(at, ",");
    d->pins = arena_printf(d->arena, "%.*sschedule=%s%s", (int)(at - d->pins), d->pins,
                           each ? "pipedream" : "2bw", rest);
    for (int k = 0; k < 3; k++)
        if (rng_draw(aside, 3) == 0)
            put_pin(d,
                    arena_printf(d->arena, "%s%s", away[k], rng_draw(aside, 2) ? "dram" : "nvme"));
    d->batch = sequences * (each ? 1 : stages + (int)rng_draw(aside, 2));
    d->flows = true;
}

static void draw_pins(Draw *d)
{
    static const int tps[] = {1, 1, 2, 2, 4}, cps[] = {1, 1, 1, 2, 3}, dps[] = {1, 2, 2, 3, 4, 8};
    static const char *const crosses[] = {"cp_by=gather", "cp_by=heads", "cp_by=ring"};
    int tp, cp, dp, pp;
    do {
        tp = tps[draw(d, 5)];
        cp = pin_known(d->arena, "cp=2") ? cps[draw(d, 5)] : 1;
        dp = dps[draw(d, 6)];
        pp = 1 + (chance(d, 50) ? 0 : draw(d, 4));
    } while (tp * cp * dp * pp > d->ranks || tp * cp * dp * pp == 1);
    d->pins = "";
    put_number(d, "tp", tp);
    put_number(d, "dp", dp);
    put_number(d, "pp", pp);
    if (cp > 1) {
        put_number(d, "cp", cp);
        if (chance(d, 70))
            put_pin(d, crosses[draw(d, 3)]);
    }
    int mbs = 1 + draw(d, 2);
    put_number(d, "mbs", mbs);
    int zero = draw(d, 4);
    if (!put_number(d, "zero", zero))
        put_number(d, "zero", zero & 1);
    put_number(d, "sp", tp > 1 ? draw(d, 2) : 0);
    put_pin(d, chance(d, 40) ? "recompute=full" : "recompute=none");
    if (chance(d, 30))
        put_number(d, "block", draw(d, 3));
    if (models[d->model].experts && chance(d, 60)) {
        int ep = chance(d, 70) ? 2 : 4;
        if (put_number(d, "ep", ep) && chance(d, 30))
            put_number(d, "etp", 1 + draw(d, 2));
    }
    draw_stages(d, pp);
    Rng aside = d->rng; /* what follows is drawn as without it */
    d->batch = 0;
    draw_flow(d, &aside, pp, mbs * dp);
    bool pairs = strstr(d->pins, "=1f1b") || strstr(d->pins, "=dualpipev");
    if (pairs && rng_draw(&aside, 2))
        put_number(d, "braid", 1);
    static const char *const away[] = {"activation_home=dram", "activation_home=nvme",
                                       "weight_home=dram", "weight_home=nvme"};
    if (pairs && rng_draw(&aside, 3) == 0)
        put_pin(d, away[rng_draw(&aside, 4)]);
    int64_t batch = (int64_t)mbs * dp * (1 + draw(d, 2) * draw(d, 3));
    d->batch = d->flows ? d->batch : batch;
    d->sequence = tp * cp * (1 + draw(d, 3));
    d->sequence = d->sequence < 4 ? 4 * d->sequence : d->sequence;
    if (cp > 1 && chance(d, 50) && pin_known(d->arena, "order=zigzag")) {
        put_pin(d, "order=zigzag");
        d->sequence *= 2;
    }
    if (strstr(d->pins, "sp=1") && chance(d, 50))
        put_pin(d, "tp_by=ring");
}

/* Some layers with pins of their own, in two plans of five; drawn apart, so that the others stay
 * what they were. `ranks`: of a stage. */
static void draw_ranges(Draw *d, int ranks, bool cut)
{
    static const char *const again[] = {"none", "full", "selective", "attention+norm"};
    static const char *const homes[] = {
        ":weight_home=dram",    ":gradient_home=dram",  ":weight_home=nvme:gradient_home=nvme",
        ":optimizer_home=dram", ":optimizer_home=nvme", ":activation_home=dram",
        ":activation_home=hbm"};
    int layers = models[d->model].layers, n = chance(d, 40) ? 1 + draw(d, 2) : 0;
    for (int i = 0; i < n; i++) {
        int from = draw(d, layers), to = from + draw(d, layers - from);
        Str text = str_new(d->arena);
        str_putf(&text, from == to ? "%d" : "%d-%d", from, to);
        if (chance(d, 15))
            text = str_new(d->arena), str_put(&text, draw(d, 2) ? "first" : "last");
        int tp = 1 << draw(d, 3), cp = chance(d, 30) && !cut ? 1 + draw(d, 3) : 1;
        if (chance(d, 75) && ranks % (tp * cp) == 0) {
            str_putf(&text, ":tp=%d:cp=%d:sp=%d", tp, cp, tp > 1 ? draw(d, 2) : 0);
            d->sequence *= d->sequence % (tp * cp) ? tp * cp : 1;
        }
        if (models[d->model].experts && chance(d, 40))
            str_putf(&text, ":ep=%d", 1 << draw(d, 3));
        if (chance(d, 40))
            str_putf(&text, ":recompute=%s", again[draw(d, 4)]);
        str_putf(&text, ":zero=%d", draw(d, 4));
        Rng aside = d->rng; /* the others stay what they were */
        if (rng_draw(&aside, 3) == 0)
            str_put(&text, homes[rng_draw(&aside, 7)]);
        put_pin(d, text.at);
    }
}

static int pinned(const Draw *d, const char *key, int otherwise)
{
    const char *at = strstr(d->pins, key);
    return at ? atoi(at + strlen(key)) : otherwise;
}

/* Rarer pins, which the plan may have whatever else it has; drawn apart from the others. */
static void draw_rare(Draw *d)
{
    static const char *const homes[] = {"gradient_home=dram", "gradient_home=nvme",
                                        "optimizer_home=dram", "optimizer_home=nvme",
                                        "weight_home=dram"};
    static const char *const rooms[] = {"rounds=2", "rounds=4", "room=400", "exchange=padded"};
    static const char *const shards[] = {"shard=node", "shard=weights"};
    int cp = pinned(d, "cp=", 1), chunks = pinned(d, "chunks=", 0);
    if (cp > 1 && strstr(d->pins, "cp_by=") && chance(d, 40))
        put_number(d, "cp_heads", 1 + draw(d, cp));
    if (strstr(d->pins, "ep=") && chance(d, 60))
        put_pin(d, rooms[draw(d, 4)]);
    if (pinned(d, "zero=", 0) > 0 && chance(d, 15))
        put_pin(d, shards[draw(d, 2)]);
    if (!strstr(d->pins, "_home=") && chance(d, 20))
        put_pin(d, homes[draw(d, 5)]);
    char *at = chunks ? strstr(d->pins, "chunks=") : NULL;
    if (at && chance(d, 50))
        at[strlen("chunks=")] = (char)('3' + draw(d, 2));
}

static void draw_plan(Draw *d, int model, uint64_t seed, int ranks)
{
    static const Mask masks[] = {MASK_UNEVEN, MASK_ONE, MASK_COUNTS, MASK_HALF};
    d->rng = (Rng){seed, (uint64_t)model};
    d->model = model;
    d->ranks = ranks;
    d->recipe = "fp64";
    d->flows = false;
    draw_pins(d);
    d->spec = (TrialSpec){.rounds = 1 + draw(d, 2),
                          .mask = masks[draw(d, 4)],
                          .clip = chance(d, 50) ? 0.05 : 0,
                          .seed = seed};
    d->bucket_bytes = 500 << draw(d, 6);
    d->rng = (Rng){seed, (uint64_t)model + MODELS};
    int cp = pinned(d, "cp=", 1);
    Rng aside = d->rng; /* what follows is drawn as without it */
    if (rng_draw(&aside, 4) == 0)
        d->recipe = "fp64 muon";
    draw_ranges(d, pinned(d, "tp=", 1) * pinned(d, "dp=", 1) * cp,
                strstr(d->pins, "order=") != NULL);
    d->rng = (Rng){seed, (uint64_t)model + 2 * MODELS};
    draw_rare(d);
}

/* The model with few words: an output layer of 256 would be half of the work. */
static const char *model_text(Arena *arena, int model)
{
    const char *root = getenv("LPLAN_SOURCE_ROOT");
    const char *path =
        arena_printf(arena, "%s/tests/pins/models/%s.json", root ? root : ".", models[model].name);
    JsonDoc *doc = import_model(arena, diag_new(arena), path, NULL);
    if (!doc)
        BUG("%s does not import", path);
    json_object_set_new(json_object_get(doc->root, "dims"), "v", json_integer(29));
    return json_text(arena, doc->root);
}

static Plan *make(Draw *d, Net **ret_net, const char **ret_why)
{
    PlanCase what = {.model = model_text(d->arena, d->model),
                     .batch = d->batch,
                     .sequence = d->sequence,
                     .pins = d->pins,
                     .recipe = d->recipe,
                     .bucket_bytes = d->bucket_bytes};
    PlanRefusal refusal;
    Plan *plan = plan_try(d->arena, &what, ret_net, &refusal);
    *ret_why = plan ? NULL : diag_count(refusal.diag) ? diag_item(refusal.diag, 0)->text : NULL;
    return plan;
}

/* The proof of `lplan prove`, on a shrunken plan: NULL, or what is wrong. */
static const char *judge_image(Draw *d, const Plan *plan, const Net *net)
{
    const char *how = getenv("LPLAN_IMAGE");
    ProveOptions options = prove_default();
    ProveReport report;
    options.mutations = how && strcmp(how, "mutations") == 0;
    options.orders = 1;
    Diag *diag = diag_new(d->arena);
    if (prove_numeric(d->arena, diag, plan, net, &options, &report))
        return NULL;
    for (int i = 0; i < report.mutations.n; i++)
        if (!report.mutations.at[i].good)
            return arena_printf(d->arena, "image: %s: error %.2g", report.mutations.at[i].name,
                                report.mutations.at[i].error);
    if (diag_errors(diag))
        return diag_item(diag, 0)->text;
    return report.fault
               ? report.fault
               : arena_printf(d->arena, "image: error %.3g at %s", report.max_error, report.worst);
}

static const char *judge_static(Draw *d, const Program *program)
{
    CheckReport report;
    Diag *diag = diag_new(d->arena);
    return program_check(d->arena, program, program_rounds(program), diag, &report)
               ? NULL
               : arena_printf(d->arena, "static proof: %s", diag_item(diag, 0)->text);
}

/* NULL, or what is wrong. One in five is shrunk too. */
static const char *judge(Draw *d, Plan *plan, const Net *net, double *ret_error)
{
    if (getenv("LPLAN_IMAGE") || d->flows || d->spec.seed % 5 == 0) {
        const char *wrong = judge_image(d, plan, net);
        if (wrong || getenv("LPLAN_IMAGE"))
            return wrong;
    }
    if (d->flows) /* a trial knows no stale weights */
        return judge_static(d, program_build(d->arena, plan, net, NULL, NULL));
    Trial *trial = trial_new(d->arena, plan, net, &d->spec);
    const char *unsound = judge_static(d, trial->program);
    if (unsound)
        return unsound;
    for (uint64_t order = 0; order < 2; order++) {
        const char *where, *drift;
        if (order == 1 && d->spec.seed % 2)
            break; /* for the other half, program order is enough */
        double error = trial_run(trial, order * 31, NULL, &where);
        *ret_error = error > *ret_error ? error : *ret_error;
        if (!(error <= 1e-10))
            return arena_printf(d->arena, "error %.3g at %s", error, where);
        if ((drift = trial_drift(trial)) != NULL)
            return arena_printf(d->arena, "ranks hold other bits of %s", drift);
    }
    return NULL;
}

typedef struct Score {
    int plans, refused, wrong;
    double error;
} Score;

/* Draws until a plan is taken; the seeds of refused ones are used up. */
static uint64_t run_one(int model, uint64_t seed, Score *score)
{
    for (;; seed++) {
        Arena *arena = arena_new("random pins");
        Draw d = {.arena = arena};
        Net *net;
        const char *why;
        draw_plan(&d, model, seed, 16);
        Plan *plan = make(&d, &net, &why);
        bool taken = plan != NULL;
        score->refused += !taken;
        const char *wrong = taken ? judge(&d, plan, net, &score->error)
                            : why ? NULL
                                  : "refused without a word";
        if (getenv("LPLAN_LOUD"))
            printf("# %llu %s %s: %s\n", (unsigned long long)seed, models[model].name, d.pins,
                   taken ? "taken" : why);
        if (wrong)
            printf("# random_pins %llu 1 %s   # --global-batch %lld --seq %lld --pin %s\n#   %s\n",
                   (unsigned long long)seed, models[model].name, (long long)d.batch,
                   (long long)d.sequence, d.pins, wrong);
        fflush(stdout);
        score->wrong += wrong != NULL;
        score->plans += taken;
        arena_free(arena);
        if (taken || wrong)
            return seed + 1;
    }
}

/* Plans for whoever builds them: model, batch, sequence, pins. */
static int list(uint64_t seed, int count, int ranks)
{
    for (int i = 0; i < count; seed++) {
        Arena *arena = arena_new("random pins");
        Draw d = {.arena = arena};
        Net *net;
        const char *why;
        draw_plan(&d, i % MODELS, seed, ranks);
        const char *optimizer = strchr(d.recipe, ' ') ? "muon" : "adamw";
        d.recipe = arena_printf(arena, "fp32 %s", optimizer);
        d.batch = d.sequence = 24; /* one trainer of one rank a model and optimizer suffices */
        /* how many labels a block has depends on the words, and these are few */
        if (!strstr(d.pins, "block=") && make(&d, &net, &why)) {
            printf("%llu %s %lld %lld %s %s\n", (unsigned long long)seed, models[i % MODELS].name,
                   (long long)d.batch, (long long)d.sequence, optimizer, d.pins);
            i++;
        }
        arena_free(arena);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "--list") == 0)
        return list(strtoull(argv[2], NULL, 10), atoi(argv[3]), atoi(argv[4]));
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    int count = argc > 2 ? atoi(argv[2]) : 40, bad = 0;
    printf("# seeds from %llu on\n", (unsigned long long)first);
    for (int model = 0; model < MODELS; model++) {
        Score score = {0};
        if (argc > 3 && strcmp(argv[3], models[model].name) != 0)
            continue;
        uint64_t seed = first;
        for (int i = 0; i < count; i++)
            seed = run_one(model, seed, &score);
        /* most that is drawn can be: else little is tested */
        bool few = count > 10 && score.refused > 3 * score.plans;
        printf("%s %d - %d plans of %s, %d refused with a reason, largest error %.2g, %d wrong\n",
               score.wrong || few ? "not ok" : "ok", model + 1, score.plans, models[model].name,
               score.refused, score.error, score.wrong);
        bad += score.wrong + few;
    }
    printf("1..%d\n", MODELS);
    return bad != 0;
}
