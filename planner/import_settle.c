/* import_settle.c - slots become Features: sizes, heads, scales, experts. */
#include <math.h>
#include <string.h>

#include "planner/import_features.h"

static void settle_heads(ConfigReader *reader, Features *ret)
{
    long long hidden = ret->hidden, heads = ret->heads;
    ret->head_dim = slot_int(reader, SLOT_HEAD_DIM, 0);
    if (ret->latent.kv_rank > 0)
        ret->head_dim = ret->latent.still + ret->latent.rotated;
    if (ret->head_dim == 0) {
        if (hidden % heads != 0) {
            json_fail(slot_at(reader, SLOT_HEADS), "%s %lld is not divisible by %s %lld",
                      slot_key(reader, SLOT_HIDDEN), hidden, slot_key(reader, SLOT_HEADS), heads);
            diag_help(reader->diag, "give head_dim, or a number of heads that divides it");
            config_fail(reader);
            return;
        }
        ret->head_dim = ret->hidden / ret->heads;
    }
    ret->kv_heads = slot_int(reader, SLOT_KV_HEADS, ret->heads);
    if (slot_true(reader, SLOT_ONE_KV_HEAD) && !slot_true(reader, SLOT_TWO_STREAMS))
        ret->kv_heads = 1;
    if (ret->latent.kv_rank > 0 && ret->kv_heads != ret->heads) {
        json_fail(slot_at(reader, SLOT_KV_HEADS),
                  "latent attention has as many key as query heads");
        config_fail(reader);
    } else if (ret->heads % ret->kv_heads != 0) {
        json_fail(slot_at(reader, SLOT_KV_HEADS), "%s %lld is not divisible by %s %lld",
                  slot_key(reader, SLOT_HEADS), heads, slot_key(reader, SLOT_KV_HEADS),
                  (long long)ret->kv_heads);
        config_fail(reader);
    } else if (reader->family->plain_heads && ret->kv_heads != ret->heads) {
        json_fail(slot_at(reader, SLOT_KV_HEADS),
                  "model family \"%s\" has no fewer key than query heads",
                  reader->family->model_type);
        config_fail(reader);
    }
    bool joined = reader->family->plain_heads || reader->family->fused != FUSED_NONE ||
                  ret->latent.kv_rank > 0;
    ret->plain_heads = joined && ret->kv_heads == ret->heads;
}

static void settle_latent(ConfigReader *reader, int64_t hidden, int64_t heads, Latent *ret)
{
    ret->kv_rank = slot_int(reader, SLOT_KV_RANK, 0);
    if (ret->kv_rank == 0)
        return;
    ret->q_rank = slot_int(reader, SLOT_Q_RANK, 0);
    ret->still = slot_int(reader, SLOT_STILL_DIM, 0);
    ret->rotated = slot_int(reader, SLOT_ROTATED_DIM, 0);
    ret->v = slot_int(reader, SLOT_V_DIM, hidden / heads);
}

/* Sparse attention: beside the heads stand parameters that choose the keys of each query. */
static void settle_chooser(ConfigReader *reader, Features *ret)
{
    ret->index_heads = slot_int(reader, SLOT_INDEX_HEADS, 0);
    ret->index_dim = slot_int(reader, SLOT_INDEX_DIM, 0);
    if (ret->index_heads == 0)
        return;
    if (ret->latent.kv_rank > 0 && ret->latent.q_rank == 0) {
        json_fail(slot_at(reader, SLOT_Q_RANK), "the chooser of keys reads compressed queries");
        config_fail(reader);
    }
    int64_t kept =
        slot_int(reader, SLOT_INDEX_KEPT,
                 slot_int(reader, SLOT_INDEX_BLOCKS, 0) * slot_int(reader, SLOT_INDEX_BLOCK, 0));
    config_note(reader,
                "attention is to all keys: what it is for sequences of at most %lld tokens, and in "
                "the first stage of training; the chooser's parameters are kept, frozen",
                (long long)kept);
}

static void settle_act(ConfigReader *reader, Features *ret)
{
    const SlotValue *value = &reader->slot[SLOT_ACT];
    ret->act = act_by_word(value->word);
    ret->act_limit = slot_num(reader, SLOT_ACT_LIMIT, 0);
    ret->act_slope = slot_num(reader, SLOT_ACT_SLOPE, 1.702);
    if (reader->family->gelu_tanh && ret->act == ACT_GELU_ERF)
        ret->act = ACT_GELU_TANH;
    if (ret->act != ACT_KIND_COUNT)
        return;
    json_fail(slot_at(reader, SLOT_ACT), "activation \"%s\" is not in the op set",
              config_shown(reader->arena, value->word ? value->word : ""));
    diag_help(reader->diag, "supported are silu, gelu, gelu_new, gelu_pytorch_tanh, relu, relu2");
    config_fail(reader);
}

static void settle_scales(ConfigReader *reader, Features *ret)
{
    ret->embed_scale = slot_num(reader, SLOT_EMBED_SCALE, 1);
    if (reader->family->root_scale)
        ret->embed_scale = sqrt((double)ret->hidden);
    ret->residual_scale = slot_num(reader, SLOT_RESIDUAL_SCALE, 1);
    if (reader->slot[SLOT_DEPTH_SCALE].state == STATE_GIVEN)
        ret->residual_scale = slot_num(reader, SLOT_DEPTH_SCALE, 1) / sqrt((double)ret->layers);
    ret->head_scale =
        slot_num(reader, SLOT_LOGIT_SCALE, 1) / slot_num(reader, SLOT_LOGIT_DIVISOR, 1);
    if (reader->slot[SLOT_BASE_WIDTH].state == STATE_GIVEN)
        ret->head_scale *= slot_num(reader, SLOT_BASE_WIDTH, 1) / (double)ret->hidden;
    ret->attention_scale = slot_num(reader, SLOT_ATTENTION_SCALE, 0);
    double scalar = slot_num(reader, SLOT_QUERY_SCALAR, 0);
    if (scalar > 0 && scalar != (double)ret->head_dim)
        ret->attention_scale = 1 / sqrt(scalar);
    ret->softcap = slot_num(reader, SLOT_SOFTCAP, 0);
    ret->logit_cap = slot_num(reader, SLOT_LOGIT_CAP, 0);
    ret->clip = slot_num(reader, SLOT_CLIP_QKV, 0);
    ret->temper_scale = slot_num(reader, SLOT_TEMPER_SCALE, 0);
    ret->temper_length = slot_num(reader, SLOT_TEMPER_LENGTH, 1);
    ret->temper_ahead = true;
}

/* A word of a slot; absent where the family does not read it. */
static int slot_word(ConfigReader *reader, Slot slot, const char *const *words, int count)
{
    const SlotValue *value = &reader->slot[slot];
    if (value->state != STATE_GIVEN)
        return 0;
    for (int i = 0; i < count; i++) {
        if (str_eq(words[i], value->word))
            return i;
    }
    json_fail(slot_at(reader, slot), "%s \"%s\" is not supported", slot_key(reader, slot),
              config_shown(reader->arena, value->word));
    config_fail(reader);
    return 0;
}

static void settle_groups(ConfigReader *reader, Experts *ret)
{
    static const char *const words[] = {"greedy", "group_limited_greedy", "noaux_tc"};
    int choose = slot_word(reader, SLOT_CHOOSE, words, 3);
    ret->groups = ret->kept = 1;
    ret->by_two = choose == 2;
    if (choose == 0)
        return;
    ret->groups = slot_int(reader, SLOT_GROUPS, 1);
    ret->kept = slot_int(reader, SLOT_GROUPS_KEPT, 1);
}

static void settle_experts(ConfigReader *reader, Features *f, Experts *ret)
{
    static const char *const scores[] = {"softmax", "sigmoid"};
    ret->count = slot_int(reader, SLOT_EXPERTS, 0);
    if (ret->count == 0)
        return;
    ret->chosen = slot_int(reader, SLOT_CHOSEN, 1);
    ret->ffn = slot_int(reader, SLOT_EXPERT_FFN, f->ffn);
    ret->shared_ffn =
        slot_int(reader, SLOT_SHARED_FFN, slot_int(reader, SLOT_SHARED, 0) * ret->ffn);
    ret->sigmoid = slot_word(reader, SLOT_SCORE, scores, 2) == 1;
    ret->bias = f->names->router_bias && slot_true(reader, SLOT_ROUTER_BIAS);
    ret->renormalise =
        slot_true(reader, SLOT_RENORM) && (ret->chosen > 1 || !reader->family->renorm_several);
    ret->scale = slot_num(reader, SLOT_ROUTED_SCALE, 1);
    settle_groups(reader, ret);
    if (ret->chosen > ret->count) {
        json_fail(slot_at(reader, SLOT_CHOSEN), "%s %lld of %lld experts",
                  slot_key(reader, SLOT_CHOSEN), (long long)ret->chosen, (long long)ret->count);
        config_fail(reader);
    } else if (ret->count % ret->groups != 0 || ret->kept > ret->groups ||
               ret->chosen > ret->count / ret->groups * ret->kept) {
        json_fail(slot_at(reader, SLOT_GROUPS),
                  "%lld of %lld experts cannot be chosen from %lld of %lld groups",
                  (long long)ret->chosen, (long long)ret->count, (long long)ret->kept,
                  (long long)ret->groups);
        config_fail(reader);
    }
}

static void settle_streams(ConfigReader *reader, Features *ret)
{
    bool two = slot_true(reader, SLOT_TWO_STREAMS);
    int64_t norms = 2;
    if (!json_opt_int(reader->config, "num_ln_in_parallel_attn", 1, 2, &norms))
        config_fail(reader);
    ret->names = two && norms == 2 ? reader->family->names_alt : reader->family->names;
    ret->parallel = two || slot_true(reader, SLOT_PARALLEL);
    ret->one_norm =
        ret->parallel && reader->family->parallel_one_norm && ret->names == reader->family->names;
}

static void settle_sizes(ConfigReader *reader, Features *ret)
{
    ret->hidden = slot_int(reader, SLOT_HIDDEN, 0);
    ret->layers = slot_int(reader, SLOT_LAYERS, 0);
    ret->heads = slot_int(reader, SLOT_HEADS, 1);
    ret->vocab = slot_int(reader, SLOT_VOCAB, 0);
    ret->positions = slot_int(reader, SLOT_POSITIONS, 0);
    ret->ffn = slot_int(reader, SLOT_FFN, reader->family->ffn_times * ret->hidden);
}

static void settle_flags(ConfigReader *reader, Features *ret)
{
    const Family *family = reader->family;
    ret->eps = slot_num(reader, SLOT_EPS, 1e-5);
    ret->init_std = slot_num(reader, SLOT_INIT_STD, 0.02);
    ret->tie = slot_true(reader, SLOT_TIE);
    ret->qkv_bias = slot_true(reader, SLOT_QKV_BIAS);
    ret->out_bias = slot_true(reader, SLOT_OUT_BIAS);
    ret->mlp_bias = slot_true(reader, SLOT_MLP_BIAS);
    ret->interleaved = slot_true(reader, SLOT_INTERLEAVED);
    ret->alibi = slot_true(reader, SLOT_ALIBI);
    ret->alibi_scale = 1;
    bool asked = family->slot[SLOT_QK_NORM].setting == SET_NOT || slot_true(reader, SLOT_QK_NORM);
    ret->qk_norm = asked && (ret->names->q_norm || family->qk == QK_BARE);
}

void features_settle(ConfigReader *reader, Features *ret)
{
    ret->family = reader->family;
    settle_sizes(reader, ret);
    settle_streams(reader, ret);
    settle_flags(reader, ret);
    settle_act(reader, ret);
    settle_latent(reader, ret->hidden, ret->heads, &ret->latent);
    settle_chooser(reader, ret);
    settle_heads(reader, ret);
    settle_scales(reader, ret);
    settle_experts(reader, ret, &ret->experts);
    if (!reader->good)
        return;
    if (ret->ffn == 0 && (ret->names->down || ret->experts.ffn == 0)) {
        json_fail(slot_at(reader, SLOT_FFN), "%s is null and this family has no default for it",
                  slot_key(reader, SLOT_FFN));
        config_fail(reader);
    }
    if (ret->tie && reader->family->head_bias)
        config_note(reader, "the tied head keeps its own bias");
    if (reader->family->note)
        config_note(reader, "%s", reader->family->note);
    rotation_settle(reader, ret);
    double root = sqrt((double)ret->head_dim);
    if (ret->alibi && reader->family->alibi_scaled)
        ret->alibi_scale = 1 / root;
    if (ret->turn.score_mul != 1)
        ret->attention_scale = ret->turn.score_mul / root;
    if (reader->good)
        layers_settle(reader, ret);
    if (reader->good)
        training_settle(reader, ret);
}
