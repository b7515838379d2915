/* Times the variants of a group with the driver's events, and lets launches take what came of it. */
#define _POSIX_C_SOURCE 200809L
#include "choices.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef KILN_DISABLED

enum {
    DEFAULT_WARMUPS = 3,
    DEFAULT_SAMPLES = 15,
    DEFAULT_MILLISECONDS = 1000,
    MAX_SAMPLES = 10000,
    /* With a warm cache nothing keeps the device busy until the launch has arrived; many launches make up for that. */
    WARM_LAUNCHES = 20
};

/* Measurements disturb each other: one at a time. */
static pthread_mutex_t measuring = PTHREAD_MUTEX_INITIALIZER;

static enum kiln_tuner mode = KILN_TUNER_OFF;
static struct kiln_tune_options options_of_launches; /* under the lock */

struct candidate {
    struct kiln_timing timing;
    struct kiln_slot *slot; /* NULL where it cannot serve the call */
    uint32_t grid[3];
    float *milliseconds; /* of its samples */
};

/* One measurement. */
struct session {
    const struct kiln_driver *driver;
    struct kiln_current current;
    const struct kiln_group *group;
    const void *args;
    struct kiln_tune_options options; /* each with its value */
    struct candidate *candidates;
    float *samples; /* of all candidates */
    void *start;
    void *end;
    void *flushed; /* memory that is written to empty the cache */
    size_t flushed_bytes;
    uint64_t deadline; /* in nanoseconds of the monotonic clock */
};

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static struct kiln_tune_options completed(const struct kiln_tune_options *options)
{
    struct kiln_tune_options set;
    memset(&set, 0, sizeof set);
    if (options != NULL) {
        set = *options;
    }
    set.struct_bytes = sizeof set;
    set.warmups = set.warmups != 0 ? set.warmups : DEFAULT_WARMUPS;
    set.samples = set.samples != 0 ? set.samples : DEFAULT_SAMPLES;
    set.samples = set.samples < MAX_SAMPLES ? set.samples : MAX_SAMPLES;
    set.milliseconds = set.milliseconds != 0 ? set.milliseconds : DEFAULT_MILLISECONDS;
    return set;
}

static int check_options(const struct kiln_tune_options *options)
{
    return options == NULL || options->struct_bytes >= sizeof *options
        ? 0
        : kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "", "the options of a measurement begin with their size");
}

static int driver_failed(int code, const char *call)
{
    return kiln_driver_failed(code, call, "while variants were timed", NULL);
}

/* Two pointers with one address: the launch may read what it has written, and then it cannot be repeated. */
static int check_addresses(const struct kiln_variant *variant, const void *args)
{
    for (uint32_t i = 0; i < variant->argument_count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            const struct kiln_argument *arguments = kiln_variant_arguments(variant);
            const struct kiln_argument *one = &arguments[i], *other = &arguments[k];
            const void *addresses[2] = { NULL, NULL };
            if (!one->is_pointer || !other->is_pointer) {
                continue;
            }
            memcpy(&addresses[0], (const unsigned char *)args + one->offset, sizeof *addresses);
            memcpy(&addresses[1], (const unsigned char *)args + other->offset, sizeof *addresses);
            if (addresses[0] != NULL && addresses[0] == addresses[1]) {
                return kiln_fail(KILN_ERROR_IN_PLACE, "",
                    "%s and %s have one address, and the launch may not be repeatable: give a reset function",
                    kiln_argument_name(other), kiln_argument_name(one));
            }
        }
    }
    return 0;
}

static int reset_memory(const struct kiln_tune_options *options, const struct kiln_group *group, const void *args)
{
    const int outcome = options->reset != NULL ? options->reset(options->user, group, args, options->stream) : 0;
    return outcome == 0 ? 0
                        : kiln_fail(KILN_ERROR_NOT_MEASURED, "", "the reset function says %d for %s", outcome,
                              kiln_group_name(group));
}

static int launch(const struct session *session, const struct candidate *candidate)
{
    return kiln_start(session->driver, candidate->timing.variant, candidate->slot, session->args, candidate->grid,
        session->options.stream);
}

/* One sample. What fails of the candidate goes to its status; what fails of the session is returned. */
static int sample(struct session *session, struct candidate *candidate)
{
    const struct kiln_driver *driver = session->driver;
    const struct kiln_tune_options *options = &session->options;
    const int launches = options->keep_cache && options->reset == NULL ? WARM_LAUNCHES : 1;
    float milliseconds = 0;
    int status = reset_memory(options, session->group, session->args);
    if (status != 0) {
        return status;
    }
    int code = session->flushed != NULL
        ? driver->fill(driver->user, session->flushed, session->flushed_bytes, options->stream)
        : 0;
    if (code != 0) {
        return driver_failed(code, "fill");
    }
    code = driver->record_event(driver->user, session->start, options->stream);
    if (code != 0) {
        return driver_failed(code, "record_event");
    }
    for (int i = 0; i < launches && status == 0; i++) {
        status = launch(session, candidate);
    }
    if (status != 0) {
        candidate->timing.status = status;
        return 0;
    }
    code = driver->record_event(driver->user, session->end, options->stream);
    if (code != 0) {
        return driver_failed(code, "record_event");
    }
    code = driver->elapsed(driver->user, session->start, session->end, &milliseconds);
    if (code != 0) {
        /* What was launched has failed on the device, which is then of no more use. */
        candidate->timing.status = driver_failed(code, "elapsed");
        return candidate->timing.status;
    }
    candidate->milliseconds[candidate->timing.samples++] = milliseconds / (float)launches;
    return 0;
}

static int warm_up(struct session *session, struct candidate *candidate)
{
    for (uint32_t i = 0; i < session->options.warmups && candidate->timing.status == 0; i++) {
        const int status = reset_memory(&session->options, session->group, session->args);
        if (status != 0) {
            return status;
        }
        candidate->timing.status = launch(session, candidate);
    }
    return 0;
}

/* Finds the candidates; `is_empty` where there is nothing to launch. */
static int gather(struct session *session, bool *is_empty)
{
    const struct kiln_group *group = session->group;
    struct kiln_search search = { kiln_group_name(group), session->args, NULL, session->options.stream, false,
        session->driver, session->current, NULL, NULL, { 0, 0, 0 } };
    for (uint32_t i = 0; i < group->variant_count; i++) {
        struct candidate *candidate = &session->candidates[i];
        bool is_over = false;
        const struct kiln_variant *variant = kiln_variants_of(group)[i];
        candidate->timing.variant = variant;
        candidate->milliseconds = session->samples + (size_t)i * session->options.samples;
        candidate->timing.status = KILN_ERROR_NO_IMAGE;
        if (variant == NULL) {
            continue; /* it is not linked */
        }
        const int status = kiln_look(&search, variant, &is_over);
        if (is_over) {
            return status;
        }
        candidate->timing.status = status;
        if (status == 0 && search.slot == NULL) {
            *is_empty = true;
            return 0;
        }
        if (status == 0) {
            candidate->slot = search.slot;
            if (kiln_bundle_of(variant) != NULL) {
                /* The driver may take another image out of a fat binary than the search expects. */
                candidate->timing.status = kiln_load_slot(session->driver, variant, &candidate->slot, NULL, false);
            }
            candidate->timing.image = candidate->slot->image;
            memcpy(candidate->grid, search.grid, sizeof candidate->grid);
        }
    }
    return 0;
}

/* Memory larger than the device's caches, to be written between launches. */
static int get_flushed(struct session *session)
{
    const size_t mebibyte = 1024 * 1024;
    struct kiln_device device;
    const int status = kiln_describe_device(session->current.device, &device);
    if (status != 0) {
        return status;
    }
    /* AMD's last cache, of up to 256 MiB, is none that HIP tells the size of. */
    const size_t least = device.vendor == KILN_VENDOR_AMD ? 512 * mebibyte : 32 * mebibyte;
    session->flushed_bytes = 2 * (size_t)device.l2_bytes > least ? 2 * (size_t)device.l2_bytes : least;
    const int code = session->driver->allocate(session->driver->user, session->flushed_bytes, &session->flushed);
    if (code != 0) {
        session->flushed = NULL;
        return kiln_driver_failed(code, "allocate", "for the memory that empties the cache; keep_cache does without", NULL);
    }
    return 0;
}

/* Rounds over all candidates, so that a clock that changes changes all alike. The first one is timed once in any case. */
static int time_all(struct session *session)
{
    const uint32_t count = session->group->variant_count;
    bool is_first = true;
    for (uint32_t round = 0; round < session->options.samples; round++) {
        for (uint32_t i = 0; i < count; i++) {
            struct candidate *candidate = &session->candidates[i];
            const bool is_late = now() > session->deadline;
            int status = 0;
            if (candidate->slot == NULL || candidate->timing.status != 0 || (is_late && round > 0)) {
                continue;
            }
            if (is_late && !is_first) {
                candidate->timing.status = KILN_ERROR_NOT_MEASURED;
                continue;
            }
            is_first = false;
            if (round == 0) {
                status = warm_up(session, candidate);
            }
            if (status == 0 && candidate->timing.status == 0) {
                status = sample(session, candidate);
            }
            if (status != 0) {
                return status;
            }
        }
    }
    return 0;
}

static int by_size(const void *one, const void *other)
{
    const float a = *(const float *)one, b = *(const float *)other;
    return a < b ? -1 : a > b;
}

static uint64_t nanoseconds(float milliseconds)
{
    return milliseconds > 0 ? (uint64_t)((double)milliseconds * 1e6 + 0.5) : 0;
}

/* The median of each candidate, and the one with the lowest; NULL when none was timed. */
static const struct candidate *evaluate(struct session *session)
{
    const struct candidate *best = NULL;
    for (uint32_t i = 0; i < session->group->variant_count; i++) {
        struct candidate *candidate = &session->candidates[i];
        const size_t samples = candidate->timing.samples;
        if (candidate->timing.status != 0 || samples == 0) {
            continue;
        }
        qsort(candidate->milliseconds, samples, sizeof(float), by_size);
        const float *middle = candidate->milliseconds + (samples - 1) / 2;
        candidate->timing.nanoseconds = nanoseconds((middle[0] + middle[samples % 2 == 0 ? 1 : 0]) / 2);
        candidate->timing.fastest = nanoseconds(candidate->milliseconds[0]);
        if (best == NULL || candidate->timing.nanoseconds < best->timing.nanoseconds) {
            best = candidate;
        }
    }
    return best;
}

/* The failure that says most: that of a candidate which could have served the call, else of the first. */
static int tell_failure(const struct session *session)
{
    const struct candidate *told = NULL;
    for (uint32_t i = 0; i < session->group->variant_count; i++) {
        const struct candidate *each = &session->candidates[i];
        if (each->timing.variant != NULL && (told == NULL || (told->slot == NULL && each->slot != NULL))) {
            told = each;
        }
    }
    if (told == NULL) {
        return kiln_fail(KILN_ERROR_NO_IMAGE, "", "the program has linked no image of %s", kiln_group_name(session->group));
    }
    const int status = told->timing.status;
    return kiln_fail(status, "", "no variant of %s could be timed; of %s, status %d: %s", kiln_group_name(session->group),
        kiln_variant_name(told->timing.variant), status, kiln_status_text(status));
}

/* Times what `gather` has found. */
static int run(struct session *session, const struct candidate **best)
{
    const struct kiln_driver *driver = session->driver;
    int status = session->options.keep_cache ? 0 : get_flushed(session);
    if (status == 0) {
        const int code = driver->create_event(driver->user, &session->start);
        status = code != 0 ? driver_failed(code, "create_event") : 0;
    }
    if (status == 0) {
        const int code = driver->create_event(driver->user, &session->end);
        status = code != 0 ? driver_failed(code, "create_event") : 0;
    }
    session->deadline = now() + (uint64_t)session->options.milliseconds * 1000000u;
    status = status != 0 ? status : time_all(session);
    if (session->end != NULL) {
        driver->destroy_event(driver->user, session->end);
    }
    if (session->start != NULL) {
        driver->destroy_event(driver->user, session->start);
    }
    if (session->flushed != NULL) {
        driver->release(driver->user, session->flushed);
    }
    *best = evaluate(session);
    return status != 0 ? status : *best == NULL ? tell_failure(session) : 0;
}

/* Whether every candidate that could be timed was: what is fastest of some is no choice. */
static bool is_complete(const struct session *session)
{
    for (uint32_t i = 0; i < session->group->variant_count; i++) {
        if (session->candidates[i].timing.status == KILN_ERROR_NOT_MEASURED) {
            return false;
        }
    }
    return true;
}

static void report(const struct session *session, struct kiln_timing *timings, size_t capacity, size_t *count)
{
    size_t told = 0;
    for (uint32_t i = 0; i < session->group->variant_count; i++) {
        if (session->candidates[i].timing.variant == NULL) {
            continue;
        }
        if (timings != NULL && told < capacity) {
            timings[told] = session->candidates[i].timing;
        }
        told++;
    }
    if (count != NULL) {
        *count = told;
    }
}

/* One measurement from its beginning to its end; the mutex is held. */
static int measure(const struct kiln_driver *driver, const struct kiln_current *current, const struct kiln_group *group,
    const void *args, const struct kiln_tune_options *options, struct kiln_timing *timings, size_t capacity, size_t *count)
{
    struct session session;
    memset(&session, 0, sizeof session);
    session.driver = driver;
    session.current = *current;
    session.group = group;
    session.args = args;
    session.options = *options;
    session.candidates = calloc(group->variant_count, sizeof *session.candidates);
    session.samples = calloc((size_t)group->variant_count * options->samples, sizeof *session.samples);
    const struct candidate *best = NULL;
    bool is_empty = false;
    int status = session.candidates != NULL && session.samples != NULL
        ? gather(&session, &is_empty)
        : kiln_fail(KILN_ERROR_OUT_OF_MEMORY, "", "no memory to measure %s", kiln_group_name(group));
    if (status == 0 && !is_empty) {
        for (uint32_t i = 0; i < group->variant_count && status == 0 && options->reset == NULL; i++) {
            const struct kiln_variant *variant = kiln_variants_of(group)[i];
            status = variant != NULL ? check_addresses(variant, args) : 0;
        }
        status = status != 0 ? status : run(&session, &best);
        report(&session, timings, capacity, count);
    }
    if (status == 0 && best != NULL && !options->only_measure && kiln_tuned_of(group) != NULL && is_complete(&session)) {
        status = kiln_remember(driver, current, group, args, best->timing.image, best->timing.nanoseconds);
    }
    free(session.samples);
    free(session.candidates);
    return status;
}

int kiln_tune(const struct kiln_group *group, const void *args, const struct kiln_tune_options *options,
    struct kiln_timing *timings, size_t capacity, size_t *count)
{
    const struct kiln_driver *driver;
    struct kiln_current current;
    bool is_capturing = false;
    if (count != NULL) {
        *count = 0;
    }
    if (group == NULL || args == NULL) {
        return kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "", "a measurement needs a group and arguments");
    }
    if (!group->is_uniform) {
        return kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "",
            "the variants of %s take different argument structs, and do not compete", kiln_group_name(group));
    }
    int status = check_options(options);
    status = status != 0 ? status : kiln_where(&driver, &current);
    if (status != 0) {
        return status;
    }
    const struct kiln_tune_options set = completed(options);
    const int code = driver->capturing(driver->user, set.stream, &is_capturing);
    if (code != 0) {
        return driver_failed(code, "capturing");
    }
    if (is_capturing) {
        return kiln_fail(KILN_ERROR_CAPTURING, "", "%s cannot be measured on a stream that is capturing",
            kiln_group_name(group));
    }
    pthread_mutex_lock(&measuring);
    status = measure(driver, &current, group, args, &set, timings, capacity, count);
    pthread_mutex_unlock(&measuring);
    return status;
}

/* Measures for a launch, if nothing stands against it now; true when a choice may have come of it. */
static bool measure_for(const struct kiln_search *search, struct kiln_bucket *bucket)
{
    bool is_capturing = true;
    const int code = search->driver->capturing(search->driver->user, search->stream, &is_capturing);
    if (code != 0 || is_capturing || pthread_mutex_trylock(&measuring) != 0) {
        return false;
    }
    const bool is_first = __atomic_exchange_n(&bucket->is_tried, 1, __ATOMIC_RELAXED) == 0;
    if (is_first) {
        kiln_lock();
        struct kiln_tune_options options = options_of_launches;
        kiln_unlock();
        options.stream = search->stream;
        measure(search->driver, &search->current, search->group, search->args, &options, NULL, 0, NULL);
        reset_memory(&options, search->group, search->args); /* whatever came of it, something may have been launched */
    }
    pthread_mutex_unlock(&measuring);
    return is_first;
}

static const struct kiln_variant *prefer(const struct kiln_search *search)
{
    struct kiln_bucket *bucket = kiln_find_bucket(search->driver, &search->current, search->group, search->args);
    if (bucket == NULL) {
        return NULL;
    }
    const struct kiln_variant *variant = __atomic_load_n(&bucket->variant, __ATOMIC_RELAXED);
    if (variant == NULL && search->launches && __atomic_load_n(&mode, __ATOMIC_RELAXED) == KILN_TUNER_TUNE
        && __atomic_load_n(&bucket->is_tried, __ATOMIC_RELAXED) == 0 && measure_for(search, bucket)) {
        bucket = kiln_find_bucket(search->driver, &search->current, search->group, search->args);
        variant = bucket != NULL ? __atomic_load_n(&bucket->variant, __ATOMIC_RELAXED) : NULL;
    }
    return variant;
}

int kiln_enable_tuner(enum kiln_tuner tuner, const struct kiln_tune_options *options)
{
    const int status = check_options(options);
    if (status != 0) {
        return status;
    }
    if (tuner != KILN_TUNER_OFF && tuner != KILN_TUNER_USE && tuner != KILN_TUNER_TUNE) {
        return kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "", "there is no tuner %d", (int)tuner);
    }
    kiln_lock();
    options_of_launches = completed(options);
    kiln_unlock();
    __atomic_store_n(&mode, tuner, __ATOMIC_RELAXED);
    __atomic_store_n(&kiln_preferred, tuner == KILN_TUNER_OFF ? NULL : prefer, __ATOMIC_RELEASE);
    return 0;
}

#endif
