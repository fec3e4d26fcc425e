/* check.h - cmocka with its own includes, and a child process for code that must end the program.
 */
#ifndef LPLAN_TESTS_CHECK_H
#define LPLAN_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Runs `body(argument)` in a child; its exit code, or 256 + signal. What it wrote to stderr goes to
 * `text` (NUL-terminated, cut at `room`). */
int check_child(void (*body)(void *), void *argument, char *text, size_t room);

#define RUN(group)                                                                                 \
    int main(void)                                                                                 \
    {                                                                                              \
        return cmocka_run_group_tests(group, NULL, NULL) != 0;                                     \
    }

#endif
