/* rows.c - rows that go to whom their choices name, and come back.
 *
 * The ranks of a group have the same number of tokens each, and together `rows` choices, of which
 * member i has the runs at [i / cuts][..][i % cuts][run]; a choice is the number of a thing that
 * some member has, or -1: nobody. Member i has things [i * named, (i + 1) * named). Everyone knows
 * all choices, so everyone knows all sizes, and no sizes are sent. A member's block keeps the order
 * of the choices; behind its rows it is filled up to its room. Where messages are padded it has an
 * equal part for each member, which is filled up by itself: then messages have one size, and none
 * needs a count. */
#ifndef LP_ROWS_C
#define LP_ROWS_C

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "templates/host/tile.h"

typedef struct LpRows {
    long rows;     /* choices of all members together */
    int members;   /* of the group */
    int me;        /* this rank's number in it */
    long named;    /* things that a member has */
    long elements; /* of a row */
    int width;     /* bytes of an element */
    long room;     /* rows that a member's block has room for */
    long cuts;     /* members between which a token's choices and the next one's lie; 0: none */
    long run;      /* choices of a member side by side, where there are cuts */
    long message;  /* rows of a member's part; 0: rows of all lie one behind the other */
} LpRows;

/* Where the i-th choice of a member is among all. */
static LP_MAYBE_UNUSED long lp_rows_at(const LpRows *r, int member, long i)
{
    const long each = r->rows / r->members;
    if (r->cuts == 0) {
        return member * each + i;
    }
    return ((member / r->cuts * (each / r->run) + i / r->run) * r->cuts + member % r->cuts) *
               r->run +
           i % r->run;
}

static LP_MAYBE_UNUSED int lp_rows_owner(const LpRows *r, int32_t choice)
{
    return choice < 0 ? -1 : (int)(choice / r->named);
}

/* The rows that name what this rank has. Elements that it gives to each member, and behind them
 * those that it takes, when rows go out; the other way round when they come back. */
static LP_MAYBE_UNUSED long lp_rows_sizes(const LpRows *r, const int32_t *choice, int64_t *out,
                                          int64_t *in)
{
    const long each = r->rows / r->members;
    long got = 0;
    memset(out, 0, (size_t)r->members * sizeof *out);
    memset(in, 0, (size_t)r->members * sizeof *in);
    for (long i = 0; i < r->rows; i++) {
        const int from = (int)(i / each);
        const int owner = lp_rows_owner(r, choice[lp_rows_at(r, from, i % each)]);
        if (owner == r->me) {
            in[from] += r->elements;
            got++;
        }
        if (from == r->me && owner >= 0) {
            out[owner] += r->elements;
        }
    }
    return got;
}

/* Copies of this rank's rows, those for the first member first. */
static LP_MAYBE_UNUSED void lp_rows_pack(const LpRows *r, const int32_t *choice, const int64_t *out,
                                         const void *from, void *to)
{
    const long each = r->rows / r->members, bytes = r->elements * r->width;
    char *at = to;
    for (int owner = 0; owner < r->members; owner++) {
        if (out[owner] == 0) {
            continue;
        }
        for (long i = 0; i < each; i++) {
            if (lp_rows_owner(r, choice[lp_rows_at(r, r->me, i)]) == owner) {
                memcpy(at, (const char *)from + i * bytes, (size_t)bytes);
                at += bytes;
            }
        }
    }
}

/* The rows that came back, to the tokens they left; zeros where nobody was named. */
static LP_MAYBE_UNUSED void lp_rows_unpack(const LpRows *r, const int32_t *choice, const void *from,
                                           void *to)
{
    const long each = r->rows / r->members, bytes = r->elements * r->width;
    const char *at = from;
    for (long i = 0; i < each; i++) {
        if (lp_rows_owner(r, choice[lp_rows_at(r, r->me, i)]) < 0) {
            memset((char *)to + i * bytes, 0, (size_t)bytes);
        }
    }
    for (int owner = 0; owner < r->members; owner++) {
        for (long i = 0; i < each; i++) {
            if (lp_rows_owner(r, choice[lp_rows_at(r, r->me, i)]) == owner) {
                memcpy((char *)to + i * bytes, at, (size_t)bytes);
                at += bytes;
            }
        }
    }
}

/* Zeros behind the rows that come in. */
static LP_MAYBE_UNUSED void lp_rows_fill(const LpRows *r, const int64_t *in, void *to)
{
    int64_t elements = 0;
    for (int i = 0; i < r->members; i++) {
        elements += in[i];
    }
    memset((char *)to + elements * r->width, 0,
           (size_t)(r->room * r->elements - elements) * (size_t)r->width);
}

/* Messages of one size, those for the first member first: this rank's rows, and zeros behind them.
 * Returns the rows of the fullest, of which those beyond its size are left out. */
static LP_MAYBE_UNUSED long lp_rows_pad(const LpRows *r, const int32_t *choice, const void *from,
                                        void *to)
{
    const long each = r->rows / r->members, bytes = r->elements * r->width;
    long most = 0;
    for (int owner = 0; owner < r->members; owner++) {
        char *part = (char *)to + owner * r->message * bytes;
        long got = 0;
        for (long i = 0; i < each; i++) {
            if (lp_rows_owner(r, choice[lp_rows_at(r, r->me, i)]) != owner) {
                continue;
            }
            if (got++ < r->message) {
                memcpy(part + (got - 1) * bytes, (const char *)from + i * bytes, (size_t)bytes);
            }
        }
        if (got < r->message) {
            memset(part + got * bytes, 0, (size_t)((r->message - got) * bytes));
        }
        most = got > most ? got : most;
    }
    return most;
}

/* The rows that came back in messages of one size, to the tokens they left; zeros where nobody was
 * named. */
static LP_MAYBE_UNUSED void lp_rows_unpad(const LpRows *r, const int32_t *choice, const void *from,
                                          void *to)
{
    const long each = r->rows / r->members, bytes = r->elements * r->width;
    for (int owner = -1; owner < r->members; owner++) {
        const char *part = (const char *)from + (owner < 0 ? 0 : owner) * r->message * bytes;
        for (long i = 0; i < each; i++) {
            if (lp_rows_owner(r, choice[lp_rows_at(r, r->me, i)]) != owner) {
                continue;
            }
            if (owner < 0) {
                memset((char *)to + i * bytes, 0, (size_t)bytes);
            } else {
                memcpy((char *)to + i * bytes, part, (size_t)bytes);
                part += bytes;
            }
        }
    }
}

/* This rank's rows out of those of all, as far as there is room, and how many they are, or those of
 * the member who has most where each has its part; elsewhere every byte is `blank`, which makes
 * zeros of 0 and choices of nobody of 255. */
static LP_MAYBE_UNUSED long lp_rows_cut(const LpRows *r, const int32_t *choice, const void *from,
                                        int blank, void *to)
{
    const long each = r->rows / r->members, bytes = r->elements * r->width;
    const long part = r->message > 0 ? r->message : r->room;
    long got = 0, most = 0;
    char *begin = to;
    memset(to, blank, (size_t)(r->room * bytes));
    for (int member = 0; member < r->members; member++) {
        if (r->message > 0) {
            begin = (char *)to + member * r->message * bytes;
            got = 0;
        }
        for (long i = 0; i < each; i++) {
            const long at = lp_rows_at(r, member, i);
            if (lp_rows_owner(r, choice[at]) == r->me && got++ < part) {
                memcpy(begin + (got - 1) * bytes, (const char *)from + at * bytes, (size_t)bytes);
            }
        }
        most = got > most ? got : most;
    }
    return most;
}

#endif
