/* cluster.c - lplan-cluster/1: reads, resizes and writes the description of a machine.
 *
 *   {"format": "lplan-cluster/1", "name": "dgx-a100", "notes": ["..."], "devices": 32,
 *    "device": {"name": "A100", "target": "cuda", "tag": "estimated", "memory_bytes": 85899345920,
 * ...}, "links": [{"name": "nvswitch", "width": 8, "bytes_per_s": 220000000000, "latency_ns": 1500,
 *               "half_bytes": 2000000, "tag": "measured"}, {"name": "infiniband", "width": 4,
 * ...}]}
 *
 * "memories": [{"name": "dram", "bytes": 256000000000, "read_bytes_per_s": 25000000000,
 * "write_bytes_per_s": 25000000000, "latency_ns": 10000, "tag": "estimated"}, {"name": "nvme",
 * ...}] is what lies behind the memory of a device: its share of the host's, of the host's disks.
 * "collectives": ["ring", "tree", "nvls"] is how its library reduces and gathers.
 *
 * Every key but `memories`, `collectives`, `notes`, `caution` and `band_permille` is required, the
 * product of the widths is the number of devices, and a ring of n devices takes steps * latency_ns
 * + (bytes on the wire + half_bytes) / bytes_per_s. */
#include "ir/cluster.h"

#include <errno.h>
#include <string.h>

#include "ir/base/str.h"
#include "ir/cluster_preset.h"

enum { DEVICES_MAX = 1 << 20, NAME_MAX_CHARS = 80 };
static const int64_t bytes_max = INT64_C(1) << 50;
/* A megabyte a second: below it a step would not end. */
static const int64_t rate_min = 1000000;
static const int64_t rate_max = INT64_C(1000000000000000000);
static const int64_t ns_max = INT64_C(1000000000);

const char *const tag_text[TAG_COUNT] = {"estimated", "calibrated", "measured"};
const char *const memory_text[MEMORY_COUNT] = {"hbm", "dram", "nvme"};
const char *const algorithm_text[ALGORITHM_COUNT] = {"ring", "tree", "hierarchical", "nvls",
                                                     "server"};

bool algorithms_parse(Diag *diag, const char *text, AlgorithmSet *ret)
{
    AlgorithmSet set = 0;
    char word[32];
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        bool known = false;
        for (int a = 0; a < ALGORITHM_COUNT; a++)
            if (strlen(algorithm_text[a]) == length && memcmp(at, algorithm_text[a], length) == 0) {
                set |= 1u << a;
                known = true;
            }
        if (!known) {
            size_t kept = length < sizeof word ? length : sizeof word - 1;
            memcpy(word, at, kept);
            word[kept] = '\0';
            diag_error(diag, NO_SPAN, "no collective algorithm is called '%s'", word);
            const char *nearest = str_nearest(word, algorithm_text, ALGORITHM_COUNT);
            diag_help(diag, "%s%s%sthere are ring, tree, hierarchical, nvls and server",
                      nearest ? "did you mean '" : "", nearest ? nearest : "",
                      nearest ? "'? " : "");
            return false;
        }
        at += length;
        if (*at == '\0')
            break;
    }
    *ret = set;
    return true;
}
static const char *const target_text[] = {"host", "cuda"};

/* Names end up in reports and in comments of emitted code, so they are plain words. */
static bool read_name(Json object, const char **ret)
{
    Json at = json_get(object, "name");
    if (!json_str(at, ret))
        return false;
    size_t length = strlen(*ret);
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ._+-()";
    if (length > 0 && length <= NAME_MAX_CHARS && strspn(*ret, allowed) == length)
        return true;
    json_fail(at, "this is not a name");
    diag_help(at.doc->diag, "use 1 to %d letters, digits, spaces or ._+-()", NAME_MAX_CHARS);
    return false;
}

static bool read_tag(Json object, Tag *ret)
{
    int word = 0;
    if (!json_word(json_get(object, "tag"), tag_text, TAG_COUNT, &word))
        return false;
    *ret = (Tag)word;
    return true;
}

static bool read_notes(Json object)
{
    Json notes = json_get(object, "notes");
    if (!notes.value)
        return true;
    if (!json_want_array(notes))
        return false;
    bool good = true;
    for (int i = 0; i < json_len(notes); i++) {
        const char *note;
        good &= json_str(json_at(notes, i), &note);
    }
    return good;
}

typedef struct IntKey {
    const char *key;
    int64_t min, max;
    int64_t *ret;
} IntKey;

static bool read_ints(Json object, const IntKey *keys, int count)
{
    bool good = true;
    for (int i = 0; i < count; i++)
        good &= json_int(json_get(object, keys[i].key), keys[i].min, keys[i].max, keys[i].ret);
    return good;
}

static bool read_device(Json at, Device *device)
{
    static const char *const keys[] = {"name",
                                       "target",
                                       "tag",
                                       "notes",
                                       "band_permille",
                                       "memory_bytes",
                                       "margin_bytes",
                                       "flops_f32",
                                       "flops_bf16",
                                       "launch_ns",
                                       "gemm_permille",
                                       "small_gemm_flops",
                                       "memory_permille",
                                       "memory_bytes_per_s",
                                       "attention_permille",
                                       "attention_row_pairs",
                                       "host_wait_ns"};
    if (!json_want_object(at))
        return false;
    const IntKey ints[] = {
        {"memory_bytes", 1, bytes_max, &device->memory_bytes},
        {"margin_bytes", 0, bytes_max, &device->margin_bytes},
        {"flops_f32", rate_min, rate_max, &device->flops_f32},
        {"flops_bf16", rate_min, rate_max, &device->flops_bf16},
        {"memory_bytes_per_s", rate_min, rate_max, &device->memory_bytes_per_s},
        {"launch_ns", 0, ns_max, &device->launch_ns},
        {"gemm_permille", 1, 1000, &device->gemm_permille},
        {"small_gemm_flops", 0, rate_max, &device->small_gemm_flops},
        {"memory_permille", 1, 1000, &device->memory_permille},
    };
    int target = 0;
    bool good = json_only_keys(at, keys, (int)(sizeof keys / sizeof *keys));
    good &= read_name(at, &device->name);
    good &= json_word(json_get(at, "target"), target_text, 2, &target);
    good &= read_tag(at, &device->tag);
    good &= read_notes(at);
    good &= read_ints(at, ints, (int)(sizeof ints / sizeof *ints));
    good &= json_opt_int(at, "band_permille", 1, 1000, &device->band_permille);
    good &= json_opt_int(at, "attention_permille", 1, 1000, &device->attention_permille);
    good &= json_opt_int(at, "attention_row_pairs", 0, 1 << 20, &device->attention_row_pairs);
    good &= json_opt_int(at, "host_wait_ns", 0, ns_max, &device->host_wait_ns);
    device->target = target_text[target];
    if (good && device->margin_bytes >= device->memory_bytes) {
        good = json_fail(json_get(at, "margin_bytes"), "the margin leaves nothing of the memory");
        diag_help(at.doc->diag, "it is what stays free of \"memory_bytes\": make it smaller");
    }
    return good;
}

static bool read_level(Json at, LinkLevel *level)
{
    static const char *const keys[] = {"name",       "width", "bytes_per_s", "latency_ns",
                                       "half_bytes", "tag",   "notes",       "band_permille"};
    if (!json_want_object(at))
        return false;
    int64_t width = 0;
    const IntKey ints[] = {
        {"width", 1, DEVICES_MAX, &width},
        {"bytes_per_s", rate_min, rate_max, &level->bytes_per_s},
        {"latency_ns", 0, ns_max, &level->latency_ns},
        {"half_bytes", 0, bytes_max, &level->half_bytes},
    };
    bool good = json_only_keys(at, keys, (int)(sizeof keys / sizeof *keys));
    good &= read_name(at, &level->name);
    good &= read_tag(at, &level->tag);
    good &= read_notes(at);
    good &= read_ints(at, ints, (int)(sizeof ints / sizeof *ints));
    good &= json_opt_int(at, "band_permille", 1, 1000, &level->band_permille);
    level->width = (int)width;
    return good;
}

static bool read_links(Json links, Cluster *cluster)
{
    if (!json_want_array(links))
        return false;
    int count = json_len(links);
    if (count < 1 || count > MAX_LEVELS) {
        json_fail(links, "expected 1 to %d link levels, not %d", MAX_LEVELS, count);
        diag_help(links.doc->diag, "one for each kind of link, fastest first");
        return false;
    }
    bool good = true;
    for (int i = 0; i < count; i++)
        good &= read_level(json_at(links, i), &cluster->level[i]);
    cluster->levels = count;
    return good;
}

static bool read_store(Json at, Cluster *cluster)
{
    static const char *const keys[] = {
        "name", "bytes", "read_bytes_per_s", "write_bytes_per_s", "latency_ns",
        "tag",  "notes", "band_permille"};
    int which = 0;
    if (!json_want_object(at) || !json_only_keys(at, keys, (int)(sizeof keys / sizeof *keys)) ||
        !json_word(json_get(at, "name"), memory_text + 1, MEMORY_COUNT - 1, &which))
        return false;
    Store *store = &cluster->store[which + 1];
    if (store->bytes > 0)
        return json_fail(json_get(at, "name"), "this memory is there twice");
    const IntKey ints[] = {
        {"bytes", 1, bytes_max, &store->bytes},
        {"read_bytes_per_s", rate_min, rate_max, &store->read_bytes_per_s},
        {"write_bytes_per_s", rate_min, rate_max, &store->write_bytes_per_s},
        {"latency_ns", 0, ns_max, &store->latency_ns},
    };
    return read_tag(at, &store->tag) && read_notes(at) &&
           read_ints(at, ints, (int)(sizeof ints / sizeof *ints)) &&
           json_opt_int(at, "band_permille", 1, 1000, &store->band_permille);
}

/* Optional: a plan that keeps all in the devices' memory does not ask. */
static bool read_stores(Json stores, Cluster *cluster)
{
    if (!stores.value)
        return true;
    if (!json_want_array(stores))
        return false;
    bool good = true;
    for (int i = 0; i < json_len(stores); i++)
        good &= read_store(json_at(stores, i), cluster);
    if (!good || cluster->store[MEMORY_NVME].bytes == 0 || cluster->store[MEMORY_DRAM].bytes > 0)
        return good;
    json_fail(stores, "nvme without dram");
    diag_help(stores.doc->diag, "what comes from a file passes through the host's memory");
    return false;
}

/* Optional: rings and trees are what every library has. */
static bool read_collectives(Json names, Cluster *cluster)
{
    cluster->collectives = ALGORITHMS_USUAL;
    if (!names.value)
        return true;
    if (!json_want_array(names))
        return false;
    if (json_len(names) == 0)
        return json_fail(names, "no algorithm: nothing could be reduced");
    cluster->collectives = 0;
    for (int i = 0; i < json_len(names); i++) {
        int which = 0;
        if (!json_word(json_at(names, i), algorithm_text, ALGORITHM_COUNT, &which))
            return false;
        cluster->collectives |= 1u << which;
    }
    return true;
}

Cluster *cluster_read(Arena *arena, Diag *diag, Json json)
{
    static const char *const keys[] = {"format", "name",  "notes",    "caution",    "devices",
                                       "device", "links", "memories", "collectives"};
    static const char *const formats[] = {"lplan-cluster/1"};
    Cluster *cluster = ARENA_NEW(arena, Cluster);
    int format = 0;
    int64_t devices = 0;
    if (!json_want_object(json) || !json_word(json_get(json, "format"), formats, 1, &format))
        return NULL;
    bool good = json_only_keys(json, keys, (int)(sizeof keys / sizeof *keys));
    good &= read_name(json, &cluster->name);
    good &= read_notes(json);
    good &= json_opt_str(json, "caution", &cluster->caution);
    good &= json_int(json_get(json, "devices"), 1, DEVICES_MAX, &devices);
    good &= read_device(json_get(json, "device"), &cluster->device);
    good &= read_links(json_get(json, "links"), cluster);
    good &= read_stores(json_get(json, "memories"), cluster);
    good &= read_collectives(json_get(json, "collectives"), cluster);
    if (!good)
        return NULL;
    int64_t product = 1;
    for (int i = 0; i < cluster->levels && product <= DEVICES_MAX; i++)
        product *= cluster->level[i].width;
    if (product != devices) {
        json_fail(json_get(json, "devices"),
                  "%lld devices, but the widths of the links multiply to %lld", (long long)devices,
                  (long long)product);
        diag_help(diag, "devices is the product of the widths of all links");
        return NULL;
    }
    cluster->devices = (int)devices;
    cluster->doc = json.doc;
    return cluster;
}

static Cluster *read_doc(Arena *arena, Diag *diag, JsonDoc *doc)
{
    return doc ? cluster_read(arena, diag, json_root(doc)) : NULL;
}

static Cluster *no_such(Arena *arena, Diag *diag, const char *name, const char *why)
{
    const char **names = ARENA_ARRAY(arena, const char *, cluster_preset_count);
    Str list = str_new(arena);
    for (int i = 0; i < cluster_preset_count; i++) {
        names[i] = cluster_presets[i].name;
        str_putf(&list, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    diag_error(diag, NO_SPAN, "no cluster '%s': not a preset, and as a file: %s", name, why);
    const char *nearest = str_nearest(name, names, cluster_preset_count);
    if (nearest)
        diag_help(diag, "did you mean '%s'? presets are %s", nearest, list.at);
    else
        diag_help(diag, "give a file, or one of the presets %s", list.at);
    return NULL;
}

Cluster *cluster_load(Arena *arena, Diag *diag, const char *path_or_name)
{
    for (int i = 0; i < cluster_preset_count; i++) {
        const ClusterPreset *preset = &cluster_presets[i];
        if (!str_eq(preset->name, path_or_name))
            continue;
        const char *path = arena_printf(arena, "<preset %s>", preset->name);
        return read_doc(arena, diag,
                        json_parse(arena, diag, path, preset->text, strlen(preset->text)));
    }
    size_t length = 0;
    const char *text = file_read(arena, path_or_name, &length);
    if (!text)
        return no_such(arena, diag, path_or_name, strerror(errno));
    const char *path = str_eq(path_or_name, "-") ? "<stdin>" : path_or_name;
    return read_doc(arena, diag, json_parse(arena, diag, path, text, length));
}

/* Ranks are numbered through the lowest level first, so a group with a stride spans stride *
 * extent. */
int cluster_level(const Cluster *cluster, int stride, int extent)
{
    int64_t span = (int64_t)stride * extent, joined = 1;
    for (int i = 0; i < cluster->levels; i++) {
        joined *= cluster->level[i].width;
        if (joined >= span)
            return i;
    }
    return cluster->levels - 1;
}

static int largest_divisor(int number, int most)
{
    int width = most < number ? most : number;
    while (number % width != 0)
        width--;
    return width;
}

bool cluster_resize(Diag *diag, Cluster *cluster, int devices)
{
    if (devices < 1 || devices > DEVICES_MAX) {
        diag_error(diag, NO_SPAN, "%d devices: expected 1 to %d", devices, DEVICES_MAX);
        return false;
    }
    LinkLevel *domain = &cluster->level[0];
    bool elastic = cluster->levels > 1 || str_eq(cluster->device.target, "host");
    if (!elastic && devices > domain->width) {
        diag_error(diag, NO_SPAN, "%s joins %d devices and no link of cluster '%s' joins more",
                   domain->name, domain->width, cluster->name);
        diag_help(diag, "add a second entry to its links");
        return false;
    }
    int rest = devices, top = cluster->levels - 1;
    for (int i = 0; i < top; i++) {
        int width = largest_divisor(rest, cluster->level[i].width);
        if (i == 0 && width < rest && width < cluster->level[0].width)
            diag_warning(diag, NO_SPAN, "%d devices do not fill domains of %d: %d of each are used",
                         devices, cluster->level[0].width, width);
        cluster->level[i].width = width;
        rest /= width;
    }
    cluster->level[top].width = rest;
    while (cluster->levels > 1 && cluster->level[cluster->levels - 1].width == 1)
        cluster->levels--;
    cluster->devices = devices;
    return true;
}

static json_t *level_json(const LinkLevel *level)
{
    return json_pack("{s:s, s:i, s:I, s:I, s:I, s:s}", "name", level->name, "width", level->width,
                     "bytes_per_s", (json_int_t)level->bytes_per_s, "latency_ns",
                     (json_int_t)level->latency_ns, "half_bytes", (json_int_t)level->half_bytes,
                     "tag", tag_text[level->tag]);
}

static json_t *device_json(const Device *device)
{
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name", device->name,
        "target", device->target, "tag", tag_text[device->tag], "memory_bytes",
        (json_int_t)device->memory_bytes, "margin_bytes", (json_int_t)device->margin_bytes,
        "flops_f32", (json_int_t)device->flops_f32, "flops_bf16", (json_int_t)device->flops_bf16,
        "memory_bytes_per_s", (json_int_t)device->memory_bytes_per_s, "launch_ns",
        (json_int_t)device->launch_ns, "gemm_permille", (json_int_t)device->gemm_permille,
        "small_gemm_flops", (json_int_t)device->small_gemm_flops, "memory_permille",
        (json_int_t)device->memory_permille);
    if (device->attention_permille)
        json_object_set_new(object, "attention_permille",
                            json_integer((json_int_t)device->attention_permille));
    if (device->attention_row_pairs)
        json_object_set_new(object, "attention_row_pairs",
                            json_integer((json_int_t)device->attention_row_pairs));
    if (device->host_wait_ns)
        json_object_set_new(object, "host_wait_ns", json_integer((json_int_t)device->host_wait_ns));
    return object;
}

static json_t *with_band(json_t *object, int64_t permille)
{
    if (permille)
        json_object_set_new(object, "band_permille", json_integer((json_int_t)permille));
    return object;
}

static json_t *store_json(const Store *store, Memory memory)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:s}", "name", memory_text[memory], "bytes",
                     (json_int_t)store->bytes, "read_bytes_per_s",
                     (json_int_t)store->read_bytes_per_s, "write_bytes_per_s",
                     (json_int_t)store->write_bytes_per_s, "latency_ns",
                     (json_int_t)store->latency_ns, "tag", tag_text[store->tag]);
}

json_t *cluster_json(const Cluster *cluster, Memory farthest)
{
    json_t *links = json_array();
    for (int i = 0; i < cluster->levels; i++)
        json_array_append_new(
            links, with_band(level_json(&cluster->level[i]), cluster->level[i].band_permille));
    json_t *json = json_pack(
        "{s:s, s:s, s:i, s:o, s:o}", "format", "lplan-cluster/1", "name", cluster->name, "devices",
        cluster->devices, "device",
        with_band(device_json(&cluster->device), cluster->device.band_permille), "links", links);
    if (cluster->caution)
        json_object_set_new(json, "caution", json_string(cluster->caution));
    json_t *names = cluster->collectives != ALGORITHMS_USUAL ? json_array() : NULL;
    for (int a = 0; a < ALGORITHM_COUNT && names; a++)
        if (cluster->collectives >> a & 1)
            json_array_append_new(names, json_string(algorithm_text[a]));
    if (names)
        json_object_set_new(json, "collectives", names);
    json_t *stores = farthest > MEMORY_HBM ? json_array() : NULL;
    for (int m = MEMORY_DRAM; m <= (int)farthest; m++)
        if (cluster->store[m].bytes > 0)
            json_array_append_new(stores, with_band(store_json(&cluster->store[m], (Memory)m),
                                                    cluster->store[m].band_permille));
    if (stores)
        json_object_set_new(json, "memories", stores);
    return json;
}
