/* trainer.c - a Program as trainer.c, kernels.h and kernels.cu: what the parts print, put together. */
#include "codegen/trainer.h"

#include <ctype.h>
#include <string.h>

#include "codegen/target.h"
#include "templates/templates.h"

/* ---- names --------------------------------------------------------------------------------------- */

const char *trainer_upper(Trainer *t, const char *text)
{
    char *copy = arena_strdup(t->arena, text);
    for (char *c = copy; *c; c++)
        *c = (char)toupper((unsigned char)*c);
    return copy;
}

const char *trainer_camel(Trainer *t, const char *text)
{
    Str out = str_new(t->arena);
    bool up = true;
    for (const char *c = text; *c; c++) {
        if (*c != '_')
            str_putc(&out, up ? (char)toupper((unsigned char)*c) : *c);
        up = *c == '_';
    }
    return out.at;
}

const char *trainer_comment(Trainer *t, const char *text)
{
    return emit_clean(t->arena, text, CLEAN_SENTENCE);
}

const char *trainer_param(Trainer *t, int class, int param)
{
    const Graph *graph = t->net->classes.at[class];
    const char *name = graph->values.at[graph->params.at[param].value].name;
    int twins = 0;
    for (int p = 0; p < param; p++) {
        const char *other = graph->values.at[graph->params.at[p].value].name;
        twins += str_eq(emit_ident(t->arena, other), emit_ident(t->arena, name));
    }
    const char *text = arena_printf(t->arena, "%s_%s", t->class_name[class], emit_ident(t->arena, name));
    return trainer_upper(t, twins ? arena_printf(t->arena, "%s_%d", text, twins + 1) : text);
}

const char *dtype_constant(DType dtype)
{
    static const char *const text[DT_COUNT] = {[DT_F32] = "LP_F32", [DT_F64] = "LP_F64", [DT_BF16] = "LP_BF16",
                                               [DT_I32] = "LP_I32"};
    return text[dtype];
}

const char *shape_comment(Trainer *t, const Body *body, int id)
{
    const Copy *copy = &body->copies.at[id];
    const Value *value = &body->graph->values.at[copy->value];
    Str dims = str_new(t->arena);
    if (value->axes == 0)
        return "scalar";
    for (int a = 0; a < value->axes; a++)
        str_putf(&dims, "%s%s", a ? " " : "", emit_clean(t->arena, t->net->dims.at[value->dim[a]].name, CLEAN_IDENT));
    for (int a = 0; a < value->axes; a++)
        str_putf(&dims, "%s%lld", a ? " x " : ": ", (long long)copy->local[a]);
    return dims.at;
}

AtomList atoms_as_list(AtomSet atoms)
{
    AtomList list = {0};
    for (int a = MAX_ATOMS - 1; a >= 0; a--) {
        if (atoms >> a & 1)
            list.at[list.n++] = (int8_t)a;
    }
    return list;
}

const char *trainer_list(Trainer *t, const AtomList *list, bool comm)
{
    for (int i = 0; i < t->lists.n; i++) {
        ListName *known = &t->lists.at[i];
        if (known->list.n == list->n && memcmp(known->list.at, list->at, (size_t)list->n) == 0) {
            known->comm = known->comm || comm;
            return known->name;
        }
    }
    Str name = str_new(t->arena);
    const char *before = "";
    for (int i = 0; i < list->n; i++) {
        const char *role = role_text[t->plan->mesh.atom[list->at[i]].role];
        if (!str_eq(role, before))
            str_putf(&name, "_%s", role);
        before = role;
    }
    const char *wanted = trainer_upper(t, arena_printf(t->arena, "over%s", list->n ? name.at : "_none"));
    wanted = names_take(&t->globals, wanted);
    vec_push(t->arena, &t->lists) = (ListName){*list, wanted, comm};
    return wanted;
}

const char *trainer_origin(Trainer *t, const AtomList *list, int64_t local)
{
    if (list->n == 0)
        return "0";
    return arena_printf(t->arena, "s->index[%s] * %lldL", trainer_list(t, list, false), (long long)local);
}

const char *trainer_kernel(Trainer *t, const RowProgram *program)
{
    const char *text = rows_print(t->arena, program, &target_host, program->name);
    for (int i = 0; i < t->kernels.n; i++) {
        if (str_eq(t->kernels.at[i].text, text))
            return t->kernels.at[i].unique;
    }
    const char *unique = names_take(&t->globals, program->name);
    vec_push(t->arena, &t->kernels) = (KernelText){program->name, text, unique, program};
    return unique;
}

bool inst_communicates(const Inst *inst)
{
    return inst->kind == INST_MOVE && inst->move.kind <= MOVE_PERMUTE;
}

const char *trainer_event(Trainer *t, int class, int backward, int inst)
{
    for (int i = 0; i < t->events.n; i++) {
        const EventName *known = &t->events.at[i];
        if (known->class == class && known->backward == backward && known->inst == inst)
            return known->name;
    }
    const Body *body = t->program->body[class];
    const Inst *at = &(backward ? &body->backward : &body->forward)->at[inst];
    const char *name = arena_printf(t->arena, "%s_%s", t->class_name[class], body->copies.at[at->out[0]].name);
    name = names_take(&t->globals, emit_ident(t->arena, name));
    vec_push(t->arena, &t->events) = (EventName){class, backward, inst, name};
    return name;
}

/* ---- the file ------------------------------------------------------------------------------------ */

static void print_title(Trainer *t, Emit *out, const char *plan_hash)
{
    const Plan *plan = t->plan;
    Str roles = str_new(t->arena);
    for (int a = 0; a < plan->mesh.n; a++)
        str_putf(&roles, "%s%s %d", a ? ", " : "", role_text[plan->mesh.atom[a].role], plan->mesh.atom[a].extent);
    emit_comment(out, "trainer.c - %s on %d ranks: %d stages of %d (%s), %d micro-batches of %lld sequences. Printed by lplan "
                      "from plan %s, templates %s; changes belong in the plan.",
                 emit_clean(t->arena, t->net->name, CLEAN_NAME), plan->ranks, plan->stages, plan->ranks / plan->stages,
                 plan->mesh.n ? roles.at : "one rank", plan->micro_batches,
                 (long long)t->net->dims.at[t->net->batch].extent, plan_hash, template_set_hash());
    emit_text(out, "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n#include <stdlib.h>\n#include <string.h>\n\n"
                   "#ifdef _OPENMP\n#include <omp.h>\n#endif\n\n"
                   "#include \"runtime/lp.h\"\n\n"
                   "/* In this order: later texts use earlier ones. */\n"
                   "#include \"templates/host/math.h\"\n#include \"templates/host/tile.h\"\n#include \"templates/host/gemm.h\"\n"
                   "#include \"templates/host/attention.c\"\n#include \"templates/host/embedding.c\"\n"
                   "#include \"templates/host/flat.h\"\n\n"
                   "#include \"kernels.h\"\n\n");
}

/* Enough for the rings of every stage. */
static int most_slots(const Trainer *t)
{
    int n = 1;
    for (int s = 0; s < t->program->stages; s++) {
        for (int r = RING_IN; r < RING_COUNT; r++) {
            int slots = t->program->stage[s].ring[r].n;
            n = slots > n ? slots : n;
        }
    }
    return n;
}

static int most_buckets(const Trainer *t)
{
    int n = 1;
    for (int s = 0; s < t->program->stages; s++) {
        int buckets = t->program->stage[s].buckets.n;
        n = buckets > n ? buckets : n;
    }
    return n;
}

static bool any_tied(const Trainer *t)
{
    for (int s = 0; s < t->program->stages; s++) {
        for (int g = 0; g < t->program->stage[s].groups.n; g++) {
            if (t->program->stage[s].groups.at[g].tied_stage != NONE)
                return true;
        }
    }
    return false;
}

static void print_state(Trainer *t, Emit *out)
{
    Str lists = str_new(t->arena);
    for (int i = 0; i < t->lists.n; i++)
        str_putf(&lists, "%s, ", t->lists.at[i].name);
    emit_comment(out, "Lists of mesh coordinates: a rank's index along one, and its group.");
    emit_line(out, "enum { %sLISTS };", lists.at);
    emit_line(out, "enum { RANKS_PER_STAGE = %d };", t->plan->ranks / t->plan->stages);
    int64_t scalars = t->program->stage[0].scalars;
    emit_line(out, "enum { LOSS_AT = %lld, PAIR_AT = %lld }; /* loss of this rank; {loss, norm^2} of the world */",
              (long long)(scalars + 64 * SCALAR_LOSS), (long long)(scalars + 64 * SCALAR_PAIR));
    emit_line(out, "enum { IDS, LABELS, WEIGHT };");
    emit_blank(out);
    emit_comment(out, "All that changes on one rank, besides its arena.");
    emit_open(out, "typedef struct State");
    emit_line(out, "const LpRank *rank;");
    emit_line(out, "unsigned char *arena;");
    emit_line(out, "int threads;");
    emit_line(out, "int index[LISTS], comm[LISTS];");
    if (any_tied(t))
        emit_line(out, "int tied; /* this rank and its peer in the other home stage of tied parameters */");
    emit_line(out, "void *scratch;       /* of attention */");
    emit_line(out, "unsigned char *pack; /* blocks of collectives that are not contiguous */");
    emit_line(out, "double loss, norm, coef, lr, step;");
    emit_line(out, "LpEvent world, bucket[%d];", most_buckets(t));
    if (t->plan->stages > 1) {
        int n = most_slots(t);
        emit_line(out, "LpEvent send_activation[%d], recv_activation[%d];", n, n);
        emit_line(out, "LpEvent send_gradient[%d], recv_gradient[%d];", n, n);
    }
    for (int i = 0; i < t->events.n; i++) {
        const EventName *event = &t->events.at[i];
        const Body *body = t->program->body[event->class];
        const Inst *inst = &(event->backward ? &body->backward : &body->forward)->at[event->inst];
        emit_line(out, "LpEvent %s; /* %s: %s */", event->name, move_text[inst->move.kind],
                  trainer_comment(t, inst->why ? inst->why : ""));
    }
    emit_close(out, " State;");
    emit_blank(out);
}

static void print_places(Emit *out, int stages)
{
    emit_text(out, "/* What an offset counts from: the arena, the scratch area, or the slot of a micro-batch in a ring. */\n"
                   "typedef enum Base {\n"
                   "    AT_ARENA, AT_SCRATCH, AT_DATA, AT_SAVED, AT_IN, AT_OUT, AT_GRAD_IN, AT_GRAD_OUT, AT_COUNT\n"
                   "} Base;\n\n"
                   "typedef struct Slots {\n    unsigned char *base[AT_COUNT];\n} Slots;\n\n"
                   "typedef struct Where {\n    Base base;\n    int64_t offset;\n} Where;\n\n"
                   "static inline void *arena_at(const State *s, int64_t offset)\n{\n    return s->arena + offset;\n}\n\n"
                   "static inline void *place_after(const Slots *at, Where where, int64_t offset)\n{\n"
                   "    return at->base[where.base] + where.offset + offset;\n}\n\n"
                   "static inline void *place(const Slots *at, Where where)\n{\n    return place_after(at, where, 0);\n}\n\n"
                   "static inline void *scratch_at(const Slots *at, int64_t offset)\n{\n"
                   "    return at->base[AT_SCRATCH] + offset;\n}\n\n");
    if (stages > 1)
        emit_text(out, "static int peer_of(const State *s, int stage)\n{\n"
                   "    return stage * RANKS_PER_STAGE + s->rank->stage_rank;\n}\n\n");
}

static void print_optimizer(Emit *out)
{
    emit_text(out, "typedef struct DecayRun {\n    int64_t begin, end;\n    bool decay;\n} DecayRun;\n\n"
                   "typedef struct Group {\n    int64_t weight, gradient, moment1, moment2; /* addresses */\n"
                   "    int share; /* list that cuts the optimizer's share */\n"
                   "    int owner; /* list at whose coordinate 0 an element counts for the norm */\n"
                   "    bool home; /* the first home stage of tied parameters */\n"
                   "    const DecayRun *runs;\n    int run_count;\n} Group;\n\n"
                   "typedef struct Bucket {\n    int group, close_link;\n"
                   "    int64_t begin, elements, share_begin, share_elements;\n} Bucket;\n\n"
                   "typedef struct Part {\n    int tensor;\n    int64_t weight, gradient;\n    int ndims;\n"
                   "    int64_t dims[LP_MAX_DIMS], extent[LP_MAX_DIMS];\n    int list[LP_MAX_DIMS], owner;\n"
                   "    bool home;\n} Part;\n\n"
                   "/* First element of this rank's share of a bucket, in its group. */\n"
                   "static int64_t bucket_share(const State *s, const Group *groups, const Bucket *bucket)\n{\n"
                   "    return bucket->begin + bucket->share_elements * s->index[groups[bucket->group].share];\n}\n\n"
                   "/* AdamW on elements [begin, begin + share) of a group, run by run of one decay flag. */\n"
                   "static void update_share(State *s, const Group *group, const Bucket *bucket, int64_t begin)\n{\n"
                   "    const LpOptions *o = s->rank->options;\n"
                   "    const int64_t end = begin + bucket->share_elements, state = bucket->share_begin - begin;\n"
                   "    float *w = arena_at(s, group->weight), *g = arena_at(s, group->gradient);\n"
                   "    float *m = (float *)arena_at(s, group->moment1) + state;\n"
                   "    float *v = (float *)arena_at(s, group->moment2) + state;\n"
                   "    for (int i = 0; i < group->run_count; i++) {\n"
                   "        const DecayRun *run = &group->runs[i];\n"
                   "        const int64_t from = run->begin > begin ? run->begin : begin;\n"
                   "        const int64_t to = run->end < end ? run->end : end;\n"
                   "        const double decay = run->decay ? o->weight_decay : 0.0;\n"
                   "        if (from < to)\n"
                   "            lp_adamw(to - from, lp_adam(o->beta1, o->beta2, o->eps, decay, s->lr, s->step, s->coef),\n"
                   "                     w + from, m + from, v + from, g + from);\n"
                   "    }\n}\n\n"
                   "static LpPart part_of(State *s, const Part *part, bool gradient)\n{\n"
                   "    LpPart made = {.tensor = part->tensor, .shard = {.ndims = part->ndims}, .dtype = LP_F32};\n"
                   "    made.data = arena_at(s, gradient ? part->gradient : part->weight);\n"
                   "    made.owner = part->home && s->index[part->owner] == 0;\n"
                   "    for (int a = 0; a < part->ndims; a++) {\n"
                   "        made.shard.dims[a] = part->dims[a];\n"
                   "        made.shard.extent[a] = part->extent[a];\n"
                   "        made.shard.begin[a] = s->index[part->list[a]] * part->extent[a];\n"
                   "    }\n    return made;\n}\n\n");
}

/* Index along a list in terms of the rank inside the stage: mixed radix, major first. */
static const char *index_formula(Trainer *t, const AtomList *list)
{
    const Mesh *mesh = &t->plan->mesh;
    if (list->n == 0)
        return "0";
    const char *text = NULL;
    for (int i = 0; i < list->n; i++) {
        int stride = 1;
        for (int a = 0; a < list->at[i]; a++)
            stride *= mesh->atom[a].extent;
        int extent = mesh->atom[list->at[i]].extent;
        const char *digit = stride == 1 ? arena_printf(t->arena, "c %% %d", extent)
                                        : arena_printf(t->arena, "c / %d %% %d", stride, extent);
        text = text ? arena_printf(t->arena, "(%s) * %d + %s", text, extent, digit) : digit;
    }
    return text;
}

static void print_group_table(Trainer *t, Emit *out, const ListName *list)
{
    const Mesh *mesh = &t->plan->mesh;
    int per_stage = mesh_ranks(mesh), n = list_extent(mesh, &list->list), group[4096];
    CHECK(n <= 4096);
    Str rows = str_new(t->arena);
    int groups = 0;
    for (int stage = 0; stage < t->plan->stages; stage++) {
        for (int rank = 0; rank < per_stage; rank++) {
            if (list_index(mesh, &list->list, rank) != 0)
                continue;
            mesh_group(mesh, &list->list, rank, group, 4096);
            str_put(&rows, groups++ ? ", {" : "{");
            for (int i = 0; i < n; i++)
                str_putf(&rows, "%s%d", i ? ", " : "", stage * per_stage + group[i]);
            str_put(&rows, "}");
        }
    }
    const char *name = trainer_upper(t, list->name);
    char *lower = arena_strdup(t->arena, name);
    for (char *c = lower; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    emit_line(out, "static const int %s[%d][%d] = {%s};", lower, groups, n, rows.at);
    emit_open(out, "for (int g = 0; g < %d; g++)", groups);
    emit_line(out, "const int comm = lp_comm(%s[g], %d);", lower, n);
    emit_open(out, "for (int i = 0; i < %d; i++)", n);
    emit_line(out, "if (%s[g][i] == rank->index)", lower);
    emit_line(out, "    s->comm[%s] = comm;", name);
    emit_close(out, "");
    emit_close(out, "");
}

static void print_tied_pairs(Trainer *t, Emit *out)
{
    if (!any_tied(t))
        return;
    for (int s = 0; s < t->program->stages; s++) {
        for (int g = 0; g < t->program->stage[s].groups.n; g++) {
            int other = t->program->stage[s].groups.at[g].tied_stage;
            if (other == NONE || other < s)
                continue;
            emit_open(out, "for (int i = 0; i < RANKS_PER_STAGE; i++)");
            emit_line(out, "const int pair[2] = {%d * RANKS_PER_STAGE + i, %d * RANKS_PER_STAGE + i};", s, other);
            emit_line(out, "const int comm = lp_comm(pair, 2);");
            emit_line(out, "if (rank->index == pair[0] || rank->index == pair[1])");
            emit_line(out, "    s->tied = comm;");
            emit_close(out, "");
            return; /* one pair of stages: the first and the last of the chain */
        }
    }
}

static void print_begin(Trainer *t, Emit *out)
{
    emit_comment(out, "Coordinates, groups (every rank names every group, in one order), and memory outside the arena.");
    emit_open_function(out, "static void state_begin(State *s, const LpRank *rank)");
    emit_line(out, "const int c = rank->stage_rank;");
    emit_line(out, "s->rank = rank;");
    emit_line(out, "s->arena = rank->arena;");
    emit_line(out, "s->threads = thread_limit();");
    emit_line(out, "(void)c;");
    for (int i = 0; i < t->lists.n; i++)
        emit_line(out, "s->index[%s] = %s;", t->lists.at[i].name, index_formula(t, &t->lists.at[i].list));
    for (int i = 0; i < t->lists.n; i++) {
        if (t->lists.at[i].comm)
            print_group_table(t, out, &t->lists.at[i]);
    }
    print_tied_pairs(t, out);
    emit_line(out, "size_t bytes = 64;");
    for (int i = 0; i < t->widths.n; i++) {
        emit_line(out, "bytes = larger(bytes, LP_ATTENTION_FORWARD_BYTES(%lld, s->threads));", (long long)t->widths.at[i]);
        emit_line(out, "bytes = larger(bytes, LP_ATTENTION_BACKWARD_BYTES(%lld, s->threads));", (long long)t->widths.at[i]);
    }
    emit_line(out, "s->scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);");
    emit_line(out, "s->pack = aligned_alloc(64, %lld);", (long long)(t->pack_bytes ? t->pack_bytes : 64));
    emit_line(out, "if (!s->scratch || !s->pack)");
    emit_line(out, "    lp_fail(3, \"no memory for %%zu bytes of scratch\", bytes + %lld);", (long long)t->pack_bytes);
    emit_close(out, "");
    emit_blank(out);
}

static void print_run(Trainer *t, Emit *out)
{
    emit_comment(out, "Nothing is under way when the run ends.");
    emit_open_function(out, "static void state_end(State *s)");
    emit_line(out, "lp_wait(&s->world);");
    emit_line(out, "for (int b = 0; b < LP_COUNT(s->bucket); b++)");
    emit_line(out, "    lp_wait(&s->bucket[b]);");
    if (t->plan->stages > 1) {
        emit_open(out, "for (int slot = 0; slot < LP_COUNT(s->send_activation); slot++)");
        emit_line(out, "lp_wait(&s->send_activation[slot]);");
        emit_line(out, "lp_wait(&s->recv_activation[slot]);");
        emit_line(out, "lp_wait(&s->send_gradient[slot]);");
        emit_line(out, "lp_wait(&s->recv_gradient[slot]);");
        emit_close(out, "");
    }
    for (int i = 0; i < t->events.n; i++)
        emit_line(out, "lp_wait(&s->%s);", t->events.at[i].name);
    emit_line(out, "free(s->scratch);");
    emit_line(out, "free(s->pack);");
    emit_close(out, "");
    emit_blank(out);
    emit_open_function(out, "static void run_rank(const LpRank *rank)");
    emit_line(out, "State state = {0}, *s = &state;");
    emit_line(out, "LpPart parts[MAX_PARTS];");
    emit_line(out, "state_begin(s, rank);");
    emit_line(out, "const int count = parts_of(s, parts, false);");
    emit_line(out, "lp_load(parts, count);");
    emit_open(out, "for (int64_t step = 0; lp_step_begin(step); step++)");
    emit_line(out, "s->lr = lp_lr(step);");
    emit_line(out, "s->step = (double)step + 1.0;");
    if (t->plan->stages == 1) {
        emit_line(out, "stage0_step(s, step);");
    } else {
        emit_line(out, "switch (rank->stage) {");
        for (int i = 0; i < t->plan->stages; i++) {
            emit_line(out, "case %d:", i);
            emit_line(out, "    stage%d_step(s, step);", i);
            emit_line(out, "    break;");
        }
        emit_line(out, "}");
    }
    emit_line(out, "lp_step_end(rank->index == 0 ? s->loss : 0.0, s->norm, s->lr);");
    emit_close(out, "");
    emit_line(out, "for (int b = 0; b < LP_COUNT(s->bucket); b++)");
    emit_line(out, "    lp_wait(&s->bucket[b]);");
    emit_line(out, "lp_finish(parts, count);");
    emit_line(out, "state_end(s);");
    emit_close(out, "");
    emit_blank(out);
}

static int64_t flops_per_step(const Trainer *t)
{
    int64_t flops = 0;
    for (int l = 0; l < t->net->chain.n; l++) {
        const Graph *graph = t->net->classes.at[t->net->chain.at[l].class];
        for (int n = 0; n < graph->nodes.n; n++)
            flops += node_flops(t->net, &graph->nodes.at[n]);
    }
    return flops * t->plan->micro_batches;
}

/* Ids lie below the used rows of the table they are looked up in. */
static int64_t vocabulary(const Trainer *t)
{
    for (int c = 0; c < t->net->classes.n; c++) {
        const Graph *graph = t->net->classes.at[c];
        for (int n = 0; n < graph->nodes.n; n++) {
            const Node *node = &graph->nodes.at[n];
            if (node->op == OP_LOOKUP && node->in[0] == graph->data[DATA_IDS])
                return t->net->dims.at[graph->values.at[node->in[1]].dim[0]].used;
        }
    }
    return 1;
}

static void print_job(Trainer *t, Emit *out, const char *plan_hash)
{
    const Plan *plan = t->plan;
    const Job *job = &plan->job;
    Str arenas = str_new(t->arena);
    for (int s = 0; s < plan->stages; s++)
        str_putf(&arenas, "%s%lldL", s ? ", " : "", (long long)t->program->stage[s].arena_bytes);
    emit_line(out, "static const int64_t arena_bytes[] = {%s};", arenas.at);
    emit_blank(out);
    emit_line(out, "static const LpJob job = {");
    out->depth++;
    emit_line(out, ".name = \"%s\",", emit_clean(t->arena, t->net->name, CLEAN_NAME));
    emit_line(out, ".plan_hash = \"%s\",", emit_clean(t->arena, plan_hash, CLEAN_IDENT));
    emit_line(out, ".ranks = %d,", plan->ranks);
    emit_line(out, ".stages = %d,", plan->stages);
    emit_line(out, ".ranks_per_stage = RANKS_PER_STAGE,");
    emit_line(out, ".params_total = %lld,", (long long)net_param_count(t->net));
    emit_line(out, ".flops_per_step = %lld,", (long long)flops_per_step(t));
    emit_line(out, ".peak_flops = %lld,", plan->cluster ? (long long)plan->cluster->device.flops_f32 : 0LL);
    emit_line(out, ".tokens_per_step = %lld,", (long long)(job->global_batch * job->sequence));
    emit_line(out, ".arena_bytes = arena_bytes,");
    emit_line(out, ".tensors = tensors,");
    emit_line(out, ".tensor_count = LP_COUNT(tensors),");
    emit_line(out, ".seq = %lld,", (long long)t->net->dims.at[t->net->sequence].extent);
    emit_line(out, ".vocab = %lld,", (long long)vocabulary(t));
    emit_line(out, ".micro_batches = %d,", plan->micro_batches);
    emit_line(out, ".rows = %lld,", (long long)t->net->dims.at[t->net->batch].extent);
    emit_line(out, ".defaults = {.lr = 3e-4, .weight_decay = %.9g, .beta1 = %.9g, .beta2 = %.9g, .eps = %.9g, .clip = %.9g,",
              job->decay, job->beta1, job->beta2, job->eps, job->clip > 0 ? job->clip : 0.0);
    emit_line(out, "             .steps = 10, .schedule = LP_CONSTANT, .data = \"random\"},");
    emit_line(out, ".run = run_rank,");
    out->depth--;
    emit_line(out, "};");
    emit_blank(out);
    emit_open_function(out, "int main(int argc, char **argv)");
    emit_line(out, "return lp_main(argc, argv, &job);");
    emit_close(out, "");
}

static const char *print_kernels(Trainer *t, const Target *target)
{
    Emit out = emit_new(t->arena);
    for (int i = 0; i < t->kernels.n; i++) {
        const KernelText *kernel = &t->kernels.at[i];
        emit_text(&out, rows_print(t->arena, kernel->program, target, kernel->unique));
        emit_blank(&out);
    }
    return out.text.at;
}

static bool is_printable(Diag *diag, const Program *program)
{
    const Recipe *recipe = program->recipe;
    if (recipe->weight == DT_F32 && recipe->activation == DT_F32 && recipe->gradient == DT_F32 && !recipe->has_master)
        return true;
    diag_error(diag, NO_SPAN, "the host target trains in fp32, the plan says %s", recipe->name);
    diag_help(diag, "plan with --recipe fp32; other recipes are priced and proven, not built");
    return false;
}

/* Names of our own that model names must not take. */
static void reserve_names(Trainer *t)
{
    static const char *const taken[] = {"State", "Slots", "Where", "Base", "Group", "Bucket", "Part", "place", "job", "tensors",
                                        "memcpy", "memset", "larger", "pair", "exp", "log", "index", "link"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        names_take(&t->globals, taken[i]);
    t->class_name = ARENA_ARRAY(t->arena, const char *, t->net->classes.n);
    for (int c = 0; c < t->net->classes.n; c++) {
        const char *name = emit_ident(t->arena, t->net->classes.at[c]->name);
        /* stage0_forward is ours */
        if (strncmp(name, "stage", 5) == 0)
            name = arena_printf(t->arena, "block_%s", name);
        t->class_name[c] = names_take(&t->globals, name);
    }
}

TrainerText *trainer_print(Arena *arena, Diag *diag, const Program *program, const char *plan_hash)
{
    if (!is_printable(diag, program))
        return NULL;
    Trainer t = {.arena = arena, .diag = diag, .program = program, .plan = program->plan, .net = program->net,
                 .waits = waits_collect(arena, program), .globals = names_new(arena)};
    reserve_names(&t);
    int errors = diag_errors(diag);
    Emit bodies = emit_new(arena), stages = emit_new(arena), out = emit_new(arena);
    for (int c = 0; c < t.net->classes.n; c++) {
        trainer_print_body(&t, &bodies, c, false);
        trainer_print_body(&t, &bodies, c, true);
    }
    Emit params = emit_new(arena);
    trainer_print_params(&t, &params);
    for (int s = 0; s < program->stages; s++) {
        trainer_print_link_tables(&t, &stages, s);
        trainer_print_stage(&t, &stages, s);
        trainer_print_schedule(&t, &stages, s);
    }
    if (diag_errors(diag) > errors)
        return NULL;
    print_title(&t, &out, plan_hash);
    print_state(&t, &out);
    print_places(&out, program->stages);
    trainer_print_link_types(&t, &out);
    emit_text(&out, bodies.text.at);
    print_optimizer(&out);
    emit_text(&out, params.text.at);
    emit_text(&out, stages.text.at);
    emit_text(&out, "static size_t larger(size_t a, size_t b)\n{\n    return a > b ? a : b;\n}\n\n"
                    "static int thread_limit(void)\n{\n#ifdef _OPENMP\n    return omp_get_max_threads();\n#else\n"
                    "    return 1;\n#endif\n}\n\n");
    print_begin(&t, &out);
    print_run(&t, &out);
    print_job(&t, &out, plan_hash);
    TrainerText *text = ARENA_NEW(arena, TrainerText);
    text->trainer = out.text.at;
    text->kernels = arena_printf(arena, "/* kernels.h - the row programs of this plan, one function for each that differs. */\n\n%s",
                                 print_kernels(&t, &target_host));
    text->cuda = arena_printf(arena, "/* kernels.cu - the same row programs for CUDA; a block takes rows, its threads columns. */\n"
                                     "LP_DEVICE float lp_sigmoid(float x)\n{\n    return 1.0f / (1.0f + __expf(-x));\n}\n\n%s",
                              print_kernels(&t, &target_cuda));
    text->kernel_count = t.kernels.n;
    return text;
}
