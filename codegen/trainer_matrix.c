/* trainer_matrix.c - the steps of whole matrices of a stage. */
#include "codegen/trainer.h"

const char *trainer_bucket_filled(Trainer *t, const StageProgram *stage, const Bucket *bucket)
{
    if (stage->groups.at[bucket->group].matrix == NONE)
        return "";
    return arena_printf(t->arena, ", .filled = %lldL", (long long)bucket->filled);
}

bool trainer_has_matrices(const StageProgram *stage)
{
    bool any = false;
    for (int g = 0; g < stage->groups.n; g++)
        any = any || stage->groups.at[g].matrix != NONE;
    return any;
}

static void print_matrix_kind(Trainer *t, Emit *out, int kind)
{
    int class = t->net->classes.n + kind;
    emit_line(out, "case %d: {", kind + 1);
    emit_line(out,
              "    const %sLink link = {.weight = {weight, moment, gradient, COEF_AT, LR_AT, "
              "DECAY_AT}, .gradient = {weight, moment}};",
              trainer_camel(t, t->class_name[class]));
    emit_line(out, "    %s_step(s, &link, &at, true);", t->class_name[class]);
    emit_line(out, "    break;");
    emit_line(out, "}");
}

void trainer_print_matrices(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    if (!trainer_has_matrices(stage))
        return;
    bool narrow = t->program->recipe->weight != DT_F32;
    emit_comment(out, "The whole matrices of this rank's share of a bucket, one after the other; "
                      "those behind `filled` are padding.");
    emit_open_function(out,
                       "static void stage%d_matrices(State *s, const LpGroup *group, const "
                       "LpBucket *bucket, int64_t begin)",
                       s);
    emit_line(out, "enum { COEF_AT = %lld, LR_AT = %lld, DECAY_AT = %lld };",
              (long long)(stage->scalars + 64 * SCALAR_COEF),
              (long long)(stage->scalars + 64 * SCALAR_LR),
              (long long)(stage->scalars + 64 * SCALAR_STEP + 4));
    emit_line(out, "*(float *)arena_at(s, COEF_AT) = (float)s->coef;");
    emit_line(out, "*(float *)arena_at(s, LR_AT) = (float)s->lr;");
    emit_line(out, "*(float *)arena_at(s, DECAY_AT) = (float)s->rank->options->weight_decay;");
    emit_line(out, "const LpSlots at = {.base = {[LP_AT_SCRATCH] = s->arena + %lldL}};",
              (long long)stage->scratch);
    emit_line(out, "const int64_t filled = bucket->begin + bucket->filled, end = begin + "
                   "bucket->share_elements;");
    emit_open(out, "for (int64_t from = begin; from < end && from < filled; from += group->unit)");
    emit_line(out, "const int64_t share = bucket->share_begin + from - begin;");
    const char *cut = "lp_home_before(s->index, bucket, group->%s_cut, from)";
    bool any = any_cut(t);
    emit_line(out, "const int64_t weight = group->%s + %s * 4;", narrow ? "master" : "weight",
              narrow ? "share"
              : any  ? arena_printf(t->arena, cut, "weight")
                     : "from");
    emit_line(out, "const int64_t moment = group->moment1 + share * 4;");
    emit_line(out, "const int64_t gradient = group->gradient + %s * 4;",
              any ? arena_printf(t->arena, cut, "gradient") : "from");
    emit_line(out, "switch (group->matrix) {");
    for (int k = 0; k < t->program->matrices.n; k++) {
        bool here = false;
        for (int g = 0; g < stage->groups.n; g++)
            here = here || stage->groups.at[g].matrix == k;
        if (here)
            print_matrix_kind(t, out, k);
    }
    emit_line(out, "}");
    emit_close_slim(out);
    emit_close(out, "");
    emit_blank(out);
}
