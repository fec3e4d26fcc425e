/* embed.c - build tool: turns template files into one C file of constant arrays.
 *
 * usage: embed OUT.c ROOT NAME...     reads ROOT/NAME, writes the functions of templates.h
 *
 * Lines that include another template are dropped, since the emitter pastes the texts one after
 * another. Arrays of numbers, not string literals: C11 promises only 4095 characters to a literal.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define LINE_BYTES 1024

typedef struct Hash {
    uint64_t state;
} Hash;

/* FNV-1a: names a set of texts, guards against nobody. */
static void hash_add(Hash *h, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        h->state = (h->state ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    }
}

static int is_template_include(const char *line)
{
    static const char start[] = "#include \"templates/";
    return strncmp(line, start, sizeof start - 1) == 0;
}

static int put_text(FILE *out, FILE *in, const char *path, int index, Hash *h)
{
    char line[LINE_BYTES];
    size_t column = 0;
    fprintf(out, "static const char text_%d[] = {\n", index);
    while (fgets(line, sizeof line, in)) {
        const size_t n = strlen(line);
        if (n == 0 || line[n - 1] != '\n') {
            fprintf(stderr, "embed: %s: a line is over %d bytes, holds a NUL or lacks its end\n",
                    path, LINE_BYTES - 2);
            return 0;
        }
        if (is_template_include(line)) {
            continue;
        }
        hash_add(h, line, n);
        for (size_t i = 0; i < n; i++) {
            column += (size_t)fprintf(out, "%d,", (signed char)line[i]);
            if (column > 95) {
                fputc('\n', out);
                column = 0;
            }
        }
    }
    fprintf(out, "0};\n");
    return !ferror(in);
}

static int put_templates(FILE *out, const char *root, int count, char **names)
{
    Hash h = {UINT64_C(0xcbf29ce484222325)};
    fprintf(out,
            "/* Written by templates/embed.c from the files of templates/: edit those. */\n"
            "#include \"templates/templates.h\"\n\n#include <stddef.h>\n#include <string.h>\n\n");
    for (int i = 0; i < count; i++) {
        char path[LINE_BYTES];
        const int n = snprintf(path, sizeof path, "%s/%s", root, names[i]);
        FILE *in = n > 0 && (size_t)n < sizeof path ? fopen(path, "rb") : NULL;
        if (!in) {
            fprintf(stderr, "embed: cannot read %s under %s\n", names[i], root);
            return 0;
        }
        hash_add(&h, names[i], strlen(names[i]) + 1);
        const int ok = put_text(out, in, path, i, &h);
        fclose(in);
        if (!ok) {
            return 0;
        }
    }
    fprintf(out, "\nstatic const struct {\n    const char *name;\n    const char *text;\n} "
                 "templates[] = {\n");
    for (int i = 0; i < count; i++) {
        fprintf(out, "    { \"%s\", text_%d },\n", names[i], i);
    }
    fprintf(out,
            "};\n\nconst char *template_name(int index)\n{\n"
            "    return index >= 0 && index < %d ? templates[index].name : NULL;\n}\n\n"
            "const char *template_text(const char *name)\n{\n"
            "    for (int i = 0; i < %d; i++) {\n"
            "        if (strcmp(templates[i].name, name) == 0) {\n"
            "            return templates[i].text;\n        }\n    }\n    return NULL;\n}\n\n"
            "const char *template_set_hash(void)\n{\n    return \"%016" PRIx64 "\";\n}\n",
            count, count, h.state);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: embed OUT.c ROOT NAME...\n");
        return 2;
    }
    FILE *out = fopen(argv[1], "wb");
    if (!out) {
        fprintf(stderr, "embed: cannot write %s\n", argv[1]);
        return 1;
    }
    int ok = put_templates(out, argv[2], argc - 3, argv + 3);
    ok = fclose(out) == 0 && ok;
    if (!ok) {
        remove(argv[1]);
    }
    return ok ? 0 : 1;
}
