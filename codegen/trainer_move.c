/* trainer_move.c - the moves of a body: collectives, and the copies between layouts around them. */
#include "codegen/trainer_body.h"

typedef struct Blocks { /* of one axis of a local block: [outer][extent][inner] */
    long long outer,
        inner_bytes; /* inner: the axis's extent and everything behind it, of one block */
} Blocks;

static Blocks blocks_of(const BodyPrinter *p, int copy, int axis, int64_t extent)
{
    const Copy *c = body_copy(p, copy);
    int axes = body_value(p, copy)->axes;
    return (Blocks){body_extent(c, 0, axis),
                    extent * body_extent(c, axis + 1, axes) * dtype_bytes(c->dtype)};
}

/* Memory outside the arena that this instruction packs blocks into: the same wherever it is
 * printed. */
static const char *pack_room(BodyPrinter *p, int64_t bytes)
{
    Trainer *t = p->t;
    int nth = p->rooms++;
    for (int i = 0; i < t->rooms.n; i++)
        if (t->rooms.at[i].inst == p->inst && t->rooms.at[i].nth == nth)
            return t->rooms.at[i].text;
    const char *text = t->pack_bytes
                           ? arena_printf(t->arena, "s->pack + %lldL", (long long)t->pack_bytes)
                           : "s->pack";
    t->pack_bytes += (bytes + 63) / 64 * 64;
    vec_push(t->arena, &t->rooms) = (PackRoom){p->inst, nth, text};
    return text;
}

static const char *index_text(BodyPrinter *p, const AtomList *list)
{
    return arena_printf(p->t->arena, "s->index[%s]", trainer_list(p->t, list, false));
}

static void print_slice(BodyPrinter *p, const Move *move, int in, int out)
{
    if (move->to == NONE && body_copy(p, in)->dtype != body_copy(p, out)->dtype) {
        emit_line(p->emit, "lp_real_store(%lld, %s, %s);", (long long)body_copy(p, out)->elements,
                  body_writes(p, out), body_reads(p, in));
        return;
    }
    if (move->to == NONE) {
        emit_line(p->emit, "memcpy(%s, %s, %lld);", body_writes(p, out), body_reads(p, in),
                  (long long)body_copy(p, out)->bytes);
        return;
    }
    Blocks b = blocks_of(p, out, move->to, body_copy(p, out)->local[move->to]);
    long long n = list_extent(&p->t->plan->mesh, &move->atoms),
              width = dtype_bytes(body_copy(p, out)->dtype);
    emit_line(p->emit, "lp_copy_rows(%s, %lld, %s + %s * %lldL, %lld, %lld, %lld);",
              body_writes(p, out), b.inner_bytes, body_reads(p, in), index_text(p, &move->atoms),
              b.inner_bytes / width, n * b.inner_bytes, b.outer, b.inner_bytes);
}

static void print_own_or_pad(BodyPrinter *p, const Move *move, int in, int out)
{
    const char *to = body_writes(p, out), *from = body_reads(p, in),
               *index = index_text(p, &move->atoms);
    long long bytes = body_copy(p, out)->bytes;
    if (move->kind == MOVE_OWN) {
        emit_line(p->emit, "if (%s == 0)", index);
        emit_line(p->emit, "    memcpy(%s, %s, %lld);", to, from, bytes);
        emit_line(p->emit, "else");
        emit_line(p->emit, "    memset(%s, 0, %lld);", to, bytes);
        return;
    }
    Blocks b = blocks_of(p, in, move->from, body_copy(p, in)->local[move->from]);
    long long n = list_extent(&p->t->plan->mesh, &move->atoms),
              width = dtype_bytes(body_copy(p, in)->dtype);
    emit_line(p->emit, "memset(%s, 0, %lld);", to, bytes);
    emit_line(p->emit, "lp_copy_rows(%s + %s * %lldL, %lld, %s, %lld, %lld, %lld);", to, index,
              b.inner_bytes / width, n * b.inner_bytes, from, b.inner_bytes, b.outer,
              b.inner_bytes);
}

int body_storage(const BodyPrinter *p, int copy)
{
    while (body_copy(p, copy)->alias != NONE)
        copy = body_copy(p, copy)->alias;
    return copy;
}

typedef struct Collective {
    const char *event, *comm, *dtype, *op;
    long long n; /* ranks of the group */
    int inst;
} Collective;

/* Behind the wait for the collective: its blocks, from `room`, to their places in a copy. */
static void unpack_later(BodyPrinter *p, const Collective *c, int out, const char *room,
                         const Blocks *b)
{
    p->unpack[c->inst] = arena_printf(p->t->arena, "lp_unpack_blocks(%s, %s, %lld, %lld, %lld);",
                                      body_writes(p, out), room, b->outer, c->n, b->inner_bytes);
}

static void print_all_reduce(BodyPrinter *p, const Collective *c, int in, int out)
{
    if (body_storage(p, in) != body_storage(p, out))
        emit_line(p->emit, "memcpy(%s, %s, %lld);", body_writes(p, out), body_reads(p, in),
                  (long long)body_copy(p, out)->bytes);
    emit_line(p->emit, "lp_all_reduce(%s, %s, %s, %lld, %s, %s);", c->event, c->comm,
              body_writes(p, out), (long long)body_copy(p, out)->elements, c->dtype, c->op);
}

static void print_reduce_scatter(BodyPrinter *p, const Collective *c, const Move *move, int in,
                                 int out)
{
    Blocks b = blocks_of(p, out, move->to, body_copy(p, out)->local[move->to]);
    const char *from = body_reads(p, in);
    if (b.outer > 1) {
        from = pack_room(p, body_copy(p, in)->bytes);
        emit_line(p->emit, "lp_pack_blocks(%s, %s, %lld, %lld, %lld);", from, body_reads(p, in),
                  b.outer, c->n, b.inner_bytes);
    }
    emit_line(p->emit, "lp_reduce_scatter(%s, %s, %s, %s, %lld, %s, %s);", c->event, c->comm, from,
              body_writes(p, out), (long long)body_copy(p, out)->elements, c->dtype, c->op);
}

static void print_all_gather(BodyPrinter *p, const Collective *c, const Move *move, int in, int out)
{
    Blocks b = blocks_of(p, in, move->from, body_copy(p, in)->local[move->from]);
    const char *to = b.outer > 1 ? pack_room(p, body_copy(p, out)->bytes) : body_writes(p, out);
    emit_line(p->emit, "lp_all_gather(%s, %s, %s, %s, %lld, %s);", c->event, c->comm,
              body_reads(p, in), to, (long long)body_copy(p, in)->elements, c->dtype);
    if (b.outer > 1)
        unpack_later(p, c, out, to, &b);
}

static void print_all_to_all(BodyPrinter *p, const Collective *c, const Move *move, int in, int out)
{
    Blocks give = blocks_of(p, in, move->to, body_copy(p, in)->local[move->to] / c->n);
    Blocks take = blocks_of(p, out, move->from, body_copy(p, in)->local[move->from]);
    const char *from = body_reads(p, in), *to = body_writes(p, out);
    if (give.outer > 1) {
        from = pack_room(p, body_copy(p, in)->bytes);
        emit_line(p->emit, "lp_pack_blocks(%s, %s, %lld, %lld, %lld);", from, body_reads(p, in),
                  give.outer, c->n, give.inner_bytes);
    }
    if (take.outer > 1)
        to = pack_room(p, body_copy(p, out)->bytes);
    emit_line(p->emit, "lp_all_to_all(%s, %s, %s, %s, %lld, %s);", c->event, c->comm, from, to,
              (long long)(body_copy(p, in)->elements / c->n), c->dtype);
    if (take.outer > 1)
        unpack_later(p, c, out, to, &take);
}

static void print_rotate(BodyPrinter *p, const Collective *c, const Move *move, int in, int out)
{
    emit_line(p->emit, "lp_rotate(%s, %s, %s, %s, %lld, %s, %d);", c->event, c->comm,
              body_reads(p, in), body_writes(p, out), (long long)body_copy(p, in)->elements,
              c->dtype, move->by);
}

/* Everybody's block, of which this rank keeps the one that the new order gives it. */
static void print_permute(BodyPrinter *p, const Collective *c, const Move *move, int in, int out)
{
    long long each = body_copy(p, in)->elements, bytes = body_copy(p, in)->bytes;
    const char *room = pack_room(p, bytes * c->n);
    emit_line(p->emit, "lp_all_gather(%s, %s, %s, %s, %lld, %s);", c->event, c->comm,
              body_reads(p, in), room, each, c->dtype);
    p->unpack[c->inst] =
        arena_printf(p->t->arena, "memcpy(%s, %s + %s * %lldL, %lld);", body_writes(p, out), room,
                     index_text(p, &move->order), bytes, bytes);
}

/* ---- rows that go where their choices name ---- */

static bool moves_rows(const BodyPrinter *p, const Inst *inst)
{
    return move_is_routed(p->body->net, body_value(p, inst->in[0]), &inst->move);
}

/* The copy that is cut by whom its rows name, and of padded messages the rows that each has: an
 * equal part of its room; 0: they have as many as there are. */
static const Copy *ragged_copy(const BodyPrinter *p, const Inst *inst)
{
    int axis = value_routed_axis(p->body->net, body_value(p, inst->in[0]));
    return body_copy(p, inst->move.from == axis ? inst->in[0] : inst->out[0]);
}

static long long message_rows(const BodyPrinter *p, const Inst *inst)
{
    int axis = value_routed_axis(p->body->net, body_value(p, inst->in[0]));
    return p->body->net->exchange == EXCHANGE_PADDED
               ? ragged_copy(p, inst)->local[axis] /
                     list_extent(&p->t->plan->mesh, &inst->move.atoms)
               : 0;
}

/* Who has what, and how wide a row is, as a value. */
static const char *rows_text(BodyPrinter *p, const Inst *inst)
{
    const Move *move = &inst->move;
    const Value *value = body_value(p, inst->in[0]);
    const Net *net = p->body->net;
    int axis = value_routed_axis(net, value);
    const Copy *ragged = ragged_copy(p, inst);
    long long n = list_extent(&p->t->plan->mesh, &move->atoms),
              named = net->dims.at[net->dims.at[value->dim[axis]].among].extent / n;
    p->t->routes.rows = true;
    const Copy *by = body_copy(p, inst->in[inst->ins - 1]);
    RouteRuns runs = route_runs(p->body->mesh, move, by->local, axis + 1);
    const char *cuts = move->tail > 0 ? arena_printf(p->t->arena, ", .cuts = %lld, .run = %lld",
                                                     (long long)runs.cuts, (long long)runs.run)
                                      : "";
    if (message_rows(p, inst) > 0)
        cuts = arena_printf(p->t->arena, "%s, .message = %lld", cuts, message_rows(p, inst));
    return arena_printf(p->t->arena,
                        "&(const LpRows){.rows = %lld, .members = %lld, .me = %s, .named = %lld, "
                        ".elements = %lld, .width = %d, .room = %lld%s}",
                        (long long)by->elements, n, index_text(p, &move->atoms), named,
                        (long long)body_extent(ragged, axis + 1, value->axes),
                        dtype_bytes(ragged->dtype), (long long)ragged->local[axis], cuts);
}

/* A call that counts the rows of this rank's block, or of its fullest message, for which there may
 * be no room. */
static void print_must_fit(BodyPrinter *p, const Inst *inst, const char *count)
{
    const Value *value = body_value(p, inst->in[0]);
    int axis = value_routed_axis(p->body->net, value);
    long long message = message_rows(p, inst);
    emit_line(p->emit, "lp_must_fit(\"%s\", %s, %lld);",
              emit_clean(p->t->arena, p->body->graph->name, CLEAN_NAME), count,
              message > 0 ? message : (long long)ragged_copy(p, inst)->local[axis]);
}

/* Sizes first: of what goes out, and behind them of what comes in. */
static void print_rows_exchange(BodyPrinter *p, const Collective *c, const Inst *inst)
{
    int in = inst->in[0], out = inst->out[0], by = inst->in[1];
    bool back = inst->move.from != 0;
    const char *sizes = pack_room(p, 2 * c->n * (int64_t)sizeof(int64_t));
    const char *give = arena_printf(p->t->arena, "(int64_t *)(%s)", sizes);
    const char *take = arena_printf(p->t->arena, "(int64_t *)(%s) + %lld", sizes, c->n);
    const char *room = pack_room(p, body_copy(p, back ? out : in)->bytes);
    const char *rows = rows_text(p, inst);
    print_must_fit(p, inst,
                   arena_printf(p->t->arena, "lp_rows_sizes(%s, %s, %s, %s)", rows,
                                body_reads(p, by), back ? take : give, back ? give : take));
    if (!back) {
        emit_line(p->emit, "lp_rows_pack(%s, %s, %s, %s, %s);", rows, body_reads(p, by), give,
                  body_reads(p, in), room);
        emit_line(p->emit, "lp_rows_fill(%s, %s, %s);", rows, take, body_writes(p, out));
    }
    emit_line(p->emit, "lp_all_to_all_v(%s, %s, %s, %s, %s, %s, %s);", c->event, c->comm,
              back ? body_reads(p, in) : room, give, back ? room : body_writes(p, out), take,
              c->dtype);
    if (back)
        p->unpack[c->inst] = arena_printf(p->t->arena, "lp_rows_unpack(%s, %s, %s, %s);", rows,
                                          body_reads(p, by), room, body_writes(p, out));
}

/* Messages of one size: what is sent and received knows no counts. */
static void print_rows_padded(BodyPrinter *p, const Collective *c, const Inst *inst)
{
    int in = inst->in[0], out = inst->out[0], by = inst->in[1];
    bool back = inst->move.from != 0;
    const Copy *ragged = ragged_copy(p, inst);
    const char *room = pack_room(p, ragged->bytes), *rows = rows_text(p, inst);
    if (!back)
        print_must_fit(p, inst,
                       arena_printf(p->t->arena, "lp_rows_pad(%s, %s, %s, %s)", rows,
                                    body_reads(p, by), body_reads(p, in), room));
    emit_line(p->emit, "lp_all_to_all(%s, %s, %s, %s, %lld, %s);", c->event, c->comm,
              back ? body_reads(p, in) : room, back ? room : body_writes(p, out),
              (long long)ragged->elements / c->n, c->dtype);
    if (back)
        p->unpack[c->inst] = arena_printf(p->t->arena, "lp_rows_unpad(%s, %s, %s, %s);", rows,
                                          body_reads(p, by), room, body_writes(p, out));
}

static void print_rows_cut(BodyPrinter *p, const Inst *inst)
{
    int in = inst->in[0], by = inst->in[inst->ins - 1];
    bool names = body_value(p, in)->number == NUM_INDEX;
    print_must_fit(p, inst,
                   arena_printf(p->t->arena, "lp_rows_cut(%s, %s, %s, %d, %s)", rows_text(p, inst),
                                body_reads(p, by), body_reads(p, in), names ? 255 : 0,
                                body_writes(p, inst->out[0])));
}

bool trainer_print_move(BodyPrinter *p, const Inst *inst, int index)
{
    const Move *move = &inst->move;
    int in = inst->in[0], out = inst->out[0];
    if (move->kind == MOVE_SLICE && moves_rows(p, inst))
        return print_rows_cut(p, inst), true;
    if (move->kind == MOVE_SLICE)
        return print_slice(p, move, in, out), true;
    if (move->kind == MOVE_OWN || move->kind == MOVE_PAD)
        return print_own_or_pad(p, move, in, out), true;
    Collective c = {
        .event =
            arena_printf(p->t->arena, "&s->%s", trainer_event(p->t, p->class, p->which, index)),
        .comm = arena_printf(p->t->arena, "s->comm[%s]", trainer_list(p->t, &move->atoms, true)),
        .dtype = dtype_constant(body_copy(p, in)->dtype),
        .op = move->monoid == MONOID_MAX ? "LP_MAX" : "LP_SUM",
        .n = list_extent(&p->t->plan->mesh, &move->atoms),
        .inst = index};
    if (moves_rows(p, inst) && message_rows(p, inst) > 0)
        return print_rows_padded(p, &c, inst), true;
    if (moves_rows(p, inst))
        return print_rows_exchange(p, &c, inst), true;
    switch (move->kind) {
    case MOVE_ALL_REDUCE:
        return print_all_reduce(p, &c, in, out), true;
    case MOVE_REDUCE_SCATTER:
        return print_reduce_scatter(p, &c, move, in, out), true;
    case MOVE_ALL_GATHER:
        return print_all_gather(p, &c, move, in, out), true;
    case MOVE_ALL_TO_ALL:
        return print_all_to_all(p, &c, move, in, out), true;
    case MOVE_ROTATE:
        return print_rotate(p, &c, move, in, out), true;
    case MOVE_PERMUTE:
        return print_permute(p, &c, move, in, out), true;
    default:
        BUG("move %d", (int)move->kind);
    }
}

/* Results of turns are joined in fp32: those of a softmax are stored so too, sums as lowering said.
 */
bool trainer_print_merge(BodyPrinter *p, const Inst *inst)
{
    for (int k = 0; k < inst->outs; k++) {
        DType dtype = body_copy(p, inst->out[k])->dtype;
        CHECK(body_storage(p, inst->in[k]) == body_storage(p, inst->out[k]));
        if (dtype != DT_F32 &&
            (inst->monoid != MONOID_SUM || dtype != p->body->recipe->activation)) {
            diag_error(p->t->diag, NO_SPAN, "no kernel joins turns of a ring that are %s",
                       dtype_text[dtype]);
            diag_help(p->t->diag, "plan with --recipe fp32, or --pin cp_by=gather");
            return false;
        }
    }
    if (inst->monoid == MONOID_LSE) {
        int64_t rows = body_copy(p, inst->out[1])->elements;
        emit_line(p->emit, "lp_attention_merge(%lld, %lld, %s, %s, %s, %s, s->threads);",
                  (long long)rows, (long long)(body_copy(p, inst->out[0])->elements / rows),
                  body_writes(p, inst->out[0]), body_writes(p, inst->out[1]),
                  body_reads(p, inst->in[2]), body_reads(p, inst->in[3]));
        return true;
    }
    for (int k = 0; k < inst->outs; k++) {
        bool wide = body_copy(p, inst->out[k])->dtype == DT_F32;
        emit_line(p->emit, "%s(%lld, %s, %s%s);", wide ? "lp_accumulate" : "lp_add_real",
                  (long long)body_copy(p, inst->out[k])->elements, body_writes(p, inst->out[k]),
                  body_reads(p, inst->in[inst->outs + k]), wide ? ", false" : "");
    }
    return true;
}
