/* trainer_groups.c - the tables of a stage's flat groups: runs of one weight decay, groups,
 * buckets. */
#include "codegen/trainer.h"
#include "ir/lower/state.h"

/* Runs of elements with one decay flag, over the whole group. */
static int print_runs(Trainer *t, Emit *out, int s, int g)
{
    const Group *group = &t->program->stage[s].groups.at[g];
    Str rows = str_new(t->arena);
    int n = 0;
    int64_t begin = 0;
    for (int i = 0; i < group->members.n; i++) {
        const GroupMember *member = &group->members.at[i];
        bool end = i + 1 == group->members.n;
        if (!end && group->members.at[i + 1].decay == member->decay)
            continue;
        int64_t stop = end ? group->elements : group->members.at[i + 1].offset;
        str_putf(&rows, "%s{%lld, %lld, %s}", n++ ? ", " : "", (long long)begin, (long long)stop,
                 member->decay ? "true" : "false");
        begin = stop;
    }
    emit_line(out, "static const LpRun stage%d_runs%d[] = {%s};", s, g, rows.at);
    return n;
}

void trainer_print_tables(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    int runs[64];
    CHECK(stage->groups.n < 64);
    emit_comment(out, "Gradients that take one path to their optimizer lie side by side: a group. "
                      "Runs of elements with one "
                      "weight-decay flag.");
    for (int g = 0; g < stage->groups.n; g++)
        runs[g] = print_runs(t, out, s, g);
    emit_line(out, "static const LpGroup stage%d_groups[] = {", s);
    out->depth++;
    for (int g = 0; g < stage->groups.n; g++) {
        const Group *group = &stage->groups.at[g];
        AtomSet mine = (AtomSet)(group->sharded | list_set(&group->share)), rest = 0;
        for (int a = 0; a < t->plan->mesh.n; a++)
            rest |= mine >> a & 1 ? 0 : (AtomSet)(1u << a);
        AtomList share = group->share, owner = atoms_as_list(rest);
        bool home = group->tied_stage == NONE || s < group->tied_stage;
        Str options = str_new(t->arena);
        str_put(&options, "");
        if (group->matrix != NONE)
            str_putf(&options, ", .matrix = %d, .unit = %lldL", group->matrix + 1,
                     (long long)group->unit);
        if (group->rate > 0)
            str_putf(&options, ", .rate = %.9gf", group->rate);
        if (group->master != NONE)
            str_putf(&options, ", .master = %lldL", (long long)address_offset(group->master));
        emit_line(out,
                  "{.weight = %lldL, .gradient = %lldL, .moment1 = %lldL, .moment2 = %lldL, .share "
                  "= %s, .owner = %s, .home = %s, .runs = stage%d_runs%d, .run_count = %d%s%s%s},",
                  (long long)address_offset(group->weight),
                  (long long)address_offset(group->gradient),
                  (long long)address_offset(group->moment1),
                  (long long)(group->matrix == NONE ? address_offset(group->moment2) : 0),
                  trainer_list(t, &share, false), trainer_list(t, &owner, false),
                  home ? "true" : "false", s, g, group->matrix == NONE ? runs[g] : 0, options.at,
                  trainer_state_home(t, group), trainer_group_cuts(t, group));
    }
    out->depth--;
    emit_line(out, "};");
    emit_comment(out, "Pieces of groups that move as one.");
    emit_line(out, "static const LpBucket stage%d_buckets[] = {", s);
    out->depth++;
    for (int b = 0; b < stage->buckets.n; b++) {
        const Bucket *bucket = &stage->buckets.at[b];
        emit_line(out,
                  "{.group = %d, .close_link = %d, .begin = %lldL, .elements = %lldL, .share_begin "
                  "= %lldL, .share_elements = %lldL%s%s},",
                  bucket->group, bucket->close_link, (long long)bucket->begin,
                  (long long)bucket->elements, (long long)bucket->share_begin,
                  (long long)bucket->share_elements, trainer_bucket_filled(t, stage, bucket),
                  trainer_bucket_buffers(t, stage, b));
    }
    out->depth--;
    emit_line(out, "};");
    emit_blank(out);
}
