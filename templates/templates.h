/* templates.h - the kernel texts, as they stood when the compiler was built. */
#ifndef TEMPLATES_TEMPLATES_H
#define TEMPLATES_TEMPLATES_H

/* The text of a template by its path under templates/ ("host/math.h"), without its includes of
 * other templates: paste texts in the order of templates/README.md. NULL if there is none. Lives as
 * long as the program. */
const char *template_text(const char *name);

/* The name at a place of the list, NULL past its end. */
const char *template_name(int index);

/* 16 hexadecimal digits over all names and texts: two compilers with the same digits paste the
 * same kernels. */
const char *template_set_hash(void);

#endif
