/* trainer_update.c - what happens to gradients and weights of a stage once a step: buckets, norm,
 * optimizer. */
#include <string.h>

#include "codegen/trainer.h"
#include "ir/plan_parts.h"

bool path_communicates(const Path *path)
{
    for (int i = 0; i < path->n; i++) {
        if (path->move[i].kind <= MOVE_PERMUTE)
            return true;
    }
    return false;
}

static bool stage_communicates(const StageProgram *stage, bool gather)
{
    for (int g = 0; g < stage->groups.n; g++) {
        if (path_communicates(gather ? &stage->groups.at[g].gather : &stage->groups.at[g].reduce))
            return true;
    }
    return false;
}

static void put_atoms(const Mesh *mesh, Str *str, AtomSet atoms)
{
    bool said[ROLE_COUNT] = {false};
    for (int a = 0; a < mesh->n; a++) {
        Role role = mesh->atom[a].role;
        if ((atoms >> a & 1) && !said[role])
            str_putf(str, " %s", role_text[role]);
        said[role] = said[role] || (atoms >> a & 1);
    }
}

/* The roles that the atoms of a group have: in its layers where these agree, else in most. */
static const Mesh *group_mesh(const Trainer *t, const StageProgram *stage, const Group *group)
{
    const Mesh *mesh = stage->link[group->members.at[0].link].body->mesh;
    for (int k = 1; k < group->members.n; k++)
        if (!mesh_same_roles(stage->link[group->members.at[k].link].body->mesh, mesh))
            return &t->plan->mesh;
    return mesh;
}

/* Weights are stored in 16 bits: what is gathered may be they, or fp32 gradients. */
static bool is_narrow(const Trainer *t)
{
    return t->program->recipe->weight != DT_F32;
}

/* Moves on flat[0, count): each narrows or widens what this rank holds. `by`: flat is in bytes, and
 * elements are of so many. */
static void print_path(Trainer *t, Emit *out, const Path *path, const char *dtype, const char *by)
{
    bool started = false;
    for (int i = 0; i < path->n; i++) {
        const Move *move = &path->move[i];
        const char *list = trainer_list(t, &move->atoms, move->kind != MOVE_SLICE);
        const char *mine = arena_printf(t->arena, "s->index[%s] * count%s", list, by);
        long long n = list_extent(&t->plan->mesh, &move->atoms);
        if (started && move->kind != MOVE_SLICE)
            emit_line(out, "lp_wait(event);");
        started = started || move->kind != MOVE_SLICE;
        switch (move->kind) {
        case MOVE_ALL_REDUCE:
            emit_line(out, "lp_all_reduce(event, s->comm[%s], flat, count, %s, LP_SUM);", list,
                      dtype);
            break;
        case MOVE_REDUCE_SCATTER:
            emit_line(out, "count /= %lld;", n);
            emit_line(out,
                      "lp_reduce_scatter(event, s->comm[%s], flat, flat + %s, count, %s, LP_SUM);",
                      list, mine, dtype);
            emit_line(out, "flat += %s;", mine);
            break;
        case MOVE_SLICE:
            emit_line(out, "count /= %lld;", n);
            emit_line(out, "flat += %s;", mine);
            break;
        case MOVE_ALL_GATHER:
            emit_line(out, "lp_all_gather(event, s->comm[%s], flat, flat - %s, count, %s);", list,
                      mine, dtype);
            emit_line(out, "flat -= %s;", mine);
            emit_line(out, "count *= %lld;", n);
            break;
        default:
            BUG("a flat bucket has no %s", move_text[move->kind]);
        }
    }
}

/* Drops the last updates of flat and count, which nobody reads. */
static const char *without_dead_tail(Trainer *t, const char *text)
{
    char *copy = arena_strdup(t->arena, text);
    for (;;) {
        size_t n = strlen(copy);
        size_t line = n ? n - 1 : 0;
        while (line > 0 && copy[line - 1] != '\n')
            line--;
        const char *last = copy + line + strspn(copy + line, " ");
        if (strncmp(last, "flat ", 5) != 0 && strncmp(last, "count ", 6) != 0)
            return copy;
        copy[line] = 0;
    }
}

/* Where the moves of a path begin, when homes are cut. */
static void print_cut_start(Trainer *t, Emit *out, int s, bool gather)
{
    emit_line(out, "const LpGroup *group = &stage%d_groups[bucket->group];", s);
    if (gather) {
        emit_line(out, "const int64_t begin = lp_bucket_share(s->index, stage%d_groups, bucket);",
                  s);
        emit_line(out, "int64_t count = bucket->share_elements;");
    } else {
        emit_line(out, "const LpCut cut = group->gradient_cut;");
        emit_line(out, "const int64_t begin = lp_block_begin(s->index, bucket, cut);");
        emit_line(out, "int64_t count = lp_block_count(bucket, cut);");
    }
    if (gather)
        emit_line(out, "LpReal *flat = lp_home_weight(s->arena%s, s->index, group, bucket, begin);",
                  t->program->flows ? " + newer" : "");
    else
        emit_line(out, "float *flat = %s;",
                  trainer_sums(t) ? trainer_gradient_at(t, "begin")
                                  : "lp_home(s->arena, group->gradient, "
                                    "s->index, bucket, cut, begin)");
}

/* The gradients of this rank's share of a bucket. */
static const char *share_gradients(Trainer *t, int s)
{
    const char *begin =
        arena_printf(t->arena, "lp_bucket_share(s->index, stage%d_groups, bucket)", s);
    if (any_cut(t))
        return trainer_gradient_at(t, begin);
    return arena_printf(t->arena, "(float *)arena_at(s, group->gradient) + %s", begin);
}

/* One function for the reductions, or the gathers, of all buckets: a case for each group's path. */
static void print_paths(Trainer *t, Emit *out, int s, bool gather)
{
    const StageProgram *stage = &t->program->stage[s];
    const char *name = gather ? "gather" : "reduce";
    emit_comment(
        out,
        gather ? "Brings the shares of a bucket of `field` (weights, or gradients) to every rank "
                 "that uses them."
               : "Brings the gradients of a bucket to the ranks whose optimizer shares they are.");
    bool narrow = gather && is_narrow(t) && !any_cut(t);
    if (gather && !any_cut(t))
        emit_open_function(out, "static void stage%d_%s(State *s, int b, int64_t field%s)", s, name,
                           narrow ? ", LpDtype dtype" : "");
    else
        emit_open_function(out, "static void stage%d_%s(State *s, int b%s)", s, name,
                           gather && t->program->flows ? ", int64_t newer" : "");
    emit_line(out, "const LpBucket *bucket = &stage%d_buckets[b];", s);
    emit_line(out, "LpEvent *event = &s->bucket[b];");
    if (any_cut(t)) {
        print_cut_start(t, out, s, gather);
    } else if (gather) {
        emit_line(out, "int64_t count = bucket->share_elements;");
        if (narrow) {
            emit_line(out, "const int64_t width = dtype == LP_F32 ? 4 : 2;");
            emit_line(out,
                      "unsigned char *flat = (unsigned char *)arena_at(s, field) + "
                      "lp_bucket_share(s->index, stage%d_groups, bucket) * width;",
                      s);
        } else {
            emit_line(out,
                      "float *flat = (float *)arena_at(s, field) + lp_bucket_share(s->index, "
                      "stage%d_groups, bucket);",
                      s);
        }
    } else {
        emit_line(out, "int64_t count = bucket->elements;");
        emit_line(out,
                  "float *flat = (float *)arena_at(s, stage%d_groups[bucket->group].gradient) + "
                  "bucket->begin;",
                  s);
    }
    bool own = trainer_bucket_waits(t, out, s, gather ? PLACE_GATHER : PLACE_REDUCE);
    /* steps that flow begin to reduce while older weights of the bucket may be under way */
    if (own || (t->program->flows && !gather))
        emit_line(out, "lp_wait(event);");
    if (!gather && t->program->recipe->scales_loss)
        emit_line(out, "lp_inject(flat);");
    emit_open(out, "switch (bucket->group)");
    for (int g = 0; g < stage->groups.n; g++) {
        const Group *group = &stage->groups.at[g];
        const Path *path = gather ? &group->gather : &group->reduce;
        if (!path_communicates(path))
            continue;
        Emit moves = emit_new(t->arena);
        moves.depth = out->depth;
        const char *dtype = narrow   ? "dtype"
                            : gather ? dtype_constant(t->program->recipe->weight)
                                     : "LP_F32";
        print_path(t, &moves, path, dtype, narrow ? " * width" : "");
        Str why = str_new(t->arena);
        const Mesh *mesh = group_mesh(t, stage, group);
        if (group->sharded) {
            str_put(&why, "split over");
            put_atoms(mesh, &why, group->sharded);
        } else {
            str_put(&why, "whole");
        }
        if (group->partial) {
            str_put(&why, "; sums partial over");
            put_atoms(mesh, &why, group->partial);
        }
        if (group->share.n) {
            str_put(&why, "; optimizer cut over");
            put_atoms(mesh, &why, list_set(&group->share));
        }
        out->depth--;
        emit_line_comment(out, arena_printf(t->arena, "case %d:", g), why.at);
        out->depth++;
        emit_text(out, without_dead_tail(t, moves.text.at));
        emit_line(out, "break;");
    }
    out->depth--;
    emit_line(out, "default: /* already where it belongs */");
    out->depth++;
    emit_line(out, "break;");
    emit_close(out, "");
    emit_close(out, "");
    emit_blank(out);
}

static void print_close(Emit *out, int s, const StageProgram *stage)
{
    bool scatters = stage_scatters(stage) || stage_sums(stage),
         reduces = stage_communicates(stage, false);
    emit_comment(out, scatters
                          ? "Backward of this link is done: gradients that are complete with it "
                            "go home, and in the last micro-batch on to their optimizer."
                          : "Starts the reductions of the buckets that are complete once "
                            "backward of this link is done.");
    if (!scatters) {
        emit_open_function(out, "static void stage%d_close(State *s, int link)", s);
        emit_open(out, "for (int b = 0; b < LP_COUNT(stage%d_buckets); b++)", s);
        emit_line(out, "if (stage%d_buckets[b].close_link == link)", s);
        emit_line(out, "    stage%d_reduce(s, b);", s);
    } else {
        emit_open_function(
            out, "static void stage%d_close(State *s, int link, bool first, bool last)", s);
        emit_open(out, "for (int b = 0; b < LP_COUNT(stage%d_buckets); b++)", s);
        emit_line(out, "if (stage%d_buckets[b].close_link != link)", s);
        emit_line(out, "    continue;");
        if (stage_scatters(stage)) {
            emit_line(out, "if (stage%d_groups[stage%d_buckets[b].group].buffered)", s, s);
            emit_line(out, "    stage%d_scatter(s, b, first);", s);
        }
        if (stage_clears(stage)) {
            emit_line(out, "if (first && stage%d_groups[stage%d_buckets[b].group].far_gradients)",
                      s, s);
            emit_line(out, "    stage%d_clear(s, b);", s);
        } else if (!stage_scatters(stage)) {
            emit_line(out, "(void)first;");
        }
        if (reduces) {
            emit_line(out, "if (last)");
            emit_line(out, "    stage%d_reduce(s, b);", s);
        }
        if (!reduces)
            emit_line(out, "(void)last;");
    }
    emit_close(out, "");
    emit_close(out, "");
    emit_blank(out);
}

/* Ranks that hold the same loss count once: those at 0 of the atoms on which it is not Partial. */
const char *trainer_loss_owner(Trainer *t, int s, int number)
{
    const StageProgram *stage = &t->program->stage[s];
    for (int i = 0; i < stage->links; i++) {
        const Body *body = stage->link[i].body;
        if (body->losses == 0)
            continue;
        AtomSet partial = body->copies.at[body->loss[number]].place.partial, rest = 0;
        for (int a = 0; a < t->plan->mesh.n; a++)
            rest |= partial >> a & 1 ? 0 : (AtomSet)(1u << a);
        AtomList list = atoms_as_list(rest);
        const char *at =
            number == 0 ? "LOSS_AT" : arena_printf(t->arena, "LOSS_AT + %d", 4 * number);
        if (list.n == 0)
            return arena_printf(t->arena, "*(float *)arena_at(s, %s)", at);
        return arena_printf(t->arena, "s->index[%s] == 0 ? *(float *)arena_at(s, %s) : 0.0f",
                            trainer_list(t, &list, false), at);
    }
    return "0.0f";
}

static bool waits_for_world(const Trainer *t, const Place *place)
{
    const Event *events;
    int n = waits_at(t->waits, place, &events);
    for (int i = 0; i < n; i++) {
        if (events[i].kind == EVENT_WORLD)
            return true;
    }
    return false;
}

/* Some parameters of the stage move by the signs of their gradients. */
static bool by_sign(const StageProgram *stage)
{
    bool any = false;
    for (int g = 0; g < stage->groups.n; g++)
        any = any || stage->groups.at[g].rate > 0;
    return any;
}

static void print_norm(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    Place world = {.kind = PLACE_WORLD, .stage = s}, clip = {.kind = PLACE_CLIP, .stage = s};
    emit_comment(out, "Global gradient norm and loss: every element counts once in the world, and "
                      "all parameters share one "
                      "reduction.");
    bool flows = t->program->flows;
    emit_open_function(out, "static void stage%d_norm(State *s%s)", s, flows ? ", int step" : "");
    trainer_print_first_hops(t, out, s);
    emit_line(out, "Totals *totals = %s;", flows ? "totals_of(s, step)" : "arena_at(s, TOTALS_AT)");
    emit_line(out, "totals->norm2 = (LpExact){{0.0}};");
    bool own = trainer_bucket_waits(t, out, s, PLACE_NORM);
    emit_open(out, "for (int b = 0; b < LP_COUNT(stage%d_buckets); b++)", s);
    emit_line(out, "const LpBucket *bucket = &stage%d_buckets[b];", s);
    emit_line(out, "const LpGroup *group = &stage%d_groups[bucket->group];", s);
    if (own)
        emit_line(out, "lp_wait(&s->bucket[b]);");
    trainer_print_sums_share(t, out, s);
    bool scales = t->program->recipe->scales_loss;
    emit_line(out, "%sfloat *g = %s;", scales ? "" : "const ", share_gradients(t, s));
    if (scales)
        emit_line(out, "lp_inject(g);");
    emit_line(out, by_sign(stage)
                       ? "if (group->rate == 0.0f && group->home && s->index[group->owner] == 0)"
                       : "if (group->home && s->index[group->owner] == 0)");
    emit_line(out, "    lp_exact_squares(&totals->norm2, bucket->share_elements, g);");
    emit_close(out, "");
    bool scaled = t->program->recipe->scales_loss;
    if (scaled)
        emit_line(out, "const double scale = s->scale = lp_loss_scale();");
    trainer_print_waits(t, out, &world, NULL);
    int losses = net_losses(t->net);
    for (int k = 0; k < losses; k++)
        emit_line(out, "totals->loss[%d] = %s;", k, trainer_loss_owner(t, s, k));
    if (flows) {
        emit_line(out, "totals->stop = lp_stop_wanted() ? 1.0 : 0.0;");
        emit_close(out, "");
        emit_blank(out);
        trainer_print_world(out, s);
        return;
    }
    emit_line(out, "lp_all_reduce(&s->world, LP_WORLD, totals, sizeof *totals / sizeof(double), "
                   "LP_F64, LP_SUM);");
    if (!waits_for_world(t, &clip))
        emit_line(out, "lp_wait(&s->world);");
    trainer_print_waits(t, out, &clip, NULL);
    emit_line(out, scaled ? "s->loss = totals->loss[0] / scale;" : "s->loss = totals->loss[0];");
    for (int k = 1; k < losses; k++)
        emit_line(out, "lp_loss_beside(%d, totals->loss[%d]%s);", k, k, scaled ? " / scale" : "");
    emit_line(out, "s->norm = sqrt(lp_exact_value(&totals->norm2))%s;", scaled ? " / scale" : "");
    emit_line(out, "const double limit = s->rank->options->clip;");
    emit_line(out, "s->coef = limit > 0.0 ? fmin(1.0, limit / (s->norm + 1e-6)) : 1.0;");
    if (scaled) {
        emit_line(out, "s->coef /= scale;");
        emit_comment(out, "An infinity or NaN anywhere in the world is in everybody's sum.");
        emit_line(out, "s->skipped = lp_loss_scale_step(isfinite(s->norm));");
    }
    emit_close(out, "");
    emit_blank(out);
}

/* The new weights of a bucket go to whoever keeps them. */
static void print_gather_call(Trainer *t, Emit *out, int s)
{
    const char *where = t->program->flows ? "group->weight + newer" : "group->weight";
    if (any_cut(t))
        emit_line(out, "stage%d_gather(s, b%s);", s, t->program->flows ? ", newer" : "");
    else if (is_narrow(t))
        emit_line(out, "stage%d_gather(s, b, %s, %s);", s, where,
                  dtype_constant(t->program->recipe->weight));
    else
        emit_line(out, "stage%d_gather(s, b, %s);", s, where);
}

static void print_update(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    trainer_print_matrices(t, out, s);
    bool scaled = t->program->recipe->scales_loss;
    emit_comment(
        out,
        "AdamW on this rank's share of a bucket, then the new weights go to whoever uses them.");
    bool flows = t->program->flows;
    emit_open_function(out, "static void stage%d_update(State *s, %sint b)", s,
                       flows ? "int step, " : "");
    trainer_print_hops_in(t, out, s);
    emit_line(out, "const LpBucket *bucket = &stage%d_buckets[b];", s);
    emit_line(out, "const LpGroup *group = &stage%d_groups[bucket->group];", s);
    if (trainer_bucket_waits(t, out, s, PLACE_UPDATE))
        emit_line(out, "lp_wait(&s->bucket[b]);");
    if (flows)
        trainer_print_versions(t, out, s);
    trainer_print_carry_in(t, out, s);
    trainer_print_sums_share(t, out, s);
    emit_line(out, "const int64_t begin = lp_bucket_share(s->index, stage%d_groups, bucket);", s);
    emit_line(out, "const LpOptions *o = s->rank->options;");
    emit_line(out,
              "const LpAdam adam = lp_adam(o->beta1, o->beta2, o->eps, o->weight_decay, s->lr, "
              "s->step, s->coef);");
    const char *where = any_cut(t) ? "s->arena, s->index" : "s->arena",
               *how = any_cut(t) ? "cut" : "share",
               *near = stage_state_away(stage) || trainer_carries(t) ? "&near_" : "";
    trainer_print_near(t, out, s);
    trainer_print_carry_near(t, out, s);
    const char *group = arena_printf(t->arena, "%sgroup", near);
    if (flows && !trainer_carries(t)) {
        emit_line(out,
                  "const LpGroup next = lp_next_version(s->arena, s->index, %s, %sbucket, begin, "
                  "older, newer);",
                  group, near);
        group = "&next";
    }
    if (trainer_has_matrices(stage)) {
        emit_line(out, scaled ? "if (!s->skipped && group->matrix)" : "if (group->matrix)");
        emit_line(out, "    stage%d_matrices(s, %s, %sbucket, begin);", s, group, near);
    }
    if (scaled)
        emit_line(out, "if (!s->skipped)");
    emit_line(out, "%slp_update_%s(%s, %s, %sbucket, begin, adam);", scaled ? "    " : "", how,
              where, group, near);
    trainer_print_hops_out(t, out, s);
    trainer_print_carry_out(t, out, s);
    if (stage_communicates(stage, true))
        print_gather_call(t, out, s);
    emit_close(out, "");
    emit_blank(out);
    if (!is_narrow(t))
        return;
    emit_comment(out, "The weights of a bucket, from what the optimizer steps, before the first "
                      "step.");
    emit_open_function(out, "static void stage%d_publish(State *s, int b)", s);
    if (flows && stage_communicates(stage, true))
        emit_line(out, "const int64_t newer = 0; /* the first slot */");
    emit_line(out, "const LpBucket *bucket = &stage%d_buckets[b];", s);
    emit_line(out, "const LpGroup *group = &stage%d_groups[bucket->group];", s);
    trainer_print_publish(t, out, s, how, where);
    if (stage_communicates(stage, true))
        print_gather_call(t, out, s);
    emit_close(out, "");
    emit_blank(out);
}

static void print_tied(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    bool any = false;
    for (int g = 0; g < stage->groups.n; g++)
        any = any || stage->groups.at[g].tied_stage != NONE;
    if (!any)
        return;
    emit_comment(out, "A tied parameter has a home in two stages: the gradients of both are added, "
                      "so both copies take the same step.");
    bool one = trainer_one_tie(t);
    const char *comm = one ? "s->tied" : "s->tied[tied]";
    emit_open_function(out, "static void stage%d_tied(State *s, int g%s)", s,
                       one ? "" : ", int tied");
    emit_open(out, "for (int b = 0; b < LP_COUNT(stage%d_buckets); b++)", s);
    emit_line(out, "const LpBucket *bucket = &stage%d_buckets[b];", s);
    emit_line(out, "if (bucket->group != g)");
    emit_line(out, "    continue;");
    if (trainer_bucket_waits(t, out, s, PLACE_TIED))
        emit_line(out, "lp_wait(&s->bucket[b]);");
    if (any_cut(t)) {
        emit_line(out, "const LpGroup *group = &stage%d_groups[g];", s);
        emit_line(out,
                  "lp_all_reduce(&s->bucket[b], %s, %s, bucket->share_elements, LP_F32, LP_SUM);",
                  comm, share_gradients(t, s));
    } else {
        emit_line(out, "float *flat = (float *)arena_at(s, stage%d_groups[g].gradient);", s);
        emit_line(out,
                  "lp_all_reduce(&s->bucket[b], %s, flat + lp_bucket_share(s->index, "
                  "stage%d_groups, bucket), "
                  "bucket->share_elements, LP_F32, LP_SUM);",
                  comm, s);
    }
    emit_close(out, "");
    emit_close(out, "");
    emit_blank(out);
}

static void print_dump(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    if (t->program->recipe->scales_loss) {
        emit_open_function(out, "static void stage%d_scale_gradients(State *s, float factor)", s);
        emit_open(out, "for (int b = 0; b < LP_COUNT(stage%d_buckets); b++)", s);
        emit_line(out, "const LpBucket *bucket = &stage%d_buckets[b];", s);
        if (any_cut(t)) {
            emit_line(out, "const LpGroup *group = &stage%d_groups[bucket->group];", s);
            emit_line(out, "const LpCut cut = group->gradient_cut;");
            emit_line(out, "const int64_t begin = lp_block_begin(s->index, bucket, cut);");
            emit_line(out, "lp_scale(lp_block_count(bucket, cut), %s, factor);",
                      trainer_sums(t) ? "gradient_home(s, group, bucket, begin)"
                                      : "lp_home(s->arena, group->gradient, s->index, bucket, cut, "
                                        "begin)");
        } else {
            emit_line(out,
                      "float *flat = (float *)arena_at(s, stage%d_groups[bucket->group].gradient);",
                      s);
            emit_line(out, "lp_scale(bucket->elements, flat + bucket->begin, factor);");
        }
        emit_close(out, "");
        emit_close(out, "");
        emit_blank(out);
    }
    emit_comment(out, "--dump-grads: the gradients of the first step, whole, before clipping.");
    emit_open_function(out, "static void stage%d_dump(State *s)", s);
    bool cut = any_cut(t);
    if (cut) {
        emit_line(out, "for (int b = 0; b < LP_COUNT(stage%d_buckets); b++)", s);
        emit_line(out, "    lp_wait(&s->bucket[b]);");
    } else if (stage_communicates(stage, true)) {
        emit_open(out, "for (int b = 0; b < LP_COUNT(stage%d_buckets); b++)", s);
        emit_line(out, "lp_wait(&s->bucket[b]);");
        emit_line(out, "stage%d_gather(s, b, stage%d_groups[stage%d_buckets[b].group].gradient%s);",
                  s, s, s, is_narrow(t) ? ", LP_F32" : "");
        emit_line(out, "lp_wait(&s->bucket[b]);");
        emit_close(out, "");
    }
    bool scaled = t->program->recipe->scales_loss;
    if (scaled)
        emit_line(out, "const float scale = (float)s->scale; /* a power of two: exact */");
    if (cut) {
        emit_line(out, "LpPart *parts = calloc(MAX_MOMENT_PARTS, sizeof *parts);");
        emit_line(out, "if (!parts)");
        emit_line(out, "    lp_fail(3, \"no memory for the table of the gradients\");");
        emit_line(out, "const int count = boxes_of(s, &moments[%d], GRADIENTS, parts);", s);
    } else {
        emit_line(out, "LpPart parts[MAX_PARTS];");
        emit_line(out, "const int count = parts_of(s, parts, true);");
    }
    if (scaled)
        emit_line(out, "stage%d_scale_gradients(s, 1.0f / scale);", s);
    emit_line(out, "lp_save(s->rank->options->dump_grads, parts, count, LP_F32);");
    if (scaled)
        emit_line(out, "stage%d_scale_gradients(s, scale);", s);
    if (cut)
        emit_line(out, "free(parts);");
    emit_close(out, "");
    emit_blank(out);
}

void trainer_print_update(Trainer *t, Emit *out, int s)
{
    const StageProgram *stage = &t->program->stage[s];
    if (!any_cut(t))
        trainer_print_tables(t, out, s);
    trainer_print_homes(t, out, s);
    if (stage_communicates(stage, false))
        print_paths(t, out, s, false);
    if (stage_communicates(stage, false) || stage_scatters(stage) || stage_sums(stage))
        print_close(out, s, stage);
    if (stage_communicates(stage, true))
        print_paths(t, out, s, true);
    print_tied(t, out, s);
    trainer_print_state(t, out, s);
    print_norm(t, out, s);
    print_dump(t, out, s);
    print_update(t, out, s);
}
