/* model.c - lplan-model/1: dims, blocks and the chain become a Net with its gradients. */
#include "ir/model.h"

#include <string.h>

#include "ir/model_reader.h"

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const int64_t max_extent = INT64_C(1) << 40;
static const int64_t max_elements = INT64_C(1) << 62;
enum { MAX_LINKS = 10000, MAX_DIMS = 48, NAME_LONGEST = 63 };

/* ---- names and shapes, for model_ops.c too ---- */

bool model_dim(Reader *r, Json at, DimId *ret)
{
    const char *name = NULL;
    if (!json_str(at, &name))
        return false;
    *ret = net_dim(r->net, name);
    if (*ret != NONE)
        return true;
    json_fail(at, "unknown dim \"%s\"", name);
    const char *near = str_nearest(name, r->dim_names, r->net->dims.n);
    if (near)
        diag_help(r->diag, "did you mean \"%s\"?", near);
    else
        diag_help(r->diag, "add it to \"dims\"");
    return false;
}

const char *model_shape(Reader *r, int axes, const DimId *dim)
{
    Str str = str_new(r->arena);
    str_putc(&str, '[');
    for (int a = 0; a < axes; a++)
        str_putf(&str, "%s%s", a > 0 ? ", " : "", r->net->dims.at[dim[a]].name);
    str_putc(&str, ']');
    return str.at;
}

const char *model_value_shape(Reader *r, ValueId value)
{
    const Value *v = &r->graph->values.at[value];
    return model_shape(r, v->axes, v->dim);
}

void model_define(Reader *r, ValueId value, Json at)
{
    while (r->defined.n < r->graph->values.n) {
        vec_push(r->arena, &r->defined) = (Json){0};
        vec_push(r->arena, &r->used) = false;
    }
    r->defined.at[value] = at;
}

static const char *const reserved[] = {"ids",    "positions", "labels", "weight",
                                       "starts", "loss",      "grad_in"};

/* C tells identifiers apart by their first 63 letters, and longer names are made of these. */
static bool is_name(const char *text)
{
    return name_is_identifier(text, false) && strlen(text) <= NAME_LONGEST;
}

static bool help_name(Reader *r)
{
    diag_help(r->diag, "use at most %d letters, digits and '_', and begin with a letter or '_'",
              NAME_LONGEST);
    return false;
}

bool model_new_name(Reader *r, Json at, const char **ret)
{
    const char *name = NULL;
    if (!json_str(at, &name))
        return false;
    if (!is_name(name)) {
        json_fail(at, "\"%s\" is not an identifier", name);
        return help_name(r);
    }
    for (int i = 0; i < COUNT_OF(reserved); i++) {
        if (strcmp(reserved[i], name) == 0) {
            json_fail(at, "\"%s\" has a meaning of its own", name);
            diag_help(r->diag, "give the value another name");
            return false;
        }
    }
    if (graph_find(r->graph, name) != NONE) {
        json_fail(at, "\"%s\" is defined twice", name);
        diag_help(r->diag, "a value is made once: give the second another name");
        return false;
    }
    *ret = arena_strdup(r->arena, name);
    return true;
}

ValueId model_data(Reader *r, DataId data)
{
    const Net *net = r->net;
    ValueId *known = &r->graph->data[data];
    if (*known == NONE)
        graph_value(r->graph, VALUE_DATA, data_text[data], 2, (DimId[]){net->batch, net->sequence});
    return *known;
}

ValueId model_positions(Reader *r, const char *name, int64_t offset)
{
    Attrs iota = {.iota = {.offset = offset}};
    if (!r->packed)
        return model_node(r, OP_IOTA, name, "->s", &iota, NULL, 0);
    ValueId starts = model_data(r, DATA_STARTS);
    const char *l = model_letters(r, starts);
    return model_node(r, OP_PLACES, name, arena_printf(r->arena, "%s->%s", l, l), &iota, &starts,
                      1);
}

/* ids and positions exist once an op reads them. */
static ValueId implicit_value(Reader *r, const char *name)
{
    const Net *net = r->net;
    if (strcmp(name, "ids") == 0)
        return graph_value(r->graph, VALUE_DATA, name, 2, (DimId[]){net->batch, net->sequence});
    if (strcmp(name, "positions") == 0)
        return model_positions(r, name, 0);
    return NONE;
}

static bool unknown_value(Reader *r, Json at, const char *name)
{
    json_fail(at, "no value \"%s\" is made before this op", name);
    VEC(const char *) known = {0};
    for (int v = 0; v < r->defined.n; v++) {
        if (r->defined.at[v].value)
            vec_push(r->arena, &known) = r->graph->values.at[v].name;
    }
    vec_push(r->arena, &known) = "ids";
    vec_push(r->arena, &known) = "positions";
    const char *near = str_nearest(name, known.at, known.n);
    if (near)
        diag_help(r->diag, "did you mean \"%s\"?", near);
    else if (strcmp(name, "labels") == 0 || strcmp(name, "weight") == 0)
        diag_help(r->diag, "only cross_entropy reads the labels and their weights");
    else
        diag_help(r->diag, "ops stand in the order in which they run; \"ids\" and \"positions\" "
                           "are always there");
    return false;
}

bool model_operand(Reader *r, Json at, ValueId *ret)
{
    const char *name = NULL;
    if (!json_str(at, &name))
        return false;
    ValueId id = graph_find(r->graph, name);
    if (id == NONE)
        id = implicit_value(r, name);
    bool of_loss = false;
    for (int k = 0; id != NONE && k < graph_losses(r->graph); k++)
        of_loss = of_loss || id == graph_loss(r->graph, k);
    for (int d = 0; d < DATA_COUNT; d++)
        of_loss = of_loss || (d != DATA_IDS && id != NONE && id == r->graph->data[d]);
    if (id == NONE || of_loss || strchr(name, '.'))
        return unknown_value(r, at, name);
    while (r->defined.n < r->graph->values.n)
        model_define(r, r->graph->values.n - 1, (Json){0});
    r->used.at[id] = true;
    *ret = id;
    return true;
}

/* ---- dims ---- */

static bool read_dims(Reader *r, Json dims, int64_t batch, int64_t sequence)
{
    net_add_dim(r->net, "b", DIM_BATCH, batch);
    net_add_dim(r->net, "s", DIM_SEQUENCE, sequence);
    if (!json_want_object(dims))
        return false;
    bool fine = true;
    for (int i = 0; i < json_len(dims) && i < MAX_DIMS; i++) {
        const char *name = NULL;
        Json at = json_member(dims, i, &name);
        int64_t extent = 0;
        if (!is_name(name)) {
            json_fail_key(dims, name, "\"%s\" is not an identifier", name);
            fine = help_name(r);
        } else if (net_dim(r->net, name) != NONE) {
            fine = json_fail_key(dims, name, "dim %s is always there", name);
            diag_help(r->diag, "b (batch) and s (sequence) come from the job: remove it");
        } else if (json_int(at, 1, max_extent, &extent)) {
            net_add_dim(r->net, name, DIM_OTHER, extent);
        } else {
            fine = false;
        }
    }
    if (json_len(dims) > MAX_DIMS) {
        fine = json_fail(dims, "%d dims, at most %d are possible", json_len(dims), MAX_DIMS);
        diag_help(r->diag, "share dims between blocks");
    }
    r->dim_names = ARENA_ARRAY(r->arena, const char *, r->net->dims.n);
    for (int i = 0; i < r->net->dims.n; i++)
        r->dim_names[i] = r->net->dims.at[i].name;
    return fine;
}

static void pad_dim(Reader *r, Json at, int64_t multiple)
{
    DimId id = net_dim(r->net, model_text(at));
    if (id == NONE)
        return;
    Dim *dim = &r->net->dims.at[id];
    dim->extent = (dim->used + multiple - 1) / multiple * multiple;
}

/* Rows of tables that ids address, and the dim of the logits. What is malformed is reported by the
 * reading proper. */
static void pad_vocabulary_dims(Reader *r, Json blocks, int64_t multiple)
{
    for (int b = 0; b < json_len(blocks); b++) {
        const char *name = NULL;
        Json ops = json_get(json_member(blocks, b, &name), "ops");
        if (!json_is_array(ops))
            continue;
        const char *logits = NULL;
        for (int i = json_len(ops) - 1; i >= 0; i--) {
            Json op = json_at(ops, i);
            const char *kind = model_text(json_get(op, "op"));
            if (strcmp(kind, "cross_entropy") == 0)
                logits = model_text(json_get(op, "in"));
            else if (strcmp(kind, "embedding") == 0 &&
                     strcmp(model_text(json_get(op, "in")), "ids") == 0)
                pad_dim(r, json_get(op, "rows"), multiple);
            else if (strcmp(kind, "linear") == 0 && logits &&
                     strcmp(model_text(json_get(op, "out")), logits) == 0) {
                Json to = json_get(op, "to");
                if (json_is_array(to) && json_len(to) > 0)
                    pad_dim(r, json_at(to, json_len(to) - 1), multiple);
            }
        }
    }
}

/* ---- the chain ---- */

/* An earlier class with the same content, or the new one under a name of its own. */
static int settle_class(Reader *r, Graph *graph)
{
    Net *net = r->net;
    Str mine = str_new(r->arena);
    graph_put_body(&mine, graph);
    for (int c = 0; c < net->classes.n - 1; c++) {
        Str other = str_new(r->arena);
        graph_put_body(&other, net->classes.at[c]);
        if (str_eq(mine.at, other.at)) {
            net->classes.n--;
            return c;
        }
    }
    const char *stem = graph->name;
    for (int i = 2, c = 0; c < net->classes.n - 1; c++) {
        if (str_eq(net->classes.at[c]->name, graph->name)) {
            graph->name = arena_printf(r->arena, "%s_%d", stem, i++);
            c = -1;
        }
    }
    return net->classes.n - 1;
}

/* A name of two links is one tied parameter; more links, or two shapes, are mistakes. */
static bool check_ties(Reader *r, Json entry, int class, int index)
{
    Net *net = r->net;
    const Graph *graph = net->classes.at[class];
    for (int p = 0; p < graph->params.n; p++) {
        const char *name = param_name(r->arena, &graph->params.at[p], index);
        bool new;
        int at = name_table_add(&r->names, name, &new);
        if (new) {
            vec_push(r->arena, &net->params) =
                (NetParam){.name = name, .class = class, .param = p, .uses = 1};
            continue;
        }
        NetParam *known = &net->params.at[at];
        if (!param_same_shape(net, known, class, p)) {
            json_fail(entry, "parameter \"%s\" has another shape in an earlier block", name);
            diag_help(r->diag, "tied parameters have the same dims in the same order");
            return false;
        }
        if (++known->uses > 2) {
            json_fail(entry, "parameter \"%s\" is used by more than two links", name);
            diag_help(r->diag, "set \"first\" so that layer numbers of two entries differ");
            return false;
        }
    }
    return true;
}

static bool block_named(Reader *r, Json at, Json blocks, const char **ret_name, Json *ret)
{
    if (!json_str(at, ret_name))
        return false;
    VEC(const char *) known = {0};
    for (int i = 0; i < json_len(blocks); i++) {
        Json block = json_member(blocks, i, &vec_push(r->arena, &known));
        if (strcmp(known.at[i], *ret_name) == 0) {
            *ret = block;
            return true;
        }
    }
    json_fail(at, "unknown block \"%s\"", *ret_name);
    const char *near = str_nearest(*ret_name, known.at, known.n);
    if (near)
        diag_help(r->diag, "did you mean \"%s\"?", near);
    else
        diag_help(r->diag, "define it in \"blocks\"");
    return false;
}

static bool read_entry(Reader *r, Json entry, Json blocks, bool last, Handed *handed)
{
    static const char *const keys[] = {"block", "repeat", "first", "each"};
    const char *name = NULL;
    Json block, each = json_get(entry, "each");
    int64_t repeat = 1, first = 0;
    if (!json_want_object(entry) || !json_only_keys(entry, keys, COUNT_OF(keys)) ||
        !block_named(r, json_get(entry, "block"), blocks, &name, &block) ||
        !json_opt_int(entry, "repeat", 1, MAX_LINKS, &repeat) ||
        !json_opt_int(entry, "first", 0, MAX_LINKS, &first))
        return false;
    if (!is_name(name)) {
        json_fail(json_get(entry, "block"), "block name \"%s\" is not an identifier", name);
        return help_name(r);
    }
    bool varied = json_has(entry, "each");
    if (varied && (!json_want_array(each) || json_len(each) != repeat)) {
        json_fail(each, "\"each\" must list one object per repeat, %lld", (long long)repeat);
        diag_help(r->diag, "an empty object changes nothing");
        return false;
    }
    r->repeated = repeat > 1;
    int class = NONE;
    for (int i = 0; i < (int)repeat; i++) {
        r->each = varied ? json_at(each, i) : (Json){0};
        if (varied || class == NONE) {
            Graph *graph = model_read_block(r, block, name, entry, handed, last && i == repeat - 1);
            if (!graph)
                return false;
            class = settle_class(r, graph);
        }
        Graph *graph = r->net->classes.at[class];
        vec_push(r->arena, &r->net->chain) = (Link){class, (int)(first + i)};
        if (!check_ties(r, entry, class, (int)(first + i)))
            return false;
        if (graph->chain_out == NONE) {
            handed->any = false;
            continue;
        }
        const Value *out = &graph->values.at[graph->chain_out];
        bool same = handed->any && handed->axes == out->axes &&
                    memcmp(handed->dim, out->dim, (size_t)out->axes * sizeof *out->dim) == 0;
        if (!same && i + 1 < repeat) {
            json_fail(json_get(block, "out"),
                      "a repeated block must hand on what it takes, %s "
                      "not %s",
                      handed->any ? model_shape(r, handed->axes, handed->dim) : "nothing",
                      model_shape(r, out->axes, out->dim));
            diag_help(r->diag, "give \"in\" and \"out\" the same dims");
            return false;
        }
        *handed = (Handed){.any = true, .axes = out->axes};
        memcpy(handed->dim, out->dim, sizeof handed->dim);
    }
    return true;
}

static bool read_chain(Reader *r, Json chain, Json blocks)
{
    if (!json_want_array(chain) || !json_want_object(blocks))
        return false;
    if (json_len(chain) == 0) {
        json_fail(chain, "an empty chain");
        diag_help(r->diag, "list the blocks in the order in which they run");
        return false;
    }
    Handed handed = {0};
    for (int i = 0; i < json_len(chain); i++) {
        if (!read_entry(r, json_at(chain, i), blocks, i + 1 == json_len(chain), &handed))
            return false;
    }
    for (int i = 0; i < json_len(blocks); i++) {
        const char *name = NULL;
        json_member(blocks, i, &name);
        bool used = false;
        for (int c = 0; c < json_len(chain); c++)
            used = used || strcmp(model_text(json_get(json_at(chain, c), "block")), name) == 0;
        if (!used) {
            json_fail_key(blocks, name, "no link of the chain is block \"%s\"", name);
            diag_help(r->diag, "add it to \"chain\", or remove it");
            return false;
        }
    }
    return true;
}

static bool check_total(Reader *r, Json model)
{
    int64_t total = 0;
    for (int i = 0; i < r->net->params.n; i++) {
        const NetParam *param = &r->net->params.at[i];
        const Graph *graph = r->net->classes.at[param->class];
        int64_t elements =
            value_elements(r->net, &graph->values.at[graph->params.at[param->param].value]);
        if (elements > max_elements - total) {
            json_fail(model, "the model has more than 2^62 parameters");
            diag_help(r->diag, "make the dims or the repeats smaller");
            return false;
        }
        total += elements;
    }
    return true;
}

static bool check_head(Reader *r, Json model, const char **ret_name)
{
    static const char *const keys[] = {"format", "name",   "init_std", "packed",
                                       "dims",   "blocks", "chain"};
    static const char *const formats[] = {"lplan-model/1"};
    int format = 0;
    if (!json_want_object(model))
        return false;
    if (!json_has(model, "format") && json_has(model, "model_type")) {
        json_fail_key(model, "model_type", "this is a Hugging Face config, not a model graph");
        diag_help(r->diag, "make one of it: lplan import CONFIG -o MODEL");
        return false;
    }
    if (!json_word(json_get(model, "format"), formats, 1, &format) ||
        !json_only_keys(model, keys, COUNT_OF(keys)) ||
        !json_str(json_get(model, "name"), ret_name) ||
        !json_opt_num(model, "init_std", 0, 1e6, &r->init_std) ||
        !json_opt_bool(model, "packed", &r->packed))
        return false;
    size_t length = strlen(*ret_name);
    bool fine = length > 0 && length <= 100;
    for (const char *c = *ret_name; *c && fine; c++)
        fine = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
               strchr("_.-", *c) != NULL;
    if (!fine) {
        json_fail(json_get(model, "name"), "\"%s\" is no model name", *ret_name);
        diag_help(r->diag, "use letters, digits, '_', '.' and '-'");
    }
    return fine;
}

static bool check_job(Diag *diag, const char *what, int64_t value, int64_t max)
{
    if (value >= 1 && value <= max)
        return true;
    diag_error(diag, NO_SPAN, "a %s of %lld", what, (long long)value);
    diag_help(diag, "1 to %lld are possible", (long long)max);
    return false;
}

Net *model_read(Arena *arena, Diag *diag, Json model, int64_t batch, int64_t sequence,
                int64_t pad_vocabulary)
{
    Reading reading = {.batch = batch, .sequence = sequence, .pad_vocabulary = pad_vocabulary};
    return model_read_as(arena, diag, model, &reading);
}

Net *model_read_as(Arena *arena, Diag *diag, Json model, const Reading *reading)
{
    const char *name = NULL;
    Reader r = {.arena = arena,
                .diag = diag,
                .init_std = 0.02,
                .routed = reading->routed,
                .reading = reading};
    if (!check_job(diag, "micro-batch", reading->batch, max_extent) ||
        !check_job(diag, "sequence length", reading->sequence, max_extent) ||
        !check_job(diag, "vocabulary multiple", reading->pad_vocabulary, 1 << 20) ||
        !check_head(&r, model, &name))
        return NULL;
    r.net = net_new(arena, name);
    r.names = name_table_new(arena);
    Json blocks = json_get(model, "blocks");
    if (!read_dims(&r, json_get(model, "dims"), reading->batch, reading->sequence) ||
        !json_want_object(blocks))
        return NULL;
    pad_vocabulary_dims(&r, blocks, reading->pad_vocabulary);
    if (!read_chain(&r, json_get(model, "chain"), blocks) || !check_total(&r, model))
        return NULL;
    net_collect_params(r.net);
    return net_verify(r.net, diag) ? r.net : NULL;
}

Net *model_load(Arena *arena, Diag *diag, const char *path, int64_t batch, int64_t sequence,
                int64_t pad_vocabulary, JsonDoc **ret_doc)
{
    JsonDoc *doc = json_load(arena, diag, path);
    if (!doc)
        return NULL;
    Net *net = model_read(arena, diag, json_root(doc), batch, sequence, pad_vocabulary);
    if (net && ret_doc)
        *ret_doc = doc;
    else
        json_doc_free(doc);
    return net;
}
