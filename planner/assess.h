/* assess.h - everything a report says about one plan, as numbers: the lowered program, its times,
 * rates and the band around them. */
#ifndef LPLAN_PLANNER_ASSESS_H
#define LPLAN_PLANNER_ASSESS_H

#include "planner/account.h"
#include "planner/make.h"

typedef struct Assessment {
    const Plan *plan;
    const Net *net;
    Pins pins;          /* what would make it again */
    BlockLabels labels; /* that its blocks could have */
    Program *program;   /* for its layout */
    Family *family;     /* for its rows */
    StepTimes *times;
    bool by_steps;                    /* times come from the Step simulation, not from cards */
    int64_t step_ns, low_ns, high_ns; /* the band: terms by their tags */
    int64_t segment_ns;               /* the objective */
    int64_t tokens, tokens_per_s;
    double mfu, flops_per_device; /* of model FLOPs: all pairs of attention, as the field counts */
    double unmasked_mfu;          /* of those pairs alone that masks leave */
    int fullest;                  /* stage */
    int64_t peak_bytes, budget_bytes;
    int busiest; /* stage with most compute */
} Assessment;

/* `steps`: how many Steps may be simulated one by one; beyond it times are added up from cards. */
Assessment *assess_plan(Arena *arena, const Plan *plan, const Net *net, int64_t steps);
enum { ASSESS_STEPS = 60000 };
/* Per thousand by which a term may be wrong, either way: what the cluster says, else what its tag
 * does. */
int device_permille(const Device *device);
int link_permille(const LinkLevel *level);
int store_permille(const Store *store);
/* Mean over stages, in ns. */
int64_t assessed_spent(const Assessment *assessment, Spent spent);
/* Bytes of a stage by kind. */
typedef enum {
    BYTES_WEIGHTS,
    BYTES_GRADIENTS,
    BYTES_STATE,
    BYTES_SAVED,
    BYTES_TRANSIENT,
    BYTES_COUNT
} BytesKind;
extern const char *const bytes_text[BYTES_COUNT];
int64_t assessed_bytes(const Assessment *assessment, int stage, BytesKind kind);
/* A family of the plan's own classes, for its segment simulation. */
Family *family_of_plan(Arena *arena, const Problem *problem, const Plan *plan, const Net *net);
/* "data parallel 8 x tensor parallel 8, ZeRO-1, ...": a plan in words. */
char *pins_words(Arena *arena, const Pins *pins);
/* Of layers that have pins of their own: without what a stage or a step is. */
char *pins_layers_words(Arena *arena, const Pins *pins);
char *pins_short(Arena *arena, const Pins *pins); /* the same, abbreviated */
/* FLOPs of the model for one sequence, three times forward: attention in full, causal not halved
 * (the convention of MFU: Chowdhery et al. 2022, appendix B), or of pairs alone that masks leave.
 */
int64_t model_flops(const Net *net, bool masked);

#endif
