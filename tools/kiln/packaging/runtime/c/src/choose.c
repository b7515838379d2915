/* Which variant of several serves a call: the first whose grid, select and promises hold and which the device takes. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

#ifndef KILN_DISABLED

kiln_preference *kiln_preferred = NULL;
uint32_t kiln_generation = 0;

/* How near a refusal came to serving the call: the nearest is what a caller wants to read. */
static int nearness(int status)
{
    return status == KILN_ERROR_NOT_SELECTED ? 0
        : status == KILN_ERROR_PROMISE ? 1
        : status == KILN_ERROR_GRID_OUT_OF_RANGE ? 2
                                       : 3;
}

int kiln_look(struct kiln_search *search, const struct kiln_variant *variant, bool *is_over)
{
    const enum kiln_grid_status grid = kiln_call_grid(variant, search->args, search->grid);
    search->variant = variant;
    search->slot = NULL;
    if (grid == KILN_GRID_EMPTY) {
        return 0;
    }
    if (!kiln_call_selects(variant, search->args)) {
        return KILN_ERROR_NOT_SELECTED;
    }
    if (kiln_call_broken(variant, search->args) >= 0) {
        return KILN_ERROR_PROMISE;
    }
    if (grid == KILN_GRID_OUT_OF_RANGE) {
        return KILN_ERROR_GRID_OUT_OF_RANGE;
    }
    int status = search->driver == NULL ? kiln_where(&search->driver, &search->current) : 0;
    if (status == 0) {
        status = kiln_find_slot(search->driver, &search->current, variant, NULL, &search->slot);
    }
    *is_over = status != 0;
    return status != 0 ? status : search->slot->image == NULL ? KILN_ERROR_NO_IMAGE : 0;
}

/* Notes why a variant does not serve the call. */
static int tell(const struct kiln_search *search, const struct kiln_variant *variant, int status)
{
    uint32_t grid[3];
    if (status == KILN_ERROR_NO_IMAGE) {
        return kiln_refuse(search->driver, variant, search->current.device);
    }
    return status == KILN_ERROR_GRID_OUT_OF_RANGE ? kiln_grid_of(variant, search->args, grid)
                                                  : kiln_check_call(variant, search->args);
}

/* Looks at the variant that the tuner prefers for a group; `is_over` where it serves the call, and where nothing can. An
 * empty grid has to reach no driver, so that the search is left to find it out. */
static int look_at_preferred(struct kiln_search *search, kiln_preference *preferred, bool *is_over)
{
    const struct kiln_group *group = search->group;
    for (uint32_t i = 0; i < group->variant_count; i++) {
        const struct kiln_variant *first = kiln_variants_of(group)[i];
        if (first != NULL) {
            if (kiln_call_grid(first, search->args, search->grid) == KILN_GRID_EMPTY) {
                return 0;
            }
            break;
        }
    }
    int status = kiln_where(&search->driver, &search->current);
    *is_over = status != 0;
    const struct kiln_variant *variant = status == 0 ? preferred(search) : NULL;
    if (variant != NULL) {
        status = kiln_look(search, variant, is_over);
        *is_over = *is_over || status == 0;
    }
    return status;
}

static int find(struct kiln_search *search, const struct kiln_variant *const *variants, size_t count)
{
    kiln_preference *preferred = __atomic_load_n(&kiln_preferred, __ATOMIC_ACQUIRE);
    if (preferred != NULL && search->group != NULL && kiln_tuned_of(search->group) != NULL) {
        bool is_over = false;
        const int status = look_at_preferred(search, preferred, &is_over);
        if (is_over) {
            return status;
        }
    }
    const struct kiln_variant *nearest = NULL;
    int why = 0;
    size_t looked_at = 0;
    for (size_t i = 0; i < count; i++) {
        if (variants[i] == NULL) {
            continue; /* no archive with an image of it is linked */
        }
        bool is_over = false;
        const int status = kiln_look(search, variants[i], &is_over);
        if (status == 0 || is_over) {
            return status;
        }
        looked_at++;
        if (nearest == NULL || nearness(status) > nearness(why)) {
            nearest = variants[i];
            why = status;
        }
    }
    if (nearest == NULL) {
        return kiln_fail(KILN_ERROR_NO_IMAGE, "", "the program has linked no image of %s", search->name);
    }
    const int status = tell(search, nearest, why);
    if (looked_at > 1) {
        const struct kiln_error told = *kiln_last_error();
        kiln_fail(status, told.call, "none of the %zu variants of %.100s serves the call; the nearest: %.360s", looked_at,
            search->name, told.detail);
    }
    return status;
}

static int launch_one_of(const char *name, const struct kiln_group *group, const struct kiln_variant *const *variants,
    size_t count, const void *args, struct CUstream_st *stream)
{
    struct kiln_search search = { name, args, group, stream, true, NULL, { 0, 0 }, NULL, NULL, { 0, 0, 0 } };
    if (args == NULL) {
        return kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "", "a launch of %s needs its arguments", name);
    }
    const int status = find(&search, variants, count);
    return status != 0 || search.slot == NULL
        ? status
        : kiln_start(search.driver, search.variant, search.slot, args, search.grid, stream);
}

static int check_group(const struct kiln_group *group)
{
    if (group == NULL) {
        return kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "", "there is no such group, or the kernel has no such dtype");
    }
    return group->is_uniform ? 0
                             : kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "",
                                   "the variants of %s take different argument structs: launch one of them",
                                   kiln_group_name(group));
}

int kiln_launch_first(
    const struct kiln_variant *const *variants, size_t count, const void *args, struct CUstream_st *stream)
{
    if (variants == NULL || count == 0) {
        return kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "", "there are no variants to launch");
    }
    const char *what = variants[0] != NULL ? kiln_variant_base(variants[0]) : "these variants";
    return launch_one_of(what, NULL, variants, count, args, stream);
}

int kiln_launch_group(const struct kiln_group *group, const void *args, struct CUstream_st *stream)
{
    const int status = check_group(group);
    return status != 0
        ? status
        : launch_one_of(kiln_group_name(group), group, kiln_variants_of(group), group->variant_count, args, stream);
}

int kiln_choose(const struct kiln_group *group, const void *args, struct kiln_choice *choice)
{
    int status = check_group(group);
    if (status == 0 && (args == NULL || choice == NULL)) {
        status = kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "", "a choice needs arguments, and a place to stand");
    }
    if (status != 0) {
        return status;
    }
    struct kiln_search search = { kiln_group_name(group), args, group, NULL, false, NULL, { 0, 0 }, NULL, NULL,
        { 0, 0, 0 } };
    status = find(&search, kiln_variants_of(group), group->variant_count);
    if (status == 0) {
        choice->variant = search.variant;
        choice->image = search.slot != NULL ? search.slot->image : NULL;
        memcpy(choice->grid, search.grid, sizeof choice->grid);
    }
    return status;
}

#endif
