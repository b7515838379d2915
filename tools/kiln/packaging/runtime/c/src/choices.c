/* What a process knows of choices, and what launches find of it.
 *
 * What is known is a list of lines, under the lock. Each group has buckets, for launches: they find one without a lock, and
 * look it up in the list where the list has changed since. Buckets only grow, until all is forgotten.
 */
#include "choices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef KILN_DISABLED

static struct kiln_choice_list known;
static struct kiln_tuned *tuned; /* of the groups that have buckets */

/* An integer of an argument struct. What is above INT64_MAX without a sign is in the last bucket all the same. */
static uint64_t extent_of(const struct kiln_extent *extent, const void *args)
{
    const unsigned char *at = (const unsigned char *)args + extent->offset;
    uint64_t value = 0;
    uint8_t byte;
    uint16_t half;
    uint32_t word;
    switch (extent->size) {
    case 1:
        memcpy(&byte, at, sizeof byte);
        value = extent->is_signed ? (uint64_t)(int64_t)(int8_t)byte : byte;
        break;
    case 2:
        memcpy(&half, at, sizeof half);
        value = extent->is_signed ? (uint64_t)(int64_t)(int16_t)half : half;
        break;
    case 4:
        memcpy(&word, at, sizeof word);
        value = extent->is_signed ? (uint64_t)(int64_t)(int32_t)word : word;
        break;
    default:
        memcpy(&value, at, sizeof value);
        break;
    }
    return extent->is_signed && value > (uint64_t)INT64_MAX ? 0 : value;
}

struct kiln_shape kiln_shape_of(const struct kiln_group *group, const void *args)
{
    struct kiln_shape shape;
    memset(&shape, 0, sizeof shape);
    for (uint32_t i = 0; i < group->extent_count && i < KILN_MAX_EXTENTS; i++) {
        const uint64_t value = extent_of(&kiln_group_extents(group)[i], args);
        shape.codes[i] = value <= 1 ? (uint8_t)value : (uint8_t)(65 - __builtin_clzll(value - 1));
    }
    return shape;
}

/* The bucket in a file's words. */
static int write_shape(const struct kiln_group *group, const struct kiln_shape *shape, char *text, size_t size)
{
    size_t used = 0;
    for (uint32_t i = 0; i < group->extent_count && i < KILN_MAX_EXTENTS && used < size; i++) {
        const uint8_t code = shape->codes[i];
        const char *comma = i > 0 ? "," : "";
        const char *name = kiln_extent_name(&kiln_group_extents(group)[i]);
        const int more = code < 65
            ? snprintf(text + used, size - used, "%s%s:%llu", comma, name,
                  code == 0 ? 0ULL : 1ULL << (code - 1))
            : snprintf(text + used, size - used, "%s%s:18446744073709551616", comma, name);
        used += (size_t)more;
    }
    if (used == 0 && size > 1) {
        used = (size_t)snprintf(text, size, "-");
    }
    return used < size ? 0
                       : kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "", "the shape of %s does not fit in %zu bytes",
                             kiln_group_name(group), size);
}

int kiln_describe_shape(const struct kiln_group *group, const void *args, char *text, size_t size)
{
    if (group == NULL || args == NULL || text == NULL) {
        return kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "", "a shape needs a group, arguments, and a place to stand");
    }
    const struct kiln_shape shape = kiln_shape_of(group, args);
    return write_shape(group, &shape, text, size);
}

/* A device in one word: its name, in which every byte that words do not have is an underscore. Under the lock. */
static int name_device(const struct kiln_driver *driver, int32_t ordinal, struct kiln_device *device, char *name, size_t size)
{
    const int status = kiln_describe_known(driver, ordinal, device);
    if (status != 0) {
        return status;
    }
    snprintf(name, size, "%s", device->name[0] != '\0' ? device->name : device->architecture);
    for (char *at = name; *at != '\0'; at++) {
        const bool is_letter = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9');
        if (!is_letter && strchr("_+-.:", *at) == NULL) {
            *at = '_';
        }
    }
    return 0;
}

static void write_digest(const struct kiln_image *image, char digest[65])
{
    for (size_t i = 0; i < sizeof image->sha256; i++) {
        snprintf(digest + 2 * i, 3, "%02x", image->sha256[i]);
    }
}

/* Whether a choice is of an image that this library no longer has. What the program has not linked cannot be told. */
static bool is_outdated(const struct kiln_group *group, const struct kiln_choice_line *line)
{
    char digest[65];
    bool is_told = true;
    for (uint32_t i = 0; i < group->variant_count; i++) {
        const struct kiln_variant *variant = kiln_variants_of(group)[i];
        if (variant == NULL || strcmp(kiln_variant_name(variant), line->words[KILN_VARIANT]) != 0) {
            is_told = is_told && variant != NULL;
            continue;
        }
        for (uint32_t k = 0; k < variant->image_count; k++) {
            const struct kiln_image *image = kiln_images_of(variant)[k];
            if (image != NULL && strcmp(kiln_image_target(image), line->words[KILN_TARGET]) == 0) {
                write_digest(image, digest);
                return strcmp(digest, line->words[KILN_SHA256]) != 0;
            }
            is_told = is_told && image != NULL;
        }
        return is_told;
    }
    return is_told;
}

/* The variant that is chosen for a bucket on a device, whose image for that device is the one that was measured; NULL when
 * there is none. Drops what is outdated of the group. */
static const struct kiln_variant *look_up(
    const struct kiln_group *group, const struct kiln_device *device, const char *name, const char *shape)
{
    const char *const words[] = { kiln_library_name, kiln_group_name(group), name, shape };
    size_t place = kiln_find_line(&known, words, 2);
    while (place < known.count && kiln_line_has(known.lines[place], words, 2)) {
        if (is_outdated(group, known.lines[place])) {
            kiln_drop_line(&known, place);
        } else {
            place++;
        }
    }
    place = kiln_find_line(&known, words, KILN_KEY_WORDS);
    if (place == known.count || !kiln_line_has(known.lines[place], words, KILN_KEY_WORDS)) {
        return NULL;
    }
    for (uint32_t i = 0; i < group->variant_count; i++) {
        const struct kiln_variant *variant = kiln_variants_of(group)[i];
        const struct kiln_image *image = NULL;
        char why[1];
        if (variant != NULL && strcmp(kiln_variant_name(variant), known.lines[place]->words[KILN_VARIANT]) == 0) {
            kiln_best_image(variant, device, &image, why, 0);
            return image != NULL && strcmp(kiln_image_target(image), known.lines[place]->words[KILN_TARGET]) == 0
                ? variant
                : NULL;
        }
    }
    return NULL;
}

static struct kiln_bucket *walk(struct kiln_bucket *bucket, const struct kiln_shape *shape, int32_t device)
{
    while (bucket != NULL && (bucket->device != device || memcmp(&bucket->shape, shape, sizeof *shape) != 0)) {
        bucket = bucket->next;
    }
    return bucket;
}

static size_t place_of(const struct kiln_shape *shape, int32_t device)
{
    uint64_t halves[2];
    memcpy(halves, shape, sizeof halves);
    const uint64_t mixed = (halves[0] ^ (halves[1] * 31) ^ (uint64_t)(uint32_t)device) * 0x9e3779b97f4a7c15ULL;
    return (size_t)(mixed >> 32) % KILN_TUNED_LISTS;
}

/* Looks a bucket up in what is known. Under the lock. */
static int refresh(const struct kiln_driver *driver, const struct kiln_group *group, struct kiln_bucket *bucket)
{
    struct kiln_device device;
    char name[sizeof device.name], shape[KILN_MAX_SHAPE];
    int status = name_device(driver, bucket->device, &device, name, sizeof name);
    status = status != 0 ? status : write_shape(group, &bucket->shape, shape, sizeof shape);
    if (status == 0) {
        __atomic_store_n(&bucket->variant, look_up(group, &device, name, shape), __ATOMIC_RELAXED);
        __atomic_store_n(&bucket->generation, kiln_generation, __ATOMIC_RELEASE);
    }
    return status;
}

struct kiln_bucket *kiln_find_bucket(const struct kiln_driver *driver, const struct kiln_current *current,
    const struct kiln_group *group, const void *args)
{
    const struct kiln_shape shape = kiln_shape_of(group, args);
    struct kiln_bucket **head = &kiln_tuned_of(group)->buckets[place_of(&shape, current->device)];
    struct kiln_bucket *found = walk(__atomic_load_n(head, __ATOMIC_ACQUIRE), &shape, current->device);
    if (found != NULL
        && __atomic_load_n(&found->generation, __ATOMIC_ACQUIRE) == __atomic_load_n(&kiln_generation, __ATOMIC_RELAXED)) {
        return found;
    }
    kiln_lock();
    found = walk(*head, &shape, current->device);
    if (found == NULL) {
        found = calloc(1, sizeof *found);
        if (found == NULL) {
            kiln_fail(KILN_ERROR_OUT_OF_MEMORY, "", "no memory for a bucket of %s", kiln_group_name(group));
        } else {
            found->shape = shape;
            found->device = current->device;
            if (refresh(driver, group, found) != 0) {
                free(found);
                found = NULL;
            }
        }
        if (found != NULL) {
            found->next = *head;
            __atomic_store_n(head, found, __ATOMIC_RELEASE);
            if (!kiln_tuned_of(group)->is_listed) {
                kiln_tuned_of(group)->next = tuned;
                kiln_tuned_of(group)->is_listed = true;
                tuned = kiln_tuned_of(group);
            }
        }
    } else if (found->generation != kiln_generation && refresh(driver, group, found) != 0) {
        found = NULL;
    }
    kiln_unlock();
    return found;
}

/* Launches look up again what they know. Under the lock. */
static void renew(void)
{
    __atomic_add_fetch(&kiln_generation, 1, __ATOMIC_RELEASE);
}

int kiln_remember(const struct kiln_driver *driver, const struct kiln_current *current, const struct kiln_group *group,
    const void *args, const struct kiln_image *image, uint64_t nanoseconds)
{
    struct kiln_device device;
    char name[sizeof device.name], shape[KILN_MAX_SHAPE], digest[65], line[KILN_MAX_LINE + 1], why[100] = "";
    int status = kiln_describe_shape(group, args, shape, sizeof shape);
    if (status != 0) {
        return status;
    }
    write_digest(image, digest);
    kiln_lock();
    status = name_device(driver, current->device, &device, name, sizeof name);
    if (status == 0) {
        const int length = snprintf(line, sizeof line,
            "library=%s group=%s device=%s shape=%s variant=%s target=%s sha256=%s nanoseconds=%llu", kiln_library_name,
            kiln_group_name(group), name, shape, kiln_image_variant(image), kiln_image_target(image), digest,
            (unsigned long long)nanoseconds);
        struct kiln_choice_line *made = kiln_parse_line(line, (size_t)length, why, sizeof why);
        if (made != NULL) {
            status = kiln_put_line(&known, made);
        } else if (why[0] != '\0') {
            status = kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "", "the choice for %s makes no line: %s",
                kiln_group_name(group), why);
        } else {
            status = kiln_fail(KILN_ERROR_OUT_OF_MEMORY, "", "no memory for the choice for %s", kiln_group_name(group));
        }
        renew();
    }
    kiln_unlock();
    return status;
}

int kiln_load_choices(const char *path, struct kiln_choices_report *report)
{
    struct kiln_choices_report unasked = { 0, 0, 0, NULL, NULL };
    struct kiln_choices_report *told = report != NULL ? report : &unasked;
    struct kiln_choice_list read = { NULL, 0, 0 };
    if (path == NULL) {
        return kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "", "there is no path to load choices from");
    }
    told->taken = told->foreign = told->bad = 0;
    int status = kiln_read_list(path, false, &read, told);
    if (status == 0) {
        kiln_lock();
        while (status == 0 && read.count > 0) {
            read.count--;
            status = kiln_put_line(&known, read.lines[read.count]);
        }
        renew();
        kiln_unlock();
    }
    kiln_clear_list(&read);
    return status;
}

int kiln_save_choices(const char *path)
{
    if (path == NULL) {
        return kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "", "there is no path to save choices to");
    }
    /* A copy, so that no launch waits for a disk. */
    struct kiln_choice_list copy = { NULL, 0, 0 };
    char why[100];
    int status = 0;
    kiln_lock();
    for (size_t i = 0; i < known.count && status == 0; i++) {
        const char *line = known.lines[i]->line;
        struct kiln_choice_line *made = kiln_parse_line(line, strlen(line), why, sizeof why);
        status = made != NULL ? kiln_put_line(&copy, made)
                              : kiln_fail(KILN_ERROR_OUT_OF_MEMORY, "", "no memory to save choices");
    }
    kiln_unlock();
    status = status != 0 ? status : kiln_write_list(path, &copy);
    kiln_clear_list(&copy);
    return status;
}

size_t kiln_choice_count(void)
{
    kiln_lock();
    const size_t count = known.count;
    kiln_unlock();
    return count;
}

void kiln_forget_choices(void)
{
    kiln_lock();
    kiln_clear_list(&known);
    while (tuned != NULL) {
        struct kiln_tuned *each = tuned;
        tuned = each->next;
        for (size_t i = 0; i < KILN_TUNED_LISTS; i++) {
            struct kiln_bucket *bucket = each->buckets[i];
            each->buckets[i] = NULL;
            while (bucket != NULL) {
                struct kiln_bucket *next = bucket->next;
                free(bucket);
                bucket = next;
            }
        }
        each->next = NULL;
        each->is_listed = false;
    }
    renew();
    kiln_unlock();
}

#endif
