/* Which images a device takes, and how well they suit it.
 *
 * A name with `a` is for one architecture exactly, one with `f` for its family: the same major version, from its own minor
 * version on. A plain cubin runs on the same major version from its own minor version on, but not between 8.7 (Tegra) and
 * the others. PTX runs on every later device whose driver knows its ISA (NVIDIA, "CUDA Compiler Driver NVCC", "GPU
 * Compilation"; "Parallel Thread Execution ISA", "Release Notes"). A gfx name is for that GPU; what follows it, as in
 * gfx90a:xnack+, has to be so on the device, and what it leaves out may be either (LLVM, "User Guide for AMDGPU Backend").
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef KILN_DISABLED

enum { RANK_PTX = 1000, RANK_CUBIN = 2000, RANK_FAMILY = 3000, RANK_EXACT = 4000 };

enum { TEGRA = 87 };

/* PTX ISA -> the release of CUDA that brought it, both as major x 10 + minor, in order. */
static const struct {
    int isa;
    int cuda;
} ptx_releases[] = {
    { 63, 100 }, { 64, 101 }, { 65, 102 }, { 70, 110 }, { 71, 111 }, { 72, 112 }, { 73, 113 }, { 74, 114 }, { 75, 115 },
    { 76, 116 }, { 77, 117 }, { 78, 118 }, { 80, 120 }, { 81, 121 }, { 82, 122 }, { 83, 123 }, { 84, 124 }, { 85, 125 },
    { 86, 127 }, { 87, 128 }, { 88, 129 }, { 90, 130 }, { 91, 131 },
};

/* The release that a PTX needs; 0 where that is not known: then the driver says it. From ISA 9.0 on, which came with CUDA
 * 13.0, both have gone up together. */
static int oldest_cuda(const char *text)
{
    int major = 0, minor = 0;
    if (text == NULL || sscanf(text, "%d.%d", &major, &minor) != 2) {
        return 0;
    }
    for (size_t i = 0; i < sizeof ptx_releases / sizeof *ptx_releases; i++) {
        if (ptx_releases[i].isa == 10 * major + minor) {
            return ptx_releases[i].cuda;
        }
    }
    return major == 9 ? 130 + minor : 0;
}

const char *kiln_only_target(void)
{
    /* Read once: getenv is no friend of setenv in another thread. Two threads that read it at once write the same. */
    static const char *target;
    static int is_read;
    if (__atomic_load_n(&is_read, __ATOMIC_ACQUIRE) == 0) {
        const char *found = getenv("KILN_TARGET");
        __atomic_store_n(&target, found != NULL && found[0] != '\0' ? found : NULL, __ATOMIC_RELAXED);
        __atomic_store_n(&is_read, 1, __ATOMIC_RELEASE);
    }
    return __atomic_load_n(&target, __ATOMIC_RELAXED);
}

static int judge_nvidia(const struct kiln_image *image, const struct kiln_device *device, char *why, size_t size)
{
    const bool is_ptx = image->kind == KILN_KIND_PTX;
    const char *target = kiln_image_target(image);
    const char *digits = target + strcspn(target, "0123456789");
    char *letter = NULL;
    const long capability = strtol(digits, &letter, 10);
    const long own = device->capability;
    int rank;
    if (letter == digits || image->kind == KILN_KIND_HSACO) {
        snprintf(why, size, "it is for another vendor's GPUs");
        return KILN_ERROR_NO_IMAGE;
    }
    if (*letter == 'a') {
        if (capability != own) {
            snprintf(why, size, "it is for that architecture alone");
            return KILN_ERROR_NO_IMAGE;
        }
        rank = is_ptx ? RANK_PTX + 1 : RANK_EXACT;
    } else if (*letter == 'f') {
        if (capability / 10 != own / 10 || capability > own) {
            snprintf(why, size, "the device is not of that family");
            return KILN_ERROR_NO_IMAGE;
        }
        rank = is_ptx ? RANK_PTX + 1 : RANK_FAMILY;
    } else if (is_ptx) {
        if (capability > own) {
            snprintf(why, size, "the device is older");
            return KILN_ERROR_NO_IMAGE;
        }
        rank = RANK_PTX;
    } else if (capability / 10 != own / 10) {
        snprintf(why, size, "the device has another major version");
        return KILN_ERROR_NO_IMAGE;
    } else if (capability > own) {
        snprintf(why, size, "the device is older");
        return KILN_ERROR_NO_IMAGE;
    } else if (capability != own && (capability == TEGRA || own == TEGRA)) {
        snprintf(why, size, "Tegra's 8.7 and the others of 8.x do not run each other's code");
        return KILN_ERROR_NO_IMAGE;
    } else {
        rank = RANK_CUBIN;
    }
    const int needed = is_ptx ? oldest_cuda(kiln_image_ptx_isa(image)) : 0;
    const int version = device->driver_version / 1000 * 10 + device->driver_version % 1000 / 10;
    if (needed > version) {
        snprintf(why, size, "it is PTX of ISA %s, which drivers know since CUDA %d.%d, and the driver is of CUDA %d.%d",
            kiln_image_ptx_isa(image), needed / 10, needed % 10, version / 10, version % 10);
        return KILN_ERROR_DRIVER_TOO_OLD;
    }
    /* Of the same architecture, code with a letter first: it may use more. */
    return rank + 2 * (int)capability;
}

static int judge_amd(const struct kiln_image *image, const struct kiln_device *device, char *why, size_t size)
{
    if (image->kind != KILN_KIND_HSACO) {
        snprintf(why, size, "it is for another vendor's GPUs");
        return KILN_ERROR_NO_IMAGE;
    }
    const char *target = kiln_image_target(image);
    const size_t length = strcspn(target, ":");
    if (length != strcspn(device->architecture, ":") || strncmp(target, device->architecture, length) != 0) {
        snprintf(why, size, "it is for that architecture alone");
        return KILN_ERROR_NO_IMAGE;
    }
    /* Each feature that the image names stands among the device's. */
    const char *feature = target + length;
    while (*feature == ':') {
        const size_t word = 1 + strcspn(feature + 1, ":");
        const char *own = device->architecture + length;
        bool has_it = false;
        while (*own == ':' && !has_it) {
            const size_t other = 1 + strcspn(own + 1, ":");
            has_it = other == word && strncmp(own, feature, word) == 0;
            own += other;
        }
        if (!has_it) {
            snprintf(why, size, "the device is not %.*s", (int)(word - 1), feature + 1);
            return KILN_ERROR_NO_IMAGE;
        }
        feature += word;
    }
    return RANK_EXACT;
}

int kiln_judge(const struct kiln_image *image, const struct kiln_device *device, char *why, size_t size)
{
    const char *only = kiln_only_target();
    if (only != NULL && strcmp(only, kiln_image_target(image)) != 0) {
        snprintf(why, size, "KILN_TARGET allows %s alone", only);
        return KILN_ERROR_NO_IMAGE;
    }
    const int rank = device->vendor == KILN_VENDOR_AMD ? judge_amd(image, device, why, size)
                                                       : judge_nvidia(image, device, why, size);
    if (rank <= 0) {
        return rank;
    }
    if (image->threads > device->max_threads) {
        snprintf(why, size, "a block has %u threads, and the device takes %u", (unsigned)image->threads,
            (unsigned)device->max_threads);
        return KILN_ERROR_TOO_MANY_THREADS;
    }
    const uint64_t shared = (uint64_t)image->shared_static + image->shared_dynamic;
    if (shared > device->max_shared) {
        snprintf(why, size, "a block needs %llu bytes of shared memory, and the device has %u", (unsigned long long)shared,
            (unsigned)device->max_shared);
        return KILN_ERROR_TOO_MUCH_SHARED;
    }
    if (image->parameter_bytes > KILN_MAX_PARAMETER_BYTES) {
        snprintf(why, size, "it has %u bytes of parameters, and drivers take %d", (unsigned)image->parameter_bytes,
            KILN_MAX_PARAMETER_BYTES);
        return KILN_ERROR_PARAMETERS_TOO_LARGE;
    }
    if (image->cooperative && !device->cooperative) {
        snprintf(why, size, "it is launched cooperatively, which the device cannot");
        return KILN_ERROR_UNSUPPORTED;
    }
    if (image->cluster[0] * image->cluster[1] * image->cluster[2] > 1 && !device->clusters) {
        snprintf(why, size, "it is launched in clusters, which the device or its driver cannot");
        return KILN_ERROR_UNSUPPORTED;
    }
    snprintf(why, size, "the device takes it");
    return rank;
}

bool kiln_is_of_capability(const struct kiln_image *image, int32_t capability)
{
    const char *target = kiln_image_target(image);
    return image->kind != KILN_KIND_HSACO && strtol(target + strcspn(target, "0123456789"), NULL, 10) == capability;
}

const struct kiln_image *kiln_image_of_capability(
    const struct kiln_variant *variant, const struct kiln_device *device, int32_t capability)
{
    const struct kiln_image *best = NULL;
    int best_rank = 0;
    for (uint32_t i = 0; i < variant->image_count; i++) {
        const struct kiln_image *each = kiln_images_of(variant)[i];
        char why[160];
        const bool is_meant = each != NULL && kiln_is_of_capability(each, capability);
        const int rank = is_meant ? kiln_judge(each, device, why, sizeof why) : 0;
        if (rank > best_rank) {
            best = each;
            best_rank = rank;
        }
    }
    return best;
}

int kiln_best_image(const struct kiln_variant *variant, const struct kiln_device *device,
    const struct kiln_image **image, char *why, size_t size)
{
    const struct kiln_image *best = NULL;
    int best_rank = 0;
    int status = KILN_ERROR_NO_IMAGE;
    size_t used = (size_t)snprintf(why, size, "%s for device %d (%s):", kiln_variant_name(variant),
        (int)device->ordinal, device->architecture);
    for (uint32_t i = 0; i < variant->image_count; i++) {
        const struct kiln_image *each = kiln_images_of(variant)[i];
        if (each == NULL) {
            continue; /* its archive is not linked */
        }
        char reason[160];
        const int rank = kiln_judge(each, device, reason, sizeof reason);
        if (rank > best_rank) {
            best = each;
            best_rank = rank;
        }
        if (rank < 0 && rank != KILN_ERROR_NO_IMAGE && status == KILN_ERROR_NO_IMAGE) {
            status = rank; /* an image that the architecture would take says more than those that it would not */
        }
        if (used < size) {
            used += (size_t)snprintf(why + used, size - used, "\n  %s: %s", kiln_image_target(each), reason);
        }
    }
    if (used < size) {
        const bool is_drivers = best != NULL && best->kind != KILN_KIND_HSACO && kiln_only_target() == NULL
            && kiln_bundle_of(variant) != NULL;
        snprintf(why + used, size - used,
            best == NULL ? "\nnone is used"
                : is_drivers ? "\nused is %s, unless the driver takes another one out of the fat binary"
                             : "\nused is %s",
            best != NULL ? kiln_image_target(best) : "");
    }
    *image = best;
    return best != NULL ? 0 : status;
}

int kiln_explain_choice(const struct kiln_variant *variant, int32_t device, char *text, size_t size)
{
    if (variant == NULL || (text == NULL && size > 0)) {
        return kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "", "there is no variant to explain, or no place to do so");
    }
    struct kiln_device described;
    const struct kiln_image *image = NULL;
    const int status = kiln_describe_device(device, &described);
    if (status != 0) {
        return status;
    }
    kiln_best_image(variant, &described, &image, text, size);
    return 0;
}

#endif
