/* A GPU's driver that computes nothing: what it is asked it notes, and what it answers a test can set.
 *
 * double_cuda.c is built as libcuda.so.1 and double_hip.c as libamdhip64.so. With $DOUBLE_ANSWERS, a folder, launch number N
 * (from 0) writes the bytes of the file N in it to the address that is its first parameter; all memory is the host's. A test
 * program finds the state by dlsym("double_state") in the library that the runtime has opened, or opens it itself before.
 */
#ifndef DOUBLE_H
#define DOUBLE_H

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DOUBLE_DEVICES = 8, DOUBLE_POINTERS = 8, DOUBLE_LOG = 1 << 20 };

struct double_context {
    int device;
    bool is_destroyed;
};

struct double_pointer {
    const void *address;
    int type; /* the driver's own number */
    bool is_managed;
    int device;
};

struct double_duration {
    const char *text; /* an image's data */
    const float *milliseconds;
    size_t count, launches;
};

struct double_state {
    int device_count;
    int capability[DOUBLE_DEVICES];
    int taken[DOUBLE_DEVICES]; /* what is taken out of a fat binary was written for this capability */
    char architecture[DOUBLE_DEVICES][64];
    int driver_version;
    int resets; /* of the context */
    int lost_device; /* which cannot be made current: 1 for the first one */
    int max_threads, max_shared, cooperative, clusters, pageable;
    int loads_together; /* each load waits until as many have begun, or fails */
    const char *failing; /* the function that fails, with this code, until it is NULL again */
    int code;
    const char *failing_image; /* the one whose launches fail, with that code */
    float clock;
    struct double_duration durations[DOUBLE_POINTERS];
    const char *compiler_log; /* what loading says when it fails */
    int capture_status;
    struct double_pointer pointers[DOUBLE_POINTERS];
    int loaded; /* modules or libraries that are loaded now */
    pthread_mutex_t lock;
    size_t log_bytes;
    char log[DOUBLE_LOG]; /* a line a call that does something */
};

typedef struct double_state *double_state_function(void);

/* For programs in other languages than C: sets a number of the state by its name; of the devices, all alike. */
static inline int double_set_number(struct double_state *state, const char *name, int value)
{
    const struct {
        const char *name;
        int *place;
    } numbers[] = {
        { "device_count", &state->device_count },
        { "resets", &state->resets },
        { "lost_device", &state->lost_device },
        { "driver_version", &state->driver_version },
        { "max_threads", &state->max_threads },
        { "max_shared", &state->max_shared },
        { "cooperative", &state->cooperative },
        { "clusters", &state->clusters },
        { "capture_status", &state->capture_status },
        { "pageable", &state->pageable },
        { "loads_together", &state->loads_together },
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(numbers[i].name, name) == 0) {
            *numbers[i].place = value;
            return 0;
        }
    }
    for (size_t i = 0; i < DOUBLE_DEVICES && strcmp(name, "capability") == 0; i++) state->capability[i] = value;
    return strcmp(name, "capability") == 0 ? 0 : -1;
}

/* For the same: there is memory at an address, in the first free place. */
static inline void double_add_pointer(struct double_state *state, uint64_t address, int type, bool is_managed, int device)
{
    size_t place = 0;
    while (state->pointers[place].address != NULL) place++;
    if (place == DOUBLE_POINTERS) abort();
    state->pointers[place] = (struct double_pointer) { (const void *)(uintptr_t)address, type, is_managed, device };
}

/* What the driver was asked since the last call of this, up to `size` bytes. */
static inline void double_take_log(struct double_state *state, char *text, size_t size)
{
    pthread_mutex_lock(&state->lock);
    const size_t bytes = state->log_bytes < size ? state->log_bytes : size - 1;
    memcpy(text, state->log, bytes);
    text[bytes] = '\0';
    state->log_bytes = 0;
    pthread_mutex_unlock(&state->lock);
}

/* A launch takes its time: that of events goes on by what the image's next launch takes, one number after the other. */
static inline void double_pass(struct double_state *state, const char *text)
{
    pthread_mutex_lock(&state->lock);
    for (size_t i = 0; i < DOUBLE_POINTERS; i++) {
        struct double_duration *each = &state->durations[i];
        if (each->text != NULL && strcmp(each->text, text) == 0) {
            state->clock += each->milliseconds[each->launches++ % each->count];
        }
    }
    pthread_mutex_unlock(&state->lock);
}

/* Each event comes 2.5 ms behind the one before, besides. */
static inline float double_tick(struct double_state *state)
{
    pthread_mutex_lock(&state->lock);
    const float time = state->clock += 2.5f;
    pthread_mutex_unlock(&state->lock);
    return time;
}

static inline void double_answer(const void *parameters)
{
    static int launches;
    const char *folder = getenv("DOUBLE_ANSWERS");
    char path[1024];
    void *to;
    if (folder == NULL) return;
    snprintf(path, sizeof path, "%s/%d", folder, launches++);
    FILE *file = fopen(path, "rb");
    memcpy(&to, parameters, sizeof to);
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) abort();
    const size_t size = (size_t)ftell(file);
    rewind(file);
    if (fread(to, 1, size, file) != size || fclose(file) != 0) abort();
}

#endif
