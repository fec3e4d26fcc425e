/* report_memory.c - questions 1 and 2: what must be resident, and what is sharded over which ranks.
 */
#include <string.h>

#include "ir/plan_memory.h"
#include "ir/plan_parts.h"
#include "planner/outside.h"
#include "planner/report.h"

/* Figure by figure, and whether what is kept free is enough for them. */
static void put_outside(Str *str, const Report *report)
{
    const Assessment *it = report->it;
    Arena *arena = report->arena;
    Outside outside = outside_of(arena, it);
    int64_t margin = it->plan->cluster->device.margin_bytes;
    bool enough = outside.bytes <= margin;
    str_putf(str, "  outside the arena: %s of the %s kept free%s%s%s\n",
             str_gib(arena, outside.bytes), str_gib(arena, margin), enough ? "" : report->style.bad,
             enough ? "" : ", which is too little", enough ? "" : report->style.off);
    for (int i = 0; i < OUTSIDE_LINES; i++) {
        const OutsideLine *line = &outside.line[i];
        const char *bytes = line->bytes ? str_gib(arena, line->bytes) : "-";
        str_putf(str, "    %-14s%9s  %s", line->name, bytes, line->formula);
        if (line->bytes == 0) /* nobody measured what is not there */
            str_put(str, "\n");
        else
            str_putf(str, " [%s]\n", tag_text[line->tag]);
    }
}

/* What lives behind the devices' memory: homes in the farthest, slots of what passes through in the
 * others. */
static void put_far(Str *str, const Report *report)
{
    const Assessment *it = report->it;
    Arena *arena = report->arena;
    for (int m = MEMORY_DRAM; m <= (int)plan_farthest(it->plan); m++) {
        int64_t most = 0, room = it->plan->cluster->store[m].bytes;
        for (int s = 0; s < it->plan->stages; s++)
            most = it->program->stage[s].far_bytes[m] > most ? it->program->stage[s].far_bytes[m]
                                                             : most;
        bool fits = most <= room;
        const char *line = arena_printf(
            arena, "%s: %s of a device's share of %s, %s%s%s%s", memory_text[m],
            str_gib(arena, most), str_gib(arena, room),
            plan_memory_words(arena, it->plan, it->net, (Memory)m), fits ? "" : report->style.bad,
            fits ? "" : ", which is too much", fits ? "" : report->style.off);
        Str lines = str_new(arena);
        text_wrap(&lines, line, 2, 98);
        str_put(str, lines.at);
    }
    if (it->plan->memory[KEPT_STATE] != MEMORY_HBM)
        str_putf(str,
                 "  optimizer, on the device: %sslots for state on its way to the update and "
                 "back\n",
                 plan_classes_in(it->plan, it->net, KEPT_STATE, MEMORY_HBM) > 0
                     ? "that of some layers, "
                     : "");
}

void report_resident(Str *str, const Report *report)
{
    const Assessment *it = report->it;
    Arena *arena = report->arena;
    bool large = it->peak_bytes >= INT64_C(1) << 30;
    int64_t unit = INT64_C(1) << (large ? 30 : 20);
    report_question(str, report, "1  What must be resident?",
                    large ? "GiB per device, at the peak of a step"
                          : "MiB per device, at the peak of a step");
    static const char *const heads[] = {"stage",       "layers",    "weights",
                                        "gradients",   "optimizer", "activations",
                                        "temporaries", "total",     "free"};
    Table table = table_new(arena, "llrrrrrrr", heads);
    int stage[8], n = telling_stages(it, stage);
    for (int i = 0; i < n; i++) {
        int s = stage[i];
        int64_t total = it->program->stage[s].arena_bytes;
        const char *cells[9] = {arena_printf(arena, "%d", s), text_layers(arena, it, s)};
        for (int kind = 0; kind < BYTES_COUNT; kind++)
            cells[2 + kind] = text_unit(arena, assessed_bytes(it, s, (BytesKind)kind), unit);
        cells[7] = text_unit(arena, total, unit);
        cells[8] =
            total > it->budget_bytes
                ? arena_printf(arena, "-%s", text_unit(arena, total - it->budget_bytes, unit))
                : text_unit(arena, it->budget_bytes - total, unit);
        table_row(&table, total > it->budget_bytes ? report->style.bad : NULL, cells);
    }
    table_put(str, &table, 2, &report->style);
    if (n < it->plan->stages)
        str_putf(str, "  %sthe other %d stages lie between these%s\n", report->style.dim,
                 it->plan->stages - n, report->style.off);
    put_far(str, report);
    put_outside(str, report);
}

/* ---- sharding ---- */

/* "f over tp 8", in the order of the axes. */
static const char *shards_text(Arena *arena, const Report *report, int class, const Value *value,
                               const Placement *place)
{
    const Mesh *mesh = plan_mesh(report->it->plan, class);
    Str text = str_new(arena);
    for (int a = 0; a < value->axes; a++) {
        AtomSet set = list_set(&place->shard[a]);
        if (!set)
            continue;
        str_putf(&text, "%s%s over %s %d", text.n ? ", " : "",
                 report->it->net->dims.at[value->dim[a]].name, text_roles(arena, mesh, set),
                 mesh_extent(mesh, set));
    }
    return text.n ? text.at : "whole";
}

static size_t stem_length(const char *name)
{
    size_t length = strlen(name);
    return length > 7 && str_eq(name + length - 7, ".weight") ? length - 7 : length;
}

/* Do the words of `name` from `begin` on end another parameter of the block, too? */
static bool ends_another(const Graph *graph, const char *name, size_t begin, size_t end)
{
    size_t tail = end - begin;
    for (int p = 0; p < graph->params.n; p++) {
        const char *other = graph->params.at[p].name;
        size_t length = stem_length(other);
        if (other == name || length < tail ||
            memcmp(other + length - tail, name + begin, tail) != 0)
            continue;
        if (length == tail || other[length - tail - 1] == '.')
            return true;
    }
    return false;
}

/* Is what lies before `begin` the name of another parameter, whose part this one is? */
static bool is_part(const Graph *graph, const char *name, size_t begin)
{
    for (int p = 0; p < graph->params.n && begin > 0; p++) {
        const char *other = graph->params.at[p].name;
        if (other != name && stem_length(other) == begin - 1 && memcmp(other, name, begin - 1) == 0)
            return true;
    }
    return false;
}

/* "q_proj" of "model.layers.{i}.self_attn.q_proj.weight", "attn.c_proj" where a block has another
 * c_proj: the last words that tell it from its siblings. */
static const char *short_name(Arena *arena, const Graph *graph, const char *name)
{
    size_t end = stem_length(name), begin = end;
    do {
        begin -= begin > 0 && begin < end; /* the dot */
        while (begin > 0 && name[begin - 1] != '.')
            begin--;
    } while (begin > 0 && (name[begin] == '{' || ends_another(graph, name, begin, end) ||
                           is_part(graph, name, begin)));
    const char *text = arena_strndup(arena, name + begin, end - begin),
               *each = strstr(text, "{e}.");
    if (!each)
        return text;
    return arena_printf(arena, "%.*s%s", (int)(each - text), text, each + strlen("{e}."));
}

typedef struct ShardRow {
    const char *shards;
    const Body *body;
    int class;
    Str names;
    int64_t elements; /* of a rank, all instances */
    AtomSet replicated;
} ShardRow;

typedef VEC(ShardRow) ShardRows;

static void add_param(const Report *report, ShardRows *rows, int class, int param, int links)
{
    Arena *arena = report->arena;
    const Body *body = report->it->program->body[class];
    const Mesh *mesh = &report->it->plan->mesh;
    const Param *info = &body->graph->params.at[param];
    const Value *value = &body->graph->values.at[info->value];
    const Placement *home = &body->plan->home[param];
    const char *shards = shards_text(arena, report, class, value, home);
    ShardRow *row = NULL;
    for (int i = 0; i < rows->n; i++)
        if (rows->at[i].body == body && str_eq(rows->at[i].shards, shards))
            row = &rows->at[i];
    if (!row) {
        row = &vec_push(arena, rows);
        *row = (ShardRow){.shards = shards, .body = body, .class = class, .names = str_new(arena)};
    }
    str_putf(&row->names, "%s%s", row->names.n ? " " : "",
             short_name(arena, body->graph, info->name));
    row->elements += place_elements(mesh, report->it->net, value, home) * links;
    row->replicated = (AtomSet)(((1u << mesh->n) - 1) & ~place_sharded(home));
}

static const char *cut_names(Arena *arena, const char *names)
{
    enum { MOST = 44 };
    return strlen(names) <= MOST ? names : arena_printf(arena, "%.*s…", MOST - 1, names);
}

static const char *over_text(Arena *arena, const Mesh *mesh, AtomSet atoms)
{
    return arena_printf(arena, "%s %d", text_roles(arena, mesh, atoms), mesh_extent(mesh, atoms));
}

/* Over which ranks what belongs to a row is cut further; each set holds the next. */
static const char *cut_text(Arena *arena, const Plan *plan, int class, AtomSet replicated)
{
    const Homes homes = plan_homes(plan, class);
    const Mesh *mesh = plan_mesh(plan, class);
    AtomSet state = (AtomSet)(homes.state & replicated),
            gradient = (AtomSet)(homes.gradient & replicated),
            weight = (AtomSet)(homes.weight & replicated);
    if (!state)
        return "as the parameter";
    const char *over = over_text(arena, mesh, state);
    if (weight == state)
        return arena_printf(arena, "all over %s", over);
    if (!gradient)
        return arena_printf(arena, "state over %s", over);
    if (gradient != state)
        return arena_printf(arena, "state over %s, gradients %s", over,
                            over_text(arena, mesh, gradient));
    if (!weight)
        return arena_printf(arena, "state, gradients over %s", over);
    return arena_printf(arena, "weights over %s, the rest %s", over_text(arena, mesh, weight),
                        over);
}

/* And where what is kept of it lives, of what some classes keep on the device and others do not. */
static const char *apart_text(Arena *arena, const Assessment *it, int class, const char *cut)
{
    const Homes homes = plan_homes(it->plan, class);
    for (int k = KEPT_WEIGHTS; k < KEPT_COUNT; k++)
        if (plan_keeps_some(it->plan, it->net, (Kept)k))
            cut = arena_printf(arena, "%s, %s in %s", cut, kept_text[k],
                               memory_text[home_memory(it->plan->memory, &homes, (Kept)k)]);
    return cut;
}

static void put_parameters(Str *str, const Report *report)
{
    const Assessment *it = report->it;
    Arena *arena = report->arena;
    ShardRows rows = {0};
    for (int c = 0; c < it->net->classes.n; c++) {
        int links = 0;
        for (int i = 0; i < it->net->chain.n; i++)
            links += it->net->chain.at[i].class == c;
        for (int p = 0; p < it->net->classes.at[c]->params.n; p++)
            add_param(report, &rows, c, p, links);
    }
    bool further = false;
    for (int c = 0; c < it->net->classes.n; c++)
        further = further || plan_homes(it->plan, c).gradient;
    const char *heads[] = {"class", "parameters", "sharded", "copies",
                           further ? "cut further" : "optimizer state"};
    Table table = table_new(arena, "lllrl", heads);
    for (int i = 0; i < rows.n; i++) {
        const ShardRow *row = &rows.at[i];
        const Mesh *mesh = plan_mesh(it->plan, row->class);
        const Homes homes = plan_homes(it->plan, row->class);
        AtomSet state = (AtomSet)(homes.state & row->replicated);
        AtomSet copies = (AtomSet)(row->replicated & ~homes.weight);
        const char *own =
            further ? cut_text(arena, it->plan, row->class, row->replicated)
            : state ? arena_printf(arena, "over %s %d more", text_roles(arena, mesh, state),
                                   mesh_extent(mesh, state))
                    : "as the parameter";
        if (it->plan->memory[KEPT_STATE] != MEMORY_HBM)
            own = arena_printf(arena, "%s, in %s", own,
                               memory_text[home_memory(it->plan->memory, &homes, KEPT_STATE)]);
        own = apart_text(arena, it, row->class, own);
        const char *cells[] = {row->body->graph->name, cut_names(arena, row->names.at), row->shards,
                               arena_printf(arena, "%d", mesh_extent(mesh, copies)), own};
        table_row(&table, NULL, cells);
    }
    table_put(str, &table, 2, &report->style);
}

/* What is whole for a while only. */
static void put_buffers(Str *str, const Report *report)
{
    int64_t weights = 0, gradients = 0, sums = 0;
    for (int s = 0; s < report->it->program->stages; s++) {
        const StageProgram *stage = &report->it->program->stage[s];
        weights = stage->fetched_bytes > weights ? stage->fetched_bytes : weights;
        gradients = stage->buffers_bytes > gradients ? stage->buffers_bytes : gradients;
        sums = stage->sums_bytes[MEMORY_HBM] > sums ? stage->sums_bytes[MEMORY_HBM] : sums;
    }
    if (weights)
        str_putf(str, "  weights are whole from one layer before their use until it: %s at once\n",
                 str_gib(report->arena, weights));
    if (gradients)
        str_putf(str, "  gradients are whole until their bucket is summed: %s at once\n",
                 str_gib(report->arena, gradients));
    if (sums)
        str_putf(str, "  gradients are on the device while layers add to them: %s at once\n",
                 str_gib(report->arena, sums));
}

/* "b over dp 2", or from what to what where a class moves it. */
static const char *boundary_text(const Report *report, int class)
{
    const Assessment *it = report->it;
    const Graph *graph = it->net->classes.at[class];
    const Value *value = &graph->values.at[graph->chain_in];
    const ClassPlan *plan = &it->plan->class[class];
    const char *out = shards_text(report->arena, report, class, value, &plan->boundary_out);
    if (place_equal(&plan->boundary_in, &plan->boundary_out))
        return out;
    int before = class;
    for (int i = 1; i < it->net->chain.n && before == class; i++)
        if (it->net->chain.at[i].class == class)
            before = it->net->chain.at[i - 1].class;
    return arena_printf(report->arena, "%s, moved to %s",
                        shards_text(report->arena, report, before, value, &plan->boundary_in), out);
}

static void put_boundary(Str *str, const Report *report)
{
    const Assessment *it = report->it;
    for (int c = 0; c < it->net->classes.n; c++) {
        const Graph *graph = it->net->classes.at[c];
        if (graph->chain_in == NONE || graph->chain_out == NONE)
            continue;
        const Body *body = it->program->body[c];
        const char *kept =
            str_gib(report->arena, body->saved_bytes[SAVED_I] + body->saved_bytes[SAVED_W] +
                                       (body->saves_in ? body->copies.at[body->in].bytes : 0));
        const Homes homes = plan_homes(it->plan, c);
        Memory memory = home_memory(it->plan->memory, &homes, KEPT_SAVED);
        bool apart = plan_keeps_some(it->plan, it->net, KEPT_SAVED);
        const char *line = arena_printf(
            report->arena, "between layers: %s; kept for backward: %s a micro-batch and %s%s%s",
            boundary_text(report, c), kept, graph->name, apart ? ", in " : "",
            apart ? memory_text[memory] : "");
        Str lines = str_new(report->arena);
        text_wrap(&lines, line, 2, 98);
        str_put(str, lines.at);
    }
}

static void ranks_row(const Report *report, Table *table, const char *role, const int *of,
                      int extent, int level, const char *used)
{
    Arena *arena = report->arena;
    const Plan *plan = report->it->plan;
    Str ranks = str_new(arena);
    for (int i = 0; i < extent && i < 3; i++)
        str_putf(&ranks, "%s%d", i ? "," : "", of[i]);
    if (extent > 3)
        str_putf(&ranks, "%s,%d", extent > 4 ? ",…" : "", of[extent - 1]);
    const char *cells[] = {
        role,     arena_printf(arena, "%d", extent), str_commas(arena, plan->ranks / extent),
        ranks.at, plan->cluster->level[level].name,  used};
    table_row(table, NULL, cells);
}

/* The first group of ranks over some atoms of a stage. */
static void group_row(const Report *report, Table *table, const char *role, AtomSet atoms,
                      const char *used)
{
    const Mesh *mesh = &report->it->plan->mesh;
    int extent = mesh_extent(mesh, atoms), level = 0, n = 0;
    int *of = ARENA_ARRAY(report->arena, int, mesh_ranks(mesh));
    if (extent < 2)
        return;
    for (int r = 0; r < mesh_ranks(mesh); r++) {
        bool first = true;
        for (int a = 0; a < mesh->n; a++)
            first &= (atoms >> a & 1) || mesh_coordinate(mesh, r, a) == 0;
        if (first)
            of[n++] = r;
    }
    for (int a = 0; a < mesh->n; a++)
        level = (atoms >> a & 1) && mesh->atom[a].level > level ? mesh->atom[a].level : level;
    ranks_row(report, table, role, of, extent, level, used);
}

/* Stages, or all ranks. */
static void stages_row(const Report *report, Table *table, const char *role, int extent, int stride,
                       int level, const char *used)
{
    int *of = ARENA_ARRAY(report->arena, int, extent + 1);
    for (int i = 0; i < extent; i++)
        of[i] = i * stride;
    if (extent > 1)
        ranks_row(report, table, role, of, extent, level, used);
}

/* What the letters of the table above stand for, and what a copy is. */
static void put_legend(Str *str, const Report *report)
{
    static const struct {
        char letter;
        const char *name;
    } usual[] = {{'h', "hidden"},
                 {'g', "key-value heads"},
                 {'r', "query heads of each"},
                 {'d', "head width"},
                 {'f', "feed-forward"},
                 {'v', "vocabulary"},
                 {'e', "experts"},
                 {'i', "feed-forward of an expert"},
                 {'j', "feed-forward of shared experts"},
                 {'p', "positions"}};
    const Net *net = report->it->net;
    Str text = str_new(report->arena);
    for (int i = 0; i < net->dims.n; i++) {
        const Dim *dim = &net->dims.at[i];
        const char *name = i == net->batch ? "batch" : i == net->sequence ? "sequence" : NULL;
        for (size_t k = 0; k < sizeof usual / sizeof *usual && !name; k++)
            if (dim->name[0] == usual[k].letter && dim->name[1] == '\0')
                name = usual[k].name;
        if (name)
            str_putf(&text, "%s%s %s", text.n ? ", " : "", dim->name, name);
    }
    str_put(&text, ". A tensor is cut along its letters; copies: how many devices of a stage hold "
                   "the same part.");
    Str lines = str_new(report->arena);
    text_wrap(&lines, text.at, 2, 98);
    str_putf(str, "%s%s%s", report->style.dim, lines.at, report->style.off);
}

/* The groups of layers whose atoms have other roles; the first class that has a mesh says it. */
static void put_own_groups(const Report *report, Table *table)
{
    const Assessment *it = report->it;
    for (int c = 0; c < it->net->classes.n; c++) {
        const Mesh *mesh = it->plan->class[c].mesh;
        bool said = mesh == NULL;
        for (int before = 0; before < c && !said; before++)
            said =
                it->plan->class[before].mesh && mesh_same_roles(it->plan->class[before].mesh, mesh);
        for (int role = ROLE_TP; role <= ROLE_EP && !said; role++)
            group_row(report, table, role_text[role], role_atoms(mesh, (Role)role),
                      arena_printf(report->arena, "the same, where layers are as %s",
                                   it->net->classes.at[c]->name));
    }
}

static void put_groups(Str *str, const Report *report)
{
    const Plan *plan = report->it->plan;
    const Mesh *mesh = &plan->mesh;
    const Cluster *cluster = plan->cluster;
    int ranks = mesh_ranks(mesh), far = 0;
    for (int c = 0; c + 1 < plan->chunks; c++) {
        int own = plan->holder[c] == plan->holder[c + 1]
                      ? 0
                      : stage_level(cluster, ranks, plan->holder[c], plan->holder[c + 1]);
        far = own > far ? own : far;
    }
    const char *flat = plan->weight_atoms     ? "weights and their gradients, every micro-batch"
                       : plan->gradient_atoms ? "weight gradients, every micro-batch"
                                              : "weight gradients, once a step";
    static const char *const heads[] = {"group",         "ranks",        "groups",
                                        "the first one", "slowest link", "carries"};
    Table table = table_new(report->arena, "lrrlll", heads);
    group_row(report, &table, "tp", role_atoms(mesh, ROLE_TP),
              "activations and their gradients, every layer");
    group_row(report, &table, "cp", role_atoms(mesh, ROLE_CP),
              arena_printf(report->arena, "parts of sequences, every layer; %s", flat));
    group_row(report, &table, "dp", role_atoms(mesh, ROLE_DP),
              plan->state_atoms && !plan->gradient_atoms
                  ? "weight gradients and new weights, once a step"
                  : flat);
    group_row(report, &table, "etp", mesh->etp,
              "tokens of parts of experts, and sums of them, every layer of experts");
    group_row(report, &table, "ep", mesh->ep,
              "rows to their experts and back, every layer of experts");
    put_own_groups(report, &table);
    stages_row(report, &table, "pp", plan->stages, ranks, far,
               "activations between stages, every micro-batch");
    stages_row(report, &table, "world", plan->ranks, 1, cluster->levels - 1,
               "loss and gradient norm, once a step");
    if (table.rows.n > 1) {
        str_putc(str, '\n');
        table_put(str, &table, 2, &report->style);
    }
}

void report_sharding(Str *str, const Report *report)
{
    report_question(str, report, "2  What is sharded, and what stays replicated?", "");
    put_parameters(str, report);
    put_buffers(str, report);
    put_boundary(str, report);
    put_legend(str, report);
    put_groups(str, report);
}
