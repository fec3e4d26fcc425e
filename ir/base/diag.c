/* diag.c - the list of what is wrong, its printing with carets, and how a bug ends. */
#include "ir/base/diag.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ir/base/str.h"
#include "ir/base/vec.h"

enum { ERRORS_KEPT = 20, LINES_KEPT = 12, TEXT_KEPT = 600, TAIL_KEPT = 200, BUG_EXIT = 70 };

struct Diag {
    Arena *arena;
    VEC(DiagItem) items;
    int errors;
    bool latest_dropped; /* then notes and helps are dropped too */
};

Diag *diag_new(Arena *arena)
{
    Diag *diag = ARENA_NEW(arena, Diag);
    diag->arena = arena;
    return diag;
}

/* Names of a broken file may be as long as the file: beginning and end tell enough. */
static const char *shortened(Diag *diag, const char *format, va_list args)
{
    char *text = arena_vprintf(diag->arena, format, args);
    size_t length = strlen(text);
    if (length <= TEXT_KEPT)
        return text;
    return arena_printf(diag->arena, "%.*s ... %s", TEXT_KEPT - TAIL_KEPT, text,
                        text + length - TAIL_KEPT);
}

static void item_add(Diag *diag, DiagLevel level, Span span, const char *format, va_list args)
{
    diag->latest_dropped = level == DIAG_ERROR && diag->errors > ERRORS_KEPT;
    if (diag->latest_dropped)
        return;
    vec_push(diag->arena, &diag->items) = (DiagItem){
        .level = level,
        .span = span,
        .text = shortened(diag, format, args),
    };
}

bool diag_error(Diag *diag, Span span, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    diag->errors++;
    item_add(diag, DIAG_ERROR, span, format, args);
    va_end(args);
    return false;
}

void diag_warning(Diag *diag, Span span, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    item_add(diag, DIAG_WARNING, span, format, args);
    va_end(args);
}

static void attach(Diag *diag, bool help, const char *format, va_list args)
{
    if (diag->latest_dropped)
        return;
    if (diag->items.n == 0)
        BUG("nothing to attach \"%s\" to", format);
    DiagItem *item = &diag->items.at[diag->items.n - 1];
    const char *text = shortened(diag, format, args);
    if (help)
        item->help = text;
    else
        item->note = text;
}

void diag_note(Diag *diag, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    attach(diag, false, format, args);
    va_end(args);
}

void diag_help(Diag *diag, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    attach(diag, true, format, args);
    va_end(args);
}

void diag_said(Diag *diag, const char *lines)
{
    if (!diag->latest_dropped && diag->items.n > 0)
        diag->items.at[diag->items.n - 1].said = arena_strdup(diag->arena, lines);
}

int diag_errors(const Diag *diag)
{
    return diag->errors;
}

int diag_count(const Diag *diag)
{
    return diag->items.n;
}

const DiagItem *diag_item(const Diag *diag, int index)
{
    if (index < 0 || index >= diag->items.n)
        BUG("no diagnostic %d of %d", index, (int)diag->items.n);
    return &diag->items.at[index];
}

/* Text from a user's file reaches the terminal only as whole, printable code points: control
 * characters (C0, DEL, and C1 in its UTF-8 form) would move the cursor or forge a line. */
typedef struct Point {
    int bytes; /* at least 1 */
    bool control, broken;
} Point;

/* How many bytes a code point has that begins with this one; 0: none begins so. */
static int bytes_by_lead(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first < 0xC2 || first > 0xF4)
        return 0;
    return first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

static Point point_at(const char *text, size_t left)
{
    unsigned char first = (unsigned char)text[0];
    int bytes = 1;
    while ((size_t)bytes < left && ((unsigned char)text[bytes] & 0xC0) == 0x80)
        bytes++;
    bool control = first < 0x20 || first == 0x7F ||
                   (first == 0xC2 && bytes == 2 && (unsigned char)text[1] < 0xA0);
    return (Point){bytes, control, bytes != bytes_by_lead(first)};
}

static void put_escaped(FILE *out, const char *text, int bytes)
{
    for (int i = 0; i < bytes; i++)
        fprintf(out, "\\x%02x", (unsigned char)text[i]);
}

static void put_clean_bytes(FILE *out, const char *text, size_t left)
{
    while (left > 0) {
        Point point = point_at(text, left);
        if (*text == '\n')
            fputs("\\n", out);
        else if (*text == '\t')
            fputs("\\t", out);
        else if (point.control || point.broken)
            put_escaped(out, text, point.bytes);
        else
            fwrite(text, 1, (size_t)point.bytes, out);
        text += point.bytes;
        left -= (size_t)point.bytes;
    }
}

static void put_clean(FILE *out, const char *text)
{
    put_clean_bytes(out, text, strlen(text));
}

typedef struct Ink {
    const char *bold, *red, *magenta, *green, *plain;
} Ink;

static Ink ink_of(bool colour)
{
    return colour ? (Ink){"\033[1m", "\033[1;31m", "\033[1;35m", "\033[1;32m", "\033[0m"}
                  : (Ink){"", "", "", "", ""};
}

/* One code point of one line, one cell wide even if it cannot be shown: the caret counts on it. */
static const char *put_point(FILE *out, const char *at, const char *end)
{
    Point point = point_at(at, (size_t)(end - at));
    if (point.control || point.broken)
        fputc(*at == '\t' ? ' ' : '?', out);
    else
        fwrite(at, 1, (size_t)point.bytes, out);
    return at + point.bytes;
}

/* The source line and a caret run below it. Of a long line (JSON on one line) only the part around
 * the caret. */
static void put_source_line(FILE *out, Span span, Ink ink)
{
    enum { WINDOW = 88, LEFT = 40 };
    const char *at = span.source->text, *end_of_text = at + span.source->length;
    for (int line = 1; line < span.line; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end_of_text - at));
        if (!newline)
            return;
        at = newline + 1;
    }
    const char *newline = memchr(at, '\n', (size_t)(end_of_text - at));
    const char *end = newline ? newline : end_of_text;
    if (end > at && end[-1] == '\r')
        end--;
    int width = 0;
    for (const char *p = at; p < end; p += point_at(p, (size_t)(end - p)).bytes)
        width++;

    int first = width > WINDOW && span.column > LEFT ? span.column - LEFT : 1;
    int last = width > WINDOW && first + WINDOW - 1 < width ? first + WINDOW - 1 : width;
    fprintf(out, "%5d | %s", span.line, first > 1 ? "..." : "");
    for (int column = 1; at < end && column <= last; column++) {
        if (column >= first)
            at = put_point(out, at, end);
        else
            at += point_at(at, (size_t)(end - at)).bytes;
    }
    fprintf(out, "%s\n", last < width ? "..." : "");

    int run = span.length > 0 ? span.length : 1;
    if (span.column + run - 1 > last)
        run = last - span.column + 1 > 1 ? last - span.column + 1 : 1;
    fprintf(out, "      | %*s%s^", span.column - first + (first > 1 ? 3 : 0), "", ink.green);
    for (int i = 1; i < run; i++)
        fputc('~', out);
    fprintf(out, "%s\n", ink.plain);
}

static void put_said(FILE *out, const char *lines)
{
    int line = 0;
    for (const char *at = lines; *at && line < LINES_KEPT; line++) {
        size_t length = strcspn(at, "\n");
        fputs("    | ", out);
        put_clean_bytes(out, at, length);
        fputc('\n', out);
        at += length + (at[length] == '\n');
    }
}

static void put_item(FILE *out, const DiagItem *item, Ink ink)
{
    const char *level = item->level == DIAG_ERROR ? "error" : "warning";
    const char *level_ink = item->level == DIAG_ERROR ? ink.red : ink.magenta;
    if (item->span.source) {
        fputs(ink.bold, out);
        put_clean(out, item->span.source->path);
        fprintf(out, ":%d:%d:%s ", item->span.line, item->span.column, ink.plain);
    }
    fprintf(out, "%s%s:%s ", level_ink, level, ink.plain);
    put_clean(out, item->text);
    fputc('\n', out);
    if (item->span.source)
        put_source_line(out, item->span, ink);
    if (item->said)
        put_said(out, item->said);
    if (item->note) {
        fputs("  note: ", out);
        put_clean(out, item->note);
        fputc('\n', out);
    }
    if (item->help) {
        fputs("  help: ", out);
        put_clean(out, item->help);
        fputc('\n', out);
    }
}

void diag_print(const Diag *diag, FILE *out, bool colour)
{
    Ink ink = ink_of(colour);
    for (int i = 0; i < diag->items.n; i++)
        put_item(out, &diag->items.at[i], ink);
    if (diag->errors > ERRORS_KEPT)
        fprintf(out, "%d errors, of which the first %d are shown\n", diag->errors, ERRORS_KEPT);
}

/* The state named in the header. */
static struct {
    const char *version;
    int argc;
    char *const *argv;
} bug_program;
static _Thread_local const char *bug_running_pass;

void bug_command(const char *version, int argc, char *const *argv)
{
    bug_program.version = version;
    bug_program.argc = argc;
    bug_program.argv = argv;
}

void bug_pass(const char *name)
{
    bug_running_pass = name;
}

static void put_quoted(FILE *out, const char *word)
{
    static const char *const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                    "-_=+,./:@%";
    if (*word && word[strspn(word, safe)] == '\0') {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word; word++) {
        if (*word == '\'')
            fputs("'\\''", out);
        else
            fputc(*word, out);
    }
    fputc('\'', out);
}

/* False when no file could be written. The text is made again by running the second line. */
static bool write_reproducer(const char *path, const char *file, int line, const char *message)
{
    FILE *out = fopen(path, "w");
    if (!out)
        return false;
    char directory[4096];
    fprintf(out, "cd ");
    put_quoted(out, getcwd(directory, sizeof directory) ? directory : ".");
    fputc('\n', out);
    for (int i = 0; i < bug_program.argc; i++) {
        if (i > 0)
            fputc(' ', out);
        put_quoted(out, bug_program.argv[i]);
    }
    fprintf(out, "\n# lplan %s\n# pass: %s\n# %s:%d: %s\n", bug_program.version,
            bug_running_pass ? bug_running_pass : "none", file, line, message);
    return fclose(out) == 0;
}

_Noreturn void bug_at(const char *file, int line, const char *format, ...)
{
    /* No arena: it may be the arena that is broken or full. */
    char message[2048], path[64];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    fflush(stdout);
    fprintf(stderr, "lplan: internal error: ");
    put_clean(stderr, message);
    fprintf(stderr, "\n  note: at %s:%d", file, line);
    if (bug_running_pass)
        fprintf(stderr, ", in pass %s", bug_running_pass);
    fputc('\n', stderr);
    if (bug_program.argv) {
        snprintf(path, sizeof path, "lplan-bug-%ld.txt", (long)getpid());
        bool written = write_reproducer(path, file, line, message);
        if (!written) {
            snprintf(path, sizeof path, "/tmp/lplan-bug-%ld.txt", (long)getpid());
            written = write_reproducer(path, file, line, message);
        }
        if (written)
            fprintf(stderr, "  help: this is a bug in lplan; please report it with the file %s\n",
                    path);
        else
            fprintf(stderr, "  help: this is a bug in lplan; please report it with its inputs\n");
    }
    fflush(stderr);
    if (getenv("LPLAN_ABORT"))
        abort();
    _Exit(BUG_EXIT);
}
