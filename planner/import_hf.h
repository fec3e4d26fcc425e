/* import_hf.h - a Hugging Face config.json as a model graph, lplan-model/1.
 *
 * Only what the op set expresses exactly is imported; everything else is refused with the key that
 * says so. */
#ifndef LPLAN_PLANNER_IMPORT_HF_H
#define LPLAN_PLANNER_IMPORT_HF_H

#include "ir/base/json.h"
#include "ir/base/vec.h"

typedef VEC(const char *) Lines;

/* What of training a config says is taken too: models are trained without dropout, and experts
 * balanced only where the config asks for the term (output_router_logits), unless the user says so.
 */
typedef struct ImportOptions {
    bool dropout, balance;
    double further; /* factor of the loss of the config's layer for the token after the next; 0:
                       without it */
} ImportOptions;

typedef struct Import {
    json_t *model;      /* lplan-model/1, a reference of the caller's */
    const char *family; /* model_type */
    int64_t positions;  /* the longest sequence it was made for */
    Lines notes;        /* what was assumed or ignored, a line each */
} Import;

/* A model file: lplan-model/1 as it is, a Hugging Face config.json imported. *ret (may be NULL)
 * says what that assumed and the longest sequence the model is for, 0 when nothing says so; its
 * `model` is not the caller's. NULL after located errors. */
JsonDoc *import_model(Arena *arena, Diag *diag, const char *path, Import *ret);

/* False after located errors. `name` becomes the model's name, made printable. */
bool import_hf(Arena *arena, Json config, const char *name, const ImportOptions *options,
               Import *ret);
/* "dir/Llama-3.json" is named Llama-3, "dir/config.json" after its folder. */
const char *import_name(Arena *arena, const char *path);

#endif
