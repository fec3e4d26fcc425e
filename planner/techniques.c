/* techniques.c - one table of recognitions.
 *
 * Sources of the names: Li et al. 2020 (DDP); Rajbhandari et al. 2020 (ZeRO), Ren et al. 2021
 * (Offload), Rajbhandari et al. 2021 (Infinity), Wang et al. 2023 (hpZ); Zhao et al. 2023 (FSDP,
 * HSDP), Zhang et al. 2022 (MiCS); Shoeybi et al. 2019 (tensor and vocabulary parallel);
 * Korthikanti et al. 2022 (sequence parallel, selective recomputation); Wang et al. 2023 (products
 * that overlap); Liu et al. 2023 (ring attention), Jacobs et al. 2023 (Ulysses), Fang & Zhao 2024
 * (both), Brandon et al. 2023 (orders of the sequence); Lepikhin et al. 2020 (GShard), Fedus et al.
 * 2021 (Switch); Chen et al. 2016 (recomputation); Micikevicius et al. 2018 (mixed precision);
 * Jordan et al. 2024 (Muon); DeepSeek-AI 2024 (multi-token prediction). Schedules:
 * ir/lower/schedule.h; sums: ir/lower/link.c. */
#include "planner/techniques.h"

#include <string.h>

#include "ir/base/num.h"
#include "ir/plan_memory.h"
#include "ir/plan_parts.h"
#include "planner/look.h"
#include "planner/report.h"

/* ---- words ---- */

static const char *over(const Look *look, AtomSet atoms)
{
    const char *roles = text_all_roles(look->arena, look->it, atoms);
    return arena_printf(look->arena, "%s %d", roles, mesh_extent(&look->plan->mesh, atoms));
}

static const char *letters_text(const Look *look, const Letters *letters)
{
    Str text = str_new(look->arena);
    for (int i = 0; i < letters->n; i++)
        str_putf(&text, "%s%s", i ? ", " : "", look->net->dims.at[letters->at[i]].name);
    return text.at;
}

static AtomSet role_of(const Look *look, Role role)
{
    return plan_role_atoms(look->plan, look->net, role);
}

/* ---- tokens, homes ---- */

/* How far the homes of the classes are cut: 0 nowhere, 1 state, 2 gradients too, 3 weights too. */
static int deepest(const Look *look, Homes *ret)
{
    int deep = 0;
    *ret = (Homes){0};
    for (int c = 0; c < look->net->classes.n; c++) {
        Homes homes = plan_homes(look->plan, c);
        int own = homes.weight ? 3 : homes.gradient ? 2 : homes.state ? 1 : 0;
        if (own > deep || (own == deep && homes.state > ret->state)) {
            deep = own;
            *ret = homes;
        }
    }
    return deep;
}

static bool cuts_batch(const Look *look, bool whole, Str *says)
{
    Homes homes;
    AtomSet atoms = (AtomSet)(look->batch & ~role_of(look, ROLE_TP));
    if (!atoms || (deepest(look, &homes) == 0) != whole)
        return false;
    str_putf(says, "batch over %s", over(look, atoms));
    if (whole)
        str_put(says, "; weights, gradients and state whole on each");
    return true;
}

static bool is_ddp(const Look *look, Str *says)
{
    return cuts_batch(look, true, says);
}

static bool is_dp(const Look *look, Str *says)
{
    return cuts_batch(look, false, says);
}

/* Every rank that has other tokens has its part of what is cut deepest. */
static bool cut_over_all(const Look *look, AtomSet cut)
{
    AtomSet tokens = (AtomSet)(role_of(look, ROLE_DP) | role_of(look, ROLE_CP));
    return (tokens & ~cut) == 0;
}

static bool cuts_to(const Look *look, int depth, Str *says)
{
    static const char *const what[] = {NULL, "optimizer state", "optimizer state and gradients",
                                       "state, gradients and weights"};
    Homes homes;
    if (deepest(look, &homes) != depth)
        return false;
    AtomSet own = depth == 3 ? homes.weight : depth == 2 ? homes.gradient : homes.state;
    str_putf(says, "%s over %s", what[depth], over(look, own));
    if (depth == 3)
        str_put(says, ", gathered for each use");
    return true;
}

static bool is_zero1(const Look *look, Str *says)
{
    return cuts_to(look, 1, says);
}

static bool is_zero2(const Look *look, Str *says)
{
    return cuts_to(look, 2, says);
}

static bool is_zero3(const Look *look, Str *says)
{
    Homes homes;
    deepest(look, &homes);
    return cut_over_all(look, homes.weight) && cuts_to(look, 3, says);
}

/* Whole models in groups of ranks, or weights alone. */
static bool is_hsdp(const Look *look, Str *says)
{
    Homes homes;
    int depth = deepest(look, &homes);
    AtomSet tokens = (AtomSet)(role_of(look, ROLE_DP) | role_of(look, ROLE_CP));
    if (depth != 3 || homes.weight != homes.state || cut_over_all(look, homes.weight))
        return false;
    cuts_to(look, 3, says);
    str_putf(says, "; %d copies, whose gradients are summed",
             mesh_extent(&look->plan->mesh, (AtomSet)(tokens & ~homes.weight)));
    return true;
}

static bool is_hpz(const Look *look, Str *says)
{
    Homes homes;
    if (deepest(look, &homes) != 3 || homes.weight == homes.state)
        return false;
    str_putf(says, "weights over %s, gathered for each use; optimizer state over %s",
             over(look, homes.weight), over(look, homes.state));
    return true;
}

/* What lives in a memory behind the device's, of what steps or of what backward reads. */
static bool lives_in(const Look *look, Kept kept, Memory memory, Str *says)
{
    int here = plan_classes_in(look->plan, look->net, kept, memory);
    if (here == 0)
        return false;
    static const char *const what[KEPT_COUNT] = {"optimizer state", "what layers keep for backward",
                                                 "weights", "gradients"};
    static const char *const some[KEPT_COUNT] = {
        "optimizer state of some layers", "what some layers keep for backward",
        "weights of some layers", "gradients of some layers"};
    static const char *const whither[KEPT_COUNT] = {"the update", "it", "each use and the update",
                                                    "each sum, the norm and the update"};
    const char *const *of = here < look->net->classes.n ? some : what;
    str_putf(says, "%s in %s, brought to %s and back", of[kept], memory_text[memory],
             whither[kept]);
    return true;
}

static bool is_offload(const Look *look, Str *says)
{
    return lives_in(look, KEPT_STATE, MEMORY_DRAM, says);
}

static bool is_infinity(const Look *look, Str *says)
{
    return lives_in(look, KEPT_STATE, MEMORY_NVME, says);
}

static bool is_carried(const Look *look, Str *says)
{
    return lives_in(look, KEPT_WEIGHTS, MEMORY_DRAM, says) ||
           lives_in(look, KEPT_WEIGHTS, MEMORY_NVME, says);
}

static bool is_summed(const Look *look, Str *says)
{
    return lives_in(look, KEPT_GRADIENTS, MEMORY_DRAM, says) ||
           lives_in(look, KEPT_GRADIENTS, MEMORY_NVME, says);
}

static bool is_spilled(const Look *look, Str *says)
{
    return lives_in(look, KEPT_SAVED, MEMORY_DRAM, says) ||
           lives_in(look, KEPT_SAVED, MEMORY_NVME, says);
}

/* ---- sums of gradients ---- */

/* The algorithm of most bytes of gradients on their way to the optimizer. */
static bool sums_by(const Look *look, Algorithm algorithm, Str *says)
{
    const StepTimes *times = look->it->times;
    int64_t most = 0;
    Algorithm by = ALGORITHM_COUNT;
    const Traffic *of = NULL;
    for (int i = 0; i < times->traffic.n; i++) {
        const Traffic *traffic = &times->traffic.at[i];
        int s = look->it->busiest;
        if (traffic->step != STEP_MOVE || traffic->stream != STREAM_GRADIENT ||
            !traffic->count[s] || traffic->bytes[s] <= most)
            continue;
        Algorithm own = traffic_algorithm(look->plan, traffic, s);
        if (own == ALGORITHM_COUNT)
            continue;
        most = traffic->bytes[s];
        by = own;
        of = traffic;
    }
    if (by != algorithm)
        return false;
    str_putf(says, "%s by %s, over %s", of->what, move_text[of->move], over(look, of->atoms));
    return true;
}

static bool by_ring(const Look *look, Str *says)
{
    return sums_by(look, ALGORITHM_RING, says);
}

static bool by_tree(const Look *look, Str *says)
{
    return sums_by(look, ALGORITHM_TREE, says);
}

static bool by_hierarchy(const Look *look, Str *says)
{
    return sums_by(look, ALGORITHM_HIERARCHICAL, says);
}

static bool by_switch(const Look *look, Str *says)
{
    return sums_by(look, ALGORITHM_NVLS, says);
}

static bool by_server(const Look *look, Str *says)
{
    return sums_by(look, ALGORITHM_SERVER, says);
}

/* ---- layers ---- */

/* What comes out of the columns goes into the rows: one sum a pair. */
static bool is_tp(const Look *look, Str *says)
{
    AtomSet both = (AtomSet)(look->column & look->row);
    if (!both)
        return false;
    str_putf(says, "columns of %s, then rows of %s summed, over %s",
             letters_text(look, &look->column_letters), letters_text(look, &look->row_letters),
             over(look, both));
    return true;
}

static bool is_vocabulary(const Look *look, Str *says)
{
    if (!look->vocabulary && !look->looked_up)
        return false;
    if (look->vocabulary)
        str_putf(says, "logits over %s; the loss takes a maximum and two sums",
                 over(look, look->vocabulary));
    if (look->looked_up)
        str_putf(says, "%srows of the embedding over %s", look->vocabulary ? "; " : "",
                 over(look, look->looked_up));
    return true;
}

static bool is_sp(const Look *look, Str *says)
{
    AtomSet atoms = (AtomSet)(look->sequence & look->column & look->row);
    if (!atoms)
        return false;
    str_putf(says, "sequence over %s between products", over(look, atoms));
    return true;
}

static bool is_overlapped(const Look *look, Str *says)
{
    if (!look->passing)
        return false;
    str_putf(says, "blocks of the sequence pass by products over %s", over(look, look->passing));
    return true;
}

/* ---- the sequence ---- */

static bool crosses_by(const Look *look, AtomSet atoms, const char *how, Str *says)
{
    if (!atoms)
        return false;
    str_putf(says, "sequence over %s; %s", over(look, atoms), how);
    return true;
}

static bool is_cp_gather(const Look *look, Str *says)
{
    return crosses_by(look, look->gather, "attention gathers keys and values", says);
}

static bool is_cp_heads(const Look *look, Str *says)
{
    return crosses_by(look, look->heads, "exchanged for heads in attention", says);
}

static bool is_cp_ring(const Look *look, Str *says)
{
    return crosses_by(look, look->ring, "keys and values pass by, merged by log-sum-exp", says);
}

static bool is_zigzag(const Look *look, Str *says)
{
    if (!look->plan->zigzag)
        return false;
    str_putf(says, "dealt out to %s so that a causal mask leaves all equal work",
             over(look, look->plan->zigzag));
    return true;
}

/* ---- what is kept, in which dtype, moved by what ---- */

static bool remakes_all(const Look *look, Str *says)
{
    if (look->layers_remade == 0)
        return false;
    if (look->layers_remade == look->layers)
        str_put(says, "a layer keeps what it is handed and runs forward again");
    else
        str_putf(says, "%d of %d layers keep what they are handed and run forward again",
                 look->layers_remade, look->layers);
    return true;
}

static bool remakes_some(const Look *look, Str *says)
{
    enum { MOST = 4 };
    if (look->remade.n == 0)
        return false;
    for (int i = 0; i < look->remade.n && i < MOST; i++)
        str_putf(says, "%s%s", i ? ", " : "", look->remade.at[i]);
    if (look->remade.n > MOST)
        str_putf(says, " and %d more", look->remade.n - MOST);
    str_put(says, " made again in backward");
    return true;
}

static bool is_mixed(const Look *look, Str *says)
{
    const Recipe *recipe = look->it->program->recipe;
    if (recipe->activation == recipe->master)
        return false;
    bool wide = recipe->gradient == recipe->master;
    str_putf(says, "%s weights and activations; %s gradients%s%s masters and moments%s",
             dtype_text[recipe->activation], dtype_text[recipe->gradient], wide ? "," : "; ",
             wide ? "" : dtype_text[recipe->master],
             recipe->scales_loss ? "; the loss scaled" : "");
    return true;
}

/* Steps of matrices on the rank of the stage where they take longest. */
static int64_t matrices_ns(const Look *look)
{
    int64_t most = 0;
    for (int s = 0; s < look->plan->stages; s++) {
        int64_t ns = 0;
        for (int c = 0; c < look->it->program->chunks; c++) {
            if (chunk_stage(look->it->program, c) != s)
                continue;
            const StageCost *cost = family_chunk(look->it->family, look->plan->first_link, c);
            for (int b = 0; b < cost->buckets; b++)
                ns += cost->bucket[b].matrix ? cost->bucket[b].update_ns : 0;
        }
        most = num_larger(most, ns);
    }
    return most;
}

static bool is_muon(const Look *look, Str *says)
{
    const Program *program = look->it->program;
    int64_t own = 0, all = 0;
    AtomSet share = 0;
    for (int s = 0; s < program->stages; s++)
        for (int g = 0; g < program->stage[s].groups.n; g++) {
            const Group *group = &program->stage[s].groups.at[g];
            all += group->elements;
            own += group->matrix != NONE ? group->elements : 0;
            share = (AtomSet)(group->matrix != NONE ? share | list_set(&group->share) : share);
        }
    if (own == 0)
        return false;
    int shapes = program->matrices.n;
    str_putf(says, "whole matrices of hidden layers, of %d shape%s, %lld %% of the parameters",
             shapes, shapes == 1 ? "" : "s", (long long)(100 * own / all));
    if (share)
        str_putf(says, ", dealt out over %s", over(look, share));
    str_putf(says, "; %s of the update", text_time(look->arena, matrices_ns(look)));
    return true;
}

static void put_word(Str *says, bool put, const char *word)
{
    if (put)
        str_putf(says, "%s%s", says->n ? ", " : "", word);
}

/* In what the links of one kind differ. */
static bool is_divided(const Look *look, Str *says)
{
    const Plan *plan = look->plan;
    bool roles = false, places = false, homes = false, again = false, saved = false;
    for (int a = 0; a < look->net->classes.n; a++)
        for (int b = 0; b < a; b++) {
            const Graph *graph = look->net->classes.at[a];
            const ClassPlan *x = &plan->class[a], *y = &plan->class[b];
            if (graph->nodes.at != look->net->classes.at[b]->nodes.at)
                continue; /* other kinds */
            Homes cut = plan_homes(plan, a), other = plan_homes(plan, b);
            roles = roles || !mesh_same_roles(plan_mesh(plan, a), plan_mesh(plan, b));
            places = places || !place_equal(&x->boundary_out, &y->boundary_out);
            homes = homes || !homes_equal_of_params(&cut, &other);
            saved = saved || cut.nearer[KEPT_SAVED] != other.nearer[KEPT_SAVED];
            again =
                again || memcmp(x->keep, y->keep, (size_t)graph->values.n * sizeof *x->keep) != 0;
        }
    put_word(says, roles, "roles of ranks");
    put_word(says, places, "placements between layers");
    put_word(says, homes, "homes of parameters");
    put_word(says, saved, "homes of what layers save");
    put_word(says, again, "what backward makes again");
    return says->n > 0;
}

/* Labels further than the next token. */
static bool looks_ahead(const Look *look, Str *says)
{
    int losses = net_losses(look->net);
    if (losses == 1)
        return false;
    str_putf(says, "losses of %d further token%s beside the next one's", losses - 1,
             losses == 2 ? "" : "s");
    return true;
}

static bool is_hybrid(const Look *look, Str *says)
{
    AtomSet sequence = (AtomSet)(look->heads | look->ring | look->gather);
    AtomSet batch = (AtomSet)(look->batch & ~role_of(look, ROLE_TP));
    int kinds = (batch != 0) + ((look->column & look->row) != 0) + (sequence != 0) +
                (look->named != 0) + (look->plan->stages > 1);
    if (kinds < 3)
        return false;
    str_putf(says, "%d kinds of parallelism on %d devices", kinds, look->plan->ranks);
    return true;
}

/* ---- the table ---- */

typedef struct Recognition {
    const char *key, *name;
    bool (*is)(const Look *look, Str *says);
} Recognition;

static const Recognition recognitions[] = {
    {"ddp", "data parallel (DDP)", is_ddp},
    {"dp", "data parallel", is_dp},
    {"zero1", "ZeRO-1", is_zero1},
    {"zero2", "ZeRO-2", is_zero2},
    {"zero3", "ZeRO-3 (FSDP)", is_zero3},
    {"hsdp", "hybrid sharding (HSDP, MiCS)", is_hsdp},
    {"hpz", "ZeRO-3 with weights in a node (hpZ)", is_hpz},
    {"offload", "ZeRO-Offload", is_offload},
    {"infinity", "ZeRO-Infinity", is_infinity},
    {"activation_offload", "activation offload", is_spilled},
    {"weight_offload", "weight offload", is_carried},
    {"gradient_offload", "gradient offload", is_summed},
    {"ring", "ring reduction", by_ring},
    {"tree", "tree reduction", by_tree},
    {"hierarchical", "hierarchical reduction", by_hierarchy},
    {"nvls", "reduction in the switch (NVLS)", by_switch},
    {"server", "parameter server", by_server},
    {"tp", "tensor parallel (Megatron)", is_tp},
    {"vocabulary", "vocabulary parallel", is_vocabulary},
    {"sp", "sequence parallel", is_sp},
    {"tp_ring", "overlapped tensor parallel", is_overlapped},
    {"cp_gather", "context parallel, gathered", is_cp_gather},
    {"cp_heads", "context parallel by heads (Ulysses)", is_cp_heads},
    {"cp_ring", "ring attention", is_cp_ring},
    {"zigzag", "zigzag order", is_zigzag},
    {"ep", "expert parallel", look_shares_experts},
    {"ep_over_tp", "experts over tensor-parallel ranks", look_shares_over_tp},
    {"etp", "expert tensor parallel", look_cuts_experts},
    {"switch", "Switch routing", look_is_switch},
    {"gshard", "GShard routing", look_is_gshard},
    {"dropless", "dropless routing", look_drops_none},
    {"rounds", "rows in rounds", look_has_rounds},
    {"padded", "padded exchange", look_is_padded},
};

static const Recognition settings[] = {
    {"braid", "overlapped forward and backward (F||B)", look_has_pairs},
    {"recompute_full", "full recomputation", remakes_all},
    {"recompute_selective", "selective recomputation", remakes_some},
    {"mixed", "mixed precision", is_mixed},
    {"muon", "Muon", is_muon},
    {"mtp", "multi-token prediction", looks_ahead},
    {"layers", "layers that differ", is_divided},
    {"hybrid", "hybrid", is_hybrid},
};

static void recognise(Look *look, const Recognition *row, Techniques *ret)
{
    Str says = str_new(look->arena);
    if (row->is(look, &says))
        vec_push(look->arena, ret) = (Technique){row->key, row->name, says.at};
}

/* The name that the plan has for its rows, where it is right: short schedules are several. */
static void recognise_rows(Look *look, Techniques *ret)
{
    for (int i = -1; i < SCHEDULE_COUNT; i++) {
        ScheduleKind kind = i < 0 ? look->plan->schedule : (ScheduleKind)i;
        Str says = str_new(look->arena);
        if ((i < 0 && kind == SCHEDULE_TABLE) || !look_runs_as(look, kind, &says))
            continue;
        vec_push(look->arena, ret) =
            (Technique){schedule_text[kind], schedule_info[kind].title, says.at};
        return;
    }
}

Techniques techniques_of(Arena *arena, const Assessment *it)
{
    Look look = look_at(arena, it);
    Techniques found = {0};
    for (size_t i = 0; i < sizeof recognitions / sizeof *recognitions; i++)
        recognise(&look, &recognitions[i], &found);
    recognise_rows(&look, &found);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        recognise(&look, &settings[i], &found);
    return found;
}
