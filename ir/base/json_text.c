/* json_text.c - JSON values to text, the same bytes on every machine. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/json.h"
#include "ir/base/str.h"

enum { INDENT = 2, LINE_WIDTH = 96 };

static void put_string(Str *out, const char *text, size_t length)
{
    str_putc(out, '"');
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
        const char *found = c ? strchr(plain, c) : NULL;
        if (found)
            str_putf(out, "\\%c", letter[found - plain]);
        else if (c < 0x20 || c == 0x7F)
            str_putf(out, "\\u%04x", c);
        else
            str_putc(out, (char)c);
    }
    str_putc(out, '"');
}

static void put_real(Str *out, double value)
{
    char text[40];
    int digits = 1;
    do {
        snprintf(text, sizeof text, "%.*g", digits, value);
    } while (strtod(text, NULL) != value && ++digits <= 17);
    str_put(out, text);
    /* A real stays one when it is read again. */
    if (text[strcspn(text, ".e")] == '\0')
        str_put(out, ".0");
}

static bool is_scalar(const json_t *value)
{
    return json_typeof(value) != JSON_OBJECT && json_typeof(value) != JSON_ARRAY;
}

static void put_scalar(Str *out, const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        put_string(out, json_string_value(value), json_string_length(value));
        break;
    case JSON_INTEGER:
        str_putf(out, "%lld", (long long)json_integer_value(value));
        break;
    case JSON_REAL:
        put_real(out, json_real_value(value));
        break;
    case JSON_TRUE:
        str_put(out, "true");
        break;
    case JSON_FALSE:
        str_put(out, "false");
        break;
    default:
        str_put(out, "null");
        break;
    }
}

static void new_line(Str *out, int depth)
{
    str_putf(out, "\n%*s", depth * INDENT, "");
}

static void put_value(Str *out, const json_t *value, int depth);

/* On one line when all elements are scalars and the line stays short; the text is taken back
 * otherwise. */
static bool put_array_inline(Str *out, const json_t *array, int depth)
{
    size_t start = out->n, count = json_array_size(array);
    str_putc(out, '[');
    bool fits = true;
    for (size_t i = 0; i < count && fits; i++) {
        const json_t *element = json_array_get(array, i);
        if (i > 0)
            str_put(out, ", ");
        if (is_scalar(element))
            put_scalar(out, element);
        fits = is_scalar(element) && out->n - start + (size_t)(depth * INDENT) < LINE_WIDTH;
    }
    if (fits) {
        str_putc(out, ']');
        return true;
    }
    out->n = start;
    out->at[start] = '\0';
    return false;
}

static void put_array(Str *out, const json_t *array, int depth)
{
    if (put_array_inline(out, array, depth))
        return;
    for (size_t i = 0; i < json_array_size(array); i++) {
        str_putc(out, i > 0 ? ',' : '[');
        new_line(out, depth + 1);
        put_value(out, json_array_get(array, i), depth + 1);
    }
    new_line(out, depth);
    str_putc(out, ']');
}

static void put_object(Str *out, const json_t *object, int depth)
{
    if (json_object_size(object) == 0) {
        str_put(out, "{}");
        return;
    }
    /* Jansson's iterators take a pointer to non-const and change nothing. */
    json_t *members = (json_t *)object;
    bool first = true;
    for (void *at = json_object_iter(members); at; at = json_object_iter_next(members, at)) {
        str_putc(out, first ? '{' : ',');
        new_line(out, depth + 1);
        const char *key = json_object_iter_key(at);
        put_string(out, key, strlen(key));
        str_put(out, ": ");
        put_value(out, json_object_iter_value(at), depth + 1);
        first = false;
    }
    new_line(out, depth);
    str_putc(out, '}');
}

static void put_value(Str *out, const json_t *value, int depth)
{
    if (json_typeof(value) == JSON_ARRAY)
        put_array(out, value, depth);
    else if (json_typeof(value) == JSON_OBJECT)
        put_object(out, value, depth);
    else
        put_scalar(out, value);
}

char *json_text(Arena *arena, const json_t *value)
{
    if (!value)
        BUG("json_text of nothing: a json_*() constructor refused its argument");
    Str out = str_new(arena);
    put_value(&out, value, 0);
    str_putc(&out, '\n');
    return out.at;
}
