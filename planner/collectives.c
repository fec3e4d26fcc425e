/* collectives.c - reads the moves of every body, and prices each as it stands there. */
#include "planner/collectives.h"

#include "planner/report.h"
#include "planner/traffic.h"

/* One move of a body, as a rank of the stage sees it. */
typedef struct Derived {
    const char *part;
    const Inst *inst;
    const Copy *copy; /* that it moves */
    int64_t bytes, ns;
    Algorithm by;
} Derived;
typedef VEC(Derived) DerivedList;

static Pricer pricer_of(const Assessment *it)
{
    const Plan *plan = it->plan;
    return (Pricer){.cluster = plan->cluster,
                    .net = it->net,
                    .mesh = &plan->mesh,
                    .recipe = it->program->recipe,
                    .state_atoms = plan->state_atoms,
                    .job = &plan->job};
}

static DerivedList derived_of(Arena *arena, const Assessment *it, const Body *body)
{
    static const char *const part[BODY_LISTS] = {"forward", "backward", "weights"};
    Pricer pricer = pricer_of(it);
    DerivedList list = {0};
    for (int l = 0; l < BODY_LISTS; l++)
        for (int i = 0; i < body_list(body, l)->n; i++) {
            const Inst *inst = &body_list(body, l)->at[i];
            if (!inst_is_collective(inst))
                continue;
            int64_t bytes = inst_wire_bytes(body, inst);
            vec_push(arena, &list) =
                (Derived){part[l],
                          inst,
                          &body->copies.at[inst->in[0]],
                          bytes,
                          price_inst(&pricer, body, inst),
                          collective_algorithm(it->plan->cluster, body->mesh, inst->move.kind,
                                               &inst->move.atoms, bytes)};
        }
    return list;
}

static int links_of(const Net *net, int class)
{
    int links = 0;
    for (int i = 0; i < net->chain.n; i++)
        links += net->chain.at[i].class == class;
    return links;
}

static const char *by_text(Algorithm by, const char *none)
{
    return by < ALGORITHM_COUNT ? algorithm_text[by] : none;
}

/* Of several that say the same the first one stands for all: blocks that pass by do so turn by
 * turn.
 */
static int same_before(const DerivedList *list, int at)
{
    const Derived *one = &list->at[at];
    for (int i = 0; i < at; i++) {
        const Derived *other = &list->at[i];
        if (other->part == one->part && other->inst->move.kind == one->inst->move.kind &&
            other->bytes == one->bytes && str_eq(other->inst->why, one->inst->why))
            return i;
    }
    return at;
}

static void put_layers(Str *str, Arena *arena, const Assessment *it, int class,
                       const DerivedList *list, const Style *style)
{
    static const char *const heads[] = {"part", "n",  "collective", "sent each",
                                        "time", "by", "why"};
    const char *name = it->net->classes.at[class]->name, *part = NULL;
    int64_t bytes = 0, ns = 0;
    int *times = ARENA_ARRAY(arena, int, list->n);
    for (int i = 0; i < list->n; i++) {
        bytes += list->at[i].bytes;
        ns += list->at[i].ns;
        times[same_before(list, i)]++;
    }
    int links = links_of(it->net, class);
    str_putf(str, "%s%s%s", style->bold, name, style->off);
    str_putf(str, "%s  %d collective%s, %s, %s alone\n",
             links > 1 ? arena_printf(arena, " (each of %d)", links) : "", list->n,
             list->n == 1 ? "" : "s", str_gib(arena, bytes), text_time(arena, ns));
    Table table = table_new(arena, "lrlrrll", heads);
    for (int i = 0; i < list->n; i++) {
        const Derived *one = &list->at[i];
        if (!times[i])
            continue;
        const char *cells[] = {one->part == part ? "" : one->part,
                               arena_printf(arena, "%d", times[i]),
                               move_text[one->inst->move.kind],
                               str_gib(arena, one->bytes),
                               text_time(arena, one->ns),
                               by_text(one->by, "-"),
                               one->inst->why};
        table_row(&table, NULL, cells);
        part = one->part;
    }
    table_put(str, &table, 2, style);
    str_putc(str, '\n');
}

static void put_step(Str *str, Arena *arena, const Assessment *it, const Style *style)
{
    static const char *const heads[] = {"role", "collective", "of",   "over",
                                        "by",   "count",      "sent", "time"};
    HotRow *row;
    int n = hot_rows(arena, it->times, &row), shown = 0;
    Table table = table_new(arena, "lllllrrr", heads);
    for (int i = 0; i < n; i++) {
        const Traffic *traffic = row[i].traffic;
        int s = row[i].stage;
        if (traffic->stream == STREAM_BLOCK)
            continue;
        shown++;
        const char *cells[] = {traffic_role(arena, it, traffic),
                               traffic_kind(traffic),
                               traffic_what(arena, traffic),
                               traffic->memory ? memory_text[traffic->memory]
                                               : it->plan->cluster->level[traffic->level].name,
                               by_text(traffic_algorithm(it->plan, traffic, s), "-"),
                               str_commas(arena, traffic->count[s]),
                               str_gib(arena, traffic->bytes[s]),
                               text_time(arena, traffic->ns[s])};
        table_row(&table, NULL, cells);
    }
    if (!shown)
        return;
    str_putf(str, "%sstep%s  what a device of the stage where it takes longest moves besides\n",
             style->bold, style->off);
    table_put(str, &table, 2, style);
}

void collectives_put(Str *str, Arena *arena, const Assessment *it, const Style *style)
{
    bool any = false;
    for (int c = 0; c < it->net->classes.n; c++) {
        DerivedList list = derived_of(arena, it, it->program->body[c]);
        if (list.n)
            put_layers(str, arena, it, c, &list, style);
        any |= list.n > 0;
    }
    if (!any)
        str_put(str, "No collective inside of layers.\n\n");
    put_step(str, arena, it, style);
}

static json_t *derived_json(Arena *arena, const Body *body, const Derived *one)
{
    AtomSet atoms = list_set(&one->inst->move.atoms);
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:s}", "part", one->part, "collective",
                  move_text[one->inst->move.kind], "of", one->copy->name, "over",
                  text_roles(arena, body->mesh, atoms), "ranks", mesh_extent(body->mesh, atoms),
                  "why", one->inst->why ? one->inst->why : "");
    json_object_set_new(object, "sent_bytes", json_integer((json_int_t)one->bytes));
    json_object_set_new(object, "ns", json_integer((json_int_t)one->ns));
    json_object_set_new(object, "algorithm",
                        one->by < ALGORITHM_COUNT ? json_string(algorithm_text[one->by])
                                                  : json_null());
    return object;
}

/* How many of a kind, and what they send together. */
static json_t *kinds_json(const DerivedList *list)
{
    json_t *kinds = json_array();
    for (int kind = 0; kind <= MOVE_PERMUTE; kind++) {
        int count = 0;
        int64_t bytes = 0, ns = 0;
        for (int i = 0; i < list->n; i++)
            if ((int)list->at[i].inst->move.kind == kind) {
                count++;
                bytes += list->at[i].bytes;
                ns += list->at[i].ns;
            }
        if (count)
            json_array_append_new(kinds, json_pack("{s:s, s:i, s:I, s:I}", "collective",
                                                   move_text[kind], "count", count, "sent_bytes",
                                                   (json_int_t)bytes, "ns", (json_int_t)ns));
    }
    return kinds;
}

json_t *collectives_json(Arena *arena, const Assessment *it)
{
    json_t *layers = json_array(), *object = json_object();
    for (int c = 0; c < it->net->classes.n; c++) {
        const Body *body = it->program->body[c];
        DerivedList list = derived_of(arena, it, body);
        json_t *own = json_array();
        for (int i = 0; i < list.n; i++)
            json_array_append_new(own, derived_json(arena, body, &list.at[i]));
        json_array_append_new(layers,
                              json_pack("{s:s, s:i, s:o, s:o}", "class",
                                        it->net->classes.at[c]->name, "links", links_of(it->net, c),
                                        "kinds", kinds_json(&list), "collectives", own));
    }
    json_object_set_new(object, "layers", layers);
    json_object_set_new(object, "step", traffic_json(arena, it));
    return object;
}
