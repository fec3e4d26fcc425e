/* pass.c - names and flags of the passes. */
#include "ir/lower/pass.h"

const char *const pass_text[PASS_COUNT] = {"graph", "place",    "fuse",   "order",
                                           "temps", "schedule", "layout", "sync"};

static bool find_pass(Cli *cli, const char *flag, const char *name, LowerPass *ret)
{
    for (int pass = 0; pass < PASS_COUNT; pass++)
        if (str_eq(name, pass_text[pass])) {
            *ret = (LowerPass)pass;
            return true;
        }
    diag_error(cli->diag, NO_SPAN, "--%s=%s: there is no such pass", flag, name);
    const char *near = str_nearest(name, pass_text, PASS_COUNT);
    diag_help(cli->diag,
              near ? "did you mean %s?"
                   : "passes are graph place fuse order temps schedule layout "
                     "sync",
              near);
    return false;
}

bool passes_read(Cli *cli, Passes *ret)
{
    *ret = (Passes){.stop = PASS_COUNT, .text = str_new(cli->arena)};
    for (int i = 0; cli_value(cli, "dump-after", i); i++) {
        const char *name = cli_value(cli, "dump-after", i);
        LowerPass pass = PASS_COUNT;
        if (!str_eq(name, "all") && !find_pass(cli, "dump-after", name, &pass))
            return false;
        for (int k = 0; k < PASS_COUNT; k++)
            ret->dump[k] |= pass == PASS_COUNT || (int)pass == k;
    }
    const char *stop = cli_value(cli, "stop-after", 0);
    return !stop || find_pass(cli, "stop-after", stop, &ret->stop);
}

bool pass_begin(const Passes *passes, LowerPass pass)
{
    bug_pass(pass_text[pass]);
    return !passes || pass <= passes->stop;
}

Str *pass_dump(Passes *passes, LowerPass pass, const char *what)
{
    if (!passes || !passes->dump[pass])
        return NULL;
    str_putf(&passes->text, "; after %s: %s\n", pass_text[pass], what);
    return &passes->text;
}
