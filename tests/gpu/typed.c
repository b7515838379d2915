/* Launches variants by the functions of the header <kernels/kernels.h>, in all the ways that a program has: alone, by group
 * and by dtype, with arguments that break promises, with empty grids, from two threads, in two contexts, and in a graph.
 *
 *     typed JOBS
 *
 * JOBS is a file of words. `absent VARIANT` is one that this GPU has no image for. A launch is
 *
 *     launch VARIANT TARGET GRID_X GRID_Y GRID_Z      TARGET is what the library must choose
 *     scalar NAME HEX                     the bytes of an argument or a launch input, as they lie in memory
 *     input NAME BYTES ALIGN PATH         what lies behind a pointer; it must be the same after the launch
 *     output NAME BYTES ALIGN PATH        filled with 0xff before each launch, written to PATH after the first
 *     zero NAME BYTES ALIGN               memory to work in
 *     group                               by the variant's group too, which writes PATH.group
 *     ways                                in all other ways too, which have to write the same bytes
 *     go
 *
 * ALIGN is the size of an element. An address is a multiple of what the variant promises and of no more. A group is also
 * given addresses that are multiples of ALIGN alone: it writes PATH.unaligned, or refuses and names an argument; it has to
 * serve the call where one of its variants promises nothing. Before and behind each buffer lies a margin that must not
 * change. For each launch a line goes to standard output, `ok NUMBER` or `failed NUMBER WHY`, and for each absent variant
 * `absent VARIANT STATUS`. The exit code is 1 when a launch failed.
 *
 * typed_calls.h is made from the library's header: its functions, by name.
 */
#include "driver.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>

#include <kernels/kernels.h>

#include "typed_calls.h"

enum { MAX_BUFFERS = 16, MAX_ARGS_BYTES = 512, MARGIN = 256, SCRATCH_BYTES = 1 << 20, NAME = 128, PATH = 1024, FAILURE = 700 };

enum buffer_kind { INPUT, OUTPUT, WORKSPACE };

struct buffer {
    enum buffer_kind kind;
    char name[NAME];
    char path[PATH];
    size_t size, item, promise, offset; /* the offset is that of the address in the argument struct */
    unsigned char *content; /* of an input; of an output what the first launch wrote */
};

/* One launch, as it was asked for. */
struct job {
    const struct kernels_variant *variant;
    const struct call *alone, *group;
    char target[NAME];
    uint32_t grid[3];
    uint64_t args[MAX_ARGS_BYTES / 8];
    struct buffer buffers[MAX_BUFFERS];
    size_t buffer_count;
    bool by_group, all_ways;
    char failure[FAILURE]; /* empty while all is well */
};

/* Memory for one job, in the context that was current. */
struct place {
    struct job *job;
    const char *way; /* for failures */
    CUdeviceptr memory[MAX_BUFFERS], scratch;
    size_t shift[MAX_BUFFERS]; /* the buffer begins so many bytes behind its memory */
    size_t scratch_bytes;      /* of a launch, of which 0xff lies behind them */
    uint64_t args[MAX_ARGS_BYTES / 8];
    char failure[FAILURE];
};

static CUcontext primary, other;
static __thread struct place *scratch_place; /* of the launch that this thread is in */

static void fail(struct place *place, const char *format, ...)
{
    va_list values;
    if (place->failure[0] != '\0') return; /* what goes wrong first is the cause of the rest */
    const size_t used = (size_t)snprintf(place->failure, FAILURE, "%s: ", place->way);
    va_start(values, format);
    vsnprintf(place->failure + used, FAILURE - used, format, values);
    va_end(values);
    for (char *end = place->failure; (end = strchr(end, '\n')) != NULL;) *end = ' '; /* a failure is one line */
}

#define DRIVER(place, call) \
    do { \
        if ((place)->failure[0] == '\0') { \
            const int result = call; \
            if (result != 0) fail(place, "%s is %d", #call, result); \
        } \
    } while (0)

static void *get_memory(size_t size)
{
    void *memory = malloc(size);
    if (memory == NULL) exit(2);
    return memory;
}

/* The place's own scratch memory: a capture may allocate none. */
static void *give_scratch(void *user, size_t bytes, size_t align, struct CUstream_st *stream, int32_t device)
{
    (void)user, (void)stream, (void)device;
    if (bytes > SCRATCH_BYTES || align > MARGIN) return NULL;
    scratch_place->scratch_bytes = bytes;
    return (void *)(uintptr_t)(scratch_place->scratch + MARGIN);
}

static void keep_scratch(void *user, void *address, struct CUstream_st *stream, int32_t device)
{
    (void)user, (void)address, (void)stream, (void)device;
}

static size_t total(const struct place *place, size_t i) { return place->shift[i] + place->job->buffers[i].size + MARGIN; }

/* Puts everything as it is before a launch. */
static void fill(struct place *place)
{
    for (size_t i = 0; i < place->job->buffer_count; i++) {
        const struct buffer *buffer = &place->job->buffers[i];
        unsigned char *before = get_memory(total(place, i));
        memset(before, 0xff, total(place, i));
        if (buffer->kind == INPUT) memcpy(before + place->shift[i], buffer->content, buffer->size);
        if (buffer->kind == WORKSPACE) memset(before + place->shift[i], 0, buffer->size);
        DRIVER(place, cuMemcpyHtoD(place->memory[i], before, total(place, i)));
        free(before);
    }
    unsigned char *scratch = get_memory(SCRATCH_BYTES + 2 * MARGIN);
    memset(scratch, 0xff, SCRATCH_BYTES + 2 * MARGIN);
    DRIVER(place, cuMemcpyHtoD(place->scratch, scratch, SCRATCH_BYTES + 2 * MARGIN));
    free(scratch);
    DRIVER(place, cuCtxSynchronize()); /* streams that do not wait for copies are used too */
}

static void open_place(struct place *place, struct job *job, const char *way, bool is_aligned)
{
    memset(place, 0, sizeof *place);
    place->job = job;
    place->way = way;
    memcpy(place->args, job->args, sizeof place->args);
    for (size_t i = 0; i < job->buffer_count; i++) {
        const struct buffer *buffer = &job->buffers[i];
        place->shift[i] = MARGIN + (is_aligned && buffer->promise != 0 ? buffer->promise : buffer->item);
        DRIVER(place, cuMemAlloc(&place->memory[i], total(place, i)));
        const CUdeviceptr address = place->memory[i] + place->shift[i];
        if (place->memory[i] % MARGIN != 0) fail(place, "the driver's memory is aligned to less than %d", MARGIN);
        memcpy((unsigned char *)place->args + buffer->offset, &address, sizeof address);
    }
    DRIVER(place, cuMemAlloc(&place->scratch, SCRATCH_BYTES + 2 * MARGIN));
    fill(place);
}

/* And hands the place's failure on to the job. */
static void close_place(struct place *place)
{
    for (size_t i = 0; i < place->job->buffer_count; i++) {
        if (place->memory[i] != 0) cuMemFree(place->memory[i]);
    }
    if (place->scratch != 0) cuMemFree(place->scratch);
    if (place->job->failure[0] == '\0') memcpy(place->job->failure, place->failure, FAILURE);
}

static int start(struct place *place, const struct call *call, const void *args, struct CUstream_st *stream)
{
    scratch_place = place;
    return call->launch(args, stream);
}

/* A launch that has to succeed. */
static void launch(struct place *place, const struct call *call, struct CUstream_st *stream)
{
    if (place->failure[0] != '\0') return;
    const int status = start(place, call, place->args, stream);
    if (status != 0) fail(place, "%s: %s", kernels_status_name(status), kernels_last_error()->detail);
}

static void write_file(struct place *place, const char *path, const char *suffix, const void *data, size_t size)
{
    char full[PATH + 16];
    snprintf(full, sizeof full, "%s%s", path, suffix);
    FILE *file = fopen(full, "wb");
    const size_t put = file == NULL ? 0 : fwrite(data, 1, size, file);
    if (file == NULL || fclose(file) != 0 || put != size) fail(place, "%s cannot be written", full);
}

static bool is_filled(const unsigned char *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (data[i] != 0xff) return false;
    }
    return true;
}

/* What outputs have to be. */
enum expected { ANYTHING, SAME, UNTOUCHED };

/* Margins and inputs are as before, and outputs are what is expected; with a suffix, they go to files. */
static void check(struct place *place, enum expected expected, const char *suffix)
{
    for (size_t i = 0; i < place->job->buffer_count && place->failure[0] == '\0'; i++) {
        struct buffer *buffer = &place->job->buffers[i];
        const size_t begin = place->shift[i], end = begin + buffer->size;
        unsigned char *after = get_memory(total(place, i)), *own = after + begin;
        DRIVER(place, cuMemcpyDtoH(after, place->memory[i], total(place, i)));
        if (!is_filled(after, begin)) fail(place, "it wrote before %s", buffer->name);
        if (!is_filled(after + end, MARGIN)) fail(place, "it wrote behind %s", buffer->name);
        if (buffer->kind == INPUT && memcmp(own, buffer->content, buffer->size) != 0) fail(place, "it changed %s", buffer->name);
        if (buffer->kind == OUTPUT && expected == UNTOUCHED && !is_filled(own, buffer->size)) {
            fail(place, "%s was written by a launch that must not be", buffer->name);
        }
        if (buffer->kind == OUTPUT && expected == SAME && memcmp(own, buffer->content, buffer->size) != 0) {
            fail(place, "%s is not what the first launch wrote", buffer->name);
        }
        if (buffer->kind == OUTPUT && suffix != NULL) write_file(place, buffer->path, suffix, own, buffer->size);
        if (buffer->kind == OUTPUT && buffer->content == NULL) {
            buffer->content = get_memory(buffer->size);
            memcpy(buffer->content, own, buffer->size);
        }
        free(after);
    }
    unsigned char *scratch = get_memory(SCRATCH_BYTES + 2 * MARGIN);
    DRIVER(place, cuMemcpyDtoH(scratch, place->scratch, SCRATCH_BYTES + 2 * MARGIN));
    if (place->failure[0] == '\0'
        && (!is_filled(scratch, MARGIN)
            || !is_filled(scratch + MARGIN + place->scratch_bytes, SCRATCH_BYTES - place->scratch_bytes + MARGIN))) {
        fail(place, "it wrote outside its scratch memory");
    }
    free(scratch);
}

/* The variant alone; what it writes is what all other ways are held against. */
static void launch_alone(struct job *job)
{
    struct place place;
    struct kernels_handles handles;
    uint32_t grid[3] = { 0, 0, 0 };
    open_place(&place, job, "alone", true);
    if (kernels_variant_grid(job->variant, job->args, grid) != KERNELS_GRID_OK || memcmp(grid, job->grid, sizeof grid) != 0) {
        fail(&place, "the library's grid is %u by %u by %u", grid[0], grid[1], grid[2]);
    }
    launch(&place, job->alone, NULL);
    DRIVER(&place, cuCtxSynchronize());
    if (place.failure[0] == '\0' && (kernels_load(job->variant, &handles) != 0 || strcmp(kernels_image_target(handles.image), job->target) != 0)) {
        fail(&place, "the library chose another image than that of %s", job->target);
    }
    check(&place, ANYTHING, "");
    close_place(&place);
}

static const struct buffer *buffer_at(const struct job *job, size_t offset)
{
    for (size_t i = 0; i < job->buffer_count; i++) {
        if (job->buffers[i].offset == offset) return &job->buffers[i];
    }
    return NULL;
}

/* Each promise broken alone: the call is refused, the argument named, and nothing touched. */
static void break_promises(struct job *job)
{
    struct place place;
    open_place(&place, job, "a broken promise", true);
    for (uint32_t i = 0; i < job->variant->argument_count; i++) {
        const struct kernels_argument *argument = &kernels_variant_arguments(job->variant)[i];
        const struct buffer *buffer = argument->is_pointer ? buffer_at(job, argument->offset) : NULL;
        uint64_t args[MAX_ARGS_BYTES / 8], value = 0;
        if (argument->promise == 0 || place.failure[0] != '\0') continue;
        memcpy(args, place.args, sizeof args);
        memcpy(&value, (unsigned char *)args + argument->offset, argument->size);
        value += buffer != NULL ? buffer->item : 1;
        memcpy((unsigned char *)args + argument->offset, &value, argument->size);
        const int status = start(&place, job->alone, args, NULL);
        if (status != (argument->is_pointer ? KERNELS_ERROR_MISALIGNED : KERNELS_ERROR_PROMISE) && status != KERNELS_ERROR_NOT_SELECTED) {
            fail(&place, "%s breaks it, and the launch returns %s", kernels_argument_name(argument),
                kernels_status_name(status));
        } else if (strstr(kernels_last_error()->detail, kernels_argument_name(argument)) == NULL) {
            fail(&place, "%s is not named: %s", kernels_argument_name(argument), kernels_last_error()->detail);
        }
    }
    DRIVER(&place, cuCtxSynchronize());
    check(&place, UNTOUCHED, NULL);
    close_place(&place);
}

/* Each integer that empties the grid when it is 0: success, with no address given at all. */
static void empty_the_grid(struct job *job)
{
    struct place place;
    uint32_t grid[3];
    int count = 0;
    open_place(&place, job, "an empty grid", true);
    for (uint32_t i = 0; i < job->variant->argument_count; i++) {
        const struct kernels_argument *argument = &kernels_variant_arguments(job->variant)[i];
        uint64_t args[MAX_ARGS_BYTES / 8];
        memcpy(args, job->args, sizeof args);
        memset((unsigned char *)args + argument->offset, 0, argument->size);
        if (argument->is_pointer || kernels_variant_grid(job->variant, args, grid) != KERNELS_GRID_EMPTY) continue;
        count++;
        const int status = start(&place, job->alone, args, NULL);
        const int of_group = job->group != NULL ? start(&place, job->group, args, NULL) : 0;
        if (status != 0 || of_group != 0) {
            fail(&place, "%s is 0, and the launch returns %s", kernels_argument_name(argument),
                kernels_status_name(status != 0 ? status : of_group));
        }
    }
    if (count == 0) fail(&place, "no integer empties it");
    DRIVER(&place, cuCtxSynchronize());
    check(&place, UNTOUCHED, NULL);
    close_place(&place);
}

static const struct kernels_group *group_of(const struct job *job) { return kernels_group_find(kernels_variant_group(job->variant)); }

/* By group, and by dtype where the header has that: the same variant, and so the same bytes. */
static void launch_group(struct job *job)
{
    struct place place;
    struct kernels_choice choice = { NULL, NULL, { 0, 0, 0 } };
    const struct front *front = NULL;
    enum kernels_dtype dtype = KERNELS_DTYPE_I1;
    open_place(&place, job, "by group", true);
    if (kernels_choose(group_of(job), place.args, &choice) != 0 || strcmp(kernels_image_target(choice.image), job->target) != 0) {
        fail(&place, "no image of %s is chosen: %s", job->target, kernels_last_error()->detail);
    }
    launch(&place, job->group, NULL);
    DRIVER(&place, cuCtxSynchronize());
    check(&place, ANYTHING, ".group");
    for (size_t i = 0; i < sizeof fronts / sizeof *fronts && front == NULL; i++) {
        for (int number = KERNELS_DTYPE_I1; number <= KERNELS_DTYPE_FP8E5B16 && front == NULL; number++) {
            if (fronts[i].find((enum kernels_dtype)number) == group_of(job)) {
                front = &fronts[i];
                dtype = (enum kernels_dtype)number;
            }
        }
    }
    place.way = "by dtype";
    if (front == NULL) fail(&place, "the header has no launch of this dtype");
    fill(&place);
    if (place.failure[0] == '\0') {
        const int status = (scratch_place = &place, front->launch(dtype, place.args, NULL));
        if (status != 0) fail(&place, "%s: %s", kernels_status_name(status), kernels_last_error()->detail);
    }
    DRIVER(&place, cuCtxSynchronize());
    check(&place, choice.variant == job->variant ? SAME : ANYTHING, NULL);
    close_place(&place);
}

/* Whether a variant of the group takes any address. */
static bool has_fallback(const struct job *job)
{
    const struct kernels_group *group = group_of(job);
    for (uint32_t i = 0; i < group->variant_count; i++) {
        const struct kernels_variant *variant = kernels_group_variants(group)[i];
        bool promises = false;
        for (uint32_t j = 0; j < variant->argument_count; j++) {
            promises = promises || kernels_variant_arguments(variant)[j].promise != 0;
        }
        if (!promises && kernels_variant_selects(variant, job->args)) return true;
    }
    return false;
}

static void launch_unaligned(struct job *job)
{
    struct place place;
    open_place(&place, job, "by group, with unaligned addresses", false);
    const int status = place.failure[0] == '\0' ? start(&place, job->group, place.args, NULL) : 0;
    const char *detail = status != 0 ? kernels_last_error()->detail : "";
    bool is_named = false;
    for (size_t i = 0; i < job->buffer_count; i++) {
        is_named = is_named || strstr(detail, job->buffers[i].name) != NULL;
    }
    if (status != 0 && (has_fallback(job) || status != KERNELS_ERROR_MISALIGNED || !is_named)) {
        fail(&place, "%s: %s", kernels_status_name(status), detail);
    }
    DRIVER(&place, cuCtxSynchronize());
    check(&place, status == 0 ? ANYTHING : UNTOUCHED, status == 0 ? ".unaligned" : NULL);
    close_place(&place);
}

struct thread {
    pthread_t id;
    pthread_barrier_t *barrier;
    struct place place;
};

static void *run_thread(void *given)
{
    struct thread *thread = given;
    struct place *place = &thread->place;
    CUstream stream = NULL;
    DRIVER(place, cuCtxSetCurrent(primary));
    DRIVER(place, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    pthread_barrier_wait(thread->barrier);
    int times = 3;
    for (size_t i = 0; i < place->job->buffer_count; i++) {
        if (place->job->buffers[i].kind == WORKSPACE) times = 1; /* which has to be zero at each launch */
    }
    for (int i = 0; i < times; i++) launch(place, place->job->alone, stream);
    DRIVER(place, cuStreamSynchronize(stream));
    if (stream != NULL) cuStreamDestroy(stream);
    return NULL;
}

/* Two threads at once, each with a stream of its own; a new variant's image is loaded by whichever comes first. */
static void launch_in_threads(struct job *job)
{
    static const struct kernels_variant *last;
    struct thread threads[2];
    pthread_barrier_t barrier;
    if (last != job->variant && kernels_unload() != 0) {
        fprintf(stderr, "nothing is unloaded: %s\n", kernels_last_error()->detail);
        exit(2);
    }
    last = job->variant;
    pthread_barrier_init(&barrier, NULL, 2);
    for (size_t i = 0; i < 2; i++) {
        threads[i].barrier = &barrier;
        open_place(&threads[i].place, job, i == 0 ? "in one of two threads" : "in the other thread", true);
    }
    for (size_t i = 0; i < 2; i++) {
        if (pthread_create(&threads[i].id, NULL, run_thread, &threads[i]) != 0) exit(2);
    }
    for (size_t i = 0; i < 2; i++) pthread_join(threads[i].id, NULL);
    for (size_t i = 0; i < 2; i++) {
        check(&threads[i].place, SAME, NULL);
        close_place(&threads[i].place);
    }
    pthread_barrier_destroy(&barrier);
}

static void launch_in_context(struct job *job)
{
    struct place place;
    if (cuCtxSetCurrent(other) != 0) exit(2);
    open_place(&place, job, "in another context", true);
    launch(&place, job->alone, NULL);
    DRIVER(&place, cuCtxSynchronize());
    check(&place, SAME, NULL);
    close_place(&place);
    if (cuCtxSetCurrent(primary) != 0) exit(2);
}

/* Captured in the strictest mode, which launches nothing; and replayed twice. */
static void launch_graph(struct job *job)
{
    struct place place;
    CUstream stream = NULL;
    CUgraph graph = NULL;
    CUgraphExec ready = NULL;
    open_place(&place, job, "in a graph", true);
    if (place.failure[0] == '\0' && kernels_preload(job->variant) != 0) fail(&place, "%s", kernels_last_error()->detail);
    DRIVER(&place, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRIVER(&place, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch(&place, job->alone, stream);
    DRIVER(&place, cuStreamEndCapture(stream, &graph));
    check(&place, UNTOUCHED, NULL);
    DRIVER(&place, cuGraphInstantiate(&ready, graph, 0));
    for (int replay = 0; replay < 2; replay++) {
        fill(&place);
        DRIVER(&place, cuGraphLaunch(ready, stream));
        DRIVER(&place, cuStreamSynchronize(stream));
        check(&place, SAME, NULL);
    }
    if (ready != NULL) cuGraphExecDestroy(ready);
    if (graph != NULL) cuGraphDestroy(graph);
    if (stream != NULL) cuStreamDestroy(stream);
    close_place(&place);
}

/* -- a fat binary: the driver has chosen in it, and the library knows what */

static void look_at_bundle(struct job *job)
{
    struct kernels_handles handles;
    /* Where the environment allows one target, that is loaded by itself. */
    if (kernels_variant_bundle(job->variant) == NULL || getenv("KERNELS_TARGET") != NULL) return;
    const int status = kernels_load(job->variant, &handles);
    if (status != 0) {
        snprintf(job->failure, sizeof job->failure, "bundle: %s", kernels_last_error()->detail);
    } else if (!handles.is_bundled) {
        snprintf(job->failure, sizeof job->failure, "bundle: the image was loaded by itself");
    } else if (strcmp(kernels_image_target(handles.image), job->target) != 0) {
        snprintf(job->failure, sizeof job->failure, "bundle: the driver took %s", kernels_image_target(handles.image));
    }
}

static void run(struct job *job)
{
    launch_alone(job);
    if (job->by_group && job->group != NULL) {
        if (job->failure[0] == '\0') launch_group(job);
        if (job->failure[0] == '\0') launch_unaligned(job);
    }
    if (job->all_ways) {
        if (job->failure[0] == '\0') break_promises(job);
        if (job->failure[0] == '\0') empty_the_grid(job);
        if (job->failure[0] == '\0') launch_in_threads(job);
        if (job->failure[0] == '\0') launch_in_context(job);
        if (job->failure[0] == '\0') launch_graph(job);
    }
    if (job->failure[0] == '\0') look_at_bundle(job);
    for (size_t i = 0; i < job->buffer_count; i++) free(job->buffers[i].content);
}

/* -- reading jobs; what does not fit the library ends the program */

static void refuse(const char *what, const char *name)
{
    fprintf(stderr, "the jobs do not fit the library: %s of %s\n", what, name);
    exit(2);
}

static const struct call *find_call(const char *name)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (strcmp(calls[i].name, name) == 0) return &calls[i];
    }
    return NULL;
}

static const struct kernels_argument *find_argument(const struct job *job, const char *name, size_t size)
{
    for (uint32_t i = 0; i < job->variant->argument_count; i++) {
        const struct kernels_argument *argument = &kernels_variant_arguments(job->variant)[i];
        if (strcmp(kernels_argument_name(argument), name) == 0 && argument->size == size) return argument;
    }
    refuse("an argument", name);
    return NULL;
}

static void set_scalar(struct job *job, const char *name, const char *hex)
{
    unsigned char data[16];
    const size_t size = strlen(hex) / 2;
    for (size_t i = 0; i < size && i < sizeof data; i++) {
        const char digits[3] = { hex[2 * i], hex[2 * i + 1], '\0' };
        data[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    memcpy((unsigned char *)job->args + find_argument(job, name, size)->offset, data, size);
}

static void add_buffer(struct job *job, enum buffer_kind kind, const char *name, size_t size, size_t item, const char *path)
{
    const struct kernels_argument *argument = find_argument(job, name, sizeof(CUdeviceptr));
    struct buffer *buffer = &job->buffers[job->buffer_count++];
    if (job->buffer_count == MAX_BUFFERS || item == 0 || item > MARGIN / 2) refuse("a buffer", name);
    *buffer = (struct buffer){ .kind = kind, .size = size, .item = item, .promise = argument->promise, .offset = argument->offset };
    snprintf(buffer->name, sizeof buffer->name, "%s", name);
    snprintf(buffer->path, sizeof buffer->path, "%s", path);
    if (kind != INPUT) return;
    FILE *file = fopen(path, "rb");
    buffer->content = get_memory(size);
    if (file == NULL || fread(buffer->content, 1, size, file) != size) refuse("a file", path);
    fclose(file);
}

static void begin(struct job *job, const char *variant, const char *target)
{
    memset(job, 0, sizeof *job);
    job->variant = kernels_variant_find(variant);
    job->alone = find_call(variant);
    if (job->variant == NULL || job->alone == NULL || job->variant->args_bytes > MAX_ARGS_BYTES) refuse("a launch", variant);
    job->group = find_call(kernels_variant_group(job->variant));
    snprintf(job->target, sizeof job->target, "%s", target);
}

/* Nothing of it is loaded, and a launch would say the same. */
static void say_absent(const char *name)
{
    const struct kernels_variant *variant = kernels_variant_find(name);
    if (variant == NULL) refuse("a variant", name);
    printf("absent %s %s\n", name, kernels_status_name(kernels_preload(variant)));
}

int main(int argc, char **argv)
{
    static struct job job;
    static const struct kernels_scratch_allocator scratch = { NULL, give_scratch, keep_scratch };
    char word[16], variant[NAME], name[NAME], text[PATH];
    size_t size, item;
    int number = 0, failed = 0;
    FILE *jobs = argc == 2 ? fopen(argv[1], "r") : NULL;

    if (jobs == NULL || !open_driver(&primary) || cuCtxCreate(&other, 0, 0) != 0 || cuCtxSetCurrent(primary) != 0) return 2;
    kernels_set_scratch_allocator(&scratch);
    while (fscanf(jobs, "%15s", word) == 1) {
        if (strcmp(word, "absent") == 0 && fscanf(jobs, "%127s", variant) == 1) {
            say_absent(variant);
        } else if (strcmp(word, "launch") == 0 && fscanf(jobs, "%127s %127s", variant, name) == 2) {
            begin(&job, variant, name);
            if (fscanf(jobs, "%u %u %u", &job.grid[0], &job.grid[1], &job.grid[2]) != 3) refuse("a grid", variant);
        } else if (job.variant == NULL) {
            refuse("a word outside of a launch", word);
        } else if (strcmp(word, "scalar") == 0 && fscanf(jobs, "%127s %1023s", name, text) == 2) {
            set_scalar(&job, name, text);
        } else if (strcmp(word, "input") == 0 && fscanf(jobs, "%127s %zu %zu %1023s", name, &size, &item, text) == 4) {
            add_buffer(&job, INPUT, name, size, item, text);
        } else if (strcmp(word, "output") == 0 && fscanf(jobs, "%127s %zu %zu %1023s", name, &size, &item, text) == 4) {
            add_buffer(&job, OUTPUT, name, size, item, text);
        } else if (strcmp(word, "zero") == 0 && fscanf(jobs, "%127s %zu %zu", name, &size, &item) == 3) {
            add_buffer(&job, WORKSPACE, name, size, item, "");
        } else if (strcmp(word, "group") == 0) {
            job.by_group = true;
        } else if (strcmp(word, "ways") == 0) {
            job.all_ways = true;
        } else if (strcmp(word, "go") == 0) {
            run(&job);
            if (job.failure[0] == '\0') printf("ok %d\n", number);
            else printf("failed %d %s\n", number, job.failure);
            fflush(stdout);
            failed |= job.failure[0] != '\0';
            number++;
            job.variant = NULL;
        } else {
            refuse("a word", word);
        }
    }
    fclose(jobs);
    const int left = kernels_unload();
    if (left != 0) fprintf(stderr, "%s\n", kernels_last_error()->detail);
    return cuCtxDestroy(other) != 0 || left != 0 ? 2 : failed;
}
