/* import_read.c - a config.json against the tables: guards, slots, the library's defaults. */
#include "planner/import_read.h"

#include <stdlib.h>
#include <string.h>

#include "planner/import_features.h"

void config_note(ConfigReader *reader, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vec_push(reader->arena, reader->notes) = arena_vprintf(reader->arena, format, args);
    va_end(args);
}

bool config_fail(ConfigReader *reader)
{
    reader->good = false;
    return false;
}

/* Where a slot came from, for an error about it; the whole config when it is a default. */
Json slot_at(const ConfigReader *reader, Slot slot)
{
    return reader->slot[slot].state == STATE_GIVEN ? reader->slot[slot].at : reader->config;
}

const char *slot_key(const ConfigReader *reader, Slot slot)
{
    return reader->slot[slot].state == STATE_GIVEN ? reader->slot[slot].key : slot_info[slot].name;
}

/* False, null, zero and empty containers say that a feature is off. */
bool config_is_off(Json at)
{
    switch (at.value ? json_typeof(at.value) : JSON_NULL) {
    case JSON_NULL:
    case JSON_FALSE:
        return true;
    case JSON_INTEGER:
    case JSON_REAL:
        return json_number_value(at.value) == 0;
    case JSON_ARRAY:
    case JSON_OBJECT:
        return json_len(at) == 0;
    default:
        return false;
    }
}

bool config_is_word(Json at, const char *word)
{
    return json_is_string(at) && str_eq(json_string_value(at.value), word);
}

static bool is_one_of(const char *text, const char *words)
{
    for (const char *at = words; *at; at += *at == ',') {
        size_t length = strcspn(at, ",");
        if (strlen(text) == length && strncmp(text, at, length) == 0)
            return true;
        at += length;
    }
    return false;
}

static bool ends_with_one(const char *text, const char *endings)
{
    for (const char *at = endings; *at; at += *at == ',') {
        size_t length = strcspn(at, ","), have = strlen(text);
        if (have >= length && strncmp(text + have - length, at, length) == 0)
            return true;
        at += length;
    }
    return false;
}

static bool list_holds(Json at, const GuardRow *row)
{
    int count = json_len(at);
    for (int i = 0; i < count; i++) {
        Json element = json_at(at, i);
        if (json_is_string(element) && ends_with_one(json_string_value(element.value), row->word))
            return true;
    }
    return count == 0;
}

static bool guard_holds(Json config, Json at, const GuardRow *row)
{
    if (json_typeof(at.value) == JSON_NULL)
        return true;
    switch (row->kind) {
    case GUARD_FALSE:
    case GUARD_NOTE:
        return config_is_off(at);
    case GUARD_TRUE:
        return json_typeof(at.value) == JSON_TRUE;
    case GUARD_NOTE_ONE:
        return config_is_off(at) || (json_is_number(at.value) && json_number_value(at.value) == 1);
    case GUARD_WORD:
        return json_is_string(at) && is_one_of(json_string_value(at.value), row->word);
    case GUARD_EACH:
        for (int i = 0; i < json_len(at); i++) {
            if (!config_is_word(json_at(at, i), row->word))
                return false;
        }
        return json_is_array(at);
    case GUARD_NUMBER:
        return json_is_number(at.value) && json_number_value(at.value) == strtod(row->word, NULL);
    case GUARD_SAME:
        return json_is_number(at.value) &&
               json_number_value(at.value) == json_number_value(json_get(config, row->word).value);
    case GUARD_ENDS:
        return json_is_array(at) && list_holds(at, row);
    }
    return false;
}

bool config_read_guards(ConfigReader *reader, Json at, const char *key)
{
    bool found = false;
    for (int i = 0; i < guard_row_count; i++) {
        const GuardRow *row = &guard_rows[i];
        bool ours =
            !row->family || (reader->family && str_eq(row->family, reader->family->model_type));
        if (!ours || !str_eq(row->key, key))
            continue;
        found = true;
        if (guard_holds(reader->config, at, row) || training_reads(reader, key))
            continue;
        if (row->kind == GUARD_NOTE || row->kind == GUARD_NOTE_ONE) {
            reader->noted[i] = true;
            continue;
        }
        json_fail(at, "%s is not supported: %s", key, row->why);
        config_fail(reader);
    }
    return found;
}

static bool read_value(Json at, const SlotInfo *info, SlotValue *ret)
{
    int64_t whole = 0;
    bool truth = false;
    switch (info->kind) {
    case SLOT_INT:
        if (!json_int(at, (int64_t)info->min, (int64_t)info->max, &whole))
            return false;
        ret->value = (double)whole;
        return true;
    case SLOT_NUM:
        return json_num(at, info->min, info->max, &ret->value);
    case SLOT_BOOL:
        if (!json_bool(at, &truth))
            return false;
        ret->value = truth;
        return true;
    case SLOT_WORD:
        return json_str(at, &ret->word);
    }
    return false;
}

static bool same_value(const SlotValue *a, const SlotValue *b)
{
    return a->state == b->state && a->value == b->value && str_eq(a->word, b->word);
}

/* The other vocabulary's key loses to the family's own; two of the same must agree. */
static void slot_merge(ConfigReader *reader, Slot slot, SlotValue value)
{
    SlotValue *have = &reader->slot[slot];
    Style own = reader->family->style;
    bool better = value.style == own || value.style == STYLE_BOTH;
    bool settled = have->style == own || have->style == STYLE_BOTH;
    if (have->state == STATE_ABSENT) {
        *have = value;
        return;
    }
    if (same_value(have, &value))
        return;
    if (better == settled && (value.state == STATE_NULL || have->state == STATE_NULL)) {
        if (have->state == STATE_NULL)
            *have = value;
        return;
    }
    if (better == settled) {
        json_fail(value.at, "%s contradicts %s", value.key, have->key);
        diag_help(reader->diag, "both say the same thing: keep one of them");
        config_fail(reader);
        return;
    }
    const char *loser = better ? have->key : value.key, *winner = better ? value.key : have->key;
    config_note(reader, "%s ignored: this family reads %s", loser, winner);
    if (better)
        *have = value;
}

/* A key that the family's code does not read: what it says must not matter. */
static void slot_unread(ConfigReader *reader, Slot slot, SlotValue value)
{
    const SlotDefault *row = &reader->family->slot[slot];
    const SlotInfo *info = &slot_info[slot];
    double meant = row->setting == SET_FIXED ? row->value : info->neutral;
    if (value.state != STATE_GIVEN || value.value == meant)
        return;
    if (info->strict) {
        json_fail(value.at, "model family \"%s\" with this %s is not supported",
                  reader->family->model_type, value.key);
        config_fail(reader);
        return;
    }
    /* One key may fill several slots: one note. */
    const char *text =
        arena_printf(reader->arena, "%s ignored: this family's code does not read it", value.key);
    for (int i = 0; i < reader->notes->n; i++) {
        if (str_eq(reader->notes->at[i], text))
            return;
    }
    config_note(reader, "%s", text);
}

/* Rows of the family alone where it has one for the key. */
static bool row_counts(const ConfigReader *reader, const KeyRow *row, const char *key, bool own)
{
    return str_eq(row->key, key) &&
           (own ? str_eq(row->family, reader->family->model_type) : row->family == NULL);
}

static bool has_own_rows(const ConfigReader *reader, const char *key)
{
    for (int i = 0; i < key_row_count; i++) {
        if (row_counts(reader, &key_rows[i], key, true))
            return true;
    }
    return false;
}

/* Local layers and a global one, a letter each. */
static bool read_pattern(ConfigReader *reader, Json at, const char *key)
{
    const char *text = json_string_value(at.value);
    size_t local = strspn(text, "L");
    if (!str_eq(text + local, "G")) {
        json_fail(at, "a pattern that is not L, L, ... G");
        return config_fail(reader);
    }
    slot_merge(reader, SLOT_WINDOW_EVERY,
               (SlotValue){.state = STATE_GIVEN, .value = (double)local + 1, .key = key, .at = at});
    return true;
}

static bool read_slot(ConfigReader *reader, Json at, const char *key, const KeyRow *row)
{
    if (row->slot == SLOT_NONE || (row->slot == SLOT_EXPERT_EVERY && json_is_array(at)))
        return true; /* a list of layers is read with the layers */
    SlotValue value = {.state = STATE_NULL, .key = key, .style = row->style, .at = at};
    if (row->slot == SLOT_WINDOW_EVERY && json_is_string(at)) /* "LLLG" */
        return read_pattern(reader, at, key);
    bool off = row->slot == SLOT_WINDOW && config_is_off(at); /* 0 is written for none */
    if (json_typeof(at.value) != JSON_NULL && !off) {
        value.state = STATE_GIVEN;
        if (!read_value(at, &slot_info[row->slot], &value))
            return config_fail(reader);
    }
    Setting setting = reader->family->slot[row->slot].setting;
    if (setting == SET_READ || setting == SET_DEFAULT)
        slot_merge(reader, row->slot, value);
    else
        slot_unread(reader, row->slot, value);
    return true;
}

static bool read_slots(ConfigReader *reader, Json at, const char *key)
{
    bool own = has_own_rows(reader, key), found = false;
    for (int i = 0; i < key_row_count; i++) {
        if (!row_counts(reader, &key_rows[i], key, own))
            continue;
        found = true;
        if (!read_slot(reader, at, key, &key_rows[i]))
            break;
    }
    return found;
}

void list_add(Str *list, const char *text)
{
    str_putf(list, "%s%s", list->n > 0 ? ", " : "", text);
}

/* Keys are quoted from a file: only plain ones are shown. */
const char *config_shown(Arena *arena, const char *key)
{
    char *copy = arena_strndup(arena, key, strnlen(key, 40));
    for (char *c = copy; *c; c++) {
        if (*c < ' ' || *c > '~')
            *c = '?';
    }
    return copy;
}

/* Keys ignored for one reason share a note. */
static void note_guards(ConfigReader *reader)
{
    for (int i = 0; i < guard_row_count; i++) {
        if (!reader->noted[i])
            continue;
        Str keys = str_new(reader->arena);
        for (int j = i; j < guard_row_count; j++) {
            if (!reader->noted[j] || !str_eq(guard_rows[j].why, guard_rows[i].why))
                continue;
            reader->noted[j] = false;
            list_add(&keys, guard_rows[j].key);
        }
        config_note(reader, "%s ignored: %s", keys.at, guard_rows[i].why);
    }
}

/* Some key of the tables lies inside this object. */
static bool has_inner_keys(const char *key)
{
    size_t length = strlen(key);
    for (int i = 0; i < key_row_count; i++) {
        if (strncmp(key_rows[i].key, key, length) == 0 && key_rows[i].key[length] == '.')
            return true;
    }
    return false;
}

static void read_members(ConfigReader *reader, Json object, const char *prefix)
{
    for (int i = 0; i < json_len(object); i++) {
        const char *name;
        Json at = json_member(object, i, &name);
        const char *key = *prefix ? arena_printf(reader->arena, "%s.%s", prefix, name) : name;
        bool known = config_read_guards(reader, at, key);
        known |= read_slots(reader, at, key);
        if (json_is_object(at) && has_inner_keys(key)) {
            read_members(reader, at, key);
            known = true;
        }
        for (int j = 0; j < harmless_key_count && !known; j++)
            known = str_eq(harmless_keys[j], key);
        if (!known)
            list_add(&reader->unknown, config_shown(reader->arena, key));
    }
}

void config_read_members(ConfigReader *reader)
{
    read_members(reader, reader->config, "");
    note_guards(reader);
}

static const char *key_of_family(const ConfigReader *reader, Slot slot)
{
    for (int i = 0; i < key_row_count; i++)
        if (key_rows[i].slot == slot && !key_rows[i].family &&
            (key_rows[i].style == reader->family->style || key_rows[i].style == STYLE_BOTH))
            return key_rows[i].key;
    return slot_info[slot].name;
}

bool config_want_sizes(ConfigReader *reader)
{
    static const Slot sizes[] = {SLOT_HIDDEN, SLOT_LAYERS, SLOT_HEADS, SLOT_VOCAB};
    for (int i = 0; i < 4; i++) {
        Setting setting = reader->family->slot[sizes[i]].setting;
        if (reader->slot[sizes[i]].state == STATE_GIVEN || setting == SET_NOT ||
            setting == SET_FIXED)
            continue;
        json_fail(reader->config, "%s is missing", key_of_family(reader, sizes[i]));
        diag_help(reader->diag, "sizes are not guessed: copy it from the model's own config.json");
        config_fail(reader);
    }
    return reader->good;
}

/* The library's default where the config is silent; null where there is none. */
void config_settle_defaults(ConfigReader *reader)
{
    for (int slot = 0; slot < SLOT_COUNT; slot++) {
        SlotValue *have = &reader->slot[slot];
        const SlotDefault *row = &reader->family->slot[slot];
        const SlotInfo *info = &slot_info[slot];
        if (row->setting == SET_FIXED) {
            *have = (SlotValue){.state = STATE_GIVEN,
                                .value = row->value,
                                .word = row->word,
                                .key = info->name,
                                .at = reader->config};
            continue;
        }
        if (have->state == STATE_GIVEN || (have->state == STATE_NULL && info->nullable))
            continue;
        bool derived = slot == SLOT_FFN && row->value == 0;
        if (row->setting == SET_NOT || row->setting == SET_READ || derived) {
            have->state = STATE_NULL;
            continue;
        }
        *have = (SlotValue){.state = STATE_GIVEN,
                            .value = row->value,
                            .word = row->word,
                            .key = info->name,
                            .at = reader->config};
        if (info->quiet)
            continue;
        list_add(&reader->defaults,
                 info->kind == SLOT_BOOL
                     ? arena_printf(reader->arena, "%s %s", info->name,
                                    row->value != 0 ? "true" : "false")
                     : arena_printf(reader->arena, "%s %.10g", info->name, row->value));
    }
}

int64_t slot_int(const ConfigReader *reader, Slot slot, int64_t otherwise)
{
    const SlotValue *value = &reader->slot[slot];
    return value->state == STATE_GIVEN ? (int64_t)value->value : otherwise;
}

double slot_num(const ConfigReader *reader, Slot slot, double otherwise)
{
    return reader->slot[slot].state == STATE_GIVEN ? reader->slot[slot].value : otherwise;
}

bool slot_true(const ConfigReader *reader, Slot slot)
{
    return reader->slot[slot].state == STATE_GIVEN && reader->slot[slot].value != 0;
}
