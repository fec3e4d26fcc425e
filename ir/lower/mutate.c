/* mutate.c - where a Program can be broken: the sites of every mutation, and which of them change
 * nothing and why. */
#include "ir/lower/execute.h"

#include <string.h>

#include "ir/lower/layout.h"
#include "ir/lower/machine.h"
#include "ir/lower/state.h"
#include "ir/lower/turns.h"

const char *const mutation_text[MUTATE_COUNT] = {"none",   "skip", "average", "short",  "stale",
                                                 "peer",   "base", "own",     "turn",   "slot",
                                                 "forget", "run",  "version", "beyond", "member"};

static bool same_site(const Site *a, const Site *b)
{
    return a->kind == b->kind && a->body == b->body && a->inst == b->inst && a->move == b->move &&
           a->stage == b->stage && a->group == b->group && a->node == b->node &&
           a->letter == b->letter && a->operand == b->operand && a->step == b->step &&
           a->stream == b->stream && a->carries == b->carries && a->message == b->message;
}

void site_put(Machine *machine, Site site)
{
    for (int i = 0; i < machine->sites.n; i++)
        if (same_site(&machine->sites.at[i], &site))
            return;
    vec_push(machine->arena, &machine->sites) = site;
}

Site site_of(const Machine *machine, MutationKind kind, const Step *step)
{
    Site site = {.kind = kind,
                 .body = step->body,
                 .inst = step->inst,
                 .move = step->move,
                 .stage = NONE,
                 .group = NONE,
                 .node = NONE,
                 .letter = NONE,
                 .operand = NONE,
                 .step = step->kind};
    if (!step->inst) /* a body is a template of every stage; everything else belongs to its own */
        site.stage = step->kind == STEP_WORLD ? NONE : step->stage;
    if (step->kind == STEP_TIED && step->peer < step->stage)
        site.stage = step->peer;
    if (step->bucket != NONE && !step->inst)
        site.group = machine->program->stage[step->stage].buckets.at[step->bucket].group;
    if (step->kind == STEP_TIED)
        site.group = NONE;
    if (step->kind == STEP_SEND || step->kind == STEP_RECV)
        site.message = step->message;
    if (step->kind == STEP_COPY) {
        site.stream = step->stream;
        site.carries = step_carries(step);
    }
    return site;
}

static bool only_cut(const Body *body, int copy, int axis, const AtomList *atoms);

/* Of the kernel's outputs, each block along the axis is made of that block of the copy alone, and
 * is all that anybody takes of it. */
static bool only_hands_on(const Body *body, const Inst *inst, int copy, int axis,
                          const AtomList *atoms)
{
    int known[MAX_FUSED + 1] = {copy}; /* copies that depend on it */
    int along[MAX_FUSED + 1] = {axis}, n = 1;
    for (int i = 0; i < inst->nodes; i++) {
        const Node *node = &body->graph->nodes.at[inst->node[i]];
        int letter = NONE;
        for (int k = 0; k < node->ins; k++)
            for (int c = 0; c < n; c++)
                if (inst->bind_in[i][k] == known[c])
                    letter = node->sig.in[k][along[c]];
        if (letter == NONE)
            continue;
        if ((node->sig.nosplit >> letter & 1) || node->outs != 1)
            return false;
        int at = NONE, out = inst->bind_out[i][0];
        for (int a = 0; a < body->graph->values.at[node->out[0]].axes; a++)
            at = node->sig.out[0][a] == letter ? a : at;
        if (at == NONE || n > MAX_FUSED)
            return false;
        known[n] = out;
        along[n++] = at;
    }
    for (int c = 1; c < n; c++) {
        Home home = body->copies.at[known[c]].home;
        if (home != HOME_FUSED && (home != HOME_TEMP || !only_cut(body, known[c], along[c], atoms)))
            return false;
    }
    return true;
}

/* Every reader in the body takes of the copy its own block along this axis, and no more. */
static bool only_cut(const Body *body, int copy, int axis, const AtomList *atoms)
{
    for (int l = 0; l < BODY_LISTS; l++)
        for (int i = 0; i < body_list(body, l)->n; i++) {
            const Inst *inst = &body_list(body, l)->at[i];
            bool reads = false;
            for (int k = 0; k < inst->ins; k++)
                reads |= inst->in[k] == copy;
            bool cuts = inst->kind == INST_MOVE && inst->move.kind == MOVE_SLICE &&
                        inst->move.to == axis &&
                        memcmp(&inst->move.atoms, atoms, sizeof *atoms) == 0;
            if (reads && !cuts &&
                (inst->kind != INST_KERNEL || !only_hands_on(body, inst, copy, axis, atoms)))
                return false;
        }
    return true;
}

static const Body *body_behind(const Program *program, int link)
{
    const Net *net = program->net;
    return link + 1 < net->chain.n ? program->body[net->chain.at[link + 1].class] : NULL;
}

/* A gather whose readers, those in the next link included, need their own block alone. */
static bool gathers_for_nobody(const Program *program, const Step *step)
{
    const Body *body = step->body;
    int copy = body ? step->inst->out[0] : NONE;
    if (!body || step->move->kind != MOVE_ALL_GATHER ||
        !only_cut(body, copy, step->move->from, &step->move->atoms))
        return false;
    if (body->copies.at[copy].home != HOME_OUT)
        return body->copies.at[copy].home == HOME_TEMP;
    for (int s = 0; s < program->stages; s++)
        for (int i = 0; i < program->stage[s].links; i++) {
            const Body *next = body_behind(program, program->stage[s].link[i].link);
            if (program->stage[s].link[i].body == body &&
                (!next || next->saves_in ||
                 !only_cut(next, next->in, step->move->from, &step->move->atoms)))
                return false;
        }
    return true;
}

/* Does a kernel of the body sum over the rows of a copy of choices? */
static bool sums_rows(const Body *body, int copy, int axis)
{
    bool sums = false;
    for (int l = 0; l < BODY_LISTS; l++)
        for (int i = 0; i < body_list(body, l)->n; i++) {
            const Inst *inst = &body_list(body, l)->at[i];
            for (int n = 0; inst->kind == INST_KERNEL && n < inst->nodes; n++) {
                const Node *node = &body->graph->nodes.at[inst->node[n]];
                const Value *out = &body->graph->values.at[node->out[0]];
                for (int k = 0; k < node->ins; k++)
                    sums |= inst->bind_in[n][k] == copy &&
                            !memchr(node->sig.out[0], node->sig.in[k][axis], (size_t)out->axes);
            }
        }
    return sums;
}

/* Rows in padded messages. */
static void put_padding(Machine *machine, const Step *step)
{
    const Body *body = step->body;
    if (!step_is_routed(step) || body->net->exchange != EXCHANGE_PADDED)
        return;
    if (step->move->kind != MOVE_SLICE)
        site_put(machine, site_of(machine, MUTATE_MEMBER, step));
    else if (body->graph->values.at[step->operand[0].copy->value].number == NUM_INDEX) {
        Site site = site_of(machine, MUTATE_BEYOND, step);
        if (!sums_rows(body, step->inst->out[0], step->move->to))
            site.equivalent = "nobody takes back what is made of such rows";
        site_put(machine, site);
    }
}

static void put_moves(Machine *machine, const Step *step)
{
    bool gathers =
        step->move && (step->move->kind == MOVE_ALL_GATHER || step->move->kind == MOVE_ALL_TO_ALL ||
                       step->move->kind == MOVE_ROTATE || step->move->kind == MOVE_PERMUTE);
    bool maximum = step->move && step->move->monoid == MONOID_MAX;
    Site skip = site_of(machine, MUTATE_SKIP, step);
    if (step->kind == STEP_MOVE && gathers_for_nobody(machine->program, step))
        skip.equivalent = "all that read it take their own block";
    site_put(machine, skip);
    if (!gathers) {
        Site site = site_of(machine, MUTATE_AVERAGE, step);
        if (maximum)
            site.equivalent =
                "a maximum only shifts the exponents; any number that all ranks share cancels";
        site_put(machine, site);
    }
    if (step->move && step->move->kind == MOVE_ROTATE) {
        Site site = site_of(machine, MUTATE_TURN, step);
        if (2 * step->move->by % list_extent(machine_mesh(machine), &step->move->atoms) == 0)
            site.equivalent = "half way round the ring is the same either way";
        site_put(machine, site);
    }
    if (step->move) {
        Site site = site_of(machine, MUTATE_SHORT, step);
        if (maximum && step->move->atoms.n == 1)
            site.equivalent =
                "all ranks still share one number, and a maximum only shifts the exponents";
        site_put(machine, site);
    }
}

static void put_messages(Machine *machine, const Step *step)
{
    if (machine->program->plan->micro_batches > 1 || machine->program->flows)
        site_put(machine, site_of(machine, MUTATE_STALE, step));
    if (machine->per_stage == 1)
        return;
    Site site = site_of(machine, MUTATE_PEER, step);
    if (!place_used(&step->operand[0].copy->place))
        site.equivalent = "every coordinate holds the same value there";
    site_put(machine, site);
}

/* The origin of a dim that is no position is read by index-valued ops, and else only to leave out
 * padding. */
static bool takes_index(const Graph *graph, const Node *node)
{
    for (int k = 0; k < node->ins; k++)
        if (graph->values.at[node->in[k]].number == NUM_INDEX)
            return true;
    return false;
}

/* Wherever the i-th node runs, every query sees every key, and no less with a wrong origin. */
static bool sees_all_anyway(const Machine *machine, const Step *step, int i, int letter)
{
    const Body *body = step->body;
    const Node *node = &body->graph->nodes.at[step->inst->node[i]];
    if (!node_only_orders(body->graph, node))
        return false;
    for (int rank = 0; rank < machine->per_stage; rank++) {
        int64_t extent[MAX_LETTERS] = {0}, origin[MAX_LETTERS] = {0};
        if (inst_idle(body, step->inst, rank))
            continue;
        for (int wrong = 0; wrong < 2; wrong++) {
            for (int k = 0; k < 2; k++) {
                const Copy *copy = &body->copies.at[step->inst->bind_in[i][k]];
                BlockMap map = machine_block(machine, body, copy, rank);
                int own = node->sig.in[k][1];
                extent[own] = map.local[1];
                origin[own] = map.origin[1];
                if (wrong && own == letter)
                    origin[own] = (map.origin[1] + map.local[1]) % map.whole[1];
            }
            if (node_cover(body->net, node, origin, extent) != COVER_FULL)
                return false;
        }
    }
    return true;
}

static void put_bases(Machine *machine, const Step *step)
{
    const Graph *graph = step->body->graph;
    for (int i = 0; i < step->inst->nodes; i++) {
        const Node *node = &graph->nodes.at[step->inst->node[i]];
        for (int k = 0; k < node->ins + node->outs; k++) {
            bool in = k < node->ins;
            const int8_t *letters = in ? node->sig.in[k] : node->sig.out[k - node->ins];
            const Copy *copy =
                &step->body->copies
                     .at[in ? step->inst->bind_in[i][k] : step->inst->bind_out[i][k - node->ins]];
            const Value *value = &graph->values.at[copy->value];
            for (int a = 0; a < value->axes; a++) {
                const Dim *dim = &step->body->net->dims.at[value->dim[a]];
                if (!(node->sig.base >> letters[a] & 1) || copy->local[a] == dim->extent)
                    continue;
                Site site = site_of(machine, MUTATE_BASE, step);
                site.node = step->inst->node[i];
                site.letter = letters[a];
                /* What is made of nothing is made of its origin. */
                if (dim->kind == DIM_OTHER && dim->used == dim->extent && node->ins > 0 &&
                    !takes_index(graph, node))
                    site.equivalent = "the origin only masks padding, and this dim has none";
                if (sees_all_anyway(machine, step, i, letters[a]))
                    site.equivalent = "it sees all of that block there too";
                site_put(machine, site);
            }
        }
    }
}

/* All operands of the i-th node that have the sequence have one block of it, this rank's own. */
static bool meets_itself(const Machine *machine, const Step *step, int i)
{
    const Node *node = &step->body->graph->nodes.at[step->inst->node[i]];
    const AtomList *own = NULL;
    for (int k = 0; k < node->ins; k++) {
        const Copy *copy = &step->body->copies.at[step->inst->bind_in[i][k]];
        const Value *value = &step->body->graph->values.at[copy->value];
        for (int a = 0; a < value->axes; a++) {
            if (value->dim[a] != machine->program->net->sequence)
                continue;
            if (copy->turn != 0 || (own && memcmp(own, &copy->place.shard[a], sizeof *own) != 0))
                return false;
            own = &copy->place.shard[a];
        }
    }
    /* two runs: more would not come in order */
    return own && list_extent(machine_mesh(machine), own) * 2 == machine->program->net->runs;
}

/* Nodes that are told where the sequence's places are. */
static void put_runs(Machine *machine, const Step *step)
{
    const Net *net = machine->program->net;
    if (net->runs == 0)
        return;
    if (step->kind == STEP_LOAD)
        site_put(machine, site_of(machine, MUTATE_RUN, step));
    for (int i = 0; step->kind == STEP_KERNEL && i < step->inst->nodes; i++) {
        const Node *node = &step->body->graph->nodes.at[step->inst->node[i]];
        bool told = false;
        for (int l = 0; l < node->sig.letters; l++)
            told |= (node->sig.base >> l & 1) && node->sig.dim[l] == net->sequence;
        if (!told)
            continue;
        Site site = site_of(machine, MUTATE_RUN, step);
        site.node = step->inst->node[i];
        if (node_only_orders(step->body->graph, node) && meets_itself(machine, step, i))
            site.equivalent = "a shard that meets itself has its positions in order";
        site_put(machine, site);
    }
}

/* The ring in which a link finds a saved operand, or NULL. The input of a layer that backward reads
 * lies in a saved ring too, but for the chunk's first. */
static const Ring *saved_ring(const Program *program, const StageProgram *stage, int link, int copy)
{
    int64_t offset;
    const Ring *ring = copy_ring(program, stage, link, copy, &offset);
    const Ring *own = stage->chunk[stage->link[link].chunk].ring;
    return ring >= own + RING_SAVED && ring <= own + RING_STAYS_W ? ring : NULL;
}

/* A kernel whose one operand goes into accumulators, while every micro-batch of the step has a
 * slot: taking them in another order changes no sum. */
static bool only_adds_up(const Program *program, const Step *step)
{
    const Inst *inst = step->inst;
    bool adds = inst->ins == 1;
    for (int k = 0; k < inst->outs; k++)
        adds = adds && step->body->copies.at[inst->out[k]].home == HOME_ACC && !program->flows;
    for (int s = 0; s < program->stages; s++)
        for (int i = 0; i < program->stage[s].links && adds; i++) {
            if (program->stage[s].link[i].body != step->body)
                continue;
            const Ring *ring = saved_ring(program, &program->stage[s], i, inst->in[0]);
            adds = !ring || ring->n < 2 || ring->n == program->plan->micro_batches;
        }
    return adds;
}

static void put_slots(Machine *machine, const Step *step)
{
    const StageProgram *stage = &machine->program->stage[step->stage];
    for (int k = 0; k < step->inst->ins; k++) {
        const Ring *ring = saved_ring(machine->program, stage, step->link, step->inst->in[k]);
        if (!ring || ring->n < 2 || ring->sides)
            continue;
        Site site = site_of(machine, MUTATE_SLOT, step);
        site.operand = k;
        if (only_adds_up(machine->program, step))
            site.equivalent = "all micro-batches have slots, and are only added up";
        site_put(machine, site);
    }
}

/* Does no step change this parameter of a link? */
static bool never_moves(const Program *program, const StageLink *link, int param)
{
    const Param *info =
        &program->net->classes.at[program->net->chain.at[link->link].class]->params.at[param];
    return info->frozen || info->grad == NONE;
}

/* Weights of a use, gathered from a home that is cut. */
static bool is_fetched(const StageProgram *stage, const StageLink *link, int param)
{
    return link->bucket[param] != NONE && stage->buckets.at[link->bucket[param]].fetch != NONE;
}

static void put_versions(Machine *machine, const Step *step)
{
    const StageProgram *stage = &machine->program->stage[step->stage];
    for (int k = 0; stage->versions.n > 1 && k < step->inst->ins; k++) {
        const Copy *copy = &step->body->copies.at[step->inst->in[k]];
        if (copy->home != HOME_PARAM || is_fetched(stage, &stage->link[step->link], copy->param))
            continue;
        Site site = site_of(machine, MUTATE_VERSION, step);
        site.operand = k;
        if (never_moves(machine->program, &stage->link[step->link], copy->param))
            site.equivalent = "no step changes it";
        site_put(machine, site);
    }
}

/* What reads a version of weights at their home for a use: a copy, or the first collective. */
static void put_fetch(Machine *machine, const Step *step)
{
    const StageProgram *stage = &machine->program->stage[step->stage];
    bool copies = step->kind == STEP_COPY && step_carries(step) == KEPT_WEIGHTS;
    if (stage->versions.n == 1 || (!copies && step->stream != STREAM_WEIGHT))
        return;
    const Group *group = &stage->groups.at[stage->buckets.at[step->bucket].group];
    int first = 0;
    while (!group->far && group->fetch.move[first].kind == MOVE_SLICE)
        first++;
    if (group->far ? copies && step_fetches(machine->program, step)
                   : step->move == &group->fetch.move[first])
        site_put(machine, site_of(machine, MUTATE_VERSION, step));
}

bool group_frozen(const Program *program, const StageProgram *stage, const Group *group)
{
    bool frozen = true;
    for (int k = 0; k < group->members.n; k++) {
        const StageLink *link = &stage->link[group->members.at[k].link];
        const Graph *graph = program->net->classes.at[program->net->chain.at[link->link].class];
        frozen = frozen && graph->params.at[group->members.at[k].param].frozen;
    }
    return frozen;
}

static void put_owners(Machine *machine, const Step *step)
{
    const Mesh *mesh = &machine->program->plan->mesh;
    const StageProgram *stage = &machine->program->stage[step->stage];
    bool norm = step->node == &machine->program->optimizer->nodes.at[machine->program->sumsq];
    if (step->kind == STEP_MOVE && step->move->kind == MOVE_OWN)
        site_put(machine, site_of(machine, MUTATE_OWN, step));
    if (norm) {
        const Group *group = &stage->groups.at[stage->buckets.at[step->bucket].group];
        AtomSet distinct = (AtomSet)(group->sharded | list_set(&group->share));
        bool replicated = mesh_extent(mesh, distinct) < mesh_ranks(mesh);
        bool second = group->tied_stage != NONE && group->tied_stage < step->stage;
        Site site = site_of(machine, MUTATE_OWN, step);
        if (group_frozen(machine->program, stage, group))
            site.equivalent = "all gradients of the group are zero";
        if (group->rate == 0 && (replicated || second))
            site_put(machine, site);
    }
    if (step->kind == STEP_OWN_LOSS)
        for (int i = 0; i < stage->links; i++) {
            const Body *body = stage->link[i].body;
            if (body->losses > 0 &&
                mesh_extent(mesh, body->copies.at[body->loss[0]].place.partial) < mesh_ranks(mesh))
                site_put(machine, site_of(machine, MUTATE_OWN, step));
        }
}

/* What earlier micro-batches left in a gradient's home is lost. */
static void put_folds(Machine *machine, const Step *step)
{
    if (step->kind != STEP_ACCUMULATE || step->inst || step->first)
        return;
    Site site = site_of(machine, MUTATE_FORGET, step);
    const StageProgram *stage = &machine->program->stage[step->stage];
    if (group_frozen(machine->program, stage, &stage->groups.at[site.group]))
        site.equivalent = "all gradients of the group are zero";
    site_put(machine, site);
}

void machine_find_sites(Machine *machine)
{
    for (int s = 0; s < machine->program->stages; s++) {
        Arena *scratch = arena_new("sites");
        Walk *walk = walk_begin(scratch, machine->program, s, 0, 1);
        for (const Step *step; (step = walk_next(walk)) != NULL;) {
            bool together = step->kind == STEP_MOVE && step->stream != STREAM_COMPUTE;
            bool world = step->kind == STEP_WORLD && machine->ranks > 1;
            if (together || step->kind == STEP_TIED || world)
                put_moves(machine, step);
            if (step->kind == STEP_RECV)
                put_messages(machine, step);
            if (step->kind == STEP_KERNEL && step->inst) {
                put_bases(machine, step);
                if (step->link != NONE) {
                    put_runs(machine, step);
                    put_slots(machine, step);
                    put_versions(machine, step);
                }
            }
            if (step->kind == STEP_LOAD)
                put_runs(machine, step);
            if (step->kind == STEP_COPY)
                machine_hop_sites(machine, step);
            put_padding(machine, step);
            put_owners(machine, step);
            put_fetch(machine, step);
            put_folds(machine, step);
        }
        arena_free(scratch);
    }
}

bool site_hits(const Machine *machine, MutationKind kind, const Step *step)
{
    const Site *site = machine->site;
    if (!site || site->kind != kind || site->step != step->kind)
        return false;
    Site own = site_of(machine, kind, step);
    own.node = site->node;
    own.letter = site->letter;
    own.operand = site->operand;
    return same_site(site, &own);
}

int machine_sites(Machine *machine, MutationKind kind)
{
    int n = 0;
    for (int i = 0; i < machine->sites.n; i++)
        n += kind == MUTATE_NONE || machine->sites.at[i].kind == kind;
    return n;
}

Mutation machine_site(const Machine *machine, int index)
{
    return (Mutation){.kind = machine->sites.at[index].kind, .site = index};
}

const char *machine_equivalent(const Machine *machine, const Mutation *mutation)
{
    return machine->sites.at[mutation->site].equivalent;
}

const char *machine_site_name(Arena *arena, const Machine *machine, const Mutation *mutation)
{
    const Site *site = &machine->sites.at[mutation->site];
    Str text = str_new(arena);
    str_putf(&text, "%s ", mutation_text[site->kind]);
    if (site->node != NONE && site->letter == NONE)
        str_putf(&text, "%s", site->body->graph->nodes.at[site->node].name);
    else if (site->node != NONE)
        str_putf(&text, "letter %c of %s",
                 site->body->graph->nodes.at[site->node].sig.letter[site->letter],
                 site->body->graph->nodes.at[site->node].name);
    else if (site->operand != NONE)
        str_putf(&text, "%s", site->body->copies.at[site->inst->in[site->operand]].name);
    else if (site->inst)
        str_putf(&text, "%s of %s",
                 site->move ? move_text[site->move->kind] : step_text[site->step],
                 site->body->copies.at[site->inst->in[0]].name);
    else if (site->step == STEP_COPY && site->group == NONE)
        str_putf(&text, "%s of saved values", stream_text[site->stream]);
    else if (site->step == STEP_COPY)
        str_putf(&text, "%s of %s of group %d", stream_text[site->stream],
                 site->carries == KEPT_STATE ? "the state" : kept_text[site->carries], site->group);
    else if (site->move)
        str_putf(&text, "%s of gradient group %d", move_text[site->move->kind], site->group);
    else if (site->step == STEP_RECV)
        str_putf(&text, "%s message", site->message == MSG_ACTIVATION ? "activation" : "gradient");
    else
        str_putf(&text, "%s", site->step == STEP_KERNEL ? "gradient norm" : step_text[site->step]);
    if (site->body)
        str_putf(&text, " in %s", site->body->graph->name);
    if (site->stage != NONE)
        str_putf(&text, " on stage %d", site->stage);
    return text.at;
}
