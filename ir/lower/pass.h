/* pass.h - every pass is run, verified, and shown when asked for.
 *
 * The passes of lowering, in order. --dump-after=PASS|all prints what stands after a pass,
 * --stop-after=PASS ends there. */
#ifndef LPLAN_IR_LOWER_PASS_H
#define LPLAN_IR_LOWER_PASS_H

#include "ir/base/cli.h"
#include "ir/base/str.h"

typedef enum {
    PASS_GRAPH,    /* the model's classes, forward and backward */
    PASS_PLACE,    /* bodies: copies and derived moves */
    PASS_FUSE,     /* bodies: row programs */
    PASS_ORDER,    /* bodies: collectives early, who waits for them late */
    PASS_TEMPS,    /* bodies: addresses inside scratch and saved blocks */
    PASS_SCHEDULE, /* tables of every stage: one sequence, projected */
    PASS_LAYOUT,   /* addresses: groups, buckets, rings */
    PASS_SYNC,     /* the walk: every Step with its events */
    PASS_COUNT
} LowerPass;
extern const char *const pass_text[PASS_COUNT];

typedef struct Passes {
    bool dump[PASS_COUNT];
    LowerPass stop; /* PASS_COUNT: run them all */
    Str text;       /* the dumps */
} Passes;

/* The flags of a verb that lowers, for its CliFlag table. */
#define PASS_FLAGS                                                                                 \
    {"dump-after", "PASS",                                                                         \
     "what graph, place, fuse, order, temps, schedule, layout, sync, all leave", true},            \
    {                                                                                              \
        "stop-after", "PASS", "end behind that pass", false                                        \
    }

/* Reads them; false after an error that names the nearest pass. */
bool passes_read(Cli *cli, Passes *ret);
/* Tells BUG() which pass runs, and answers: is it to run at all? NULL passes: yes. */
bool pass_begin(const Passes *passes, LowerPass pass);
/* Where its dump goes, or NULL when it was not asked for. A heading is put. */
Str *pass_dump(Passes *passes, LowerPass pass, const char *what);

#endif
