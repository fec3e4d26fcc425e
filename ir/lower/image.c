/* image.c - shrinks a plan for the numeric proof. */
#include "ir/lower/image.h"

#include <string.h>

#include "ir/lower/image_chain.h"
#include "ir/plan_parts.h"

static int64_t next_prime(int64_t *at)
{
    for (;;) {
        (*at)++;
        bool prime = *at > 1;
        for (int64_t d = 2; d * d <= *at; d++)
            prime &= *at % d != 0;
        if (prime)
            return *at;
    }
}

/* The dims by which the elements of an axis are told apart: its own, and what choices name. */
static void add_axis(const Net *net, const Value *value, int axis, const AtomList *list,
                     AtomSet *ret)
{
    const Dim *dim = &net->dims.at[value->dim[axis]];
    ret[value->dim[axis]] |= list_set(list);
    if (dim->kind == DIM_ROUTED)
        ret[dim->among] |= list_set(list);
}

/* All atoms that some placement of the plan puts on a dim. */
static void collect_atoms(const Plan *plan, const Net *net, AtomSet *ret)
{
    for (int c = 0; c < net->classes.n; c++) {
        const Graph *graph = net->classes.at[c];
        for (int n = 0; n < graph->nodes.n; n++) {
            const Node *node = &graph->nodes.at[n];
            for (int a = 0; a < plan->mesh.n; a++) {
                Choice choice = plan->class[c].choice[n].atom[a];
                if (choice >= CHOICE_LETTER && choice < CHOICE_LINEAR)
                    ret[node->sig.dim[choice - CHOICE_LETTER]] |= (AtomSet)(1u << a);
            }
        }
        for (int p = 0; p < graph->params.n; p++) {
            const Value *value = &graph->values.at[graph->params.at[p].value];
            for (int a = 0; a < value->axes; a++)
                add_axis(net, value, a, &plan->class[c].home[p].shard[a], ret);
        }
        const ClassPlan *class = &plan->class[c];
        for (int v = 0; v < graph->values.n; v++)
            for (int a = 0; a < graph->values.at[v].axes; a++)
                add_axis(net, &graph->values.at[v], a, &class->saved[v].shard[a], ret);
        if (graph->chain_in != NONE)
            for (int a = 0; a < graph->values.at[graph->chain_in].axes; a++)
                add_axis(net, &graph->values.at[graph->chain_in], a, &class->boundary_in.shard[a],
                         ret);
    }
}

/* The extent of a dim that is the whole of a split or stack, from those of its parts; 0 for others.
 */
static int64_t whole_extent(const Net *net, DimId dim, const int64_t *extent)
{
    for (int c = 0; c < net->classes.n; c++) {
        const Graph *graph = net->classes.at[c];
        for (int n = 0; n < graph->nodes.n; n++) {
            const Node *node = &graph->nodes.at[n];
            bool split = node->outs > 1 && op_info[node->op].form == FORM_copy;
            bool stack = node->ins > 1 && op_info[node->op].form == FORM_copy;
            if ((!split && !stack) || node->sig.dim[split_letter(graph, node)] != dim)
                continue;
            int64_t letter[MAX_LETTERS], sum = 0;
            for (int l = 0; l < node->sig.letters; l++)
                letter[l] = extent[node->sig.dim[l]];
            for (int p = 0; p < (split ? node->outs : node->ins); p++)
                sum += part_extent(graph, node, p, letter);
            return sum;
        }
    }
    return 0;
}

/* What a choice of experts asks of its dims: groups of equal size, not more choices than experts.
 */
typedef struct Choices {
    bool chosen, among; /* the dim counts choices; is what is chosen among */
    int64_t groups;
} Choices;

static Choices choices_of(const Net *net, DimId dim)
{
    Choices ret = {.groups = 1};
    for (int c = 0; c < net->classes.n; c++) {
        const Graph *graph = net->classes.at[c];
        for (int n = 0; n < graph->nodes.n; n++) {
            const Node *node = &graph->nodes.at[n];
            if (op_info[node->op].attrs != ATTRS_topk)
                continue;
            const Value *in = &graph->values.at[node->in[0]],
                        *out = &graph->values.at[node->out[0]];
            ret.chosen |= out->dim[out->axes - 1] == dim;
            if (in->dim[in->axes - 1] != dim)
                continue;
            ret.among = true;
            if (node->attrs.topk.groups > 0)
                ret.groups = node->attrs.topk.groups;
        }
    }
    return ret;
}

/* Pairs of coordinates are rotated within this dim: it stays even. */
static bool is_rotated(const Net *net, DimId dim)
{
    for (int c = 0; c < net->classes.n; c++) {
        const Graph *graph = net->classes.at[c];
        for (int n = 0; n < graph->nodes.n; n++) {
            const Node *node = &graph->nodes.at[n];
            if (op_info[node->op].attrs != ATTRS_rope)
                continue;
            for (int l = 0; l < node->sig.letters; l++)
                if (node->sig.dim[l] == dim && (node->sig.nosplit >> l & 1))
                    return true;
        }
    }
    return false;
}

/* The rows of a table that is looked up by position. */
static bool is_position_table(const Net *net, DimId dim)
{
    for (int c = 0; c < net->classes.n; c++) {
        const Graph *graph = net->classes.at[c];
        for (int n = 0; n < graph->nodes.n; n++) {
            const Node *node = &graph->nodes.at[n];
            if (node->ins != 2 || graph->values.at[node->in[0]].kind != VALUE_NODE ||
                graph->values.at[node->in[0]].number != NUM_INDEX)
                continue;
            const Value *table = &graph->values.at[node->in[1]];
            if (table->kind == VALUE_PARAM && table->dim[0] == dim)
                return true;
        }
    }
    return false;
}

/* Dims in the order in which they get their primes: those that share a parameter with most others
 * first, where a large prime would multiply; among them the rarest. */
static void order_dims(const Net *net, int *ret)
{
    Arena *scratch = arena_new("order");
    int *axes = ARENA_ARRAY(scratch, int, net->dims.n),
        *uses = ARENA_ARRAY(scratch, int, net->dims.n);
    for (int c = 0; c < net->classes.n; c++)
        for (int p = 0; p < net->classes.at[c]->params.n; p++) {
            const Value *value =
                &net->classes.at[c]->values.at[net->classes.at[c]->params.at[p].value];
            for (int a = 0; a < value->axes; a++) {
                uses[value->dim[a]]++;
                axes[value->dim[a]] =
                    value->axes > axes[value->dim[a]] ? value->axes : axes[value->dim[a]];
            }
        }
    for (int i = 0; i < net->dims.n; i++) {
        int at = i;
        for (; at > 0; at--) {
            int before = ret[at - 1];
            if (axes[before] > axes[i] || (axes[before] == axes[i] && uses[before] <= uses[i]))
                break;
            ret[at] = before;
        }
        ret[at] = i;
    }
    arena_free(scratch);
}

/* Makes a part of a whole that ranks share longer by one step, so that in the end the whole
 * divides; false when no part has a dim of its own. */
static bool grow_part(const Net *net, DimId whole, const AtomSet *atoms, const Mesh *mesh,
                      int64_t *all)
{
    for (int c = 0; c < net->classes.n; c++) {
        const Graph *graph = net->classes.at[c];
        for (int n = 0; n < graph->nodes.n; n++) {
            const Node *node = &graph->nodes.at[n];
            if (op_info[node->op].form != FORM_copy ||
                node->sig.dim[split_letter(graph, node)] != whole)
                continue;
            for (int l = 0; l < node->sig.letters; l++) {
                DimId dim = node->sig.dim[l];
                if (!(node->sig.nosplit >> l & 1) || dim == whole)
                    continue;
                all[dim] += mesh_extent(mesh, atoms[dim]) * (is_rotated(net, dim) ? 2 : 1);
                return true;
            }
        }
    }
    return false;
}

/* Wholes share parts: their extents are right when none has to grow any more. */
static void fit_wholes(const Net *net, const AtomSet *atoms, const Mesh *mesh, int64_t *all)
{
    for (bool grown = true; grown;) {
        grown = false;
        for (int i = 0; i < net->dims.n; i++) {
            int64_t whole = whole_extent(net, (DimId)i, all);
            all[i] = whole > 0 ? whole : all[i];
            grown = grown || (whole % mesh_extent(mesh, atoms[i]) != 0 &&
                              grow_part(net, (DimId)i, atoms, mesh, all));
        }
    }
}

/* What the extent of a dim must be a multiple of: its ranks, pairs that turn, groups of experts. */
static int64_t dim_step(const Net *net, const AtomSet *atoms, const Mesh *mesh, DimId d)
{
    int64_t shards = mesh_extent(mesh, atoms[d]), groups = choices_of(net, d).groups;
    if (is_rotated(net, d))
        return 2 * shards;
    return shards % groups == 0 ? shards : shards * groups;
}

/* Dims with large steps first, for they get the small primes. */
static void order_by_step(const Net *net, const AtomSet *atoms, const Mesh *mesh, int *order)
{
    order_dims(net, order);
    for (int i = 1; i < net->dims.n; i++) {
        int dim = order[i], at = i;
        int64_t step = dim_step(net, atoms, mesh, (DimId)dim);
        for (; at > 0 && dim_step(net, atoms, mesh, (DimId)order[at - 1]) < step; at--)
            order[at] = order[at - 1];
        order[at] = dim;
    }
}

static json_t *image_dims(const Plan *image, const Net *net, const AtomSet *atoms)
{
    json_t *dims = json_object();
    int64_t prime = 1, *all = ARENA_ARRAY(image->arena, int64_t, net->dims.n);
    int *order = ARENA_ARRAY(image->arena, int, net->dims.n);
    order_by_step(net, atoms, &image->mesh, order);
    for (int i = 0; i < net->dims.n; i++)
        all[i] = 1;
    for (int i = 0; i < net->dims.n; i++) {
        DimId d = (DimId)order[i];
        const Dim *dim = &net->dims.at[d];
        if (dim->kind < DIM_OTHER || dim->extent == 1 || whole_extent(net, d, all) > 0)
            continue;
        int64_t step = dim_step(net, atoms, &image->mesh, d), extent;
        extent = choices_of(net, d).chosen ? 2 : step * next_prime(&prime);
        if (dim->used < dim->extent && image->pad_vocabulary > 1) {
            while (extent < 4) /* of one word there is nothing to learn */
                extent = step * next_prime(&prime);
            extent -= 1; /* a padded dim stays padded */
        }
        if (is_position_table(net, d) && !choices_of(net, d).among && extent < image->job.sequence)
            extent = image->job.sequence;
        all[d] = extent;
    }
    fit_wholes(net, atoms, &image->mesh, all);
    for (int i = 0; i < net->dims.n; i++)
        if (net->dims.at[i].kind >= DIM_OTHER)
            json_object_set_new(dims, net->dims.at[i].name, json_integer(all[i]));
    return dims;
}

/* A window that is shorter than the sequence stays so, a part of the head that turns stays a part.
 * Over two or three elements a norm is nearly a sign, steep where they are small, and steps that
 * follow each other would be judged by their rounding: it is made gentle. */
static void shrink_attributes(json_t *object, const Plan *plan)
{
    json_t *eps = json_object_get(object, "eps");
    if (json_is_number(eps) && json_number_value(eps) < 0.1)
        json_object_set_new(object, "eps", json_real(0.1));
    json_t *window = json_object_get(object, "window"), *rotary = json_object_get(object, "rotary");
    if (json_is_number(window) && json_number_value(window) < (double)plan->job.sequence &&
        json_number_value(window) > 3)
        json_object_set_new(object, "window", json_integer(3));
    /* Factors come one for each pair that turns: one pair is left. */
    static const char *const lists[] = {"near", "far"};
    json_t *scaling = json_object_get(object, "scaling");
    for (int i = 0; i < 2; i++) {
        json_t *list = json_object_get(scaling, lists[i]);
        if (json_array_size(list) > 1)
            json_object_set_new(scaling, lists[i], json_pack("[O]", json_array_get(list, 0)));
    }
    if (json_is_number(rotary) || json_object_get(object, "theta"))
        json_object_set_new(object, "rotary", json_integer(2));
}

static json_t *image_model(const Plan *plan, const Net *net, Plan *image, const AtomSet *atoms,
                           const ImageChain *links)
{
    json_t *model = json_deep_copy(plan->model->root), *block, *entry, *op;
    const char *name;
    size_t i;
    json_object_set_new(model, "dims", image_dims(image, net, atoms));
    json_object_set_new(model, "init_std", json_real(0.3));
    json_object_foreach(json_object_get(model, "blocks"), name, block)
    {
        json_array_foreach(json_object_get(block, "ops"), i, op) shrink_attributes(op, plan);
    }
    json_t *chain = image_chain_json(json_object_get(model, "chain"), links);
    json_array_foreach(chain, i, entry)
    {
        json_t *each = json_array_get(json_object_get(entry, "each"), 0);
        json_object_foreach(each, name, op) shrink_attributes(op, plan);
    }
    json_object_set_new(model, "chain", chain);
    return model;
}

/* The classes of the image come in the order in which its own chain meets them. */
static bool copy_choices(const Plan *plan, const Net *net, Plan *image, const Net *small,
                         const ImageChain *links)
{
    image->class = ARENA_ARRAY(image->arena, ClassPlan, small->classes.n);
    for (int i = 0; i < small->chain.n; i++) {
        int mine = small->chain.at[i].class, of = net->chain.at[links->links.at[i].of].class;
        if (net->classes.at[of]->nodes.n != small->classes.at[mine]->nodes.n)
            return false;
        ClassPlan *class = &image->class[mine];
        *class = plan->class[of];
        if (!class->mesh)
            continue;
        Mesh *mesh = ARENA_NEW(image->arena, Mesh);
        *mesh = *class->mesh;
        for (int a = 0; a < mesh->n; a++)
            mesh->atom[a].extent = image->mesh.atom[a].extent;
        class->mesh = mesh;
    }
    return true;
}

static void copy_parts(const Plan *plan, Plan *image, const ImageChain *links)
{
    if (!plan->part)
        return;
    image->part = ARENA_ARRAY(image->arena, int, links->links.n);
    for (int i = 0; i < links->links.n; i++)
        image->part[i] = plan->part[links->links.at[i].of];
}

/* Every class has whole sequences on its ranks. */
static bool batch_divides(const Plan *plan, const Net *net, const Plan *image, int64_t sequences)
{
    for (int c = 0; c < net->classes.n; c++)
        if (sequences % mesh_extent(&image->mesh, role_atoms(plan_mesh(plan, c), ROLE_DP)) != 0)
            return false;
    return true;
}

static bool runs(const Plan *image)
{
    Arena *scratch = arena_new("rows");
    Diag *diag = diag_new(scratch);
    const Schedule *schedule = plan_rows(scratch, diag, image);
    bool good = schedule && schedule_check(schedule, diag);
    arena_free(scratch);
    return good;
}

/* Three stages and a few micro-batches, as many or few against the stages as the plan has; more
 * where the schedule does not run with so few. Rows that a file gave cannot shrink. */
static void shrink_schedule(const Plan *plan, Plan *image)
{
    if (plan->schedule == SCHEDULE_TABLE)
        return;
    int m = plan->micro_batches, p = plan->stages, q = p > 3 ? 3 : p, each = plan->chunks / p;
    image->stages = q;
    image->chunks = q * each;
    image->micro_batches = p == 1        ? (m > 2 ? 2 : m)
                           : m < p       ? (m < q ? m : q - 1)
                           : m == p      ? q
                           : plan->braid ? 2 * q + 1
                                         : q + 2;
    if (image->micro_batches < 1)
        image->micro_batches = 1;
    for (int tries = 0; tries < 4 * q && !runs(image); tries++)
        image->micro_batches++;
    Diag *diag = diag_new(image->arena);
    const Schedule *schedule = plan_rows(image->arena, diag, image);
    CHECK(schedule != NULL);
    image->holder = schedule->holder;
}

/* Blocks pass by along this atom somewhere: of two ranks both neighbours are the same. */
static bool blocks_pass(const Plan *plan, const Net *net, int atom)
{
    for (int c = 0; c < net->classes.n; c++)
        for (int n = 0; n < net->classes.at[c]->nodes.n; n++)
            if (plan->class[c].choice[n].travel[atom] != 0)
                return true;
    return false;
}

Plan *plan_image(Arena *arena, Diag *diag, const Plan *plan, const Net *net, Net **ret_net)
{
    Plan *image = ARENA_NEW(arena, Plan);
    *image = *plan;
    image->arena = arena;
    memset(image->row_ns, 0, sizeof image->row_ns);
    image->pair_ns = NULL;
    image->hop_ns = 0;
    for (int a = 0; a < image->mesh.n; a++)
        image->mesh.atom[a].extent =
            blocks_pass(plan, net, a) && plan->mesh.atom[a].extent > 2 ? 3 : 2;
    shrink_schedule(plan, image);
    image->ranks = image->stages * mesh_ranks(&image->mesh);
    if (image->ranks > 64) {
        diag_error(diag, NO_SPAN,
                   "the image of this plan has %d ranks; the numeric proof runs at most 64",
                   image->ranks);
        return NULL;
    }
    image->micro_batch = plan->micro_batch > 2 ? 2 : plan->micro_batch;
    int dp = mesh_extent(&image->mesh, role_atoms(&image->mesh, ROLE_DP));
    while (!batch_divides(plan, net, image, image->micro_batch * dp))
        image->micro_batch++;
    image->job.recipe = "fp64";
    image->job.global_batch = image->micro_batch * dp * image->micro_batches;
    AtomSet tp = plan_role_atoms(plan, net, ROLE_TP);
    image->pad_vocabulary = mesh_extent(&image->mesh, tp);
    image->bucket_bytes = 2000; /* several buckets even here */
    image->room_percent = 0;    /* few tokens fall on experts less evenly than many */

    AtomSet *atoms = ARENA_ARRAY(arena, AtomSet, net->dims.n);
    collect_atoms(plan, net, atoms);
    image->job.sequence = 5 * mesh_extent(&image->mesh, (AtomSet)(atoms[net->sequence] | tp));
    if (image->zigzag) /* every shard has two runs, of places enough to be told apart */
        image->job.sequence *= 2;
    ImageChain links = image_chain(arena, plan, net, image->chunks);
    image->first_link = links.first_link;
    image->model = ARENA_NEW(arena, JsonDoc);
    *image->model = *plan->model;
    image->model->root = json_owned(arena, image_model(plan, net, image, atoms, &links));
    image->model->diag = diag;
    Reading reading = plan_reading(image, plan_is_routed(plan, net));
    if (image->rounds > 1) /* all have their rows, the last one what is left */
        reading.room_percent = 100 / image->rounds;
    Net *small = model_read_as(arena, diag, json_root(image->model), &reading);
    if (!small)
        return NULL;
    CHECK(links.links.n == small->chain.n);
    copy_parts(plan, image, &links);
    plan_tell(image, small);
    if (!copy_choices(plan, net, image, small, &links)) {
        diag_error(diag, NO_SPAN, "two kinds of layers become one when this model shrinks");
        diag_help(diag, "make their attributes differ by more than a window's length");
        return NULL;
    }
    plan_share_rows(image, small);
    if (!plan_verify(image, small, diag))
        return NULL;
    *ret_net = small;
    return image;
}
