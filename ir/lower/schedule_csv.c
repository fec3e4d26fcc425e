/* schedule_csv.c - schedules as PyTorch's CSV files of cells. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/arena.h"
#include "ir/lower/schedule.h"

/* ---- writing ---- */

static void put_cell(Str *str, const Row *row)
{
    str_putf(str, "%d%s%d", row->chunk, part_text[row->part], row->micro);
}

void schedule_put_csv(Str *str, const Schedule *schedule)
{
    for (int stage = 0; stage < schedule->stages; stage++) {
        const RowList *rows = &schedule->rows[stage];
        for (int i = 0; i < rows->n; i++) {
            bool pair = rows->at[i].with_next && i + 1 < rows->n;
            str_put(str, i ? "," : "");
            str_put(str, pair ? "(" : "");
            put_cell(str, &rows->at[i]);
            if (!pair)
                continue;
            str_putc(str, ';');
            put_cell(str, &rows->at[++i]);
            str_put(str, ")OVERLAP_F_B");
        }
        str_putc(str, '\n');
    }
}

/* ---- reading ---- */

enum { MOST_STAGES = 64, MOST_CHUNKS = 1024, MOST_MICROS = 1 << 20 };

typedef struct Reader {
    Arena *arena;
    Diag *diag;
    const char *name;
    Schedule *schedule;
    int line, cell;
    bool old; /* letters of older files: B is I, BW is B */
} Reader;

static bool cell_fault(const Reader *reader, const char *text, int length)
{
    diag_error(reader->diag, NO_SPAN, "%s: line %d, cell %d: \"%.*s\" is no cell of a schedule",
               reader->name, reader->line, reader->cell, length, text);
    diag_help(reader->diag, "cells are 0F3, 1B2, 1I2, 1W2 (chunk, part, micro-batch), "
                            "(0F7;3B3)OVERLAP_F_B, or empty");
    return false;
}

/* A number at *at; -1 when there is none. */
static int number(const char **at, const char *end, int most)
{
    int value = 0;
    const char *begin = *at;
    while (*at < end && isdigit((unsigned char)**at) && value <= most)
        value = value * 10 + (*(*at)++ - '0');
    return *at == begin || value > most ? -1 : value;
}

/* The part of these letters, PART_COUNT for communication, -1 for nonsense. */
static int part_of(const Reader *reader, const char *word, int length)
{
    static const char *const derived[] = {"SEND_F",  "RECV_F",  "SEND_B",     "RECV_B",
                                          "UNSHARD", "RESHARD", "REDUCE_GRAD"};
    for (size_t i = 0; i < sizeof derived / sizeof *derived; i++)
        if ((int)strlen(derived[i]) == length && memcmp(derived[i], word, (size_t)length) == 0)
            return PART_COUNT;
    if (reader->old && length == 2 && word[0] == 'B' && word[1] == 'W')
        return PART_B;
    if (length != 1)
        return -1;
    if (reader->old && word[0] == 'B')
        return PART_I;
    for (int part = 0; part < PART_COUNT; part++)
        if (word[0] == part_text[part][0])
            return part;
    return -1;
}

static bool read_row(Reader *reader, const char *begin, const char *end, bool with_next)
{
    const char *at = begin;
    int chunk = number(&at, end, MOST_CHUNKS - 1);
    const char *word = at;
    while (at < end && !isdigit((unsigned char)*at))
        at++;
    int part = part_of(reader, word, (int)(at - word));
    int micro = number(&at, end, MOST_MICROS - 1);
    bool bare = part == PART_COUNT && micro < 0; /* UNSHARD names no micro-batch */
    if (chunk < 0 || part < 0 || at != end || (micro < 0 && !bare))
        return cell_fault(reader, begin, (int)(end - begin));
    if (part == PART_COUNT)
        return true;
    Schedule *schedule = reader->schedule;
    vec_push(reader->arena, &schedule->rows[schedule->stages]) =
        (Row){(PartKind)part, chunk, micro, with_next, 0};
    schedule->chunks = chunk >= schedule->chunks ? chunk + 1 : schedule->chunks;
    schedule->micros = micro >= schedule->micros ? micro + 1 : schedule->micros;
    return true;
}

static bool read_cell(Reader *reader, const char *begin, const char *end)
{
    while (begin < end && (isspace((unsigned char)*begin) || *begin == '"'))
        begin++;
    while (end > begin && (isspace((unsigned char)end[-1]) || end[-1] == '"'))
        end--;
    reader->cell++;
    if (begin == end)
        return true;
    if (*begin != '(')
        return read_row(reader, begin, end, false);
    static const char tail[] = ")OVERLAP_F_B";
    int length = (int)(end - begin), rest = (int)strlen(tail);
    const char *middle = memchr(begin, ';', (size_t)length);
    if (!middle || length < rest + 3 || memcmp(end - rest, tail, (size_t)rest) != 0 ||
        middle > end - rest)
        return cell_fault(reader, begin, length);
    return read_row(reader, begin + 1, middle, true) &&
           read_row(reader, middle + 1, end - rest, false);
}

static bool read_line(Reader *reader, const char *begin, const char *end)
{
    reader->cell = 0;
    if (reader->schedule->stages == MOST_STAGES)
        return diag_error(reader->diag, NO_SPAN, "%s has more than %d lines, one a stage",
                          reader->name, MOST_STAGES);
    for (const char *at = begin; at <= end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma ? comma : end;
        if (!read_cell(reader, at, stop))
            return false;
        at = stop + 1;
    }
    reader->schedule->stages++;
    return true;
}

/* Older files say B for I: they have a BW, or a W that no I precedes. */
static bool has_old_letters(const char *text)
{
    bool weights = false, inputs = false;
    for (const char *at = text; *at; at++) {
        bool lone = at > text && isdigit((unsigned char)at[-1]) && isdigit((unsigned char)at[1]);
        if (at[0] == 'B' && at[1] == 'W' && at > text && isdigit((unsigned char)at[-1]))
            return true;
        weights |= lone && *at == 'W';
        inputs |= lone && *at == 'I';
    }
    return weights && !inputs;
}

/* Whoever has a chunk's rows holds it. */
static bool find_holders(Reader *reader)
{
    Schedule *schedule = reader->schedule;
    schedule->holder = ARENA_ARRAY(reader->arena, int, schedule->chunks + 1);
    for (int c = 0; c < schedule->chunks; c++)
        schedule->holder[c] = -1;
    for (int s = 0; s < schedule->stages; s++)
        for (int i = 0; i < schedule->rows[s].n; i++) {
            int *holder = &schedule->holder[schedule->rows[s].at[i].chunk];
            *holder = *holder < 0 ? s : *holder;
        }
    for (int c = 0; c < schedule->chunks; c++)
        if (schedule->holder[c] < 0)
            return diag_error(reader->diag, NO_SPAN, "%s: no stage has a row of chunk %d of %d",
                              reader->name, c, schedule->chunks);
    for (int s = 0; s < schedule->stages; s++)
        if (schedule->rows[s].n == 0)
            return diag_error(reader->diag, NO_SPAN, "%s: stage %d has no row", reader->name, s);
    return schedule->chunks > 0 ||
           diag_error(reader->diag, NO_SPAN, "%s has no cell", reader->name);
}

Schedule *schedule_read_csv(Arena *arena, Diag *diag, const char *text, const char *name)
{
    Schedule *schedule = ARENA_NEW(arena, Schedule);
    schedule->rows = ARENA_ARRAY(arena, RowList, MOST_STAGES);
    Reader reader = {arena, diag, name, schedule, 0, 0, has_old_letters(text)};
    for (const char *at = text; *at;) {
        const char *end = strchr(at, '\n');
        end = end ? end : at + strlen(at);
        reader.line++;
        if (!read_line(&reader, at, end))
            return NULL;
        at = *end ? end + 1 : end;
    }
    return find_holders(&reader) && schedule_check(schedule, diag) ? schedule : NULL;
}
