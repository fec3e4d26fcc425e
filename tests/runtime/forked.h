/* forked.h - runs a job in a child process, for what ends it: its exit status and what it said. */
#ifndef LPLAN_TESTS_RUNTIME_FORKED_H
#define LPLAN_TESTS_RUNTIME_FORKED_H

#include "runtime/lp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* `arguments` end in NULL; the program's name is added. Output and errors go to `ret_said`. */
static inline int forked_run(const LpJob *job, const char *const *arguments, char *ret_said,
                             size_t size)
{
    int pipe_ends[2];
    assert_int_equal(pipe(pipe_ends), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char *argv[32] = {(char *)(uintptr_t) "trainer"};
        int argc = 1;
        for (; arguments[argc - 1]; argc++)
            argv[argc] = (char *)(uintptr_t)arguments[argc - 1];
        dup2(pipe_ends[1], STDOUT_FILENO);
        dup2(pipe_ends[1], STDERR_FILENO);
        close(pipe_ends[0]);
        int status = lp_main(argc, argv, job);
        fflush(NULL);
        _exit(status);
    }
    close(pipe_ends[1]);
    size_t length = 0;
    ssize_t got;
    char spare[256];
    while ((got = length + 1 < size ? read(pipe_ends[0], ret_said + length, size - 1 - length)
                                    : read(pipe_ends[0], spare, sizeof spare)) > 0)
        length += length + 1 < size ? (size_t)got : 0;
    ret_said[length] = '\0';
    close(pipe_ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* Both texts in the failure message. */
static inline void assert_says(const char *said, const char *wanted)
{
    if (!strstr(said, wanted))
        fail_msg("wanted `%s`, got `%s`", wanted, said);
}

/* A folder of this test's own, in memory where the system offers it; it becomes the working
 * directory. */
static inline void enter_folder(void)
{
    char folder[64];
    snprintf(folder, sizeof folder, "%s/lplan-test-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
}

#endif
