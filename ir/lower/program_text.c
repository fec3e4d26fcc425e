/* program_text.c - a Program as text: what each stage holds and where, and its table. */
#include "ir/lower/loop.h"

static void put_atoms(Str *str, AtomSet atoms)
{
    if (!atoms)
        str_put(str, "-");
    for (int a = 0, n = 0; a < MAX_ATOMS; a++)
        if (atoms >> a & 1)
            str_putf(str, "%sa%d", n++ ? "." : "", a);
}

static void put_path(Str *str, const Path *path)
{
    for (int i = 0; i < path->n; i++)
        str_putf(str, "%s%s", i ? ", " : "", move_text[path->move[i].kind]);
    if (path->n == 0)
        str_put(str, "nothing");
}

static void put_group(Str *str, const Program *program, const StageProgram *stage, int g)
{
    const Group *group = &stage->groups.at[g];
    str_putf(str, "  group %d: %lld elements, sharded ", g, (long long)group->elements);
    put_atoms(str, group->sharded);
    str_put(str, ", partial ");
    put_atoms(str, group->partial);
    str_put(str, ", share ");
    put_atoms(str, list_set(&group->share));
    if (group->rate > 0)
        str_putf(str, ", by sign %g", group->rate);
    if (group->tied_stage != NONE)
        str_putf(str, ", tied with stage %d", group->tied_stage);
    str_put(str, "; reduce: ");
    put_path(str, &group->reduce);
    str_put(str, "; gather: ");
    put_path(str, &group->gather);
    str_putf(str, "\n    at weight %lld, gradient %lld, moments %lld %lld\n",
             (long long)group->weight, (long long)group->gradient, (long long)group->moment1,
             (long long)group->moment2);
    for (int i = 0; i < group->members.n; i++) {
        const GroupMember *member = &group->members.at[i];
        str_putf(str, "    +%-10lld %-10lld %s%s\n", (long long)member->offset,
                 (long long)member->elements, program->net->params.at[member->net_param].name,
                 member->decay ? "" : "  (no decay)");
    }
}

static void put_stage(Str *str, const Program *program, const StageProgram *stage)
{
    str_putf(str, "stage %d: links ", stage->index);
    for (int c = 0; c < stage->chunks; c++)
        str_putf(str, "%s%d to %d", c ? ", " : "", stage->link[stage->chunk[c].begin].link,
                 stage->link[stage->chunk[c].end - 1].link);
    str_putf(str, ", arena %lld B\n", (long long)stage->arena_bytes);
    for (int g = 0; g < stage->groups.n; g++)
        put_group(str, program, stage, g);
    for (int b = 0; b < stage->buckets.n; b++) {
        const Bucket *bucket = &stage->buckets.at[b];
        str_putf(str, "  bucket %d: group %d, elements %lld to %lld, closed by link %d\n", b,
                 bucket->group, (long long)bucket->begin,
                 (long long)(bucket->begin + bucket->elements),
                 stage->link[bucket->close_link].link);
    }
    for (int c = 0; c < stage->chunks; c++)
        for (int r = 0; r < RING_COUNT; r++) {
            const Ring *ring = &stage->chunk[c].ring[r];
            if (ring->n == 0)
                continue;
            str_putf(str, "  ring %-8s at %lld, %d x %lld B", ring_text[r], (long long)ring->base,
                     ring->n, (long long)ring->stride);
            if (stage->chunks > 1)
                str_putf(str, ", chunk %d", stage->chunk[c].index);
            str_put(str, ring->slot ? ", slots in a column\n" : "\n");
        }
    str_putf(str, "  pass at %lld, 4 x %lld B; scratch at %lld, %lld B\n",
             (long long)stage->pass[0], (long long)stage->pass_bytes, (long long)stage->scratch,
             (long long)stage->scratch_bytes);
}

void program_put_text(Str *str, const Program *program)
{
    for (int s = 0; s < program->stages; s++)
        put_stage(str, program, &program->stage[s]);
}

/* A micro-batch; in a loop, `shift` more each time. */
static void put_number(Str *str, int number, int shift)
{
    str_putf(str, "%d", number);
    if (shift == 1 || shift == -1)
        str_put(str, shift > 0 ? "+i" : "-i");
    else if (shift)
        str_putf(str, "%+di", shift);
}

static void put_entry(Str *str, const StageProgram *stage, const Entry *entry, int shift)
{
    /* chunks by their numbers, where a stage has several */
    if (entry->kind <= ENTRY_RECV && stage->chunks > 1)
        str_putf(str, "%d", stage->chunk[entry->chunk].index);
    switch (entry->kind) {
    case ENTRY_COMPUTE:
        str_put(str, part_text[entry->part]);
        put_number(str, entry->micro, shift);
        str_putf(str, "%s%s%s", entry->first ? "'" : "", entry->last ? "." : "",
                 entry->braids ? "|" : "");
        break;
    case ENTRY_SEND:
    case ENTRY_RECV:
        str_putf(str, "%s%s", entry->kind == ENTRY_SEND ? ">" : "<",
                 entry->message == MSG_ACTIVATION ? "x" : "d");
        put_number(str, entry->micro, shift);
        break;
    case ENTRY_REDUCE:
    case ENTRY_TIED:
    case ENTRY_UPDATE:
        str_putf(str, "%s%d", entry_text[entry->kind], entry->index);
        break;
    case ENTRY_NORM:
    case ENTRY_WORLD:
    case ENTRY_LOSS:
    case ENTRY_COUNT:
        str_put(str, entry_text[entry->kind]);
        break;
    }
    if (entry->ahead)
        str_putf(str, "@%+d", entry->ahead);
}

/* F0' the first micro-batch of the step, B3. the last; >x2 sends activations, <d2 receives
 * gradients. @+1 is of the next step, where steps flow into each other. 5 x { F3+i B1+i } is F3 B1
 * F4 B2 and so on. */
void program_put_tables(Str *str, const Program *program)
{
    for (int s = 0; s < program->stages; s++) {
        const StageProgram *stage = &program->stage[s];
        str_putf(str, "stage %d:", s);
        for (int i = 0; i < stage->table.n;) {
            Loop loop = table_loop_at(stage, i, 16 * program->chunks + 16);
            bool folds = loop.repeats > 2;
            if (folds)
                str_putf(str, " %d x {", loop.repeats);
            for (int k = 0; k < (folds ? loop.entries : 1); k++) {
                str_putc(str, ' ');
                put_entry(str, stage, &stage->table.at[i + k], folds ? loop.shift : 0);
            }
            if (folds)
                str_put(str, " }");
            i += folds ? loop.entries * loop.repeats : 1;
        }
        str_putc(str, '\n');
    }
}
