/* emit.h - the writer of C-like text: indentation, wrapped lines, comments, and names.
 *
 * Text that came from a model file (names of tensors, blocks and parameters, and sentences that
 * contain them) reaches emitted code through emit_clean alone. Everything else is text of ours. */
#ifndef LPLAN_CODEGEN_EMIT_H
#define LPLAN_CODEGEN_EMIT_H

#include "ir/base/str.h"
#include "ir/base/vec.h"

enum { EMIT_WIDTH = 100, EMIT_INDENT = 4, EMIT_DEPTH = 16 };

typedef struct Emit {
    Str text;
    int depth;
    size_t body[EMIT_DEPTH]; /* where the innermost open block of each depth begins */
} Emit;

Emit emit_new(Arena *arena);
/* One line at the current depth; longer than EMIT_WIDTH it is broken at blanks, continued one level
 * deeper. */
void emit_line(Emit *emit, const char *format, ...) LP_PRINTF(2, 3);
/* A line and " {"; everything until emit_close is one level deeper. */
void emit_open(Emit *emit, const char *format, ...) LP_PRINTF(2, 3);
/* A function's head: its brace has a line of its own. */
void emit_open_function(Emit *emit, const char *format, ...) LP_PRINTF(2, 3);
void emit_close(Emit *emit, const char *tail); /* "}" and the tail, such as ";" */
void emit_close_slim(Emit *emit);              /* without braces when the block is one line */
/* A comment of as many lines as it takes. */
void emit_comment(Emit *emit, const char *format, ...) LP_PRINTF(2, 3);
/* A line with its comment behind it, or above it when there is no room. */
void emit_line_comment(Emit *emit, const char *line, const char *comment);
/* A line at column 0: pragmas and directives. */
void emit_directive(Emit *emit, const char *format, ...) LP_PRINTF(2, 3);
void emit_blank(Emit *emit);
void emit_text(Emit *emit, const char *text); /* as it is */

/* What may pass: letters, digits, underscores, and the characters of `extra`; everything else
 * becomes '_'. */
enum { CLEAN_CAP = 256 };
#define CLEAN_IDENT ""
#define CLEAN_NAME "."                     /* in a string literal or a comment */
#define CLEAN_SENTENCE " .,:;()[]{}+-=<>'" /* in a comment: no '*', '/' or '\\' among them */
char *emit_clean(Arena *arena, const char *text, const char *extra);
/* A C identifier for the text: cleaned, not empty, no leading digit, no keyword, at most 40
 * characters. */
char *emit_ident(Arena *arena, const char *text);

/* Identifiers of one scope, made unique by a number at the end. */
typedef struct Names {
    Arena *arena;
    VEC(const char *) taken;
} Names;
Names names_new(Arena *arena);
const char *names_take(Names *names, const char *wanted);

#endif
