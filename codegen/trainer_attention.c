/* trainer_attention.c - the call of an attention kernel: its shape, masks and biases. */
#include <string.h>

#include "codegen/trainer_body.h"
#include "ir/base/rng.h"
#include "ir/lower/turns.h"

/* Keeps the widths of an attention: its scratch depends on them. */
static void note_widths(Trainer *t, int64_t d, int64_t e)
{
    for (int i = 0; i < t->widths.n; i++) {
        if (t->widths.at[i].d == d && t->widths.at[i].e == e)
            return;
    }
    vec_push(t->arena, &t->widths) = (HeadWidths){d, e};
}

static const char *float_text(BodyPrinter *p, double x)
{
    const char *text = arena_printf(p->t->arena, "%.9g", x);
    return arena_printf(p->t->arena, strpbrk(text, ".e") ? "%sf" : "%s.0f", text);
}

/* q is b s A d, k is b t B d, v is b t B e, B a prefix of A. `wide`: what it makes is summed on in
 * fp32. */
static void print_attention_shape(BodyPrinter *p, const Node *node, const int *in, bool wide)
{
    const Graph *graph = p->body->graph;
    const Copy *q = body_copy(p, in[0]), *k = body_copy(p, in[1]), *v = body_copy(p, in[2]);
    int q_axes = body_value(p, in[0])->axes, k_axes = body_value(p, in[1])->axes;
    long long g = body_extent(k, 2, k_axes - 1), heads = body_extent(q, 2, q_axes - 1),
              d = q->local[q_axes - 1], e = v->local[body_value(p, in[2])->axes - 1];
    const Attr_attention *a = &node->attrs.attention;
    int slopes = attention_slopes(graph, node), starts = attention_starts(graph, node),
        words = attention_words(graph, node);
    emit_line(p->emit, "const LpAttention shape = {");
    p->emit->depth++;
    emit_line(
        p->emit, ".b = %lld, .s = %lld, .t = %lld, .g = %lld, .r = %lld, .d = %lld, .e = %lld,",
        (long long)q->local[0], (long long)q->local[1], (long long)k->local[1], g, heads / g, d, e);
    emit_line(p->emit, ".q_stride = %lld, .k_stride = %lld, .v_stride = %lld, .o_stride = %lld,",
              heads * d, g * d, g * e, heads * e);
    if (p->which)
        emit_line(p->emit,
                  ".dq_stride = %lld, .dk_stride = %lld, .dv_stride = %lld, .do_stride = %lld,",
                  heads * d, g * d, g * e, heads * e);
    emit_line(p->emit, ".scale = %s, .causal = %lld, .window = %lld,", float_text(p, a->scale),
              (long long)a->causal, (long long)a->window);
    emit_line(p->emit, ".base_q = %s, .base_k = %s,", body_origin(p, in[0], 1),
              body_origin(p, in[1], 1));
    if (a->chunk > 0)
        emit_line(p->emit, ".chunk = %lld,", (long long)a->chunk);
    if (a->softcap > 0)
        emit_line(p->emit, ".softcap = %s,", float_text(p, a->softcap));
    if (slopes != NONE)
        emit_line(p->emit, ".slopes = %s,", body_reads(p, in[slopes]));
    if (starts != NONE)
        emit_line(p->emit, ".starts = %s,", body_reads(p, in[starts]));
    if (words != NONE)
        emit_line(
            p->emit,
            ".words = %s, .below = s->evaluates ? 0u : %uu, .kept = s->evaluates ? 1.0f : %s,",
            body_reads(p, in[words]), rng_drop_below(a->drop), float_text(p, 1 / (1 - a->drop)));
    const Net *net = p->t->net;
    if (net->runs)
        emit_line(p->emit, ".run = %lld, .runs = %lld,",
                  (long long)(net->dims.at[net->sequence].extent / net->runs),
                  (long long)net->runs);
    if (wide)
        emit_line(p->emit, ".wide = 1,");
    p->emit->depth--;
    emit_line(p->emit, "};");
    note_widths(p->t, d, e);
}

bool trainer_print_attention(BodyPrinter *p, const Node *node, const int *in, const int *out)
{
    /* Slopes and starts, which come behind, are in the shape. */
    int operands = node->op == OP_ATTENTION ? 3 : 6;
    bool fine = true, wide = body_copy(p, out[0])->dtype != p->body->recipe->activation;
    for (int k = 0; k < operands; k++)
        fine = fine && body_takes(p, node, in[k], k < 4);
    for (int k = 0; k < node->outs; k++)
        fine = fine && body_takes(p, node, out[k], !wide && (node->op != OP_ATTENTION || k == 0));
    if (!fine)
        return false;
    emit_line(p->emit, "{");
    p->emit->depth++;
    print_attention_shape(p, node, in, wide);
    Str args = str_new(p->t->arena);
    for (int k = 0; k < operands; k++)
        str_putf(&args, ", %s", body_reads(p, in[k]));
    for (int k = 0; k < node->outs; k++)
        str_putf(&args, ", %s", body_writes(p, out[k]));
    emit_line(p->emit, "lp_attention_%s(&shape%s, s->scratch, s->threads);",
              node->op == OP_ATTENTION ? "forward" : "backward", args.at);
    emit_close(p->emit, "");
    body_poll(p);
    return true;
}

const char *body_when(BodyPrinter *p, const Inst *inst)
{
    const Mesh *mesh = p->body->mesh;
    AtomList ring = inst_ring(p->body, inst);
    int n = list_extent(mesh, &ring), low = n, high = 0;
    uint64_t sees = 0;
    for (int rank = 0; rank < mesh_ranks(mesh) && inst->turn > 0; rank++) {
        int at = list_index(mesh, &ring, rank);
        if (at >= 64 || (sees >> at & 1) || inst_idle(p->body, inst, rank))
            continue;
        sees |= UINT64_C(1) << at;
        low = at < low ? at : low;
        high = at > high ? at : high;
    }
    if (inst->turn == 0 || __builtin_popcountll(sees) == n)
        return NULL;
    const char *at = arena_printf(p->t->arena, "s->index[%s]", trainer_list(p->t, &ring, false));
    if (__builtin_popcountll(sees) != high - low + 1 || (low > 0 && high < n - 1))
        return arena_printf(p->t->arena, "0x%llxuLL >> %s & 1", (unsigned long long)sees, at);
    return low > 0 ? arena_printf(p->t->arena, "%s >= %d", at, low)
                   : arena_printf(p->t->arena, "%s <= %d", at, high);
}
