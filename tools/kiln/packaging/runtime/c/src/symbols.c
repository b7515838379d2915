/* Opens a driver's library, and resolves what is used of it. */
#include "symbols.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifndef KILN_DISABLED

void *kiln_open_library(const char *const *names, char *why, size_t size)
{
    /* A program may have brought its own, under a name that is not found again: take that one. */
    for (size_t i = 0; names[i] != NULL; i++) {
        void *library = dlopen(names[i], RTLD_LAZY | RTLD_NOLOAD);
        if (library != NULL) {
            return library;
        }
    }
    for (size_t i = 0; names[i] != NULL; i++) {
        void *library = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);
        if (library != NULL) {
            return library;
        }
        const char *error = dlerror();
        if (i == 0) {
            snprintf(why, size, "%s", error != NULL ? error : names[i]);
        }
    }
    return NULL;
}

int kiln_resolve(
    void *library, const char *library_name, const struct kiln_symbol *symbols, size_t count, const char *since)
{
    for (size_t i = 0; i < count; i++) {
        void *found = dlsym(library, symbols[i].name);
        if (found == NULL && symbols[i].is_needed) {
            return kiln_fail(KILN_ERROR_SYMBOL_MISSING, "dlsym", "%s lacks the function %s, which drivers have since %s",
                library_name, symbols[i].name, since);
        }
        /* C converts no pointer to an object into one to a function; POSIX has both alike. */
        memcpy(symbols[i].place, &found, sizeof found);
    }
    return 0;
}

#endif
