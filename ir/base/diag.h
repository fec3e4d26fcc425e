/* diag.h - what is wrong, where, and what to do about it.
 *
 * Three kinds of failure, three mouths. The user's input is wrong: diag_error() with a span, and
 * the function returns false. The world is wrong (file, compiler, disk): the same list, no span. We
 * are wrong: BUG(), which names the place, leaves a reproducer file and ends the program with exit
 * code 70. Library code never prints: the list is printed by the verbs (cli_end). */
#ifndef LPLAN_IR_BASE_DIAG_H
#define LPLAN_IR_BASE_DIAG_H

#include <stdbool.h>
#include <stdio.h>

#include "ir/base/arena.h"

/* A text the user wrote, kept for carets. */
typedef struct Source {
    const char *path; /* as given on the command line */
    const char *text;
    size_t length;
} Source;

typedef struct Span {
    const Source *source; /* NULL: no place */
    int line, column;     /* 1-based; column counts code points */
    int length;           /* of the caret run, at least 1 */
} Span;

typedef enum { DIAG_ERROR, DIAG_WARNING } DiagLevel;

typedef struct DiagItem {
    DiagLevel level;
    Span span;
    const char *text; /* lower case, no full stop */
    const char *note; /* "at /layers/attention/heads" or NULL */
    const char *help; /* the remedy, or NULL */
    const char *said; /* lines of another program, or NULL */
} DiagItem;

typedef struct Diag Diag;

Diag *diag_new(Arena *arena);
/* Appends; beyond 20 errors they are counted but not kept. Returns false so that callers can
 * `return diag_error(...)`. */
bool diag_error(Diag *diag, Span span, const char *format, ...) LP_PRINTF(3, 4);
void diag_warning(Diag *diag, Span span, const char *format, ...) LP_PRINTF(3, 4);
/* Attach to the latest item. */
void diag_note(Diag *diag, const char *format, ...) LP_PRINTF(2, 3);
void diag_help(Diag *diag, const char *format, ...) LP_PRINTF(2, 3);
/* What another program said, a line below the item for each of its first ones. */
void diag_said(Diag *diag, const char *lines);
int diag_errors(const Diag *diag);
int diag_count(const Diag *diag); /* kept items */
const DiagItem *diag_item(const Diag *diag, int index);
/* clang-like lines with the source line and a caret; colour only when asked for. */
void diag_print(const Diag *diag, FILE *out, bool colour);

#define NO_SPAN ((Span){0})

/* Our own fault. Prints file:line, the message and the running pass to stderr, writes them with the
 * command line to lplan-bug-PID.txt (when the program told its command line), and exits with 70;
 * with LPLAN_ABORT set in the environment it aborts instead, for a debugger. */
_Noreturn void bug_at(const char *file, int line, const char *format, ...) LP_PRINTF(3, 4);
/* What a bug report says: both are kept by reference, and are the only state of the process in the
 * compiler. The program tells its command line once, in main; the pass runner tells the pass (NULL:
 * none) on its own thread. */
void bug_command(const char *version, int argc, char *const *argv);
void bug_pass(const char *name);
#define BUG(...) bug_at(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            BUG("check failed: %s", #condition);                                                   \
    } while (0)

#endif
