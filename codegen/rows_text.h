/* rows_text.h - pieces of text that rows_print.c is made of. Private to the printer of row
 * programs. */
#ifndef LPLAN_CODEGEN_ROWS_TEXT_H
#define LPLAN_CODEGEN_ROWS_TEXT_H

#include "codegen/target.h"

const Term *rows_term(const RowPrinter *p, TermId id);
int64_t rows_columns(const RowProgram *program);
bool rows_has_columns(const RowProgram *program);

/* The format's first %s replaced. */
const char *text_fill(Arena *arena, const char *format, const char *x);
/* How the target spells a word of terms.def. */
const char *text_word(const Target *target, const char *name);
const char *text_number(Arena *arena, const Target *target, double x);
/* Elements from an argument's start to this row; NULL for none. */
const char *text_row_offset(const RowPrinter *p, const RowArg *arg);
/* The argument's element at this row (and column), and its value. */
const char *text_element(const RowPrinter *p, const RowArg *arg, const char *column);
/* So many elements behind it. */
const char *text_element_at(const RowPrinter *p, const RowArg *arg, const char *column,
                            int64_t offset);
const char *text_loaded(const RowPrinter *p, const RowArg *arg, const char *text);

/* What a term means in this column: lanes decide pairs, padding and turned columns. */
void resolve_term(const RowPrinter *p, TermId *id, int *lane);
/* Declares a variable that holds the term. */
void print_term(RowPrinter *p, TermId id, int lane);
/* A constant, an index or an origin: needs no variable. */
bool term_is_free(const RowPrinter *p, TermId id);

#endif
