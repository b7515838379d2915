/* Images into the driver: each once for where it serves, at its first use or before.
 *
 * What a variant has loaded is a list of slots, one for each device (and context, where modules belong to contexts). A
 * launch walks it without a lock. Slots are added under the lock, and complete when they can be seen; only the function
 * comes later, when the image is loaded.
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef KILN_DISABLED

static struct kiln_cache *caches; /* all that have slots */

bool kiln_has_slots(void)
{
    return caches != NULL;
}

static struct kiln_slot *walk(
    struct kiln_slot *slot, const struct kiln_current *current, const struct kiln_image *given)
{
    while (slot != NULL
        && (slot->device != current->device || slot->scope != current->scope || (given != NULL && slot->image != given))) {
        slot = slot->next;
    }
    return slot;
}

static uint32_t offset_of(const struct kiln_image *image, enum kiln_role role)
{
    for (uint32_t i = 0; i < image->parameter_count; i++) {
        if (kiln_image_parameters(image)[i].role == role) {
            return kiln_image_parameters(image)[i].offset;
        }
    }
    return 0;
}

/* A variant's own image for what a caller gives, which may be a copy; NULL where it is none of the variant's. */
static const struct kiln_image *own_image(const struct kiln_variant *variant, const struct kiln_image *given)
{
    for (uint32_t i = 0; i < variant->image_count; i++) {
        if (kiln_is_same_image(kiln_images_of(variant)[i], given)) {
            return kiln_images_of(variant)[i];
        }
    }
    return NULL;
}

/* The image that a new slot gets: the best for the device, NULL where there is none, or the given one if it is fit. */
static int image_for(const struct kiln_driver *driver, const struct kiln_variant *variant, int32_t device,
    const struct kiln_image *given, const struct kiln_image **image)
{
    struct kiln_device described;
    char why[160];
    const int status = kiln_describe_known(driver, device, &described);
    if (status != 0) {
        return status;
    }
    *image = given;
    if (given == NULL) {
        kiln_best_image(variant, &described, image, why, 0);
        return 0;
    }
    const int rank = kiln_judge(given, &described, why, sizeof why);
    return rank > 0 ? 0 : kiln_fail(rank, "", "%s on device %d (%s): %s", kiln_image_id(given), (int)device,
                     described.architecture, why);
}

/* What a launch loads for an image: the variant's fat binary where it may be the driver that chooses, or the image's own. */
static const void *data_for(const struct kiln_driver *driver, const struct kiln_variant *variant,
    const struct kiln_image *image, bool is_given)
{
    const void *bundle = kiln_bundle_of(variant);
    const bool is_free = !is_given && kiln_only_target() == NULL && driver->chosen != NULL;
    return bundle != NULL && is_free && image->kind != KILN_KIND_HSACO ? bundle : kiln_data_of(image);
}

/* Puts a slot that is complete but for what is loaded at the head of a list. */
static void add_slot(struct kiln_cache *cache, struct kiln_slot **head, struct kiln_slot *slot)
{
    if (slot->image != NULL) {
        slot->global_scratch_offset = offset_of(slot->image, KILN_ROLE_GLOBAL_SCRATCH);
        slot->profile_scratch_offset = offset_of(slot->image, KILN_ROLE_PROFILE_SCRATCH);
    }
    slot->next = *head;
    __atomic_store_n(head, slot, __ATOMIC_RELEASE);
    if (!cache->is_listed) {
        cache->next = caches;
        cache->is_listed = true;
        caches = cache;
    }
}

int kiln_find_slot(const struct kiln_driver *driver, const struct kiln_current *current,
    const struct kiln_variant *variant, const struct kiln_image *given, struct kiln_slot **found)
{
    struct kiln_cache *cache = kiln_cache_of(variant);
    struct kiln_slot **head = given != NULL ? &cache->given : &cache->chosen;
    const struct kiln_image *own = given != NULL ? own_image(variant, given) : NULL;
    if (given != NULL && own == NULL) {
        return kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "", "%s is no image of %s", kiln_image_id(given),
            kiln_variant_name(variant));
    }
    *found = walk(__atomic_load_n(head, __ATOMIC_ACQUIRE), current, own);
    if (*found != NULL) {
        return 0;
    }
    kiln_lock();
    int status = 0;
    *found = walk(*head, current, own); /* another thread may have been faster */
    if (*found == NULL) {
        const struct kiln_image *image = NULL;
        status = image_for(driver, variant, current->device, own, &image);
        struct kiln_slot *slot = status == 0 ? calloc(1, sizeof *slot) : NULL;
        if (slot != NULL) {
            slot->device = current->device;
            slot->scope = current->scope;
            slot->image = image;
            slot->data = image != NULL ? data_for(driver, variant, image, given != NULL) : NULL;
            add_slot(cache, head, slot);
            *found = slot;
        } else if (status == 0) {
            status = kiln_fail(KILN_ERROR_OUT_OF_MEMORY, "", "no memory for %s", kiln_variant_name(variant));
        }
    }
    kiln_unlock();
    return status;
}

int kiln_refuse(const struct kiln_driver *driver, const struct kiln_variant *variant, int32_t device)
{
    struct kiln_device described;
    const struct kiln_image *image = NULL;
    char why[480] = "";
    kiln_lock();
    int status = kiln_describe_known(driver, device, &described);
    kiln_unlock();
    if (status == 0) {
        status = kiln_best_image(variant, &described, &image, why, sizeof why);
        kiln_fail(status, "", "%s", why);
    }
    return status;
}

/* The module where another slot of the variant has it already. */
static void *shared_module(const struct kiln_cache *cache, const struct kiln_slot *slot)
{
    const struct kiln_slot *const lists[] = { cache->chosen, cache->given };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        for (const struct kiln_slot *each = lists[i]; each != NULL; each = each->next) {
            if (each->data == slot->data && each->scope == slot->scope && each->module != NULL) {
                return each->module;
            }
        }
    }
    return NULL;
}

static int load_module(const struct kiln_driver *driver, const struct kiln_variant *variant, struct kiln_slot *slot,
    const char *what)
{
    char log[360] = "";
    slot->module = shared_module(kiln_cache_of(variant), slot);
    if (slot->module != NULL) {
        return 0;
    }
    const int code = driver->load(driver->user, slot->image, slot->data, &slot->module, log, sizeof log);
    if (code != 0) {
        slot->module = NULL;
        return kiln_driver_failed(code, "load", what, log);
    }
    slot->owns_module = true;
    return 0;
}

static void unload_module(const struct kiln_driver *driver, struct kiln_slot *slot)
{
    if (slot->owns_module) {
        driver->unload(driver->user, slot->module, slot->scope);
    }
    slot->owns_module = false;
    slot->module = NULL;
}

/* A fat binary is loaded. The slot becomes that of the image which the driver takes: another one where a search by the
 * library's own rules came to another image. An image that cannot be told, or that the device cannot launch, is not used:
 * then the slot's own is loaded alone. */
static int settle_choice(const struct kiln_driver *driver, const struct kiln_variant *variant, struct kiln_slot **place,
    const char *what)
{
    struct kiln_slot *slot = *place;
    struct kiln_cache *cache = kiln_cache_of(variant);
    struct kiln_device device;
    int32_t capability = 0;
    const struct kiln_image *taken = NULL;
    if (driver->chosen(driver->user, slot->module, slot->image, slot->device, &capability) == 0) {
        if (kiln_is_of_capability(slot->image, capability)) {
            return 0;
        }
        if (kiln_describe_known(driver, slot->device, &device) == 0) {
            taken = kiln_image_of_capability(variant, &device, capability);
        }
    }
    if (taken == NULL) {
        unload_module(driver, slot);
        slot->data = kiln_data_of(slot->image);
        return load_module(driver, variant, slot, what);
    }
    struct kiln_slot *other = calloc(1, sizeof *other);
    if (other == NULL) {
        unload_module(driver, slot);
        return kiln_fail(KILN_ERROR_OUT_OF_MEMORY, "", "no memory for %s", kiln_variant_name(variant));
    }
    /* Other threads may look at the slot: what they have seen of it stays, and the module is the new one's. */
    other->device = slot->device;
    other->scope = slot->scope;
    other->image = taken;
    other->data = slot->data;
    other->module = slot->module;
    other->owns_module = slot->owns_module;
    slot->owns_module = false;
    slot->module = NULL;
    add_slot(cache, &cache->chosen, other);
    *place = other;
    return 0;
}

static int load_locked(const struct kiln_driver *driver, const struct kiln_variant *variant, struct kiln_slot **place)
{
    char what[160];
    void *function = NULL;
    snprintf(what, sizeof what, "while %.120s was loaded", kiln_image_id((*place)->image));
    int status = load_module(driver, variant, *place, what);
    if (status == 0 && (*place)->data == kiln_bundle_of(variant)) {
        status = settle_choice(driver, variant, place, what);
    }
    if (status != 0) {
        return status;
    }
    struct kiln_slot *slot = *place;
    const int code = driver->get_function(driver->user, slot->module, slot->image, slot->device, &function);
    if (code != 0) {
        status = kiln_driver_failed(code, "get_function", what, NULL);
        unload_module(driver, slot);
        return status;
    }
    __atomic_store_n(&slot->function, function, __ATOMIC_RELEASE);
    return 0;
}

/* The slot that launches find now for where this one is; another one, where a fat binary held another image. */
static struct kiln_slot *newest(const struct kiln_variant *variant, struct kiln_slot *slot)
{
    const struct kiln_current current = { slot->device, slot->scope };
    const bool is_bundled = slot->data == kiln_bundle_of(variant);
    struct kiln_slot *found = is_bundled ? walk(kiln_cache_of(variant)->chosen, &current, NULL) : NULL;
    return found != NULL ? found : slot;
}

int kiln_load_slot(const struct kiln_driver *driver, const struct kiln_variant *variant, struct kiln_slot **place,
    struct CUstream_st *stream, bool has_stream)
{
    int status = 0;
    bool is_capturing = false;
    kiln_lock();
    const struct kiln_slot *slot = *place = newest(variant, *place);
    /* With modules of its own, a context has to wait for its device when one is loaded, and a capture cannot. */
    if (has_stream && slot->scope != 0 && slot->function == NULL) {
        const int code = driver->capturing(driver->user, stream, &is_capturing);
        status = code != 0 ? kiln_driver_failed(code, "capturing", "while a stream was looked at", NULL) : 0;
    }
    if (is_capturing) {
        status = kiln_fail(KILN_ERROR_CAPTURING, "", "%s is not loaded yet, and its stream is capturing: preload %s before",
            kiln_image_id(slot->image), kiln_variant_name(variant));
    } else if (status == 0 && slot->function == NULL) {
        status = load_locked(driver, variant, place);
    }
    kiln_unlock();
    return status;
}

int kiln_load(const struct kiln_variant *variant, struct kiln_handles *handles)
{
    if (variant == NULL || handles == NULL) {
        return kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "", "there is no variant to load, or no place for its handles");
    }
    const struct kiln_driver *driver;
    struct kiln_current current;
    struct kiln_slot *slot = NULL;
    int status = kiln_where(&driver, &current);
    status = status != 0 ? status : kiln_find_slot(driver, &current, variant, NULL, &slot);
    if (status == 0 && slot->image == NULL) {
        status = kiln_refuse(driver, variant, current.device);
    }
    status = status != 0 ? status : kiln_load_slot(driver, variant, &slot, NULL, false);
    if (status == 0) {
        handles->image = slot->image;
        handles->module = slot->module;
        handles->is_bundled = slot->data == kiln_bundle_of(variant);
        handles->function = __atomic_load_n(&slot->function, __ATOMIC_ACQUIRE);
    }
    return status;
}

int kiln_preload(const struct kiln_variant *variant)
{
    struct kiln_handles handles;
    const int status = kiln_load(variant, &handles);
    if (status != 0) {
        return status;
    }
    const struct kiln_driver *driver = __atomic_load_n(&kiln_driver_in_use, __ATOMIC_ACQUIRE);
    const int code = driver->settle(driver->user, handles.function);
    return code == 0 ? 0 : kiln_driver_failed(code, "settle", "while a function was put into the context", NULL);
}

int kiln_preload_group(const struct kiln_group *group)
{
    if (group == NULL) {
        return kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "", "there is no group to load");
    }
    int outcome = KILN_ERROR_NO_IMAGE;
    for (uint32_t i = 0; i < group->variant_count; i++) {
        const struct kiln_variant *variant = kiln_variants_of(group)[i];
        if (variant == NULL) {
            continue;
        }
        const int status = kiln_preload(variant);
        if (status == 0) {
            outcome = 0;
        } else if (status != KILN_ERROR_NO_IMAGE) {
            return status;
        }
    }
    return outcome;
}

/* A driver that is gone, or whose context is, has unloaded everything itself. */
static bool is_gone(int code)
{
    enum { NOT_INITIALIZED = 3, DEINITIALIZED = 4, INVALID_CONTEXT = 201, CONTEXT_IS_DESTROYED = 709 };
    return code == NOT_INITIALIZED || code == DEINITIALIZED || code == INVALID_CONTEXT || code == CONTEXT_IS_DESTROYED;
}

/* Frees a list; the first failure is the outcome. In a forked child there is no driver, and nothing to unload. */
static int clear(const struct kiln_driver *driver, struct kiln_slot *slot)
{
    int outcome = 0;
    while (slot != NULL) {
        struct kiln_slot *next = slot->next;
        const int code = driver != NULL && slot->owns_module ? driver->unload(driver->user, slot->module, slot->scope) : 0;
        if (code != 0 && !is_gone(code) && outcome == 0) {
            outcome = kiln_driver_failed(code, "unload", "while an image was unloaded", NULL);
        }
        free(slot);
        slot = next;
    }
    return outcome;
}

int kiln_unload(void)
{
    int outcome = 0;
    kiln_lock();
    const struct kiln_driver *driver = __atomic_load_n(&kiln_driver_in_use, __ATOMIC_ACQUIRE);
    while (caches != NULL) {
        struct kiln_cache *cache = caches;
        struct kiln_slot *const lists[] = { cache->chosen, cache->given };
        caches = cache->next;
        __atomic_store_n(&cache->chosen, NULL, __ATOMIC_RELEASE);
        __atomic_store_n(&cache->given, NULL, __ATOMIC_RELEASE);
        cache->is_listed = false;
        cache->next = NULL;
        for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
            const int status = clear(driver, lists[i]);
            outcome = outcome != 0 ? outcome : status;
        }
    }
    kiln_unlock();
    return outcome;
}

#endif
