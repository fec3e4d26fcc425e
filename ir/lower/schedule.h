/* schedule.h - pipeline schedules: rows of forwards and backwards, stage by stage.
 *
 * The chain is cut into *chunks* (virtual stages); each lives on one stage of ranks, and a stage
 * may hold several. A row is one part of one chunk for one micro-batch. Generators emit rows and
 * nothing else: no lowering knows a schedule's name. */
#ifndef LPLAN_IR_LOWER_SCHEDULE_H
#define LPLAN_IR_LOWER_SCHEDULE_H

#include "ir/base/diag.h"
#include "ir/base/str.h"
#include "ir/base/vec.h"

/* F forward, B the whole backward: I (gradients of the chunk's input) and then W (of its weights).
 */
typedef enum { PART_F, PART_B, PART_I, PART_W, PART_COUNT } PartKind;
extern const char *const part_text[PART_COUNT];
extern const char *const part_name[PART_COUNT]; /* forward, backward, input, weight: as printed
                                                   functions and both traces have them */

typedef struct Row {
    PartKind part;
    int chunk, micro;
    bool with_next; /* meant to overlap with the next row: Schedule.braids */
    int ahead;      /* the row belongs to an optimizer step so many later than the backwards around
                       it: steps that flow into each other */
} Row;
typedef VEC(Row) RowList;

/* The rows of one optimizer step. A schedule that never drains is periodic: its list is one *turn*
 * of the steady state, in which rows of later steps stand among those of this one, and the run of
 * `steps` steps is the turns -(most ahead) .. steps - 1, each without the rows of steps that are
 * none. That is prologue, periodic body and drain at once. */
typedef struct Schedule {
    int stages, chunks, micros;
    int *holder;   /* [chunks] the stage that has it */
    RowList *rows; /* per stage, in order */
    bool braids;   /* rows that are meant to overlap with the next, a forward and a part of another
                      micro-batch's backward, begin together and run as one; else in order */
    int *delay; /* [stages] NULL: a step ends before the next begins. Else: forward and backward of
                   step t read the weights with which step max(0, t - delay) began, so the stage
                   keeps delay + 1 versions. Never less than the most ahead of its rows */
} Schedule;

typedef enum {
    SCHEDULE_GPIPE,
    SCHEDULE_1F1B,
    SCHEDULE_INTERLEAVED,
    SCHEDULE_ZBH1,
    SCHEDULE_ZBV,
    SCHEDULE_DUALPIPEV,
    SCHEDULE_PIPEDREAM,
    SCHEDULE_2BW,
    SCHEDULE_TABLE, /* rows that a file gave */
    SCHEDULE_COUNT
} ScheduleKind;

extern const char *const schedule_text[SCHEDULE_COUNT]; /* as a pin */
typedef struct ScheduleInfo {
    const char *title; /* for a person */
    int least, most;   /* chunks of a stage */
    int cover;         /* at least so many micro-batches per stage */
    bool splits;       /* backward in two parts */
    bool flows;        /* never drained: weights are stale */
    int micros_most;   /* micro-batches of a step; 0: any number */
    bool braids;       /* has rows that may run as one */
} ScheduleInfo;
extern const ScheduleInfo schedule_info[SCHEDULE_COUNT];
/* The kind of this name, or SCHEDULE_COUNT. */
ScheduleKind schedule_by_name(const char *name);

/* The generators (CONTRACTS 2.1 to 2.5): GPipe (Huang et al. 2019), 1F1B (PipeDream-flush,
 * Narayanan et al. 2021), interleaved 1F1B (Megatron-LM; groups of as many micro-batches as there
 * are stages), ZB-H1 (Qi et al. 2024, as in its quick-start), ZB-V (the same, V placement),
 * DualPipeV (DeepSeek's DualPipe cut in half); and of those that never drain (CONTRACTS 2.6)
 * PipeDream (Harlap et al. 2018: an update with every micro-batch, weights of stage r stale by
 * p - 1 - r) and PipeDream-2BW (Narayanan et al. 2021: at least as many micro-batches as stages,
 * weights of all stages stale by one step). NULL, with an error that says what would do, when
 * there is no such schedule for these numbers. What is returned need not reach its end:
 * schedule_check says. */
Schedule *schedule_make(Arena *arena, Diag *diag, ScheduleKind kind, int stages, int per_stage,
                        int micros);
/* The same with such rows. DualPipeV has them. Where 1F1B alternates, a forward runs beside the
 * backward that follows it; so that neither waits for the other stages, forwards are twice as far
 * ahead: min(2 (p - r) - 1, m) in stage r's warm-up. NULL, with an error, for others. */
Schedule *schedule_make_braided(Arena *arena, Diag *diag, ScheduleKind kind, int stages,
                                int per_stage, int micros);
/* The row and the next of its stage are one. */
bool schedule_pair(const Schedule *schedule, int stage, int row);
/* One F and one B, or I and W, of every chunk and micro-batch, on the stage that holds the chunk,
 * in this order; the run of all stages reaches its end. */
bool schedule_check(const Schedule *schedule, Diag *diag);
/* Some row is an I or a W: backward is lowered in two parts. */
bool schedule_splits(const Schedule *schedule);
/* Steps by which the rows of a stage run ahead, the most of them. */
int schedule_ahead(const Schedule *schedule, int stage);
/* The whole run of so many steps as one list a stage: micro-batches are counted through, rows have
 * no `ahead`, nothing flows. A schedule whose steps end comes back as it is for one step. */
Schedule *schedule_unroll(Arena *arena, const Schedule *schedule, int steps);

/* PyTorch's cells, "0F0,0F1,,1B0", a line a stage; rows meant to overlap are
 * "(0F7;7B3)OVERLAP_F_B". */
void schedule_put_csv(Str *str, const Schedule *schedule);
/* Reads them: empty cells and cells of communication (SEND_F, UNSHARD and their like), which lplan
 * derives, are left out; in older files B is I, and BW is B. `name` is for errors. NULL after one.
 */
Schedule *schedule_read_csv(Arena *arena, Diag *diag, const char *text, const char *name);

/* Length of the rows of every chunk, ns, and of one hop between stages: the segment simulation that
 * orders the sequence (by time; ends before starts; then stage). */
typedef struct RowTimes {
    const int64_t *time[PART_COUNT]; /* [chunks]; B may be NULL when there is none, or I and W */
    int64_t hop;
    const int64_t *pair; /* [chunks] of two rows in one, by the chunk of the forward; NULL: both
                            lengths together */
} RowTimes;
/* Of one row; without times F, I and W are 1 and B is 2. */
int64_t row_ns(const RowTimes *times, const Row *row);
/* Of a pair. */
int64_t pair_ns(const RowTimes *times, const Row *forward, const Row *backward);
/* Start and end of every row under these times (or NULL), indexed as schedule->rows; the makespan.
 * BUG when it does not reach its end. */
typedef struct RowSpan {
    int64_t start, end;
} RowSpan;
int64_t schedule_simulate(Arena *arena, const Schedule *schedule, const RowTimes *times,
                          RowSpan ***ret);
/* The steady state of a schedule that flows: its shortest period in ns, and spans of the rows of
 * turn 0 (turn k runs k periods later) that keep every order and every hop; `end_ns` is what each
 * stage does between the last row of a turn and the first of the next. Longest paths of the cyclic
 * order graph, the period by bisection (modulo scheduling; Rau 1994). BUG when rows of one step
 * wait for each other in a circle. */
int64_t schedule_steady(Arena *arena, const Schedule *schedule, const RowTimes *times,
                        const int64_t *end_ns, RowSpan ***ret);

#endif
