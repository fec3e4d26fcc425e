/* json.h - a strict pull parser for the headers of weight files.
 *
 *     bool first = true;
 *     if (lp_json_take(&json, '{'))
 *         while (lp_json_item(&json, '}', &first)) {
 *             char *key = lp_json_key(&json);     // the caller frees
 *             lp_json_int(&json, &value) or lp_json_skip(&json) ...
 *         }
 *
 * After the first error every call fails and changes nothing, so callers check json.error once. */
#ifndef LPLAN_RUNTIME_IO_JSON_H
#define LPLAN_RUNTIME_IO_JSON_H

#include <stdbool.h>
#include <stdint.h>

typedef struct LpJson {
    const char *text; /* need not end in NUL */
    int64_t length;
    int64_t at;
    const char *error; /* NULL: none; stands at byte `at` */
} LpJson;

bool lp_json_take(LpJson *json, char want);
/* Before each item of an object or array: true if there is one, false at its end (consumed) or on
 * error. */
bool lp_json_item(LpJson *json, char close, bool *first);
char *lp_json_string(LpJson *json);
char *lp_json_key(LpJson *json);
bool lp_json_int(LpJson *json, int64_t *ret_value); /* 0 .. 2^63 - 1 */
void lp_json_skip(LpJson *json);
bool lp_json_end(LpJson *json); /* nothing but blanks is left */
bool lp_json_fail(LpJson *json, const char *error);

#endif
