/* trainer.c - a Program as trainer.c, kernels.h and kernels.cu: what the parts print, put together.
 */
#include "codegen/trainer.h"

#include <ctype.h>
#include <string.h>

#include "codegen/target.h"
#include "ir/lower/braid.h"
#include "ir/plan_parts.h"
#include "templates/templates.h"

/* "tp 2, dp 4": the ranks of each role, in the order of their atoms. */
static void put_roles(Str *text, const Mesh *mesh)
{
    bool said[ROLE_COUNT] = {false};
    for (int a = 0; a < mesh->n; a++) {
        Role role = mesh->atom[a].role;
        int ranks = 1;
        for (int b = a; b < mesh->n; b++)
            ranks *= mesh->atom[b].role == role ? mesh->atom[b].extent : 1;
        if (!said[role])
            str_putf(text, "%s%s %d", a ? ", " : "", role_text[role], ranks);
        said[role] = true;
    }
}

/* "2 stages of 2 (tp 2), " where there is more than one rank; what is otherwise in some layers
 * follows: "(dp 4; layer_2: tp 4)". */
static const char *mesh_text(Trainer *t)
{
    const Plan *plan = t->plan;
    Str roles = str_new(t->arena);
    put_roles(&roles, &plan->mesh);
    for (int c = 0; c < t->net->classes.n; c++) {
        if (mesh_same_roles(t->program->body[c]->mesh, &plan->mesh))
            continue;
        str_putf(&roles, "; %s: ", t->class_name[c]);
        put_roles(&roles, t->program->body[c]->mesh);
    }
    if (plan->ranks == 1)
        return "";
    return arena_printf(
        t->arena, "%s of %s%s%s%s, ", trainer_count(t, plan->stages, "stage", "stages"),
        trainer_count(t, plan->ranks / plan->stages, "rank", "ranks"), plan->mesh.n ? " (" : "",
        plan->mesh.n ? roles.at : "", plan->mesh.n ? ")" : "");
}

static const char *products_text(const Trainer *t)
{
    const Recipe *recipe = t->program->recipe;
    if (recipe->activation == DT_BF16)
        return "operands as stored, in bf16, sums in fp32; by oneDNN under LP_ONEDNN, else plain C";
    if (recipe->activation == DT_F16)
        return "operands as stored, in fp16, sums in fp32; plain C";
    if (!t->options->gemm_bf16)
        return "fp32";
    return t->routes.used
               ? "operands in bf16 but for those of experts, sums in fp32; by oneDNN under "
                 "LP_ONEDNN, else plain C"
               : "operands in bf16, sums in fp32; by oneDNN under LP_ONEDNN, else plain C";
}

static void print_title(Trainer *t, Emit *out)
{
    emit_comment(out,
                 "trainer.c - %s on %s: %s%s of %s. Products of matrices: %s. Printed by lplan "
                 "from plan %s, templates %s; changes belong in the plan.",
                 emit_clean(t->arena, t->net->name, CLEAN_NAME),
                 trainer_count(t, t->plan->ranks, "rank", "ranks"), mesh_text(t),
                 trainer_count(t, t->plan->micro_batches, "micro-batch", "micro-batches"),
                 trainer_count(t, t->net->dims.at[t->net->batch].extent, "sequence", "sequences"),
                 products_text(t), t->options->plan_hash, template_set_hash());
    if (t->program->recipe->activation == DT_BF16)
        emit_text(out, "#define LP_REAL_BF16 1 /* how weights and activations are stored */\n");
    if (t->program->recipe->activation == DT_F16)
        emit_text(out, "#define LP_REAL_F16 1 /* how weights and activations are stored */\n");
    emit_text(out, "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n#include "
                   "<stdlib.h>\n#include <string.h>\n\n"
                   "#include \"runtime/lp.h\"\n\n"
                   "/* In this order: later texts use earlier ones. */\n"
                   "#include \"templates/host/math.h\"\n#include \"templates/host/draw.h\"\n"
                   "#include \"templates/host/tile.h\"\n#include \"templates/host/gemm.h\"\n");
    bool narrow = t->program->recipe->activation != DT_F32;
    emit_text(out, "#include \"templates/host/real.h\"\n");
    if (t->options->gemm_bf16 || narrow)
        emit_text(out, "#include \"templates/host/gemm_typed.h\"\n");
    if (t->options->gemm_bf16)
        emit_text(out, "#include \"templates/host/gemm_bf16.h\"\n");
    emit_text(out,
              "#include \"templates/host/attention_tile.h\"\n"
              "#include \"templates/host/attention.c\"\n#include \"templates/host/embedding.c\"\n"
              "#include \"templates/host/flat.h\"\n#include \"templates/host/exact.h\"\n"
              "#include \"templates/host/stage.h\"\n");
    trainer_print_expert_includes(t, out);
    emit_text(out, "\n#include \"kernels.h\"\n\n");
}

/* Enough for the rings of every stage, of all chunks in a row. */
static int most_slots(const Trainer *t)
{
    int n = 1;
    for (int s = 0; s < t->program->stages; s++) {
        for (int r = RING_IN; r < RING_COUNT; r++) {
            int slots = 0;
            for (int c = 0; c < t->program->stage[s].chunks; c++)
                slots += t->program->stage[s].chunk[c].ring[r].n;
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
    if (!trainer_one_tie(t))
        emit_line(out, "enum { STAGES = %d };", t->plan->stages);
    int64_t scalars = t->program->stage[0].scalars;
    emit_line_comment(out,
                      arena_printf(t->arena, "enum { LOSS_AT = %lld, TOTALS_AT = %lld };",
                                   (long long)(scalars + 64 * SCALAR_LOSS),
                                   (long long)t->program->stage[0].pair.base),
                      t->program->flows ? "loss of this rank; sums of the world, a ring of steps"
                                        : "loss of this rank; sums of the world");
    Str kinds = str_new(t->arena);
    for (int d = 0; d < trainer_data_kinds(t); d++)
        str_putf(&kinds, "%s%s", d ? ", " : "", trainer_data(t, d));
    emit_line(out, "enum { %s };", kinds.at);
    emit_blank(out);
    emit_comment(out, "What the world adds up once a step. The squares of gradients are added "
                      "without rounding: their sum is the same however they are cut.");
    emit_open(out, "typedef struct Totals");
    emit_line(out, "LpExact norm2;");
    emit_line(out, "double loss[%d];", net_losses(t->net));
    if (t->program->flows)
        emit_line(out, "double stop;");
    emit_close(out, " Totals;");
    emit_blank(out);
    emit_comment(out, "All that changes on one rank, besides its arena.");
    emit_open(out, "typedef struct State");
    emit_line(out, "const LpRank *rank;");
    emit_line(out, "unsigned char *arena;");
    emit_line(out, "int threads;");
    emit_line(out, "int index[LISTS], comm[LISTS];");
    if (any_tied(t))
        emit_line_comment(out, trainer_one_tie(t) ? "int tied;" : "int tied[STAGES];",
                          trainer_one_tie(t)
                              ? "this rank and its peer in the other home stage of tied parameters"
                              : "this rank and its peer in another home stage of tied parameters");
    emit_line(out, t->options->gemm_bf16
                       ? "void *scratch;       /* of attention, and of products in bf16 */"
                       : "void *scratch;       /* of attention */");
    emit_line(out, "unsigned char *pack; /* blocks of collectives that are not contiguous */");
    emit_line(out, "double loss, norm, coef, lr, step;");
    if (t->program->recipe->scales_loss) {
        emit_line(out, "double scale; /* of this step's loss and gradients */");
        emit_line(out, "bool skipped; /* they overflowed */");
    }
    if (t->program->flows)
        trainer_print_flow_state(out);
    if (trainer_draws(t)) {
        emit_line(out, "long seed;     /* of what is drawn */");
        if (!t->program->flows)
            emit_line(out, "int64_t begun; /* samples before this step */");
        emit_line(out, "long sample;   /* of the run: the first of the micro-batch at work */");
        if (t->braids)
            emit_line(out, "long sample_back; /* of the backward beside it */");
        emit_line(out, "bool evaluates; /* nothing is drawn */");
    }
    emit_line(out, "LpEvent world, bucket[%d];", most_buckets(t));
    if (trainer_fetches(t))
        emit_line_comment(out, arena_printf(t->arena, "LpEvent fetch[%d];", most_buckets(t)),
                          "weights of a bucket on their way to a use");
    trainer_print_hop_events(t, out, most_buckets(t));
    trainer_print_carry_events(t, out, most_buckets(t));
    trainer_print_sums_events(t, out, most_buckets(t));
    trainer_print_spill_events(t, out);
    if (t->plan->stages > 1) {
        int n = most_slots(t);
        emit_line(out, "LpEvent send_activation[%d], recv_activation[%d];", n, n);
        emit_line(out, "LpEvent send_gradient[%d], recv_gradient[%d];", n, n);
    }
    for (int i = 0; i < t->events.n; i++) {
        const EventName *event = &t->events.at[i];
        const Body *body = t->program->body[event->class];
        const Inst *inst = &body_list(body, event->which)->at[event->inst];
        emit_line_comment(out, arena_printf(t->arena, "LpEvent %s;", event->name),
                          trainer_comment(t, inst->why ? inst->why : ""));
    }
    emit_close(out, " State;");
    emit_blank(out);
}

static void print_helpers(Trainer *t, Emit *out)
{
    emit_open_function(out, "static inline void *arena_at(const State *s, int64_t offset)");
    emit_line(out, "return s->arena + offset;");
    emit_close(out, "");
    emit_blank(out);
    if (t->program->flows)
        trainer_print_flow_helpers(t, out);
    if (t->plan->stages == 1)
        return;
    emit_comment(out, "The rank of another stage with this rank's coordinates.");
    emit_open_function(out, "static int peer_of(const State *s, int stage)");
    emit_line(out, "return stage * RANKS_PER_STAGE + s->rank->stage_rank;");
    emit_close(out, "");
    emit_blank(out);
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
    if (groups == 1) {
        rows.at[rows.n - 1] = 0; /* the row without its braces */
        emit_line(out, "static const int %s[%d] = {%s};", lower, n, rows.at + 1);
        emit_line(out, "s->comm[%s] = lp_comm(%s, %d);", name, lower, n);
        return;
    }
    emit_line(out, "static const int %s[%d][%d] = {%s};", lower, groups, n, rows.at);
    emit_open(out, "for (int g = 0; g < %d; g++)", groups);
    emit_line(out, "const int comm = lp_comm(%s[g], %d);", lower, n);
    emit_open(out, "for (int i = 0; i < %d; i++)", n);
    emit_line(out, "if (%s[g][i] == rank->index)", lower);
    emit_line(out, "    s->comm[%s] = comm;", name);
    emit_close(out, "");
    emit_close(out, "");
}

bool trainer_one_tie(const Trainer *t)
{
    int low = NONE, high = NONE;
    for (int s = 0; s < t->program->stages; s++) {
        for (int g = 0; g < t->program->stage[s].groups.n; g++) {
            int other = t->program->stage[s].groups.at[g].tied_stage;
            if (other == NONE || other < s)
                continue;
            if (low != NONE && (low != s || high != other))
                return false;
            low = s;
            high = other;
        }
    }
    return true;
}

/* An earlier group of the stage is tied with the same stage. */
static bool tied_before(const Trainer *t, int s, int g)
{
    const StageProgram *stage = &t->program->stage[s];
    for (int k = 0; k < g; k++)
        if (stage->groups.at[k].tied_stage == stage->groups.at[g].tied_stage)
            return true;
    return false;
}

static void print_tied_pairs(Trainer *t, Emit *out)
{
    if (!any_tied(t))
        return;
    for (int s = 0; s < t->program->stages; s++) {
        for (int g = 0; g < t->program->stage[s].groups.n; g++) {
            int other = t->program->stage[s].groups.at[g].tied_stage;
            if (other == NONE || other < s || tied_before(t, s, g))
                continue;
            emit_open(out, "for (int i = 0; i < RANKS_PER_STAGE; i++)");
            emit_line(out,
                      "const int pair[2] = {%d * RANKS_PER_STAGE + i, %d * RANKS_PER_STAGE + i};",
                      s, other);
            emit_line(out, "const int comm = lp_comm(pair, 2);");
            if (trainer_one_tie(t)) {
                emit_line(out, "if (rank->index == pair[0] || rank->index == pair[1])");
                emit_line(out, "    s->tied = comm;");
                emit_close(out, "");
                return;
            }
            for (int k = 0; k < 2; k++) {
                emit_line(out, "if (rank->index == pair[%d])", k);
                emit_line(out, "    s->tied[%d] = comm;", k ? s : other);
            }
            emit_close(out, "");
        }
    }
}

static void print_begin(Trainer *t, Emit *out)
{
    emit_comment(out, "Coordinates, groups (every rank names every group, in one order), and "
                      "memory outside the arena.");
    emit_open_function(out, "static void state_begin(State *s, const LpRank *rank)");
    bool split = false;
    for (int i = 0; i < t->lists.n; i++)
        split = split || t->lists.at[i].list.n > 0;
    if (split)
        emit_line(out, "const int c = rank->stage_rank;");
    emit_line(out, "s->rank = rank;");
    emit_line(out, "s->arena = rank->arena;");
    emit_line(out, "s->threads = lp_thread_limit();");
    for (int i = 0; i < t->lists.n; i++)
        emit_line(out, "s->index[%s] = %s;", t->lists.at[i].name,
                  index_formula(t, &t->lists.at[i].list));
    for (int i = 0; i < t->lists.n; i++) {
        if (t->lists.at[i].comm)
            print_group_table(t, out, &t->lists.at[i]);
    }
    print_tied_pairs(t, out);
    emit_line(out, "size_t bytes = 64;");
    for (int i = 0; i < t->widths.n; i++) {
        static const char *const ways[] = {"FORWARD", "BACKWARD"};
        for (int way = 0; way < 2; way++)
            emit_line(out,
                      "bytes = lp_larger(bytes, LP_ATTENTION_%s_BYTES(%lld, %lld, s->threads));",
                      ways[way], (long long)t->widths.at[i].d, (long long)t->widths.at[i].e);
    }
    trainer_print_expert_scratch(t, out);
    if (t->widest.bytes)
        emit_line(out, "bytes = lp_larger(bytes, LP_GEMM_BF16_BYTES(%lldL, %lldL, %lldL));",
                  (long long)t->widest.m, (long long)t->widest.n, (long long)t->widest.k);
    emit_line(out, "s->scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);");
    emit_line(out, "s->pack = aligned_alloc(64, %lld);",
              (long long)(t->pack_bytes ? t->pack_bytes : 64));
    emit_line(out, "if (!s->scratch || !s->pack)");
    const char *pack =
        t->pack_bytes ? arena_printf(t->arena, " + %lld", (long long)t->pack_bytes) : "";
    emit_line(out, "    lp_fail(3, \"no memory for %%zu bytes of scratch\", bytes%s);", pack);
    emit_close(out, "");
    emit_blank(out);
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

static bool is_printable(Diag *diag, const Program *program, const TrainerOptions *options)
{
    const Recipe *recipe = program->recipe;
    if (recipe->gradient != DT_F32 || recipe->master != DT_F32) {
        diag_error(diag, NO_SPAN, "a plan in %s cannot become a trainer: it is for proofs",
                   recipe->name);
        diag_help(diag, "plan with --recipe fp32, bf16 or fp16");
        return false;
    }
    if (options->gemm_bf16 && recipe->activation != DT_F32) {
        diag_error(diag, NO_SPAN, "--gemm bf16 is for plans in fp32; this one stores %s",
                   recipe->name);
        diag_help(diag, "leave it out: products take their operands as they are stored");
        return false;
    }
    return true;
}

/* Names of our own that model names must not take. */
static void reserve_names(Trainer *t)
{
    static const char *const taken[] = {"State",   "Part",    "place",  "job",    "tensors",
                                        "Moments", "moments", "memcpy", "memset", "larger",
                                        "pair",    "exp",     "log",    "index",  "link"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        names_take(&t->globals, taken[i]);
    t->class_name = ARENA_ARRAY(t->arena, const char *, t->program->bodies);
    for (int c = 0; c < t->program->bodies; c++) {
        const char *name = emit_ident(t->arena, t->program->body[c]->graph->name);
        /* stage0_forward is ours */
        if (strncmp(name, "stage", 5) == 0)
            name = arena_printf(t->arena, "block_%s", name);
        t->class_name[c] = names_take(&t->globals, name);
    }
}

static Trainer trainer_new(Arena *arena, Diag *diag, const Program *program,
                           const TrainerOptions *options)
{
    Trainer t = {.arena = arena,
                 .diag = diag,
                 .program = program,
                 .plan = program->plan,
                 .net = program->net,
                 .waits = waits_collect(arena, program),
                 .globals = names_new(arena),
                 .takes_first = arena_array(arena, program->bodies, sizeof(bool[BODY_LISTS])),
                 .options = options};
    t.split = program_splits(program);
    for (int s = 0; s < program->stages; s++) {
        t.braids = t.braids || program->stage[s].pairings.n > 0;
        t.apart = t.apart || program->stage[s].fetched_back > 0;
    }
    reserve_names(&t);
    return t;
}

static void print_bodies(Trainer *t, Emit *out)
{
    for (int c = 0; c < t->net->classes.n; c++) {
        for (int which = 0; which < (t->split ? BODY_LISTS : 2); which++)
            trainer_print_body(t, out, c, which);
    }
    for (int c = t->net->classes.n; c < t->program->bodies; c++)
        trainer_print_body(t, out, c, 1);
    trainer_print_braids(t, out);
}

static const char *cuda_text(Trainer *t)
{
    return arena_printf(
        t->arena,
        "/* kernels.cu - the row programs of this plan for CUDA, after templates/cuda/prelude.cuh. "
        "Any\n"
        " * grid will do: blocks take rows, their LP_THREADS threads columns. A kernel that adds "
        "with\n"
        " * atomics leaves `first` to the launcher, which clears its output. */\n"
        "#ifndef LP_THREADS\n#define LP_THREADS 256\n#endif\n\n"
        "LP_DEVICE float lp_sigmoid(float x)\n{\n    return 1.0f / (1.0f + "
        "__expf(-x));\n}\n\n%s%s%s",
        trainer_draws(t) ? template_text("cuda/draw.cuh") : "", trainer_draws(t) ? "\n" : "",
        print_kernels(t, &target_cuda));
}

TrainerText *kernels_print(Arena *arena, Diag *diag, const Program *program)
{
    const TrainerOptions options = {0};
    Trainer t = trainer_new(arena, diag, program, &options);
    int errors = diag_errors(diag);
    Emit bodies = emit_new(arena); /* finds the kernels; its text needs the host */
    print_bodies(&t, &bodies);
    if (diag_errors(diag) > errors)
        return NULL;
    TrainerText *text = ARENA_NEW(arena, TrainerText);
    *text = (TrainerText){.cuda = cuda_text(&t), .kernel_count = t.kernels.n};
    return text;
}

TrainerText *trainer_print(Arena *arena, Diag *diag, const Program *program,
                           const TrainerOptions *options)
{
    if (!is_printable(diag, program, options))
        return NULL;
    Trainer t = trainer_new(arena, diag, program, options);
    int errors = diag_errors(diag);
    Emit bodies = emit_new(arena), stages = emit_new(arena), out = emit_new(arena);
    print_bodies(&t, &bodies);
    Emit params = emit_new(arena);
    trainer_print_params(&t, &params);
    for (int s = 0; any_cut(&t) && s < program->stages; s++)
        trainer_print_tables(&t, &stages, s);
    if (any_cut(&t))
        trainer_print_moments(&t, &stages);
    for (int s = 0; s < program->stages; s++) {
        trainer_print_link_tables(&t, &stages, s);
        trainer_print_stage(&t, &stages, s);
        trainer_print_schedule(&t, &stages, s);
        trainer_print_evaluation(&t, &stages, s);
    }
    if (diag_errors(diag) > errors)
        return NULL;
    print_title(&t, &out);
    print_state(&t, &out);
    print_helpers(&t, &out);
    trainer_print_link_types(&t, &out);
    emit_text(&out, bodies.text.at);
    emit_text(&out, params.text.at);
    emit_text(&out, stages.text.at);
    if (!any_cut(&t))
        trainer_print_moments(&t, &out);
    print_begin(&t, &out);
    trainer_print_evaluate(&t, &out);
    trainer_print_run(&t, &out);
    trainer_print_job(&t, &out);
    TrainerText *text = ARENA_NEW(arena, TrainerText);
    text->trainer = out.text.at;
    text->kernels = arena_printf(arena,
                                 "/* kernels.h - the row programs of this plan, one function for "
                                 "each that differs. */\n\n%s",
                                 print_kernels(&t, &target_host));
    text->cuda = cuda_text(&t);
    text->kernel_count = t.kernels.n;
    text->gemm_bf16 = options->gemm_bf16 || program->recipe->activation == DT_BF16;
    return text;
}
