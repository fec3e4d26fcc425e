/* plan_text.c - plan.json, lplan-plan/1: the whole choice as text, with the model and the cluster
 * it was made for.
 *
 *   {"format": "lplan-plan/1", "model": {...}, "cluster": {...}, "job": {...}, "ranks": 8,
 * "stages": 2, "mesh": [{"extent": 2, "role": "tp", "level": 0}, ...], "micro_batch": 1,
 * "micro_batches": 4, "pad_vocabulary": 2, "schedule": "1f1b", "first_link": [0, 5, 10],
 * "state_atoms": ["a1"], "bucket_bytes": 26214400, "classes": [{"name": "layer", "in": "{b:a1}",
 * "out": "{b:a1}", "nodes": {"q": ["g", "b"], "add1": ["+01", "b"], ...},   one word an atom: a
 * letter, R, or + a linear set "homes": {"model.layers.{i}.mlp.up_proj.weight": "{f:a0}", ...},
 *                 "saved": {"n1": "{b:a1}", "s": "none", ...}}]}
 *
 * "gradient_atoms" and "weight_atoms" stand beside "state_atoms" where accumulators and weights are
 * cut, too (plan.h: Homes), "state_memory" and the like where what is kept lives in dram or nvme
 * (plan_memory.c), and all of them in the "cut" of a class that has others; "parts" divide kinds of
 * links, and a class whose atoms have other roles says so in its "mesh" (plan_parts.h).
 *
 * | format       | why                |
 * |--------------|--------------------|
 * | lplan-plan/1 | the first          | */
#include "ir/plan.h"

#include <stdlib.h>
#include <string.h>

#include "ir/plan_job.h"
#include "ir/plan_memory.h"
#include "ir/plan_parts.h"
#include "ir/plan_rows.h"

static const char format_name[] = "lplan-plan/1";
enum { RANKS_MAX = 1 << 20 };

/* ---- writing
 * ------------------------------------------------------------------------------------------ */

static json_t *place_json(const Net *net, const Graph *graph, ValueId id, const Placement *place)
{
    Arena *scratch = arena_new("place");
    Str text = str_new(scratch);
    place_put(&text, net, &graph->values.at[id], place);
    json_t *json = json_string(text.at);
    arena_free(scratch);
    return json;
}

static json_t *choice_json(const Node *node, const NodeChoice *choice, int atoms)
{
    json_t *list = json_array();
    for (int a = 0; a < atoms; a++) {
        Choice c = choice->atom[a];
        char word[MAX_IN + 2] = "R";
        if (c >= CHOICE_LINEAR) {
            uint8_t set = node_linear_set(node, c - CHOICE_LINEAR);
            int n = 0;
            word[n++] = '+';
            for (int k = 0; k < node->ins; k++)
                if (set >> k & 1)
                    word[n++] = (char)('0' + k);
            word[n] = '\0';
        } else if (c >= CHOICE_LETTER) {
            word[0] = node->sig.letter[c - CHOICE_LETTER];
            if (choice->travel[a] != 0) {
                word[1] = '~';
                word[2] = node->sig.letter[choice->travel[a] - CHOICE_LETTER];
                word[3] = '\0';
            }
        }
        json_array_append_new(list, json_string(word));
    }
    return list;
}

static json_t *class_json(const Plan *plan, const Net *net, int c)
{
    const Graph *graph = net->classes.at[c];
    const ClassPlan *choice = &plan->class[c];
    json_t *object = json_object(), *nodes = json_object(), *homes = json_object(),
           *saved = json_object();
    json_object_set_new(object, "name", json_string(graph->name));
    if (graph->chain_in != NONE)
        json_object_set_new(object, "in",
                            place_json(net, graph, graph->chain_in, &choice->boundary_in));
    if (graph->chain_out != NONE)
        json_object_set_new(object, "out",
                            place_json(net, graph, graph->chain_out, &choice->boundary_out));
    for (int n = 0; n < graph->nodes.n; n++)
        json_object_set_new(nodes, graph->nodes.at[n].name,
                            choice_json(&graph->nodes.at[n], &choice->choice[n], plan->mesh.n));
    for (int p = 0; p < graph->params.n; p++)
        json_object_set_new(homes, graph->params.at[p].name,
                            place_json(net, graph, graph->params.at[p].value, &choice->home[p]));
    for (int v = 0; v < graph->values.n; v++) {
        const Value *value = &graph->values.at[v];
        if (value->kind == VALUE_NODE && graph->nodes.at[value->made].seg == SEG_FORWARD)
            json_object_set_new(saved, value->name,
                                choice->keep[v] == KEEP_NONE
                                    ? json_string("none")
                                    : place_json(net, graph, v, &choice->saved[v]));
    }
    json_object_set_new(object, "nodes", nodes);
    json_object_set_new(object, "homes", homes);
    json_object_set_new(object, "saved", saved);
    if (choice->cut)
        json_object_set_new(object, "cut", homes_json(plan->memory, choice->cut));
    if (choice->mesh)
        json_object_set_new(object, "mesh", class_mesh_json(choice->mesh));
    return object;
}

static json_t *job_json(const Job *job)
{
    json_t *object = json_pack("{s:I,s:I,s:s,s:f,s:f,s:f,s:f,s:f}", "global_batch",
                               (json_int_t)job->global_batch, "sequence", (json_int_t)job->sequence,
                               "recipe", job->recipe, "beta1", job->beta1, "beta2", job->beta2,
                               "eps", job->eps, "decay", job->decay, "clip", job->clip);
    if (job->muon.steps > 0)
        json_object_set_new(object, "muon", job_muon_json(job));
    return object;
}

json_t *plan_json(const Plan *plan, const Net *net)
{
    json_t *root = json_object(), *mesh = json_array(), *links = json_array(),
           *state = plan_atoms_json(plan->state_atoms);
    json_t *classes = json_array();
    json_object_set_new(root, "format", json_string(format_name));
    json_object_set(root, "model", plan->model->root);
    json_object_set_new(root, "cluster", cluster_json(plan->cluster, plan_farthest(plan)));
    json_object_set_new(root, "job", job_json(&plan->job));
    json_object_set_new(root, "ranks", json_integer(plan->ranks));
    json_object_set_new(root, "stages", json_integer(plan->stages));
    for (int a = 0; a < plan->mesh.n; a++) {
        const Atom *atom = &plan->mesh.atom[a];
        json_t *each = json_pack("{s:i,s:s,s:i}", "extent", atom->extent, "role",
                                 role_text[atom->role], "level", atom->level);
        mesh_put_roles(each, &plan->mesh, a);
        json_array_append_new(mesh, each);
    }
    json_object_set_new(root, "mesh", mesh);
    json_object_set_new(root, "micro_batch", json_integer(plan->micro_batch));
    json_object_set_new(root, "micro_batches", json_integer(plan->micro_batches));
    json_object_set_new(root, "pad_vocabulary", json_integer(plan->pad_vocabulary));
    plan_put_room(root, plan);
    json_object_set_new(root, "schedule", json_string(schedule_text[plan->schedule]));
    if (plan->chunks > plan->stages)
        json_object_set_new(root, "chunks", json_integer(plan->chunks));
    if (plan->schedule == SCHEDULE_TABLE)
        json_object_set_new(root, "table", plan_table_json(plan->table));
    for (int c = 0; c <= plan->chunks; c++)
        json_array_append_new(links, json_integer(plan->first_link[c]));
    json_object_set_new(root, "first_link", links);
    json_object_set_new(root, "state_atoms", state);
    if (plan->gradient_atoms)
        json_object_set_new(root, "gradient_atoms", plan_atoms_json(plan->gradient_atoms));
    if (plan->weight_atoms)
        json_object_set_new(root, "weight_atoms", plan_atoms_json(plan->weight_atoms));
    if (plan->zigzag)
        json_object_set_new(root, "zigzag", plan_atoms_json(plan->zigzag));
    plan_memories_put(root, plan);
    json_object_set_new(root, "bucket_bytes", json_integer(plan->bucket_bytes));
    plan_put_rows(root, plan);
    if (plan->part)
        json_object_set_new(root, "parts", plan_parts_json(plan, net));
    for (int c = 0; c < net->classes.n; c++)
        json_array_append_new(classes, class_json(plan, net, c));
    json_object_set_new(root, "classes", classes);
    return root;
}

char *plan_text(Arena *arena, const Plan *plan, const Net *net)
{
    json_t *root = plan_json(plan, net);
    char *text = json_text(arena, root);
    json_decref(root);
    return text;
}

/* ---- reading
 * ------------------------------------------------------------------------------------------ */

static bool read_place(Json object, const char *key, const Net *net, const Graph *graph, ValueId id,
                       Placement *ret)
{
    const char *text;
    Json at = json_get(object, key);
    if (!json_str(at, &text))
        return false;
    if (place_parse(net, &graph->values.at[id], text, ret))
        return true;
    const Value *value = &graph->values.at[id];
    json_fail(at, "\"%s\" is not a placement of %s", text, value->name);
    if (value->axes > 0)
        diag_help(at.doc->diag, "placements are written {}, {%s:a0} or {%s:a1.a0 sum(a2)}",
                  net->dims.at[value->dim[0]].name, net->dims.at[value->dim[0]].name);
    else
        diag_help(at.doc->diag, "a single number is {} or {sum(a0)}");
    return false;
}

/* "+01": operands 0 and 1, which the op is linear in together. */
static bool read_linear_set(const Node *node, const char *digits, Choice *ret)
{
    uint8_t set = 0;
    for (const char *c = digits; *c; c++) {
        if (*c < '0' || *c >= '0' + MAX_IN)
            return false;
        set |= (uint8_t)(1u << (*c - '0'));
    }
    for (int i = 0; i < node_linear_sets(node); i++)
        if (node_linear_set(node, i) == set) {
            *ret = (Choice)(CHOICE_LINEAR + i);
            return true;
        }
    return false;
}

static int letter_named(const Node *node, char name)
{
    for (int l = 0; l < node->sig.letters; l++)
        if (node->sig.letter[l] == name)
            return l;
    return NONE;
}

/* "s", or "s~t": s stays while blocks of t pass by. */
static bool read_word(Json at, const Node *node, const char *word, Choice *ret, Choice *ret_travel)
{
    if (str_eq(word, "R")) {
        *ret = CHOICE_REPLICATE;
        return true;
    }
    if (word[0] == '+' && read_linear_set(node, word + 1, ret))
        return true;
    int stay = letter_named(node, word[0]), travel = NONE;
    if (strlen(word) == 3 && word[1] == '~')
        travel = letter_named(node, word[2]);
    if (stay != NONE && (strlen(word) == 1 || letter_travels(node, travel))) {
        *ret = (Choice)(CHOICE_LETTER + stay);
        *ret_travel = travel != NONE ? (Choice)(CHOICE_LETTER + travel) : 0;
        return true;
    }
    json_fail(at, "\"%s\" is no choice of %s", word, node->name);
    Str known = str_new(at.doc->arena);
    str_put(&known, "R");
    for (int l = 0; l < node->sig.letters; l++)
        str_putf(&known, " %c", node->sig.letter[l]);
    for (int l = 0; l < node->sig.letters; l++)
        if (letter_travels(node, l))
            str_putf(&known, " s~%c", node->sig.letter[l]);
    for (int i = 0; i < node_linear_sets(node); i++) {
        str_put(&known, " +");
        for (int k = 0; k < MAX_IN; k++)
            if (node_linear_set(node, i) >> k & 1)
                str_putf(&known, "%d", k);
    }
    diag_help(at.doc->diag, "choices are %s", known.at);
    return false;
}

static bool read_choice(Json nodes, const Node *node, int atoms, NodeChoice *ret)
{
    Json list = json_get(nodes, node->name);
    if (!json_want_array(list))
        return false;
    if (json_len(list) != atoms) {
        json_fail(list, "%s has %d choices for %d atoms", node->name, json_len(list), atoms);
        diag_help(list.doc->diag, "one word for each atom of \"mesh\", in its order");
        return false;
    }
    for (int a = 0; a < atoms; a++) {
        const char *word;
        if (!json_str(json_at(list, a), &word) ||
            !read_word(json_at(list, a), node, word, &ret->atom[a], &ret->travel[a]))
            return false;
    }
    return true;
}

/* Every key is a node, a parameter or a forward value of the class. */
static bool only_names(Json object, Arena *arena, const Graph *graph, char kind)
{
    int most = kind == 'n' ? graph->nodes.n : kind == 'p' ? graph->params.n : graph->values.n;
    const char **name = ARENA_ARRAY(arena, const char *, most + 1);
    for (int i = 0; i < most; i++)
        name[i] = kind == 'n'   ? graph->nodes.at[i].name
                  : kind == 'p' ? graph->params.at[i].name
                                : graph->values.at[i].name;
    return json_only_keys(object, name, most);
}

static bool read_saved(Json object, const Net *net, const Graph *graph, ClassPlan *choice)
{
    Json saved = json_get(object, "saved");
    if (!json_want_object(saved) || !only_names(saved, object.doc->arena, graph, 'v'))
        return false;
    for (int v = 0; v < graph->values.n; v++) {
        const Value *value = &graph->values.at[v];
        const char *text;
        if (value->kind != VALUE_NODE || graph->nodes.at[value->made].seg != SEG_FORWARD)
            continue;
        if (!json_str(json_get(saved, value->name), &text))
            return false;
        choice->keep[v] = str_eq(text, "none") ? KEEP_NONE : KEEP_SAVED;
        if (choice->keep[v] == KEEP_SAVED &&
            !read_place(saved, value->name, net, graph, v, &choice->saved[v]))
            return false;
    }
    return true;
}

static bool read_atoms(Json list, const Plan *plan, AtomSet *ret)
{
    if (!json_want_array(list))
        return false;
    if (plan->mesh.n == 0 && json_len(list) > 0) {
        json_fail(list, "state over atoms of a mesh that has none");
        diag_help(list.doc->diag, "stages of one rank share nothing: []");
        return false;
    }
    *ret = 0;
    for (int i = 0; i < json_len(list); i++) {
        int64_t a;
        if (!json_int(json_at(list, i), 0, plan->mesh.n - 1, &a))
            return false;
        if (*ret >> a & 1) {
            json_fail(json_at(list, i), "atom %lld twice", (long long)a);
            diag_help(list.doc->diag, "name each atom once");
            return false;
        }
        *ret |= (AtomSet)(1u << a);
    }
    return true;
}

/* "state_atoms", and the two that may be left out. */
static bool read_homes(Json object, const Plan *plan, Homes *ret)
{
    Json gradient = json_get(object, "gradient_atoms"), weight = json_get(object, "weight_atoms");
    return read_atoms(json_get(object, "state_atoms"), plan, &ret->state) &&
           (!gradient.value || read_atoms(gradient, plan, &ret->gradient)) &&
           (!weight.value || read_atoms(weight, plan, &ret->weight));
}

/* A class whose parameters are cut otherwise than the plan says for all. */
static bool read_cut(Json object, const Plan *plan, ClassPlan *ret)
{
    const char *keys[3 + KEPT_COUNT] = {"state_atoms", "gradient_atoms", "weight_atoms"};
    for (int k = 0; k < KEPT_COUNT; k++)
        keys[3 + k] = kept_key[k];
    if (!object.value)
        return true;
    Homes *homes = ARENA_NEW(plan->arena, Homes);
    ret->cut = homes;
    return json_want_object(object) && json_only_keys(object, keys, 3 + KEPT_COUNT) &&
           read_homes(object, plan, homes) && homes_memories_read(object, plan->memory, homes);
}

static bool read_class(Json object, const Plan *plan, const Net *net, const Graph *graph,
                       ClassPlan *choice)
{
    const char *name;
    static const char *const keys[] = {"name",  "in",    "out", "nodes",
                                       "homes", "saved", "cut", "mesh"};
    if (!json_want_object(object) || !json_only_keys(object, keys, 8) ||
        !json_str(json_get(object, "name"), &name))
        return false;
    if (!str_eq(name, graph->name)) {
        json_fail(json_get(object, "name"), "class \"%s\", where the model has %s", name,
                  graph->name);
        diag_help(object.doc->diag, "classes stand in the order in which the chain first meets "
                                    "them; was the embedded model edited?");
        return false;
    }
    class_plan_alloc(plan->arena, graph, choice);
    if (graph->chain_in != NONE &&
        !read_place(object, "in", net, graph, graph->chain_in, &choice->boundary_in))
        return false;
    if (graph->chain_out != NONE &&
        !read_place(object, "out", net, graph, graph->chain_out, &choice->boundary_out))
        return false;
    Json nodes = json_get(object, "nodes"), homes = json_get(object, "homes");
    if (!json_want_object(nodes) || !only_names(nodes, plan->arena, graph, 'n') ||
        !json_want_object(homes) || !only_names(homes, plan->arena, graph, 'p'))
        return false;
    for (int n = 0; n < graph->nodes.n; n++)
        if (!read_choice(nodes, &graph->nodes.at[n], plan->mesh.n, &choice->choice[n]))
            return false;
    for (int p = 0; p < graph->params.n; p++)
        if (!read_place(homes, graph->params.at[p].name, net, graph, graph->params.at[p].value,
                        &choice->home[p]))
            return false;
    return read_cut(json_get(object, "cut"), plan, choice) &&
           class_read_mesh(json_get(object, "mesh"), plan, choice) &&
           read_saved(object, net, graph, choice);
}

static bool read_job(Json object, Job *ret)
{
    static const char *const keys[] = {"global_batch", "sequence", "recipe", "beta1", "beta2",
                                       "eps",          "decay",    "clip",   "muon"};
    *ret = job_default();
    if (!json_want_object(object) || !json_only_keys(object, keys, 9))
        return false;
    bool good =
        json_int(json_get(object, "global_batch"), 1, INT64_C(1) << 40, &ret->global_batch) &&
        json_int(json_get(object, "sequence"), 1, INT64_C(1) << 30, &ret->sequence) &&
        json_str(json_get(object, "recipe"), &ret->recipe) &&
        json_opt_num(object, "beta1", 0, 1, &ret->beta1) &&
        json_opt_num(object, "beta2", 0, 1, &ret->beta2) &&
        json_opt_num(object, "eps", 0, 1, &ret->eps) &&
        json_opt_num(object, "decay", 0, 1, &ret->decay) &&
        json_opt_num(object, "clip", 0, 1e30, &ret->clip);
    if (good && json_get(object, "muon").value)
        good = job_read_muon(json_get(object, "muon"), ret);
    if (!good || recipe_by_name(ret->recipe))
        return good;
    json_fail(json_get(object, "recipe"), "unknown recipe \"%s\"", ret->recipe);
    diag_help(object.doc->diag, "recipes are fp32, bf16, fp16 and fp64");
    return false;
}

static bool read_mesh(Json root, Plan *plan)
{
    static const char *const keys[] = {"extent", "role", "level", "experts"};
    Json mesh = json_get(root, "mesh");
    int64_t ranks = 1;
    if (!json_want_array(mesh))
        return false;
    if (json_len(mesh) > MAX_ATOMS) {
        json_fail(mesh, "%d atoms, at most %d are possible", json_len(mesh), MAX_ATOMS);
        diag_help(mesh.doc->diag, "join neighbours of one role and level");
        return false;
    }
    plan->mesh.n = json_len(mesh);
    for (int a = 0; a < plan->mesh.n; a++) {
        Json atom = json_at(mesh, a);
        int64_t extent, level;
        if (!json_want_object(atom) || !json_only_keys(atom, keys, 4) ||
            !json_int(json_get(atom, "extent"), 2, RANKS_MAX, &extent) ||
            !json_int(json_get(atom, "level"), 0, MAX_LEVELS - 1, &level) ||
            !mesh_read_roles(atom, &plan->mesh, a))
            return false;
        plan->mesh.atom[a].extent = (int)extent;
        plan->mesh.atom[a].level = (int)level;
        ranks *= extent;
        if (ranks > RANKS_MAX) {
            json_fail(atom, "the extents so far multiply to more than %d ranks", RANKS_MAX);
            diag_help(mesh.doc->diag, "the mesh is that of one stage");
            return false;
        }
    }
    Homes homes = {0};
    bool good = read_homes(root, plan, &homes);
    plan->state_atoms = homes.state;
    plan->gradient_atoms = homes.gradient;
    plan->weight_atoms = homes.weight;
    return good &&
           (!json_has(root, "zigzag") || read_atoms(json_get(root, "zigzag"), plan, &plan->zigzag));
}

static bool read_numbers(Json root, Plan *plan)
{
    int64_t ranks, stages, micros;
    int schedule;
    if (!json_int(json_get(root, "ranks"), 1, RANKS_MAX, &ranks) ||
        !json_int(json_get(root, "stages"), 1, 1024, &stages) ||
        !json_int(json_get(root, "micro_batch"), 1, 1 << 30, &plan->micro_batch) ||
        !json_int(json_get(root, "micro_batches"), 1, 1 << 20, &micros) ||
        !json_int(json_get(root, "pad_vocabulary"), 1, 1 << 20, &plan->pad_vocabulary) ||
        !json_int(json_get(root, "bucket_bytes"), 1, INT64_C(1) << 50, &plan->bucket_bytes) ||
        !json_word(json_get(root, "schedule"), schedule_text, SCHEDULE_COUNT, &schedule) ||
        !plan_read_room(root, plan) || !plan_memories_read(root, plan))
        return false;
    plan->ranks = (int)ranks;
    plan->stages = (int)stages;
    plan->micro_batches = (int)micros;
    plan->schedule = (ScheduleKind)schedule;
    if (!json_opt_bool(root, "braid", &plan->braid) || !plan_read_chunks(root, plan))
        return false;
    Json links = json_get(root, "first_link");
    if (!json_want_array(links))
        return false;
    if (json_len(links) != plan->chunks + 1) {
        json_fail(links, "%d numbers for %d %s", json_len(links), plan->chunks,
                  plan->chunks > plan->stages ? "chunks" : "stages");
        diag_help(links.doc->diag, "one more than there are %s: each begins at its number",
                  plan->chunks > plan->stages ? "chunks" : "stages");
        return false;
    }
    plan->first_link = ARENA_ARRAY(plan->arena, int, plan->chunks + 1);
    for (int i = 0; i <= plan->chunks; i++) {
        int64_t link;
        if (!json_int(json_at(links, i), 0, 1 << 20, &link))
            return false;
        plan->first_link[i] = (int)link;
    }
    return true;
}

/* Before anything else is read: another kind of file is one error, not many. */
static bool is_plan(Json root)
{
    static const char make_one[] = "make a plan first: lplan plan MODEL CLUSTER -o plan.json";
    const char *format;
    if (!json_want_object(root))
        return false;
    if (!json_has(root, "format") && json_has(root, "model_type")) {
        json_fail(json_get(root, "model_type"), "this is a Hugging Face config, not a plan");
        diag_help(root.doc->diag, make_one);
        return false;
    }
    if (!json_str(json_get(root, "format"), &format))
        return false;
    if (str_eq(format, format_name))
        return true;
    bool model = str_eq(format, "lplan-model/1"), cluster = str_eq(format, "lplan-cluster/1");
    if (model || cluster)
        json_fail(json_get(root, "format"), "this is a %s file, not a plan",
                  model ? "model" : "cluster");
    else
        json_fail(json_get(root, "format"), "format \"%s\", this lplan reads %s", format,
                  format_name);
    diag_help(root.doc->diag, "%s",
              model || cluster ? make_one : "make the plan again with lplan plan");
    return false;
}

static bool read_plan(Arena *arena, Diag *diag, Json root, Plan *plan, Net **ret_net)
{
    static const char *const keys[] = {"format",         "model",
                                       "cluster",        "job",
                                       "ranks",          "stages",
                                       "mesh",           "micro_batch",
                                       "micro_batches",  "pad_vocabulary",
                                       "schedule",       "first_link",
                                       "state_atoms",    "bucket_bytes",
                                       "classes",        "predicted",
                                       "pins",           "rows",
                                       "gradient_atoms", "weight_atoms",
                                       "chunks",         "table",
                                       "room_percent",   "zigzag",
                                       "rounds",         "state_memory",
                                       "parts",          "saved_memory",
                                       "weight_memory",  "gradient_memory",
                                       "braid",          "exchange"};
    if (!is_plan(root) || !json_only_keys(root, keys, (int)(sizeof keys / sizeof keys[0])))
        return false;
    plan->cluster = cluster_read(arena, diag, json_get(root, "cluster"));
    if (!plan->cluster || !read_job(json_get(root, "job"), &plan->job) || !read_mesh(root, plan) ||
        !read_numbers(root, plan) || !plan_read_rows(json_get(root, "rows"), plan))
        return false;
    Reading reading = plan_reading(plan, plan_text_is_routed(root));
    Net *net = model_read_as(arena, diag, json_get(root, "model"), &reading);
    if (!net)
        return false;
    if (!plan_read_parts(json_get(root, "parts"), plan, net))
        return false;
    plan_tell(plan, net);
    Json classes = json_get(root, "classes");
    if (!json_want_array(classes))
        return false;
    if (json_len(classes) != net->classes.n) {
        json_fail(classes, "%d classes, the model has %d", json_len(classes), net->classes.n);
        diag_help(diag, "one for every kind of link; was the embedded model edited?");
        return false;
    }
    plan->class = ARENA_ARRAY(arena, ClassPlan, net->classes.n);
    for (int c = 0; c < net->classes.n; c++)
        if (!read_class(json_at(classes, c), plan, net, net->classes.at[c], &plan->class[c]))
            return false;
    plan_share_rows(plan, net);
    *ret_net = net;
    return plan_verify_file(plan, net, diag, root);
}

Plan *plan_load(Arena *arena, Diag *diag, const char *path, Net **ret_net)
{
    JsonDoc *doc = json_load(arena, diag, path);
    if (!doc)
        return NULL;
    Plan *plan = ARENA_NEW(arena, Plan);
    plan->arena = arena;
    plan->model = ARENA_NEW(arena, JsonDoc);
    *plan->model = *doc;
    plan->model->root = json_get(json_root(doc), "model").value;
    plan->predicted = json_get(json_root(doc), "predicted").value;
    return read_plan(arena, diag, json_root(doc), plan, ret_net) ? plan : NULL;
}

void class_plan_alloc(Arena *arena, const Graph *graph, ClassPlan *ret)
{
    *ret = (ClassPlan){.boundary_in = place_replicate(), .boundary_out = place_replicate()};
    ret->choice = ARENA_ARRAY(arena, NodeChoice, graph->nodes.n + 1);
    ret->home = ARENA_ARRAY(arena, Placement, graph->params.n + 1);
    ret->keep = ARENA_ARRAY(arena, Keep, graph->values.n + 1);
    ret->saved = ARENA_ARRAY(arena, Placement, graph->values.n + 1);
}
