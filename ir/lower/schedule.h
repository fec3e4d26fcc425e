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

typedef struct Row {
    PartKind part;
    int chunk, micro;
    bool with_next; /* meant to overlap with the next row: they run in order */
} Row;
typedef VEC(Row) RowList;

typedef struct Schedule {
    int stages, chunks, micros;
    int *holder;   /* [chunks] the stage that has it */
    RowList *rows; /* per stage, in order */
} Schedule;

typedef enum {
    SCHEDULE_GPIPE,
    SCHEDULE_1F1B,
    SCHEDULE_INTERLEAVED,
    SCHEDULE_ZBH1,
    SCHEDULE_ZBV,
    SCHEDULE_DUALPIPEV,
    SCHEDULE_TABLE, /* rows that a file gave */
    SCHEDULE_COUNT
} ScheduleKind;

extern const char *const schedule_text[SCHEDULE_COUNT]; /* as a pin */
typedef struct ScheduleInfo {
    const char *title; /* for a person */
    int least, most;   /* chunks of a stage */
    int cover;         /* at least so many micro-batches per stage */
    bool splits;       /* backward in two parts */
} ScheduleInfo;
extern const ScheduleInfo schedule_info[SCHEDULE_COUNT];
/* The kind of this name, or SCHEDULE_COUNT. */
ScheduleKind schedule_by_name(const char *name);

/* The generators (CONTRACTS 2.1 to 2.5): GPipe (Huang et al. 2019), 1F1B (PipeDream-flush,
 * Narayanan et al. 2021), interleaved 1F1B (Megatron-LM; groups of as many micro-batches as there
 * are stages), ZB-H1 (Qi et al. 2024, as in its quick-start), ZB-V (the same, V placement),
 * DualPipeV (DeepSeek's DualPipe cut in half). NULL, with an error that says what would do, when
 * there is no such schedule for these numbers. What is returned need not reach its end:
 * schedule_check says. */
Schedule *schedule_make(Arena *arena, Diag *diag, ScheduleKind kind, int stages, int per_stage,
                        int micros);
/* One F and one B, or I and W, of every chunk and micro-batch, on the stage that holds the chunk,
 * in this order; the run of all stages reaches its end. */
bool schedule_check(const Schedule *schedule, Diag *diag);
/* Some row is an I or a W: backward is lowered in two parts. */
bool schedule_splits(const Schedule *schedule);

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
} RowTimes;
/* Start and end of every row under these times (NULL: F, I and W 1, B 2), indexed as
 * schedule->rows; the makespan. BUG when it does not reach its end. */
typedef struct RowSpan {
    int64_t start, end;
} RowSpan;
int64_t schedule_simulate(Arena *arena, const Schedule *schedule, const RowTimes *times,
                          RowSpan ***ret);

#endif
