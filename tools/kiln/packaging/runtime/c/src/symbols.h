/* Functions of a shared library by name. */
#ifndef KILN_SYMBOLS_H
#define KILN_SYMBOLS_H

#include "internal.h"

struct kiln_symbol {
    const char *name;
    void *place;      /* of a pointer to a function */
    bool is_needed;   /* else the place is NULL where there is no such function */
};

/* The first library of some names, NULL at their end: one that the process has already before any other. On failure
 * `why`, what the system says of the first name, is written. */
KILN_INTERNAL void *kiln_open_library(const char *const *names, char *why, size_t size);

/* Writes each symbol's place. Notes a failure where one that is needed is missing. */
KILN_INTERNAL int kiln_resolve(
    void *library, const char *library_name, const struct kiln_symbol *symbols, size_t count, const char *since);

#endif
