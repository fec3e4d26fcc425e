/* trainer_body.c - one class forward or backward as a C function: its instructions in order. */
#include "codegen/trainer_body.h"

#include <string.h>

#include "codegen/gemm.h"

const Value *body_value(const BodyPrinter *p, int copy)
{
    return &p->body->graph->values.at[p->body->copies.at[copy].value];
}

const Copy *body_copy(const BodyPrinter *p, int copy)
{
    return &p->body->copies.at[copy];
}

static const char *var_of(BodyPrinter *p, int copy, bool write)
{
    if (!p->var[copy])
        p->var[copy] = names_take(p->names, emit_ident(p->t->arena, body_copy(p, copy)->name));
    p->written[copy] = p->written[copy] || write;
    return p->var[copy];
}

const char *body_reads(BodyPrinter *p, int copy)
{
    return var_of(p, copy, false);
}

const char *body_writes(BodyPrinter *p, int copy)
{
    return var_of(p, copy, true);
}

const char *body_first(BodyPrinter *p, int copy)
{
    const Copy *c = body_copy(p, copy);
    if (c->param != NONE && trainer_adds_always(p->t, p->body, c->param))
        return "false";
    if (c->param != NONE && trainer_begins_anew(p->t, p->body, c->param))
        return "true"; /* what earlier micro-batches left is at home */
    p->uses_first = true;
    return p->first;
}

int64_t body_extent(const Copy *copy, int begin, int end)
{
    int64_t n = 1;
    for (int a = begin; a < end; a++)
        n *= copy->local[a];
    return n;
}

const char *body_origin(BodyPrinter *p, int copy, int axis)
{
    const Copy *c = body_copy(p, copy);
    const AtomList *list = &c->place.shard[axis];
    if ((list_set(list) & list_set(&c->ring)) == 0)
        return trainer_origin(p->t, list, c->local[axis]);
    /* the block that is at home `turn` places before */
    int n = list_extent(&p->t->plan->mesh, list);
    if (memcmp(list, &c->ring, sizeof *list) != 0 && diag_errors(p->t->diag) == 0) {
        diag_error(p->t->diag, NO_SPAN, "%s passes by along some of the atoms of its axis",
                   c->name);
        diag_help(p->t->diag, "no trainer is printed of that: let the ring have all of cp");
    }
    return arena_printf(p->t->arena, "(s->index[%s] + %d) %% %d * %lldL",
                        trainer_list(p->t, list, false), n - c->turn, n, (long long)c->local[axis]);
}

bool body_refuses(BodyPrinter *p, const Node *node, int copy)
{
    const Copy *c = body_copy(p, copy);
    diag_error(p->t->diag, NO_SPAN, "no kernel of %s takes %s of %s as %s", op_info[node->op].text,
               c->name, p->body->graph->name, dtype_text[c->dtype]);
    diag_help(p->t->diag, "plan with --recipe fp32");
    return false;
}

bool body_takes(BodyPrinter *p, const Node *node, int copy, bool real)
{
    DType wanted = real ? p->body->recipe->activation : p->body->recipe->gradient;
    return body_copy(p, copy)->dtype == wanted || body_refuses(p, node, copy);
}

void body_poll(BodyPrinter *p)
{
    if (p->t->plan->ranks > 1)
        emit_line(p->emit, "lp_poll();");
}

/* ---- kernels ---- */

static const char *base_text(BodyPrinter *p, const RowBase *base)
{
    const char *origin = base->copy == NONE ? NULL : body_origin(p, base->copy, base->axis);
    switch (base->kind) {
    case BASE_ORIGIN:
        break;
    case BASE_SAMPLE:
        return arena_printf(p->t->arena, str_eq(origin, "0") ? "s->%s" : "s->%s + %s",
                            p->beside && p->which > 0 ? "sample_back" : "sample", origin);
    case BASE_SEED:
        return "s->seed";
    case BASE_STREAM:
        return arena_printf(p->t->arena, "s->evaluates ? -1L : %s->layer * %dL + %lld", p->link,
                            DRAW_SITES, (long long)base->site);
    }
    return origin;
}

static bool print_rows(BodyPrinter *p, const Inst *inst)
{
    const RowProgram *program = rows_build(p->t->arena, p->t->diag, p->body, inst);
    const char *name = program ? trainer_kernel(p->t, program) : NULL;
    if (!name)
        return false;
    Str args = str_new(p->t->arena);
    const char *first = NULL;
    for (int i = 0; i < program->args.n; i++) {
        const RowArg *arg = &program->args.at[i];
        str_putf(&args, "%s%s", i ? ", " : "", var_of(p, arg->copy, arg->out));
        if (!arg->add)
            continue;
        const char *mine = body_first(p, arg->copy);
        if (first && !str_eq(first, mine))
            return diag_error(p->t->diag, NO_SPAN,
                              "accumulators of one kernel of %s begin at different times",
                              p->body->graph->name);
        first = mine;
    }
    for (int i = 0; i < program->bases.n; i++)
        str_putf(&args, ", %s", base_text(p, &program->bases.at[i]));
    if (first)
        str_putf(&args, ", %s", first);
    emit_line(p->emit, "%s(%s);", name, args.at);
    return true;
}

static const char *with_offset(BodyPrinter *p, const Gemm *gemm, const char *var, int operand)
{
    Str text = str_new(p->t->arena);
    str_put(&text, var);
    if (gemm->block[operand]) {
        int n = list_extent(&p->t->plan->mesh, &gemm->ring);
        str_putf(&text, " + (s->index[%s] + %d) %% %d * %lldL",
                 trainer_list(p->t, &gemm->ring, false), n - gemm->turn, n,
                 (long long)gemm->block[operand]);
    }
    for (int i = 0; i < gemm->loops; i++) {
        if (gemm->loop[i].stride[operand])
            str_putf(&text, " + %s * %lldL", gemm->loop[i].name,
                     (long long)gemm->loop[i].stride[operand]);
    }
    return text.at;
}

/* Keeps the product that needs most room for its operands in bf16 (LP_GEMM_BF16_BYTES). */
static void note_room(Trainer *t, const Gemm *gemm)
{
    int64_t bytes = (gemm->m * gemm->k * 2 + 63) / 64 * 64 + (gemm->n * gemm->k * 2 + 63) / 64 * 64;
    if (bytes <= t->widest.bytes)
        return;
    t->widest.m = gemm->m;
    t->widest.n = gemm->n;
    t->widest.k = gemm->k;
    t->widest.bytes = bytes;
}

/* A matrix of a product whose elements are not all fp32. */
static const char *matrix_text(BodyPrinter *p, const Gemm *gemm, int copy, int operand, int64_t ld)
{
    static const char *const element[DT_COUNT] = {
        [DT_F32] = "LP_ELEMENT_F32", [DT_BF16] = "LP_ELEMENT_BF16", [DT_F16] = "LP_ELEMENT_F16"};
    const char *var = operand == 2 ? body_writes(p, copy) : body_reads(p, copy);
    return arena_printf(p->t->arena, "(LpMatrix){%s%s, %s, %lld}", operand == 2 ? "" : "(void *)",
                        operand == 2 || !strchr(with_offset(p, gemm, var, operand), ' ')
                            ? with_offset(p, gemm, var, operand)
                            : arena_printf(p->t->arena, "(%s)", with_offset(p, gemm, var, operand)),
                        element[body_copy(p, copy)->dtype], (long long)ld);
}

static void print_product(BodyPrinter *p, const Gemm *gemm, const char *beta)
{
    const DType a = body_copy(p, gemm->a)->dtype, b = body_copy(p, gemm->b)->dtype,
                c = body_copy(p, gemm->c)->dtype;
    long long m = gemm->m, n = gemm->n, k = gemm->k;
    if (a != DT_F32 || b != DT_F32 || c != DT_F32) {
        emit_line(p->emit, "lp_gemm_typed(%d, %d, %lld, %lld, %lld, 1.0f, %s, %s, %s, %s);",
                  gemm->trans_a, gemm->trans_b, m, n, k,
                  matrix_text(p, gemm, gemm->a, 0, gemm->lda),
                  matrix_text(p, gemm, gemm->b, 1, gemm->ldb), beta,
                  matrix_text(p, gemm, gemm->c, 2, gemm->ldc));
        return;
    }
    bool bf16 = p->t->options->gemm_bf16;
    if (bf16)
        note_room(p->t, gemm);
    emit_line(p->emit,
              "lp_gemm%s(%d, %d, %lld, %lld, %lld, 1.0f, %s, %lld, %s, %lld, %s, %s, %lld%s);",
              bf16 ? "_bf16" : "", gemm->trans_a, gemm->trans_b, m, n, k,
              with_offset(p, gemm, body_reads(p, gemm->a), 0), (long long)gemm->lda,
              with_offset(p, gemm, body_reads(p, gemm->b), 1), (long long)gemm->ldb, beta,
              with_offset(p, gemm, body_writes(p, gemm->c), 2), (long long)gemm->ldc,
              bf16 ? ", s->scratch" : "");
}

static void print_gemm(BodyPrinter *p, const Gemm *gemm)
{
    bool adds = body_copy(p, gemm->c)->home == HOME_ACC;
    for (int i = 0; i < gemm->loops; i++) {
        const GemmLoop *loop = &gemm->loop[i];
        emit_open(p->emit, "for (int %s = 0; %s < %lld; %s++)", loop->name, loop->name,
                  (long long)loop->extent, loop->name);
    }
    const char *beta = gemm->adds ? "1.0f" : "0.0f";
    if (adds && !gemm->adds) {
        const char *first = body_first(p, gemm->c);
        beta = str_eq(first, "false")  ? "1.0f"
               : str_eq(first, "true") ? "0.0f"
                                       : arena_printf(p->t->arena, "%s ? 0.0f : 1.0f", first);
    }
    for (int i = 0; i < gemm->loops; i++)
        if (gemm->loop[i].sums && !str_eq(beta, "1.0f"))
            beta = arena_printf(p->t->arena, "%s > 0 ? 1.0f : %s", gemm->loop[i].name, beta);
    print_product(p, gemm, beta);
    for (int i = gemm->loops - 1; i >= 0; i--)
        emit_close(p->emit, "");
    body_poll(p);
}

static bool print_lookup(BodyPrinter *p, const Node *node, const int *in, const int *out)
{
    if (!body_takes(p, node, in[1], true) || !body_takes(p, node, out[0], true))
        return false;
    const Copy *ids = body_copy(p, in[0]), *table = body_copy(p, in[1]);
    long long width = table->local[1];
    emit_line(p->emit, "lp_embedding_forward(%lld, %lld, %lld, %s, %s, %s, %s, %lld, s->threads);",
              (long long)ids->elements, (long long)table->local[0], width, body_origin(p, in[1], 0),
              body_reads(p, in[0]), body_reads(p, in[1]), body_writes(p, out[0]), width);
    return true;
}

static bool print_scatter(BodyPrinter *p, const Node *node, const int *in, const int *out)
{
    const Recipe *recipe = p->body->recipe;
    bool wide = body_copy(p, in[1])->dtype != recipe->activation;
    if (!body_takes(p, node, in[1], !wide) || !body_takes(p, node, out[0], false))
        return false;
    const Copy *ids = body_copy(p, in[0]), *table = body_copy(p, out[0]);
    long long width = table->local[1];
    const char *fresh = table->home == HOME_ACC ? body_first(p, out[0]) : "true";
    emit_line(p->emit,
              "lp_embedding_backward%s(%lld, %lld, %lld, %s, %s, %s, %lld, %s, %s, s->threads);",
              wide ? "_wide" : "", (long long)ids->elements, (long long)table->local[0], width,
              body_origin(p, out[0], 0), body_reads(p, in[0]), body_reads(p, in[1]), width,
              body_writes(p, out[0]), fresh);
    return true;
}

/* Parts of one axis of the whole, one after the other; a part may see its piece as several axes, or
 * none. */
static bool print_parts(BodyPrinter *p, const Node *node, const int *in, const int *out)
{
    bool split = node->op == OP_SPLIT;
    int whole = split ? in[0] : out[0], n = split ? node->outs : node->ins, axis = 0;
    const int8_t *letter = split ? node->sig.in[0] : node->sig.out[0];
    while (letter[axis] != split_letter(p->body->graph, node))
        axis++;
    const Copy *copy = body_copy(p, whole);
    int64_t outer = body_extent(copy, 0, axis), begin = 0;
    long long row = copy->elements / outer, size = dtype_bytes(copy->dtype);
    for (int k = 0; k < n; k++) {
        int part = split ? out[k] : in[k];
        long long piece = body_copy(p, part)->elements / outer;
        if (body_copy(p, part)->dtype != copy->dtype)
            return body_refuses(p, node, part);
        const char *from = split ? body_reads(p, whole) : body_reads(p, part);
        const char *to = split ? body_writes(p, part) : body_writes(p, whole);
        const char *at = begin ? arena_printf(p->t->arena, " + %lld", (long long)begin) : "";
        emit_line(p->emit, "lp_copy_rows(%s%s, %lld, %s%s, %lld, %lld, %lld);", to, split ? "" : at,
                  (split ? piece : row) * size, from, split ? at : "", (split ? row : piece) * size,
                  (long long)outer, piece * size);
        begin += piece;
    }
    return true;
}

/* "add + norm: a, b -> c, d", or why something moves. */
static void print_title(BodyPrinter *p, const Inst *inst)
{
    Str text = str_new(p->t->arena);
    const char *side = p->beside ? arena_printf(p->t->arena, "%s, ", p->beside) : "";
    if (inst->kind != INST_KERNEL) {
        const char *what = inst->kind == INST_MOVE    ? move_text[inst->move.kind]
                           : inst->kind == INST_MERGE ? "merge"
                                                      : "accumulate";
        emit_comment(p->emit, "%s%s: %s", side, what,
                     trainer_comment(p->t, inst->why ? inst->why : ""));
        return;
    }
    for (int i = 0; i < inst->nodes; i++)
        str_putf(&text, "%s%s", i ? " + " : "",
                 op_info[p->body->graph->nodes.at[inst->node[i]].op].text);
    if (inst->nodes == 1 && p->body->graph->nodes.at[inst->node[0]].op == OP_EINSUM) {
        str_putc(&text, ' ');
        graph_put_sig(&text, p->body->graph, &p->body->graph->nodes.at[inst->node[0]]);
    }
    for (int k = 0; k < inst->ins; k++)
        str_putf(&text, "%s%s", k ? ", " : ": ", body_copy(p, inst->in[k])->name);
    for (int k = 0; k < inst->outs; k++)
        str_putf(&text, "%s%s", k ? ", " : " -> ", body_copy(p, inst->out[k])->name);
    emit_comment(p->emit, "%s%s", side, trainer_comment(p->t, text.at));
}

static bool print_kernel(BodyPrinter *p, const Inst *inst)
{
    const Node *node = &p->body->graph->nodes.at[inst->node[0]];
    const int *in = inst->bind_in[0], *out = inst->bind_out[0];
    Gemm gemm;
    if (inst->nodes == 1) {
        switch (node->op) {
        case OP_ATTENTION:
        case OP_ATTENTION_GRAD:
            return trainer_print_attention(p, node, in, out);
        case OP_LOOKUP:
            return print_lookup(p, node, in, out);
        case OP_SCATTER:
            return print_scatter(p, node, in, out);
        case OP_SPLIT:
        case OP_STACK:
            return print_parts(p, node, in, out);
        case OP_TOPK:
        case OP_CAPACITY:
        case OP_DEAL:
        case OP_CHANCE:
        case OP_TALLY:
        case OP_TAKE:
        case OP_SPREAD:
            return trainer_print_route(p, node, in, out);
        case OP_EXPERT:
        case OP_EXPERT_DW:
            return trainer_print_expert(p, node, in, out);
        case OP_EINSUM:
            if (gemm_build(p->t->arena, p->body, inst, &gemm))
                return print_gemm(p, &gemm), true;
            if (node_ring(p->body->mesh, &p->body->plan->choice[inst->node[0]]).n > 0) {
                diag_error(p->t->diag, NO_SPAN,
                           "%s of class %s is no product of matrices by blocks", node->name,
                           p->body->graph->name);
                diag_help(p->t->diag, "plan with --pin tp_by=gather");
                return false;
            }
            break;
        default:
            break;
        }
    }
    return print_rows(p, inst);
}

/* ---- the function ---- */

/* What instruction `index` needs done, or the body's end; blocks that have arrived are put in
 * their places. */
void body_print_waits(BodyPrinter *p, int index)
{
    Place place = {
        .kind = PLACE_INST, .stage = NONE, .class = p->class, .which = p->which, .inst = index};
    const Event *events;
    int n = waits_at(p->t->waits, &place, &events), insts = body_list(p->body, p->which)->n;
    if (n && index == insts) {
        emit_blank(p->emit);
        emit_comment(p->emit, "Other bodies find what they read complete.");
    }
    for (int i = 0; i < n; i++) {
        emit_line(p->emit, "lp_wait(&s->%s);",
                  trainer_event(p->t, p->class, p->which, events[i].inst));
        if (p->unpack[events[i].inst])
            emit_line(p->emit, "%s", p->unpack[events[i].inst]);
    }
}

/* Results so far, in place, joined with those of one more block. */
bool body_print_inst(BodyPrinter *p, int index)
{
    const Inst *inst = p->inst = &body_list(p->body, p->which)->at[index];
    p->rooms = 0;
    print_title(p, inst);
    body_print_waits(p, index);
    if (inst->kind == INST_MOVE)
        return trainer_print_move(p, inst, index);
    if (inst->kind == INST_KERNEL || inst->kind == INST_MERGE) {
        const char *when = body_when(p, inst);
        if (when)
            emit_open(p->emit, "if (%s)", when);
        bool good = inst->kind == INST_MERGE ? trainer_print_merge(p, inst) : print_kernel(p, inst);
        if (when)
            emit_close(p->emit, "");
        return good;
    }
    emit_line(p->emit, "lp_accumulate%s(%lld, %s, %s, %s);",
              body_copy(p, inst->in[0])->dtype == DT_F32 ? "" : "_real",
              (long long)body_copy(p, inst->out[0])->elements, body_writes(p, inst->out[0]),
              body_reads(p, inst->in[0]), body_first(p, inst->out[0]));
    return true;
}

/* Where a copy is, as an expression over s, link and at. */
static const char *address_text(BodyPrinter *p, int id)
{
    Arena *arena = p->t->arena;
    id = body_storage(p, id);
    const Copy *copy = body_copy(p, id);
    switch (copy->home) {
    case HOME_DATA: {
        return arena_printf(arena, "lp_place(%s, %s->data[%s])", p->at, p->link,
                            trainer_data(p->t, body_value(p, id)->out));
    }
    case HOME_PARAM:
        return arena_printf(arena, "%s(s, %s->weight%s[%s])",
                            p->t->program->flows && !trainer_is_matrix(p->t, p->class) ? "weight_at"
                                                                                       : "arena_at",
                            p->link, p->t->apart && p->which > 0 ? "_back" : "",
                            trainer_param(p->t, p->class, copy->param));
    case HOME_ACC:
        if (copy->param == NONE)
            return copy->number == 0
                       ? "arena_at(s, LOSS_AT)"
                       : arena_printf(arena, "arena_at(s, LOSS_AT + %d)", 4 * copy->number);
        return arena_printf(arena, "arena_at(s, %s->gradient[%s])", p->link,
                            trainer_param(p->t, p->class, copy->param));
    case HOME_IN:
        return arena_printf(arena, "lp_place(%s, %s->in)", p->at, p->link);
    case HOME_OUT:
        return arena_printf(arena, "lp_place(%s, %s->out)", p->at, p->link);
    case HOME_GRAD_IN:
        return arena_printf(arena, "lp_place(%s, %s->grad_in)", p->at, p->link);
    case HOME_GRAD_OUT:
        return arena_printf(arena, "lp_place(%s, %s->grad_out)", p->at, p->link);
    case HOME_SAVED:
        return arena_printf(arena, "lp_place_after(%s, %s->saved, %lldL)", p->at, p->link,
                            (long long)copy->offset);
    case HOME_SAVED_W:
        return arena_printf(arena, "lp_place_after(%s, %s->saved_w, %lldL)", p->at, p->link,
                            (long long)copy->offset);
    case HOME_SAVED_IW:
        return arena_printf(arena, "lp_place_after(%s, %s->saved_iw, %lldL)", p->at, p->link,
                            (long long)copy->offset);
    case HOME_TEMP:
        return arena_printf(arena, "lp_scratch%s(%s, %lldL)",
                            copy->back && p->t->braids ? "_back" : "", p->at,
                            (long long)copy->offset);
    default:
        BUG("%s has no memory", copy->name);
    }
}

const char *body_pointers(BodyPrinter *p)
{
    static const char *const type[DT_COUNT] = {[DT_F32] = "float",
                                               [DT_F64] = "double",
                                               [DT_BF16] = "uint16_t",
                                               [DT_F16] = "uint16_t",
                                               [DT_I32] = "int32_t"};
    Emit out = emit_new(p->t->arena);
    out.depth = 1;
    for (int pass = 0; pass < HOME_COUNT; pass++) {
        for (int i = 0; i < p->body->copies.n; i++) {
            const Copy *copy = body_copy(p, i);
            if (!p->var[i] || copy->home != (Home)pass)
                continue;
            const char *line =
                arena_printf(p->t->arena, "%s%s *%s = %s;", p->written[i] ? "" : "const ",
                             type[copy->dtype], p->var[i], address_text(p, i));
            emit_line_comment(&out, line, shape_comment(p->t, p->body, i));
        }
    }
    return out.text.at;
}

Names *body_names(Trainer *t)
{
    static const char *const reserved[] = {"s", "link", "at", "first", "shape", "place"};
    Names *names = ARENA_NEW(t->arena, Names);
    *names = names_new(t->arena);
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        names_take(names, reserved[i]);
    for (int i = 0; i < t->globals.taken.n; i++)
        names_take(names, t->globals.taken.at[i]);
    return names;
}

BodyPrinter body_printer(Trainer *t, Emit *out, int class, int which, Names *names)
{
    const Body *body = t->program->body[class];
    return (BodyPrinter){.t = t,
                         .emit = out,
                         .body = body,
                         .class = class,
                         .which = which,
                         .var = ARENA_ARRAY(t->arena, const char *, body->copies.n + 1),
                         .written = ARENA_ARRAY(t->arena, bool, body->copies.n + 1),
                         .unpack =
                             ARENA_ARRAY(t->arena, const char *, body_list(body, which)->n + 1),
                         .names = names,
                         .link = "link",
                         .at = "at",
                         .first = "first"};
}

void trainer_print_body(Trainer *t, Emit *out, int class, int which)
{
    const Body *body = t->program->body[class];
    const InstList *list = body_list(body, which);
    Emit statements = emit_new(t->arena);
    statements.depth = 1;
    BodyPrinter p = body_printer(t, &statements, class, which, body_names(t));
    for (int i = 0; i < list->n; i++) {
        if (i)
            emit_blank(&statements);
        if (!body_print_inst(&p, i))
            return;
    }
    body_print_waits(&p, list->n);
    t->takes_first[class][which] = p.uses_first;
    static const char *const titles[] = {"Forward", "Backward", "Gradients of the weights"};
    const char *title = trainer_is_matrix(t, class) ? "One step"
                        : which == 1 && t->split    ? "Gradient of the input"
                                                    : titles[which],
               *part = trainer_is_matrix(t, class) ? "step" : trainer_part(t, which);
    emit_comment(out, "%s of %s.", title, emit_clean(t->arena, body->graph->name, CLEAN_NAME));
    emit_open_function(out, "static void %s_%s(State *s, const %sLink *link, const LpSlots *at%s)",
                       t->class_name[class], part, trainer_camel(t, t->class_name[class]),
                       p.uses_first ? ", bool first" : "");
    const char *pointers = body_pointers(&p);
    emit_text(out, pointers);
    if (!strstr(statements.text.at, "s->") && !strstr(pointers, "(s, "))
        emit_line(out, "(void)s;");
    emit_line(out, "lp_at(\"%s %s\");", t->class_name[class], part);
    emit_blank(out);
    emit_text(out, statements.text.at);
    emit_close(out, "");
    emit_blank(out);
}
