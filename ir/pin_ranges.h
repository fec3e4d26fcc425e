/* pin_ranges.h - pins of some layers: "0-3:tp=4", "7:recompute=full:zero=0", "last:dp=8". */
#ifndef LPLAN_IR_PIN_RANGES_H
#define LPLAN_IR_PIN_RANGES_H

#include "ir/plan.h"

/* One KEY=VALUE of pins, for all layers. False after an error that names the nearest key. */
bool pin_set(Arena *arena, Diag *diag, const char *key, const char *value, Pins *ret);

/* Keys and values of one list of pins, as they come; `of` stands before them ("0-3:", or ""). */
enum { MAX_PIN_WORDS = 64 };
typedef struct PinWords {
    const char *of, *key[MAX_PIN_WORDS], *value[MAX_PIN_WORDS];
    int n;
} PinWords;
/* Remembers one more, a known key. False after an error that names both: the list has the key
 * twice. */
bool pin_once(Diag *diag, PinWords *said, const char *key, const char *value);

/* Does a part of pins stand before a colon that comes ahead of its "="? */
bool pin_is_range(const char *part);
/* Reads RANGE:KEY=VALUE[:KEY=VALUE…] and appends it to ret->range. RANGE is a layer, the first and
 * the last of some (both counted from 0, as `layers` counts them; "4-" ends with the last layer,
 * "-3" begins with the first), or "first" or "last": the link before the layers, and that behind
 * them. Of two ranges that name a layer the later one says a key, of two words in one range
 * neither: an error. False after one that names the range. */
bool pin_range(Arena *arena, Diag *diag, const char *part, Pins *ret);
/* "0-3:tp=4" as it was read; ",0-3:tp=4,…" of all ranges, "" without. */
char *pin_range_text(Arena *arena, const PinRange *range);
bool pin_range_same(const PinRange *a, const PinRange *b); /* by content */
char *pin_ranges_text(Arena *arena, const Pins *pins);

/* Is a link of a chain of so many in the range? */
bool range_has_link(const PinRange *range, int link, int links);
/* What ranges say of one link: keys that none names are as pins_none has them. */
Pins pins_given_for(const Pins *pins, int link, int links);
/* The keys that a range may have, for messages. */
extern const char pin_range_keys[];

#endif
