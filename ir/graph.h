/* graph.h - what the model means: values, nodes, blocks, and the chain of blocks that is the model.
 *
 * A Net is a chain of links; each link is an instance of a *class*: one Graph whose forward and
 * backward nodes are the same for every instance (identical layers are one class with a count).
 * Classes hand on one value along the chain (the residual stream) and take back its gradient.
 * Everything is an index into arrays of an arena.
 *
 * A value's axes are Dims of the Net, major to minor, dense. Dims may be products seen apart (heads
 * = g, r): then they are several axes. A node's signature gives each operand axis a letter; two
 * axes with one letter have one Dim, but one Dim may have two letters (the positions of queries, s,
 * and of keys, t). */
#ifndef LPLAN_IR_GRAPH_H
#define LPLAN_IR_GRAPH_H

#include "ir/base/diag.h"
#include "ir/base/vec.h"
#include "ir/op.h"

typedef int16_t DimId;
typedef int32_t ValueId;
typedef int32_t NodeId;

enum { MAX_AXES = 6, MAX_IN = 9, MAX_OUT = 3, MAX_LETTERS = 12, NONE = -1 };

/* A routed dim counts the choices of a token among other things (experts). What has it may be cut
 * over ranks by whom the choices name, not by position: see place.h. */
typedef enum { DIM_BATCH, DIM_SEQUENCE, DIM_OTHER, DIM_ROUTED } DimKind;

typedef struct Dim {
    const char *name; /* identifier */
    char letter;      /* unique among dims; 't' is kept for the key positions of the sequence */
    DimKind kind;
    int64_t extent; /* what memory and kernels see; the batch dim is the *global* micro-batch */
    int64_t used;   /* <= extent: beyond it are padding rows that index-valued ops leave out
                       (vocabulary) */
    DimId among;    /* of a routed dim: what its choices name */
    DimId twin_of;  /* 1 + the dim of which this is another letter, so that a product may set its
                       axis against itself; 0: of none */
} Dim;

/* A draw is keyed by the layer, its link's place in the chain, and by its site in the block. */
enum { DRAW_SITES = 1 << 16, DRAW_LAYERS = (1 << 16) - 1 };
/* The stream of what rows of attention draw, each with its own word as the seed. */
static const uint32_t DRAW_OF_ROW = 0xffffffffu;

typedef enum { NUM_FLOAT, NUM_INDEX } Number; /* the recipe of the plan turns it into a dtype */

typedef enum {
    VALUE_DATA, /* ids, labels, loss weight: read from the batch */
    VALUE_PARAM,
    VALUE_CHAIN_IN, /* x of the previous link */
    VALUE_GRAD_IN,  /* gradient of this link's output */
    VALUE_NODE,
    VALUE_INPUT /* any other input: optimizer state, the flat buckets; never in a model's net */
} ValueKind;

/* Tokens of the batch: ids; labels, the tokens one later; weight = mask / valid tokens of the step;
 * starts, where each token's document begins. Labels n further, with weights of their own, are for
 * losses that look further ahead: a position whose label lies behind its sample or its document has
 * no weight. */
typedef enum {
    DATA_IDS,
    DATA_LABELS,
    DATA_WEIGHT,
    DATA_STARTS,
    DATA_FURTHER, /* the first of MOST_AHEAD pairs of labels and weights */
    MOST_AHEAD = 3,
    DATA_COUNT = DATA_FURTHER + 2 * MOST_AHEAD
} DataId;
/* Labels and weights `ahead` (0 to MOST_AHEAD) tokens further than those of the next token. */
DataId data_labels(int ahead);
DataId data_weight(int ahead);
bool data_is_weight(int data);
/* By how many tokens it is further; 0 for those of no further labels. */
int data_ahead(int data);

typedef struct Value {
    const char *name; /* unique in its graph, an identifier with dots */
    ValueKind kind;
    Number number;
    bool wide; /* fp32 where a recipe stores values in 16 bits: see ir/wide.h */
    bool late; /* rows of a round behind the first */
    int axes;
    DimId dim[MAX_AXES];
    NodeId made; /* NONE unless VALUE_NODE */
    int out; /* which output of `made`; the DataId of a VALUE_DATA; the index of a VALUE_PARAM */
} Value;

typedef struct Sig {
    int letters;
    char letter[MAX_LETTERS]; /* printed form */
    DimId dim[MAX_LETTERS];
    /* Letter indices; axis counts are the values'. */
    int8_t in[MAX_IN][MAX_AXES], out[MAX_OUT][MAX_AXES];
    uint16_t nosplit, base; /* sets of letters, from the op's row */
    uint16_t in_out;        /* letters that occur in every output */
} Sig;

typedef enum { SEG_FORWARD, SEG_BACKWARD } Segment;
/* Backward nodes: on the way to the gradient of the chain input, or only to a parameter's. */
typedef enum { FLOW_FORWARD, FLOW_INPUT, FLOW_WEIGHT } Flow;

typedef struct Node {
    const char *name; /* unique in its graph */
    OpId op;
    Segment seg;
    Flow flow;
    int ins, outs;
    ValueId in[MAX_IN], out[MAX_OUT];
    Sig sig;
    Attrs attrs;
    bool late; /* works on rows of a round behind the first: an even router brings none */
} Node;

typedef enum { INIT_NORMAL, INIT_ONES, INIT_ZEROS } Init;

/* A parameter of a class. Instances differ by the layer number that replaces {i} in the name. */
typedef struct Param {
    const char *name; /* Hugging Face name, "model.layers.{i}.mlp.up_proj.weight" */
    ValueId value;
    ValueId grad; /* the value that is its gradient in backward; NONE when nothing reaches it */
    Init init;
    double std;
    bool decay;  /* weight decay applies (two or more stored dims) */
    bool frozen; /* no gradient reaches it: its gradient is a constant zero */
    double rate; /* not 0: each step moves it by this much against the sign of its gradient, outside
                    of AdamW, the norm and clipping */
    int stored;  /* axes of the stored tensor: its shape is a grouping of the value's axes */
    int group[MAX_AXES]; /* how many of the value's axes each stored axis spans */
} Param;

/* A term of the objective that is not the loss of the last block: it is known by its gradient `by`,
 * a forward value, at the value `of` (balance of experts, z-loss). */
typedef struct Seed {
    ValueId of, by;
} Seed;

typedef struct Graph {
    const char *name; /* of the block */
    Arena *arena;
    struct Net *net;
    VEC(Value) values;
    VEC(Node) nodes; /* forward in order, then backward in order */
    VEC(Param) params;
    VEC(Seed) seeds;
    ValueId data[DATA_COUNT];    /* NONE when not read */
    ValueId chain_in, chain_out; /* NONE at the ends of the chain */
    ValueId grad_in, grad_out;   /* gradients of chain_out and chain_in */
    ValueId loss;                /* scalar, summed over micro-batches; NONE but in the last class */
    VEC(ValueId)
    beside; /* scalars that are summed and logged as the loss is, and that nothing is
               differentiated through: losses of further tokens */
} Graph;

typedef struct Link {
    int class;
    int index; /* what {i} stands for */
} Link;

/* A parameter of the model: one or more uses. A name used by two links is one tied parameter. */
typedef struct NetParam {
    const char *name;
    int class, param; /* of its first use */
    int uses;         /* 2 when tied */
    int link[2];
    int use_class[2], use_param[2];
} NetParam;

/* How rows go by whom they name: as many as there are, or each message as large as its bound, so
 * that nobody who sends it need know how many they are (GShard, Lepikhin et al. 2020). */
typedef enum { EXCHANGE_EXACT, EXCHANGE_PADDED, EXCHANGE_COUNT } Exchange;

typedef struct Net {
    const char *name;
    Arena *arena;
    VEC(Dim) dims;
    VEC(Graph *) classes;
    VEC(Link) chain;
    VEC(NetParam) params; /* in chain order */
    DimId batch, sequence;
    int64_t room_percent; /* rows that a rank has room for where they are cut by whom they name, in
                              hundredths of an even share; 0: for all that can come */
    Exchange exchange;    /* of these rows */
    int64_t runs; /* the order of the sequence: cut into this many runs, it has run i and run
                     runs - 1 - i side by side (zigzag); 0: its positions in a row */
} Net;

/* An empty Net. */
Net *net_new(Arena *arena, const char *name);
/* Dims and values. Names must be identifiers; net_dim gives NONE for an unknown name. The dim of
 * kind DIM_BATCH or DIM_SEQUENCE becomes the net's. `used` begins as the extent. */
DimId net_add_dim(Net *net, const char *name, DimKind kind, int64_t extent);
DimId net_dim(const Net *net, const char *name);
Graph *net_add_class(Net *net, const char *name);
/* A value that no node makes. Data values are named as in data_text; the chain's become chain_in
 * and grad_in; a parameter gets its Param (the last one) with defaults: stored as it is,
 * normal(0.02). */
ValueId graph_value(Graph *graph, ValueKind kind, const char *name, int axes, const DimId *dim);
ValueId graph_find(const Graph *graph, const char *name); /* by name, or NONE */
/* Gives a value another name, which no value has; a node is called after its first result. */
void graph_rename(Graph *graph, ValueId id, const char *name);
/* `stem`, or stem.n2, stem.n3, ...: the first that no value has. */
const char *graph_fresh_name(const Graph *graph, const char *stem);
extern const char *const data_text[DATA_COUNT];
bool name_is_identifier(const char *text, bool dots); /* [A-Za-z_][A-Za-z0-9_]*, with '.' too */

/* Appends a node with signature text such as "bsh,grdh->bsgrd" (one letter per axis of each
 * operand, checked against the values and the op's pattern; output dims come from the letters, for
 * output-only letters the dim with that letter). Output values are made and named after the node
 * (name, name.1, ...). BUG on a signature the caller got wrong. */
NodeId graph_node(Graph *graph, OpId op, const char *name, const char *sig, const Attrs *attrs,
                  const ValueId *in, int ins);
/* The node's first output. */
ValueId graph_out(const Graph *graph, NodeId node);
/* "bsh,grdh->bsgrd" */
void graph_put_sig(Str *str, const Graph *graph, const Node *node);

/* Appends the backward nodes of every node that the loss or chain_out depends on, sets grad_in,
 * grad_out and each parameter's grad, adds the terms of a value before anything else (while
 * Partial), and marks flow I or W. */
void graph_differentiate(Graph *graph);
/* Sets the flow of every node anew, from grad_out. */
void graph_mark_flow(Graph *graph);
/* Collects net->params from the classes and the chain. BUG when shapes differ or a name has more
 * than two uses. */
void net_collect_params(Net *net);
bool param_same_shape(const Net *net, const NetParam *param, int class, int index);
/* Names of parameters are Hugging Face names: letters, digits, '_', '.' and '-', with these marks.
 *   {i}         the layer's number
 *   {e}         one stored tensor for each index of the value's first axis (experts)
 *   NAME[a:b]   rows a to b of the stored tensor NAME, whose other rows are other parameters
 * Why the text is no such name, or NULL. */
const char *param_name_fault(const char *text);
/* The rows of NAME[from:to], and how long NAME is; false for a name without proper ones. */
bool param_name_rows(const char *text, size_t *ret_stem, int64_t *ret_from, int64_t *ret_to);
/* Parameter name with {i} replaced. */
const char *param_name(Arena *arena, const Param *param, int index);

/* The losses that the last class makes: the loss is number 0, then those beside it. */
int graph_losses(const Graph *graph);
ValueId graph_loss(const Graph *graph, int number);
int net_losses(const Net *net);

/* Elements of a value, padding included; of all parameters, tied once and without padding; letter
 * extents of a node. */
int64_t value_elements(const Net *net, const Value *value);
int64_t net_param_count(const Net *net);
int64_t letter_extent(const Net *net, const Node *node, int letter);
/* Of a split or stack: the letter that only the whole has, and how much of it a part is, with these
 * extents per letter. */
int split_letter(const Graph *graph, const Node *node);
int64_t part_extent(const Graph *graph, const Node *node, int part, const int64_t *extent);
/* Optional operands of attention and its gradient, or NONE: slopes of linear biases, begins of
 * documents, words that the rows draw by. */
int attention_slopes(const Graph *graph, const Node *node);
int attention_starts(const Graph *graph, const Node *node);
int attention_words(const Graph *graph, const Node *node);
/* Matrices are multiplied: of the two operands and the result none has all letters (else rows). */
bool node_is_product(const Graph *graph, const Node *node);
/* The node sets positions of the sequence against others: it has two letters of that dim. */
bool node_crosses(const Net *net, const Node *node);
/* The op draws random numbers: kernels of it are told the seed, the layer and the sample. */
bool op_draws(OpId op);
/* The stream of what a site of a link draws. */
uint32_t draw_stream(int64_t layer, int64_t site);
int64_t extent_product(int64_t a, int64_t b); /* BUG beyond 2^63 */

/* ---- graph_route.c: what is chosen per token ---- */

/* The axis of a value that has a routed dim, or NONE. */
int value_routed_axis(const Net *net, const Value *value);
/* The letter of a node whose splitting cuts the rows of its routed letter: it stands for what the
 * choices name, and the node is told its origin. NONE when the node has none. */
int node_naming_letter(const Net *net, const Node *node);
/* The choices by which the rows of a value are cut: operand 0 of the nodes that read or make rows
 * for what they name. NONE when no such node meets it. */
ValueId graph_route(const Graph *graph, ValueId value);
/* Marks what works on rows of rounds behind the first, and what it makes (Node.late). */
void graph_mark_late(Graph *graph);
/* Per node: does it work on single choices, so that it can run where what they name lives? Nodes
 * that name something by a choice, and those whose operands all have the routed dim and one of
 * which such a node makes; constants that only they read. */
bool *graph_routed_nodes(Arena *arena, const Graph *graph);
/* Rows of one rank when `tokens` with `choices` each are cut over `ranks` by which of `named`
 * things they name: room for them, in as many equal messages as there are ranks where they are
 * padded, and an even share. */
int64_t route_room(const Net *net, int64_t tokens, int64_t choices, int64_t named, int64_t ranks);
int64_t route_share(int64_t tokens, int64_t choices, int64_t ranks);
/* Where rows come in rounds: of `rows` choices of some tokens so many go to one rank in a round.
 * All the tokens of those that share experts together leave no more than a rank has room for. */
int64_t deal_bound(const Attr_deal *attrs, int64_t rows);
/* The least room, in percent of an even share, with which so many rounds hold all rows that can
 * come of the tokens of a rank, with `choices` each. */
int64_t rounds_room(int64_t tokens, int64_t choices, int64_t named, int64_t ranks, int rounds);
/* FLOPs of one node on the whole micro-batch (kernels.def), causal attention counted in full; of a
 * block of it with these extents per letter. */
int64_t node_flops(const Net *net, const Node *node);
int64_t node_flops_local(const Net *net, const Node *node, const int64_t extent[MAX_LETTERS]);
/* Scratch bytes of one launch on a block, by the rule of the op's row in kernels.def. */
int64_t node_workspace_bytes(const Graph *graph, const Node *node,
                             const int64_t extent[MAX_LETTERS], int threads);

/* ---- cover.c: where the places of a dim are, and who may be seen from there ---- */

/* A shard is a block of places. Those of the sequence are in the program's order, the same for all
 * values (Net.runs); a place of any other dim is its position. */
int64_t dim_position(const Net *net, DimId dim, int64_t place);
/* The node needs the sequence as it lies: a letter of it may not be split and is told no origin. */
bool node_needs_order(const Net *net, const Node *node);
/* Of a node that sets positions of the sequence against others, on the block with these origins and
 * extents per letter: how many pairs of a query and a key of one row may meet. What data say
 * (documents) hides nothing here. */
int64_t node_pairs(const Net *net, const Node *node, const int64_t origin[MAX_LETTERS],
                   const int64_t extent[MAX_LETTERS]);
/* The same of whole sequences: queries, pairs that may meet, and all pairs. */
typedef struct WholePairs {
    int64_t rows, seen, all;
} WholePairs;
WholePairs node_whole_pairs(const Net *net, const Node *node);
/* Of two positions it asks only which comes first: a block that meets itself is right in any order
 * that keeps them. */
bool node_only_orders(const Graph *graph, const Node *node);
/* 0 of the pairs, all, or some of them: those on a diagonal. */
typedef enum { COVER_EMPTY, COVER_FULL, COVER_DIAGONAL } Cover;
Cover node_cover(const Net *net, const Node *node, const int64_t origin[MAX_LETTERS],
                 const int64_t extent[MAX_LETTERS]);

/* Text form: prints and parses back to an equal net; reports every fault it finds. */
void net_put_text(Str *str, const Net *net);
/* One class without its name: equal text is equal content. */
void graph_put_body(Str *str, const Graph *graph);
Net *net_parse_text(Arena *arena, Diag *diag, const char *path, const char *text, size_t length);
/* Every invariant of this header and of the op table; false after appending what is broken, all of
 * it. */
bool net_verify(const Net *net, Diag *diag);

#endif
