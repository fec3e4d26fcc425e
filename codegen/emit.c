/* emit.c - the writer of C-like text. */
#include "codegen/emit.h"

#include <string.h>

#include "ir/base/diag.h"

Emit emit_new(Arena *arena)
{
    return (Emit){.text = str_new(arena)};
}

static void put_indent(Emit *emit, int depth)
{
    for (int i = 0; i < depth * EMIT_INDENT; i++)
        str_putc(&emit->text, ' ');
}

/* Where to break text[0..n) so that at most `room` characters stay: n when there is no blank. Code
 * breaks between the outermost elements of a list that reach past a third of the room; otherwise,
 * and in prose, at the last blank that fits. Never inside a string literal. */
static size_t break_at(const char *text, size_t n, size_t room, bool code)
{
    size_t best = n, comma = 0;
    bool quoted = false;
    int depth = 0, comma_depth = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (code && c == '"' && (i == 0 || text[i - 1] != '\\'))
            quoted = !quoted;
        if (quoted)
            continue;
        depth += (c == '(' || c == '{') - (c == ')' || c == '}');
        if (c != ' ' || i == 0)
            continue;
        if (i <= room || best == n)
            best = i;
        if (i > room)
            break;
        if (code && text[i - 1] == ',' && (comma <= room / 3 || depth <= comma_depth)) {
            comma = i;
            comma_depth = depth;
        }
    }
    return comma > room / 3 ? comma : best;
}

/* Puts text broken into lines: the first at `first` columns, the others at `rest`, each after
 * `lead`. */
static void put_wrapped(Emit *emit, const char *text, size_t first, size_t rest, const char *lead,
                        size_t tail, bool code)
{
    size_t n = strlen(text), column = first;
    bool started = false;
    while (n) {
        size_t room = column + tail < EMIT_WIDTH ? EMIT_WIDTH - column - tail : 1;
        size_t cut = n <= room ? n : break_at(text, n, room, code);
        if (started) {
            str_putc(&emit->text, '\n');
            for (size_t i = 0; i + strlen(lead) < column; i++)
                str_putc(&emit->text, ' ');
            str_put(&emit->text, lead);
        }
        str_putn(&emit->text, text, cut);
        text += cut;
        n -= cut;
        while (n && *text == ' ')
            text++, n--;
        column = rest;
        started = true;
    }
}

static void put_line(Emit *emit, const char *format, va_list args)
{
    char *text = arena_vprintf(emit->text.arena, format, args);
    size_t column = (size_t)(emit->depth * EMIT_INDENT);
    put_indent(emit, emit->depth);
    put_wrapped(emit, text, column, column + EMIT_INDENT, "", 0, true);
}

void emit_line(Emit *emit, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put_line(emit, format, args);
    va_end(args);
    str_putc(&emit->text, '\n');
}

void emit_open(Emit *emit, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put_line(emit, format, args);
    va_end(args);
    str_put(&emit->text, " {\n");
    emit->depth++;
    CHECK(emit->depth < EMIT_DEPTH);
    emit->body[emit->depth] = emit->text.n;
}

void emit_open_function(Emit *emit, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put_line(emit, format, args);
    va_end(args);
    str_put(&emit->text, "\n{\n");
    emit->depth++;
}

void emit_close(Emit *emit, const char *tail)
{
    emit->depth--;
    put_indent(emit, emit->depth);
    str_putf(&emit->text, "}%s\n", tail);
}

void emit_close_slim(Emit *emit)
{
    size_t body = emit->body[emit->depth];
    const char *text = emit->text.at + body;
    size_t n = emit->text.n - body;
    if (n == 0 || memchr(text, '\n', n) != text + n - 1 || text[0] == '#') {
        emit_close(emit, "");
        return;
    }
    char *line = arena_strndup(emit->text.arena, text, n);
    emit->text.n = body - strlen(" {\n");
    str_putf(&emit->text, "\n%s", line);
    emit->depth--;
}

void emit_comment(Emit *emit, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = arena_vprintf(emit->text.arena, format, args);
    va_end(args);
    size_t column = (size_t)(emit->depth * EMIT_INDENT) + 3;
    put_indent(emit, emit->depth);
    str_put(&emit->text, "/* ");
    put_wrapped(emit, text, column, column, " * ", 3, false);
    str_put(&emit->text, " */\n");
}

void emit_line_comment(Emit *emit, const char *line, const char *comment)
{
    size_t width =
        (size_t)(emit->depth * EMIT_INDENT) + strlen(line) + strlen(comment) + strlen(" /*  */");
    if (width > EMIT_WIDTH)
        emit_comment(emit, "%s", comment);
    emit_line(emit, width > EMIT_WIDTH ? "%s" : "%s /* %s */", line, comment);
}

void emit_directive(Emit *emit, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    str_put(&emit->text, arena_vprintf(emit->text.arena, format, args));
    va_end(args);
    str_putc(&emit->text, '\n');
}

void emit_blank(Emit *emit)
{
    str_putc(&emit->text, '\n');
}

void emit_text(Emit *emit, const char *text)
{
    str_put(&emit->text, text);
}

char *emit_clean(Arena *arena, const char *text, const char *extra)
{
    Str out = str_new(arena);
    for (size_t i = 0; text[i] && i < CLEAN_CAP; i++) {
        char c = text[i];
        bool plain =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        str_putc(&out, plain || strchr(extra, c) ? c : '_');
    }
    return out.at;
}

static bool is_among(const char *const *words, size_t count, const char *text, size_t length)
{
    for (size_t i = 0; i < count; i++)
        if (strncmp(words[i], text, length) == 0 && words[i][length] == '\0')
            return true;
    return false;
}

/* Words of C, of C++ and CUDA, and what the headers of a trainer say in small letters. */
static bool is_keyword(const char *text)
{
    static const char *const words[] = {
        "alignas",   "alignof",   "and",      "asm",      "assert",    "auto",     "blockDim",
        "blockIdx",  "bool",      "break",    "case",     "catch",     "char",     "class",
        "const",     "constexpr", "continue", "decltype", "default",   "delete",   "dim3",
        "do",        "double",    "else",     "enum",     "errno",     "explicit", "export",
        "extern",    "false",     "float",    "for",      "friend",    "goto",     "gridDim",
        "if",        "inline",    "int",      "linux",    "long",      "main",     "mutable",
        "namespace", "new",       "noexcept", "not",      "nullptr",   "offsetof", "operator",
        "or",        "private",   "public",   "register", "restrict",  "return",   "rank",
        "short",     "signed",    "sizeof",   "static",   "stderr",    "stdin",    "stdout",
        "struct",    "switch",    "template", "this",     "threadIdx", "throw",    "true",
        "try",       "typedef",   "typeid",   "typename", "typeof",    "union",    "unix",
        "unsigned",  "using",     "virtual",  "void",     "volatile",  "warpSize", "while",
        "xor",       "y0",        "y1",       "yn",       "j0",        "j1",       "jn",
        "protected",
    };
    return is_among(words, sizeof words / sizeof *words, text, strlen(text));
}

/* A variable of this name would hide a function that the text around it calls. */
static bool is_function(const char *text)
{
    static const char *const words[] = {
        "abort",  "abs",     "calloc",  "ceil",  "cos",   "div",    "erf",    "exit", "exp",
        "exp2",   "expm1",   "fabs",    "floor", "fma",   "fmax",   "fmin",   "fmod", "free",
        "index",  "isinf",   "isnan",   "log",   "log1p", "log2",   "malloc", "max",  "memcmp",
        "memcpy", "memmove", "memset",  "min",   "pow",   "printf", "qsort",  "rint", "round",
        "rsqrt",  "signal",  "signbit", "sin",   "sqrt",  "strlen", "tan",    "tanh", "trunc",
    };
    size_t count = sizeof words / sizeof *words, length = strlen(text);
    return is_among(words, count, text, length) ||
           (length > 1 && text[length - 1] == 'f' && is_among(words, count, text, length - 1));
}

/* Macros are written in capitals, types of the system end in _t. */
static bool is_system(const char *text)
{
    size_t length = strlen(text);
    bool capitals = true;
    for (const char *c = text; *c; c++)
        capitals = capitals && !(*c >= 'a' && *c <= 'z');
    return capitals || (length > 2 && strcmp(text + length - 2, "_t") == 0);
}

char *emit_ident(Arena *arena, const char *text)
{
    enum { LONGEST = 40 };
    char *clean = emit_clean(arena, text, CLEAN_IDENT);
    if (strlen(clean) > LONGEST)
        clean[LONGEST] = 0;
    if (!*clean || (*clean >= '0' && *clean <= '9') || *clean == '_')
        return arena_printf(arena, "n%s", clean);
    if (is_keyword(clean) || is_function(clean) || is_system(clean) ||
        strncmp(clean, "lp_", 3) == 0)
        return arena_printf(arena, "%s_", clean);
    return clean;
}

Names names_new(Arena *arena)
{
    return (Names){.arena = arena};
}

static bool names_has(const Names *names, const char *name)
{
    for (int i = 0; i < names->taken.n; i++) {
        if (str_eq(names->taken.at[i], name))
            return true;
    }
    return false;
}

const char *names_take(Names *names, const char *wanted)
{
    const char *name = wanted;
    for (int i = 2; names_has(names, name); i++)
        name = arena_printf(names->arena, "%s_%d", wanted, i);
    vec_push(names->arena, &names->taken) = name;
    return name;
}
