/* trainer_spill.c - saved values that live in another memory: hops of a chunk's links, behind
 * forward and ahead of backward. Nothing of it is printed where they live in the arena. */
#include "codegen/trainer.h"
#include "ir/lower/spill.h"
#include "ir/lower/state.h"

static Memory home_of(const Trainer *t)
{
    return t->plan->memory[KEPT_SAVED];
}

bool trainer_spills(const Trainer *t)
{
    return home_of(t) != MEMORY_HBM;
}

bool trainer_chunk_spills(const Trainer *t, int s, int c)
{
    const Chunk *chunk = &t->program->stage[s].chunk[c];
    return chunk->end_block > chunk->first_block;
}

static bool travels(const Trainer *t, int kind)
{
    return kind == SAVED_I || (t->split && kind == SAVED_W);
}

/* Where some links of a stage keep what they save, blocks have numbers of their own. */
static bool is_mixed(const StageProgram *stage)
{
    return stage->blocks < stage->links;
}

static const char *number_of(const StageProgram *stage)
{
    return is_mixed(stage) ? "block" : "link";
}

/* ---- tables ---- */

static const char *table_name(Trainer *t, int s, int kind)
{
    return arena_printf(t->arena, "stage%d_%s_blocks", s, ring_text[RING_SAVED + kind]);
}

static const char *column_name(Trainer *t, int s, int c, int kind)
{
    return arena_printf(t->arena, "%s_%s_home_slot", trainer_chunk(t, s, c),
                        ring_text[RING_SAVED + kind]);
}

static void print_table(Trainer *t, Emit *out, int s, int kind)
{
    const StageProgram *stage = &t->program->stage[s];
    emit_comment(out,
                 "What each link saves%s: its place in the arena%s, its offset in a slot of its "
                 "home, and its bytes.",
                 is_mixed(stage) ? " that leaves" : "",
                 home_of(t) == MEMORY_NVME ? " and in the host's memory" : "");
    emit_line(out, "static const LpSpill %s[] = {", table_name(t, s, kind));
    out->depth++;
    for (int b = 0; b < stage->blocks; b++) {
        int i = stage->block_link[b];
        const StageLink *link = &stage->link[i];
        int64_t near = spill_address(t->program, stage, i, (SavedKind)kind, MEMORY_HBM, 0, false),
                between = home_of(t) == MEMORY_NVME
                              ? address_offset(spill_address(t->program, stage, i, (SavedKind)kind,
                                                             MEMORY_DRAM, 0, false))
                              : 0;
        emit_line(out, "{{%lldL, %lldL}, %lldL, %lldL},", (long long)near, (long long)between,
                  (long long)link->away_offset[kind], (long long)link->block_bytes[kind]);
    }
    out->depth--;
    emit_line(out, "};");
    emit_blank(out);
}

static const char *numbers_name(Trainer *t, int s)
{
    return arena_printf(t->arena, "stage%d_block", s);
}

static void print_numbers(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    Str list = str_new(t->arena);
    for (int i = 0; i < stage->links; i++)
        str_putf(&list, "%s%d", i ? ", " : "", stage->link[i].block);
    emit_comment(out, "The block of each link among those that leave; -1: what it saves stays.");
    emit_line(out, "static const int %s[%d] = {%s};", numbers_name(t, s), stage->links, list.at);
    emit_blank(out);
}

static void print_column(Trainer *t, Emit *out, int s, int c, int kind)
{
    const Ring *ring = &t->program->stage[s].chunk[c].away[kind];
    Str list = str_new(t->arena);
    for (int micro = 0; micro < t->plan->micro_batches; micro++)
        str_putf(&list, "%s%d", micro ? ", " : "", ring->slot[micro]);
    emit_line(out, "static const int %s[%d] = {%s};", column_name(t, s, c, kind),
              t->plan->micro_batches, list.at);
    emit_blank(out);
}

/* ---- hops ---- */

static const char *hop_name(Trainer *t, int s, int c, Memory near, bool in)
{
    return arena_printf(t->arena, "%s_saved_%s", trainer_chunk(t, s, c),
                        stream_text[hop_stream(near, in)]);
}

static int field_of(const Place *place, const Event *event)
{
    (void)place;
    bool own = event->kind == EVENT_SPILL || event->kind == EVENT_FILL;
    return own ? (int)(event->stream - STREAM_COPY_IN) : NONE;
}

static void print_hop_waits(Trainer *t, Emit *out, int s, const Chunk *chunk, int lane)
{
    static const char *const field[] = {"spill[LP_COPY_IN]", "spill[LP_COPY_OUT]",
                                        "spill[LP_FILE_READ]", "spill[LP_FILE_WRITE]"};
    trainer_print_distant_waits(
        t, out,
        &(HopWaits){
            .place = {.kind = PLACE_SPILL, .stage = s, .which = lane, .index = chunk->first_block},
            .end = chunk->end_block,
            .index = number_of(&t->program->stage[s]),
            .all = arena_printf(t->arena, "%d", t->program->stage[s].blocks),
            .field = field,
            .fields = 2 * (int)home_of(t),
            .field_of = field_of});
}

/* Where the block `b` is in a memory, on its way in or out. */
static const char *place_text(Trainer *t, int s, int c, int kind, Memory memory, bool in)
{
    const Chunk *chunk = &t->program->stage[s].chunk[c];
    const Ring *ring = &chunk->away[kind], *area = memory == MEMORY_HBM
                                                       ? &chunk->ring[RING_SAVED + kind]
                                                       : &chunk->between[kind];
    if (memory != home_of(t) && in && area->sides)
        return arena_printf(t->arena, "%s + b->near[%d] + %lldL", trainer_memory[memory],
                            (int)memory, (long long)area->stride);
    if (memory != home_of(t))
        return arena_printf(t->arena, "%s + b->near[%d]", trainer_memory[memory], (int)memory);
    const char *slot =
        ring->n == 1 ? ""
        : ring->slot
            ? arena_printf(t->arena, " + %s[micro] * %lldL", column_name(t, s, c, kind),
                           (long long)ring->stride)
            : arena_printf(t->arena, " + micro %% %d * %lldL", ring->n, (long long)ring->stride);
    return arena_printf(t->arena, "%s + %lldL%s + b->away", trainer_memory[memory],
                        (long long)address_offset(ring->base), slot);
}

static void print_hop(Trainer *t, Emit *out, int s, int c, Memory near, bool in)
{
    const Chunk *chunk = &t->program->stage[s].chunk[c];
    const char *number = number_of(&t->program->stage[s]);
    int lane = hop_stream(near, in) - STREAM_COPY_IN;
    bool numbered = false;
    emit_open_function(out, "static void %s(State *s, int %s, int micro, int stay%s)",
                       hop_name(t, s, c, near, in), number, t->split ? ", bool whole" : "");
    emit_line(out, "if (%s >= %d - stay)", number, chunk->end_block);
    emit_line(out, "    return;");
    print_hop_waits(t, out, s, chunk, lane);
    emit_line(out, "LpEvent *event = &s->spill[%s][%s];", trainer_lane[lane], number);
    emit_line(out, "lp_wait(event);");
    emit_line(out, "LpCarry pieces[LP_MAX_CARRIES];");
    emit_line(out, "int count = 0;");
    emit_line(out, "const LpSpill *b;");
    for (int kind = 0; kind < SAVED_KINDS; kind++) {
        if (!travels(t, kind) || chunk->away[kind].n == 0)
            continue;
        Memory from = (Memory)(near + in), to = (Memory)(near + !in);
        numbered = numbered || (chunk->away[kind].n > 1 && (Memory)(near + 1) == home_of(t));
        emit_line(out, "b = &%s[%s];", table_name(t, s, kind), number);
        emit_line(out, t->split && kind == SAVED_I ? "if (b->bytes && whole)" : "if (b->bytes)");
        emit_line(out, "    pieces[count++] = (LpCarry){%s, %s, b->bytes};",
                  place_text(t, s, c, kind, to, in), place_text(t, s, c, kind, from, in));
    }
    if (!numbered)
        emit_line(out, "(void)micro;");
    if (t->split && (!travels(t, SAVED_I) || chunk->away[SAVED_I].n == 0))
        emit_line(out, "(void)whole;");
    emit_line(out, "if (count)");
    emit_line(out, "    lp_copy(event, %s, pieces, count);", trainer_lane[lane]);
    emit_close(out, "");
    emit_blank(out);
}

static void print_call(Trainer *t, Emit *out, int s, int c, Memory near, bool in,
                       const char *number)
{
    emit_line(out, "%s(s, %s, micro, stay%s);", hop_name(t, s, c, near, in), number,
              t->split ? in ? ", whole" : ", true" : "");
}

/* Behind forward of a link: its own out of the arena, and out of the memory behind that of the link
 * before. */
static void print_leave(Trainer *t, Emit *out, int s, int c)
{
    const StageProgram *stage = &t->program->stage[s];
    const Chunk *chunk = &stage->chunk[c];
    const char *number = number_of(stage);
    emit_comment(out,
                 "What a link has saved leaves for its home, but for the last `stay` %ss of the "
                 "row.",
                 number);
    emit_open_function(out, "static void %s_leave(State *s, int link, int micro, int stay)",
                       trainer_chunk(t, s, c));
    if (is_mixed(stage))
        emit_line(out, "const int block = %s[link];", numbers_name(t, s));
    print_call(t, out, s, c, MEMORY_HBM, false, number);
    for (int near = MEMORY_DRAM; near < (int)home_of(t); near++) {
        int first = chunk->end_block - near;
        emit_line(out, "if (%s >= %d)", number, chunk->first_block + near);
        out->depth++;
        print_call(t, out, s, c, (Memory)near, false,
                   arena_printf(t->arena, "%s - %d", number, near));
        out->depth--;
        emit_line(out, "for (int last = %d; %s == %d && last <= %s; last++)",
                  first < chunk->first_block ? chunk->first_block : first, number,
                  chunk->end_block - 1, number);
        out->depth++;
        print_call(t, out, s, c, (Memory)near, false, "last");
        out->depth--;
    }
    emit_close(out, "");
    emit_blank(out);
}

/* Ahead of backward of a link: its neighbour's into the arena, and that of the one behind into the
 * memory behind that. */
static void print_return(Trainer *t, Emit *out, int s, int c)
{
    const StageProgram *stage = &t->program->stage[s];
    const Chunk *chunk = &stage->chunk[c];
    const char *number = number_of(stage);
    int end = chunk->end_block;
    emit_comment(out, "What a link has saved comes back, some %ss ahead of it.", number);
    emit_open_function(out, "static void %s_return(State *s, int link, int micro, int stay%s)",
                       trainer_chunk(t, s, c), t->split ? ", bool whole" : "");
    emit_open(out, "if (link == %d)", chunk->end - 1);
    for (int near = (int)home_of(t) - 1; near >= 0; near--)
        for (int b = end - 1; b >= chunk->first_block && b >= end - 1 - near; b--)
            print_call(t, out, s, c, (Memory)near, true, arena_printf(t->arena, "%d", b));
    emit_close_slim(out);
    if (is_mixed(stage))
        emit_line(out, "const int block = %s[link]; /* -1 is ahead of nothing */",
                  numbers_name(t, s));
    for (int near = (int)home_of(t) - 1; near >= 0; near--) {
        emit_line(out, "if (%s >= %d)", number, chunk->first_block + near + 1);
        out->depth++;
        print_call(t, out, s, c, (Memory)near, true,
                   arena_printf(t->arena, "%s - %d", number, near + 1));
        out->depth--;
    }
    emit_close(out, "");
    emit_blank(out);
}

void trainer_print_spills(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    if (stage->blocks > 0 && is_mixed(stage))
        print_numbers(t, out, s);
    for (int kind = 0; kind < SAVED_KINDS; kind++) {
        if (!travels(t, kind) || stage->blocks == 0)
            continue;
        print_table(t, out, s, kind);
        for (int c = 0; c < stage->chunks; c++)
            if (stage->chunk[c].away[kind].slot)
                print_column(t, out, s, c, kind);
    }
    for (int c = 0; c < stage->chunks; c++) {
        if (!trainer_chunk_spills(t, s, c))
            continue;
        for (int near = (int)home_of(t) - 1; near >= 0; near--)
            for (int in = 0; in < 2; in++)
                print_hop(t, out, s, c, (Memory)near, in);
        print_leave(t, out, s, c);
        print_return(t, out, s, c);
    }
}

/* ---- around links ---- */

void trainer_print_leave(Trainer *t, Emit *out, int s, int c, int one, const char *link,
                         const char *row)
{
    if (t->program->stage[s].link[one].block != NONE)
        emit_line(out, "%s_leave(s, %s, %s);", trainer_chunk(t, s, c), link, row);
}

void trainer_print_return(Trainer *t, Emit *out, int s, int c, bool whole, int highest,
                          const char *link, const char *row)
{
    const StageProgram *stage = &t->program->stage[s];
    bool begins = highest == stage->chunk[c].end - 1 && trainer_chunk_spills(t, s, c);
    if (begins || stage->link[highest].block != NONE)
        emit_line(out, "%s_return(s, %s, %s%s);", trainer_chunk(t, s, c), link, row,
                  !t->split ? ""
                  : whole   ? ", true"
                            : ", false");
}

void trainer_print_spill_events(Trainer *t, Emit *out)
{
    int blocks = 1;
    for (int s = 0; s < t->program->stages; s++)
        blocks = t->program->stage[s].blocks > blocks ? t->program->stage[s].blocks : blocks;
    if (trainer_spills(t))
        emit_line_comment(out, arena_printf(t->arena, "LpEvent spill[LP_HOPS][%d];", blocks),
                          "of what links have saved");
}

void trainer_print_spills_end(Trainer *t, Emit *out)
{
    if (trainer_spills(t))
        trainer_print_lane_waits(out, "spill", "link");
}
