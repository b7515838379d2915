"""group_norm in the shape that ONNX Runtime's Triton kernels have: all combinations of a few axes, of which one takes
many times as long as any other. It does not keep the others waiting, and once its time is known it begins at once.

12 variants, or 96 and a compile of minutes on demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from kiln.engine.trace import TRACE, Span, Trace, read_trace
from on_demand import sized
from project import REPOSITORY, Project

UNROLLED = '''

@triton.jit
def group_norm_unrolled_kernel(
    output_ptr,
    input_ptr,
    gamma_ptr,
    beta_ptr,
    n_pixels,
    n_channels,
    eps,
    CHANNELS: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_HW: tl.constexpr,
    SILU: tl.constexpr,
    TILES: tl.constexpr,
):
    """The same for images of TILES tiles at most, and without a loop that is left to run."""
    image, group = tl.program_id(0), tl.program_id(1)
    inside = tl.arange(0, BLOCK_C)
    channels = group * CHANNELS + inside
    channel_mask = inside < CHANNELS
    pixels = tl.arange(0, BLOCK_HW)
    base = image * (n_pixels * n_channels.to(tl.int64))
    sums = tl.zeros((BLOCK_HW, BLOCK_C), dtype=tl.float32)
    squares = tl.zeros((BLOCK_HW, BLOCK_C), dtype=tl.float32)
    for number in tl.static_range(TILES):
        rows = number * BLOCK_HW + pixels
        mask = (rows < n_pixels)[:, None] & channel_mask[None, :]
        offsets = base + rows[:, None] * n_channels + channels[None, :]
        values = tl.load(input_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        sums += values
        squares += values * values
    n_values = n_pixels * CHANNELS
    mean = tl.sum(sums) / n_values
    rstd = tl.rsqrt(tl.sum(squares) / n_values - mean * mean + eps)
    gamma = tl.load(gamma_ptr + channels, mask=channel_mask, other=0.0).to(tl.float32)
    beta = tl.load(beta_ptr + channels, mask=channel_mask, other=0.0).to(tl.float32)
    for number in tl.static_range(TILES):
        rows = number * BLOCK_HW + pixels
        mask = (rows < n_pixels)[:, None] & channel_mask[None, :]
        offsets = base + rows[:, None] * n_channels + channels[None, :]
        values = tl.load(input_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        result = (values - mean) * rstd * gamma[None, :] + beta[None, :]
        if SILU:
            result *= tl.sigmoid(result)
        tl.store(output_ptr + offsets, result.to(output_ptr.dtype.element_ty), mask=mask)
'''

KERNEL = """\
  {name}:
    source: kernels/group_norm.py
    function: {function}
    dtypes: {dtypes}
    axes: {{SILU: {silu}, CHANNELS: {channels}, WARPS: {warps}}}
    blocks: {blocks}
    targets: {targets}
    constants: {{BLOCK_C: {{expression: "8 if CHANNELS <= 8 else 16 if CHANNELS <= 16 else 32"}}{constants}}}
    name: {name}_{{dtype}}_{{SILU}}_{{CHANNELS}}_{{WARPS}}_{{block}}
    signature: "*{{dtype}}:16, *{{dtype}}:16, *{{dtype}}:16, *{{dtype}}:16, i32, i32, fp32"
    options: {{num_warps: WARPS}}
    inputs: {{n_batch: i32}}
    grid: [n_batch, n_channels // CHANNELS]
{more}"""

TARGETS = sized(["sm_80"], ["sm_80", "sm_86", "sm_90a", "gfx90a", "gfx942"])
CHANNELS = sized([16], [8, 16, 32])
WARPS = sized([4], [4, 8])
ROWS = sized([32, 64, 128], [16, 32, 64, 128])
TILES = sized(16, 56)
VARIANTS = sized(12, 96)
LONG = "compile:unrolled_fp16_silu_16_4_rows@sm_80"


def manifest() -> str:
    """All combinations for a kernel with loops but for one, which is unrolled and stands last."""
    silu, flag = "{silu: true, plain: false}", "{silu: true}"
    last = ROWS[-1]
    blocks = [f"{{tag: r{rows}, BLOCK_HW: {rows}}}" for rows in ROWS]
    many = KERNEL.format(
        name="norm",
        function="group_norm_kernel",
        dtypes=["fp32", "fp16"],
        silu=silu,
        channels=CHANNELS,
        warps=WARPS,
        blocks=f"[{', '.join(blocks)}]",
        targets=TARGETS,
        constants="",
        more=f"    exclude: [{{dtype: fp16, SILU: [true], CHANNELS: [16], WARPS: [4], block: [r{last}]}}]\n",
    )
    one = KERNEL.format(
        name="unrolled",
        function="group_norm_unrolled_kernel",
        dtypes=["fp16"],
        silu=flag,
        channels=[16],
        warps=[4],
        blocks=f"[{{tag: rows, BLOCK_HW: {last}}}]",
        targets=["sm_80"],
        constants=f", TILES: {TILES}",
        more="",
    )
    return f"version: 1\nlibrary: scratch\ntargets: {TARGETS}\nkernels:\n{many}{one}"


def traced(project: Project) -> Trace:
    """Build all images for two at once, with nothing of the cache, and give the trace."""
    project.doit("-n", "2", "--no-cache", "compile").expect(" 0 failed")
    trace = read_trace(project.folder / "build/.kiln" / TRACE)
    assert trace is not None and trace.slots == 2
    return trace


def busy(spans: Sequence[Span], until: float) -> float:
    """The part of the time of both places in which compiles ran, from the first one's beginning."""
    began = min(span.began for span in spans)
    return sum(max(0.0, min(span.ended, until) - span.began) for span in spans) / (2 * (until - began))


def test_one_long_compile_of_many_keeps_no_other_waiting(tmp_path: Path) -> None:
    source = (REPOSITORY / "kernels/group_norm.py").read_text("utf-8")
    project = Project.create(tmp_path / "scratch", manifest=manifest(), group_norm=source + UNROLLED)
    for is_known in (False, True):
        trace = traced(project)
        spans = [span for span in trace.spans if span.kind == "compile"]
        assert len(spans) == (VARIANTS - 1) * len(TARGETS) + 1
        (long,) = [span for span in spans if span.name == LONG]
        others = [span for span in spans if span is not long]
        assert long.seconds > 4 * median(span.seconds for span in others)
        if is_known:
            # The first that are ready begin before the graph is walked to the end.
            assert sum(span.asked < long.asked for span in others) <= trace.slots
        else:
            assert max(spans, key=lambda span: span.asked) is long, "declared last, it came last"
        # While it ran, its place in the pool was the only one that it took.
        assert {span.slot for span in others if span.began < long.ended and span.ended > long.began} <= {1 - long.slot}
        # And no place stood empty while something waited: not longer than it takes to hand out what is next.
        assert busy(spans, max(span.asked for span in spans)) > 0.75
        if is_known:
            whole = busy(spans, max(span.ended for span in spans))
            print(f"long {long.seconds:.1f} s, others {sum(span.seconds for span in others):.1f} s, busy {whole:.3f}")
            assert whole > sized(0.6, 0.9)
        for path in (project.folder / "build/images").rglob("*.*"):
            path.unlink()
