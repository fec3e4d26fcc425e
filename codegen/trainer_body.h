/* trainer_body.h - the printer of one body, shared by its kernels and its moves. Private to them.
 */
#ifndef LPLAN_CODEGEN_TRAINER_BODY_H
#define LPLAN_CODEGEN_TRAINER_BODY_H

#include "codegen/trainer.h"

typedef struct BodyPrinter {
    Trainer *t;
    Emit *emit; /* statements */
    const Body *body;
    int class;
    int which;        /* list of the body */
    const char **var; /* per copy: its pointer, NULL until it is used */
    bool *written;
    const char **unpack; /* per instruction: what follows the wait for it, or NULL */
    Names *names;
    const char *link, *at, *first; /* what the function calls its link, its slots, and whether
                                      accumulators begin */
    const char *beside; /* "forward" or "backward", where it prints two bodies in one; or NULL */
    const Inst *inst;   /* at work, */
    int rooms;          /* and the rooms for blocks that it has asked for */
    bool uses_first;
} BodyPrinter;

/* A printer of a list of a body, whose variables are its own. */
BodyPrinter body_printer(Trainer *t, Emit *out, int class, int which, Names *names);
/* Names that a body's function must not give to a variable. */
Names *body_names(Trainer *t);
/* One instruction with its waits; those at the list's end, where `index` is its length. */
bool body_print_inst(BodyPrinter *p, int index);
void body_print_waits(BodyPrinter *p, int index);
/* Declarations of the variables that have been used. */
const char *body_pointers(BodyPrinter *p);

const Value *body_value(const BodyPrinter *p, int copy);
const Copy *body_copy(const BodyPrinter *p, int copy);
/* The variable that points at a copy; the first use declares it. */
const char *body_reads(BodyPrinter *p, int copy);
const char *body_writes(BodyPrinter *p, int copy);
/* Elements of a copy's local axes [begin, end). */
int64_t body_extent(const Copy *copy, int begin, int end);
/* The copy whose memory this one shares. */
int body_storage(const BodyPrinter *p, int copy);

/* A template's operand must be as it is stored (`real`), or fp32: else an error, false. */
bool body_takes(BodyPrinter *p, const Node *node, int copy, bool real);
bool body_refuses(BodyPrinter *p, const Node *node, int copy);

/* "first", or "false" where another link wrote the accumulator before. */
const char *body_first(BodyPrinter *p, int copy);
/* The global index at which a copy's block of an axis begins, as an expression. */
const char *body_origin(BodyPrinter *p, int copy, int axis);

/* Collectives in flight go on, where there are any. */
void body_poll(BodyPrinter *p);
/* Calls of the template attention.c. */
bool trainer_print_attention(BodyPrinter *p, const Node *node, const int *in, const int *out);
/* The ranks that see something of what an instruction works on, as a condition over their place in
 * the ring; NULL where all do. */
const char *body_when(BodyPrinter *p, const Inst *inst);
/* Calls of the templates route.c and expert.c: what chooses experts, and linears of experts. */
bool trainer_print_route(BodyPrinter *p, const Node *node, const int *in, const int *out);
bool trainer_print_expert(BodyPrinter *p, const Node *node, const int *in, const int *out);

/* One move, instruction `index` of its list. */
bool trainer_print_move(BodyPrinter *p, const Inst *inst, int index);
/* Joins the results of a node on several blocks (INST_MERGE), in fp32. */
bool trainer_print_merge(BodyPrinter *p, const Inst *inst);

#endif
