/* import_read.h - what a config.json says of each slot, before any of it is made sense of. */
#ifndef LPLAN_PLANNER_IMPORT_READ_H
#define LPLAN_PLANNER_IMPORT_READ_H

#include "ir/base/str.h"
#include "planner/import_hf.h"
#include "planner/import_table.h"

typedef enum { STATE_ABSENT, STATE_NULL, STATE_GIVEN } State;

typedef struct SlotValue {
    State state;
    double value;
    const char *word;
    const char *key; /* that gave it */
    Style style;
    Json at; /* the whole config for a default */
} SlotValue;

typedef struct ConfigReader {
    Arena *arena;
    Diag *diag;
    Json config;
    const Family *family;
    const ImportOptions *options;
    SlotValue slot[SLOT_COUNT];
    Lines *notes;
    bool *noted;           /* per guard row: to be noted */
    Str unknown, defaults; /* lists for one note each */
    bool good;             /* no error so far */
} ConfigReader;

/* Every member: guards, slots, and a list of keys that are unknown. */
void config_read_members(ConfigReader *reader);
/* The guards of one member alone; true when it has any. */
bool config_read_guards(ConfigReader *reader, Json at, const char *key);
/* The sizes that make the model what it is are given: no library's default stands in for them. */
bool config_want_sizes(ConfigReader *reader);
/* The library's default where the config is silent; null where there is none. */
void config_settle_defaults(ConfigReader *reader);

void config_note(ConfigReader *reader, const char *format, ...) LP_PRINTF(2, 3);
/* Marks that an error was appended; false. */
bool config_fail(ConfigReader *reader);
/* Keys and words of a file as they may be printed: short, visible ASCII. */
const char *config_shown(Arena *arena, const char *text);
/* "a, b" */
void list_add(Str *list, const char *text);

/* False, null, zero and empty containers say that a feature is off. */
bool config_is_off(Json at);
bool config_is_word(Json at, const char *word);

/* Where a slot came from, for an error about it, and its key. */
Json slot_at(const ConfigReader *reader, Slot slot);
const char *slot_key(const ConfigReader *reader, Slot slot);
/* Null gives `otherwise`. */
int64_t slot_int(const ConfigReader *reader, Slot slot, int64_t otherwise);
double slot_num(const ConfigReader *reader, Slot slot, double otherwise);
bool slot_true(const ConfigReader *reader, Slot slot);

#endif
