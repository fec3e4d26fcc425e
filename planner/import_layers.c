/* import_layers.c - what differs from layer to layer: windows, rotation, experts. */
#include <string.h>

#include "planner/import_features.h"

static bool wrong_length(Json list, int64_t layers)
{
    return json_fail(list, "expected one entry for each of the %lld layers, not %d",
                     (long long)layers, json_len(list));
}

/* ---- windows ---- */

/* ["global", "local", ...], a word a layer. */
static bool clear_global(Features *ret, Json list, int64_t first)
{
    static const char *const words[] = {"global", "local"};
    for (int i = 0; i < json_len(list); i++) {
        int word = 0;
        if (first + i >= ret->layers)
            return json_fail(list, "more entries than the %lld layers", (long long)ret->layers);
        if (!json_word(json_at(list, i), words, 2, &word))
            return false;
        if (word == 0)
            ret->layer[first + i].window = 0;
    }
    return true;
}

/* attention_layers lists all layers; attention_types says the same as [[words, times], ...]. */
static void settle_local_layers(ConfigReader *reader, Features *ret)
{
    Json layers = json_get(reader->config, "attention_layers");
    Json types = json_get(reader->config, "attention_types");
    int64_t done = 0;
    bool good = true;
    if (json_is_array(layers)) {
        good = clear_global(ret, layers, 0);
        done = json_len(layers);
    } else {
        good = json_want_array(types);
        for (int i = 0; good && i < json_len(types); i++) {
            Json pair = json_at(types, i), words = json_at(pair, 0);
            int64_t times = 0;
            good = json_int(json_at(pair, 1), 0, 4096, &times) && json_want_array(words);
            for (int64_t j = 0; good && j < times; j++) {
                good = clear_global(ret, words, done);
                done += json_len(words);
            }
        }
    }
    if (good && done != ret->layers)
        good = json_fail(json_is_array(layers) ? layers : types,
                         "expected one entry for each of the %lld layers, not %lld",
                         (long long)ret->layers, (long long)done);
    if (!good)
        config_fail(reader);
}

/* The words that libraries have for a layer, each with what it needs. */
enum { TYPE_FULL, TYPE_SLIDING, TYPE_CHUNKED, TYPE_CHOOSY, TYPE_CHOOSY_BLOCKS, TYPE_COUNT };
static const char *const type_words[TYPE_COUNT] = {"full_attention", "sliding_attention",
                                                   "chunked_attention", "indexed_attention",
                                                   "minimax_m3_sparse"};

static void settle_layer_types(ConfigReader *reader, Features *ret, int64_t window, int64_t chunk)
{
    Json list = json_get(reader->config, "layer_types");
    if (!json_want_array(list) || json_len(list) != ret->layers) {
        if (json_is_array(list))
            wrong_length(list, ret->layers);
        config_fail(reader);
        return;
    }
    for (int i = 0; i < ret->layers; i++) {
        int word = 0;
        if (!json_word(json_at(list, i), type_words, TYPE_COUNT, &word)) {
            config_fail(reader);
            return;
        }
        ret->layer[i].window = word == TYPE_SLIDING ? window : 0;
        ret->layer[i].chunk = word == TYPE_CHUNKED ? chunk : 0;
        bool without =
            (word == TYPE_SLIDING && window == 0) || (word == TYPE_CHUNKED && chunk == 0);
        if (without && reader->family->slot[SLOT_WINDOW].setting == SET_NOT &&
            reader->family->slot[SLOT_CHUNK].setting == SET_NOT) {
            json_fail(json_at(list, i), "model family \"%s\" with this layer is not supported",
                      reader->family->model_type);
            config_fail(reader);
            return;
        }
    }
}

static bool has_window(const ConfigReader *reader, const Features *f, int64_t i)
{
    switch (reader->family->local) {
    case LOCAL_ALL:
    case LOCAL_LIST:
        return true;
    case LOCAL_LATE:
        return i >= slot_int(reader, SLOT_WINDOW_FROM, 0);
    case LOCAL_EVERY:
        return (i + 1) % slot_int(reader, SLOT_WINDOW_EVERY, 1) != 0;
    case LOCAL_ROTATED:
        return f->layer[i].rotate;
    }
    return false;
}

/* 0 when no sequence is longer. */
static int64_t useful_length(ConfigReader *reader, const Features *f, Slot slot)
{
    int64_t length = slot_int(reader, slot, 0);
    if (length < f->positions)
        return length;
    config_note(reader, "%s %lld ignored: no sequence is longer", slot_key(reader, slot),
                (long long)length);
    return 0;
}

static void settle_windows(ConfigReader *reader, Features *ret)
{
    int64_t window = useful_length(reader, ret, SLOT_WINDOW);
    int64_t chunk = useful_length(reader, ret, SLOT_CHUNK);
    if (reader->family->slot[SLOT_USE_WINDOW].setting != SET_NOT &&
        !slot_true(reader, SLOT_USE_WINDOW))
        window = 0;
    bool silent = reader->slot[SLOT_WINDOW].at.value == reader->config.value;
    if (silent && window > 0)
        list_add(&reader->defaults, arena_printf(reader->arena, "%s %lld",
                                                 slot_info[SLOT_WINDOW].name, (long long)window));
    for (int64_t i = 0; i < ret->layers; i++) {
        bool local = has_window(reader, ret, i);
        ret->layer[i].window = local ? window : 0;
        ret->layer[i].chunk = local ? chunk : 0;
        ret->layer[i].local_turn = local && reader->family->local == LOCAL_EVERY;
    }
    if (reader->family->local == LOCAL_LIST)
        settle_local_layers(reader, ret);
    if (!json_has(reader->config, "layer_types"))
        return;
    settle_layer_types(reader, ret, window, chunk);
    Json list = json_get(reader->config, "layer_types");
    for (int64_t i = 0; reader->good && i < ret->layers; i++)
        ret->layer[i].local_turn = config_is_word(json_at(list, (int)i), type_words[TYPE_SLIDING]);
}

/* ---- rotation ---- */

static void settle_rotated_layers(ConfigReader *reader, Features *ret)
{
    for (int64_t i = 0; i < ret->layers; i++)
        ret->layer[i].rotate = ret->rotary > 0;
    if (reader->family->slot[SLOT_ROPE_EVERY].setting == SET_NOT)
        return;
    Json list = json_get(reader->config, "no_rope_layers");
    if (!json_has(reader->config, "no_rope_layers") || config_is_off(list)) {
        int64_t every = slot_int(reader, SLOT_ROPE_EVERY, 0);
        for (int64_t i = 0; every > 0 && i < ret->layers; i++)
            ret->layer[i].rotate = (i + 1) % every != 0;
        return;
    }
    if (!json_want_array(list) || json_len(list) != ret->layers) {
        wrong_length(list, ret->layers);
        config_fail(reader);
        return;
    }
    for (int i = 0; i < ret->layers; i++) {
        int64_t rotated = 0;
        if (!json_int(json_at(list, i), 0, 1, &rotated))
            config_fail(reader);
        ret->layer[i].rotate = rotated != 0;
    }
}

static void settle_temper(ConfigReader *reader, Features *ret)
{
    if (ret->temper_scale == 0 || !slot_true(reader, SLOT_TEMPER))
        return;
    bool still_only = reader->family->slot[SLOT_TEMPER_SCALE].setting != SET_NOT;
    for (int64_t i = 0; i < ret->layers; i++)
        ret->layer[i].temper = !still_only || !ret->layer[i].rotate;
}

/* ---- experts ---- */

/* A list of layer numbers: those in it have `experts`. */
static bool set_listed(Features *ret, Json list, bool experts)
{
    if (!json_want_array(list))
        return false;
    for (int i = 0; i < json_len(list); i++) {
        int64_t layer = 0;
        if (!json_int(json_at(list, i), 0, ret->layers - 1, &layer))
            return false;
        ret->layer[layer].experts = experts;
    }
    return true;
}

/* A number or a word for each layer. */
static bool set_each(Features *ret, Json list)
{
    static const char *const words[] = {"dense", "sparse"};
    if (json_len(list) != ret->layers)
        return wrong_length(list, ret->layers);
    for (int i = 0; i < ret->layers; i++) {
        int64_t number = 0;
        int word = 0;
        Json at = json_at(list, i);
        if (json_is_string(at) ? !json_word(at, words, 2, &word) : !json_int(at, 0, 1, &number))
            return false;
        ret->layer[i].experts = word == 1 || number == 1;
    }
    return true;
}

static void settle_expert_layers(ConfigReader *reader, Features *ret)
{
    Json config = reader->config;
    int64_t every = slot_int(reader, SLOT_EXPERT_EVERY, 1);
    int64_t dense = slot_int(reader, SLOT_FIRST_DENSE, 0);
    for (int64_t i = 0; i < ret->layers; i++)
        ret->layer[i].experts =
            every > 0 && i >= dense && (i + reader->family->expert_first) % every == 0;
    bool good = true;
    if (json_has(config, "moe_layers")) {
        for (int64_t i = 0; i < ret->layers; i++)
            ret->layer[i].experts = false;
        good = set_listed(ret, json_get(config, "moe_layers"), true);
    }
    if (json_has(config, "mlp_only_layers"))
        good = set_listed(ret, json_get(config, "mlp_only_layers"), false) && good;
    static const char *const lists[] = {"moe_layer_freq", "mlp_layer_types"};
    for (int i = 0; i < 2; i++) {
        if (json_is_array(json_get(config, lists[i])))
            good = set_each(ret, json_get(config, lists[i])) && good;
    }
    if (!good)
        config_fail(reader);
}

/* Layers with a chooser of keys: all, or those that a list says. */
static void settle_choosers(ConfigReader *reader, Features *ret)
{
    Json sparse = json_get(reader->config, "sparse_attention_config");
    Json list = json_get(sparse, "sparse_attention_freq");
    Json types = json_get(reader->config, "layer_types");
    for (int i = 0; i < ret->layers; i++) {
        bool full = config_is_word(json_at(types, i), type_words[TYPE_FULL]);
        ret->layer[i].choosy = ret->index_heads > 0 && !full;
    }
    if (ret->index_heads == 0 || !json_is_array(list))
        return;
    if (json_len(list) != ret->layers) {
        wrong_length(list, ret->layers);
        config_fail(reader);
        return;
    }
    for (int i = 0; i < ret->layers; i++) {
        int64_t sits = 0;
        if (!json_int(json_at(list, i), 0, 1, &sits))
            config_fail(reader);
        ret->layer[i].choosy = sits == 1;
    }
}

/* A layer without experts needs the names of a plain MLP. */
static void check_dense(ConfigReader *reader, const Features *f)
{
    for (int64_t i = 0; i < f->layers; i++) {
        if (f->layer[i].experts || f->names->down)
            continue;
        json_fail(reader->config, "layer %lld has no experts, which this family does not know",
                  (long long)i);
        config_fail(reader);
        return;
    }
}

void layers_settle(ConfigReader *reader, Features *ret)
{
    ret->layer = ARENA_ARRAY(reader->arena, Layer, ret->layers);
    settle_rotated_layers(reader, ret);
    settle_windows(reader, ret);
    if (reader->family->still_global && slot_int(reader, SLOT_WINDOW, 0) > 0) {
        for (int64_t i = 0; i < ret->layers; i++)
            ret->layer[i].rotate = ret->layer[i].local_turn;
    }
    bool two_turns = ret->local_turn.theta != ret->turn.theta ||
                     ret->local_turn.kind != ret->turn.kind ||
                     ret->local_turn.factor != ret->turn.factor;
    for (int64_t i = 0; i < ret->layers; i++)
        ret->layer[i].local_turn = ret->layer[i].local_turn && two_turns;
    settle_temper(reader, ret);
    settle_choosers(reader, ret);
    if (ret->experts.count > 0)
        settle_expert_layers(reader, ret);
    check_dense(reader, ret);
}

/* ---- layers that are refused ---- */

static bool refuse_layer(Json at, int64_t layer, const char *what)
{
    json_fail(at, "layer %lld is \"%s\": only softmax attention is in the op set", (long long)layer,
              what);
    return true;
}

bool layers_refuse(ConfigReader *reader)
{
    static const char *const lists[] = {"layer_types", "layers_block_type"};
    for (int k = 0; k < 2; k++) {
        Json list = json_get(reader->config, lists[k]);
        for (int i = 0; json_is_array(list) && i < json_len(list); i++) {
            Json at = json_at(list, i);
            const char *word = json_is_string(at) ? json_string_value(at.value) : "?";
            bool attends = str_eq(word, "attention") || str_eq(word, "moe") || str_eq(word, "mlp");
            for (int t = 0; t < TYPE_COUNT; t++)
                attends = attends || str_eq(word, type_words[t]);
            if (!attends)
                return refuse_layer(at, i, config_shown(reader->arena, word));
        }
    }
    Json pattern = json_get(reader->config, "hybrid_override_pattern");
    const char *text = json_is_string(pattern) ? json_string_value(pattern.value) : "";
    if (strchr(text, 'M'))
        return refuse_layer(pattern, strchr(text, 'M') - text, "M (Mamba)");
    Json between = json_get(reader->config, "full_attention_interval");
    if (json_is_int(between) && json_number_value(between.value) > 1)
        return refuse_layer(between, 0, "linear attention");
    Json linear = json_get(json_get(reader->config, "linear_attn_config"), "kda_layers");
    int64_t first = 0;
    if (json_is_array(linear) && json_len(linear) > 0 && json_is_int(json_at(linear, 0)) &&
        json_int(json_at(linear, 0), 0, 4096, &first))
        return refuse_layer(linear, first - (first > 0), "KDA (linear attention)");
    return false;
}
