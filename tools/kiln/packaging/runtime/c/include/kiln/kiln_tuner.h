/* Measures which variant of a group is fastest on a device for some shapes, and remembers it. Off until a program switches
 * it on.
 *
 * A choice belongs to a group, a device by its name, and a bucket of shapes: each integer that the group's grid, select or
 * tensors use, rounded up to a power of two (0 for 0 and below). Of a group with more than 16 such integers, the first 16
 * count. A call that the chosen variant cannot serve, for an address breaks its promise, say, gets what it would get
 * without a tuner. So tune with arguments that keep what your calls keep.
 *
 * Choices go into files, whose format the page choices.md describes: one a line, each tied to the digest of its image.
 * What was chosen of an image that has been built anew since counts no more.
 *
 * Everything may be called from any thread. One measurement runs at a time, and the GPU should have nothing else to do.
 */
#ifndef KILN_TUNER_H
#define KILN_TUNER_H

#include <kiln/kiln_launch.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a group's launch does besides. */
enum kiln_tuner {
    KILN_TUNER_OFF = 0,
    KILN_TUNER_USE = 1, /* takes the choice for the device and the bucket, where there is one that serves the call */
    KILN_TUNER_TUNE = 2 /* measures before, where nothing was chosen yet and the stream is not capturing */
};

/* How to measure. Zero is the default of every member but the first.
 *
 * A candidate is launched with the caller's own arguments, some twenty times: it writes its outputs each time. That is
 * right only for kernels whose launch can be repeated. One that reads what it has written (in place, or adding up) needs
 * `reset`, which is called before each launch, and before the launch proper where a launch measures: it puts the memory of
 * the arguments in order, in the order of the stream. Not 0: this group is not to be measured. It must not throw, for what
 * calls it is C, and holds the lock of the one measurement that runs. Without it, arguments of which two have the same
 * address are refused. Where a graph's capture runs in any thread, measure nothing. */
struct kiln_tune_options {
    size_t struct_bytes; /* sizeof(struct kiln_tune_options) */
    struct CUstream_st *stream; /* of kiln_tune; a launch that measures does it on its own */
    uint32_t warmups;      /* launches of each candidate before it is timed; 0: 3 */
    uint32_t samples;      /* of each candidate, whose median counts; 0: 15 */
    uint32_t milliseconds; /* after which no sample is begun, of all candidates together; 0: 1000 */
    bool keep_cache;       /* else memory larger than the device's cache is written before each sample */
    bool only_measure;     /* and remember nothing */
    int (*reset)(void *user, const struct kiln_group *group, const void *args, struct CUstream_st *stream);
    void *user;
};

/* What came of one candidate. */
struct kiln_timing {
    const struct kiln_variant *variant;
    const struct kiln_image *image; /* NULL where none was looked for, or none suits the device */
    int status; /* 0, or why it was not timed */
    uint32_t samples;
    uint64_t nanoseconds; /* the median; 0 without samples */
    uint64_t fastest;     /* the fastest sample */
};

/* Times every variant of a group that can serve the call, and remembers the fastest. The calling thread waits for the
 * stream. All variants are told of in order of declaration, as far as `capacity` goes; `timings` and `count` may be NULL.
 * A candidate that fails is passed over. What has become of the whole is returned: an error when none could be timed, and
 * when work on the device has failed. Where the time is up before all were timed, nothing is remembered, and those that are
 * left say KILN_ERROR_NOT_MEASURED. Of an empty grid nothing is timed, and the count is 0. */
int kiln_tune(const struct kiln_group *group, const void *args, const struct kiln_tune_options *options,
    struct kiln_timing *timings, size_t capacity, size_t *count);

/* For all groups of the process. The options are for launches that measure; NULL for the default of each. A measurement
 * that fails there does not fail the launch, and is not tried again; kiln_last_error() tells of it. */
int kiln_enable_tuner(enum kiln_tuner tuner, const struct kiln_tune_options *options);

/* The bucket that a call is in, as files have it: "n_cols:2048,n_rows:16"; "-" where a group uses no integer. */
int kiln_describe_shape(const struct kiln_group *group, const void *args, char *text, size_t size);

/* What was read of files of choices. A caller may set `tell`, which is called for each line that is passed over, and has
 * to set it to NULL otherwise. */
struct kiln_choices_report {
    size_t taken;
    size_t foreign; /* of another library */
    size_t bad;     /* lines that are no choice */
    void (*tell)(void *user, const char *path, size_t line, const char *why);
    void *user;
};

/* Adds a file's choices to those that are known, and takes their place where both have one. The report may be NULL.
 * A file of another schema version, and one that is no file of choices, is an error, and nothing is taken. */
int kiln_load_choices(const char *path, struct kiln_choices_report *report);

/* Writes all that are known, sorted, also those of other devices. The file is there whole, or as it was. */
int kiln_save_choices(const char *path);

/* Writes the choices of two files into a third, which may be one of them; where both have one, the second's. Choices of
 * other libraries stay. What the process knows is left out of it. */
int kiln_merge_choices(const char *first, const char *second, const char *output, struct kiln_choices_report *report);

/* How many choices are known. */
size_t kiln_choice_count(void);

/* Forgets all of them. No launch may run in another thread meanwhile. */
void kiln_forget_choices(void);

#ifdef __cplusplus
}
#endif

#endif
