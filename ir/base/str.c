/* str.c - text buffers, human units, nearest words, whole files. */
#include "ir/base/str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ir/base/diag.h"

Str str_new(Arena *arena)
{
    /* An empty buffer points at one NUL of the arena, so `at` is always a string and never const.
     */
    return (Str){.arena = arena, .at = arena_alloc(arena, 1)};
}

static void str_room(Str *str, size_t more)
{
    if (str->n + more < str->cap)
        return;
    size_t cap = str->cap > 0 ? str->cap : 64;
    while (cap <= str->n + more)
        cap *= 2;
    char *moved = arena_alloc(str->arena, cap);
    if (str->n > 0)
        memcpy(moved, str->at, str->n);
    str->at = moved;
    str->cap = cap;
}

void str_putn(Str *str, const char *text, size_t length)
{
    if (length == 0)
        return;
    str_room(str, length);
    memcpy(str->at + str->n, text, length);
    str->n += length;
    str->at[str->n] = '\0';
}

void str_put(Str *str, const char *text)
{
    str_putn(str, text, strlen(text));
}

void str_putc(Str *str, char c)
{
    str_putn(str, &c, 1);
}

void str_putf(Str *str, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0)
        BUG("cannot format \"%s\"", format);
    str_room(str, (size_t)length);
    vsnprintf(str->at + str->n, (size_t)length + 1, format, again);
    va_end(again);
    str->n += (size_t)length;
}

void str_pad(Str *str, size_t column)
{
    size_t start = str->n, width = 0;
    while (start > 0 && str->at[start - 1] != '\n')
        start--;
    for (size_t i = start; i < str->n; i++)
        width += ((unsigned char)str->at[i] & 0xC0) != 0x80;
    for (; width < column; width++)
        str_putc(str, ' ');
}

bool str_eq(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static int lower_of(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : (unsigned char)c;
}

enum { NEAREST_MAX = 63 };

/* Insertions, deletions, changes and swaps of neighbours that turn a into b; case costs nothing. */
static int edit_distance(const char *a, int a_length, const char *b, int b_length)
{
    int rows[3][NEAREST_MAX + 1];
    for (int j = 0; j <= b_length; j++)
        rows[0][j] = j;
    for (int i = 1; i <= a_length; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= b_length; j++) {
            int change = above[j - 1] + (lower_of(a[i - 1]) != lower_of(b[j - 1]));
            int best = above[j] < row[j - 1] ? above[j] + 1 : row[j - 1] + 1;
            best = change < best ? change : best;
            if (i > 1 && j > 1 && lower_of(a[i - 1]) == lower_of(b[j - 2]) &&
                lower_of(a[i - 2]) == lower_of(b[j - 1]) && above2[j - 2] + 1 < best)
                best = above2[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[a_length % 3][b_length];
}

const char *str_nearest(const char *text, const char *const *words, int count)
{
    size_t length = strlen(text);
    if (length == 0 || length > NEAREST_MAX)
        return NULL;
    const char *nearest = NULL;
    int nearest_distance = 0;
    for (int i = 0; i < count; i++) {
        size_t word_length = strlen(words[i]);
        if (word_length == 0 || word_length > NEAREST_MAX)
            continue;
        int distance = edit_distance(text, (int)length, words[i], (int)word_length);
        size_t longer = length > word_length ? length : word_length;
        /* A third of the letters may be wrong, and at least one; but one letter must be right. */
        int allowed = longer > 5 ? (int)longer / 3 : 1;
        if (distance > allowed || distance >= (int)longer)
            continue;
        if (!nearest || distance < nearest_distance) {
            nearest = words[i];
            nearest_distance = distance;
        }
    }
    return nearest;
}

char *str_commas(Arena *arena, int64_t value)
{
    char digits[24], text[40];
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)magnitude), n = 0;
    if (value < 0)
        text[n++] = '-';
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[n++] = ',';
        text[n++] = digits[i];
    }
    return arena_strndup(arena, text, (size_t)n);
}

typedef struct Unit {
    int64_t size; /* of one, in the base unit */
    const char *name;
} Unit;

/* The largest unit that fits, one decimal; the smallest unit is printed whole. Integers throughout.
 */
static char *str_units(Arena *arena, int64_t value, const Unit *units, int count)
{
    const char *sign = value < 0 ? "-" : "";
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    int at = 0;
    /* One tenth of rounding may reach the next unit: 999.96 us is 1.0 ms. */
    while (at + 1 < count &&
           magnitude >= (uint64_t)units[at + 1].size - (uint64_t)units[at].size / 20)
        at++;
    if (at == 0)
        return arena_printf(arena, "%s%llu %s", sign, (unsigned long long)magnitude, units[0].name);
    uint64_t size = (uint64_t)units[at].size;
    uint64_t whole = magnitude / size, rest = magnitude % size;
    /* rest < 2^50 for every unit below, so ten times it does not overflow. */
    uint64_t tenths = (rest * 10 + size / 2) / size;
    if (tenths == 10) {
        whole++;
        tenths = 0;
    }
    return arena_printf(arena, "%s%llu.%llu %s", sign, (unsigned long long)whole,
                        (unsigned long long)tenths, units[at].name);
}

char *str_gib(Arena *arena, int64_t bytes)
{
    static const Unit units[] = {
        {1, "B"},
        {INT64_C(1) << 10, "KiB"},
        {INT64_C(1) << 20, "MiB"},
        {INT64_C(1) << 30, "GiB"},
        {INT64_C(1) << 40, "TiB"},
        {INT64_C(1) << 50, "PiB"},
    };
    return str_units(arena, bytes, units, sizeof units / sizeof *units);
}

char *str_ns(Arena *arena, int64_t ns)
{
    static const Unit units[] = {
        {1, "ns"},
        {1000, "us"},
        {1000000, "ms"},
        {INT64_C(1000000000), "s"},
        {INT64_C(3600000000000), "h"},
        {INT64_C(86400000000000), "d"},
    };
    return str_units(arena, ns, units, sizeof units / sizeof *units);
}

static char *read_all(Arena *arena, FILE *file, size_t *ret_length)
{
    Str text = str_new(arena);
    char chunk[16384];
    size_t got;
    while ((got = fread(chunk, 1, sizeof chunk, file)) > 0)
        str_putn(&text, chunk, got);
    if (ferror(file))
        return NULL;
    if (ret_length)
        *ret_length = text.n;
    return text.at;
}

char *file_read(Arena *arena, const char *path, size_t *ret_length)
{
    if (str_eq(path, "-"))
        return read_all(arena, stdin, ret_length);
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    char *text = read_all(arena, file, ret_length);
    int error = errno;
    fclose(file);
    errno = error;
    return text;
}

static bool write_all(FILE *file, const char *text, size_t length)
{
    return fwrite(text, 1, length, file) == length && fflush(file) == 0;
}

/* Devices and pipes cannot be renamed over; they are written where they are. */
static bool write_in_place(const char *path, const char *text, size_t length)
{
    FILE *file = fopen(path, "wb");
    if (!file)
        return false;
    bool good = write_all(file, text, length);
    int error = errno;
    if (fclose(file) != 0 && good)
        return false;
    errno = good ? errno : error;
    return good;
}

static bool write_aside(const char *path, const char *text, size_t length)
{
    size_t room = strlen(path) + 32;
    char *aside = malloc(room);
    if (!aside)
        return false;
    snprintf(aside, room, "%s.%ld.tmp", path, (long)getpid());
    bool good = write_in_place(aside, text, length) && rename(aside, path) == 0;
    if (!good) {
        int error = errno;
        unlink(aside);
        errno = error;
    }
    free(aside);
    return good;
}

bool file_write(const char *path, const char *text, size_t length)
{
    if (str_eq(path, "-"))
        return write_all(stdout, text, length);
    struct stat status;
    if (stat(path, &status) != 0)
        return write_aside(path, text, length);
    if (!S_ISREG(status.st_mode))
        return write_in_place(path, text, length);
    /* Through a link, so that the link stays one. */
    char *target = realpath(path, NULL);
    if (!target)
        return false;
    bool good = write_aside(target, text, length);
    int error = errno;
    free(target);
    errno = good ? errno : error;
    return good;
}
