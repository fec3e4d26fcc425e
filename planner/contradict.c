/* contradict.c - the rules that pins and a job must keep, each with the words for breaking it. */
#include "planner/contradict.h"

#include <stdio.h>

#include "ir/base/str.h"

/* "tp=2 x dp=4": those of the degrees that are pinned. */
static const char *degrees(Arena *arena, const Pins *pins, int64_t *ret_product)
{
    const struct {
        const char *name;
        int value;
    } pin[] = {{"tp", pins->tp}, {"cp", pins->cp}, {"dp", pins->dp}, {"pp", pins->pp}};
    Str text = str_new(arena);
    *ret_product = 1;
    for (int i = 0; i < 4; i++)
        if (pin[i].value > 0) {
            *ret_product *= pin[i].value;
            str_putf(&text, "%s%s=%d", text.n ? " x " : "", pin[i].name, pin[i].value);
        }
    return text.at;
}

static const char *layers_text(Arena *arena, const Pins *pins, int *ret_sum)
{
    Str text = str_new(arena);
    *ret_sum = 0;
    for (int i = 0; i < pins->cuts; i++) {
        *ret_sum += pins->cut[i];
        str_putf(&text, "%s%d", i ? "+" : "layers=", pins->cut[i]);
    }
    return text.at;
}

static bool degrees_fit(Diag *diag, Arena *arena, const Problem *problem, const Pins *pins)
{
    int64_t product;
    const char *text = degrees(arena, pins, &product);
    bool all = pins->tp > 0 && pins->dp > 0 && pins->pp > 0;
    if (product <= problem->ranks && problem->ranks % product == 0 &&
        (!all || product == problem->ranks))
        return true;
    bool one =
        product == pins->tp || product == pins->cp || product == pins->dp || product == pins->pp;
    diag_error(diag, NO_SPAN, "%s %s cannot share %d devices: %lld %s", one ? "pin" : "pins", text,
               problem->ranks, (long long)product,
               all && problem->ranks % product == 0 ? "of them would idle"
                                                    : "does not divide them");
    diag_help(diag, "tp x %sdp x pp must be the devices: change one of them, or --gpus",
              pins->cp > 0 ? "cp x " : "");
    return false;
}

static bool layers_fit(Diag *diag, Arena *arena, const Problem *problem, const Pins *pins)
{
    int sum, layers = problem->net->chain.n - 2;
    const char *text = layers_text(arena, pins, &sum);
    Pins whole = pins_complete(problem, *pins);
    int chunks = pins->pp > 0 ? pins_chunks(&whole) : pins->cuts,
        given = pins->pp > 0 ? pins->pp : pins->cuts;
    const char *part = pins->pp > 0 && chunks > pins->pp ? "chunk" : "stage";
    if (pins->cuts && pins->pp > 0 && pins->cuts != chunks) {
        diag_error(diag, NO_SPAN, "pins %s and pp=%d contradict each other: %d %ss, and %d", text,
                   pins->pp, pins->cuts, part, chunks);
        diag_help(diag, "give one number of layers for each %s, or leave one of the pins out",
                  part);
        return false;
    }
    if (pins->cuts && sum != layers) {
        diag_error(diag, NO_SPAN, "pin %s contradicts the model: %d in all; the model has %d", text,
                   sum, layers);
        diag_help(diag, "the numbers must add up to %d", layers);
        return false;
    }
    for (int i = 0; i < pins->cuts; i++)
        if (pins->cut[i] == 0 && i > 0 && i + 1 < pins->cuts) {
            diag_error(diag, NO_SPAN, "pin %s leaves %s %d without a layer", text, part, i);
            diag_help(diag, "only the first and the last %s have a link beside their layers", part);
            return false;
        }
    if (given > layers + 2 || chunks > layers + 2) {
        if (chunks > given)
            diag_error(diag, NO_SPAN,
                       "%d chunks on pp=%d stages contradict the model: it has %d layer%s",
                       chunks / given, given, layers, layers == 1 ? "" : "s");
        else
            diag_error(diag, NO_SPAN, "pin pp=%d contradicts the model: it has %d layer%s", given,
                       layers, layers == 1 ? "" : "s");
        diag_help(diag, "use at most %d %ss: one for each layer, and one at either end", layers + 2,
                  part);
        return false;
    }
    return true;
}

/* Two rows in one would both need the places of far gradients. */
static bool braid_fits(Diag *diag, const Pins *pins)
{
    if (pins->braid <= 0 || pins->home[KEPT_GRADIENTS] <= MEMORY_HBM)
        return true;
    diag_error(diag, NO_SPAN,
               "pin braid=1 contradicts gradient_home: layers of both rows would "
               "need the places of gradients on the device");
    diag_help(diag, "pin gradient_home=hbm, or braid=0");
    return false;
}

/* With these numbers there is no such schedule, or it never ends. */
static bool schedule_fits(Diag *diag, Arena *arena, const Problem *problem, const Pins *pins)
{
    Pins own = pins_complete(problem, *pins);
    int64_t micros = own.dp > 0 ? problem->job.global_batch / (own.micro_batch * own.dp) : 0;
    return micros < 1 || pins_rows(arena, diag, &own, (int)micros) != NULL;
}

bool micros_fit(Diag *diag, const Problem *problem, const Pins *pins)
{
    int64_t mbs = pins->micro_batch > 0 ? pins->micro_batch : MAX_MICRO_BATCH;
    int64_t others = (int64_t)(pins->tp > 0 ? pins->tp : 1) * (pins->pp > 0 ? pins->pp : 1),
            most = others < problem->ranks ? problem->ranks / others : 1,
            ranks = pins->dp > 0 ? pins->dp : most, batch = problem->job.global_batch;
    if (batch / (mbs * ranks) <= MAX_MICROS)
        return true;
    diag_error(diag, NO_SPAN,
               "a step of %lld sequences is more than %d micro-batches of %lld on dp %lld",
               (long long)batch, MAX_MICROS, (long long)mbs, (long long)ranks);
    diag_help(diag, "use a --global-batch of at most %lld, or a larger mbs or dp",
              (long long)(mbs * ranks * MAX_MICROS));
    return false;
}

static bool batch_fits(Diag *diag, const Problem *problem, const Pins *pins)
{
    long long batch = (long long)problem->job.global_batch, mbs = (long long)pins->micro_batch;
    int dp = pins->dp;
    if (dp < 1 && pins->tp > 0 && (pins->pp > 0 || pins->cuts > 0))
        dp = problem->ranks /
             (pins->tp * (pins->cp > 0 ? pins->cp : 1) * (pins->pp > 0 ? pins->pp : pins->cuts));
    if (mbs > 0 && batch % mbs) {
        diag_error(diag, NO_SPAN, "pin mbs=%lld contradicts the batch: it does not divide %lld",
                   mbs, batch);
        diag_help(diag, "use a divisor of it, or a --global-batch of %lld",
                  (batch + mbs - 1) / mbs * mbs);
        return false;
    }
    long long each = (mbs > 0 ? mbs : 1) * (dp > 0 ? dp : 1);
    if (batch % each == 0)
        return true;
    const char *whose = pins->dp > 0 ? "" : " (what tp and pp leave)";
    if (mbs > 0)
        diag_error(diag, NO_SPAN,
                   "pins mbs=%lld and dp=%d%s contradict the batch: %lld does not divide %lld", mbs,
                   dp, whose, each, batch);
    else
        diag_error(diag, NO_SPAN, "dp=%d%s contradicts the batch: it does not divide %lld", dp,
                   whose, batch);
    diag_help(diag, "use a --global-batch that is a multiple of %lld", each);
    return false;
}

/* Of the ranks of cp that exchange heads as many as have some, while the others pass keys on; false
 * after the refusal that names how many. */
static bool heads_fit(Diag *diag, Search *search, const Problem *problem, const Pins *pins)
{
    int heads = pins->cp_by == CROSS_HEADS ? pins->cp : pins->cp_heads;
    Pins other = *pins;
    other.cp_by = CROSS_RING;
    for (int fewer = heads - 1; pins->cp > 1 && fewer >= 1; fewer--) {
        other.cp_heads = fewer;
        if (pins->cp % fewer != 0 || search_labels(search, &other) <= 0)
            continue;
        diag_error(diag, NO_SPAN, "no layer of %s has heads for each of %d cp ranks on tp=%d",
                   problem->net->name, heads, pins->tp);
        diag_help(diag,
                  "let blocks of the sequence pass by the others: --pin cp_heads=%d,cp_by=ring",
                  fewer);
        return false;
    }
    return true;
}

/* A width that some tensor does not divide by, or a label that the blocks do not have. */
static bool blocks_fit(Diag *diag, Search *search, const Problem *problem, const Pins *pins)
{
    Pins own = pins_complete(problem, *pins);
    int labels = search_labels(search, &own);
    if (labels > 0 && pins->block < labels)
        return true;
    if (labels > 0) {
        diag_error(diag, NO_SPAN, "pins block=%d, tp=%d, sp=%d and recompute=%s: %s", pins->block,
                   own.tp, own.sp, own.recompute ? "full" : "none",
                   labels == 1 ? "their blocks have one label" : "their blocks have fewer labels");
        diag_help(diag, "labels are 0 to %d, fastest first", labels - 1);
        return false;
    }
    if (search_too_wide(search, &own))
        return class_too_wide(diag, problem->net->name, own.tp);
    if (!heads_fit(diag, search, problem, &own))
        return false;
    diag_error(diag, NO_SPAN, "no layer of %s can be placed on tp=%d%s", problem->net->name, own.tp,
               own.sp ? " with sp=1" : "");
    diag_help(diag, "heads, feed-forward width, vocabulary%s must divide by tp",
              own.sp ? " and sequence" : "");
    return false;
}

bool home_known(Diag *diag, const Cluster *cluster, Memory home, const char *who,
                const char *without)
{
    if (cluster->store[home].bytes > 0)
        return true;
    diag_error(diag, NO_SPAN, "%s: cluster %s does not say that it has any", who, cluster->name);
    diag_help(diag, "give its file \"memories\", or plan with %s", without);
    return false;
}

bool memories_known(Diag *diag, const Cluster *cluster, const Pins *pins)
{
    for (int k = 0; k < KEPT_COUNT; k++) {
        int home = pins->home[k];
        char who[64], without[64];
        snprintf(who, sizeof who, "pin %s=%s", kept_pin[k], home >= 0 ? memory_text[home] : "");
        snprintf(without, sizeof without, "--pin %s=hbm", kept_pin[k]);
        if (home > MEMORY_HBM && !home_known(diag, cluster, (Memory)home, who, without))
            return false;
    }
    return true;
}

/* A zigzag cuts the sequence into two runs a rank that has a part of it where positions meet. */
static bool order_fits(Diag *diag, int64_t sequence, const Pins *pins)
{
    if (pins->order != ORDER_ZIGZAG || pins->cp == 1)
        return true;
    int heads = pins->cp_heads > 1 ? pins->cp_heads : 1, runs = 2 * (pins->cp / heads);
    if (pins->cp > 1 && (pins->cp_by == CROSS_HEADS || runs == 2)) {
        diag_error(diag, NO_SPAN, "pin order=zigzag: these cp ranks hold whole sequences");
        diag_help(diag, "leave order out, or let some cp ranks cut the sequence: --pin cp_by=ring");
        return false;
    }
    if (pins->cp > 1 && sequence % runs != 0) {
        diag_error(diag, NO_SPAN, "a sequence of %lld does not divide by the %d runs of a zigzag",
                   (long long)sequence, runs);
        diag_help(diag, "pad the sequence to %lld, or leave order=zigzag out",
                  (long long)((sequence + runs - 1) / runs * runs));
        return false;
    }
    return true;
}

/* What the sequence must divide by: the cp ranks, and twice as many where they share causal work.
 */
bool sequence_fits(Diag *diag, const Problem *problem, const Pins *pins)
{
    int64_t sequence = problem->job.sequence;
    if (pins->cp > 1 && sequence % pins->cp != 0) {
        diag_error(diag, NO_SPAN, "a sequence of %lld does not divide by cp %d",
                   (long long)sequence, pins->cp);
        diag_help(diag, "pad the sequence to %lld, or use another cp",
                  (long long)((sequence + pins->cp - 1) / pins->cp * pins->cp));
        return false;
    }
    if (pins->cp_heads > 1 && pins->cp > 0 && pins->cp % pins->cp_heads != 0) {
        diag_error(diag, NO_SPAN, "cp_heads=%d is no divisor of cp=%d", pins->cp_heads, pins->cp);
        diag_help(diag, "cp_heads of the cp ranks exchange heads, the others do as cp_by says");
        return false;
    }
    int ring = pins->cp / (pins->cp_heads > 1 ? pins->cp_heads : 1);
    if (pins->cp_by == CROSS_RING && ring > MAX_TURNS) {
        diag_error(diag, NO_SPAN, "pin cp_by=ring: a ring of %d ranks; %d is the most", ring,
                   MAX_TURNS);
        diag_help(diag, "let more of them exchange heads: --pin cp_heads=%d",
                  (pins->cp + MAX_TURNS - 1) / MAX_TURNS);
        return false;
    }
    return order_fits(diag, sequence, pins);
}

/* Ranks of tp that do not cut experts have parts of the sequence where experts are, and share them
 * before dp ranks do. */
static bool apart_fits(Diag *diag, const Problem *problem, const Pins *pins)
{
    int64_t sequence = problem->job.sequence, parts = pins->tp * (pins->cp > 1 ? pins->cp : 1);
    Degrees degrees = {
        .tp = pins->tp, .cp = pins->cp > 1 ? pins->cp : 1, .dp = pins->dp > 0 ? pins->dp : 1};
    degrees_of_experts(pins->ep, pins->etp, &degrees);
    int ep = pins->ep > 1 ? pins->ep : 1, apart = pins->tp / pins->etp;
    if (sequence % parts != 0) {
        diag_error(diag, NO_SPAN,
                   "pin etp=%d beside tp=%d: a sequence of %lld does not divide by the %lld ranks "
                   "whose experts have parts of it",
                   pins->etp, pins->tp, (long long)sequence, (long long)parts);
        diag_help(diag, "pad the sequence to %lld, or use etp=%d",
                  (long long)((sequence + parts - 1) / parts * parts), pins->tp);
        return false;
    }
    if (apart % degrees.tp_ep == 0 && degrees.tp_ep * degrees.cp_ep * degrees.ep == ep &&
        (pins->dp <= 0 || pins->dp % degrees.ep == 0))
        return true;
    diag_error(diag, NO_SPAN, "pins ep=%d and etp=%d do not fit tp %d x cp %d x dp %d", ep,
               pins->etp, pins->tp, degrees.cp, degrees.dp);
    diag_help(diag, "ep is a divisor of tp / etp = %d, or that times a divisor of dp", apart);
    return false;
}

/* So many ranks of dp share experts, and cut each beside those of tp. */
static bool expert_ranks_fit(Diag *diag, const Problem *problem, const Pins *pins)
{
    int etp = pins->etp > 0 && pins->tp > 0 ? pins->etp : 1, tp = etp > 1 ? pins->tp : 1;
    int ep = pins->ep > 1 ? pins->ep : 1;
    if (pins->etp > 0 && pins->tp > 0 && pins->etp % pins->tp != 0 && pins->tp % pins->etp != 0) {
        diag_error(diag, NO_SPAN, "pins etp=%d and tp=%d: neither divides the other", pins->etp,
                   pins->tp);
        diag_help(diag,
                  "the ranks of tp cut each expert, or some of them, or dp ranks beside them "
                  "too: use etp=%d",
                  pins->tp);
        return false;
    }
    if (pins->etp > 0 && pins->etp < pins->tp)
        return apart_fits(diag, problem, pins);
    if (etp > tp && pins->cp > 1) {
        diag_error(diag, NO_SPAN, "pin etp=%d beside cp=%d: rows that are kept may not divide",
                   pins->etp, pins->cp);
        diag_help(diag, "use cp=1, or cut experts by tp alone and share them by ep");
        return false;
    }
    if (pins->dp > 0 && etp > tp && pins->dp % (etp / tp * ep) != 0) {
        diag_error(diag, NO_SPAN, "pins ep=%d and etp=%d do not divide tp %d x dp %d", ep,
                   pins->etp, pins->tp, pins->dp);
        diag_help(diag, "ep x etp must divide the ranks of a stage");
        return false;
    }
    Degrees degrees = {.tp = tp, .cp = pins->cp > 1 ? pins->cp : 1, .dp = pins->dp};
    degrees_of_experts(ep, 0, &degrees);
    if (pins->dp <= 0 || pins->dp % degrees.ep == 0)
        return true;
    diag_error(diag, NO_SPAN, "pin ep=%d does not divide dp %d", ep, pins->dp);
    diag_help(diag, "data-parallel ranks share the experts%s: use a divisor of dp%s%s",
              degrees.cp > 1 ? ", and those of cp with them" : "",
              degrees.cp > 1 ? ", or that times cp" : "",
              pins->tp > 1 ? ", or let ranks of tp share them: etp=1" : "");
    return false;
}

/* Rounds that were asked for hold whatever comes. */
static bool rounds_fit(Diag *diag, const Problem *problem, const Pins *pins)
{
    if (pins->rounds <= 1 || pins->ep <= 1 || pins->tp <= 0)
        return true;
    if (pins->etp > 0 && pins->ep < pins->tp / pins->etp) {
        diag_error(diag, NO_SPAN,
                   "pins rounds=%d, ep=%d and etp=%d with tp=%d: ranks of tp hold the same experts "
                   "for other tokens, and rounds that they deal out together may be full on one",
                   pins->rounds, pins->ep, pins->etp, pins->tp);
        diag_help(diag, "use ep=%d, etp=%d, or leave rounds out", pins->tp / pins->etp, pins->tp);
        return false;
    }
    if (pins->room <= 0)
        return true;
    int room = pins_rounds_room(problem, pins);
    if (pins->room >= room)
        return true;
    diag_error(diag, NO_SPAN,
               "pins room=%d and rounds=%d: all rows may fall on one rank, and these rounds do not "
               "hold them",
               pins->room, pins->rounds);
    diag_help(diag, "use room=%d, more rounds (at most %d), or leave room out", room, MAX_ROUNDS);
    return false;
}

/* Who pads messages must know a bound of each. */
static bool exchange_fits(Diag *diag, const Problem *problem, const Pins *pins)
{
    if (pins->exchange <= EXCHANGE_EXACT)
        return true;
    if (!problem->routed || pins->ep == 1) {
        diag_error(diag, NO_SPAN, "pin exchange=%s: no ranks share experts",
                   exchange_text[pins->exchange]);
        diag_help(diag, problem->routed ? "use ep=2 or more, or leave exchange out"
                                        : "leave exchange out: the model has no experts");
        return false;
    }
    if (pins->rounds <= 1 || pins->etp <= 0 || pins->etp >= pins->tp)
        return true;
    diag_error(
        diag, NO_SPAN,
        "pins exchange=%s, rounds=%d and etp=%d: ranks of tp may deal rows out together, and "
        "no message of one has a bound",
        exchange_text[pins->exchange], pins->rounds, pins->etp);
    diag_help(diag, "use exchange=exact, etp=%d, or leave rounds out", pins->tp);
    return false;
}

bool experts_fit(Diag *diag, const Problem *problem, const Pins *pins)
{
    int etp = pins->etp > 0 && pins->tp > 0 ? pins->etp : pins->tp;
    if (!exchange_fits(diag, problem, pins))
        return false;
    if (pins->ep <= 1 && pins->etp <= 0 && pins->rounds <= 1)
        return true;
    if (!problem->routed && (pins->ep > 1 || etp != pins->tp || pins->rounds > 1)) {
        const char *pin = pins->ep > 1 ? "ep" : pins->rounds > 1 ? "rounds" : "etp";
        diag_error(diag, NO_SPAN, "pin %s=%d: %s has no experts", pin,
                   pins->ep > 1       ? pins->ep
                   : pins->rounds > 1 ? pins->rounds
                                      : pins->etp,
                   problem->net->name);
        diag_help(diag, "leave %s out", pin);
        return false;
    }
    if (!expert_ranks_fit(diag, problem, pins))
        return false;
    const Net *net = problem->routed;
    for (int d = 0; pins->ep > 1 && d < net->dims.n; d++) {
        const Dim *dim = &net->dims.at[d];
        int64_t experts = dim->kind == DIM_ROUTED ? net->dims.at[dim->among].extent : 0;
        if (experts % pins->ep == 0)
            continue;
        diag_error(diag, NO_SPAN, "pin ep=%d does not divide %lld experts", pins->ep,
                   (long long)experts);
        diag_help(diag, "use a divisor of the number of experts");
        return false;
    }
    return rounds_fit(diag, problem, pins);
}

static bool is_free(const Pins *pins)
{
    return pins->tp < 0 && pins->cp < 0 && pins->dp < 0 && pins->pp < 0 && pins->cuts == 0 &&
           pins->micro_batch <= 0 && pins->block < 0 && !pins->schedule && pins->chunks < 0 &&
           pins->ep < 0;
}

void say_contradiction(Diag *diag, Search *search, const Problem *problem, const Pins *pins)
{
    Arena *arena = problem->arena;
    Pins own = pins_complete(problem, *pins);
    if (!micros_fit(diag, problem, pins))
        return;
    if (!is_free(pins) &&
        (!degrees_fit(diag, arena, problem, pins) || !layers_fit(diag, arena, problem, pins) ||
         !sequence_fits(diag, problem, pins) || !batch_fits(diag, problem, pins) ||
         !braid_fits(diag, pins) || !schedule_fits(diag, arena, problem, pins) ||
         !experts_fit(diag, problem, &own) || !blocks_fit(diag, search, problem, pins)))
        return;
    diag_error(diag, NO_SPAN, "%d devices cannot share this job%s", problem->ranks,
               is_free(pins) ? "" : " with these pins");
    diag_help(diag,
              "tp x pp of them must divide the model's heads and layers, and the rest (dp) the "
              "batch of %lld: try a --global-batch that is a multiple of %d",
              (long long)problem->job.global_batch, problem->ranks);
}
