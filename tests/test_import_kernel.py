"""`kiln import`: printed entries of kernels as people write them build as they are, and say what to check."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from project import Project

TOP = "import torch\nimport triton\nimport triton.language as tl\n"

SOURCES = {
    "add": """
@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    tl.store(output_ptr + offsets, tl.load(x_ptr + offsets, mask) + tl.load(y_ptr + offsets, mask), mask)


def add(x, y):
    output = torch.empty_like(x)
    n_elements = output.numel()
    grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)
    add_kernel[grid](x, y, output, n_elements, BLOCK_SIZE=512)
    return output
""",
    "norm": """
@triton.jit
def _norm_fwd(X, Y, W, Mean, Rstd, stride, N, eps, BLOCK: tl.constexpr, HAS_W: tl.constexpr):
    row = tl.program_id(0)
    X += row * stride
    Y += row * stride
    cols = tl.arange(0, BLOCK)
    x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(x, 0) / N
    rstd = 1 / tl.sqrt(tl.sum((x - mean) * (x - mean), 0) / N + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    y = (x - mean) * rstd
    if HAS_W:
        y = y * tl.load(W + cols, mask=cols < N)
    tl.store(Y + cols, y, mask=cols < N)


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight=None, eps: float = 1e-5):
        M, N = x.reshape(-1, x.shape[-1]).shape
        y = torch.empty_like(x)
        stats = [torch.empty((M,), dtype=torch.float32) for _ in range(2)]
        mean = torch.empty((M,), dtype=torch.float32, device=x.device)
        block = triton.next_power_of_2(N)
        _norm_fwd[(M,)](x, y, weight, mean, stats[1], x.stride(0), N, eps,
                        BLOCK=block, HAS_W=weight is not None, num_warps=8)
        return y
""",
    "matmul": """
from activations import leaky


def configs():
    sizes = [(64, 64, 32), (32, 64, 32)]
    return [triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": 4}, num_warps=4) for m, n, k in sizes]


@triton.autotune(configs=configs(), key=["M", "N", "K"])
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
                  ACTIVATION: tl.constexpr):
    pid = tl.program_id(0)
    wide = tl.cdiv(N, BLOCK_N) * GROUP
    m = pid // wide * GROUP + pid % GROUP
    n = pid % wide // GROUP
    rm = m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = n * BLOCK_N + tl.arange(0, BLOCK_N)
    rk = tl.arange(0, BLOCK_K)
    a_at = a + rm[:, None] * stride_am + rk[None, :] * stride_ak
    b_at = b + rk[:, None] * stride_bk + rn[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        left = tl.load(a_at, mask=(rk[None, :] < K - k * BLOCK_K) & (rm[:, None] < M), other=0.0)
        right = tl.load(b_at, mask=(rk[:, None] < K - k * BLOCK_K) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(left, right)
        a_at += BLOCK_K * stride_ak
        b_at += BLOCK_K * stride_bk
    if ACTIVATION == "leaky":
        acc = leaky(acc)
    out = c + rm[:, None] * stride_cm + rn[None, :] * stride_cn
    tl.store(out, acc.to(c.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


def matmul(a, b, activation=""):
    M, K = a.shape
    K, N = b.shape
    c = torch.empty((M, N), device=a.device, dtype=torch.float16)
    grid = lambda META: (triton.cdiv(M, META["BLOCK_M"]) * triton.cdiv(N, META["BLOCK_N"]),)
    matmul_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), ACTIVATION=activation)
    return c
""",
    "gather": """
@triton.jit
def gather_rows(table, ids, out, bias, dim: int, pad_value, scale: float,
                B_ROW: tl.constexpr, B_COL: tl.constexpr, OUT: tl.constexpr):
    rows = tl.program_id(0) * B_ROW + tl.arange(0, B_ROW)
    cols = tl.program_id(1) * B_COL + tl.arange(0, B_COL)
    which = tl.load(ids + rows)
    values = tl.load(table + which[:, None] * dim + cols[None, :], mask=cols[None, :] < dim, other=0.0) * scale
    values = tl.where((which != pad_value)[:, None], values, 0.0)
    if bias is not None:
        values += tl.load(bias + cols, mask=cols < dim)[None, :]
    tl.store(out + rows[:, None] * dim + cols[None, :], values.to(OUT), mask=cols[None, :] < dim)


def gather(table: torch.Tensor, ids: torch.Tensor, pad: int, blocks=(16, 64)):
    rows, (count, dim) = ids.numel(), table.shape
    out = torch.empty(rows, dim, dtype=table.dtype)
    BR, BC = 16, 64
    gather_rows[triton.cdiv(rows, BR), (dim + BC - 1) // BC](
        table, ids.to(torch.int32), out, None, dim, pad, 0.5, B_ROW=BR, B_COL=BC, OUT=tl.float32)
    return out
""",
    "hooked": """
def clear(args):
    args["out"].zero_()


@triton.autotune(
    configs=[triton.Config({"BLOCK": 128}, num_warps=w, pre_hook=clear) for w in (2, 4)],
    key=["n"],
)
@triton.heuristics({"EVEN": lambda args: args["mask"] is None})
@triton.jit
def histogram(values, mask, out, n, n_bins, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(values + i, mask=i < n, other=0).to(tl.int32)
    tl.atomic_add(out + value % n_bins, tl.full((BLOCK,), 1, tl.int32), mask=i < n)


def count(values, n_bins):
    out = torch.zeros(n_bins, dtype=torch.int32)
    histogram[(triton.cdiv(values.numel(), 128),)](values.int(), None, out, values.numel(), n_bins)
""",
    "blocked": """
@triton.jit
def copy_blocks(src, dst, M, N, stride_m: tl.int64, ROUNDS: tl.constexpr, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    m = tl.program_id(0) * TILE_M
    s = tl.make_tensor_descriptor(src, shape=[M, N], strides=[stride_m, 1], block_shape=[TILE_M, TILE_N])
    d = tl.make_tensor_descriptor(dst, [M, N], [stride_m, 1], [TILE_M, TILE_N])
    for i in tl.static_range(ROUNDS):
        d.store([m, i * TILE_N], s.load([m, i * TILE_N]))
""",
    "inner": """
from helpers.rows import load_row


class Ops:
    @staticmethod
    @triton.jit
    def scale(x_base, y_base, amount, n, WIDTH: tl.constexpr, ACT: tl.constexpr):
        cols = tl.arange(0, WIDTH)
        x = load_row(x_base, tl.program_id(0) * n, cols, n)
        tl.store(y_base + tl.program_id(0) * n + cols, ACT(x * amount), mask=cols < n)


@triton.jit
def twice(x):
    return x * 2


def scale(x, amount=2.0):
    n_rows, n = x.shape
    y = torch.empty_like(x)
    Ops.scale[(n_rows,)](x, y, amount, n, WIDTH=triton.next_power_of_2(n), ACT=twice)
""",
    "rope": """
@triton.jit
def rope(q_ptr, cos_ptr, sin_ptr, cu_seqlens, interleaved, seq_len, head_dim, BLOCK_D: tl.constexpr,
         INVERSE: tl.constexpr = False):
    token = tl.program_id(0)
    first = tl.load(cu_seqlens + tl.program_id(1))
    half = tl.arange(0, BLOCK_D)
    base = q_ptr + (first + token) * head_dim
    mask = half < head_dim // 2
    a, b = tl.load(base + half, mask=mask), tl.load(base + head_dim // 2 + half, mask=mask)
    c, s = tl.load(cos_ptr + token * head_dim + half, mask=mask), tl.load(sin_ptr + token * head_dim + half, mask=mask)
    if INVERSE:
        s = -s
    if interleaved:
        a, b = b, a
    tl.store(base + half, a * c - b * s, mask=mask)
    tl.store(base + head_dim // 2 + half, b * c + a * s, mask=mask)


def apply(q, cos, sin, cu_seqlens, max_len: int, interleaved=False, block: int = 64):
    batch = cu_seqlens.shape[0] - 1
    rope[(max_len, batch)](q, cos, sin, cu_seqlens, interleaved, q.shape[0], q.shape[-1], BLOCK_D=block)
""",
}
HELPERS = {
    "activations.py": TOP + "\n\n@triton.jit\ndef leaky(x):\n    return tl.where(x >= 0, x, 0.01 * x)\n",
    "helpers/__init__.py": "",
    "helpers/rows.py": TOP
    + "\n\n@triton.jit\ndef load_row(base, start, cols, n):\n    return tl.load(base + start + cols, mask=cols < n)\n",
}
FUNCTIONS = {
    "add": "add_kernel",
    "norm": "_norm_fwd",
    "matmul": "matmul_kernel",
    "gather": "gather_rows",
    "hooked": "histogram",
    "blocked": "copy_blocks",
    "inner": "scale",
    "rope": "rope",
}

ENTRIES = {
    "add": """
        add:
          source: kernels/add.py
          function: add_kernel
          dtypes: [fp32]
          blocks: [512]
          name: add_{dtype}_{block}
          signature: "*{dtype}, *{dtype}, *{dtype}, i32"
          grid: ["cdiv(n_elements, BLOCK_SIZE)"]
    """,
    "norm": """
        norm_fwd:
          source: kernels/norm.py
          function: _norm_fwd
          dtypes: [fp16]
          blocks: [{BLOCK: 1024}]
          constants:
            HAS_W: false
          name: norm_fwd_{dtype}_{block}
          signature: "*{dtype}, *{dtype}, *{dtype}, *fp32, *fp32, i32, i32, fp32"
          options: {num_warps: 8}
          inputs: {M: i32}
          grid: [M]
    """,
    "matmul": """
        matmul:
          source: kernels/matmul.py
          function: matmul_kernel
          dtypes: [fp16]
          blocks: autotune
          constants:
            ACTIVATION: ""
          name: matmul_{dtype}_{block}
          signature: "*{dtype}, *{dtype}, *fp16, i32, i32, i32, i32, i32, i32, i32, i32, i32"
          grid: ["cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)"]
    """,
    "gather": """
        gather_rows:
          source: kernels/gather.py
          function: gather_rows
          dtypes: [fp32]
          blocks: [{B_ROW: 16, B_COL: 64}]
          constants:
            OUT: {dtype: "{dtype}"}
            bias: null
          name: gather_rows_{dtype}_{block}
          signature: "*{dtype}, *i32, *{dtype}, i32, i32, fp32"
          inputs: {rows: i32}
          grid: ["cdiv(rows, B_ROW)", "(dim + B_COL - 1) // B_COL"]
    """,
    "hooked": """
        histogram:
          source: kernels/hooked.py
          function: histogram
          dtypes: [fp32]
          blocks:
            - {tag: "128_w2s3", BLOCK: 128, num_warps: 2, num_stages: 3}
            - {tag: "128_w4s3", BLOCK: 128, num_warps: 4, num_stages: 3}
          constants:
            mask: null
          name: histogram_{dtype}_{block}
          signature: "*i32, *i32, i32, i32"
          grid: ["cdiv(n, 128)"]
    """,
    "blocked": """
        copy_blocks:
          source: kernels/blocked.py
          function: copy_blocks
          dtypes: [fp32]
          blocks: [{TILE_M: 64, TILE_N: 64}]
          constants:
            ROUNDS: 4
          name: copy_blocks_{dtype}_{block}
          signature: "*{dtype}, *{dtype}, i32, i32, i64"
          inputs: {grid_x: i32}
          grid: [grid_x]
    """,
    "inner": """
        scale:
          source: kernels/inner.py
          function: Ops.scale
          dtypes: [fp32]
          constants:
            WIDTH: 1024
            ACT: {function: twice}
          name: scale_{dtype}
          signature: "*{dtype}, *{dtype}, fp32, i32"
          inputs: {n_rows: i32}
          grid: [n_rows]
    """,
    "rope": """
        rope:
          source: kernels/rope.py
          function: rope
          dtypes: [fp32]
          blocks: [{BLOCK_D: 64}]
          name: rope_{dtype}_{block}
          signature: "*{dtype}, *{dtype}, *{dtype}, *i32, i1, i32, i32"
          inputs: {max_len: i32, batch: i32}
          grid: [max_len, batch]
    """,
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("foreign")
    made = Project.create(folder, **{name: TOP + text for name, text in SOURCES.items()})
    for name, text in HELPERS.items():
        made.write(f"kernels/{name}", text)
    return made


@pytest.fixture(scope="module")
def entries(project: Project) -> dict[str, str]:
    """What the command prints for each kernel, in one process."""
    script = "import sys\nfrom kiln.cli import main\nfor word in sys.argv[1:]:\n    file, name = word.split(':')\n"
    script += "    print('=', file, flush=True)\n    assert main(['import', f'kernels/{file}.py', name]) == 0\n"
    words = [f"{file}:{function}" for file, function in FUNCTIONS.items()]
    output = project.run_python("-W", "error", "-c", script, *words).expect().output
    parts = re.split(r"^= (\w+)\n", output, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def bare(text: str) -> list[str]:
    """The lines of an entry without comments and what the command says beside it."""
    lines = [re.sub(r"\s+# .*|^\s*#.*", "", line).rstrip() for line in text.splitlines()]
    kept = [line for line in lines if line.startswith("  ")]
    indent = min((len(line) - len(line.lstrip()) for line in kept), default=0)
    return [line[indent:] for line in kept]


@pytest.mark.parametrize("name", list(ENTRIES))
def test_the_entry(entries: dict[str, str], name: str) -> None:
    assert bare(entries[name]) == bare(ENTRIES[name])


def test_every_entry_builds_as_it_is(project: Project, entries: dict[str, str]) -> None:
    printed = "".join(
        "".join(line + "\n" for line in text.splitlines() if line.startswith("  ")) for text in entries.values()
    )
    project.write("kernels.yaml", f"version: 1\nlibrary: foreign\ntargets: [sm_90a]\nkernels:\n{printed}")
    result = project.doit("compile").expect("0 failed")
    assert len(result.ran("compile")) == 10


def test_what_is_to_be_checked_is_said_beside_it(entries: dict[str, str]) -> None:
    def has(name: str, *texts: str) -> None:
        for text in texts:
            assert text in entries[name], entries[name]

    has("norm", "HAS_W: false  # guessed: make it an axis to build both", "Rstd: *fp32  guessed: a statistic")
    has("norm", "# _norm_fwd, launched at line", "inputs: {M: i32}  # check: the launch computes the grid with these")
    has("matmul", "blocks: autotune  # 2 configurations")
    has("hooked", "check: the source tunes with pre_hook: it runs Python before each launch")
    has("hooked", "EVEN is derived from the source's @triton.heuristics", "mask: null  # as it is launched")
    has("blocked", "# copy_blocks, no launch in the file", "ROUNDS: 4  # guessed: a loop is written out as often")
    has("rope", "places say what to check; 0 to fill in")


def test_a_whole_file_and_a_key_and_a_file_elsewhere(project: Project, tmp_path: Path) -> None:
    project.write("apart/kernels.yaml", "")
    inside = Project(folder=project.folder / "apart")
    output = inside.run_python(
        "-m", "kiln", "import", "../kernels/inner.py", "scale", "--key", "grow", "--whole", "--target", "gfx942"
    )
    text = output.expect(r"^targets: \[gfx942\]$", r"^  kernels: \.\./kernels$", r"^  grow:").output
    text = "".join(line + "\n" for line in text.splitlines() if "what to check" not in line)
    inside.write("kernels.yaml", text)
    inside.write("dodo.py", project.read("dodo.py"))
    inside.write("doit.cfg", project.read("doit.cfg"))
    inside.doit("list", "--all").expect(r"compile:grow_fp32@gfx942")
    inside.run_python("-m", "kiln", "import", "../kernels/inner.py", "scale").expect(
        r"declare the root at the top of kernels\.yaml: roots: \{kernels: \.\./kernels\}"
    )


def test_what_nothing_tells_is_to_be_filled_in_and_refused_until_then(project: Project) -> None:
    project.write(
        "kernels/blank.py",
        TOP + "\n\n@triton.jit\ndef k(x_ptr, MODE: tl.constexpr):\n    tl.store(x_ptr, MODE.value(1.0))\n",
    )
    printed = project.run_python("-m", "kiln", "import", "kernels/blank.py", "k", "--whole")
    printed.expect(r"^      MODE: FILL_IN  # nothing tells what it is", r"; 1 to fill in$")
    project.write(
        "kernels.yaml", "".join(f"{line}\n" for line in printed.output.splitlines() if " to fill in" not in line)
    )
    project.doit().expect(
        r"^ERROR: kernels\.yaml:\d+:13: `kernels\.k\.constants\.MODE` is still to be filled in", "kiln import", code=3
    )


def test_a_kernel_that_a_function_makes_needs_that_functions_values(project: Project) -> None:
    text = """

def make(width, half=False):
    W = tl.constexpr(width)

    @triton.jit
    def k(x_ptr, num_warps: tl.constexpr):
        tl.store(x_ptr, W * num_warps)

    return k


make(3)[(1,)](torch.zeros(1), num_warps=2)
"""
    project.write("kernels/made.py", TOP + text)
    printed = project.run_python("-m", "kiln", "import", "kernels/made.py", "k", "--whole").output
    assert "      width: FILL_IN  # of the function that makes the kernel" in printed
    assert "function: make.k" in printed
    manifest = "".join(f"{line}\n" for line in printed.splitlines() if " to fill in" not in line)
    project.write("kernels.yaml", manifest.replace("width: FILL_IN", "width: 3"))
    project.doit("compile:k_fp32@sm_90a").expect("0 failed")


def test_what_keeps_a_kernel_from_being_built_is_said_at_once(project: Project) -> None:
    text = "\nimport os\n\n\n@triton.jit\ndef k(x_ptr):\n    tl.store(x_ptr, FAST)\n\n\n"
    project.write("kernels/asks.py", TOP + text + 'FAST: tl.constexpr = tl.constexpr(int(os.environ["FAST"]))\n')
    project.run_python("-m", "kiln", "import", "kernels/asks.py", "k").expect(
        r"^  k:", r"^a build refuses the kernel as its source stands: kernels/asks\.py:\d+:\d+: .*FAST", "environment: "
    )


def test_names_launches_and_configurations_that_need_a_word(project: Project) -> None:
    """Names that YAML takes for something else, a second launch, a descriptor, and configurations without tags."""
    text = """

def relu(x):
    return x


@triton.autotune(configs=[triton.Config({"SCALE": s, "BLOCK": 64}) for s in (0.5, 2.0)], key=["n"])
@triton.jit
def tuned(x_ptr, n, SCALE: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(x_ptr + cols, tl.load(x_ptr + cols, mask=cols < n) * SCALE, mask=cols < n)


@triton.jit
def twice(x_ptr, y, n, no: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(x_ptr + cols, tl.load(x_ptr + cols, mask=cols < n) + no, mask=cols < n)


@triton.jit
def \u044f\u0434\u0440\u043e(x_ptr):
    tl.store(x_ptr, 1.0)


def run(x, y):
    wrapped = TensorDescriptor.from_tensor(y, [64])
    twice[(1,)](x, wrapped, 3, 7, BLOCK=64)
    twice[(2,)](x, wrapped, 4, 7, BLOCK=128, num_warps=8)
"""
    project.write("kernels/words.py", TOP + text)

    def printed(function: str, *more: str) -> str:
        return project.run_python("-m", "kiln", "import", "kernels/words.py", function, "--whole", *more).output

    tuned = printed("tuned")
    assert "written out, since `blocks`: SCALE of a configuration is 0.5, which cannot stand in names" in tuned
    project.write("kernels.yaml", "".join(f"{line}\n" for line in tuned.splitlines() if " to fill in" not in line))
    project.doit("list", "--all").expect("compile:tuned_fp32_c1@sm_90a", "compile:tuned_fp32_c2@gfx942")
    twice = printed("twice", "--key", "no")
    assert '  "no":  # twice, launched at line' in twice and '      "no": 7  # as it is launched' in twice
    assert re.search(r"# check: line \d+ launches it with BLOCK = 128, num_warps = 8$", twice, re.MULTILINE)
    assert "# y: tensordesc<{dtype}>  check: a tensor descriptor made by the host" in twice
    said = printed("\u044f\u0434\u0440\u043e")
    assert "# check: a build refuses this: the function '\\u044f" in said and "that are not ASCII" in said


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("kernels/none.py", "f"), ("ERROR: kernels/none.py: there is no such file", "remedy: check the path")),
        (("no_such.module", "f"), ("no module 'no_such.module' is installed",)),
        (("kernels/add.py", "add_kernl"), ("has no function 'add_kernl'", "did you mean 'add_kernel'?")),
        (("kernels/add.py", "add_kernel", "--target", "sm_900"), ("ERROR: --target: unknown target 'sm_900'",)),
        (("kernels/add.py", "add_kernel", "--key", "a b"), ("ERROR: --key: 'a b' cannot be a kernel's name",)),
        (("triton.language.core", "f"), ("Triton's own functions come with the compiler, and are no kernels",)),
        (("helpers.txt", "f"), ("no module 'helpers.txt' is installed",)),
    ],
)
def test_what_cannot_be_imported(project: Project, arguments: tuple[str, ...], expected: tuple[str, ...]) -> None:
    result = project.run_python("-m", "kiln", "import", *arguments)
    assert result.code == 3
    for text in expected:
        assert text in result.output


def test_options_that_the_launch_or_a_heuristic_computes(project: Project) -> None:
    """A build takes options from kernels.yaml alone, so that what Triton would compute must be said there."""
    text = """
@triton.heuristics({"num_warps": lambda args: 8 if args["BLOCK"] >= 1024 else 2})
@triton.jit
def double(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)


def run(x, n):
    double[(triton.cdiv(n, 1024),)](x, n, BLOCK=1024, num_stages=2 if n > 4096 else 3)
"""
    project.write("kernels/double.py", TOP + text)
    entry = project.run_python("-m", "kiln", "import", "kernels/double.py", "double").output
    assert "# check: @triton.heuristics chooses num_warps: say it under `options`" in entry
    assert "# check: the launch computes num_stages, as 2 if n > 4096 else 3: say it under `options`" in entry
