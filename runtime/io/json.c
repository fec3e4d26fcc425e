/* json.c - a strict pull parser for the headers of weight files. */
#include "runtime/io/json.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 32

bool lp_json_fail(LpJson *json, const char *error)
{
    if (!json->error)
        json->error = error;
    return false;
}

static int peek(LpJson *json)
{
    while (json->at < json->length && memchr(" \t\r\n", json->text[json->at], 4))
        json->at++;
    return json->at < json->length ? (unsigned char)json->text[json->at] : -1;
}

bool lp_json_take(LpJson *json, char want)
{
    if (json->error)
        return false;
    if (peek(json) != (unsigned char)want)
        return lp_json_fail(json, want == '{'   ? "expected `{`"
                                  : want == '[' ? "expected `[`"
                                  : want == ':' ? "expected `:`"
                                  : want == ',' ? "expected `,` or the end of the list"
                                                : "expected a string");
    json->at++;
    return true;
}

bool lp_json_item(LpJson *json, char close, bool *first)
{
    if (json->error)
        return false;
    if (peek(json) == (unsigned char)close) {
        json->at++;
        return false;
    }
    bool more = *first || lp_json_take(json, ',');
    *first = false;
    return more;
}

static int hex4(LpJson *json)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        int c = json->at < json->length ? json->text[json->at] : 0;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) {
            lp_json_fail(json, "bad \\u escape");
            return 0;
        }
        value = value * 16 + digit;
        json->at++;
    }
    return value;
}

static char *put_utf8(char *out, unsigned long code)
{
    if (code < 0x80) {
        *out++ = (char)code;
        return out;
    }
    if (code < 0x800) {
        *out++ = (char)(0xC0 | code >> 6);
    } else if (code < 0x10000) {
        *out++ = (char)(0xE0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 0x3F));
    } else {
        *out++ = (char)(0xF0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 0x3F));
        *out++ = (char)(0x80 | (code >> 6 & 0x3F));
    }
    *out++ = (char)(0x80 | (code & 0x3F));
    return out;
}

/* After a backslash. */
static char *escape(LpJson *json, char *out)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    int c = json->at < json->length ? json->text[json->at++] : 0;
    const char *found = c ? strchr(names, c) : NULL;
    if (found) {
        *out++ = values[found - names];
        return out;
    }
    if (c != 'u') {
        lp_json_fail(json, "bad escape");
        return out;
    }
    unsigned long code = (unsigned long)hex4(json);
    if (code >= 0xD800 && code < 0xDC00) {
        bool pair = json->at + 1 < json->length && json->text[json->at] == '\\' &&
                    json->text[json->at + 1] == 'u';
        json->at += pair ? 2 : 0;
        unsigned long low = pair ? (unsigned long)hex4(json) : 0;
        if (low < 0xDC00 || low > 0xDFFF)
            lp_json_fail(json, "half a surrogate pair");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code < 0xE000) {
        lp_json_fail(json, "half a surrogate pair");
    }
    if (code == 0)
        lp_json_fail(json, "a NUL in a string");
    return json->error ? out : put_utf8(out, code);
}

char *lp_json_string(LpJson *json)
{
    if (!lp_json_take(json, '"'))
        return NULL;
    int64_t end = json->at;
    while (end < json->length && json->text[end] != '"')
        end += json->text[end] == '\\' ? 2 : 1;
    if (end >= json->length) {
        lp_json_fail(json, "a string without end");
        return NULL;
    }
    /* No escape is longer when decoded. */
    char *text = malloc((size_t)(end - json->at) + 1), *out = text;
    if (!text) {
        lp_json_fail(json, "out of memory");
        return NULL;
    }
    while (!json->error && json->at < end) {
        char c = json->text[json->at++];
        if (c == '\\')
            out = escape(json, out);
        else if ((unsigned char)c < ' ')
            lp_json_fail(json, "a control character in a string");
        else
            *out++ = c;
    }
    *out = '\0';
    json->at = json->error ? json->at : end + 1;
    if (json->error) {
        free(text);
        return NULL;
    }
    return text;
}

char *lp_json_key(LpJson *json)
{
    char *key = lp_json_string(json);
    if (key && !lp_json_take(json, ':')) {
        free(key);
        return NULL;
    }
    return key;
}

bool lp_json_int(LpJson *json, int64_t *ret_value)
{
    if (json->error)
        return false;
    int c = peek(json);
    if (c < '0' || c > '9')
        return lp_json_fail(json, "expected a number that is not negative");
    int64_t value = 0, begin = json->at;
    while (json->at < json->length && json->text[json->at] >= '0' && json->text[json->at] <= '9') {
        int digit = json->text[json->at] - '0';
        if (value > (INT64_MAX - digit) / 10)
            return lp_json_fail(json, "a number too large");
        value = value * 10 + digit;
        json->at++;
    }
    if (json->at - begin > 1 && json->text[begin] == '0')
        return lp_json_fail(json, "a number with a leading zero");
    if (json->at < json->length && memchr(".eE", json->text[json->at], 3))
        return lp_json_fail(json, "expected a whole number");
    *ret_value = value;
    return true;
}

static void skip_word(LpJson *json)
{
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        int64_t n = (int64_t)strlen(words[i]);
        if (json->length - json->at >= n &&
            memcmp(json->text + json->at, words[i], (size_t)n) == 0) {
            json->at += n;
            return;
        }
    }
    int64_t begin = json->at;
    while (json->at < json->length && json->text[json->at] &&
           strchr("+-0123456789.eE", json->text[json->at]))
        json->at++;
    if (json->at == begin)
        lp_json_fail(json, "expected a value");
}

static void skip_value(LpJson *json, int depth)
{
    int c = peek(json);
    if (depth > MAX_DEPTH) {
        lp_json_fail(json, "nested too deeply");
    } else if (c == '{' || c == '[') {
        bool first = true;
        json->at++;
        while (lp_json_item(json, c == '{' ? '}' : ']', &first)) {
            if (c == '{')
                free(lp_json_key(json));
            if (!json->error)
                skip_value(json, depth + 1);
        }
    } else if (c == '"') {
        free(lp_json_string(json));
    } else {
        skip_word(json);
    }
}

void lp_json_skip(LpJson *json)
{
    if (!json->error)
        skip_value(json, 0);
}

bool lp_json_end(LpJson *json)
{
    return !json->error && (peek(json) < 0 || lp_json_fail(json, "text after the end"));
}
