/* waits.h - what a host trainer must wait for, where: the events of the walk, named so that one
 * body serves all layers and micro-batches.
 *
 * A Step of the walk waits for numbers of other streams; emitted code waits for named events: the
 * collective of an instruction, a message of a ring slot, a bucket, the world reduction. All walks
 * of the plan are taken together: the union of what a place ever waits for is waited for every
 * time, since waiting for an idle event costs nothing. A stream of the walk runs in order, MPI
 * operations do not: a wait for number k of a stream is one for every earlier number that is not
 * known to be finished. All waits happen on the one thread that issues everything.
 *
 * A body finishes what it starts: each of its collectives is waited for once, at the first of its
 * own instructions that needs it done, or at its end. There blocks are unpacked. */
#ifndef LPLAN_CODEGEN_WAITS_H
#define LPLAN_CODEGEN_WAITS_H

#include "ir/lower/walk.h"

typedef enum {
    EVENT_INST,
    EVENT_MESSAGE,
    EVENT_BUCKET,
    EVENT_FETCH,
    EVENT_CARRY,   /* weights of a bucket, from another memory and back */
    EVENT_TAKEN,   /* far gradients of a bucket, away from the device, */
    EVENT_BROUGHT, /* and to it */
    EVENT_SPILL,   /* saved values of a link, away from the device and back */
    EVENT_FILL,
    EVENT_WORLD,
    EVENT_HOP
} EventKind;

typedef struct Event {
    EventKind kind;
    int class, which, inst; /* EVENT_INST; which: list of the body */
    Stream stream;          /* EVENT_MESSAGE, of one chunk of the stage; EVENT_HOP, of a bucket;
                               EVENT_CARRY to EVENT_FILL */
    int chunk;
    int bucket;    /* EVENT_BUCKET, EVENT_FETCH; of EVENT_SPILL and EVENT_FILL the
                      number of the block (StageLink.block) */
    bool any_slot; /* EVENT_MESSAGE: of every slot, not of the micro-batch's own */
} Event;

typedef enum {
    PLACE_INST, /* before an instruction: of every stage */
    PLACE_LINK, /* before a link's body */
    PLACE_LOAD, /* before the batch is read */
    PLACE_SEND,
    PLACE_RECV,
    PLACE_FETCH,
    PLACE_FOLD, /* before padding is cleared and a buffer takes in its home, or the other way round
                 */
    PLACE_SCATTER,
    PLACE_REDUCE,
    PLACE_TIED,
    PLACE_NORM,
    PLACE_WORLD,
    PLACE_CLIP,
    PLACE_UPDATE,
    PLACE_GATHER,
    PLACE_HOP,
    PLACE_SPILL,
    PLACE_EVALUATED, /* before the losses of an evaluation are summed */
    PLACE_CARRY,
    PLACE_SUMS,
    PLACE_COUNT
} PlaceKind;

typedef struct Place {
    PlaceKind kind;
    int stage; /* NONE for PLACE_INST */
    int class,
        which; /* PLACE_INST: of the body, its list; PLACE_LINK: the list; PLACE_HOP,
                  PLACE_SPILL, PLACE_CARRY and PLACE_SUMS: the stream, from STREAM_COPY_IN on */
    int inst;  /* PLACE_INST: as many as the body has: its end */
    int index; /* link, bucket, block, or message kind */
    int chunk; /* PLACE_LOAD, PLACE_SEND, PLACE_RECV: of the stage */
} Place;

typedef struct Waits Waits;
bool inst_communicates(const Inst *inst);
/* The ring whose slots a stream's messages fill or empty. */
RingKind message_ring(Stream stream);
Waits *waits_collect(Arena *arena, const Program *program);
/* The events to wait for at a place, in the order of the walk. */
int waits_at(const Waits *waits, const Place *place, const Event **ret_events);
#endif
