/* look.c - reads choices, boundaries and bodies of all classes of a plan. */
#include "planner/look.h"

static void add_letter(Letters *letters, DimId dim)
{
    for (int i = 0; i < letters->n; i++)
        if (letters->at[i] == dim)
            return;
    if (letters->n < MAX_LETTERS)
        letters->at[letters->n++] = dim;
}

static bool has_letter(const int8_t *letters, int axes, int letter)
{
    for (int a = 0; a < axes; a++)
        if (letters[a] == letter)
            return true;
    return false;
}

static bool is_layer(const Graph *graph)
{
    return graph->chain_in != NONE && graph->chain_out != NONE;
}

/* An operand that is a parameter and has the letter. */
static bool weight_has(const Graph *graph, const Node *node, int letter)
{
    for (int k = 0; k < node->ins; k++) {
        const Value *value = &graph->values.at[node->in[k]];
        if (value->kind == VALUE_PARAM && has_letter(node->sig.in[k], value->axes, letter))
            return true;
    }
    return false;
}

/* The letter that an atom cuts, or NONE. */
static int letter_of(const NodeChoice *choice, int atom)
{
    Choice own = choice->atom[atom];
    return own >= CHOICE_LETTER && own < CHOICE_LINEAR ? own - CHOICE_LETTER : NONE;
}

static void look_at_crossing(Look *look, const Mesh *mesh, const Node *node,
                             const NodeChoice *choice)
{
    AtomList passing = node_ring(mesh, choice);
    AtomSet cp = role_atoms(mesh, ROLE_CP), ring = (AtomSet)(list_set(&passing) & cp), heads = 0;
    for (int a = 0; a < mesh->n; a++) {
        int letter = letter_of(choice, a);
        if ((cp >> a & 1) && letter != NONE &&
            look->net->dims.at[node->sig.dim[letter]].kind == DIM_OTHER)
            heads = (AtomSet)(heads | 1u << a);
    }
    look->heads = (AtomSet)(look->heads | heads);
    look->ring = (AtomSet)(look->ring | ring);
    look->gather = (AtomSet)(look->gather | (cp & ~heads & ~ring));
}

/* What choices name: are its weights apart, are they cut besides? */
static void look_at_named(Look *look, const Graph *graph, const Node *node,
                          const NodeChoice *choice, int naming, int atoms)
{
    look->named_dim = node->sig.dim[naming];
    for (int l = 0; l < node->sig.letters; l++)
        if (look->net->dims.at[node->sig.dim[l]].kind == DIM_ROUTED)
            look->named_choices = letter_extent(look->net, node, l);
    for (int a = 0; a < atoms; a++) {
        int letter = letter_of(choice, a);
        if (letter == naming)
            look->named = (AtomSet)(look->named | 1u << a);
        else if (letter != NONE && weight_has(graph, node, letter))
            look->named_cut = (AtomSet)(look->named_cut | 1u << a);
    }
}

static void look_at_product(Look *look, const Graph *graph, const Node *node,
                            const NodeChoice *choice, int atoms)
{
    for (int a = 0; a < atoms; a++) {
        int letter = letter_of(choice, a);
        if (letter == NONE || !weight_has(graph, node, letter))
            continue;
        bool column = node->sig.in_out >> letter & 1;
        AtomSet *set = column ? &look->column : &look->row;
        *set = (AtomSet)(*set | 1u << a);
        add_letter(column ? &look->column_letters : &look->row_letters, node->sig.dim[letter]);
    }
}

static void look_at_ends(Look *look, const Graph *graph, const Node *node, const NodeChoice *choice,
                         int atoms)
{
    const OpInfo *op = &op_info[node->op];
    for (int a = 0; a < atoms; a++) {
        int letter = letter_of(choice, a);
        bool summed = letter != NONE && !(node->sig.in_out >> letter & 1);
        if (summed && op->monoid == MONOID_MAX)
            look->vocabulary = (AtomSet)(look->vocabulary | 1u << a);
        if (summed && op->form == FORM_lookup && weight_has(graph, node, letter))
            look->looked_up = (AtomSet)(look->looked_up | 1u << a);
    }
}

/* A layer that backward runs again as a whole, or nodes of one; constants are no work. */
static void look_at_clones(Look *look, const Body *body, int layers)
{
    bool all = body->saved_bytes[SAVED_I] == 0 && body->saved_bytes[SAVED_W] == 0, any = false;
    for (int l = 1; l < BODY_LISTS; l++)
        for (int i = 0; i < body_list(body, l)->n; i++) {
            const Inst *inst = &body_list(body, l)->at[i];
            for (int k = 0; inst->kind == INST_KERNEL && k < inst->nodes; k++) {
                const Node *node = &body->graph->nodes.at[inst->node[k]];
                bool again = node->seg == SEG_FORWARD && node->ins > 0 && inst->turn == 0;
                any |= again;
                for (int r = 0; r < look->remade.n && again; r++) /* parts of a kind share names */
                    again = !str_eq(look->remade.at[r], node->name);
                if (again && !all)
                    vec_push(look->arena, &look->remade) = node->name;
            }
        }
    look->layers += layers;
    look->layers_remade += all && any ? layers : 0;
}

/* Are these choices made of numbers that were drawn? */
static bool is_drawn(const Graph *graph, const Node *node)
{
    bool drawn = false;
    for (int k = 0; k < node->ins && graph->values.at[node->out[0]].number == NUM_INDEX; k++) {
        const Value *in = &graph->values.at[node->in[k]];
        drawn |= in->kind == VALUE_NODE && op_draws(graph->nodes.at[in->made].op);
    }
    return drawn;
}

static int class_links(const Net *net, int class)
{
    int links = 0;
    for (int i = 0; i < net->chain.n; i++)
        links += net->chain.at[i].class == class;
    return links;
}

static void look_at_class(Look *look, int class)
{
    const Graph *graph = look->net->classes.at[class];
    const ClassPlan *plan = &look->plan->class[class];
    const Mesh *mesh = plan_mesh(look->plan, class);
    for (int n = 0; n < graph->nodes.n; n++) {
        const Node *node = &graph->nodes.at[n];
        const NodeChoice *choice = &plan->choice[n];
        AtomList passing = node_ring(mesh, choice);
        look->bounded |= op_info[node->op].attrs == ATTRS_capacity;
        look->drawn |= is_drawn(graph, node);
        if (node->seg != SEG_FORWARD)
            continue;
        int naming = node_naming_letter(look->net, node);
        if (node_crosses(look->net, node))
            look_at_crossing(look, mesh, node, choice);
        else if (naming != NONE)
            look_at_named(look, graph, node, choice, naming, mesh->n);
        else if (is_layer(graph) && node_is_product(graph, node))
            look_at_product(look, graph, node, choice, mesh->n);
        else if (!is_layer(graph))
            look_at_ends(look, graph, node, choice, mesh->n);
        if (!node_crosses(look->net, node))
            look->passing = (AtomSet)(look->passing | list_set(&passing));
    }
    if (!is_layer(graph))
        return;
    const Value *in = &graph->values.at[graph->chain_in];
    for (int a = 0; a < in->axes; a++) {
        AtomSet set = list_set(&plan->boundary_in.shard[a]);
        if (in->dim[a] == look->net->batch)
            look->batch = (AtomSet)(look->batch | set);
        if (in->dim[a] == look->net->sequence)
            look->sequence = (AtomSet)(look->sequence | set);
    }
    look_at_clones(look, look->it->program->body[class], class_links(look->net, class));
}

Look look_at(Arena *arena, const Assessment *it)
{
    Look look = {.arena = arena, .it = it, .plan = it->plan, .net = it->net, .named_dim = NONE};
    for (int c = 0; c < it->net->classes.n; c++)
        look_at_class(&look, c);
    return look;
}
