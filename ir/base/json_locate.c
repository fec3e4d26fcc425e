/* json_locate.c - finds a value by pointer in a JSON text known to be valid. */
#include "ir/base/json_locate.h"

#include <stdlib.h>
#include <string.h>

static const char *skip_blank(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

/* From the opening quote to behind the closing one. */
static const char *skip_string(const char *at)
{
    for (at++; *at != '"'; at++) {
        if (*at == '\\')
            at++;
    }
    return at + 1;
}

static const char *skip_value(const char *at)
{
    if (*at == '"')
        return skip_string(at);
    if (*at != '{' && *at != '[')
        return at + strcspn(at, ",]} \t\r\n");
    int depth = 0;
    do {
        if (*at == '"') {
            at = skip_string(at);
            continue;
        }
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
        at++;
    } while (depth > 0);
    return at;
}

static unsigned hex4(const char *at)
{
    char digits[5] = {at[0], at[1], at[2], at[3], '\0'};
    return (unsigned)strtoul(digits, NULL, 16);
}

static char *put_utf8(char *to, unsigned point)
{
    if (point < 0x80) {
        *to++ = (char)point;
        return to;
    }
    int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    static const unsigned lead[] = {0, 0xC0, 0xE0, 0xF0};
    *to++ = (char)(lead[more] | point >> (6 * more));
    while (more-- > 0)
        *to++ = (char)(0x80 | (point >> (6 * more) & 0x3F));
    return to;
}

/* The text between the quotes with its escapes undone. */
static const char *decode_string(Arena *arena, const char *quote, const char *end)
{
    char *text = arena_alloc(arena, (size_t)(end - quote) + 1), *to = text;
    for (const char *at = quote + 1; at < end - 1; at++) {
        if (*at != '\\') {
            *to++ = *at;
            continue;
        }
        at++;
        static const char plain[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
        if (*at != 'u') {
            *to++ = meant[strchr(plain, *at) - plain];
            continue;
        }
        unsigned point = hex4(at + 1);
        at += 4;
        if (point >= 0xD800 && point < 0xDC00) {
            point = 0x10000 + ((point - 0xD800) << 10) + (hex4(at + 3) - 0xDC00);
            at += 6;
        }
        to = put_utf8(to, point);
    }
    return text;
}

/* The next token of a pointer with ~1 and ~0 undone; *pointer moves behind it. */
static const char *next_token(Arena *arena, const char **pointer)
{
    const char *at = *pointer + 1;
    size_t length = strcspn(at, "/");
    char *token = arena_alloc(arena, length + 1), *to = token;
    for (size_t i = 0; i < length; i++) {
        bool escape = at[i] == '~' && i + 1 < length;
        *to++ = escape ? (at[++i] == '1' ? '/' : '~') : at[i];
    }
    *pointer = at + length;
    return token;
}

typedef struct Place {
    const char *key, *value; /* both NULL: there is none */
} Place;

static Place member_find(Arena *arena, const char *object, const char *name)
{
    const char *at = skip_blank(object + 1);
    while (*at != '}') {
        const char *key = at, *key_end = skip_string(at);
        const char *value = skip_blank(skip_blank(key_end) + 1);
        if (strcmp(decode_string(arena, key, key_end), name) == 0)
            return (Place){key, value};
        at = skip_blank(skip_value(value));
        if (*at == ',')
            at = skip_blank(at + 1);
    }
    return (Place){NULL, NULL};
}

static Place element_find(const char *array, const char *token)
{
    long index = strtol(token, NULL, 10);
    const char *at = skip_blank(array + 1);
    while (*at != ']' && index-- > 0) {
        at = skip_blank(skip_value(at));
        if (*at == ',')
            at = skip_blank(at + 1);
    }
    return *at == ']' ? (Place){NULL, NULL} : (Place){at, at};
}

Span json_span_bytes(const Source *source, size_t offset, size_t bytes)
{
    const char *text = source->text;
    Span span = {.source = source, .line = 1, .column = 1};
    for (size_t i = 0; i < offset; i++) {
        if (text[i] == '\n') {
            span.line++;
            span.column = 1;
        } else {
            span.column += ((unsigned char)text[i] & 0xC0) != 0x80;
        }
    }
    for (size_t i = offset; i < offset + bytes && text[i] != '\n'; i++)
        span.length += ((unsigned char)text[i] & 0xC0) != 0x80;
    if (span.length == 0)
        span.length = 1;
    return span;
}

Span json_locate(Arena *arena, const Source *source, const char *pointer, bool want_key)
{
    const char *value = skip_blank(source->text), *start = value;
    while (*pointer == '/') {
        const char *token = next_token(arena, &pointer);
        Place place = {NULL, NULL};
        if (*value == '{')
            place = member_find(arena, value, token);
        else if (*value == '[')
            place = element_find(value, token);
        if (!place.value) {
            start = value;
            break;
        }
        value = place.value;
        start = want_key && *pointer == '\0' ? place.key : value;
    }
    const char *end = *start == '{' || *start == '[' ? start + 1 : skip_value(start);
    return json_span_bytes(source, (size_t)(start - source->text), (size_t)(end - start));
}
