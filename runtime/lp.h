/* lp.h - everything a generated host trainer may ask of the runtime.
 *
 * Emitted code knows every shape, offset and order; the runtime only starts ranks, moves bytes
 * between them, reads and writes files, and logs. It has no tensor type, no graph and no dispatch.
 *
 * Shape of an emitted trainer:
 *
 *     static void run_rank(const LpRank *rank)
 *     {
 *         State state = {0};                          // all mutable state: locals and rank->arena
 *         int tp = 0;                                 // every rank names every group, in one order
 *         for (int g = 0; g < 2; g++) {
 *             int group = lp_comm((int[]){2 * g, 2 * g + 1}, 2);
 *             if (rank->index / 2 == g)
 *                 tp = group;
 *         }
 *         LpPart weights[] = { ... }, first[] = { ... }, second[] = { ... };
 *         LpState states[] = {{"model", weights, N, LP_F32}, {"exp_avg", first, N, LP_F32}, ...};
 *         for (int64_t step = lp_begin(states, 3); lp_step_begin(step); step++) {
 *             lp_batch(step, micro, row_begin, rows, 0, SEQ, ids, labels, weight);
 *             ...
 *             lp_step_end(loss_share, grad_norm, lp_lr(step));
 *             lp_checkpoint(step, states, 3);
 *         }
 *         lp_finish(weights, N);                      // --save
 *     }
 *     static const LpJob job = { .name = "...", .run = run_rank, ... };
 *     int main(int argc, char **argv) { return lp_main(argc, argv, &job); }
 *
 * With --virtual the ranks are threads of one process instead of processes under mpirun: the same
 * calls, the same collective algorithms, the same bits. So emitted code has no mutable globals or
 * statics; a rank is found through a thread-local pointer inside the runtime, and lp_ functions are
 * called only from the thread that entered run_rank (not from OpenMP workers). */
#ifndef LPLAN_RUNTIME_LP_H
#define LPLAN_RUNTIME_LP_H

#include <stdbool.h>
#include <stdint.h>

#define LP_MAX_DIMS 6
#define LP_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

typedef enum LpDtype { LP_F32, LP_F64, LP_BF16, LP_F16, LP_I32 } LpDtype;
typedef enum LpOp { LP_SUM, LP_MAX } LpOp;
typedef enum LpFill { LP_ZEROS, LP_ONES, LP_NORMAL } LpFill;
typedef enum LpSchedule { LP_COSINE, LP_CONSTANT } LpSchedule;

/* p2p messages match in posting order per (sender, receiver, class). Activations and gradients of
 * one pair of ranks may overtake each other (V-shaped schedules need it), so they are two classes.
 */
typedef enum LpClass { LP_ACTIVATION, LP_GRADIENT } LpClass;

/* ---- the job: const data of the generated file ---- */

typedef struct LpRank LpRank;

/* One logical parameter, under its Hugging Face name and shape. The table is the same in every plan
 * of a model, in the same order: initial values depend on the row's index. Marks in the name say
 * that files hold it otherwise:
 *     {e}         index of the first dim: as many tensors, of the other dims
 *     NAME[a:b]   rows a to b of the tensor NAME, whose other rows are other parameters
 * A file may hold a tied parameter twice, under another name too, or under that name only. */
typedef struct LpTensor {
    const char *name;
    int ndims;
    int64_t dims[LP_MAX_DIMS];
    LpFill fill;
    double std; /* of LP_NORMAL */
    bool tied;  /* two places of the model use it */
} LpTensor;

/* What the command line may change; LpJob.defaults holds the job's own values. Zero is a valid
 * value of every field but those commented. Strings are NULL when the option is absent. */
typedef struct LpOptions {
    const char *data;       /* --data PATH: text by bytes, llm.c .bin, or `random` */
    const char *init;       /* --init random | PATH.safetensors | PATH.index.json; NULL is random */
    const char *save;       /* --save PATH.safetensors: weights after the last step */
    const char *dump_grads; /* --dump-grads PATH.safetensors: gradients of the first step */
    const char *eval_data;  /* --eval-data PATH: what evaluations read; as --data */
    const char *document_begin; /* --document-begin TOKEN: it is the first of every document */
    const char *document_end;   /* --document-end TOKEN: it is the last of every document */
    const char *log;            /* --log DIR: log.jsonl and rank-N.status */
    const char *trace;          /* --trace FILE: the measured timeline, Chrome-trace JSON */
    const char *checkpoint;     /* --checkpoint DIR: everything needed to go on, in DIR/step-N */
    const char *offload_dir;    /* --offload-dir DIR: files for what a plan keeps on disk */
    const char *resume;         /* --resume DIR: go on from the newest of them */
    int64_t every;              /* --checkpoint-every N: steps; 0 is only at the end */
    int keep;                   /* --keep N: newest checkpoints left on disk; 0 is all */
    int64_t steps;              /* --steps N */
    int64_t eval_every;         /* --eval-every N: steps; 0 is only behind the last */
    int64_t eval_steps;         /* --eval-steps N: batches of an evaluation; 0 is all */
    int64_t warmup;             /* --warmup N */
    LpSchedule schedule;        /* --schedule cosine|constant */
    LpDtype save_dtype;         /* --save-as fp32|bf16|fp16: numbers of --save */
    uint64_t seed;              /* --seed N */
    double lr;                  /* --lr F */
    double min_lr;              /* --min-lr F: where the cosine ends */
    double weight_decay;        /* --weight-decay F */
    double beta1, beta2;        /* --beta1 F --beta2 F */
    double eps;                 /* --eps F */
    double clip;                /* --clip F: global norm; 0 is off */
    double timeout_s;           /* --timeout F: longest wait without progress; 0 means 25 */
    double loss_scale; /* --loss-scale F: where it begins, of trainers that scale their loss */
    int64_t loss_scale_window; /* --loss-scale-window N: good steps until it doubles */
    const char *inject; /* --inject-overflow STEP:RANK: a gradient that is infinite, for tests */
    int threads;        /* --threads N: OpenMP threads of a rank; 0 leaves OMP_NUM_THREADS */
    uint64_t shake; /* --shake SEED: hold operations in flight back by random times; 0: do not */
    bool
        synchronous_sends; /* --synchronous-sends: no message leaves before its receive is posted */
    bool deterministic;    /* --deterministic: for emitted code that has a faster, unordered form */
    bool virtual_ranks;    /* --virtual: all ranks as threads of one process */
    bool eval_only;        /* --eval-only: one evaluation and no step */
    bool quiet;            /* --quiet: no line per step (log.jsonl is written all the same) */
} LpOptions;

typedef struct LpJob {
    const char *name;
    const char *plan_hash;
    int ranks; /* world size; == stages * ranks_per_stage */
    int stages;
    int ranks_per_stage; /* world rank = stage * ranks_per_stage + rank inside the stage */
    int64_t params_total;
    int64_t flops_per_step; /* model FLOPs of all ranks */
    int64_t peak_flops;     /* per second, of one rank's device; 0: unknown, no MFU */
    int64_t tokens_per_step;
    const int64_t *arena_bytes; /* [stages]: the plan's arena of one rank of that stage */
    const int64_t *dram_bytes;  /* [stages]: of the machine's memory besides; NULL: none */
    const int64_t *file_bytes;  /* [stages]: of a file; NULL: none */
    int64_t device_bytes;       /* memory of the device the plan was made for; 0: unknown */
    const LpTensor *tensors;    /* [tensor_count] */
    int tensor_count;
    bool scales_loss; /* stores fp16: the loss is scaled, and steps that overflow are skipped */
    bool packed; /* documents of a sample do not see each other: the data must say their ends */
    int seq;     /* s: positions of a sample */
    int vocab;   /* ids are in [0, vocab) */
    int micro_batches; /* m: of a step */
    int rows;          /* samples of one micro-batch over all ranks; step = m * rows samples */
    LpOptions defaults;
    void (*run)(const LpRank *rank);
} LpJob;

struct LpRank {
    int index; /* world rank */
    int stage;
    int stage_rank; /* rank inside the stage */
    unsigned char
        *arena; /* arena_bytes[stage] zeroed bytes, 2 MiB aligned, huge pages when possible */
    unsigned char *dram, *file; /* dram_bytes and file_bytes [stage], zeroed; NULL: none. The file's
                                   bytes are for checkpoints: steps read and write it by lp_copy */
    const LpJob *job;
    const LpOptions *options;
};

/* Emitted by: main(). Parses options, starts the ranks, runs job->run on each, returns the exit
 * status: 0 ok, 1 bad input, 2 usage, 3 not enough memory, 124 no progress. */
int lp_main(int argc, char **argv, const LpJob *job);

/* Emitted before each piece of work ("layer 3: attention forward"). Cheap, and polls. `text` must
 * be a literal (or live as long as the process); it appears in failure messages and in status
 * files. */
void lp_at(const char *text);

/* ---- communication: all nonblocking, finished by lp_wait ---- */

/* In flight between the start of an operation and lp_wait; starts as {0}. Its address must not
 * change while in flight, and one event serves one operation at a time. */
typedef struct LpEvent {
    struct LpWork *work; /* NULL: idle or finished */
} LpEvent;

#define LP_WORLD 0 /* the communicator of all ranks */

/* Emitted at the head of run_rank, once per group. `ranks` are world ranks; element i of a gathered
 * or scattered buffer belongs to ranks[i]. Every rank calls it for every group, member or not, in
 * one order. All members start the same operations on a communicator in the same order. */
int lp_comm(const int *ranks, int count);

/* buf[i] becomes the reduction over the members. Sums of LP_BF16 and LP_F16 accumulate in fp32.
 * Always in member order, ((x0 + x1) + x2) + ..., for every element: this is also the fastest way
 * here (core/collective.c), so a run repeats its bits, and equals the --virtual run of the same
 * plan. */
void lp_all_reduce(LpEvent *event, int comm, void *buf, int64_t count, LpDtype dtype, LpOp op);

/* dst[0..count_each) = reduction of every member's src[me * count_each ..). src holds members *
 * count_each. dst may be that very block of src (in place), else it must not overlap src. src's
 * other blocks keep their contents. Order as in lp_all_reduce. */
void lp_reduce_scatter(LpEvent *event, int comm, const void *src, void *dst, int64_t count_each,
                       LpDtype dtype, LpOp op);

/* dst[i * count_each ..) = member i's src[0..count_each). src may be its own block of dst. */
void lp_all_gather(LpEvent *event, int comm, const void *src, void *dst, int64_t count_each,
                   LpDtype dtype);

/* dst[i * count_each ..) = member i's src[me * count_each ..). src and dst must not overlap. */
void lp_all_to_all(LpEvent *event, int comm, const void *src, void *dst, int64_t count_each,
                   LpDtype dtype);

/* The same with blocks of their own sizes, in elements, one behind the other on both sides: give[i]
 * for member i, take[i] from it. What one member gives is what the other takes. */
void lp_all_to_all_v(LpEvent *event, int comm, const void *src, const int64_t *give, void *dst,
                     const int64_t *take, LpDtype dtype);

/* dst = src of the member `shift` places before this one (ring): member i's data goes to i + shift.
 */
void lp_rotate(LpEvent *event, int comm, const void *src, void *dst, int64_t count, LpDtype dtype,
               int shift);

/* Pipeline messages. `peer` is a world rank; sizes must agree on both sides. */
void lp_send(LpEvent *event, int peer, LpClass cls, const void *buf, int64_t bytes);
void lp_recv(LpEvent *event, int peer, LpClass cls, void *buf, int64_t bytes);

/* ---- memories behind the arena ---- */

/* To the arena from rank->dram and back, to rank->dram from rank->file and back: each direction is
 * a lane with a thread of its own, which does what it is told in order. */
typedef enum LpHop { LP_COPY_IN, LP_COPY_OUT, LP_FILE_READ, LP_FILE_WRITE, LP_HOPS } LpHop;

#define LP_MAX_CARRIES 3
typedef struct LpCarry {
    void *to;
    const void *from; /* of files: addresses in rank->file, multiples of 4096, as are bytes */
    int64_t bytes;
} LpCarry;

/* Emitted where state comes to its update and goes back. Nonblocking, finished by lp_wait; ends the
 * job when a file cannot be read or written. */
void lp_copy(LpEvent *event, LpHop lane, const LpCarry *pieces, int count);

/* Returns when the operation of `event` is finished (at once if it is idle). Never blocks in MPI:
 * it spins shortly, then tests and sleeps, driving every operation in flight. */
void lp_wait(LpEvent *event);

/* Emitted between Steps: drives the operations in flight, so that they overlap with computing. */
void lp_poll(void);

/* ---- data ---- */

/* Emitted by the stages that read data. Rows [row_begin, row_begin + rows) of global micro-batch
 * `micro`, positions [pos_begin, pos_begin + positions) of each, written densely [rows][positions].
 * ids: the tokens; labels: the tokens one later; weight: valid / T, T = valid tokens of the whole
 * step, so that Σ weight * nll over all ranks and micro-batches is the loss; starts: the position
 * in the sample at which the token's document begins (0 when that lies before it). NULL outputs are
 * skipped. Every plan reads the same global batch: sample index = (step * m + micro) * job->rows +
 * row. Sample i is tokens [i*s, i*s + s] of the stream; a position's label always exists, and is
 * valid unless it begins another document (of packed jobs). The stream has (tokens - 1) / s samples
 * and then starts again; one shorter than s + 1 tokens is circular. */
void lp_batch(int64_t step, int micro, int row_begin, int rows, int pos_begin, int positions,
              int32_t *ids, int32_t *labels, float *weight, int32_t *starts);

/* The same of a sequence that is dealt out: `runs` runs of `each` positions, which begin at
 * pos_begin[0], [1], ..., side by side: [rows][runs * each]. */
void lp_batch_runs(int64_t step, int micro, int row_begin, int rows, int runs, int each,
                   const int *pos_begin, int32_t *ids, int32_t *labels, float *weight,
                   int32_t *starts);

/* Emitted where losses look further ahead: labels `ahead` tokens further than those of lp_batch. A
 * position counts, with the weight that one has there, when the label and all tokens between are of
 * its sample and its document. */
void lp_batch_ahead(int ahead, int64_t step, int micro, int row_begin, int rows, int pos_begin,
                    int positions, int32_t *labels, float *weight);
void lp_batch_ahead_runs(int ahead, int64_t step, int micro, int row_begin, int rows, int runs,
                         int each, const int *pos_begin, int32_t *labels, float *weight);

/* ---- parameters ---- */

/* A box of a logical tensor held densely, row-major, by this rank. dims is the stored shape or any
 * reshape of it (a box of heads is a box of [heads, head_dim, d]). begin + extent may exceed dims:
 * the excess is padding, zero in memory and absent from files. */
typedef struct LpShard {
    int ndims;
    int64_t dims[LP_MAX_DIMS];
    int64_t begin[LP_MAX_DIMS];
    int64_t extent[LP_MAX_DIMS];
} LpShard;

typedef struct LpPart {
    int tensor; /* row of job->tensors */
    LpShard shard;
    void *data;
    LpDtype dtype; /* in memory: any but LP_I32 */
    bool owner;    /* this rank writes the box; each element has exactly one owner in the world */
} LpPart;

/* Emitted before the first step: initial values from --init (collective; all ranks, each its own
 * parts). Random values are a function of (seed, tensor index, global element index): the same in
 * any plan. */
void lp_load(const LpPart *parts, int count);

/* Writes logical tensors to a safetensors file (collective): aside, synced, then renamed. Every
 * element of every tensor of the job must have one owner. `dtype` of the file: any but LP_I32.
 * Emitted for
 * --dump-grads after the first step's gradients are final; used by lp_finish for --save. */
void lp_save(const char *path, const LpPart *parts, int count, LpDtype dtype);

/* Emitted where a rank holds a flat range of a block only (its share of a moment): elements [begin,
 * end) of `whole`, in memory order, at `data`, as boxes. Returns how many: at most 2 * ndims - 1.
 */
int lp_part_cut(const LpPart *whole, int64_t begin, int64_t end, float *data, LpPart *ret_parts);

/* One kind of state in a checkpoint: the weights, a moment. Same table, same names, a file of its
 * own. */
typedef struct LpState {
    const char *name; /* file NAME.safetensors; a C identifier */
    const LpPart *parts;
    int count;
    LpDtype dtype; /* in the file */
} LpState;
/* Not every tensor has this kind of state: those that no rank has are zero in its files. Said
 * before lp_begin; of one kind. */
void lp_sparse_state(const char *name);

/* Emitted before the first step of a trainer with checkpoints, instead of lp_load (collective).
 * With --resume all states come from the checkpoint, else states[0] as in lp_load, and the others
 * are left as they are (zero). Returns the first step. A checkpoint holds logical tensors and a
 * position in samples, so another plan of the model may go on with it; the same plan goes on with
 * the same bits. */
int64_t lp_begin(const LpState *states, int count);

/* Emitted before lp_checkpoint, where weights may still be under way: whether it will write. */
bool lp_checkpoint_due(int64_t step);

/* Emitted at the tail of each step, after lp_step_end (collective): writes a checkpoint when it is
 * time. */
void lp_checkpoint(int64_t step, const LpState *states, int count);

/* Emitted after the last step (collective): --save, totals, one closing line. */
void lp_finish(const LpPart *parts, int count);

/* Emitted by initialisation of state that is not in `parts`, and used by lp_load. */
void lp_fill_shard(void *data, LpDtype dtype, const LpShard *shard, LpFill fill, double std,
                   uint64_t seed, int tensor);

/* ---- steps ---- */

/* Emitted at the head of the training loop: false after the last step or when the ranks agreed to
 * stop (SIGTERM or SIGINT anywhere; a second signal ends at once). */
bool lp_step_begin(int64_t step);

/* Emitted at its tail (collective). `loss_share`: this rank's part of the loss, 0 where it has
 * none; the loss is the sum over the world. `grad_norm` and `lr` are logged from rank 0. Ends the
 * job on every rank when the loss is not finite. */
void lp_step_end(double loss_share, double grad_norm, double lr);

/* Emitted where steps flow into each other, in place of lp_step_begin and lp_step_end: a pipeline
 * that drains only where a checkpoint is due and at the end. At its head: how many steps there are
 * from this one until it must drain, 0 behind the last. */
int lp_flow_begin(int64_t step);
/* A turn that updates this step begins. */
void lp_flow_turn(int64_t step);
/* Has a signal asked this rank to stop? All must hear of it, with the sum of loss and norm. */
bool lp_stop_wanted(void);
/* The world's loss and norm of a step are known, to all ranks: logs it, with the time from the
 * start of its turn to that of the next. `stop`: some rank wants to stop; then the next
 * lp_flow_begin says 0. Ends the job when the loss is not finite. */
void lp_flow_end(int64_t step, double loss, double grad_norm, bool stop);

/* Emitted where the world's sum of a loss beside the loss is known, before the step ends: it is
 * logged with it. `ahead`: by how many tokens its labels are further, 1 to 3. */
void lp_loss_beside(int ahead, double loss);

/* ---- evaluation ---- */

/* Emitted behind a step, and, with -1, behind the last: whether to evaluate there. Between steps
 * that flow into each other the pipeline is drained where this says so. */
bool lp_evaluation_due(int64_t step);

/* Emitted around the batches of an evaluation. Gives their number; until lp_evaluation_end,
 * lp_batch reads --eval-data, batch by batch in place of steps, each of its tokens once: the last
 * batch is filled up with positions without weight, so that all ranks take as many. Data position,
 * loss scale and all else of training stay as they are. */
int64_t lp_evaluation_begin(void);
/* The world's losses of a batch: the loss, then those beside it. */
void lp_evaluated(const float *losses, int count);
/* Logs the mean over all tokens. */
void lp_evaluation_end(int64_t step);

/* Emitted in the update: linear warm-up to options->lr over `warmup` steps, (step + 1) / warmup;
 * then constant, or a cosine that would reach min_lr at step `steps`. */
double lp_lr(int64_t step);

/* Emitted where the loss is scaled (fp16). The factor of this step's loss and gradients: a power of
 * two. */
double lp_loss_scale(void);

/* Emitted behind the world's reduction of the norm: whether every gradient of the world was finite.
 * Sets the factor of the next step, and tells whether this one must be skipped: it then updates
 * nothing and does not count for the learning rate, but its samples are consumed. */
bool lp_loss_scale_step(bool finite);

/* Steps before this one that were not skipped. */
int64_t lp_updates(int64_t step);

/* Emitted where gradients are complete: spoils one under --inject-overflow. */
void lp_inject(float *gradient);

/* Emitted where a value that must be right is not (a router without experts, a NaN in a mask): one
 * line with rank, stage, step and the last lp_at, then all ranks end with `code`. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3), noreturn))
#endif
void lp_fail(int code, const char *format, ...);
/* Emitted where rows arrive whose number only the data says: fails when there is no room for them.
 */
void lp_must_fit(const char *what, long rows, long room);

#endif
