/* files.h - the runtime's sources as text, embedded when the compiler was built: lplan builds
 * trainers from anywhere. */
#ifndef LPLAN_CODEGEN_FILES_H
#define LPLAN_CODEGEN_FILES_H

typedef struct EmbeddedFile {
    const char *path; /* under runtime/ */
    const char *text;
} EmbeddedFile;

extern const EmbeddedFile embedded_files[];
extern const int embedded_file_count;

#endif
