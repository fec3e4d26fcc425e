/* import_hf.c - which family a config.json is of, and all of the way from it to a model. */
#include "planner/import_hf.h"

#include <string.h>

#include "planner/import_features.h"

/* ---- which family ---- */

static const Family *family_by_type(const char *type)
{
    for (int i = 0; family_at(i); i++) {
        if (str_eq(family_at(i)->model_type, type))
            return family_at(i);
    }
    return NULL;
}

static bool family_unknown(Arena *arena, Json at, const char *type)
{
    json_fail(at, "model family \"%s\" is not known", config_shown(arena, type));
    VEC(const char *) names = {0};
    Str list = str_new(arena);
    for (int i = 0; family_at(i); i++) {
        vec_push(arena, &names) = family_at(i)->model_type;
        list_add(&list, family_at(i)->model_type);
    }
    const char *nearest = str_nearest(type, names.at, names.n);
    if (nearest)
        diag_help(at.doc->diag, "did you mean \"%s\"?", nearest);
    else
        diag_help(at.doc->diag, "supported are %s", list.at);
    return false;
}

/* Why a family that is known is refused, with the layer that cannot be built where the config names
 * one. */
static bool family_refuse(ConfigReader *reader, Json at, const char *type)
{
    for (int i = 0; i < refusal_count; i++) {
        if (!str_eq(refusals[i].model_type, type))
            continue;
        json_fail(at, "model family \"%s\" is not supported: %s", type, refusals[i].why);
        layers_refuse(reader);
        return false;
    }
    return family_unknown(reader->arena, at, type);
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
    const Wrapper *wrapper = wrapper_by_type(type);
    bool wrapped = json_has(reader->config, "text_config");
    if (wrapper && !wrapped && !str_eq(wrapper->inner, type) && family_by_type(type) == NULL &&
        json_has(reader->config, slot_info[SLOT_HIDDEN].name)) {
        type = wrapper->inner; /* the language model alone under the wrapper's name */
    } else if (wrapped && (wrapper || !family_by_type(type))) {
        reader->config = json_get(reader->config, "text_config");
        if (!json_want_object(reader->config))
            return false;
        if (wrapper) {
            features->wrapper = wrapper;
            config_note(reader, "only the language model inside \"%s\" is imported", type);
            type = wrapper->inner;
            if (json_has(reader->config, "model_type")) {
                at = json_get(reader->config, "model_type");
                if (!json_str(at, &type))
                    return false;
            }
        }
    }
    reader->family = family_by_type(type);
    for (int i = 0; !reader->family && i < alias_count; i++) {
        if (str_eq(aliases[i].model_type, type))
            reader->family = family_by_type(aliases[i].same_as);
    }
    if (reader->family)
        return true;
    return family_refuse(reader, at, type);
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

/* A file of ours in the place of a config: the next verb reads it. */
static bool is_config(Json root)
{
    static const struct {
        const char *format, *name, *help;
    } own[] = {{"lplan-model/", "model", "it is what import makes: lplan plan MODEL CLUSTER"},
               {"lplan-plan/", "plan", "see lplan explain, whatif, prove and build"},
               {"lplan-cluster/", "cluster", "the order is lplan plan MODEL CLUSTER"}};
    const char *format = json_string_value(json_object_get(root.value, "format"));
    for (size_t i = 0; format && i < sizeof own / sizeof *own; i++) {
        if (strncmp(format, own[i].format, strlen(own[i].format)) != 0)
            continue;
        json_fail(json_get(root, "format"), "this is a %s file, not a config", own[i].name);
        diag_help(root.doc->diag, "%s", own[i].help);
        return false;
    }
    return true;
}

bool import_hf(Arena *arena, Json config, const char *name, const ImportOptions *options,
               Import *ret)
{
    *ret = (Import){0};
    ConfigReader reader = {.arena = arena,
                           .diag = config.doc->diag,
                           .config = config,
                           .options = options,
                           .notes = &ret->notes,
                           .noted = ARENA_ARRAY(arena, bool, guard_row_count),
                           .unknown = str_new(arena),
                           .defaults = str_new(arena),
                           .good = true};
    Features features = {.name = plain_name(arena, name)};
    if (!json_want_object(config) || !is_config(config) || !find_family(&reader, &features))
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
    features_settle(&reader, &features);
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
    JsonDoc *doc = json_load_foreign(arena, diag, path);
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
    bool good =
        import_hf(arena, json_root(doc), import_name(arena, path), &(ImportOptions){0}, &import);
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
