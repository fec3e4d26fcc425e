/* plan.c - recipes, the job's defaults, pins, and the mesh of a stage. */
#include "ir/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/num.h"
#include "ir/pin_ranges.h"
#include "ir/plan_memory.h"

const char *const dtype_text[DT_COUNT] = {"f32", "f64", "bf16", "f16", "i32"};

int dtype_bytes(DType dtype)
{
    static const int bytes[DT_COUNT] = {
        [DT_F32] = 4, [DT_F64] = 8, [DT_BF16] = 2, [DT_F16] = 2, [DT_I32] = 4};
    return bytes[dtype];
}

const char *const cross_text[CROSS_COUNT] = {
    [CROSS_GATHER] = "gather", [CROSS_HEADS] = "heads", [CROSS_RING] = "ring"};
const char *const order_text[ORDER_COUNT] = {
    [ORDER_IDENTITY] = "identity", [ORDER_ZIGZAG] = "zigzag"};

static const Recipe recipes[] = {
    {"fp32", DT_F32, DT_F32, DT_F32, DT_F32, false, false},
    {"bf16", DT_BF16, DT_BF16, DT_F32, DT_F32, true, false},
    {"fp16", DT_F16, DT_F16, DT_F32, DT_F32, true, true},
    {"fp64", DT_F64, DT_F64, DT_F64, DT_F64, false, false},
};

const Recipe *recipe_by_name(const char *name)
{
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++)
        if (str_eq(recipes[i].name, name))
            return &recipes[i];
    return NULL;
}

Job job_default(void)
{
    return (Job){.global_batch = 8,
                 .sequence = 128,
                 .recipe = "fp32",
                 .beta1 = 0.9,
                 .beta2 = 0.95,
                 .eps = 1e-8,
                 .decay = 0.1,
                 .clip = 1.0};
}

void plan_chunk_per_stage(Arena *arena, Plan *plan)
{
    plan->chunks = plan->stages;
    plan->holder = ARENA_ARRAY(arena, int, plan->stages);
    for (int s = 0; s < plan->stages; s++)
        plan->holder[s] = s;
}

/* The rows of a file, as they are or with pairs. */
static const Schedule *table_rows(Arena *arena, const Schedule *table, bool braids)
{
    Schedule *rows = ARENA_NEW(arena, Schedule);
    *rows = *table;
    rows->braids = braids;
    return rows;
}

const Schedule *plan_rows(Arena *arena, Diag *diag, const Plan *plan)
{
    if (plan->schedule == SCHEDULE_TABLE)
        return table_rows(arena, plan->table, plan->braid);
    return (plan->braid ? schedule_make_braided
                        : schedule_make)(arena, diag, plan->schedule, plan->stages,
                                         plan->chunks / plan->stages, plan->micro_batches);
}

/* ---- homes ---- */

const char *const shard_text[SHARD_COUNT] = {"all", "node", "weights"};
const char *const exchange_text[EXCHANGE_COUNT] = {"exact", "padded"};

Homes plan_homes(const Plan *plan, int class)
{
    const Homes *own = plan->class[class].cut;
    return own ? *own
               : (Homes){.state = plan->state_atoms,
                         .gradient = plan->gradient_atoms,
                         .weight = plan->weight_atoms};
}

bool homes_equal(const Homes *a, const Homes *b)
{
    return a->state == b->state && a->gradient == b->gradient && a->weight == b->weight &&
           memcmp(a->nearer, b->nearer, sizeof a->nearer) == 0;
}

bool homes_equal_of_params(const Homes *a, const Homes *b)
{
    Homes other = *b;
    other.nearer[KEPT_SAVED] = a->nearer[KEPT_SAVED];
    return homes_equal(a, &other);
}

int plan_chunk_of_link(const Plan *plan, int link)
{
    for (int chunk = 0; chunk < plan->chunks; chunk++)
        if (link < plan->first_link[chunk + 1])
            return chunk;
    BUG("link %d lies beyond the last chunk", link);
}

Homes plan_param_homes(const Plan *plan, const NetParam *param)
{
    Homes homes = plan_homes(plan, param->use_class[0]);
    int chunk[2] = {0};
    for (int use = 0; use < param->uses; use++)
        chunk[use] = plan_chunk_of_link(plan, param->link[use]);
    if (param->uses == 2 && chunk[0] != chunk[1] &&
        plan->holder[chunk[0]] == plan->holder[chunk[1]])
        homes.gradient = homes.weight = 0;
    return homes;
}

Homes homes_preset(const Mesh *mesh, int zero, int shard)
{
    AtomSet all = token_atoms(mesh), near = 0;
    for (int a = 0; a < mesh->n; a++)
        if ((all >> a & 1) && mesh->atom[a].level == 0)
            near |= (AtomSet)(1u << a);
    AtomSet most = shard == SHARD_NODE ? near : all;
    return (Homes){.state = zero >= 1 ? most : 0,
                   .gradient = zero >= 2 ? most : 0,
                   .weight = zero < 3                 ? 0
                             : shard == SHARD_WEIGHTS ? near
                                                      : most};
}

int homes_words(const Mesh *mesh, const Homes *homes, int *ret_shard)
{
    for (int zero = 0; zero <= 3; zero++)
        for (int shard = 0; shard < SHARD_COUNT; shard++) {
            Homes preset = homes_preset(mesh, zero, shard);
            *ret_shard = shard;
            if (preset.state == homes->state && preset.gradient == homes->gradient &&
                preset.weight == homes->weight)
                return zero;
        }
    *ret_shard = SHARD_ALL;
    return -1;
}

Pins pins_none(void)
{
    return (Pins){.tp = -1,
                  .cp = -1,
                  .dp = -1,
                  .pp = -1,
                  .zero = -1,
                  .sp = -1,
                  .recompute = -1,
                  .cp_by = -1,
                  .tp_by = -1,
                  .cp_heads = -1,
                  .order = -1,
                  .ep = -1,
                  .etp = -1,
                  .room = -1,
                  .rounds = -1,
                  .exchange = -1,
                  .shard = -1,
                  .home = {-1, -1, -1, -1},
                  .braid = -1,
                  .block = -1,
                  .chunks = -1};
}

static bool pin_int(Diag *diag, const char *key, const char *text, int min, int max, int *ret)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < min || value > max) {
        diag_error(diag, NO_SPAN, "pin %s=%s is not a number between %d and %d", key, text, min,
                   max);
        return false;
    }
    *ret = (int)value;
    return true;
}

int pins_chunks(const Pins *pins)
{
    return pins->table ? pins->table->chunks : pins->pp * (pins->chunks > 0 ? pins->chunks : 1);
}

const Schedule *pins_rows(Arena *arena, Diag *diag, const Pins *pins, int micros)
{
    ScheduleKind kind = schedule_by_name(pins->schedule);
    const Schedule *schedule = pins->table;
    if (kind != SCHEDULE_TABLE) {
        schedule = (pins->braid > 0 ? schedule_make_braided : schedule_make)(
            arena, diag, kind, pins->pp, pins_chunks(pins) / pins->pp, micros);
        return schedule && schedule_check(schedule, diag) ? schedule : NULL;
    }
    if (schedule->stages == pins->pp && schedule->micros == micros) {
        schedule = table_rows(arena, schedule, pins->braid > 0);
        return schedule_check(schedule, diag) ? schedule : NULL;
    }
    diag_error(
        diag, NO_SPAN,
        "the schedule's file has rows of %d stages and %d micro-batches; the plan has %d and %d",
        schedule->stages, schedule->micros, pins->pp, micros);
    diag_help(diag, "micro-batches are the global batch over dp x mbs");
    return NULL;
}

/* A name, or a file of rows. */
static bool pin_schedule(Arena *arena, Diag *diag, const char *value, Pins *ret)
{
    size_t length = strlen(value);
    ret->table = NULL;
    if (length > 4 && str_eq(value + length - 4, ".csv")) {
        const char *text = file_read(arena, value, NULL);
        if (!text)
            return diag_error(diag, NO_SPAN, "cannot read %s: %s", value, strerror(errno));
        ret->schedule = schedule_text[SCHEDULE_TABLE];
        ret->table = schedule_read_csv(arena, diag, text, arena_strdup(arena, value));
        ret->pp = ret->table ? ret->table->stages : ret->pp;
        return ret->table != NULL;
    }
    ScheduleKind kind = schedule_by_name(value);
    if (kind < SCHEDULE_TABLE) {
        ret->schedule = schedule_text[kind];
        return true;
    }
    const char *near = str_nearest(value, schedule_text, SCHEDULE_TABLE);
    diag_error(diag, NO_SPAN, "unknown schedule %s", value);
    diag_help(diag,
              near ? "did you mean %s?"
                   : "gpipe, 1f1b, interleaved, zbh1, zbv, dualpipev, pipedream, 2bw, or a file of "
                     "rows, x.csv",
              near);
    return false;
}

/* "3+5": layers per chunk. */
static bool pin_layers(Diag *diag, const char *text, Pins *ret)
{
    ret->cuts = 0;
    for (const char *at = text; ret->cuts < MAX_CUTS;) {
        char *end;
        long layers = strtol(at, &end, 10);
        if (end == at || layers < 0 || layers > 10000 || (*end && *end != '+'))
            break;
        ret->cut[ret->cuts++] = (int)layers;
        if (!*end)
            return true;
        at = end + 1;
    }
    diag_error(diag, NO_SPAN, "pin layers=%s is not a sum such as 3+5", text);
    diag_help(diag, "it has the layers of each chunk, along the chain");
    return false;
}

static bool pin_cross(Diag *diag, const char *key, const char *text, Pins *ret)
{
    bool cp = str_eq(key, "cp_by");
    for (int i = 0; i < CROSS_COUNT; i++)
        if (str_eq(text, cross_text[i]) && (cp || i != CROSS_HEADS)) {
            *(cp ? &ret->cp_by : &ret->tp_by) = i;
            return true;
        }
    diag_error(diag, NO_SPAN, "pin %s=%s: gather%s or ring", key, text, cp ? ", heads" : "");
    return false;
}

static bool pin_order(Diag *diag, const char *text, Pins *ret)
{
    for (int i = 0; i < ORDER_COUNT; i++)
        if (str_eq(text, order_text[i])) {
            ret->order = i;
            return true;
        }
    diag_error(diag, NO_SPAN, "pin order=%s: identity or zigzag", text);
    return false;
}

/* Blocks of the sequence pass by on tp only where tp has the sequence. */
static bool ring_has_blocks(Diag *diag, Pins *pins)
{
    if (pins->tp_by != CROSS_RING)
        return true;
    if (pins->sp == 0) {
        diag_error(diag, NO_SPAN,
                   "pin tp_by=ring contradicts sp=0: no blocks of the sequence pass by");
        diag_help(diag, "use sp=1, or leave tp_by out");
        return false;
    }
    pins->sp = 1;
    return true;
}

/* Less than an even share is never enough for all. */
static bool room_is_enough(Diag *diag, const Pins *pins)
{
    if (pins->room <= 0 || pins->room >= 100)
        return true;
    diag_error(diag, NO_SPAN, "pin room=%d: less than an even share of the rows of experts",
               pins->room);
    diag_help(diag, "give 100 or more, in percent; 0 is room for all that can come");
    return false;
}

/* The first are integers, in the order of `field` and `most` below. */
static const char *const pin_key[] = {"tp",
                                      "cp",
                                      "dp",
                                      "pp",
                                      "cp_heads",
                                      "chunks",
                                      "ep",
                                      "zero",
                                      "sp",
                                      "room",
                                      "block",
                                      "recompute",
                                      "mbs",
                                      "schedule",
                                      "cp_by",
                                      "tp_by",
                                      "layers",
                                      "shard",
                                      "order",
                                      "etp",
                                      "rounds",
                                      "exchange",
                                      "optimizer_home",
                                      "activation_home",
                                      "weight_home",
                                      "gradient_home",
                                      "braid"};
enum { PIN_KEYS = sizeof pin_key / sizeof *pin_key };

bool pin_is_key(const char *key)
{
    for (int i = 0; i < PIN_KEYS; i++)
        if (str_eq(key, pin_key[i]))
            return true;
    return false;
}

static void unknown_pin(Arena *arena, Diag *diag, const char *key)
{
    const char *near = str_nearest(key, pin_key, PIN_KEYS);
    Str all = str_new(arena);
    for (int i = 0; i < PIN_KEYS; i++)
        str_putf(&all, " %s", pin_key[i]);
    diag_error(diag, NO_SPAN, "unknown pin %s", key);
    diag_help(diag, near ? "did you mean %s?" : "pins are%s", near ? near : all.at);
}

bool pin_set(Arena *arena, Diag *diag, const char *key, const char *value, Pins *ret)
{
    int *const field[] = {&ret->tp, &ret->cp,   &ret->dp, &ret->pp,   &ret->cp_heads, &ret->chunks,
                          &ret->ep, &ret->zero, &ret->sp, &ret->room, &ret->block};
    static const int most[] = {1 << 20, 1 << 20, 1 << 20, 64,     1 << 20, 16,
                               1 << 20, 3,       1,       100000, 7};
    for (int i = 0; i < 11; i++)
        if (str_eq(key, pin_key[i]))
            return pin_int(diag, key, value, i < 7 ? 1 : 0, most[i], field[i]) &&
                   room_is_enough(diag, ret);
    if (str_eq(key, "cp_by") || str_eq(key, "tp_by"))
        return pin_cross(diag, key, value, ret);
    if (str_eq(key, "etp"))
        return pin_int(diag, key, value, 1, 1 << 20, &ret->etp);
    if (str_eq(key, "rounds"))
        return pin_int(diag, key, value, 1, MAX_ROUNDS, &ret->rounds);
    if (str_eq(key, "braid"))
        return pin_int(diag, key, value, 0, 1, &ret->braid);
    if (str_eq(key, "order"))
        return pin_order(diag, value, ret);
    if (kept_of_pin(key) < KEPT_COUNT)
        return pin_memory(diag, key, value, &ret->home[kept_of_pin(key)]);
    if (str_eq(key, "recompute")) {
        bool all = str_eq(value, "full"), nothing = str_eq(value, "none");
        ret->recompute = all;
        ret->again = all || nothing ? NULL : arena_strdup(arena, value);
        if (*value)
            return true;
        diag_error(diag, NO_SPAN, "pin recompute=: none, full, selective, or what is made again");
        diag_help(diag, "kinds of ops and values of the model, such as recompute=attention+silu");
        return false;
    }
    if (str_eq(key, "mbs")) {
        int mbs;
        bool good = pin_int(diag, key, value, 1, 1 << 20, &mbs);
        ret->micro_batch = good ? mbs : 0;
        return good;
    }
    if (str_eq(key, "schedule"))
        return pin_schedule(arena, diag, value, ret);
    if (str_eq(key, "layers"))
        return pin_layers(diag, value, ret);
    if (str_eq(key, "shard")) {
        for (int i = 0; i < SHARD_COUNT; i++)
            if (str_eq(value, shard_text[i])) {
                ret->shard = i;
                return true;
            }
        diag_error(diag, NO_SPAN, "pin shard=%s: all, node or weights", value);
        diag_help(diag, "over all ranks of dp, those of a node, or weights alone over a node");
        return false;
    }
    if (str_eq(key, "exchange")) {
        for (int i = 0; i < EXCHANGE_COUNT; i++)
            if (str_eq(value, exchange_text[i])) {
                ret->exchange = i;
                return true;
            }
        return diag_error(diag, NO_SPAN, "pin exchange=%s: exact or padded", value);
    }
    unknown_pin(arena, diag, key);
    return false;
}

bool pins_parse(Arena *arena, Diag *diag, const char *text, Pins *ret)
{
    Arena *scratch = arena_new("pins");
    char *copy = arena_strdup(scratch, text);
    Pins pins = *ret;
    PinWords said = {.of = ""};
    bool good = true;
    for (char *part = copy, *next; good && part && *part; part = next) {
        next = strchr(part, ',');
        if (next)
            *next++ = '\0';
        if (pin_is_range(part)) {
            good = pin_range(arena, diag, part, &pins);
            continue;
        }
        char *equals = strchr(part, '=');
        if (!equals) {
            diag_error(diag, NO_SPAN, "pin %s has no value; write %s=…", part, part);
            good = false;
            break;
        }
        *equals = '\0';
        good = pin_set(arena, diag, part, equals + 1, &pins) &&
               pin_once(diag, &said, part, equals + 1);
    }
    good = good && ring_has_blocks(diag, &pins);
    if (good)
        *ret = pins;
    arena_free(scratch);
    return good;
}

/* The ranks of an atom of `take` at `stride`, or fewer where an end lies inside it. */
static int up_to_end(const AtomEnds *ends, int stride, int take)
{
    for (int i = 0; i < ends->n; i++) {
        int end = ends->at[i];
        if (end > stride && end % stride == 0 && end / stride < take && take % (end / stride) == 0)
            take = end / stride;
    }
    return take;
}

/* Appends atoms of `role` for `extent` ranks at `*stride`, cut where a link level is filled, and at
 * the ends. */
static bool put_atoms(Mesh *mesh, const Cluster *cluster, const AtomEnds *ends, Role role,
                      int extent, int *stride)
{
    while (extent > 1) {
        int level = cluster_level(cluster, *stride, 2), width = 1;
        for (int i = 0; i <= level; i++)
            width *= cluster->level[i].width;
        int room = width / *stride, take = extent;
        if (room > 1 && room < extent)
            take = num_divisor(room, extent) > 1 ? (int)num_divisor(room, extent) : extent;
        take = up_to_end(ends, *stride, take);
        if (mesh->n == MAX_ATOMS)
            return false;
        mesh->atom[mesh->n++] = (Atom){take, role, cluster_level(cluster, *stride, take)};
        *stride *= take;
        extent /= take;
    }
    return true;
}

void degrees_of_experts(int ep, int etp, Degrees *ret)
{
    int apart = etp > 0 && etp < ret->tp ? ret->tp / etp : 1, rest = ep > 1 ? ep : 1;
    ret->tp_etp = apart > 1 ? etp : 0;
    ret->etp = etp > ret->tp ? etp / ret->tp : 1;
    ret->tp_ep = rest < apart ? rest : apart;
    rest /= ret->tp_ep;
    bool cp = ret->cp > 1 && rest % ret->cp == 0 && ret->dp % rest != 0;
    ret->cp_ep = cp ? ret->cp : 1;
    ret->ep = rest / ret->cp_ep;
}

/* Appends the atoms of tp, from the nearest ranks on: those that share a KV group, where the heads
 * ask for it, and those that cut each expert, share experts or do neither. */
static bool put_tp(Mesh *mesh, const Cluster *cluster, const Degrees *degrees, int group,
                   int *stride)
{
    int cuts = degrees->tp_etp > 0 ? degrees->tp_etp : degrees->tp;
    int shares = degrees->tp_etp > 0 && degrees->tp_ep > 1 ? cuts * degrees->tp_ep : cuts;
    int end[4] = {group, cuts, shares, degrees->tp};
    for (int at = 1; at < degrees->tp;) {
        int next = degrees->tp, first = mesh->n;
        for (int i = 0; i < 4; i++)
            next = end[i] > at && end[i] < next ? end[i] : next;
        if (next % at != 0 || !put_atoms(mesh, cluster, &degrees->ends, ROLE_TP, next / at, stride))
            return false;
        AtomSet atoms = (AtomSet)((1u << mesh->n) - (1u << first));
        if (at >= cuts && at < shares)
            mesh->ep |= atoms;
        else if (at >= shares)
            mesh->edp |= atoms;
        at = next;
    }
    return true;
}

bool mesh_build(Diag *diag, const Cluster *cluster, const Degrees *degrees, Mesh *ret)
{
    Mesh mesh = {0};
    int stride = 1, tp = degrees->tp, etp = degrees->etp > 1 ? degrees->etp : 1;
    /* where the KV heads do not divide by tp, the minor atom shares a KV group and the major one
     * splits the groups */
    int groups = degrees->kv_heads > 0 ? (int)num_divisor(tp, degrees->kv_heads) : tp;
    AtomSet *cp = degrees->cp_ep > 1 ? &mesh.ep : NULL;
    const struct {
        Role role;
        int extent;
        AtomSet *too;
    } part[] = {{ROLE_CP, degrees->cp_heads, cp},
                {ROLE_CP, degrees->cp / degrees->cp_heads, cp},
                {ROLE_DP, etp, &mesh.etp},
                {ROLE_DP, degrees->ep, &mesh.ep},
                {ROLE_DP, degrees->dp / degrees->ep / etp, NULL}};
    bool good = put_tp(&mesh, cluster, degrees, tp / groups, &stride);
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        int first = mesh.n;
        good = good &&
               put_atoms(&mesh, cluster, &degrees->ends, part[i].role, part[i].extent, &stride);
        for (int a = first; a < mesh.n && part[i].too; a++)
            *part[i].too = (AtomSet)(*part[i].too | 1u << a);
    }
    if (!good) {
        diag_error(diag, NO_SPAN, "tp %d x cp %d x dp %d needs more than %d atoms", tp, degrees->cp,
                   degrees->dp, MAX_ATOMS);
        if (degrees->tp_etp > 0 && (tp / groups) % degrees->tp_etp != 0)
            diag_help(diag, "etp and the ranks that share a KV group must divide one another");
        return false;
    }
    *ret = mesh;
    return true;
}

AtomSet mesh_zigzag(const Mesh *mesh, int cp_heads)
{
    AtomSet heads = role_first_atoms(mesh, ROLE_CP, cp_heads);
    return (AtomSet)(role_atoms(mesh, ROLE_CP) & ~heads);
}

AtomSet role_first_atoms(const Mesh *mesh, Role role, int extent)
{
    AtomSet set = 0;
    for (int a = 0; a < mesh->n && mesh_extent(mesh, set) < extent; a++)
        if (mesh->atom[a].role == role)
            set = (AtomSet)(set | 1u << a);
    return set;
}
