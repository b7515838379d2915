/* What is chosen: lines of a file, and what launches find of them. */
#ifndef KILN_CHOICES_H
#define KILN_CHOICES_H

#include "internal.h"

#include <kiln/kiln_tuner.h>

/* The words of a line, in order. */
enum { KILN_LIBRARY, KILN_GROUP, KILN_DEVICE, KILN_SHAPE, KILN_VARIANT, KILN_TARGET, KILN_SHA256, KILN_NANOSECONDS, KILN_WORDS };

/* Words that say what is chosen for; the others say what is. */
enum { KILN_KEY_WORDS = KILN_VARIANT };

enum { KILN_MAX_LINE = 2000, KILN_MAX_EXTENTS = 16, KILN_MAX_SHAPE = 1000 };

/* One choice. The words are what follows the equals signs. */
struct kiln_choice_line {
    const char *words[KILN_WORDS];
    const char *line; /* whole */
    char text[];
};

/* Choices, no two with the same key, in the order of their lines' bytes. */
struct kiln_choice_list {
    struct kiln_choice_line **lines;
    size_t count;
    size_t capacity;
};

/* This library's name. */
extern KILN_INTERNAL const char kiln_library_name[];

/* Makes a choice of a line without its end; NULL when it is none, with why, or when memory is short, with an empty why. */
KILN_INTERNAL struct kiln_choice_line *kiln_parse_line(const char *line, size_t length, char *why, size_t size);

/* Takes a line in, in place of one with the same key. A failure frees it. */
KILN_INTERNAL int kiln_put_line(struct kiln_choice_list *list, struct kiln_choice_line *line);

/* The place of the first line whose first words are not below some. */
KILN_INTERNAL size_t kiln_find_line(const struct kiln_choice_list *list, const char *const *words, size_t count);

/* Whether a line begins with some words. */
KILN_INTERNAL bool kiln_line_has(const struct kiln_choice_line *line, const char *const *words, size_t count);

KILN_INTERNAL void kiln_drop_line(struct kiln_choice_list *list, size_t place);
KILN_INTERNAL void kiln_clear_list(struct kiln_choice_list *list);

/* Reads a file into a list, of this library alone or of all; nothing is taken on failure. */
KILN_INTERNAL int kiln_read_list(
    const char *path, bool takes_all, struct kiln_choice_list *list, struct kiln_choices_report *report);

/* Writes a list: a new file, then a new name. */
KILN_INTERNAL int kiln_write_list(const char *path, const struct kiln_choice_list *list);

/* The bucket of a call: of each extent 0 for 0 and below, else 1 + the exponent of the power of two; what is left is 0. */
struct kiln_shape {
    uint8_t codes[KILN_MAX_EXTENTS];
};

/* What is known of a bucket on a device of this process. */
struct kiln_bucket {
    struct kiln_bucket *next;
    struct kiln_shape shape;
    int32_t device;
    uint32_t generation; /* of what is known, when this was looked up; it is written last */
    const struct kiln_variant *variant; /* NULL: none */
    int is_tried; /* whether a launch has measured it, or does so now */
};

KILN_INTERNAL struct kiln_shape kiln_shape_of(const struct kiln_group *group, const void *args);

/* The bucket, up to date; NULL where memory is short. */
KILN_INTERNAL struct kiln_bucket *kiln_find_bucket(const struct kiln_driver *driver, const struct kiln_current *current,
    const struct kiln_group *group, const void *args);

/* Remembers an image for the bucket of a call. */
KILN_INTERNAL int kiln_remember(const struct kiln_driver *driver, const struct kiln_current *current,
    const struct kiln_group *group, const void *args, const struct kiln_image *image, uint64_t nanoseconds);

#endif
