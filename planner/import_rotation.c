/* import_rotation.c - how queries and keys are turned: base, scaling, and how much of a head. */
#include <math.h>
#include <string.h>

#include "planner/import_features.h"

static bool read_llama3(ConfigReader *reader, Json at, Rotation *ret)
{
    bool good = json_num(json_get(at, "low_freq_factor"), 1e-3, 1e6, &ret->low);
    good &= json_num(json_get(at, "high_freq_factor"), 1e-3, 1e6, &ret->high);
    good &= json_int(json_get(at, "original_max_position_embeddings"), 1, 1 << 28, &ret->original);
    if (good && ret->high < ret->low)
        good = json_fail(json_get(at, "high_freq_factor"), "must not be below low_freq_factor");
    if (good && ret->high == ret->low) /* the ramp between them is empty */
        ret->high = ret->low * (1 + 1e-9);
    return good || config_fail(reader);
}

static int64_t original_positions(ConfigReader *reader, Json at, const Features *f)
{
    int64_t original = f->positions;
    if (!json_opt_int(reader->config, "original_max_position_embeddings", 1, 1 << 28, &original) ||
        !json_opt_int(at, "original_max_position_embeddings", 1, 1 << 28, &original))
        config_fail(reader);
    return original;
}

/* How YaRN raises the scores of a stretched model (Peng et al. 2023). */
static double yarn_rise(double factor, double scale)
{
    return factor <= 1 ? 1 : 0.1 * scale * log(factor) + 1;
}

static bool read_yarn(ConfigReader *reader, Json at, const Features *f, Rotation *ret)
{
    double all = 0, part = 0;
    bool truncate = true;
    ret->low = 1;
    ret->high = 32;
    ret->original = original_positions(reader, at, f);
    bool good = json_opt_num(at, "beta_slow", 1e-3, 1e6, &ret->low) &&
                json_opt_num(at, "beta_fast", 1e-3, 1e6, &ret->high) &&
                json_opt_num(at, "mscale", 0, 1e6, &part) &&
                json_opt_num(at, "mscale_all_dim", 0, 1e6, &all) &&
                json_opt_bool(at, "truncate", &truncate);
    if (good && ret->high < ret->low)
        good = json_fail(json_get(at, "beta_fast"), "must not be below beta_slow");
    if (!good)
        return config_fail(reader);
    ret->exact = !truncate;
    ret->gain = part != 0 && all != 0 ? yarn_rise(ret->factor, part) / yarn_rise(ret->factor, all)
                                      : yarn_rise(ret->factor, 1);
    if (!json_opt_num(at, "attention_factor", 1e-3, 1e3, &ret->gain))
        return config_fail(reader);
    if (all != 0)
        ret->score_mul = yarn_rise(ret->factor, all) * yarn_rise(ret->factor, all);
    return true;
}

static bool read_long(ConfigReader *reader, Json at, const Features *f, Rotation *ret)
{
    ret->near = json_get(at, "short_factor");
    ret->far = json_get(at, "long_factor");
    ret->original = original_positions(reader, at, f);
    if (!json_want_array(ret->near) || !json_want_array(ret->far))
        return config_fail(reader);
    double factor = (double)f->positions / (double)ret->original;
    if (!json_opt_num(at, "factor", 1e-3, 1e6, &factor))
        return config_fail(reader);
    ret->gain = factor <= 1 ? 1 : sqrt(1 + log(factor) / log((double)ret->original));
    return json_opt_num(at, "attention_factor", 1e-3, 1e3, &ret->gain) || config_fail(reader);
}

static bool read_scaling(ConfigReader *reader, Json at, const Features *f, Rotation *ret)
{
    static const char *const words[] = {"default", "linear",  "llama3",   "mrope", "gptj",
                                        "yarn",    "dynamic", "longrope", "su",    "proportional"};
    if (!json_want_object(at))
        return config_fail(reader);
    Json type = json_has(at, "rope_type") ? json_get(at, "rope_type") : json_get(at, "type");
    if (!type.value)
        return true;
    int word = 0;
    if (!json_word(type, words, (int)(sizeof words / sizeof *words), &word))
        return config_fail(reader);
    const char *kind = words[word];
    if (str_eq(kind, "gptj") && !f->interleaved) {
        json_fail(type, "this family rotates halves");
        return config_fail(reader);
    }
    if (str_eq(kind, "proportional")) {
        json_fail(type, "rotation scaled by \"proportional\" is not supported");
        diag_help(reader->diag,
                  "supported are default, linear, dynamic, llama3, yarn and longrope");
        return config_fail(reader);
    }
    if (str_eq(kind, "mrope"))
        config_note(reader,
                    "rope_scaling mrope: text has one position a token, so it is plain rotation");
    if (str_eq(kind, "longrope") || str_eq(kind, "su")) {
        ret->kind = TURN_LONG;
        return read_long(reader, at, f, ret);
    }
    bool scaled = str_eq(kind, "linear") || str_eq(kind, "llama3") || str_eq(kind, "yarn") ||
                  str_eq(kind, "dynamic");
    if (!scaled)
        return true;
    if (!json_num(json_get(at, "factor"), 1, 1e6, &ret->factor))
        return config_fail(reader);
    if (str_eq(kind, "linear")) {
        ret->kind = TURN_LINEAR;
        return true;
    }
    if (str_eq(kind, "dynamic") && json_has(at, "alpha")) { /* a base of its own, once for all */
        double alpha = 1, d = (double)f->head_dim;
        if (!json_num(json_get(at, "alpha"), 1e-3, 1e9, &alpha))
            return config_fail(reader);
        ret->theta *= d > 2 ? pow(alpha, d / (d - 2)) : 1;
        return true;
    }
    if (str_eq(kind, "dynamic")) {
        ret->kind = TURN_DYNAMIC;
        ret->original = original_positions(reader, at, f);
        return true;
    }
    ret->kind = str_eq(kind, "yarn") ? TURN_YARN : TURN_LLAMA3;
    return ret->kind == TURN_YARN ? read_yarn(reader, at, f, ret) : read_llama3(reader, at, ret);
}

static void read_theta(ConfigReader *reader, Json at, Rotation *ret)
{
    if (!json_opt_num(at, slot_info[SLOT_THETA].name, slot_info[SLOT_THETA].min,
                      slot_info[SLOT_THETA].max, &ret->theta))
        config_fail(reader);
}

/* Newer configs have an object for each kind of layer. */
static void read_parameters(ConfigReader *reader, Features *ret)
{
    Json object = json_get(reader->config, "rope_parameters");
    if (!json_has(reader->config, "rope_parameters")) {
        const char *usual = reader->family->turn;
        if (!usual || json_has(reader->config, "rope_scaling"))
            return;
        list_add(&reader->defaults, "rope_parameters yarn");
        JsonDoc *doc = json_parse(reader->arena, reader->diag, "<default>", usual, strlen(usual));
        object = json_root(doc);
    }
    Json all = json_get(object, "full_attention"), local = json_get(object, "sliding_attention");
    if (json_is_object(local)) {
        ret->local_turn =
            (Rotation){.theta = ret->local_turn.theta, .factor = 1, .gain = 1, .score_mul = 1};
        read_theta(reader, local, &ret->local_turn);
        read_scaling(reader, local, ret, &ret->local_turn);
    }
    Json own = json_is_object(all) ? all : object;
    read_theta(reader, own, &ret->turn);
    read_scaling(reader, own, ret, &ret->turn);
    if (ret->latent.kv_rank > 0 || !json_has(own, "llama_4_scaling_beta"))
        return;
    if (!json_num(json_get(own, "llama_4_scaling_beta"), 0, 1e6, &ret->temper_scale))
        config_fail(reader);
    ret->temper_length = (double)original_positions(reader, own, ret);
    ret->temper_ahead = false;
}

void rotation_settle(ConfigReader *reader, Features *ret)
{
    const Family *family = reader->family;
    ret->turn = (Rotation){.factor = 1, .gain = 1, .score_mul = 1};
    if (ret->names->positions || ret->alibi)
        return;
    ret->turn.theta = slot_num(reader, SLOT_THETA, 10000);
    ret->local_turn = ret->turn;
    bool two = family->slot[SLOT_LOCAL_THETA].setting != SET_NOT;
    if (two)
        ret->local_turn.theta = slot_num(reader, SLOT_LOCAL_THETA, ret->turn.theta);
    if (json_has(reader->config, "rope_scaling"))
        read_scaling(reader, json_get(reader->config, "rope_scaling"), ret, &ret->turn);
    read_parameters(reader, ret);
    if (!two)
        ret->local_turn = ret->turn;
    /* only the code of latent attention raises the scores beside the rotation */
    if (ret->latent.kv_rank == 0)
        ret->turn.score_mul = 1;
    ret->rotary = ret->head_dim;
    Slot from = reader->slot[SLOT_HEAD_DIM].state == STATE_GIVEN ? SLOT_HEAD_DIM : SLOT_HEADS;
    if (ret->latent.kv_rank > 0) {
        from = SLOT_ROTATED_DIM;
        ret->rotary = ret->latent.rotated;
    } else if (reader->slot[SLOT_ROTARY].state == STATE_GIVEN) {
        from = SLOT_ROTARY;
        ret->rotary = slot_int(reader, SLOT_ROTARY, 0);
    } else if (reader->slot[SLOT_ROTARY_PART].state == STATE_GIVEN) {
        from = SLOT_ROTARY_PART;
        ret->rotary = (int64_t)((double)ret->head_dim * slot_num(reader, SLOT_ROTARY_PART, 1));
    }
    int64_t width = ret->latent.kv_rank > 0 ? ret->latent.rotated : ret->head_dim;
    if (ret->rotary > 0 && ret->rotary <= width && ret->rotary % 2 == 0)
        return;
    json_fail(slot_at(reader, from), "%lld of %lld dims of a head cannot be rotated in pairs",
              (long long)ret->rotary, (long long)width);
    config_fail(reader);
}
