/* import_training.c - what a config says of training beside the model: dropout, and the term that
 * balances experts. Taken when the user asks for it, noted otherwise. */
#include <string.h>

#include "planner/import_features.h"

#define COUNT_OF(array) (int)(sizeof(array) / sizeof *(array))

/* Where the library's code drops out. */
enum {
    AT_EMBED = 1 << DROP_EMBED,
    AT_ATTENTION = 1 << DROP_ATTENTION,
    AT_MLP = 1 << DROP_MLP,
    AT_SCORES = 1 << DROP_SCORES,
    AT_BOTH = AT_ATTENTION | AT_MLP
};

/* Rows of a family stand above those of any (NULL); `usual`: the library's default, where it is not
 * zero. */
static const struct DropRow {
    const char *key, *family;
    unsigned sites;
    double usual;
} rows[] = {
    {"embd_pdrop", "gpt2", AT_EMBED, 0.1},
    {"resid_pdrop", "gpt2", AT_BOTH, 0.1},
    {"attn_pdrop", "gpt2", AT_SCORES, 0.1},
    {"embd_pdrop", "gpt_bigcode", AT_EMBED, 0.1},
    {"resid_pdrop", "gpt_bigcode", AT_BOTH, 0.1},
    {"attn_pdrop", "gpt_bigcode", AT_SCORES, 0.1},
    {"dropout", "opt", AT_BOTH, 0.1},
    {"hidden_dropout", "gpt_neox", AT_EMBED | AT_BOTH, 0},
    {"hidden_dropout", "stablelm", AT_MLP, 0},
    {"embd_pdrop", NULL, AT_EMBED, 0},
    {"emb_pdrop", NULL, AT_EMBED, 0},
    {"embed_dropout", NULL, AT_EMBED, 0},
    {"embedding_dropout", NULL, AT_EMBED, 0},
    {"resid_pdrop", NULL, AT_BOTH, 0},
    {"resid_dropout", NULL, AT_BOTH, 0},
    {"residual_dropout", NULL, AT_BOTH, 0},
    {"hidden_dropout", NULL, AT_BOTH, 0},
    {"attn_pdrop", NULL, AT_SCORES, 0},
    {"attention_dropout", NULL, AT_SCORES, 0},
    {"attn_config.attn_pdrop", NULL, AT_SCORES, 0},
};

static const struct DropRow *row_of(const ConfigReader *reader, const char *key)
{
    const struct DropRow *any = NULL;
    for (int i = 0; i < COUNT_OF(rows); i++) {
        if (!str_eq(rows[i].key, key))
            continue;
        if (str_eq(rows[i].family, reader->family->model_type))
            return &rows[i];
        any = rows[i].family ? any : &rows[i];
    }
    return any;
}

static const char *const further_key = "num_nextn_predict_layers";

bool training_reads(const ConfigReader *reader, const char *key)
{
    return (reader->options->dropout && row_of(reader, key) != NULL) ||
           (reader->options->further > 0 && str_eq(key, further_key));
}

/* A member of the config, or of an object in it: "outer.inner". */
static Json member_at(Json config, const char *key, Arena *arena)
{
    for (const char *dot; (dot = strchr(key, '.')) != NULL; key = dot + 1) {
        config = json_get(config, arena_strndup(arena, key, (size_t)(dot - key)));
        if (!json_is_object(config))
            return (Json){0};
    }
    return json_get(config, key);
}

static void settle_dropout(ConfigReader *reader, Features *ret)
{
    for (int i = 0; i < COUNT_OF(rows); i++) {
        const struct DropRow *row = &rows[i];
        if (row_of(reader, row->key) != row)
            continue;
        Json at = member_at(reader->config, row->key, reader->arena);
        double rate = at.value ? 0 : row->usual;
        if (at.value && json_typeof(at.value) != JSON_NULL && !json_num(at, 0, 0.999, &rate)) {
            config_fail(reader);
            continue;
        }
        if (rate > 0 && !at.value)
            list_add(&reader->defaults, arena_printf(reader->arena, "%s %g", row->key, rate));
        for (int site = 0; site < DROP_COUNT; site++) {
            if (rate > 0 && (row->sites >> site & 1))
                ret->drop[site] = rate;
        }
    }
    double any = 0;
    for (int site = 0; site < DROP_COUNT; site++)
        any += ret->drop[site];
    if (any == 0)
        config_note(reader, "no dropout: the config has none");
}

static double coefficient(ConfigReader *reader, const char *key, double usual)
{
    Json at = json_get(reader->config, key);
    if (at.value && json_typeof(at.value) != JSON_NULL && !json_num(at, 0, 1e3, &usual))
        config_fail(reader);
    return usual;
}

/* The library's Switch-style term, E sum f P with f and P taken over the tokens of all layers
 * together and f summed over the choices: ours is of each layer, so a layer has 1 / layers of it.
 * DeepSeek's own code adds the term of each layer, of each sequence when seq_aux. */
static void settle_balance(ConfigReader *reader, Features *ret)
{
    bool loud = false, asked = reader->options->balance, seq = true;
    Experts *e = &ret->experts;
    if (!json_opt_bool(reader->config, "output_router_logits", &loud) ||
        !json_opt_bool(reader->config, "seq_aux", &seq)) {
        config_fail(reader);
        return;
    }
    double pooled = coefficient(reader, "router_aux_loss_coef", 0);
    double own = coefficient(reader, "aux_loss_alpha", 0);
    if (e->count == 0 || (!asked && !(loud && pooled > 0)))
        return;
    if (reader->family->choose_first || e->sigmoid) {
        config_note(reader, "no balance term: the scores of this family are no shares of all "
                            "experts");
        return;
    }
    int64_t routed = 0;
    for (int64_t i = 0; i < ret->layers; i++)
        routed += ret->layer[i].experts;
    e->balance = pooled > 0 ? pooled * (double)e->chosen / (double)(routed ? routed : 1) : own;
    e->balance_each = pooled == 0 && seq;
    if (pooled > 0)
        config_note(reader,
                    "router_aux_loss_coef: experts are balanced in each layer, with 1/layers of "
                    "the coefficient; the library pools the tokens of all layers");
    else if (own == 0)
        config_note(reader, "no balance term: the config has no coefficient");
}

static void refuse_further(ConfigReader *reader, Json at, const char *why)
{
    json_fail(at, "--mtp: %s", why);
    diag_help(reader->diag, "import without --mtp; a model file may say it by \"ahead\" of "
                            "embedding and cross_entropy");
    config_fail(reader);
}

/* One layer more predicts the token after the next (multi-token prediction). No config says with
 * which factor its loss was trained: DeepSeek-V3's was 0.3, then 0.1. */
static void settle_further(ConfigReader *reader, Features *ret)
{
    Json at = json_get(reader->config, further_key);
    int64_t layers = 0;
    if (!json_opt_int(reader->config, further_key, 0, 1 << 10, &layers)) {
        config_fail(reader);
        return;
    }
    if (layers == 0)
        config_note(reader, "no multi-token prediction: the config has no layer for it");
    else if (!reader->family->names->join)
        refuse_further(reader, at,
                       "what this family calls the tensors of its extra prediction "
                       "layers is not known");
    else if (layers > 1)
        refuse_further(reader, at,
                       "one layer that predicts further tokens is imported, not several");
    else if (ret->tie)
        refuse_further(reader, at, "the embedding would be used in three places, as the head too");
    else
        ret->further = reader->options->further;
}

void training_settle(ConfigReader *reader, Features *ret)
{
    if (reader->options->further > 0)
        settle_further(reader, ret);
    if (reader->options->dropout)
        settle_dropout(reader, ret);
    settle_balance(reader, ret);
}
