/* import_builder.h - what the files import_build*.c share: one block of a model file being written,
 * op by op. */
#ifndef LPLAN_PLANNER_IMPORT_BUILDER_H
#define LPLAN_PLANNER_IMPORT_BUILDER_H

#include "planner/import_features.h"

typedef struct Builder {
    Arena *arena;
    const Features *f;
    json_t *ops; /* of the block being built */
    double eps;  /* of the norms being built */
} Builder;

/* "NAME.weight" with the wrapper's renaming; build_name is without a kind. */
const char *build_param(const Builder *b, const char *name, const char *kind);
const char *build_name(const Builder *b, const char *name);
/* "g r d" as ["g", "r", "d"]. */
json_t *build_words(const char *text);
/* Numbers that a config wrote as integers stay integers in the file. */
json_t *build_number(double value);

/* Ops. Those with a result give its name back. */
void build_put(Builder *b, json_t *op);
/* from NULL: the last axis. `rows` (NULL: all of them): "[a:b]" of the stored tensor. */
void build_linear(Builder *b, const char *in, const char *out, const char *name, const char *rows,
                  const char *from, const char *to, bool bias);
const char *build_binary(Builder *b, const char *kind, const char *left, const char *right,
                         const char *out);
/* `parts`: the dims of each, "r;;" (NULL: none have any). */
void build_split(Builder *b, const char *in, const char *dim, const char *names, const char *parts);
const char *build_concat(Builder *b, const char *ins, const char *dim, const char *parts,
                         const char *out);
/* The value's name after multiplying it; the same name when there is nothing to do. */
const char *build_scaled(Builder *b, const char *in, const char *out, double factor);
/* The value's name after dropping out at a site; the same name when there is nothing to drop. */
const char *build_dropped(Builder *b, const char *in, const char *out, DropSite site);
/* A function with numbers of its own: clamp, softcap, swish, shift. */
const char *build_curve(Builder *b, const char *in, const char *out, const char *kind, double a,
                        double c);
const char *build_act(Builder *b, const char *in, const char *out);
/* The norm of the stream; the name of the value itself where the family has none. */
const char *build_norm(Builder *b, const char *in, const char *out, const char *name);
/* The same, root mean square whatever the family's, over `axes` axes, with a gain of its own for
 * `gain_axes` of them; name NULL: without gain. */
const char *build_norm_over(Builder *b, const char *in, const char *out, const char *name,
                            NormKind kind, bool bias, int axes, int gain_axes);

/* Reads `in`, gives the name of what it makes. */
const char *build_attention(Builder *b, const char *in, const Layer *layer);
const char *build_mlp(Builder *b, const char *in, const Layer *layer);

#endif
