/* look.h - what a plan's placements say, gathered once: over which atoms products make columns and
 * sum rows, how attention meets the sequence, what choices name, what backward makes again. */
#ifndef LPLAN_PLANNER_LOOK_H
#define LPLAN_PLANNER_LOOK_H

#include "planner/assess.h"

/* Dims by which something is cut, each once. */
typedef struct Letters {
    DimId at[MAX_LETTERS];
    int n;
} Letters;

typedef struct Look {
    Arena *arena;
    const Assessment *it;
    const Plan *plan;
    const Net *net;
    AtomSet batch, sequence; /* cut these between layers */
    AtomSet column, row;     /* cut results of products with weights; cut what is summed in them */
    Letters column_letters, row_letters;
    AtomSet vocabulary;          /* a maximum of the loss is Partial on them */
    AtomSet looked_up;           /* rows of a table that ids address are elsewhere */
    AtomSet passing;             /* blocks of a product pass by */
    AtomSet heads, ring, gather; /* how what crosses the sequence meets its shards */
    AtomSet named, named_cut;    /* what choices name is apart; and is cut by itself */
    DimId named_dim;             /* NONE: nothing is named */
    int64_t named_choices;
    bool bounded;              /* places of what is named run out */
    bool drawn;                /* some of the choices stay by chance */
    int layers, layers_remade; /* those that keep nothing but what they are handed */
    VEC(const char *) remade;  /* of others: forward values that backward makes again */
} Look;

Look look_at(Arena *arena, const Assessment *assessment);

/* Are the plan's rows those that the generator of this kind makes for its stages, chunks and
 * micro-batches? Any rows are those of a file (SCHEDULE_TABLE). Says what they come to. */
bool look_runs_as(const Look *look, ScheduleKind kind, Str *says);
/* Do some forwards run beside a backward of another micro-batch? */
bool look_has_pairs(const Look *look, Str *says);

/* ---- look_experts.c: who shares experts, and how their rows come ---- */

bool look_shares_experts(const Look *look, Str *says);
bool look_shares_over_tp(const Look *look, Str *says);
bool look_cuts_experts(const Look *look, Str *says);
bool look_is_switch(const Look *look, Str *says);
bool look_is_gshard(const Look *look, Str *says);
bool look_drops_none(const Look *look, Str *says);
bool look_has_rounds(const Look *look, Str *says);
bool look_is_padded(const Look *look, Str *says);

#endif
