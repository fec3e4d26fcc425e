/* pin_ranges.c - pins of some layers. */
#include "ir/pin_ranges.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "ir/plan_memory.h"

const char pin_range_keys[] = "tp cp dp tp_by cp_by cp_heads ep etp zero shard "
                              "optimizer_home activation_home weight_home gradient_home sp block "
                              "recompute";

/* The pins that layers may have of their own: what a stage, a step or the order of the sequence is
 * belongs to all. */
typedef struct RangeKey {
    const char *name;
    size_t field; /* an int of Pins */
} RangeKey;
static const RangeKey keys[] = {{"tp", offsetof(Pins, tp)},
                                {"cp", offsetof(Pins, cp)},
                                {"dp", offsetof(Pins, dp)},
                                {"tp_by", offsetof(Pins, tp_by)},
                                {"cp_by", offsetof(Pins, cp_by)},
                                {"cp_heads", offsetof(Pins, cp_heads)},
                                {"ep", offsetof(Pins, ep)},
                                {"etp", offsetof(Pins, etp)},
                                {"zero", offsetof(Pins, zero)},
                                {"shard", offsetof(Pins, shard)},
                                {"optimizer_home", offsetof(Pins, home[KEPT_STATE])},
                                {"activation_home", offsetof(Pins, home[KEPT_SAVED])},
                                {"weight_home", offsetof(Pins, home[KEPT_WEIGHTS])},
                                {"gradient_home", offsetof(Pins, home[KEPT_GRADIENTS])},
                                {"sp", offsetof(Pins, sp)},
                                {"block", offsetof(Pins, block)},
                                {"recompute", offsetof(Pins, recompute)}};
enum { KEYS = sizeof keys / sizeof *keys };

static int *field_of(Pins *pins, const RangeKey *key)
{
    return (int *)(void *)((char *)pins + key->field);
}

static int value_of(const Pins *pins, const RangeKey *key)
{
    return *(const int *)(const void *)((const char *)pins + key->field);
}

bool pin_is_range(const char *part)
{
    size_t to = strcspn(part, ":=");
    return part[to] == ':';
}

/* "3", "0-3", "4-", "-3", "first" or "last". */
static bool read_links(const char *text, PinRange *ret)
{
    if (str_eq(text, "first") || str_eq(text, "last")) {
        ret->begin = ret->end = str_eq(text, "first") ? RANGE_FIRST : RANGE_LAST;
        return true;
    }
    size_t digits = strspn(text, "0123456789");
    const char *joint = text + digits;
    size_t more = *joint == '-' ? strspn(joint + 1, "0123456789") : 0;
    bool open = *joint == '-' && more == 0;
    long from = digits ? strtol(text, NULL, 10) : 0, to = open   ? RANGE_OPEN
                                                          : more ? strtol(joint + 1, NULL, 10)
                                                                 : from;
    ret->begin = (int)from;
    ret->end = (int)to;
    return joint[(*joint == '-') + more] == '\0' && digits + more > 0 && from <= to &&
           to < RANGE_OPEN + open;
}

static bool known_key(Diag *diag, const char *links, const char *key)
{
    const char *name[KEYS];
    for (int i = 0; i < KEYS; i++) {
        name[i] = keys[i].name;
        if (str_eq(key, name[i]))
            return true;
    }
    const char *near = str_nearest(key, name, KEYS);
    diag_error(diag, NO_SPAN, "pin %s:%s: layers have no such pin of their own", links, key);
    if (near)
        diag_help(diag, "did you mean %s:%s?", links, near);
    else
        diag_help(diag, "layers may have %s; the others are for all of them", pin_range_keys);
    return false;
}

bool pin_once(Diag *diag, PinWords *said, const char *key, const char *value)
{
    for (int i = 0; i < said->n; i++)
        if (str_eq(said->key[i], key)) {
            diag_error(diag, NO_SPAN, "pins %s%s=%s and %s%s=%s: one key in one list", said->of,
                       key, said->value[i], said->of, key, value);
            diag_help(diag, "leave one out; what some layers have otherwise is said of them, as in "
                            "0-3:tp=4");
            return false;
        }
    CHECK(said->n < MAX_PIN_WORDS);
    said->key[said->n] = key;
    said->value[said->n++] = value;
    return true;
}

bool pin_range(Arena *arena, Diag *diag, const char *part, Pins *ret)
{
    char *links = arena_strdup(arena, part), *word = strchr(links, ':');
    *word++ = '\0';
    PinRange range = {.pins = pins_none()};
    PinWords said = {.of = arena_printf(arena, "%s:", links)};
    if (!read_links(links, &range)) {
        diag_error(diag, NO_SPAN, "pin %s:…: %s is no range of layers", links, links);
        diag_help(diag, "write 0-3:tp=4, 4-:zero=3, 7:recompute=full, first:… or last:…; layers "
                        "count from 0");
        return false;
    }
    while (word) {
        char *next = strchr(word, ':'), *value = strchr(word, '=');
        if (next)
            *next++ = '\0';
        if (!value || (next && value > next)) {
            diag_error(diag, NO_SPAN, "pin %s:%s has no value", links, word);
            diag_help(diag, "write %s:%s=…", links, word);
            return false;
        }
        *value++ = '\0';
        if (!known_key(diag, links, word) || !pin_once(diag, &said, word, value))
            return false;
        if (!pin_set(arena, diag, word, value, &range.pins)) {
            diag_note(diag, "of the layers %s", links);
            return false;
        }
        word = next;
    }
    PinRange *all = ARENA_ARRAY(arena, PinRange, ret->ranges + 1);
    for (int i = 0; i < ret->ranges; i++)
        all[i] = ret->range[i];
    all[ret->ranges++] = range;
    ret->range = all;
    return true;
}

static void put_value(Str *str, const Pins *pins, const RangeKey *key)
{
    int value = value_of(pins, key);
    str_putf(str, ":%s=", key->name);
    if (str_eq(key->name, "recompute"))
        str_put(str, pins->again ? pins->again : value ? "full" : "none");
    else if (str_eq(key->name, "tp_by") || str_eq(key->name, "cp_by"))
        str_put(str, cross_text[value]);
    else if (str_eq(key->name, "shard"))
        str_put(str, shard_text[value]);
    else if (kept_of_pin(key->name) < KEPT_COUNT)
        str_put(str, memory_text[value]);
    else
        str_putf(str, "%d", value);
}

char *pin_range_text(Arena *arena, const PinRange *range)
{
    Str text = str_new(arena);
    if (range->begin == RANGE_FIRST || range->begin == RANGE_LAST)
        str_put(&text, range->begin == RANGE_FIRST ? "first" : "last");
    else if (range->begin == range->end)
        str_putf(&text, "%d", range->begin);
    else if (range->end == RANGE_OPEN)
        str_putf(&text, "%d-", range->begin);
    else
        str_putf(&text, "%d-%d", range->begin, range->end);
    for (int i = 0; i < KEYS; i++)
        if (value_of(&range->pins, &keys[i]) >= 0)
            put_value(&text, &range->pins, &keys[i]);
    return text.at;
}

bool pin_range_same(const PinRange *a, const PinRange *b)
{
    Arena *scratch = arena_new("same");
    bool same = str_eq(pin_range_text(scratch, a), pin_range_text(scratch, b));
    arena_free(scratch);
    return same;
}

char *pin_ranges_text(Arena *arena, const Pins *pins)
{
    Str text = str_new(arena);
    str_put(&text, "");
    for (int i = 0; i < pins->ranges; i++)
        str_putf(&text, ",%s", pin_range_text(arena, &pins->range[i]));
    return text.at;
}

bool range_has_link(const PinRange *range, int link, int links)
{
    if (range->begin == RANGE_FIRST || range->begin == RANGE_LAST)
        return link == (range->begin == RANGE_FIRST ? 0 : links - 1);
    return link > 0 && link < links - 1 && link - 1 >= range->begin && link - 1 <= range->end;
}

Pins pins_given_for(const Pins *pins, int link, int links)
{
    Pins given = pins_none();
    for (int r = 0; r < pins->ranges; r++)
        for (int i = 0; i < KEYS && range_has_link(&pins->range[r], link, links); i++) {
            const Pins *from = &pins->range[r].pins;
            int value = value_of(from, &keys[i]);
            if (value < 0)
                continue;
            *field_of(&given, &keys[i]) = value;
            if (keys[i].field == offsetof(Pins, recompute))
                given.again = from->again;
        }
    return given;
}
