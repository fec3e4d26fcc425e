/* plan_parts.c - layers of one kind with choices of their own: a class in parts, and what the atoms
 * of a stage do in each. */
#include "ir/plan_parts.h"

#include <string.h>

/* ---- parts ---- */

/* The first name of the kind "layer", "layer_2", "layer_3", … that no class of the list has. */
static const char *fresh_name(Arena *arena, Graph *const *class, int classes, const char *stem)
{
    const char *name = stem;
    for (int c = 0, n = 2; c < classes; c++)
        if (str_eq(class[c] -> name, name)) {
            name = arena_printf(arena, "%s_%d", stem, n++);
            c = -1;
        }
    return name;
}

void net_split(Net *net, const int *part)
{
    struct {
        int class, part;
    } key[MAX_PARTS];
    int n = 0;
    Graph **class = ARENA_ARRAY(net->arena, Graph *, MAX_PARTS);
    Link *chain = ARENA_ARRAY(net->arena, Link, net->chain.n);
    NetParam *params = ARENA_ARRAY(net->arena, NetParam, net->params.n + 1);
    for (int i = 0; i < net->chain.n; i++) {
        chain[i] = net->chain.at[i];
        int at = 0;
        while (at < n && (key[at].class != chain[i].class || key[at].part != part[i]))
            at++;
        if (at == n) {
            CHECK(n < MAX_PARTS);
            Graph *own = ARENA_NEW(net->arena, Graph);
            *own = *net->classes.at[chain[i].class];
            own->name = fresh_name(net->arena, class, n, own->name);
            key[n].class = chain[i].class;
            key[n].part = part[i];
            class[n++] = own;
        }
        chain[i].class = at;
    }
    for (int p = 0; p < net->params.n; p++) {
        NetParam *param = &params[p];
        *param = net->params.at[p];
        param->class = chain[param->link[0]].class;
        for (int use = 0; use < param->uses; use++)
            param->use_class[use] = chain[param->link[use]].class;
    }
    net->classes.at = class;
    net->classes.n = n;
    net->classes.cap = MAX_PARTS;
    net->chain.at = chain;
    net->chain.cap = net->chain.n;
    net->params.at = params;
    net->params.cap = net->params.n;
}

void plan_tell(const Plan *plan, Net *net)
{
    net->room_percent = plan->room_percent;
    net->exchange = plan->exchange;
    net->runs = plan->zigzag ? 2 * (int64_t)mesh_extent(&plan->mesh, plan->zigzag) : 0;
    if (plan->part)
        net_split(net, plan->part);
}

/* ---- atoms ---- */

const Mesh *class_mesh(const ClassPlan *class, const Mesh *mesh)
{
    return class->mesh ? class->mesh : mesh;
}

const Mesh *plan_mesh(const Plan *plan, int class)
{
    return class_mesh(&plan->class[class], &plan -> mesh);
}

AtomSet plan_role_atoms(const Plan *plan, const Net *net, Role role)
{
    AtomSet atoms = role_atoms(&plan->mesh, role);
    for (int c = 0; c < net->classes.n; c++)
        atoms |= role_atoms(plan_mesh(plan, c), role);
    return atoms;
}

bool mesh_same_roles(const Mesh *a, const Mesh *b)
{
    bool same = a->ep == b->ep && a->etp == b->etp && a->edp == b->edp;
    for (int i = 0; same && i < a->n; i++)
        same = a->atom[i].role == b->atom[i].role;
    return same;
}

/* The atoms of the batch at the boundary of a class, those of dp there: major ones first. */
static AtomList batch_rows(const Graph *graph, const ClassPlan *class, const Mesh *mesh)
{
    const Placement *tokens = graph->chain_in == NONE ? &class->boundary_out : &class->boundary_in;
    AtomList rows = {0};
    for (int i = 0; i < tokens->shard[0].n; i++) {
        int atom = tokens->shard[0].at[i];
        if (mesh->atom[atom].role != ROLE_DP)
            break;
        rows.at[rows.n++] = (int8_t)atom;
    }
    return rows;
}

AtomList class_rows(const Graph *graph, const ClassPlan *class, const Mesh *mesh)
{
    return class->rows ? *class->rows : batch_rows(graph, class, class_mesh(class, mesh));
}

void plan_share_rows(Plan *plan, const Net *net)
{
    bool differ = false;
    AtomList all = batch_rows(net->classes.at[0], &plan->class[0], plan_mesh(plan, 0));
    for (int c = 0; c < net->classes.n; c++) {
        AtomList own = batch_rows(net->classes.at[c], &plan->class[c], plan_mesh(plan, c));
        int n = 0;
        while (n < own.n && n < all.n && own.at[n] == all.at[n])
            n++;
        differ = differ || n < own.n || n < all.n;
        all.n = (int8_t)n;
    }
    memset(all.at + all.n, 0, sizeof all.at - (size_t)all.n * sizeof *all.at);
    if (!differ)
        return;
    AtomList *rows = ARENA_NEW(plan->arena, AtomList);
    *rows = all;
    for (int c = 0; c < net->classes.n; c++)
        plan->class[c].rows = rows;
}

/* ---- text ---- */

static const char *const expert_text[] = {"ep", "etp", "edp"};

void mesh_put_roles(json_t *object, const Mesh *mesh, int atom)
{
    json_object_set_new(object, "role", json_string(role_text[mesh->atom[atom].role]));
    const AtomSet set[] = {mesh->ep, mesh->etp, mesh->edp};
    for (int e = 0; e < 3; e++)
        if (set[e] >> atom & 1)
            json_object_set_new(object, "experts", json_string(expert_text[e]));
}

bool mesh_read_roles(Json object, Mesh *mesh, int atom)
{
    int role, experts = NONE;
    if (!json_word(json_get(object, "role"), role_text, ROLE_COUNT, &role) ||
        (json_has(object, "experts") &&
         !json_word(json_get(object, "experts"), expert_text, 3, &experts)))
        return false;
    mesh->atom[atom].role = (Role)role;
    AtomSet *set[] = {&mesh->ep, &mesh->etp, &mesh->edp};
    if (experts != NONE)
        *set[experts] = (AtomSet)(*set[experts] | 1u << atom);
    return true;
}

json_t *class_mesh_json(const Mesh *mesh)
{
    json_t *list = json_array();
    for (int a = 0; a < mesh->n; a++) {
        json_t *each = json_object();
        mesh_put_roles(each, mesh, a);
        json_array_append_new(list, each);
    }
    return list;
}

bool class_read_mesh(Json list, const Plan *plan, ClassPlan *ret)
{
    static const char *const keys[] = {"role", "experts"};
    if (!list.value)
        return true;
    if (!json_want_array(list))
        return false;
    if (json_len(list) != plan->mesh.n) {
        json_fail(list, "%d roles for %d atoms", json_len(list), plan->mesh.n);
        diag_help(list.doc->diag, "one for each atom of the plan's \"mesh\", in its order");
        return false;
    }
    Mesh *mesh = ARENA_NEW(plan->arena, Mesh);
    *mesh = plan->mesh;
    mesh->ep = mesh->etp = mesh->edp = 0;
    ret->mesh = mesh;
    for (int a = 0; a < mesh->n; a++)
        if (!json_want_object(json_at(list, a)) || !json_only_keys(json_at(list, a), keys, 2) ||
            !mesh_read_roles(json_at(list, a), mesh, a))
            return false;
    return true;
}

static bool names_experts(Json list)
{
    for (int a = 0; json_is_array(list) && a < json_len(list); a++)
        if (json_object_get(json_at(list, a).value, "experts"))
            return true;
    return false;
}

bool plan_text_is_routed(Json root)
{
    Json classes = json_get(root, "classes");
    bool routed = names_experts(json_get(root, "mesh"));
    for (int c = 0; json_is_array(classes) && c < json_len(classes) && !routed; c++)
        if (json_is_object(json_at(classes, c)))
            routed = names_experts(json_get(json_at(classes, c), "mesh"));
    return routed;
}

bool plan_is_routed(const Plan *plan, const Net *net)
{
    bool routed = mesh_has_experts(&plan->mesh);
    for (int c = 0; c < net->classes.n; c++)
        routed |= mesh_has_experts(plan_mesh(plan, c));
    return routed;
}

Reading plan_reading(const Plan *plan, bool routed)
{
    const Mesh *mesh = &plan->mesh;
    return (Reading){.batch = plan->micro_batch * mesh_extent(mesh, role_atoms(mesh, ROLE_DP)),
                     .sequence = plan->job.sequence,
                     .pad_vocabulary = plan->pad_vocabulary,
                     .routed = routed,
                     .rounds = plan->rounds,
                     .sharing = mesh_extent(mesh, mesh->ep),
                     .room_percent = plan->room_percent};
}

void plan_put_room(json_t *root, const Plan *plan)
{
    if (plan->room_percent)
        json_object_set_new(root, "room_percent", json_integer(plan->room_percent));
    if (plan->rounds > 1)
        json_object_set_new(root, "rounds", json_integer(plan->rounds));
    if (plan->exchange != EXCHANGE_EXACT)
        json_object_set_new(root, "exchange", json_string(exchange_text[plan->exchange]));
}

bool plan_read_room(Json root, Plan *plan)
{
    int64_t rounds = 1;
    int exchange = EXCHANGE_EXACT;
    bool good =
        (!json_has(root, "room_percent") ||
         json_int(json_get(root, "room_percent"), 100, 100000, &plan->room_percent)) &&
        (!json_has(root, "rounds") || json_int(json_get(root, "rounds"), 2, MAX_ROUNDS, &rounds)) &&
        (!json_has(root, "exchange") ||
         json_word(json_get(root, "exchange"), exchange_text, EXCHANGE_COUNT, &exchange));
    plan->exchange = (Exchange)exchange;
    plan->rounds = (int)rounds;
    return good;
}

json_t *plan_parts_json(const Plan *plan, const Net *net)
{
    json_t *list = json_array();
    for (int i = 0; i < net->chain.n; i++)
        json_array_append_new(list, json_integer(plan->part[i]));
    return list;
}

bool plan_read_parts(Json list, Plan *plan, const Net *net)
{
    if (!list.value)
        return true;
    if (!json_want_array(list))
        return false;
    if (json_len(list) != net->chain.n) {
        json_fail(list, "%d parts for %d links", json_len(list), net->chain.n);
        diag_help(list.doc->diag, "one number for each link of the chain");
        return false;
    }
    plan->part = ARENA_ARRAY(plan->arena, int, net->chain.n);
    for (int i = 0; i < net->chain.n; i++) {
        int64_t part;
        if (!json_int(json_at(list, i), 0, MAX_PARTS / 4 - 1, &part))
            return false;
        plan->part[i] = (int)part;
    }
    return true;
}
