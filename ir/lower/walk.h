/* walk.h - the only expansion of a Program: entries become Steps with addresses and events, one
 * stage rank at a time.
 *
 * A Step runs on one stream of its rank; within a stream Steps run in order. Between streams a Step
 * waits for events: the walk finds them as it goes (read after write from data; write after read
 * and write after write from reuse of bytes), newest first, skipping what is already implied, which
 * is the transitive reduction. */
#ifndef LPLAN_IR_LOWER_WALK_H
#define LPLAN_IR_LOWER_WALK_H

#include "ir/lower/program.h"

typedef enum {
    STREAM_COMPUTE,
    STREAM_BLOCK,    /* collectives inside bodies */
    STREAM_GRADIENT, /* bucket reductions and gathers, tied sums, the norm */
    STREAM_WEIGHT,   /* gathers of weights for a use */
    STREAM_SEND_ACT,
    STREAM_RECV_ACT,
    STREAM_SEND_GRAD,
    STREAM_RECV_GRAD,
    STREAM_COPY_IN, /* between the memories of a rank: the host's to the device's, */
    STREAM_COPY_OUT,
    STREAM_FILE_READ, /* and files to the host's */
    STREAM_FILE_WRITE,
    STREAM_COUNT
} Stream;
extern const char *const stream_text[STREAM_COUNT];

typedef enum {
    STEP_LOAD,   /* the batch's rows of this micro-batch: writes the data slot, operands by DataId
                    order of those present */
    STEP_KERNEL, /* inst of a body, or a node of the optimizer */
    STEP_MOVE,   /* collective or free local move */
    STEP_MERGE,
    STEP_ACCUMULATE, /* operand 1 += operand 0; of a bucket: what earlier micro-batches left in a
                        gradient's home joins the sums of this one, or the other way round */
    STEP_SEND,
    STEP_RECV,
    STEP_OWN_LOSS, /* of each loss: its place in PAIR = LOSS on the ranks that own it (coordinate 0
                      of the atoms on which it is Replicate), 0 elsewhere */
    STEP_TIED,     /* all-reduce between two stages, same coordinate */
    STEP_WORLD,    /* all-reduce of {loss, norm2, losses beside it} over all ranks */
    STEP_CLEAR,    /* zeros in the padding of a bucket's buffer */
    STEP_COPY, /* from one memory to another, of a bucket's state or of what a link saves: operands
                  in pairs, from and to */
    STEP_COUNT
} StepKind;
extern const char *const step_text[STEP_COUNT];

/* What the bytes are: two operands with the same name are the same value of the same micro-batch
 * and layer. */
typedef struct Operand {
    int64_t address, bytes; /* address: of all memories of the rank (state.h) */
    uint64_t name;
    const Copy *copy; /* NULL for flat buffers and scalars */
    bool write, read; /* an accumulator is both unless first */
} Operand;

typedef struct Wait {
    Stream stream;
    int64_t seq;
} Wait;

typedef struct Step {
    StepKind kind;
    Stream stream;
    int64_t seq; /* in its stream */
    int stage, coordinate;
    int round;      /* optimizer step, from 0 */
    int turn;       /* of the table: the same, less what the entry is ahead */
    int entry;      /* index in the stage's table, */
    bool evaluates; /* or in its evaluation: then it stands before the first Step of its turn */
    int link;       /* of the stage, or NONE */
    int micro;      /* or NONE */
    bool first;     /* accumulators are written, not added to */
    const Body *body;
    const Inst *inst; /* of a body */
    const Node *node; /* of the optimizer */
    const Move
        *move; /* of STEP_MOVE: the body's or the bucket's; the group is mesh_group(move->atoms) */
    int64_t elements; /* flat length before the move, per rank, of bucket moves */
    int bucket;       /* or NONE */
    int64_t from_element,
        count; /* sumsq, adamw: range in the bucket's group that this Step handles (one decay flag);
                * a sumsq of count 0 is a rank that does not own its elements: it writes or adds
                * nothing but zero. own_loss: count 1 on the ranks that own the loss, else 0 */
    bool decay; /* adamw: weight decay applies to the range */
    MsgKind message;
    int boundary; /* of messages: the later one of the two chunks */
    int peer;     /* stage */
    int waits;
    Wait wait[STREAM_COUNT];
    int operands;
    Operand operand[2 * MAX_OPERANDS]; /* inst's in, then out, in the instruction's order. Last: a
                                          stored Step may be cut short */
} Step;

/* What a copy between memories carries. */
Kept step_carries(const Step *step);
/* The stream on which state hops between a memory and the one behind it. */
Stream hop_stream(Memory near, bool in);

typedef struct Walk Walk;
/* Steps of one optimizer step (or several) on one rank. `coordinate` is the rank inside the stage.
 */
Walk *walk_begin(Arena *arena, const Program *program, int stage, int coordinate,
                 int optimizer_steps);
/* The same with evaluations between: before each step, or, where steps flow, before the first. */
Walk *walk_begin_evaluating(Arena *arena, const Program *program, int stage, int coordinate,
                            int optimizer_steps);
/* Of two Steps of one rank: the entry of `a` is an earlier one than that of `b`. */
bool step_entry_before(const Step *a, const Step *b);
/* The next Step, valid until the next call; NULL at the end. */
const Step *walk_next(Walk *walk);
/* One line: stream#seq, what, operands, waits. */
void step_put(Str *str, const Program *program, const Step *step);

#endif
