/* bug.h - a row of the table of bugs that other systems shipped: the plans on which it would show,
 * and a fault of that kind that must be noticed.
 *
 * On every plan of every row: the static proof holds; loss, gradient norm and parameters are those
 * of the un-placed graph, in program order and in another, with the same bits in both; replicas and
 * the clip coefficient agree to the bit. Then the row's faults, one by one. */
#ifndef LPLAN_TESTS_BUGS_BUG_H
#define LPLAN_TESTS_BUGS_BUG_H

#include "tests/ir/lower/trial.h"

/* A change of what ranks do that the static proof must object to. */
typedef enum {
    TAP_NONE,
    TAP_ADD,       /* the first micro-batch adds to what the step before left */
    TAP_OVERWRITE, /* a later micro-batch overwrites what earlier ones added */
    TAP_NO_SUM,    /* one rank leaves its squares out of the norm */
    TAP_UPDATE,    /* the optimizer does not wait for the stream of the gradients */
    TAP_GATHER,    /* layers do not wait for updated weights */
    TAP_RECV,      /* layers do not wait for what is received */
    TAP_ORDER,     /* one rank takes two collectives in the other order */
    TAP_NO_UPDATE, /* one replica leaves an update out */
    TAP_OWNERS,    /* a replica counts in the norm beside its owner */
    TAP_SHARD,     /* one rank steps a matrix that begins in the middle of one */
    TAP_OVERLAP,   /* two areas of the layout share bytes */
    TAP_COUNT
} TapKind;

enum { MAX_BREAKS = 3, MAX_PLANS = 24 };

typedef struct Break {
    MutationKind kind;  /* of the machine, on every site that fits; MUTATE_NONE: the tap */
    const char *where;  /* piece of the site's name, or NULL */
    const char *member; /* piece of the name of a parameter in the site's group, or NULL */
    TapKind tap;
} Break;

typedef struct Bug Bug;
struct Bug {
    const char *id;   /* of CONTRACTS 1.14 */
    const char *what; /* a line for the table */
    const char *(*model)(Arena *arena);
    bool may_not_read;     /* the model has an op that may not be there yet */
    const char *optimizer; /* NULL: AdamW */
    int64_t batch, sequence;
    TrialSpec spec;
    const char *plans[MAX_PLANS]; /* pins; a '!' before them: must be refused */
    bool same;                    /* losses and norms of all plans are one another's */
    bool bits;                    /* and so are all bits */
    bool other; /* the model differs from plan to plan: only each with its oracle */
    Break breaks[MAX_BREAKS];
    /* A fault of the row's own kind, or a check: false when it was not noticed. */
    bool (*extra)(const Bug *bug, Arena *arena, const char **ret_what);
};

/* The rows, in order of their ids (several may share one). */
extern const Bug bugs[];
extern const int bug_count;

/* Breaks the program so; true when the static proof objects in the words that fit. *ret_hit: there
 * was something to break. */
bool tap_caught(const Program *program, TapKind kind, bool *ret_hit, const char **ret_said);

/* The trial of one plan of a row, or NULL: *ret_waits is the pin or feature it waits for, or NULL
 * when something is wrong, which *ret_why says. */
Trial *bug_trial(Arena *arena, const Bug *bug, const char *pins, const char **ret_waits,
                 const char **ret_why);

/* models.c: texts of tiny models. */
const char *model_edit(Arena *arena, const char *text, const char *find, const char *with);
const char *model_llama(Arena *arena);
const char *model_llama4(Arena *arena); /* four layers */
const char *model_llama8(Arena *arena);
const char *model_further(Arena *arena); /* losses of two further tokens */
const char *model_tied(Arena *arena);    /* llama, head tied */
const char *model_tied4(Arena *arena);
const char *model_mqa(Arena *arena); /* one KV head */
const char *model_smooth(Arena *arena);
const char *model_gpt2(Arena *arena);
const char *model_everything(Arena *arena);
const char *model_moe(Arena *arena);        /* router with balance per sequence and z, no bound */
const char *model_moe_batch(Arena *arena);  /* balance over the global micro-batch */
const char *model_moe_step(Arena *arena);   /* over the step: not there yet */
const char *model_moe_half(Arena *arena);   /* half the balance */
const char *model_moe_z(Arena *arena);      /* z alone */
const char *model_moe_biased(Arena *arena); /* z, and a bias that balances the load */
const char *model_moe_chance(Arena *arena); /* the second choice, to a capacity */
const char *model_dropout(Arena *arena);    /* gpt2 with dropout */

#endif
