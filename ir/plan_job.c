/* plan_job.c - the optimizer of a job, as a person asks for it and as plan.json has it. */
#include "ir/plan_job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const keys[] = {"momentum", "nesterov", "steps", "rate", "match", "eps"};
enum { KEYS = 6, MOST_STEPS = 32 };

static bool set_match(const char *word, Muon *muon)
{
    muon->match_rms = str_eq(word, "rms");
    return muon->match_rms || str_eq(word, "shape");
}

/* One KEY=VALUE of "muon,momentum=0.9,...". */
static bool set_key(const char *key, const char *value, Muon *muon)
{
    char *end;
    double number = strtod(value, &end);
    bool plain = end != value && !*end && isfinite(number);
    if (str_eq(key, "match"))
        return set_match(value, muon);
    if (!plain)
        return false;
    if (str_eq(key, "momentum")) {
        muon->momentum = number;
        return number >= 0 && number < 1;
    }
    if (str_eq(key, "nesterov")) {
        muon->nesterov = number == 1;
        return number == 0 || number == 1;
    }
    if (str_eq(key, "eps")) {
        muon->eps = number;
        return number > 0 && number <= 1;
    }
    if (str_eq(key, "rate")) {
        muon->rate = number;
        return number > 0 && number <= 1e6;
    }
    if (!str_eq(key, "steps") || number < 1 || number > MOST_STEPS || number != floor(number))
        return false;
    muon->steps = (int)number;
    return true;
}

/* The text up to a mark, which is cut off; *rest goes on behind it, NULL at the end. */
static char *cut_word(char **rest, char mark)
{
    char *word = *rest, *end = word ? strchr(word, mark) : NULL;
    *rest = end ? end + 1 : NULL;
    if (end)
        *end = 0;
    return word;
}

bool job_set_optimizer(Arena *arena, Diag *diag, const char *text, Job *ret)
{
    char *rest = arena_strdup(arena, text), *word = cut_word(&rest, ',');
    bool muon = str_eq(word, "muon");
    if (!muon && (rest || !str_eq(word, "adamw"))) {
        diag_error(diag, NO_SPAN, "unknown optimizer %s", text);
        diag_help(diag, "use adamw, or muon: matrices of hidden layers by Muon, the rest by AdamW");
        return false;
    }
    ret->muon = muon ? muon_default() : (Muon){0};
    while ((word = cut_word(&rest, ',')) != NULL) {
        char *value = word, *key = cut_word(&value, '=');
        if (value && set_key(key, value, &ret->muon))
            continue;
        diag_error(diag, NO_SPAN, "muon takes no %s%s%s", key, value ? "=" : "",
                   value ? value : "");
        diag_help(diag,
                  "momentum=0.95, nesterov=0|1, steps=1..%d, rate=R (times the learning "
                  "rate), match=rms|shape, eps=1e-7",
                  MOST_STEPS);
        return false;
    }
    return true;
}

json_t *job_muon_json(const Job *job)
{
    const Muon *muon = &job->muon;
    return json_pack("{s:f,s:b,s:i,s:f,s:s,s:f}", keys[0], muon->momentum, keys[1], muon->nesterov,
                     keys[2], muon->steps, keys[3], muon->rate, keys[4],
                     muon->match_rms ? "rms" : "shape", keys[5], muon->eps);
}

bool job_read_muon(Json object, Job *ret)
{
    Muon *muon = &ret->muon;
    *muon = muon_default();
    int64_t steps = muon->steps;
    const char *match = "rms";
    bool good = json_want_object(object) && json_only_keys(object, keys, KEYS) &&
                json_opt_num(object, keys[0], 0, 1 - 1e-9, &muon->momentum) &&
                json_opt_bool(object, keys[1], &muon->nesterov) &&
                json_opt_int(object, keys[2], 1, MOST_STEPS, &steps) &&
                json_opt_num(object, keys[3], 1e-9, 1e6, &muon->rate) &&
                json_opt_str(object, keys[4], &match) &&
                json_opt_num(object, keys[5], 1e-30, 1, &muon->eps);
    muon->steps = (int)steps;
    if (!good || set_match(match, muon))
        return good;
    json_fail(json_get(object, keys[4]), "unknown match \"%s\"", match);
    diag_help(object.doc->diag, "rms: steps as long as AdamW's; shape: as Muon's authors have it");
    return false;
}
