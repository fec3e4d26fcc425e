/* import_hf.c - settles what a config.json says into Features, or refuses it. */
#include "planner/import_hf.h"

#include <math.h>
#include <string.h>

#include "planner/import_features.h"
#include "planner/import_read.h"

/* ---- rotation ---- */

static bool read_llama3(ConfigReader *reader, Json at, RopeScale *scale)
{
    bool good = json_num(json_get(at, "low_freq_factor"), 1e-3, 1e6, &scale->low);
    good &= json_num(json_get(at, "high_freq_factor"), 1e-3, 1e6, &scale->high);
    good &=
        json_int(json_get(at, "original_max_position_embeddings"), 1, 1 << 28, &scale->original);
    if (good && scale->high <= scale->low)
        good = json_fail(json_get(at, "high_freq_factor"), "must be above low_freq_factor");
    return good || config_fail(reader);
}

static bool read_scaling(ConfigReader *reader, Json at, RopeScale *scale)
{
    static const char *const words[] = {"default", "linear", "llama3", "mrope", "gptj"};
    static const char *const others[] = {"dynamic", "yarn", "longrope", "su", "proportional"};
    if (!json_want_object(at))
        return config_fail(reader);
    Json type = json_has(at, "rope_type") ? json_get(at, "rope_type") : json_get(at, "type");
    if (!type.value)
        return true;
    for (int i = 0; i < (int)(sizeof others / sizeof *others); i++) {
        if (!config_is_word(type, others[i]))
            continue;
        json_fail(type, "rotation scaled by \"%s\" is not supported", others[i]);
        diag_help(reader->diag, "supported are default, linear and llama3");
        return config_fail(reader);
    }
    int word = 0;
    if (!json_word(type, words, 5, &word))
        return config_fail(reader);
    if (str_eq(words[word], "gptj") && !reader->family->interleaved) {
        json_fail(type, "this family rotates halves");
        return config_fail(reader);
    }
    if (str_eq(words[word], "mrope"))
        config_note(reader,
                    "rope_scaling mrope: text has one position a token, so it is plain rotation");
    if (word != 1 && word != 2)
        return true;
    if (!json_num(json_get(at, "factor"), 1, 1e6, &scale->factor))
        return config_fail(reader);
    scale->kind = word == 1 ? ROPE_LINEAR : ROPE_LLAMA3;
    return word == 1 || read_llama3(reader, at, scale);
}

static void read_rotation(ConfigReader *reader, Features *ret)
{
    ret->scale = (RopeScale){.kind = ROPE_PLAIN, .factor = 1, .low = 1, .high = 1};
    if (reader->family->names->positions)
        return;
    ret->theta = slot_num(reader, SLOT_THETA, 10000);
    if (json_has(reader->config, "rope_scaling"))
        read_scaling(reader, json_get(reader->config, "rope_scaling"), &ret->scale);
    if (json_has(reader->config, "rope_parameters"))
        read_scaling(reader, json_get(reader->config, "rope_parameters"), &ret->scale);
    ret->rotary = ret->head_dim;
    Slot from = reader->slot[SLOT_HEAD_DIM].state == STATE_GIVEN ? SLOT_HEAD_DIM : SLOT_HEADS;
    if (reader->slot[SLOT_ROTARY].state == STATE_GIVEN) {
        from = SLOT_ROTARY;
        ret->rotary = slot_int(reader, SLOT_ROTARY, 0);
    } else if (reader->slot[SLOT_ROTARY_PART].state == STATE_GIVEN) {
        from = SLOT_ROTARY_PART;
        ret->rotary = (int64_t)((double)ret->head_dim * slot_num(reader, SLOT_ROTARY_PART, 1));
    }
    if (ret->rotary > 0 && ret->rotary <= ret->head_dim && ret->rotary % 2 == 0)
        return;
    json_fail(slot_at(reader, from), "%lld of %lld dims of a head cannot be rotated in pairs",
              (long long)ret->rotary, (long long)ret->head_dim);
    config_fail(reader);
}

/* ---- layers that differ ---- */

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
            ret->window[first + i] = 0;
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

static void settle_windows(ConfigReader *reader, Features *ret)
{
    int64_t window = slot_int(reader, SLOT_WINDOW, 0), from = 0;
    if (reader->family->slot[SLOT_USE_WINDOW].setting != SET_NOT) {
        from = slot_int(reader, SLOT_WINDOW_FROM, 0);
        if (!slot_true(reader, SLOT_USE_WINDOW))
            window = 0;
    }
    if (window >= ret->positions) {
        config_note(reader, "%s %lld ignored: no sequence is longer", slot_key(reader, SLOT_WINDOW),
                    (long long)window);
        window = 0;
    }
    bool silent = reader->slot[SLOT_WINDOW].at.value == reader->config.value;
    if (silent && window > 0)
        list_add(&reader->defaults, arena_printf(reader->arena, "%s %lld",
                                                 slot_info[SLOT_WINDOW].name, (long long)window));
    for (int64_t i = 0; i < ret->layers; i++)
        ret->window[i] = i >= from ? window : 0;
    if (reader->family->local_layers)
        settle_local_layers(reader, ret);
}

static void settle_rotated_layers(ConfigReader *reader, Features *ret)
{
    for (int64_t i = 0; i < ret->layers; i++)
        ret->rotate[i] = ret->rotary > 0;
    if (reader->family->slot[SLOT_ROPE_EVERY].setting == SET_NOT)
        return;
    Json list = json_get(reader->config, "no_rope_layers");
    if (!json_has(reader->config, "no_rope_layers") || config_is_off(list)) {
        int64_t every = slot_int(reader, SLOT_ROPE_EVERY, 0);
        for (int64_t i = 0; every > 0 && i < ret->layers; i++)
            ret->rotate[i] = (i + 1) % every != 0;
        return;
    }
    if (!json_want_array(list) || json_len(list) != ret->layers) {
        json_fail(list, "expected one entry for each of the %lld layers", (long long)ret->layers);
        config_fail(reader);
        return;
    }
    for (int i = 0; i < ret->layers; i++) {
        int64_t rotated = 0;
        if (!json_int(json_at(list, i), 0, 1, &rotated))
            config_fail(reader);
        ret->rotate[i] = rotated != 0;
    }
}

/* ---- all together ---- */

static void settle_heads(ConfigReader *reader, Features *ret)
{
    long long hidden = ret->hidden, heads = ret->heads;
    ret->head_dim = slot_int(reader, SLOT_HEAD_DIM, 0);
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
    if (ret->heads % ret->kv_heads != 0) {
        json_fail(slot_at(reader, SLOT_KV_HEADS), "%s %lld is not divisible by %s %lld",
                  slot_key(reader, SLOT_HEADS), heads, slot_key(reader, SLOT_KV_HEADS),
                  (long long)ret->kv_heads);
        config_fail(reader);
    } else if (reader->family->plain_heads && ret->kv_heads != ret->heads) {
        json_fail(slot_at(reader, SLOT_KV_HEADS),
                  "model family \"%s\" with fewer key than query heads is not supported: the fused "
                  "projection has unequal parts",
                  reader->family->model_type);
        config_fail(reader);
    }
}

static void settle_act(ConfigReader *reader, Features *ret)
{
    const SlotValue *value = &reader->slot[SLOT_ACT];
    ret->act = act_by_word(value->word);
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
    ret->residual_scale = slot_num(reader, SLOT_RESIDUAL_SCALE, 1);
    if (reader->slot[SLOT_DEPTH_SCALE].state == STATE_GIVEN)
        ret->residual_scale = slot_num(reader, SLOT_DEPTH_SCALE, 1) / sqrt((double)ret->layers);
    ret->head_scale =
        slot_num(reader, SLOT_LOGIT_SCALE, 1) / slot_num(reader, SLOT_LOGIT_DIVISOR, 1);
    if (reader->slot[SLOT_BASE_WIDTH].state == STATE_GIVEN)
        ret->head_scale *= slot_num(reader, SLOT_BASE_WIDTH, 1) / (double)ret->hidden;
    ret->attention_scale = slot_num(reader, SLOT_ATTENTION_SCALE, 0);
}

static void settle(ConfigReader *reader, Features *ret)
{
    ret->family = reader->family;
    ret->hidden = slot_int(reader, SLOT_HIDDEN, 0);
    ret->layers = slot_int(reader, SLOT_LAYERS, 0);
    ret->heads = slot_int(reader, SLOT_HEADS, 1);
    ret->vocab = slot_int(reader, SLOT_VOCAB, 0);
    ret->positions = slot_int(reader, SLOT_POSITIONS, 0);
    ret->ffn = slot_int(reader, SLOT_FFN, reader->family->ffn_times * ret->hidden);
    ret->eps = slot_num(reader, SLOT_EPS, 1e-5);
    ret->init_std = slot_num(reader, SLOT_INIT_STD, 0.02);
    ret->tie = slot_true(reader, SLOT_TIE);
    ret->qkv_bias = slot_true(reader, SLOT_QKV_BIAS);
    ret->out_bias = slot_true(reader, SLOT_OUT_BIAS);
    ret->mlp_bias = slot_true(reader, SLOT_MLP_BIAS);
    ret->parallel = slot_true(reader, SLOT_PARALLEL);
    ret->window = ARENA_ARRAY(reader->arena, int64_t, ret->layers);
    ret->rotate = ARENA_ARRAY(reader->arena, bool, ret->layers);
    settle_act(reader, ret);
    settle_scales(reader, ret);
    settle_heads(reader, ret);
    if (!reader->good)
        return;
    if (ret->ffn == 0) {
        json_fail(slot_at(reader, SLOT_FFN), "%s is null and this family has no default for it",
                  slot_key(reader, SLOT_FFN));
        config_fail(reader);
    }
    if (ret->tie && reader->family->head_bias)
        config_note(reader, "the tied head keeps its own bias");
    read_rotation(reader, ret);
    settle_windows(reader, ret);
    settle_rotated_layers(reader, ret);
}

/* ---- which family ---- */

static const Family *family_by_type(const char *type)
{
    for (int i = 0; i < family_count; i++) {
        if (str_eq(families[i].model_type, type))
            return &families[i];
    }
    return NULL;
}

static bool family_refuse(Arena *arena, Json at, const char *type)
{
    for (int i = 0; i < refusal_count; i++) {
        if (str_eq(refusals[i].model_type, type))
            return json_fail(at, "model family \"%s\" is not supported: %s", type, refusals[i].why);
    }
    json_fail(at, "model family \"%s\" is not known", config_shown(arena, type));
    const char **names = ARENA_ARRAY(arena, const char *, family_count);
    Str list = str_new(arena);
    for (int i = 0; i < family_count; i++) {
        names[i] = families[i].model_type;
        list_add(&list, names[i]);
    }
    const char *nearest = str_nearest(type, names, family_count);
    if (nearest)
        diag_help(at.doc->diag, "did you mean \"%s\"?", nearest);
    else
        diag_help(at.doc->diag, "supported are %s", list.at);
    return false;
}

static const Wrapper *wrapper_by_type(const char *type)
{
    for (int i = 0; i < wrapper_count; i++) {
        if (str_eq(wrappers[i].model_type, type))
            return &wrappers[i];
    }
    return NULL;
}

/* Steps into text_config where the outer type is a wrapper; false after an error. */
static bool find_family(ConfigReader *reader, Features *features)
{
    const char *type = NULL;
    Json at = json_get(reader->config, "model_type");
    if (!json_str(at, &type))
        return false;
    features->wrapper = wrapper_by_type(type);
    if (features->wrapper) {
        config_note(reader, "only the language model inside \"%s\" is imported", type);
        reader->config = json_get(reader->config, "text_config");
        if (!json_want_object(reader->config))
            return false;
        type = features->wrapper->inner;
        if (json_has(reader->config, "model_type")) {
            at = json_get(reader->config, "model_type");
            if (!json_str(at, &type))
                return false;
        }
    }
    reader->family = family_by_type(type);
    if (reader->family)
        return true;
    family_refuse(reader->arena, at, type);
    for (int i = 0; i < json_len(reader->config); i++) {
        const char *key;
        Json member = json_member(reader->config, i, &key);
        config_read_guards(reader, member, key);
    }
    return false;
}

/* Newer configs keep what belongs to the rotation in one object. */
static void read_rope_parameters(ConfigReader *reader)
{
    static const Slot slots[] = {SLOT_THETA, SLOT_ROTARY_PART};
    Json object = json_get(reader->config, "rope_parameters");
    for (int i = 0; i < 2; i++) {
        const SlotInfo *info = &slot_info[slots[i]];
        SlotValue *slot = &reader->slot[slots[i]];
        Setting setting = reader->family->slot[slots[i]].setting;
        if (!json_has(object, info->name) || (setting != SET_READ && setting != SET_DEFAULT))
            continue;
        SlotValue value = {
            .state = STATE_GIVEN, .key = info->name, .at = json_get(object, info->name)};
        if (!json_num(value.at, info->min, info->max, &value.value))
            config_fail(reader);
        *slot = value;
    }
}

/* A wrapper may say of the whole what its text_config leaves out. */
static void read_outer_tie(ConfigReader *reader, Json root)
{
    Json at = json_get(root, slot_info[SLOT_TIE].name);
    bool tie = false;
    SlotValue *slot = &reader->slot[SLOT_TIE];
    if (slot->state != STATE_ABSENT || !json_has(root, slot_info[SLOT_TIE].name))
        return;
    if (!json_bool(at, &tie)) {
        config_fail(reader);
        return;
    }
    *slot =
        (SlotValue){.state = STATE_GIVEN, .value = tie, .key = slot_info[SLOT_TIE].name, .at = at};
}

/* Names end up in files and reports. */
static const char *plain_name(Arena *arena, const char *name)
{
    char *copy = arena_strndup(arena, name, strnlen(name, 80));
    for (char *c = copy; *c; c++) {
        bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');
        if (!letter && !(*c >= '0' && *c <= '9') && !strchr("._-", *c))
            *c = '_';
    }
    return *copy ? copy : "model";
}

bool import_hf(Arena *arena, Json config, const char *name, Import *ret)
{
    *ret = (Import){0};
    ConfigReader reader = {.arena = arena,
                           .diag = config.doc->diag,
                           .config = config,
                           .notes = &ret->notes,
                           .noted = ARENA_ARRAY(arena, bool, guard_row_count),
                           .unknown = str_new(arena),
                           .defaults = str_new(arena),
                           .good = true};
    Features features = {.name = plain_name(arena, name)};
    if (!json_want_object(config) || !find_family(&reader, &features))
        return false;
    config_read_members(&reader);
    read_outer_tie(&reader, config);
    read_rope_parameters(&reader);
    if (!reader.good)
        return false;
    /* inside a wrapper the library itself writes only what differs from its defaults */
    if (!features.wrapper && !config_want_sizes(&reader))
        return false;
    config_settle_defaults(&reader);
    settle(&reader, &features);
    if (!reader.good)
        return false;
    if (reader.defaults.n > 0)
        config_note(&reader, "absent, so the library's defaults: %s", reader.defaults.at);
    if (reader.unknown.n > 0)
        config_note(&reader, "unknown keys ignored: %s", reader.unknown.at);
    ret->family = reader.family->model_type;
    ret->positions = features.positions;
    ret->model = features_build(arena, &features);
    return true;
}

const char *import_name(Arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    size_t length = strlen(base);
    if (length > 5 && strcmp(base + length - 5, ".json") == 0)
        length -= 5;
    if (length == 6 && strncmp(base, "config", 6) == 0 && slash && slash > path) {
        const char *from = slash;
        while (from > path && from[-1] != '/')
            from--;
        return arena_strndup(arena, from, (size_t)(slash - from));
    }
    return str_eq(path, "-") ? "model" : arena_strndup(arena, base, length);
}

/* The rows of the table that positions are looked up in; 0 when there is none. */
static int64_t table_positions(Json root)
{
    json_t *blocks = json_object_get(root.value, "blocks"), *block, *op;
    const char *name;
    size_t i;
    json_object_foreach(blocks, name, block)
    {
        json_array_foreach(json_object_get(block, "ops"), i, op)
        {
            const char *in = json_string_value(json_object_get(op, "in"));
            const char *rows = json_string_value(json_object_get(op, "rows"));
            json_t *extent =
                rows ? json_object_get(json_object_get(root.value, "dims"), rows) : NULL;
            if (str_eq(in, "positions") && json_is_integer(extent))
                return json_integer_value(extent);
        }
    }
    return 0;
}

/* Another file of ours in the place of a model. */
static bool is_model(Json root)
{
    const char *format = json_string_value(json_object_get(root.value, "format"));
    bool plan = format && strncmp(format, "lplan-plan/", 11) == 0;
    if (!plan && !(format && strncmp(format, "lplan-cluster/", 14) == 0))
        return true;
    json_fail(json_get(root, "format"), "this is a %s file, not a model",
              plan ? "plan" : "cluster");
    diag_help(root.doc->diag, "%s",
              plan ? "it is planned already: see lplan explain, whatif, prove and build"
                   : "the order is lplan plan MODEL CLUSTER");
    return false;
}

JsonDoc *import_model(Arena *arena, Diag *diag, const char *path, Import *ret)
{
    JsonDoc *doc = json_load(arena, diag, path);
    Import import = {0};
    if (ret)
        *ret = import;
    if (doc && !is_model(json_root(doc))) {
        json_doc_free(doc);
        return NULL;
    }
    if (doc && ret)
        ret->positions = table_positions(json_root(doc));
    if (!doc || json_has(json_root(doc), "format"))
        return doc;
    bool good = import_hf(arena, json_root(doc), import_name(arena, path), &import);
    json_doc_free(doc);
    if (!good)
        return NULL;
    const char *text = json_text(arena, import.model);
    json_decref(import.model);
    import.model = NULL;
    if (ret)
        *ret = import;
    return json_parse(arena, diag, arena_printf(arena, "<imported %s>", path), text, strlen(text));
}
