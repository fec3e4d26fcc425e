/* checkpoint.c - everything needed to go on, as logical tensors and a position in samples.
 *
 *     DIR/step-000000000120/   state.json, model.safetensors, exp_avg.safetensors, ...
 *
 * The folder is written under another name and renamed when all of it is on disk, so what bears the
 * name is whole. No plan is inside: each rank of whatever plan reads its own boxes. */
#define _GNU_SOURCE /* renameat2 */
#include "runtime/core/self.h"
#include "runtime/io/json.h"
#include "runtime/io/params.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 4096
#define FORMAT "lplan-checkpoint/1"

static void path_join(char ret_path[PATH_BYTES], const char *dir, int64_t step, const char *tail)
{
    int n = snprintf(ret_path, PATH_BYTES, "%s/step-%012lld%s", dir, (long long)step, tail);
    if (n < 0 || n >= PATH_BYTES)
        lp_fail_all(2, "%.60s...: the name is too long", dir);
}

static int64_t samples_of_step(const LpJob *job)
{
    return (int64_t)job->micro_batches * job->rows;
}

/* ---- going on ---- */

/* The step in the name of a whole checkpoint; -1 for any other name. */
static int64_t step_of_name(const char *name)
{
    char *end = NULL;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return -1;
    long long step = strtoll(name + 5, &end, 10);
    return *end == '\0' ? step : -1;
}

/* Newest checkpoint that is older than `below`; -1 if there is none. */
static int64_t newest_below(const char *dir, int64_t below)
{
    DIR *folder = opendir(dir);
    int64_t newest = -1;
    if (!folder)
        return -1;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        int64_t step = step_of_name(entry->d_name);
        if (step < below && step > newest)
            newest = step;
    }
    closedir(folder);
    return newest;
}

/* The object of "bits": what lp_save_state gave for each kind of state. */
static void bits_read(LpJson *json, const LpState *states, int count, LpSaved *ret_saved)
{
    bool first = true;
    lp_json_take(json, '{');
    while (lp_json_item(json, '}', &first)) {
        char *key = lp_json_key(json);
        int64_t bits = -1;
        int state = 0;
        lp_json_int(json, &bits);
        while (key && state < count && strcmp(key, states[state].name) != 0)
            state++;
        if (key && state < count)
            ret_saved[state].bits = bits;
        else
            lp_json_fail(json, "bits of an unknown kind of state");
        free(key);
    }
}

/* state.json: {"format":..., "samples":N, "seed":N, "bits":{STATE:N, ...}}, and of a scaled loss
 * "scale", "good", "patience", "skipped". Returns the samples consumed. Any recipe may go on with
 * any state: what was skipped stays so for the learning rate. */
static int64_t state_read(const char *path, uint64_t seed, LpScaler *scaler, const LpState *states,
                          int count, LpSaved *ret_saved)
{
    char text[1024], *format = NULL;
    const char *remedy = ret_saved[0].remedy;
    FILE *file = fopen(path, "rb");
    if (!file)
        lp_fail_all(1, "%s: %s%s", path, strerror(errno), remedy);
    size_t length = fread(text, 1, sizeof text, file);
    fclose(file);
    LpJson json = {.text = text, .length = (int64_t)length};
    bool first = true;
    int64_t samples = -1, saved_seed = -1, scale = 0;
    lp_json_take(&json, '{');
    while (lp_json_item(&json, '}', &first)) {
        char *key = lp_json_key(&json);
        if (key && strcmp(key, "format") == 0 && !format)
            format = lp_json_string(&json);
        else if (key && strcmp(key, "samples") == 0)
            lp_json_int(&json, &samples);
        else if (key && strcmp(key, "seed") == 0)
            lp_json_int(&json, &saved_seed);
        else if (key && strcmp(key, "bits") == 0)
            bits_read(&json, states, count, ret_saved);
        else if (key && strcmp(key, "scale") == 0)
            lp_json_int(&json, &scale);
        else if (key && strcmp(key, "good") == 0)
            lp_json_int(&json, &scaler->good);
        else if (key && strcmp(key, "patience") == 0)
            lp_json_int(&json, &scaler->patience);
        else if (key && strcmp(key, "skipped") == 0)
            lp_json_int(&json, &scaler->skipped);
        else
            lp_json_fail(&json, "an unknown key");
        free(key);
    }
    if (lp_json_end(&json) && (!format || strcmp(format, FORMAT) != 0 || samples < 0))
        lp_json_fail(&json, "no state of " FORMAT);
    free(format);
    if (scale > 0)
        scaler->scale = (double)scale;
    if (json.error)
        lp_fail_all(1, "%s: byte %lld: %s%s", path, (long long)json.at, json.error, remedy);
    if ((uint64_t)saved_seed != (seed & INT64_MAX))
        lp_fail_all(1, "%s: the seed was %lld: give the same --seed", path, (long long)saved_seed);
    return samples;
}

static void checkpoint_write(LpSelf *self, int64_t steps_done, const LpState *states, int count);
static void folder_make(const char *path);

static void folder_try(const char *option, const char *path)
{
    char folder[PATH_BYTES] = ".";
    const char *name = path ? strrchr(path, '/') : NULL;
    struct stat there;
    if (path && stat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return; /* a device needs no folder */
    if (name && name - path < PATH_BYTES)
        snprintf(folder, sizeof folder, "%.*s/", (int)(name - path), path);
    if (path && access(folder, W_OK) != 0)
        lp_fail(1, "%s %s: cannot write in %s: %s", option, path, folder, strerror(errno));
}

/* Where a run will leave its results is tried before the first step, not behind the last. */
static void outputs_try(const LpSelf *self)
{
    const LpOptions *options = self->rank.options;
    struct stat there;
    if (self->rank.index != 0)
        return;
    if (options->save && stat(options->save, &there) == 0 && !S_ISREG(there.st_mode))
        lp_fail(1, "--save %s: it is there, and no file that weights may replace", options->save);
    folder_try("--save", options->save);
    folder_try("--dump-grads", options->dump_grads);
    folder_try("--trace", options->trace);
    if (options->checkpoint) {
        folder_make(options->checkpoint);
        if (access(options->checkpoint, W_OK) != 0)
            lp_fail(1, "--checkpoint %s: %s", options->checkpoint, strerror(errno));
    }
}

int64_t lp_begin(const LpState *states, int count)
{
    LpSelf *self = lp_self;
    const LpOptions *options = self->rank.options;
    int64_t each = samples_of_step(self->rank.job);
    outputs_try(self);
    if (!options->resume) {
        lp_load(states[0].parts, states[0].count);
        return 0;
    }
    lp_at("resume");
    char path[PATH_BYTES], tail[256], remedy[PATH_BYTES + 64] = "";
    int64_t saved = newest_below(options->resume, INT64_MAX);
    if (saved < 0)
        lp_fail_all(1, "--resume %s: no checkpoint there (no folder step-N)", options->resume);
    if (newest_below(options->resume, saved) >= 0) {
        path_join(path, options->resume, saved, "");
        snprintf(remedy, sizeof remedy, "; to go on from the one before, move %s away", path);
    }
    LpSaved *said = lp_new((size_t)count, sizeof *said);
    for (int i = 0; i < count; i++)
        said[i] = (LpSaved){.bits = -1, .remedy = remedy};
    path_join(path, options->resume, saved, "/state.json");
    int64_t samples = state_read(path, options->seed, &self->scaler, states, count, said);
    if (samples % each != 0)
        lp_fail_all(1, "%s: %lld samples are no whole number of this plan's steps of %lld", path,
                    (long long)samples, (long long)each);
    for (int i = 0; i < count; i++) {
        snprintf(tail, sizeof tail, "/%s.safetensors", states[i].name);
        path_join(path, options->resume, saved, tail);
        lp_load_file(self, path, states[i].parts, states[i].count, &said[i]);
    }
    free(said);
    /* nothing left to do: the end writes what was loaded, as this plan holds it */
    if (options->checkpoint && samples / each >= options->steps)
        checkpoint_write(self, samples / each, states, count);
    return samples / each;
}

/* ---- writing ---- */

static void sync_folder(const char *path)
{
    int folder = open(path, O_RDONLY);
    if (folder < 0)
        return; /* the rename may be lost in a crash, and then the one before is there */
    (void)fsync(folder);
    close(folder);
}

static void folder_make(const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        lp_fail(1, "%s: %s", path, strerror(errno));
}

/* 0, or an errno. */
static int state_write(const char *path, int64_t samples, uint64_t seed, const LpScaler *scaler,
                       const LpState *states, const int64_t *bits, int count)
{
    FILE *file = fopen(path, "wb");
    bool good = file &&
                fprintf(file, "{\"format\":\"" FORMAT "\",\"samples\":%lld,\"seed\":%lld",
                        (long long)samples, (long long)(seed & INT64_MAX)) >= 0 &&
                ((scaler->scale <= 0 && scaler->skipped <= 0) ||
                 fprintf(file, ",\"scale\":%.0f,\"good\":%lld,\"patience\":%lld,\"skipped\":%lld",
                         scaler->scale, (long long)scaler->good, (long long)scaler->patience,
                         (long long)scaler->skipped) >= 0);
    for (int i = 0; good && i < count; i++)
        good = fprintf(file, "%s\"%s\":%lld", i ? "," : ",\"bits\":{", states[i].name,
                       (long long)bits[i]) >= 0;
    good = good && fprintf(file, "}}\n") >= 0 && fflush(file) == 0 && fsync(fileno(file)) == 0;
    int error = good ? 0 : errno;
    if (file && fclose(file) != 0 && error == 0)
        error = errno;
    return error;
}

/* What has not the name of a checkpoint. */
static void remains_remove(const char *dir, int64_t step, const char *ending, const LpState *states,
                           int count)
{
    char path[PATH_BYTES], tail[256];
    for (int i = 0; i <= count; i++) {
        if (i < count)
            snprintf(tail, sizeof tail, "%s/%s.safetensors", ending, states[i].name);
        else
            snprintf(tail, sizeof tail, "%s/state.json", ending);
        path_join(path, dir, step, tail);
        unlink(path);
    }
    path_join(path, dir, step, ending);
    rmdir(path);
}

/* It loses its name first: what bears it is whole. */
static void checkpoint_remove(const char *dir, int64_t step, const LpState *states, int count)
{
    char path[PATH_BYTES], old[PATH_BYTES];
    path_join(path, dir, step, "");
    path_join(old, dir, step, ".old");
    remains_remove(dir, step, ".old", states, count);
    if (rename(path, old) == 0)
        remains_remove(dir, step, ".old", states, count);
}

/* The folder that was written aside gets the name, of which a run that went the same way before may
 * have left another: they change names in one step where the system can. False with errno. */
static bool checkpoint_name(const char *aside, const char *path, const char *dir, int64_t step,
                            const LpState *states, int count)
{
#ifdef RENAME_EXCHANGE
    if (renameat2(AT_FDCWD, aside, AT_FDCWD, path, RENAME_EXCHANGE) == 0) {
        remains_remove(dir, step, ".part", states, count);
        return true;
    }
#endif
    checkpoint_remove(dir, step, states, count);
    return rename(aside, path) == 0;
}

static void old_ones_remove(const char *dir, int64_t newest, int keep, const LpState *states,
                            int count)
{
    int64_t step = newest;
    for (int kept = 1; step >= 0 && kept < keep; kept++)
        step = newest_below(dir, step);
    while (keep > 0 && step >= 0 && (step = newest_below(dir, step)) >= 0)
        checkpoint_remove(dir, step, states, count);
}

static void checkpoint_write(LpSelf *self, int64_t steps_done, const LpState *states, int count)
{
    const LpOptions *options = self->rank.options;
    const char *dir = options->checkpoint;
    char aside[PATH_BYTES], path[PATH_BYTES], tail[256];
    bool first = self->rank.index == 0;
    path_join(aside, dir, steps_done, ".part");
    if (first) {
        folder_make(dir);
        folder_make(aside);
    }
    int64_t *bits = lp_new((size_t)count, sizeof *bits);
    int error = 0;
    for (int i = 0; i < count && error == 0; i++) {
        snprintf(tail, sizeof tail, ".part/%s.safetensors", states[i].name);
        path_join(path, dir, steps_done, tail);
        error = lp_save_state(path, &states[i], &bits[i]);
    }
    if (first && error == 0) {
        path_join(path, dir, steps_done, ".part/state.json");
        error = state_write(path, steps_done * samples_of_step(self->rank.job), options->seed,
                            &self->scaler, states, bits, count);
    }
    free(bits);
    if (error != 0) {
        if (first)
            remains_remove(dir, steps_done, ".part", states, count);
        lp_fail_all(1, "cannot write %s: %s", path, strerror(error));
    }
    if (!first)
        return;
    sync_folder(aside);
    path_join(path, dir, steps_done, "");
    if (!checkpoint_name(aside, path, dir, steps_done, states, count))
        lp_fail(1, "%s: %s", path, strerror(errno));
    sync_folder(dir);
    old_ones_remove(dir, steps_done, options->keep, states, count);
}

bool lp_checkpoint_due(int64_t step)
{
    const LpSelf *self = lp_self;
    const LpOptions *options = self->rank.options;
    bool last = self->stop || step + 1 == options->steps;
    bool time = options->every > 0 && (step + 1) % options->every == 0;
    return options->checkpoint && (last || time);
}

void lp_checkpoint(int64_t step, const LpState *states, int count)
{
    if (lp_checkpoint_due(step))
        checkpoint_write(lp_self, step + 1, states, count);
}
