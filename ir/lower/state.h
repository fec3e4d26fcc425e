/* state.h - the optimizer's state of a bucket: where it lives, and how it comes to the update and
 * goes back.
 *
 * A rank's memories lie side by side in one space of addresses: the memory in the upper bits, the
 * offset in the arena of that memory below. So lives, events and overlaps of far bytes are those of
 * any bytes.
 *
 * State whose home is not the device's memory passes through slots of every nearer memory, one hop
 * after another; of the buckets that pass there (HopWay) the one whose turn is t has slot t mod n:
 *
 *     home ─ read ─► slot ─ copy in ─► slot ─ update ─► slot ─ copy out ─► slot ─ write ─► home
 *
 * The hop into memory m runs m + 1 of them ahead of the update and the hop out of it m behind, so
 * that read, step and write of three buckets overlap (Rajbhandari et al., ZeRO-Infinity, 2021).
 * Buckets whose state is on the device are stepped in between, and nothing waits for them. */
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
/* Where the state of bucket b lives. */
Memory state_home(const StageProgram *stage, int b);
/* Bytes of a field of so many elements of a share, as a hop between its home and the device carries
 * them; of a bucket's share. */
int64_t state_field_bytes(Memory home, int64_t elements, int width);
int64_t state_bytes(const Program *program, const StageProgram *stage, int b);
/* This rank's share of a field of bucket b: at its home, or in its slot of a nearer memory. */
int64_t state_address(const Program *program, const StageProgram *stage, int b, StateField field,
                      Memory memory);
/* Slots of a memory, of so many buckets that pass through it. */
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
/* The hops before `at` of a list that has one home, or behind it, in order; before the first, at =
 * NONE. Their number. */
int hops_around(Memory home, int buckets, int at, bool in, Hop *ret);
/* The way of n that live at these homes; and the hops before `at` of them, or behind it. */
HopWay way_new(Arena *arena, const Memory *home, int n);
int way_hops(const HopWay *way, int at, bool in, Hop *ret);
/* The hops of what travels before update `at` of the stage, or behind it; before the norm, at =
 * NONE. */
int state_hops(const StageProgram *stage, int at, bool in, Hop *ret);

#endif
