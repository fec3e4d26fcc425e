/* check.c - runs code in a child process, for tests of how the program ends. */
#include "tests/check.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int check_child(void (*body)(void *), void *argument, char *text, size_t room)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        body(argument);
        fflush(NULL);
        _exit(0);
    }
    close(ends[1]);
    size_t length = 0;
    char chunk[512];
    ssize_t got;
    while ((got = read(ends[0], chunk, sizeof chunk)) > 0) {
        for (ssize_t i = 0; i < got && length + 1 < room; i++)
            text[length++] = chunk[i];
    }
    text[length] = '\0';
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}
