/* Files of choices: their lines, and lists of them. The page choices.md has the format. */
#define _POSIX_C_SOURCE 200809L
#include "choices.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef KILN_DISABLED

const char kiln_library_name[] = "kiln";

static const char header[] = "kernel-choices 1";

static const char *const keys[KILN_WORDS]
    = { "library=", "group=", "device=", "shape=", "variant=", "target=", "sha256=", "nanoseconds=" };

static const char letters[] = "0123456789_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+-.:";

enum { NAME_LETTERS = 63, ALL_LETTERS = sizeof letters - 1 };

static bool consists_of(const char *text, size_t length, size_t kinds)
{
    size_t i = 0;
    while (i < length && text[i] != '\0' && memchr(letters, text[i], kinds) != NULL) {
        i++;
    }
    return length > 0 && i == length;
}

/* A number as it is written: no sign, no zero in front, below 2^63. */
static bool is_number(const char *text, size_t length, uint64_t *number)
{
    *number = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || i > 18 || (i == 1 && text[0] == '0')) {
            return false;
        }
        *number = 10 * *number + (uint64_t)(text[i] - '0');
    }
    return length > 0 && *number <= INT64_MAX;
}

/* A power of two as a bucket has it; 2^63 and 2^64 are too. */
static bool is_power(const char *text, size_t length)
{
    static const char *const large[] = { "9223372036854775808", "18446744073709551616" };
    uint64_t number = 0;
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        if (strlen(large[i]) == length && memcmp(large[i], text, length) == 0) {
            return true;
        }
    }
    return is_number(text, length, &number) && (number & (number - 1)) == 0;
}

/* "-", or "n_cols:2048,n_rows:16". */
static bool is_shape(const char *text)
{
    if (strcmp(text, "-") == 0) {
        return true;
    }
    for (;;) {
        const size_t name = strcspn(text, ":");
        const size_t number = strcspn(text + name, ",");
        if (!consists_of(text, name, NAME_LETTERS) || number < 2 || !is_power(text + name + 1, number - 1)) {
            return false;
        }
        text += name + number;
        if (*text == '\0') {
            return true;
        }
        text++;
    }
}

static bool is_fit(int word, const char *text)
{
    uint64_t number;
    switch (word) {
    case KILN_SHAPE:
        return is_shape(text);
    case KILN_SHA256:
        return strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64;
    case KILN_NANOSECONDS:
        return is_number(text, strlen(text), &number);
    case KILN_DEVICE:
    case KILN_TARGET:
        return consists_of(text, strlen(text), ALL_LETTERS);
    default:
        return consists_of(text, strlen(text), NAME_LETTERS);
    }
}

struct kiln_choice_line *kiln_parse_line(const char *line, size_t length, char *why, size_t size)
{
    why[0] = '\0';
    if (length > KILN_MAX_LINE) {
        snprintf(why, size, "it is longer than %d bytes", KILN_MAX_LINE);
        return NULL;
    }
    struct kiln_choice_line *made = malloc(sizeof *made + 2 * (length + 1));
    if (made == NULL) {
        return NULL;
    }
    char *rest = made->text + length + 1;
    memcpy(made->text, line, length);
    made->text[length] = '\0';
    memcpy(rest, made->text, length + 1);
    made->line = made->text;
    for (int word = 0; word < KILN_WORDS; word++) {
        char *end = rest + strcspn(rest, " ");
        const bool is_last = *end == '\0';
        const size_t key = strlen(keys[word]);
        if (strncmp(rest, keys[word], key) != 0) {
            snprintf(why, size, "word %d is not %s...", word + 1, keys[word]);
        } else if (is_last != (word == KILN_WORDS - 1)) {
            snprintf(why, size, is_last ? "%s... is missing" : "something follows %s...",
                is_last ? keys[word + 1] : keys[word]);
        } else {
            *end = '\0';
            made->words[word] = rest + key;
            if (!is_fit(word, rest + key)) {
                snprintf(why, size, "%s... has no such value", keys[word]);
            }
            rest = end + 1;
        }
        if (why[0] != '\0') {
            break;
        }
    }
    if (why[0] == '\0' && strlen(made->line) != length) {
        snprintf(why, size, "a byte of it is 0");
    }
    if (why[0] != '\0') {
        free(made);
        return NULL;
    }
    return made;
}

static int compare(const struct kiln_choice_line *line, const char *const *words, size_t count)
{
    int difference = 0;
    for (size_t i = 0; i < count && difference == 0; i++) {
        difference = strcmp(line->words[i], words[i]);
    }
    return difference;
}

bool kiln_line_has(const struct kiln_choice_line *line, const char *const *words, size_t count)
{
    return compare(line, words, count) == 0;
}

size_t kiln_find_line(const struct kiln_choice_list *list, const char *const *words, size_t count)
{
    size_t low = 0, high = list->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (compare(list->lines[middle], words, count) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

int kiln_put_line(struct kiln_choice_list *list, struct kiln_choice_line *line)
{
    const size_t place = kiln_find_line(list, line->words, KILN_KEY_WORDS);
    if (place < list->count && kiln_line_has(list->lines[place], line->words, KILN_KEY_WORDS)) {
        free(list->lines[place]);
        list->lines[place] = line;
        return 0;
    }
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity != 0 ? 2 * list->capacity : 16;
        struct kiln_choice_line **lines = realloc(list->lines, capacity * sizeof *lines);
        if (lines == NULL) {
            free(line);
            return kiln_fail(KILN_ERROR_OUT_OF_MEMORY, "", "no memory for %zu choices", list->count + 1);
        }
        list->lines = lines;
        list->capacity = capacity;
    }
    memmove(&list->lines[place + 1], &list->lines[place], (list->count - place) * sizeof *list->lines);
    list->lines[place] = line;
    list->count++;
    return 0;
}

void kiln_drop_line(struct kiln_choice_list *list, size_t place)
{
    free(list->lines[place]);
    list->count--;
    memmove(&list->lines[place], &list->lines[place + 1], (list->count - place) * sizeof *list->lines);
}

void kiln_clear_list(struct kiln_choice_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->lines[i]);
    }
    free(list->lines);
    memset(list, 0, sizeof *list);
}

static int fail_file(const char *path, const char *what)
{
    return kiln_fail(KILN_ERROR_FILE, "", "%.400s: %s: %s", path, what, strerror(errno));
}

/* Reads a line without its end into a buffer of KILN_MAX_LINE + 1 bytes; of a longer one only `length` tells. False at the
 * end of the file. */
static bool read_line(FILE *file, char *buffer, size_t *length)
{
    int byte = getc(file);
    *length = 0;
    if (byte == EOF) {
        return false;
    }
    for (; byte != EOF && byte != '\n'; byte = getc(file)) {
        if (*length <= KILN_MAX_LINE) {
            buffer[*length] = (char)byte;
        }
        ++*length;
    }
    if (*length > 0 && *length <= KILN_MAX_LINE && buffer[*length - 1] == '\r') {
        --*length; /* as editors elsewhere end lines */
    }
    return true;
}

static bool is_header(const char *line, size_t length)
{
    return length == sizeof header - 1 && memcmp(line, header, length) == 0;
}

static int check_header(const char *path, const char *line, size_t length)
{
    const size_t name = sizeof header - 2; /* without the version */
    if (is_header(line, length)) {
        return 0;
    }
    if (length > name && length <= KILN_MAX_LINE && memcmp(line, header, name) == 0) {
        return kiln_fail(KILN_ERROR_FILE, "", "%.300s:1: it has schema version %.*s, and this library reads 1", path,
            (int)(length - name < 20 ? length - name : 20), line + name);
    }
    return kiln_fail(KILN_ERROR_FILE, "", "%.300s:1: it is no file of choices, which begins with %s", path, header);
}

/* Takes one line in, or passes it over; below 0 when memory is short. */
static int take_line(const char *path, size_t number, const char *line, size_t length, bool takes_all,
    struct kiln_choice_list *list, struct kiln_choices_report *report)
{
    char why[100] = "";
    if (length == 0 || line[0] == '#' || is_header(line, length)) {
        return 0; /* the header stands in the middle where files were written one behind the other */
    }
    struct kiln_choice_line *made = kiln_parse_line(line, length, why, sizeof why);
    if (made == NULL && why[0] == '\0') {
        return kiln_fail(KILN_ERROR_OUT_OF_MEMORY, "", "no memory for line %zu of %.300s", number, path);
    }
    const bool is_foreign = made != NULL && !takes_all && strcmp(made->words[KILN_LIBRARY], kiln_library_name) != 0;
    if (made != NULL && !is_foreign) {
        report->taken++;
        return kiln_put_line(list, made);
    }
    if (is_foreign) {
        snprintf(why, sizeof why, "it is of the library %.60s", made->words[KILN_LIBRARY]);
    }
    *(is_foreign ? &report->foreign : &report->bad) += 1;
    free(made);
    if (report->tell != NULL) {
        report->tell(report->user, path, number, why);
    }
    return 0;
}

int kiln_read_list(
    const char *path, bool takes_all, struct kiln_choice_list *list, struct kiln_choices_report *report)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return fail_file(path, "it cannot be opened");
    }
    char line[KILN_MAX_LINE + 1];
    size_t length = 0, number = 0;
    int status = 0;
    while (status == 0 && read_line(file, line, &length)) {
        number++;
        status = number == 1 ? check_header(path, line, length)
                             : take_line(path, number, line, length, takes_all, list, report);
    }
    if (status == 0 && ferror(file)) {
        status = fail_file(path, "it cannot be read");
    } else if (status == 0 && number == 0) {
        status = check_header(path, "", 0);
    }
    fclose(file);
    return status;
}

/* The file's lines, down to the disk. */
static bool write_lines(int descriptor, const struct kiln_choice_list *list)
{
    FILE *file = fdopen(descriptor, "w");
    if (file == NULL) {
        close(descriptor);
        return false;
    }
    bool is_written = fprintf(file, "%s\n", header) > 0;
    for (size_t i = 0; is_written && i < list->count; i++) {
        is_written = fprintf(file, "%s\n", list->lines[i]->line) > 0;
    }
    is_written = is_written && fflush(file) == 0 && fsync(descriptor) == 0;
    return fclose(file) == 0 && is_written;
}

int kiln_write_list(const char *path, const struct kiln_choice_list *list)
{
    enum { TRIES = 1000 };
    static unsigned int number;
    const size_t size = strlen(path) + 48;
    char *temporary = malloc(size);
    if (temporary == NULL) {
        return kiln_fail(KILN_ERROR_OUT_OF_MEMORY, "", "no memory to write choices");
    }
    /* A process that was killed leaves its file, and the next one may have the same number: in a container all have. */
    int status = 0, descriptor = -1;
    for (int i = 0; i < TRIES && (i == 0 || (descriptor < 0 && errno == EEXIST)); i++) {
        snprintf(temporary, size, "%s.%ld.%u.tmp", path, (long)getpid(), __atomic_add_fetch(&number, 1, __ATOMIC_RELAXED));
        descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    if (descriptor < 0) {
        status = fail_file(temporary, "it cannot be made");
    } else if (!write_lines(descriptor, list)) {
        status = fail_file(temporary, "it cannot be written");
    } else if (rename(temporary, path) != 0) {
        status = fail_file(path, "it cannot be replaced");
    }
    if (status != 0 && descriptor >= 0) {
        unlink(temporary);
    }
    free(temporary);
    return status;
}

int kiln_merge_choices(const char *first, const char *second, const char *output, struct kiln_choices_report *report)
{
    struct kiln_choices_report unasked = { 0, 0, 0, NULL, NULL };
    struct kiln_choices_report *told = report != NULL ? report : &unasked;
    struct kiln_choice_list list = { NULL, 0, 0 };
    if (first == NULL || second == NULL || output == NULL) {
        return kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "", "a merge of choices needs three paths");
    }
    told->taken = told->foreign = told->bad = 0;
    int status = kiln_read_list(first, true, &list, told);
    status = status != 0 ? status : kiln_read_list(second, true, &list, told);
    status = status != 0 ? status : kiln_write_list(output, &list);
    kiln_clear_list(&list);
    return status;
}

#endif
