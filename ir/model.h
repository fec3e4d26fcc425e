/* model.h - a model file, lplan-model/1, and the Net it means for one job. */
#ifndef LPLAN_IR_MODEL_H
#define LPLAN_IR_MODEL_H

#include "ir/base/json.h"
#include "ir/graph.h"

/* Reads a parsed model for a *global* micro-batch of `batch` sequences of `sequence` tokens;
 * forward and backward nodes, verified. NULL after located errors. The vocabulary dim of the lookup
 * table and of the head is padded to a multiple of `pad_vocabulary` (>= 1). */
Net *model_read(Arena *arena, Diag *diag, Json model, int64_t batch, int64_t sequence,
                int64_t pad_vocabulary);
/* What a model is read for. */
typedef struct Reading {
    int64_t batch, sequence, pad_vocabulary;
    bool routed; /* experts may live apart from the tokens: the dims of choices are routed, and
                    every choice has a row of its own in front of its expert */
    int rounds;  /* then, more than 1: experts run once a round, on the rows that are dealt out to
                    it, */
    int sharing; /* of which a rank, one of so many, */
    int64_t room_percent; /* has room for this part of an even share of all */
} Reading;
Net *model_read_as(Arena *arena, Diag *diag, Json model, const Reading *reading);
/* The same for a file. The document stays valid in the arena (for embedding it in a plan). */
Net *model_load(Arena *arena, Diag *diag, const char *path, int64_t batch, int64_t sequence,
                int64_t pad_vocabulary, JsonDoc **ret_doc);

#endif
