/* look_experts.c - what is called experts: who shares them, and how their rows come. */
#include "planner/look.h"

#include "ir/plan_parts.h"

bool look_shares_experts(const Look *look, Str *says)
{
    if (!look->named)
        return false;
    const Dim *dim = &look->net->dims.at[look->named_dim];
    str_putf(says, "%lld experts over %d ranks (ep); rows go to whom they name and back",
             (long long)dim->extent, mesh_extent(&look->plan->mesh, look->named));
    return true;
}

bool look_shares_over_tp(const Look *look, Str *says)
{
    AtomSet both = (AtomSet)(look->named & plan_role_atoms(look->plan, look->net, ROLE_TP));
    if (!both)
        return false;
    int tp = mesh_extent(&look->plan->mesh, both);
    str_putf(says, "%d of tp and %d of dp, which send parts of the sequence", tp,
             mesh_extent(&look->plan->mesh, look->named) / tp);
    return true;
}

bool look_cuts_experts(const Look *look, Str *says)
{
    if (look->named_dim == NONE || !look->named_cut)
        return false;
    str_putf(says, "each expert over %d ranks (etp)",
             mesh_extent(&look->plan->mesh, look->named_cut));
    return true;
}

static bool routes_to(const Look *look, int64_t choices, Str *says)
{
    if (look->named_dim == NONE || look->named_choices != choices || !look->bounded)
        return false;
    str_putf(says, "%lld of %lld experts a token, to their capacity", (long long)choices,
             (long long)look->net->dims.at[look->named_dim].extent);
    if (look->drawn)
        str_put(says, ", the second by chance");
    return true;
}

bool look_is_switch(const Look *look, Str *says)
{
    return routes_to(look, 1, says);
}

bool look_is_gshard(const Look *look, Str *says)
{
    return routes_to(look, 2, says);
}

bool look_drops_none(const Look *look, Str *says)
{
    if (look->named_dim == NONE || look->bounded)
        return false;
    str_putf(says, "%lld of %lld experts a token, none dropped", (long long)look->named_choices,
             (long long)look->net->dims.at[look->named_dim].extent);
    return true;
}

bool look_has_rounds(const Look *look, Str *says)
{
    if (!look->named || look->plan->rounds <= 1)
        return false;
    str_putf(says, "up to %d, each with room for %lld %% of an even share; no rows stop a run",
             look->plan->rounds, (long long)look->plan->room_percent);
    return true;
}

bool look_is_padded(const Look *look, Str *says)
{
    if (!look->named || look->net->exchange != EXCHANGE_PADDED)
        return false;
    str_put(says, "messages of rows have the size of their bound");
    if (str_eq(look->plan->cluster->device.target, "cuda"))
        str_put(says, ": no host waits for their number");
    return true;
}
