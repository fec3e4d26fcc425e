/* change.c - finds what a key names and gives it its value. */
#include "planner/change.h"

#include <stdlib.h>
#include <string.h>

#include "ir/pin_ranges.h"
#include "ir/plan_job.h"

typedef struct Field {
    const char *name;
    int64_t *at;
} Field;

static bool read_value(Diag *diag, const char *key, const char *text, int64_t was, int64_t *ret)
{
    static const struct {
        const char *text;
        double factor;
    } unit[] = {{"", 1},
                {"k", 1e3},
                {"M", 1e6},
                {"G", 1e9},
                {"T", 1e12},
                {"KB", 1e3},
                {"MB", 1e6},
                {"GB", 1e9},
                {"TB", 1e12},
                {"KiB", 1024.0},
                {"MiB", 1048576.0},
                {"GiB", 1073741824.0},
                {"TiB", 1099511627776.0}};
    bool times = text[0] == 'x';
    char *end;
    double value = strtod(text + times, &end);
    for (size_t i = 0; end != text + times && i < sizeof unit / sizeof *unit; i++) {
        if (!str_eq(end, unit[i].text))
            continue;
        double result = value * unit[i].factor * (times ? (double)was : 1.0);
        if (!(result >= 1 && result <= 1e18)) /* nor is it NaN */
            break;
        *ret = (int64_t)(result + 0.5);
        return true;
    }
    diag_error(diag, NO_SPAN, "%s=%s is not a number", key, text);
    diag_help(diag, "write 80GiB, 1e12, or x2 for twice what it was");
    return false;
}

/* What the reader of clusters does not take, no change makes of one. */
static bool cluster_holds(const Problem *problem, const char *key, const char *value)
{
    Arena *arena = problem->arena;
    json_t *json = cluster_json(problem->cluster, MEMORY_NVME);
    const char *text = json_text(arena, json), *name = arena_printf(arena, "%s=%s", key, value);
    json_decref(json);
    JsonDoc *doc = json_parse(arena, problem->diag, name, text, strlen(text));
    return doc && cluster_read(arena, problem->diag, json_root(doc)) != NULL;
}

static bool set_field(Diag *diag, const char *key, const char *name, const Field *fields, int n,
                      const char *value)
{
    const char *names[16];
    for (int i = 0; i < n; i++) {
        names[i] = fields[i].name;
        if (str_eq(fields[i].name, name))
            return read_value(diag, key, value, *fields[i].at, fields[i].at);
    }
    diag_error(diag, NO_SPAN, "%s names no figure of the cluster", key);
    const char *near = str_nearest(name, names, n);
    Str list = str_new(arena_new("names"));
    for (int i = 0; i < n; i++)
        str_putf(&list, "%s%s", i ? ", " : "", names[i]);
    if (near)
        diag_help(diag, "did you mean %s?", near);
    else
        diag_help(diag, "there are %s", list.at);
    arena_free(list.arena);
    return false;
}

static bool set_device(Problem *problem, const char *key, const char *name, const char *value)
{
    Device *device = &problem->cluster->device;
    const Field fields[] = {{"memory_bytes", &device->memory_bytes},
                            {"margin_bytes", &device->margin_bytes},
                            {"flops_f32", &device->flops_f32},
                            {"flops_bf16", &device->flops_bf16},
                            {"memory_bytes_per_s", &device->memory_bytes_per_s},
                            {"launch_ns", &device->launch_ns},
                            {"gemm_permille", &device->gemm_permille},
                            {"small_gemm_flops", &device->small_gemm_flops},
                            {"memory_permille", &device->memory_permille},
                            {"attention_permille", &device->attention_permille},
                            {"attention_row_pairs", &device->attention_row_pairs},
                            {"host_wait_ns", &device->host_wait_ns}};
    return set_field(problem->diag, key, name, fields, sizeof fields / sizeof *fields, value);
}

static bool set_link(Problem *problem, const char *key, const char *path, const char *value)
{
    Cluster *cluster = problem->cluster;
    const char *dot = strchr(path, '.');
    for (int i = 0; dot && i < cluster->levels; i++) {
        LinkLevel *level = &cluster->level[i];
        size_t length = (size_t)(dot - path);
        bool named = strncmp(level->name, path, length) == 0 && level->name[length] == '\0';
        bool placed = length == 1 && path[0] == '0' + i;
        if (!named && !placed)
            continue;
        const Field fields[] = {{"bytes_per_s", &level->bytes_per_s},
                                {"latency_ns", &level->latency_ns},
                                {"half_bytes", &level->half_bytes}};
        return set_field(problem->diag, key, dot + 1, fields, 3, value);
    }
    diag_error(problem->diag, NO_SPAN, "%s names no link of cluster %s", key, cluster->name);
    diag_help(problem->diag, "such as links.%s.bytes_per_s", cluster->level[0].name);
    return false;
}

/* A plan's cluster was cut to the devices it uses. Where it came from a preset, that knows the
 * widths of its domains and the links beyond them. */
static void restore_widths(const Problem *problem, Cluster *cluster)
{
    Diag *unheard = diag_new(problem->arena);
    const Cluster *preset = cluster_load(problem->arena, unheard, cluster->name);
    if (!preset || preset->levels < cluster->levels)
        return;
    for (int i = 0; i < preset->levels; i++) {
        if (i >= cluster->levels)
            cluster->level[i] = preset->level[i];
        cluster->level[i].width = preset->level[i].width;
    }
    cluster->levels = preset->levels;
}

static bool set_gpus(Problem *problem, Pins *pins, const char *key, const char *value)
{
    int64_t devices;
    if (!read_value(problem->diag, key, value, problem->ranks, &devices))
        return false;
    restore_widths(problem, problem->cluster);
    if (!cluster_resize(problem->diag, problem->cluster,
                        (int)(devices < 1 << 20 ? devices : 1 << 20)))
        return false;
    /* data parallelism takes what is added */
    if (pins->dp > 0 && (pins->dp * devices) % problem->ranks == 0)
        pins->dp = (int)(pins->dp * devices / problem->ranks);
    problem->ranks = problem->cluster->devices;
    return true;
}

bool change_apply(Problem *problem, Pins *pins, const char *key, const char *value,
                  bool *ret_reread)
{
    Cluster *cluster = ARENA_NEW(problem->arena, Cluster);
    *cluster = *problem->cluster;
    problem->cluster = cluster;
    if (strncmp(key, "device.", 7) == 0)
        return set_device(problem, key, key + 7, value) && cluster_holds(problem, key, value);
    if (strncmp(key, "links.", 6) == 0)
        return set_link(problem, key, key + 6, value) && cluster_holds(problem, key, value);
    if (str_eq(key, "gpus"))
        return set_gpus(problem, pins, key, value);
    if (str_eq(key, "global_batch"))
        return read_value(problem->diag, key, value, problem->job.global_batch,
                          &problem->job.global_batch);
    if (str_eq(key, "sequence")) {
        *ret_reread = true;
        return read_value(problem->diag, key, value, problem->job.sequence, &problem->job.sequence);
    }
    if (str_eq(key, "recipe")) {
        problem->job.recipe = arena_strdup(problem->arena, value);
        return recipe_by_name(value) ||
               diag_error(problem->diag, NO_SPAN, "unknown recipe %s", value);
    }
    if (str_eq(key, "collectives"))
        return algorithms_parse(problem->diag, value, &cluster->collectives);
    if (str_eq(key, "optimizer"))
        return job_set_optimizer(problem->arena, problem->diag, value, &problem->job);
    if (pin_is_key(key) || pin_is_range(key)) {
        static const char *const shapes[] = {"tp", "cp", "dp", "pp", "schedule", "chunks"};
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            if (str_eq(key, shapes[i]))
                pins->cuts = 0; /* cuts belong to the number of stages */
        if (str_eq(key, "schedule"))
            pins->chunks = -1;
        return pins_parse(problem->arena, problem->diag,
                          arena_printf(problem->arena, "%s=%s", key, value), pins);
    }
    diag_error(problem->diag, NO_SPAN, "what-if knows no key %s", key);
    diag_help(problem->diag, "keys are device.FIELD, links.NAME.FIELD, gpus, global_batch, "
                             "sequence, recipe, optimizer, collectives and the pins");
    return false;
}
