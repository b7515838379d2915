/* One launch: what a call must be, which image serves it, the parameter buffer, and the driver. */
#include "internal.h"

#include <string.h>

#ifndef KILN_DISABLED

/* The checks of all launches, and whether there is a hook: one word, so that launches without either look at no more. */
static uint32_t watched_of_all;
enum { CHECKS = 3, HOOKED = 4 };

static const struct kiln_scratch_allocator *allocator;
static const struct kiln_launch_hook *hook;

static void watch(uint32_t mask, uint32_t bits)
{
    uint32_t before = __atomic_load_n(&watched_of_all, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(
        &watched_of_all, &before, (before & ~mask) | bits, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
}

void kiln_set_checks(enum kiln_checks checks)
{
    watch(CHECKS, (uint32_t)checks & CHECKS);
}

void kiln_set_launch_hook(const struct kiln_launch_hook *set)
{
    __atomic_store_n(&hook, set, __ATOMIC_RELEASE);
    watch(HOOKED, set != NULL ? HOOKED : 0);
}

void kiln_set_scratch_allocator(const struct kiln_scratch_allocator *set)
{
    __atomic_store_n(&allocator, set, __ATOMIC_RELEASE);
}

int kiln_check_call(const struct kiln_variant *variant, const void *args)
{
    if (!kiln_call_selects(variant, args)) {
        return kiln_fail(KILN_ERROR_NOT_SELECTED, "", "%s serves a call when %s, which does not hold",
            kiln_variant_name(variant),
            kiln_variant_select(variant) != NULL ? kiln_variant_select(variant) : "its integers fit 63 bits");
    }
    const int broken = kiln_call_broken(variant, args);
    if (broken < 0) {
        return 0;
    }
    const struct kiln_argument *argument = &kiln_variant_arguments(variant)[broken];
    const char *name = kiln_argument_name(argument);
    if (argument->is_pointer) {
        return kiln_fail(KILN_ERROR_MISALIGNED, "", "the address %s of %s is not a multiple of %u bytes", name,
            kiln_variant_name(variant), (unsigned)argument->promise);
    }
    return argument->promise == 1
        ? kiln_fail(KILN_ERROR_PROMISE, "", "%s of %s is not 1", name, kiln_variant_name(variant))
        : kiln_fail(KILN_ERROR_PROMISE, "", "%s of %s is not a multiple of %u", name, kiln_variant_name(variant),
              (unsigned)argument->promise);
}

/* Memory from the allocator, whose address goes into the buffer; NULL where the image wants none. */
static int get_scratch(const struct kiln_launch_request *request, const struct kiln_slot *slot, uint64_t bytes_of_block,
    uint32_t align, uint32_t offset, void **address)
{
    const struct kiln_image *image = slot->image;
    const struct kiln_scratch_allocator *giver = __atomic_load_n(&allocator, __ATOMIC_ACQUIRE);
    uint64_t bytes = bytes_of_block;
    *address = NULL;
    if (bytes_of_block == 0) {
        return 0;
    }
    for (size_t i = 0; i < 3; i++) {
        const uint64_t blocks = (uint64_t)request->grid[i] * image->cluster[i];
        if (bytes > SIZE_MAX / blocks) {
            return kiln_fail(KILN_ERROR_SCRATCH_FAILED, "", "%s needs more scratch memory than can be addressed",
                kiln_image_id(image));
        }
        bytes *= blocks;
    }
    if (giver == NULL) {
        return kiln_fail(KILN_ERROR_SCRATCH_NEEDED, "", "%s needs %llu bytes of scratch memory; set a scratch allocator",
            kiln_image_id(image), (unsigned long long)bytes);
    }
    *address = giver->allocate(giver->user, (size_t)bytes, align, request->stream, slot->device);
    if (*address == NULL) {
        return kiln_fail(KILN_ERROR_SCRATCH_FAILED, "", "the allocator gave no %llu bytes for %s", (unsigned long long)bytes,
            kiln_image_id(image));
    }
    memcpy((unsigned char *)request->buffer + offset, address, sizeof *address);
    return 0;
}

static void give_back(const struct kiln_launch_request *request, const struct kiln_slot *slot, void *address)
{
    const struct kiln_scratch_allocator *giver = __atomic_load_n(&allocator, __ATOMIC_ACQUIRE);
    if (address != NULL && giver != NULL) {
        giver->release(giver->user, address, request->stream, slot->device);
    }
}

static int launch_with_scratch(
    const struct kiln_driver *driver, const struct kiln_slot *slot, const struct kiln_launch_request *request)
{
    const struct kiln_image *image = slot->image;
    void *global = NULL;
    void *profile = NULL;
    int status = get_scratch(request, slot, image->global_scratch_bytes, image->global_scratch_align,
        slot->global_scratch_offset, &global);
    if (status == 0) {
        status = get_scratch(request, slot, image->profile_scratch_bytes, image->profile_scratch_align,
            slot->profile_scratch_offset, &profile);
    }
    if (status == 0) {
        status = driver->launch(driver->user, request);
    }
    give_back(request, slot, profile);
    give_back(request, slot, global);
    return status;
}

int kiln_find_values(const struct kiln_launch_request *request, void *values[KILN_MAX_PARAMETERS])
{
    const struct kiln_image *image = request->image;
    if (image->parameter_count > KILN_MAX_PARAMETERS) {
        return kiln_fail(KILN_ERROR_PARAMETERS_TOO_LARGE, "launch", "%s has %u parameters, and a cooperative launch takes %d",
            kiln_image_id(image), (unsigned)image->parameter_count, KILN_MAX_PARAMETERS);
    }
    for (uint32_t i = 0; i < image->parameter_count; i++) {
        values[i] = (unsigned char *)request->buffer + kiln_image_parameters(image)[i].offset;
    }
    return 0;
}

static bool is_of_capture(int code)
{
    enum { FIRST = 900, LAST = 908 }; /* ..._STREAM_CAPTURE_UNSUPPORTED, ..._STREAM_CAPTURE_WRONG_THREAD */
    return code >= FIRST && code <= LAST;
}

static int start(const struct kiln_driver *driver, const struct kiln_variant *variant, struct kiln_slot *slot,
    const void *args, const uint32_t grid[3], struct CUstream_st *stream)
{
    union {
        unsigned char bytes[KILN_MAX_PARAMETER_BYTES];
        uint64_t aligns;
    } buffer;
    void *function = __atomic_load_n(&slot->function, __ATOMIC_ACQUIRE);
    if (function == NULL) {
        const int status = kiln_load_slot(driver, variant, &slot, stream, true);
        if (status != 0) {
            return status;
        }
        function = slot->function;
    }
    const struct kiln_launch_request request
        = { function, slot->image, { grid[0], grid[1], grid[2] }, stream, buffer.bytes };
    if (variant->buffer_bytes > sizeof buffer.bytes) {
        return kiln_fail(KILN_ERROR_PARAMETERS_TOO_LARGE, "", "%s has %u bytes of parameters, and drivers take %d",
            kiln_variant_name(variant), (unsigned)variant->buffer_bytes, KILN_MAX_PARAMETER_BYTES);
    }
    kiln_call_pack(variant, args, buffer.bytes);
    const bool needs_scratch = (slot->image->global_scratch_bytes | slot->image->profile_scratch_bytes) != 0;
    const int code = needs_scratch ? launch_with_scratch(driver, slot, &request) : driver->launch(driver->user, &request);
    if (code == 0) {
        return 0;
    }
    return kiln_driver_failed(code, "launch",
        is_of_capture(code) ? "in a launch while the stream was capturing; preload images before a capture" : "in a launch",
        NULL);
}

/* Not inlined: a launch that nobody watches saves no registers for it. */
static __attribute__((noinline)) int start_watched(const struct kiln_driver *driver,
    const struct kiln_variant *variant, struct kiln_slot *slot, const void *args, const uint32_t grid[3],
    struct CUstream_st *stream)
{
    const uint32_t watched = __atomic_load_n(&watched_of_all, __ATOMIC_ACQUIRE);
    const struct kiln_launch_hook *told = (watched & HOOKED) != 0 ? __atomic_load_n(&hook, __ATOMIC_ACQUIRE) : NULL;
    const struct kiln_launch_event event = { variant, slot->image, { grid[0], grid[1], grid[2] }, slot->device, stream };
    if ((watched & CHECKS) != 0) {
        const enum kiln_checks checks = (enum kiln_checks)(watched & CHECKS);
        const int status = kiln_check_pointers(driver, variant, args, slot->device, checks);
        if (status != 0) {
            return status;
        }
    }
    if (told != NULL && told->before != NULL) {
        told->before(told->user, &event);
    }
    const int status = start(driver, variant, slot, args, grid, stream);
    if (told != NULL && told->after != NULL) {
        told->after(told->user, &event, status);
    }
    return status;
}

int kiln_start(const struct kiln_driver *driver, const struct kiln_variant *variant, struct kiln_slot *slot,
    const void *args, const uint32_t grid[3], struct CUstream_st *stream)
{
    return __atomic_load_n(&watched_of_all, __ATOMIC_RELAXED) == 0
        ? start(driver, variant, slot, args, grid, stream)
        : start_watched(driver, variant, slot, args, grid, stream);
}

int kiln_grid_of(const struct kiln_variant *variant, const void *args, uint32_t grid[3])
{
    if (kiln_call_grid(variant, args, grid) != KILN_GRID_OUT_OF_RANGE) {
        return 0;
    }
    return kiln_fail(KILN_ERROR_GRID_OUT_OF_RANGE, "",
        "the grid of %s is negative, above 2^31 - 1 in x, above 65535 in y or z, or its arithmetic leaves 64 bits or divides "
        "by zero",
        kiln_variant_name(variant));
}

static int launch_checked(const struct kiln_driver *driver, const struct kiln_current *current,
    const struct kiln_variant *variant, const struct kiln_image *given, const void *args, const uint32_t grid[3],
    struct CUstream_st *stream)
{
    struct kiln_slot *slot = NULL;
    const int status = kiln_find_slot(driver, current, variant, given, &slot);
    if (status != 0) {
        return status;
    }
    return slot->image != NULL ? kiln_start(driver, variant, slot, args, grid, stream)
                               : kiln_refuse(driver, variant, current->device);
}

int kiln_launch(const struct kiln_variant *variant, const void *args, const struct kiln_launch_options *options)
{
    static const struct kiln_launch_options defaults = { sizeof defaults, NULL, NULL, NULL, KILN_CHECKS_NONE };
    const struct kiln_driver *driver;
    struct kiln_current current;
    uint32_t grid[3] = { 0, 0, 0 };
    const struct kiln_launch_options *set = options != NULL ? options : &defaults;
    if (variant == NULL || args == NULL || set->struct_bytes < sizeof *set) {
        return kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "", "a launch needs a variant, its arguments, and the size of its options");
    }
    int status = 0;
    if (set->grid == NULL) {
        status = kiln_grid_of(variant, args, grid);
    } else if (kiln_grid_from(set->grid[0], set->grid[1], set->grid[2], grid) == KILN_GRID_OUT_OF_RANGE) {
        status = kiln_fail(KILN_ERROR_GRID_OUT_OF_RANGE, "",
            "the grid for %s is above 2^31 - 1 in x, or above 65535 in y or z",
            kiln_variant_name(variant));
    }
    if (status == 0 && (grid[0] == 0 || grid[1] == 0 || grid[2] == 0)) {
        return 0;
    }
    status = status != 0 ? status : kiln_check_call(variant, args);
    status = status != 0 ? status : kiln_where(&driver, &current);
    if (status == 0 && set->checks != KILN_CHECKS_NONE) {
        status = kiln_check_pointers(driver, variant, args, current.device, set->checks);
    }
    return status != 0 ? status
                       : launch_checked(driver, &current, variant, set->image, args, grid, set->stream);
}

int kiln_launch_variant(const struct kiln_variant *variant, const void *args, struct CUstream_st *stream)
{
    const struct kiln_launch_options options = { sizeof options, stream, NULL, NULL, KILN_CHECKS_NONE };
    return kiln_launch(variant, args, &options);
}

#endif
