/* json.c - parsing with located errors, and readers that check what they read. */
#include "ir/base/json.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "ir/base/json_locate.h"
#include "ir/base/str.h"

/* 2^53: above it a double does not hold every integer. */
static const double exact_limit = 0x1p53;

/* The bytes at fault. Jansson stops behind the token that it quotes: "... near 'TOKEN'". */
typedef struct Fault {
    size_t offset, length;
} Fault;

static Fault fault_of(const Source *source, const json_error_t *error)
{
    size_t end = error->position < 0 ? 0 : (size_t)error->position;
    if (end > source->length)
        end = source->length;
    const char *near = strstr(error->text, " near '");
    if (near) {
        const char *token = near + strlen(" near '");
        size_t length = strlen(token);
        length -= length > 0 && token[length - 1] == '\'';
        if (length <= end && memcmp(source->text + end - length, token, length) == 0)
            return (Fault){end - length, length};
    }
    return (Fault){end, 0};
}

/* Habits of other notations, told by the bytes at fault. */
static const char *foreign_help(const Source *source, Fault fault)
{
    const char *at = source->text + fault.offset, *before = at;
    while (before > source->text && strchr(" \t\r\n", before[-1]))
        before--;
    bool after_comma = before > source->text && before[-1] == ',';
    if (fault.length == 0)
        return NULL;
    if ((*at == '}' || *at == ']') && after_comma)
        return "remove the comma before it";
    if (*at == '\'')
        return "keys and texts stand in double quotes";
    if (*at == '/' || *at == '#')
        return "JSON has no comments";
    if (*at == ',' || *at == ':')
        return after_comma ? "one comma too many before it"
                           : "a value, or a key in double quotes, is missing before it";
    if (strncmp(at, "NaN", 3) == 0 || strncmp(at, "Inf", 3) == 0 || strncmp(at, "-Inf", 4) == 0)
        return "JSON has no NaN and no infinity";
    return NULL;
}

/* By what Jansson says, for texts that are no other notation. */
static const char *plain_help(const char *error)
{
    static const char *const help[][2] = {
        {"control character", "write it as \\n, \\t or \\u and four digits"},
        {"unexpected newline", "a text ends on its line: write \\n for a new one"},
        {"invalid escape",
         "escapes are \\\" \\\\ \\/ \\b \\f \\n \\r \\t and \\u with four digits"},
        {"invalid Unicode", "half a surrogate pair: write the character itself"},
        {"']' expected", "a comma is missing before it, or a bracket"},
        {"'}' expected", "a comma is missing before it, or a bracket"},
        {"':' expected", "a colon stands between a key and its value"},
        {"'{' expected", "a description begins with {"},
    };
    for (size_t i = 0; i < sizeof help / sizeof *help; i++)
        if (strstr(error, help[i][0]))
            return help[i][1];
    return "values are {}, [], true, false, null, numbers such as -1.5e6 and texts in \"\"";
}

static const char *syntax_help(const Source *source, Fault fault, const json_error_t *error)
{
    switch (json_error_code(error)) {
    case json_error_duplicate_key:
        return "keep one of the two members";
    case json_error_premature_end_of_input:
        return "the text ends before its last bracket or quote is closed";
    case json_error_end_of_input_expected:
        return "remove what follows the first value";
    case json_error_numeric_overflow:
        return "integers go from -2^63 to 2^63 - 1, reals up to 1.8e308";
    case json_error_stack_overflow:
        return "brackets nest too deep to be a description of anything";
    case json_error_invalid_utf8:
        return "save the file as UTF-8";
    case json_error_null_character:
        return "remove it";
    default:
        break;
    }
    const char *foreign = foreign_help(source, fault);
    return foreign ? foreign : plain_help(error->text);
}

static void release_doc(void *doc)
{
    json_doc_free(doc);
}

static void release_value(void *value)
{
    json_decref(value);
}

json_t *json_owned(Arena *arena, json_t *value)
{
    arena_defer(arena, release_value, value);
    return value;
}

/* `words` is the text that is parsed, the source's or one that differs in no position. */
static JsonDoc *parse(Arena *arena, Diag *diag, Source source, const char *words)
{
    JsonDoc *doc = ARENA_NEW(arena, JsonDoc);
    doc->arena = arena;
    doc->diag = diag;
    doc->source = source;
    json_error_t error;
    doc->root = json_loadb(words, source.length, JSON_REJECT_DUPLICATES, &error);
    arena_defer(arena, release_doc, doc);
    if (doc->root)
        return doc;
    Fault fault = fault_of(&doc->source, &error);
    bool nul = json_error_code(&error) == json_error_null_character;
    diag_error(diag, json_span_bytes(&doc->source, fault.offset, fault.length), "%s",
               nul ? "\\u0000 may not stand in a text" : error.text);
    const char *help = syntax_help(&doc->source, fault, &error);
    if (help)
        diag_help(diag, "%s", help);
    return NULL;
}

JsonDoc *json_parse(Arena *arena, Diag *diag, const char *path, const char *text, size_t length)
{
    return parse(arena, diag, (Source){path, text, length}, text);
}

/* Numbers that Python writes and JSON has not, as texts of the same width; NULL without any. */
static const char *without_infinities(Arena *arena, const char *text, size_t length)
{
    static const char *const words[][2] = {
        {"-Infinity", "\"-\\u221e\""}, {"Infinity", "\"\\u221e\""}, {"NaN", "\"?\""}};
    char *copy = arena_strndup(arena, text, length);
    bool quoted = false, found = false;
    for (size_t i = 0; i < length; i++) {
        if (quoted && copy[i] == '\\')
            i++;
        else if (copy[i] == '"')
            quoted = !quoted;
        for (int w = 0; !quoted && w < 3; w++) {
            size_t n = strlen(words[w][0]);
            if (length - i < n || memcmp(copy + i, words[w][0], n) != 0)
                continue;
            memcpy(copy + i, words[w][1], n);
            i += n - 1;
            found = true;
            break;
        }
    }
    return found ? copy : NULL;
}

static JsonDoc *load(Arena *arena, Diag *diag, const char *path, bool foreign)
{
    size_t length = 0;
    const char *text = file_read(arena, path, &length);
    Source source = {str_eq(path, "-") ? "<stdin>" : path, text, length};
    if (!text) {
        diag_error(diag, NO_SPAN, "cannot read %s: %s", source.path, strerror(errno));
        return NULL;
    }
    const char *words = foreign ? without_infinities(arena, text, length) : NULL;
    JsonDoc *doc = parse(arena, diag, source, words ? words : text);
    bool ours = doc && json_has(json_root(doc), "format");
    return words && ours ? parse(arena, diag, source, text) : doc;
}

JsonDoc *json_load(Arena *arena, Diag *diag, const char *path)
{
    return load(arena, diag, path, false);
}

JsonDoc *json_load_foreign(Arena *arena, Diag *diag, const char *path)
{
    return load(arena, diag, path, true);
}

void json_doc_free(JsonDoc *doc)
{
    if (!doc)
        return;
    json_decref(doc->root);
    doc->root = NULL;
}

Json json_root(JsonDoc *doc)
{
    return (Json){doc, doc->root, ""};
}

Span json_span(Json at)
{
    return json_locate(at.doc->arena, &at.doc->source, at.path, false);
}

static void fail_at(JsonDoc *doc, Span span, const char *path, const char *format, va_list args)
{
    diag_error(doc->diag, span, "%s", arena_vprintf(doc->arena, format, args));
    if (path[0])
        diag_note(doc->diag, "at %s", path);
}

bool json_fail(Json at, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail_at(at.doc, json_span(at), at.path, format, args);
    va_end(args);
    return false;
}

bool json_fail_key(Json object, const char *key, const char *format, ...)
{
    const char *path = json_get(object, key).path;
    Span span = json_locate(object.doc->arena, &object.doc->source, path, true);
    va_list args;
    va_start(args, format);
    fail_at(object.doc, span, path, format, args);
    va_end(args);
    return false;
}

static bool has_type(Json at, json_type type)
{
    return at.value && json_typeof(at.value) == type;
}

static const char *path_of_key(Arena *arena, const char *path, const char *key)
{
    Str out = str_new(arena);
    str_putf(&out, "%s/", path);
    for (; *key; key++) {
        if (*key == '~')
            str_put(&out, "~0");
        else if (*key == '/')
            str_put(&out, "~1");
        else
            str_putc(&out, *key);
    }
    return out.at;
}

Json json_get(Json object, const char *key)
{
    return (Json){
        .doc = object.doc,
        .value = has_type(object, JSON_OBJECT) ? json_object_get(object.value, key) : NULL,
        .path = path_of_key(object.doc->arena, object.path, key),
    };
}

Json json_at(Json array, int index)
{
    bool inside = has_type(array, JSON_ARRAY) && index >= 0;
    return (Json){
        .doc = array.doc,
        .value = inside ? json_array_get(array.value, (size_t)index) : NULL,
        .path = arena_printf(array.doc->arena, "%s/%d", array.path, index),
    };
}

static bool is_present(Json at)
{
    return at.value && json_typeof(at.value) != JSON_NULL;
}

bool json_has(Json object, const char *key)
{
    if (!has_type(object, JSON_OBJECT))
        return false;
    json_t *member = json_object_get(object.value, key);
    return member && json_typeof(member) != JSON_NULL;
}

int json_len(Json container)
{
    if (has_type(container, JSON_OBJECT))
        return (int)json_object_size(container.value);
    if (has_type(container, JSON_ARRAY))
        return (int)json_array_size(container.value);
    return 0;
}

Json json_member(Json object, int index, const char **ret_key)
{
    if (index < 0 || !has_type(object, JSON_OBJECT) || index >= json_len(object))
        BUG("no member %d at '%s'", index, object.path);
    void *at = json_object_iter(object.value);
    while (index-- > 0)
        at = json_object_iter_next(object.value, at);
    const char *key = arena_strdup(object.doc->arena, json_object_iter_key(at));
    if (ret_key)
        *ret_key = key;
    return (Json){
        .doc = object.doc,
        .value = json_object_iter_value(at),
        .path = path_of_key(object.doc->arena, object.path, key),
    };
}

bool json_is_object(Json at)
{
    return has_type(at, JSON_OBJECT);
}

bool json_is_array(Json at)
{
    return has_type(at, JSON_ARRAY);
}

bool json_is_string(Json at)
{
    return has_type(at, JSON_STRING);
}

bool json_is_int(Json at)
{
    if (has_type(at, JSON_INTEGER))
        return true;
    if (!has_type(at, JSON_REAL))
        return false;
    double value = json_real_value(at.value);
    return fabs(value) < exact_limit && value == floor(value);
}

static const char *type_name(Json at)
{
    switch (json_typeof(at.value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number with a fraction";
    case JSON_NULL:
        return "null";
    default:
        return "true or false";
    }
}

/* The last token of the path as the user wrote it. */
static const char *key_of(Json at)
{
    Str key = str_new(at.doc->arena);
    const char *slash = strrchr(at.path, '/');
    for (const char *c = slash ? slash + 1 : ""; *c; c++) {
        bool escape = *c == '~' && (c[1] == '0' || c[1] == '1');
        str_putc(&key, escape ? (*++c == '1' ? '/' : '~') : *c);
    }
    return key.at;
}

static bool fail_type(Json at, const char *wanted)
{
    if (at.value)
        return json_fail(at, "expected %s, not %s", wanted, type_name(at));
    json_fail(at, "missing key \"%s\"", key_of(at));
    diag_help(at.doc->diag, "add it, with %s", wanted);
    return false;
}

bool json_want_object(Json at)
{
    return json_is_object(at) || fail_type(at, "an object");
}

bool json_want_array(Json at)
{
    return json_is_array(at) || fail_type(at, "an array");
}

static const char *int_range(Arena *arena, int64_t min, int64_t max)
{
    long long low = min, high = max;
    if (min == INT64_MIN && max == INT64_MAX)
        return "an integer";
    if (max == INT64_MAX)
        return arena_printf(arena, "an integer of at least %lld", low);
    if (min == INT64_MIN)
        return arena_printf(arena, "an integer of at most %lld", high);
    return arena_printf(arena, "an integer between %lld and %lld", low, high);
}

bool json_int(Json at, int64_t min, int64_t max, int64_t *ret)
{
    const char *wanted = int_range(at.doc->arena, min, max);
    if (!json_is_int(at))
        return fail_type(at, wanted);
    int64_t value = has_type(at, JSON_INTEGER) ? json_integer_value(at.value)
                                               : (int64_t)json_real_value(at.value);
    if (value < min || value > max)
        return json_fail(at, "expected %s, not %lld", wanted, (long long)value);
    *ret = value;
    return true;
}

static const char *num_range(Arena *arena, double min, double max)
{
    if (isinf(min) && isinf(max))
        return "a number";
    if (isinf(max))
        return arena_printf(arena, "a number of at least %g", min);
    if (isinf(min))
        return arena_printf(arena, "a number of at most %g", max);
    return arena_printf(arena, "a number between %g and %g", min, max);
}

bool json_num(Json at, double min, double max, double *ret)
{
    const char *wanted = num_range(at.doc->arena, min, max);
    if (!has_type(at, JSON_INTEGER) && !has_type(at, JSON_REAL))
        return fail_type(at, wanted);
    double value = json_number_value(at.value);
    if (value < min || value > max)
        return json_fail(at, "expected %s, not %g", wanted, value);
    *ret = value;
    return true;
}

bool json_str(Json at, const char **ret)
{
    if (!json_is_string(at))
        return fail_type(at, "a string");
    *ret = arena_strdup(at.doc->arena, json_string_value(at.value));
    return true;
}

bool json_bool(Json at, bool *ret)
{
    if (!has_type(at, JSON_TRUE) && !has_type(at, JSON_FALSE))
        return fail_type(at, "true or false");
    *ret = json_typeof(at.value) == JSON_TRUE;
    return true;
}

static const char *word_list(Arena *arena, const char *const *words, int count)
{
    Str list = str_new(arena);
    for (int i = 0; i < count; i++)
        str_putf(&list, "%s%s", i > 0 ? ", " : "", words[i]);
    return list.at;
}

static void help_nearest(JsonDoc *doc, const char *wrong, const char *const *words, int count)
{
    const char *nearest = str_nearest(wrong, words, count);
    if (nearest)
        diag_help(doc->diag, "did you mean \"%s\"?", nearest);
    else
        diag_help(doc->diag, "known are %s", word_list(doc->arena, words, count));
}

bool json_word(Json at, const char *const *words, int count, int *ret)
{
    if (!json_is_string(at)) {
        const char *wanted = arena_printf(at.doc->arena, "one of the words %s",
                                          word_list(at.doc->arena, words, count));
        return fail_type(at, wanted);
    }
    const char *text = json_string_value(at.value);
    for (int i = 0; i < count; i++) {
        if (str_eq(text, words[i])) {
            *ret = i;
            return true;
        }
    }
    json_fail(at, "unknown word \"%s\"", text);
    help_nearest(at.doc, text, words, count);
    return false;
}

bool json_opt_int(Json object, const char *key, int64_t min, int64_t max, int64_t *ret)
{
    Json member = json_get(object, key);
    return !is_present(member) || json_int(member, min, max, ret);
}

bool json_opt_num(Json object, const char *key, double min, double max, double *ret)
{
    Json member = json_get(object, key);
    return !is_present(member) || json_num(member, min, max, ret);
}

bool json_opt_str(Json object, const char *key, const char **ret)
{
    Json member = json_get(object, key);
    return !is_present(member) || json_str(member, ret);
}

bool json_opt_bool(Json object, const char *key, bool *ret)
{
    Json member = json_get(object, key);
    return !is_present(member) || json_bool(member, ret);
}

bool json_only_keys(Json object, const char *const *keys, int count)
{
    if (!json_want_object(object))
        return false;
    bool good = true;
    for (void *at = json_object_iter(object.value); at;
         at = json_object_iter_next(object.value, at)) {
        const char *key = json_object_iter_key(at);
        bool known = false;
        for (int i = 0; i < count && !known; i++)
            known = str_eq(key, keys[i]);
        if (known)
            continue;
        good = json_fail_key(object, key, "unknown key \"%s\"", key);
        help_nearest(object.doc, key, keys, count);
    }
    return good;
}
