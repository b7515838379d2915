/* The whole library without a kernel: compiled with KILN_DISABLED, every call says that it is, and no image is needed. */
#include "internal.h"

#include <kiln/kiln_tuner.h>

#ifdef KILN_DISABLED

const struct kiln_driver *kiln_driver_in_use = NULL;

static int disabled(void)
{
    return kiln_fail(KILN_ERROR_DISABLED, "", "this library was compiled with KILN_DISABLED, and has no kernels");
}

const struct kiln_driver *kiln_cuda_driver(void)
{
    return NULL;
}

const struct kiln_driver *kiln_hip_driver(void)
{
    return NULL;
}

int kiln_use_driver(const struct kiln_driver *driver)
{
    (void)driver;
    return disabled();
}

int kiln_describe_device(int32_t device, struct kiln_device *described)
{
    (void)device;
    (void)described;
    return disabled();
}

int kiln_launch(const struct kiln_variant *variant, const void *args, const struct kiln_launch_options *options)
{
    (void)variant;
    (void)args;
    (void)options;
    return disabled();
}

int kiln_launch_variant(const struct kiln_variant *variant, const void *args, struct CUstream_st *stream)
{
    (void)variant;
    (void)args;
    (void)stream;
    return disabled();
}

int kiln_launch_first(
    const struct kiln_variant *const *variants, size_t count, const void *args, struct CUstream_st *stream)
{
    (void)variants;
    (void)count;
    (void)args;
    (void)stream;
    return disabled();
}

int kiln_launch_group(const struct kiln_group *group, const void *args, struct CUstream_st *stream)
{
    (void)group;
    (void)args;
    (void)stream;
    return disabled();
}

int kiln_choose(const struct kiln_group *group, const void *args, struct kiln_choice *choice)
{
    (void)group;
    (void)args;
    (void)choice;
    return disabled();
}

int kiln_preload(const struct kiln_variant *variant)
{
    (void)variant;
    return disabled();
}

int kiln_preload_group(const struct kiln_group *group)
{
    (void)group;
    return disabled();
}

int kiln_preload_all(void)
{
    return disabled();
}

int kiln_load(const struct kiln_variant *variant, struct kiln_handles *handles)
{
    (void)variant;
    (void)handles;
    return disabled();
}

int kiln_unload(void)
{
    return disabled();
}

int kiln_explain_choice(const struct kiln_variant *variant, int32_t device, char *text, size_t size)
{
    (void)variant;
    (void)device;
    (void)text;
    (void)size;
    return disabled();
}

int kiln_tune(const struct kiln_group *group, const void *args, const struct kiln_tune_options *options,
    struct kiln_timing *timings, size_t capacity, size_t *count)
{
    (void)group;
    (void)args;
    (void)options;
    (void)timings;
    (void)capacity;
    if (count != NULL) {
        *count = 0;
    }
    return disabled();
}

int kiln_enable_tuner(enum kiln_tuner tuner, const struct kiln_tune_options *options)
{
    (void)tuner;
    (void)options;
    return disabled();
}

int kiln_describe_shape(const struct kiln_group *group, const void *args, char *text, size_t size)
{
    (void)group;
    (void)args;
    (void)text;
    (void)size;
    return disabled();
}

int kiln_load_choices(const char *path, struct kiln_choices_report *report)
{
    (void)path;
    (void)report;
    return disabled();
}

int kiln_save_choices(const char *path)
{
    (void)path;
    return disabled();
}

int kiln_merge_choices(const char *first, const char *second, const char *output, struct kiln_choices_report *report)
{
    (void)first;
    (void)second;
    (void)output;
    (void)report;
    return disabled();
}

size_t kiln_choice_count(void)
{
    return 0;
}

void kiln_forget_choices(void)
{
}

void kiln_set_checks(enum kiln_checks checks)
{
    (void)checks;
}

void kiln_set_launch_hook(const struct kiln_launch_hook *hook)
{
    (void)hook;
}

void kiln_set_scratch_allocator(const struct kiln_scratch_allocator *allocator)
{
    (void)allocator;
}

size_t kiln_variant_count(void)
{
    return 0;
}

const struct kiln_variant *kiln_variant_at(size_t index)
{
    (void)index;
    return NULL;
}

const struct kiln_variant *kiln_variant_find(const char *name)
{
    (void)name;
    return NULL;
}

size_t kiln_group_count(void)
{
    return 0;
}

const struct kiln_group *kiln_group_at(size_t index)
{
    (void)index;
    return NULL;
}

const struct kiln_group *kiln_group_find(const char *name)
{
    (void)name;
    return NULL;
}

size_t kiln_image_count(void)
{
    return 0;
}

const struct kiln_image *kiln_image_at(size_t index)
{
    (void)index;
    return NULL;
}

const struct kiln_image *kiln_image_find(const char *variant, const char *target)
{
    (void)variant;
    (void)target;
    return NULL;
}

const struct kiln_image *kiln_group_next(const char *group, const char *target, const struct kiln_image *previous)
{
    (void)group;
    (void)target;
    (void)previous;
    return NULL;
}

#endif
