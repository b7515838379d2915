/* Asks the driver of each pointer among the arguments, for programs that look for a wrong one. */
#include "internal.h"

#include <string.h>

#ifndef KILN_DISABLED

static int refuse(const struct kiln_variant *variant, const struct kiln_argument *argument, const void *address,
    const char *why)
{
    return kiln_fail(KILN_ERROR_BAD_POINTER, "", "%s of %s is %p, which %s", kiln_argument_name(argument),
        kiln_variant_name(variant), address, why);
}

static int check(const struct kiln_driver *driver, const struct kiln_variant *variant,
    const struct kiln_argument *argument, const void *address, int32_t device)
{
    struct kiln_pointer found = { KILN_MEMORY_UNKNOWN, 0 };
    const int code = driver->pointer(driver->user, address, &found);
    if (code != 0) {
        return kiln_driver_failed(code, "pointer", "while an argument was checked", NULL);
    }
    if (found.memory == KILN_MEMORY_DEVICE && found.device != device) {
        return kiln_fail(KILN_ERROR_BAD_POINTER, "", "%s of %s is memory of device %d, and the launch is on device %d",
            kiln_argument_name(argument), kiln_variant_name(variant), (int)found.device, (int)device);
    }
    if (found.memory != KILN_MEMORY_UNKNOWN) {
        return 0;
    }
    struct kiln_device described;
    const int status = kiln_describe_device(device, &described);
    if (status != 0 || described.pageable_access) {
        return status;
    }
    return refuse(variant, argument, address, "the driver does not know: memory of the host, or freed");
}

int kiln_check_pointers(const struct kiln_driver *driver, const struct kiln_variant *variant, const void *args,
    int32_t device, enum kiln_checks checks)
{
    for (uint32_t i = 0; i < variant->argument_count; i++) {
        const struct kiln_argument *argument = &kiln_variant_arguments(variant)[i];
        if (!argument->is_pointer) {
            continue;
        }
        const void *address = NULL;
        memcpy(&address, (const unsigned char *)args + argument->offset, sizeof address);
        int status = 0;
        if (address != NULL) {
            status = check(driver, variant, argument, address, device);
        } else if (checks != KILN_CHECKS_POINTERS_OR_NULL) {
            status = refuse(variant, argument, address, "these checks refuse");
        }
        if (status != 0) {
            return status;
        }
    }
    return 0;
}

#endif
