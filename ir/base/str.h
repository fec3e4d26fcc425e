/* str.h - a growing text buffer in an arena. Always NUL-terminated once anything was put. */
#ifndef LPLAN_IR_BASE_STR_H
#define LPLAN_IR_BASE_STR_H

#include <stdbool.h>

#include "ir/base/arena.h"

typedef struct Str {
    Arena *arena;
    char *at; /* "" when empty */
    size_t n, cap;
} Str;

Str str_new(Arena *arena);
void str_put(Str *str, const char *text);
void str_putn(Str *str, const char *text, size_t length);
void str_putc(Str *str, char c);
void str_putf(Str *str, const char *format, ...) LP_PRINTF(2, 3);
/* Pads with spaces until the current line is `column` wide (no-op when it already is). */
void str_pad(Str *str, size_t column);

bool str_eq(const char *a, const char *b); /* NULL equals only NULL */
/* The word of `words` nearest to `text` by edit distance (case costs nothing, ties go to the
 * earlier), or NULL when none is near enough to suggest. */
const char *str_nearest(const char *text, const char *const *words, int count);
/* "1,234,567"; "4.3 GiB", unit B to PiB, by powers of 1024; "12.3 ms", unit ns to d. */
char *str_commas(Arena *arena, int64_t value);
char *str_gib(Arena *arena, int64_t bytes);
char *str_ns(Arena *arena, int64_t ns);
/* Whole text file, NUL-terminated; NULL with errno set when it cannot be read. "-" is standard
 * input. */
char *file_read(Arena *arena, const char *path, size_t *ret_length);
/* Writes aside and renames; false with errno set. "-" is standard output. */
bool file_write(const char *path, const char *text, size_t length);

#endif
