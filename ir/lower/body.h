/* body.h - a placed class: the instructions one stage rank runs for one instance of a block,
 * forward and backward.
 *
 * A Body is a *template*: it names copies (a value under a placement, with a home), not addresses.
 * The walk binds it to a layer, a micro-batch and slots. Instructions are kernels (one node, or
 * several fused ones) and moves (collectives and their free relatives) that the algebra derived.
 * Backward may begin with clones of forward nodes: that is recompute. */
#ifndef LPLAN_IR_LOWER_BODY_H
#define LPLAN_IR_LOWER_BODY_H

#include "ir/lower/pass.h"
#include "ir/lower/place.h"
#include "ir/plan.h"

/* Where a copy lives, hence how long and at which address:
 *   data     ids, labels, weight of a micro-batch          ring slot of the micro-batch
 *   param    weight at its home                             parameter block of the link
 *   acc      gradient accumulator, and the loss: loop-carried over micro-batches   gradient block
 * of the link in, out  chain input and output at the boundary         in: saved ring or a
 * transient; out: the next link's `in` grad_in, grad_out   gradients of chain output, input
 * transients, or send and receive buffers at the chunk's ends saved    forward makes it, backward
 * reads it            saved block of its kind: link offset + ring slot of the micro-batch temp
 * lives and dies inside one list              scratch area, shared by all links fused    never in
 * memory: inside one fused kernel */
typedef enum {
    HOME_DATA,
    HOME_PARAM,
    HOME_ACC,
    HOME_IN,
    HOME_OUT,
    HOME_GRAD_IN,
    HOME_GRAD_OUT,
    HOME_SAVED,    /* forward makes it, I (or the whole backward) reads it */
    HOME_SAVED_W,  /* W reads it too: lives on to there */
    HOME_SAVED_IW, /* I makes it, W reads it */
    HOME_TEMP,
    HOME_FUSED,
    HOME_COUNT
} Home;
extern const char *const home_text[HOME_COUNT];

/* The kinds of saved values by where their lives end, in the order of their homes: a block each. */
typedef enum { SAVED_I, SAVED_W, SAVED_IW, SAVED_KINDS } SavedKind;

typedef struct Copy {
    const char
        *name; /* value's name, made unique among the body's copies when a value has several */
    ValueId value;
    Placement place;
    DType dtype;
    int64_t local[MAX_AXES]; /* extents of the local block, dense row-major in axis order */
    int64_t elements, bytes;
    Home home;
    AtomList ring;   /* of a copy that passes by: the block here is at home `turn` places before, */
    int turn;        /* along these atoms; else empty and 0 */
    int alias;       /* copy whose storage this one is (an in-place all-reduce or merge), or NONE */
    int param;       /* of HOME_PARAM and HOME_ACC: index in graph->params; NONE for a loss, */
    int number;      /* and which of them (graph_loss) */
    int64_t offset;  /* saved: in the link's saved block; temp: in the scratch area. Bytes,
                        64-aligned. Others: by the stage */
    bool back;       /* a temp of backward's lists, not of forward's */
    int first, last; /* instructions of its segment between which a temp lives; for saved: first in
                        forward, last in backward */
} Copy;

typedef enum {
    INST_KERNEL, /* nodes on local blocks */
    INST_MOVE,   /* one move: in[0] -> out[0]; of rows, by the choices in its last input */
    INST_MERGE,  /* out[k] = in[k] and in[outs + k], results of a node on other blocks, joined by a
                    monoid: lse joins an (o, l) pair, sum each by itself */
    INST_ACCUMULATE /* out[0] += in[0] (or = on the first micro-batch): a gradient that had to move
                       first */
} InstKind;

enum { MAX_FUSED = 24, MAX_OPERANDS = 16 };

typedef struct Inst {
    InstKind kind;
    Form form; /* of a kernel */
    Flow flow; /* clones of forward nodes in backward keep FLOW_FORWARD; a move has the flow of what
                  it serves, input before clones before weights */
    int turn;  /* of a node that sees blocks pass by: which of them, counted from its own */
    uint8_t adds;   /* set of its results that are added to what earlier turns left there */
    uint8_t monoid; /* of a merge */
    int nodes; /* fused in this order; the last one need not be the only one with stored outputs */
    NodeId node[MAX_FUSED];
    Move move;
    int ins, outs;
    int in[MAX_OPERANDS];  /* stored copies read, each once */
    int out[MAX_OPERANDS]; /* stored copies written, each once. HOME_ACC outputs add unless it is
                              the first micro-batch */
    /* Which copy each operand of each fused node is: bind_in[i][k] for node[i]'s operand k (fused
     * copies included). */
    int (*bind_in)[MAX_IN];
    int (*bind_out)[MAX_OUT];
    const char *why; /* of moves, for a person: "sum the partial terms of o (contracted over g) over
                        tp, for x1" */
} Inst;

typedef struct InstList {
    int n;
    Inst *at;
} InstList;

typedef struct Body {
    const Net *net;
    const Graph *graph;
    const ClassPlan *plan;
    const Mesh *mesh;
    const Recipe *recipe;
    VEC(Copy) copies;
    InstList forward, backward, weight; /* weight: W, where backward is split and is I alone */
    int in, out, grad_in, grad_out;     /* the boundary copies, NONE at the chain's ends */
    int losses, loss[1 + MOST_AHEAD];   /* accumulator copies of the losses */
    int *param_copy, *acc_copy; /* per param; acc_copy NONE for a parameter without gradient */
    bool saves_in;              /* backward reads the chain input: it lives in a saved ring, */
    bool saves_in_late;         /* which W reads too, so in that of the second kind */
    bool saves_grad_in; /* W reads the gradient of the chain output: it lives in the third kind's */
    int64_t saved_bytes[SAVED_KINDS];
    int64_t forward_temp_bytes, backward_temp_bytes, weight_temp_bytes;
} Body;

/* Lowers one class: places every node as its choice says, delivers each use from the cheapest copy,
 * saves what backward reads, clones what is not kept, accumulates gradients, fuses neighbours, lays
 * out temps. split: backward becomes two lists, I (gradients of the chain's input, by the flow of
 * the nodes, with the clones these read) and W (the rest, and all that is added to accumulators);
 * what W reads of I is saved. BUG when the plan was not verified. */
Body *body_lower(Arena *arena, const Net *net, const Graph *graph, const ClassPlan *plan,
                 const Mesh *mesh, const Recipe *recipe, const MovePrice *price, bool split);
/* The same, pass by pass (pass.h): dumps what was asked for, stops where it was told to. Every pass
 * is verified. */
Body *body_lower_passes(Arena *arena, const Net *net, const Graph *graph, const ClassPlan *plan,
                        const Mesh *mesh, const Recipe *recipe, const MovePrice *price, bool split,
                        Passes *passes);

/* The lists of a body in the order in which a micro-batch runs them. */
enum { BODY_LISTS = 3 };
const InstList *body_list(const Body *body, int which);
/* The list that an instruction of the body is in. */
int body_list_with(const Body *body, const Inst *inst);
/* The dtype of a value under a recipe: the weights', the gradients' of wide values, the
 * activations' of others and of what the chain hands on. */
DType value_dtype(const Graph *graph, ValueId id, const Recipe *recipe);
/* Readable text, one instruction a line (--dump-after=place|fuse). */
void body_put_text(Str *str, const Body *body);
/* Every placement satisfies its op's rule, every move is legal, every input was produced, no two
 * live temps overlap. */
bool body_verify(const Body *body, Diag *diag);

/* The parts of lowering, in why.c, fuse.c and temp.c: say of each move which flow it belongs to and
 * why it is there; merge kernels that may run as one row program (never across a move, a home or a
 * change of flow); let sums run in place and give temps their offsets by first fit of their lives.
 */
void body_explain(Arena *arena, Body *body);
void body_fuse(Arena *arena, Body *body);
void body_place_temps(Body *body);

#endif
