/* paste.c - prints embedded templates one after another, as codegen pastes them.
 *
 * usage: paste (NAME | -DWORD=TEXT)...     a -D becomes a #define at its place */
#include "templates/templates.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "-D", 2) == 0) {
            const int n = (int)strcspn(argv[i] + 2, "=");
            const char *value = argv[i] + 2 + n;
            printf("#define %.*s %s\n", n, argv[i] + 2, *value == '=' ? value + 1 : "");
            continue;
        }
        const char *text = template_text(argv[i]);
        if (!text) {
            fprintf(stderr, "paste: no template named %s\n", argv[i]);
            return 1;
        }
        fputs(text, stdout);
    }
    return 0;
}
