/* json_locate.h - where a value stands in a JSON text, by pointer. Used by json.c alone. */
#ifndef LPLAN_IR_BASE_JSON_LOCATE_H
#define LPLAN_IR_BASE_JSON_LOCATE_H

#include "ir/base/diag.h"

/* The value at an RFC 6901 pointer, or of the nearest ancestor that exists; with want_key the key
 * of that member when it exists. The text must be valid JSON: it is scanned without recursion and
 * only when there is an error. */
Span json_locate(Arena *arena, const Source *source, const char *pointer, bool want_key);
/* A run of bytes as a span. */
Span json_span_bytes(const Source *source, size_t offset, size_t bytes);

#endif
