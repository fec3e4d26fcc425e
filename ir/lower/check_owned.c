/* check_owned.c - the static proof of owners over all ranks: each element of every parameter counts
 * once in the norm, and the loss once a term. */
#include "ir/lower/check_in.h"

#include <stdlib.h>

/* ---- all ranks together ---- */

static const Group *group_at(const Program *program, int stage, int group)
{
    return &program->stage[stage].groups.at[group];
}

static bool same_group(const Group *a, const Group *b)
{
    bool same = a->sharded == b->sharded && a->partial == b->partial &&
                a->elements == b->elements && a->members.n == b->members.n &&
                a->share.n == b->share.n && list_set(&a->share) == list_set(&b->share);
    for (int i = 0; same && i < a->share.n; i++)
        same = a->share.at[i] == b->share.at[i];
    for (int k = 0; same && k < a->members.n; k++)
        same = a->members.at[k].net_param == b->members.at[k].net_param &&
               a->members.at[k].offset == b->members.at[k].offset &&
               a->members.at[k].elements == b->members.at[k].elements;
    return same;
}

/* The group of another stage that a tied group is summed with, or NONE. */
static int tied_partner(const Program *program, int stage, int group)
{
    const Group *own = group_at(program, stage, group);
    if (own->tied_stage < 0 || own->tied_stage >= program->stages)
        return NONE;
    for (int g = 0; g < program->stage[own->tied_stage].groups.n; g++) {
        const Group *other = group_at(program, own->tied_stage, g);
        if (other->tied_stage == stage && same_group(own, other))
            return g;
    }
    return NONE;
}

/* Both stages cut a tied group into the same buckets, in the same order. */
static bool same_buckets(const StageProgram *a, int x, const StageProgram *b, int y)
{
    int j = 0;
    for (int i = 0; i < a->buckets.n; i++) {
        const Bucket *one = &a->buckets.at[i];
        if (one->group != x)
            continue;
        while (j < b->buckets.n && b->buckets.at[j].group != y)
            j++;
        if (j == b->buckets.n || b->buckets.at[j].begin != one->begin ||
            b->buckets.at[j].elements != one->elements)
            return false;
        j++;
    }
    while (j < b->buckets.n && b->buckets.at[j].group != y)
        j++;
    return j == b->buckets.n;
}

static bool check_tied_groups(Check *check, Owners *owners)
{
    const Program *program = check->program;
    bool good = true;
    for (int s = 0; s < program->stages; s++)
        for (int g = 0; g < program->stage[s].groups.n; g++) {
            const Group *group = group_at(program, s, g);
            if (group->tied_stage == NONE)
                continue;
            int other = tied_partner(program, s, g);
            if (other == NONE ||
                !same_buckets(&program->stage[s], g, &program->stage[group->tied_stage], other)) {
                good = check_fault(check,
                                   "stage %d: group %d is tied to stage %d, which has none like it",
                                   s, g, group->tied_stage);
                continue;
            }
            for (int i = 0; s > group->tied_stage && i < owners->owned.n;
                 i++) /* both homes count as one */
                if (owners->owned.at[i].owner_stage == s && owners->owned.at[i].group == g) {
                    owners->owned.at[i].stage = group->tied_stage;
                    owners->owned.at[i].group = other;
                }
        }
    return good;
}

static int by_place(const void *a, const void *b)
{
    const Owned *x = a, *y = b;
    if (x->stage != y->stage)
        return x->stage - y->stage;
    if (x->group != y->group)
        return x->group - y->group;
    if (x->block != y->block)
        return x->block - y->block;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->owner_stage != y->owner_stage ? x->owner_stage - y->owner_stage
                                            : x->coordinate - y->coordinate;
}

static const char *parameter_at(const Program *program, const Group *group, int64_t element)
{
    const char *name = "padding";
    for (int k = 0; k < group->members.n && group->members.at[k].offset <= element; k++)
        name = program->net->params.at[group->members.at[k].net_param].name;
    return name;
}

static int owner_rank(const Check *check, const Owned *owned)
{
    return owned->owner_stage * mesh_ranks(&check->program->plan->mesh) + owned->coordinate;
}

/* The owned ranges of every block of one group are all of it, each element once. Returns where the
 * next group begins. */
static int check_tiling(Check *check, const Owners *owners, int stage, int group, int at)
{
    const Group *own = group_at(check->program, stage, group);
    int blocks = mesh_extent(&check->program->plan->mesh, own->sharded);
    int64_t padding = own->elements;
    for (int block = 0; block < blocks; block++) {
        int64_t reached = 0;
        for (; at < owners->owned.n; at++) {
            const Owned *next = &owners->owned.at[at];
            if (next->stage != stage || next->group != group || next->block != block)
                break;
            if (next->begin < reached) {
                const Owned *other = &owners->owned.at[at - 1];
                check_fault(check,
                            "stage %d: elements %lld to %lld of group %d (%s) have two owners in "
                            "the norm, ranks %d and %d",
                            stage, (long long)next->begin, (long long)reached, group,
                            parameter_at(check->program, own, next->begin),
                            owner_rank(check, other), owner_rank(check, next));
            }
            if (next->begin > reached)
                check_fault(check,
                            "stage %d: elements %lld to %lld of group %d (%s) have no owner "
                            "in the norm",
                            stage, (long long)reached, (long long)next->begin, group,
                            parameter_at(check->program, own, reached));
            reached = next->end > reached ? next->end : reached;
        }
        int64_t wanted = own->rate > 0 ? 0 : own->elements;
        if (reached != wanted)
            check_fault(
                check, "stage %d: elements %lld to %lld of group %d (%s) have no owner in the norm",
                stage, (long long)reached, (long long)own->elements, group,
                parameter_at(check->program, own, reached));
    }
    for (int k = 0; k < own->members.n; k++)
        padding -= own->members.at[k].elements;
    check->report->padding += padding * blocks;
    check->report->elements += (own->elements - padding) * blocks;
    return at;
}

static bool check_loss_owner(Check *check, const Owners *owners, int number)
{
    const Program *program = check->program;
    const Mesh *mesh = &program->plan->mesh;
    int wanted = 0, found = 0, all = 0;
    for (int k = 0; k < owners->loss.n; k++)
        all += owners->loss.at[k].number == number;
    for (int s = 0; s < program->stages; s++)
        for (int i = 0; i < program->stage[s].links; i++) {
            const Body *body = program->stage[s].link[i].body;
            if (body->losses <= number)
                continue;
            AtomSet partial = body->copies.at[body->loss[number]].place.partial;
            wanted += mesh_extent(mesh, partial);
            for (int k = 0; k < owners->loss.n; k++) {
                const LossOwner *own = &owners->loss.at[k];
                bool alone = own->number == number && own->stage == s;
                for (int a = 0; a < mesh->n; a++)
                    alone &= (partial >> a & 1) || mesh_coordinate(mesh, own->coordinate, a) == 0;
                found += alone;
            }
        }
    if (found != wanted || all != wanted)
        return check_fault(check, "loss %d has %d terms and %d ranks that count one", number,
                           wanted, all);
    return true;
}

bool owners_check(Check *check, Owners *owners)
{
    const Program *program = check->program;
    const Net *net = program->net;
    int before = check->report->faults;
    check_tied_groups(check, owners);
    if (owners->owned.n > 0)
        qsort(owners->owned.at, (size_t)owners->owned.n, sizeof owners->owned.at[0], by_place);
    int at = 0;
    for (int s = 0; s < program->stages; s++)
        for (int g = 0; g < program->stage[s].groups.n; g++)
            if (group_at(program, s, g)->tied_stage == NONE ||
                group_at(program, s, g)->tied_stage > s)
                at = check_tiling(check, owners, s, g, at);
    if (at != owners->owned.n)
        check_fault(check, "%d ranges of the norm belong to no group", owners->owned.n - at);
    int64_t elements = 0;
    for (int p = 0; p < net->params.n; p++) {
        const NetParam *param = &net->params.at[p];
        const Graph *graph = net->classes.at[param->class];
        const Param *info = &graph->params.at[param->param];
        bool trained = info->grad != NONE;
        for (int use = 0; use < param->uses; use++)
            trained |=
                net->classes.at[param->use_class[use]]->params.at[param->use_param[use]].grad !=
                NONE;
        elements += trained ? value_elements(net, &graph->values.at[info->value]) : 0;
    }
    if (elements != check->report->elements)
        check_fault(check, "the ranks own %lld elements of parameters, the model trains %lld",
                    (long long)check->report->elements, (long long)elements);
    for (int k = 0; k < net_losses(program->net); k++)
        check_loss_owner(check, owners, k);
    return check->report->faults == before;
}
