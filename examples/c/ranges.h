/* Names launches in the timelines of NVIDIA's profilers: each gets a range that is called as its image is.
 *
 * The headers of NVTX 3 come with a CUDA toolkit, or by pip install nvidia-nvtx. There is nothing to link but -ldl, and a
 * program that no profiler has started loses a branch a launch. For AMD's rocprof, take roctxRangePushA and roctxRangePop
 * of roctracer/roctx.h, and link -lroctx64.
 */
#ifndef RANGES_H
#define RANGES_H

#include <kernels/kernels.h>
#include <nvtx3/nvToolsExt.h>

static void push_range(void *user, const struct kernels_launch_event *event)
{
    (void)user;
    nvtxRangePushA(kernels_image_id(event->image));
}

static void pop_range(void *user, const struct kernels_launch_event *event, int status)
{
    (void)user;
    (void)event;
    (void)status;
    nvtxRangePop();
}

static const struct kernels_launch_hook ranges = { NULL, push_range, pop_range };

#endif
