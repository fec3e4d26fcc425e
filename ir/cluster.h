/* cluster.h - the machine, as data: devices, link levels, memory. lplan-cluster/1. */
#ifndef LPLAN_IR_CLUSTER_H
#define LPLAN_IR_CLUSTER_H

#include "ir/base/json.h"
#include "ir/base/str.h"

enum { MAX_LEVELS = 4 };

typedef enum { TAG_ESTIMATED, TAG_CALIBRATED, TAG_MEASURED, TAG_COUNT } Tag;
extern const char *const tag_text[TAG_COUNT];

/* How a library carries out what a group reduces or gathers: the rows of the table in
 * ir/lower/link.c, which has their prices and sources. A cluster's file says which there are. */
typedef enum {
    ALGORITHM_RING,
    ALGORITHM_TREE,
    ALGORITHM_HIERARCHICAL,
    ALGORITHM_NVLS,   /* the switch of the fastest links adds */
    ALGORITHM_SERVER, /* one rank keeps the sum: a parameter server */
    ALGORITHM_COUNT
} Algorithm;
extern const char *const algorithm_text[ALGORITHM_COUNT];
typedef unsigned AlgorithmSet; /* bit a: algorithm a */
/* Those of a cluster whose file names none. */
enum { ALGORITHMS_USUAL = 1 << ALGORITHM_RING | 1 << ALGORITHM_TREE };
/* "ring,tree"; false after an error that names the nearest word. */
bool algorithms_parse(Diag *diag, const char *text, AlgorithmSet *ret);

/* One level of links: groups of `width` consecutive lower groups share it. Level 0 joins the
 * devices of a domain. */
typedef struct LinkLevel {
    const char *name;    /* "nvswitch", "infiniband", "shm" */
    int width;           /* lower-level groups joined (devices at level 0) */
    int64_t bytes_per_s; /* per device and direction */
    int64_t latency_ns;  /* of one hop of a ring */
    int64_t half_bytes;  /* message size at which half the bandwidth is reached */
    Tag tag;
    int64_t band_permille; /* how far a time of this link may be off; 0: what the tag says */
} LinkLevel;

typedef struct Device {
    const char *name;
    int64_t memory_bytes;
    int64_t margin_bytes; /* kept free: context, fragmentation, libraries; every line with its tag
                             is in outside[] of a report */
    int64_t flops_f32, flops_bf16; /* dense peak, per second */
    int64_t memory_bytes_per_s;
    int64_t launch_ns;
    int64_t gemm_permille;       /* of peak that a large GEMM reaches */
    int64_t small_gemm_flops;    /* a GEMM of this many FLOPs reaches half of that; of a GPU in 16
                                    bits, and in fp32 so much smaller a one as its rate is */
    int64_t memory_permille;     /* of bandwidth a streaming kernel reaches */
    int64_t attention_permille;  /* of peak that attention reaches; 0: gemm_permille */
    int64_t attention_row_pairs; /* by how many more pairs a query takes than its mask leaves it */
    int64_t host_wait_ns;        /* a stream stands still where its host must read a number of it */
    const char *target;          /* "host" or "cuda" */
    Tag tag;
    int64_t band_permille; /* how far a time of this device may be off; 0: what the tag says */
} Device;

/* Where a value may live: in its device's memory, in the device's share of the host's, in a file of
 * the host. The names of DESIGN section 5, whatever the device is. */
typedef enum { MEMORY_HBM, MEMORY_DRAM, MEMORY_NVME, MEMORY_COUNT } Memory;
extern const char *const memory_text[MEMORY_COUNT];

/* What lies behind a device's memory: a device's share of it, and of the way to the next nearer
 * memory. */
typedef struct Store {
    int64_t bytes; /* 0: the cluster's file does not say that there is one */
    int64_t read_bytes_per_s, write_bytes_per_s; /* towards the device, and from it */
    int64_t latency_ns;                          /* of one transfer */
    Tag tag;
    int64_t band_permille; /* how far a time of it may be off; 0: what the tag says */
} Store;

typedef struct Cluster {
    const char *name;
    const char *caution; /* what a reader of every prediction must know, or NULL */
    int devices;         /* in all */
    Device device;
    int levels;
    LinkLevel level[MAX_LEVELS];
    Store store[MEMORY_COUNT]; /* but [MEMORY_HBM], which is the device's own */
    AlgorithmSet collectives;  /* the price takes the fastest of these for each collective */
    JsonDoc *doc;              /* NULL when built in memory */
} Cluster;

/* By file, or by the name of a preset (dgx-a100, dgx-h100, dgx-h200, host). NULL after a located
 * error. */
Cluster *cluster_load(Arena *arena, Diag *diag, const char *path_or_name);
Cluster *cluster_read(Arena *arena, Diag *diag, Json json);
/* Level that a group of `extent` ranks with this stride in rank order crosses. */
int cluster_level(const Cluster *cluster, int stride, int extent);
/* `--gpus N`: the same machine with another number of devices. The lower levels keep their widths
 * where N divides so, the top level takes the rest. False after an error; a warning when domains
 * are used in part. */
bool cluster_resize(Diag *diag, Cluster *cluster, int devices);
/* The cluster as lplan-cluster/1 for embedding in a plan; a new reference. Notes are left out, and
 * memories farther than `farthest`, which the plan does not use. */
json_t *cluster_json(const Cluster *cluster, Memory farthest);

#endif
