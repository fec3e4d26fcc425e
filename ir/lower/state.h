/* state.h - the optimizer's state of a bucket: where it lives, and how it comes to the update and
 * goes back.
 *
 * A rank's memories lie side by side in one space of addresses: the memory in the upper bits, the
 * offset in the arena of that memory below. So lives, events and overlaps of far bytes are those of
 * any bytes.
 *
 * State whose home is not the device's memory passes through slots of every nearer memory, one hop
 * after another; bucket b has slot b mod n there:
 *
 *     home ─ read ─► slot ─ copy in ─► slot ─ update ─► slot ─ copy out ─► slot ─ write ─► home
 *
 * The hop into memory m runs m + 1 buckets ahead of the update and the hop out of it m behind, so
 * that read, step and write of three buckets overlap (Rajbhandari et al., ZeRO-Infinity, 2021). */
#ifndef LPLAN_IR_LOWER_STATE_H
#define LPLAN_IR_LOWER_STATE_H

#include "ir/lower/program.h"

enum {
    MEMORY_SHIFT = 56,
    FILE_GRAIN = 4096 /* bytes: what direct reads and writes of files are made of */
};

static inline int64_t memory_address(Memory memory, int64_t offset)
{
    return (int64_t)memory << MEMORY_SHIFT | offset;
}

static inline Memory address_memory(int64_t address)
{
    return (Memory)(address >> MEMORY_SHIFT);
}

static inline int64_t address_offset(int64_t address)
{
    return address & ((INT64_C(1) << MEMORY_SHIFT) - 1);
}

/* Address of a field of a group's state at its home; NONE where it has none. */
int64_t group_field(const Group *group, StateField field);
/* Does an update of this group read and write the field? */
bool group_steps(const Group *group, StateField field);
/* Fields that a slot has room for: all, or all but the last. */
int state_fields(const Program *program);
/* Bytes of a field of so many elements of a share, as a hop between its home and the device carries
 * them; of a bucket's share. */
int64_t state_field_bytes(Memory home, int64_t elements, int width);
int64_t state_bytes(const Program *program, const Bucket *bucket);
/* This rank's share of a field of bucket b: at its home, or in its slot of a nearer memory. */
int64_t state_address(const Program *program, const StageProgram *stage, int b, StateField field,
                      Memory memory);
/* Some field of the bucket travels. */
bool state_travels(const Program *program, const StageProgram *stage, int b);
/* Slots of a memory that is nearer than the home, of so many buckets. */
int state_slots(Memory memory, int buckets);

/* Addresses of homes and slots: device bytes from `at` on, whose end it returns; sets far_bytes. */
int64_t state_layout(const Program *program, StageProgram *stage, int64_t at);

/* A hop of bucket b between `near` and the memory behind it. */
typedef struct Hop {
    int bucket;
    Memory near;
    bool in;
} Hop;
enum { MAX_HOPS = 16 };
/* The same for all buckets, whether anything of them travels or not. */
int hops_around(Memory home, int buckets, int at, bool in, Hop *ret);
/* The hops before update `at` of the stage, or behind it, in order; before the norm, at = NONE.
 * Their number. */
int state_hops(const Program *program, const StageProgram *stage, int at, bool in, Hop *ret);

#endif
