/* json.h - JSON through Jansson, with file:line:col for semantic errors too.
 *
 * A Json is a value with its document and its path (RFC 6901 pointer): everything an error message
 * needs. Duplicate keys, trailing text, NaN, integers beyond int64 and bad UTF-8 are errors when
 * parsing. Readers ask for what they expect; a wrong type or a missing key appends a located error
 * and gives false. */
#ifndef LPLAN_IR_BASE_JSON_H
#define LPLAN_IR_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>

#include "ir/base/diag.h"

/* Jansson has macros of these names for its own json_t; here they are functions of a Json. */
#undef json_is_object
#undef json_is_array
#undef json_is_string

typedef struct JsonDoc {
    Arena *arena;
    Diag *diag;
    Source source;
    json_t *root;
} JsonDoc;

typedef struct Json {
    JsonDoc *doc;
    json_t *value;    /* NULL: absent */
    const char *path; /* RFC 6901, in the document's arena */
} Json;

/* Parses text (kept by reference) or a file; NULL after an error was appended. The root is released
 * with the arena, or earlier by json_doc_free. */
JsonDoc *json_parse(Arena *arena, Diag *diag, const char *path, const char *text, size_t length);
JsonDoc *json_load(Arena *arena, Diag *diag, const char *path);
/* A file of another system: NaN and infinities, which Python writes, are read as texts, so that
 * only a reader who wants a number there refuses them. A file with a "format" is ours and JSON. */
JsonDoc *json_load_foreign(Arena *arena, Diag *diag, const char *path);
void json_doc_free(JsonDoc *doc); /* NULL is fine */
Json json_root(JsonDoc *doc);
/* The value, whose reference the arena now holds. */
json_t *json_owned(Arena *arena, json_t *value);

/* An error at the value (at what should hold it, when absent); false, so callers can return it.
 * json_fail_key points at the key itself. */
bool json_fail(Json at, const char *format, ...) LP_PRINTF(2, 3);
bool json_fail_key(Json object, const char *key, const char *format, ...) LP_PRINTF(3, 4);
Span json_span(Json at);

/* Navigation never fails: an absent member gives value NULL and a path that says where it would be.
 */
Json json_get(Json object, const char *key);
Json json_at(Json array, int index);
bool json_has(Json object, const char *key); /* present and not null */
int json_len(Json container);                /* elements or members; 0 for others */
/* Member by position, in file order; *ret_key is the key. */
Json json_member(Json object, int index, const char **ret_key);

bool json_is_object(Json at);
bool json_is_array(Json at);
bool json_is_string(Json at);
bool json_is_int(Json at); /* integer, or a real with an integral value below 2^53 */

/* Required: error when absent or of another type. Ranges are inclusive; INT64_MIN, INT64_MAX and
 * the infinities are no limit and are not mentioned. Strings are copies in the document's arena:
 * they outlive json_doc_free. */
bool json_want_object(Json at);
bool json_want_array(Json at);
bool json_int(Json at, int64_t min, int64_t max, int64_t *ret);
bool json_num(Json at, double min, double max, double *ret);
bool json_str(Json at, const char **ret);
bool json_bool(Json at, bool *ret);
/* One of `words`; a wrong one names the nearest. *ret is its index. */
bool json_word(Json at, const char *const *words, int count, int *ret);
/* Optional members: absent or null leaves *ret untouched and gives true. */
bool json_opt_int(Json object, const char *key, int64_t min, int64_t max, int64_t *ret);
bool json_opt_num(Json object, const char *key, double min, double max, double *ret);
bool json_opt_str(Json object, const char *key, const char **ret);
bool json_opt_bool(Json object, const char *key, bool *ret);
/* Every key outside `keys` is an error that names the nearest known one. */
bool json_only_keys(Json object, const char *const *keys, int count);

/* Serialises with 2-space indent, keys in insertion order, reals with as few of 17 significant
 * digits as round-trip, short arrays of scalars on one line, and a newline at the end. */
char *json_text(Arena *arena, const json_t *value);

#endif
