"""Configurations of `@triton.autotune` and function tables: read off sources, for targets, without running anything."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import pytest
from closure_scratch import HEADER, Scratch

from kiln.closure.resolve import Project
from kiln.closure.slice import cut
from kiln.closure.tuning.autotune import configurations, read_tuning
from kiln.closure.tuning.function_table import function_table
from kiln.closure.world import World
from kiln.errors import ClosureError
from kiln.manifest.constants import DTypeConstant, FunctionConstant
from kiln.manifest.from_source import Configuration
from kiln.manifest.model import TableRow

WORLDS = {
    "sm_90a": World(backend="cuda", arch=90, warp_size=32, triton_version="3.9.0", environment={"WIDE": "1"}),
    "gfx942": World(backend="hip", arch="gfx942", warp_size=64, triton_version="3.9.0", environment={"WIDE": "1"}),
}
KERNEL = """
@triton.jit
def kernel(x_ptr, n, M: tl.constexpr, N: tl.constexpr):
    pass
"""


def tuned(scratch: Scratch, decorator: str, before: str = "", function: str = "kernel") -> tuple[Configuration, ...]:
    scratch.write(f"{HEADER}import torch\n{before}\n{decorator}{KERNEL}")
    project = Project(root=scratch.root)
    return configurations(project, project.open(scratch.root / "k.py"), function, WORLDS)


def refusal(scratch: Scratch, decorator: str, before: str = "") -> str:
    with pytest.raises(ClosureError) as caught:
        tuned(scratch, decorator, before)
    print(caught.value)
    return str(caught.value)


def said(found: tuple[Configuration, ...]) -> list[tuple[Mapping[str, Any], int, int]]:
    return [(dict(c.constants), c.options["num_warps"], c.options["num_stages"]) for c in found]


PLAIN = "[triton.Config({'M': 64, 'N': 32}, num_warps=8), triton.Config({'M': 32, 'N': 32}, 2, num_stages=5)]"
BOTH = [({"M": 64, "N": 32}, 8, 3), ({"M": 32, "N": 32}, 2, 5)]


@pytest.mark.parametrize(
    ("decorator", "before"),
    [
        (f"@triton.autotune(configs={PLAIN}, key=['n'])", ""),
        (f"@triton.autotune({PLAIN}, ['n'], warmup=3, rep=5)", ""),
        ("@triton.autotune(configs=CONFIGS, key=[])", f"CONFIGS = {PLAIN}"),
        ("@triton.autotune(configs=CONFIGS[:1] + CONFIGS[1:], key=[])", f"CONFIGS = {PLAIN}"),
        ("@triton.autotune(configs=get(wide=False), key=[])", f"def get(wide):\n    return [] if wide else {PLAIN}"),
        (
            "@triton.autotune(configs=list(filter(keep, ALL)), key=[])",
            f"ALL = {PLAIN}\ndef keep(c): return c.num_warps",
        ),
        (
            "@triton.autotune(configs=[c for c in ALL if c.kwargs['M'] <= 64], key=[])",
            f"ALL = {PLAIN[:-1]}, triton.Config({{'M': 128, 'N': 32}})]",
        ),
        (
            "@triton.autotune(configs=ALL, key=[])",
            "ALL = []\nfor m, w, s in ((64, 8, 3), (32, 2, 5)):\n"
            "    ALL.append(triton.Config({'M': m, 'N': 32}, num_warps=w, num_stages=s))",
        ),
        (f"@autotune(configs={PLAIN}, key=[])", "from triton import autotune"),
        (f"@tune(configs={PLAIN}, key=[], **EXTRA)", "tune = triton.autotune\nEXTRA = dict(use_cuda_graph=True)"),
        (
            f"@triton.autotune(configs={PLAIN}, key=[], **EXTRA)",
            "import os\nEXTRA = {'cache_results': os.environ.get('HOME')} if os.environ.get('CACHE') else {}",
        ),
        (f"@triton.autotune(configs={PLAIN} + {PLAIN}, key=[], pre_hook=None)", ""),
    ],
)
def test_lists_in_the_forms_that_people_write(scratch: Scratch, decorator: str, before: str) -> None:
    """By name, call, loop, comprehension, filter, sum of lists, alias; each configuration once."""
    found = tuned(scratch, decorator, before)
    assert said(found) == BOTH
    assert {configuration.targets for configuration in found} == {None}
    assert {configuration.position.file for configuration in found} == {"k.py"}


def test_a_configuration_says_where_it_stands(scratch: Scratch) -> None:
    found = tuned(scratch, "@triton.autotune(configs=[\n    triton.Config({'M': 1, 'N': 2}),\n], key=[])")
    assert (found[0].position.line, found[0].position.column) == (6, 5)


def test_a_list_that_asks_the_machine_is_read_for_each_target(scratch: Scratch) -> None:
    found = tuned(
        scratch,
        "@triton.autotune(configs=hip() if is_hip() else cuda(), key=[])",
        """
def is_hip(): return triton.runtime.driver.active.get_current_target().backend == "hip"
def cuda(): return [triton.Config({'M': m, 'N': 32}) for m in (64, 128)]
def hip(): return [triton.Config({'M': m, 'N': 32, 'waves_per_eu': 2}) for m in (64, 32)] + cuda()[1:]
""",
    )
    assert [(c.constants["M"], c.options.get("waves_per_eu"), c.targets) for c in found] == [
        (64, None, ("sm_90a",)),
        (128, None, None),
        (64, 2, ("gfx942",)),
        (32, 2, ("gfx942",)),
    ]


def test_a_list_in_another_file_and_under_a_declared_variable(scratch: Scratch) -> None:
    scratch.write("import os, triton\nWIDE = os.getenv('WIDE') == '1'\n", "flags.py")
    found = tuned(
        scratch,
        "@triton.autotune(configs=CONFIGS, key=[])",
        "from flags import WIDE\nCONFIGS = [triton.Config({'M': 256 if WIDE else 16, 'N': 1})]",
    )
    assert found[0].constants["M"] == 256


@pytest.mark.parametrize(
    ("imports", "text", "name"),
    [
        ("import ops", "relu", "relu"),
        ("from ops import relu as other", "other", "other"),
        ("import ops", "ops.relu", "ops.relu"),
        ("import ops", "relu_too", "relu"),
    ],
)
def test_a_function_has_the_name_that_the_kernels_file_has_for_it(
    scratch: Scratch, imports: str, text: str, name: str
) -> None:
    """Two files have a function `relu`; the one that is listed is the one that is compiled."""
    scratch.write(f"{HEADER}@triton.jit\ndef relu(x): return x + 2\n", "ops.py")
    before = f"{imports}\n@triton.jit\ndef relu(x): return x\nrelu_too = relu\n"
    [found] = tuned(scratch, f"@triton.autotune(configs=[triton.Config({{'M': {text}, 'N': 1}})], key=[])", before)
    assert found.constants["M"] == FunctionConstant(name=name)
    cut = scratch.cut(functions=(name,))
    assert ("ops.py:relu" in cut.components) == (name != "relu")


def test_a_function_that_the_kernels_file_has_no_name_for_is_refused(scratch: Scratch) -> None:
    scratch.write(f"{HEADER}@triton.jit\ndef relu(x): return x + 2\n", "ops.py")
    scratch.write("from ops import relu\nimport triton\nCONFIGS = [triton.Config({'M': relu, 'N': 1})]\n", "listed.py")
    before = "from listed import CONFIGS\n@triton.jit\ndef relu(x): return x\n"
    message = refusal(scratch, "@triton.autotune(configs=CONFIGS, key=[])", before)
    assert "listed.py:3:12: M of a configuration of kernel is relu of ops.py, and k.py has no name for it" in message
    assert "remedy: import it in k.py" in message


@pytest.mark.parametrize(
    ("config", "what", "expected"),
    [
        ("{'M': 1}, num_warps=3", "num_warps", "a power of two from 1 to 64"),
        ("{'M': 1}, num_stages=-1", "num_stages", "an integer from 0 to 64"),
        ("{'M': 1, 'kpack': 3}", "kpack", "an integer from 1 to 2"),
    ],
)
def test_an_option_that_no_compiler_takes_is_told_where_it_stands(
    scratch: Scratch, config: str, what: str, expected: str
) -> None:
    message = refusal(scratch, f"@triton.autotune([triton.Config({config})], key=[])")
    assert message.startswith(f"k.py:5:19: {what} of a configuration of kernel is nothing that {what} can be")
    assert f"expected: {expected}" in message


def test_values_of_every_kind_and_options_among_the_constants(scratch: Scratch) -> None:
    config = (
        "triton.Config({'M': tl.float16, 'N': relu, 'kpack': 2, 'n': (1, None)}, num_ctas=2, maxnreg=96, num_warps=4)"
    )
    before = "@triton.jit\ndef relu(x): return x"
    [found] = tuned(scratch, f"@triton.autotune(configs=[{config}], key=[])", before)
    assert found.constants == {"M": DTypeConstant(name="fp16"), "N": FunctionConstant(name="relu"), "n": (1, None)}
    assert found.options == {"num_warps": 4, "num_stages": 3, "kpack": 2, "num_ctas": 2, "maxnreg": 96}


ONE = "@triton.autotune([triton.Config({'M': 1, 'N': 1})], [])"
TWO = "@triton.autotune([triton.Config({'M': 2, 'N': 2})], [])"
WANTED = KERNEL.replace("n,", "wanted,")


@pytest.mark.parametrize(
    ("text", "function"),
    [
        (f"{ONE}{KERNEL}\n{TWO}{WANTED}", "kernel"),
        (f"{ONE}{KERNEL}\nold = kernel\n{TWO}{WANTED}\nk = kernel", "k"),
        (f"{TWO}{WANTED}\nk = kernel\n{ONE}{KERNEL}", "k"),
        (f"{ONE}{KERNEL}\nold = kernel{WANTED}\nkernel = {TWO[1:]}(kernel)", "kernel"),
        ("class Ops:" + textwrap.indent(f"\n{ONE}{KERNEL}\n{TWO}{WANTED}", "    "), "Ops.kernel"),
        ("class Ops:" + textwrap.indent(f"{WANTED}\nkernel = {TWO[1:]}(kernel)", "    "), "Ops.kernel"),
        ("def make():" + textwrap.indent(f"\n{ONE}{KERNEL}\n{TWO}{WANTED}\nreturn kernel", "    "), "make.kernel"),
        (
            "def make():" + textwrap.indent(f"\n{TWO}{WANTED}\nreturn kernel", "    ") + "\nkernel = make()",
            "kernel",
        ),
    ],
)
def test_the_tuning_is_that_of_the_function_that_is_compiled(scratch: Scratch, text: str, function: str) -> None:
    scratch.write(f"{HEADER}{text}\n")
    project = Project(root=scratch.root)
    found = configurations(project, project.open(scratch.root / "k.py"), function, WORLDS)
    assert said(found) == [({"M": 2, "N": 2}, 4, 3)]
    closure = cut(scratch.root / "k.py", function, root=scratch.root, where=None)
    assert "wanted" in [parameter.name for parameter in closure.parameters]


def test_a_name_that_a_factory_binds_is_not_that_of_the_module(scratch: Scratch) -> None:
    inner = textwrap.indent(f"\n@triton.autotune(CONFIGS, []){KERNEL}\nreturn kernel", "    ")
    scratch.write(f"{HEADER}CONFIGS = {PLAIN}\ndef make(CONFIGS):{inner}\n")
    project = Project(root=scratch.root)
    with pytest.raises(ClosureError, match="CONFIGS is not known before the run"):
        configurations(project, project.open(scratch.root / "k.py"), "make.kernel", WORLDS)


def test_functions_that_are_wrapped_or_stand_in_classes(scratch: Scratch) -> None:
    text = f"{HEADER}{KERNEL}\ntuned = triton.autotune(configs={PLAIN}, key=[])(kernel)\nclass Ops:\n"
    scratch.write(
        text + f"    @staticmethod\n    @triton.autotune({PLAIN}, [])\n    @triton.jit\n    def f(M, N): pass\n"
    )
    project = Project(root=scratch.root)
    module = project.open(scratch.root / "k.py")
    assert said(configurations(project, module, "tuned", WORLDS)) == BOTH
    assert said(configurations(project, module, "Ops.f", WORLDS)) == BOTH


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reset_to_zero", "['x_ptr']"),
        ("restore_value", "['x_ptr']"),
        ("prune_configs_by", "{'early_config_prune': print}"),
        ("pre_hook", "lambda args: None"),
        ("post_hook", "print"),
    ],
)
def test_what_a_launch_would_have_to_do_is_refused(scratch: Scratch, name: str, value: str) -> None:
    message = refusal(scratch, f"@triton.autotune(configs={PLAIN}, key=[],\n  {name}={value})")
    assert message.startswith(f"k.py:6:{len(name) + 4}: kernel is tuned with {name}: it ")
    assert "remedy: write the blocks out" in message


def test_the_hook_of_a_configuration_is_an_obligation_and_leaves_it_readable(scratch: Scratch) -> None:
    text = f"{HEADER}@triton.autotune([triton.Config({{'M': 1, 'N': 2}}, pre_hook=print)], []){KERNEL}"
    scratch.write(text)
    project = Project(root=scratch.root)
    found = read_tuning(project, project.open(scratch.root / "k.py"), "kernel", WORLDS)
    assert said(found.configurations) == [({"M": 1, "N": 2}, 4, 3)]
    assert [(o.name, str(o.position)) for o in found.obligations] == [("pre_hook", "k.py:3:19")]
    with pytest.raises(ClosureError, match="tuned with pre_hook"):
        configurations(project, project.open(scratch.root / "k.py"), "kernel", WORLDS)


@pytest.mark.parametrize(
    ("decorator", "before", "expected"),
    [
        ("", "", ("kernel has no @triton.autotune", "remedy: write the blocks out")),
        ("@triton.autotune(key=[])", "", ("lists no configurations",)),
        ("@triton.autotune(configs=make(), key=[])", "from torch import make", ("cannot be told without running",)),
        ("@triton.autotune(configs=[1], key=[])", "", ("are no list of triton.Config", "actual: int")),
        ("@triton.autotune(configs=3, key=[])", "", ("are no list of triton.Config",)),
        ("@triton.autotune([], kee=[])", "", ("no argument that Kiln knows as kee", "did you mean 'key'?")),
        ("@triton.autotune([triton.Config({'MM': 1})], [])", "", ("sets MM", "no parameter of that name", "'M'")),
        ("@triton.autotune([triton.Config({'M': torch.x})], [])", "", ("k.py:5:",)),
        (
            "@triton.autotune([triton.Config({'M': 1}, ir_override='x')], [])",
            "",
            ("sets ir_override, which a build cannot use",),
        ),
        (
            "@triton.autotune([triton.Config({'M': int(os.environ['M'])})], [])",
            "import os",
            ("k.py:5:", "cannot be told without running the file", "M"),
        ),
        ("@triton.autotune([], [], **torch.extra)", "", ("the arguments of triton.autotune cannot be told",)),
    ],
)
def test_what_cannot_be_told_is_refused(
    scratch: Scratch, decorator: str, before: str, expected: tuple[str, ...]
) -> None:
    message = refusal(scratch, decorator, before)
    for text in expected:
        assert text in message


TABLE = """
from itertools import product

import triton
import triton.language as tl
import torch


@triton.jit
def soft_kernel(out_ptr, in_ptr, n, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    pass


def get_function_table():
    table = []

    def warps(block):
        count = 4
        if block >= 2048:
            count = 8
        return count

    for dtype, block in product(["fp32", "fp16"], [1024, 2048]):
        name = "soft_{}_{}".format(dtype, block)
        kwargs = KWARGS
        table.append({"name": name, "group": f"soft_{dtype}", "func": soft_kernel, "sig": SIG, "kwargs": kwargs})
    return table
"""
NESTED = '{"num_warps": warps(block), "constants": {"BLOCK": block, "WIDE": int(block > 1024)}}'
FLAT = '{"BLOCK": block, "WIDE": int(block > 1024), "num_warps": warps(block)}'
SIG = '"*{},*{},i32".format(dtype, dtype)'


def table(scratch: Scratch, kwargs: str = NESTED, sig: str = SIG, text: str = TABLE) -> tuple[TableRow, ...]:
    scratch.write(text.replace("KWARGS", kwargs).replace("SIG", sig))
    project = Project(root=scratch.root)
    return function_table(project, project.open(scratch.root / "k.py"), WORLDS)


@pytest.mark.parametrize(
    "kwargs", [NESTED, FLAT, '{"num_warps": warps(block), "constants": {3: block, 4: block // 2048}}']
)
def test_rows_in_both_forms(scratch: Scratch, kwargs: str) -> None:
    rows = table(scratch, kwargs)
    assert [row.name for row in rows] == ["soft_fp32_1024", "soft_fp32_2048", "soft_fp16_1024", "soft_fp16_2048"]
    last = rows[-1]
    assert (last.group, last.signature, last.function) == ("soft_fp16", "*fp16,*fp16,i32", "soft_kernel")
    assert (last.source, last.source_name) == (scratch.root / "k.py", "k.py")
    assert (last.constants, last.options) == ({"BLOCK": 2048, "WIDE": 1}, {"num_warps": 8})
    assert str(last.position) == "k.py:26:22"


def test_a_row_is_told_at_its_own_place_where_the_table_is_written_out(scratch: Scratch) -> None:
    row = '{"name": "NAME", "group": "g", "func": soft_kernel, "sig": "*fp32, *fp32, i32", "kwargs": {}}'
    rows = "".join(f"\n        {row.replace('NAME', name)}," for name in "abc")
    head = TABLE.partition("def get_function_table")[0]
    text = f"{head}def get_function_table():\n    return [{rows}\n    ]\n"
    assert [(found.name, str(found.position)) for found in table(scratch, text=text)] == [
        ("a", "k.py:16:9"),
        ("b", "k.py:17:9"),
        ("c", "k.py:18:9"),
    ]


def test_a_signature_with_constants_in_their_places(scratch: Scratch) -> None:
    sig = 'f"*{dtype}:16, *{dtype}, i32, {block}, 0"'
    for kwargs in ("{}", '{"num_warps": 2}', '{"BLOCK": block}'):
        row = table(scratch, kwargs, sig)[1]
        assert (row.signature, row.constants) == ("*fp32:16, *fp32, i32", {"BLOCK": 2048, "WIDE": 0})


def test_a_constant_is_one_under_another_name_too(scratch: Scratch) -> None:
    text = TABLE.replace(": tl.constexpr", ": Fixed").replace("@triton.jit", "Fixed = tl.constexpr\n@triton.jit")
    rows = table(scratch, "{}", '"*fp32, *fp32, i32, 1024, 0"', text)
    assert rows[0].signature == "*fp32, *fp32, i32"
    assert rows[0].constants == {"BLOCK": 1024, "WIDE": 0}


def test_a_function_from_another_file(scratch: Scratch) -> None:
    kernel, rest = TABLE.split("def get_function_table")
    scratch.write(kernel, "ops/soft.py")
    text = f"from ops.soft import soft_kernel\nfrom itertools import product\ndef get_function_table{rest}"
    row = table(scratch, text=text)[0]
    assert (row.source, row.source_name) == (scratch.root / "ops/soft.py", "ops/soft.py")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("def get_function_table", "def get_functions"), ("k.py:1:1: the file has no function get_function_table",)),
        (("return table", "return dict(a=1)"), ("returns no list", "actual: dict")),
        (("return table", "return [3]"), ("row 1 of get_function_table() is no map",)),
        (('"group": f"soft_{dtype}", ', ""), ("lacks group", "keys name, func, sig, kwargs")),
        (('"sig": SIG', '"sig": SIG, "grid": 1'), ("has the unknown key 'grid'",)),
        (('"func": soft_kernel', '"func": "soft_kernel"'), ("is no function of a project file",)),
        (('"sig": SIG', '"sig": 3'), ("sig of row 1", "is no text")),
        (("KWARGS", '{"BLOK": 1}'), ("sets BLOK", "did you mean 'BLOCK'?")),
        (("KWARGS", '{"constants": 3}'), ("constants of row 1", "is no map")),
        (("KWARGS", '{"BLOCK": torch.zeros(1)}'), ("cannot be told without running the file", "k.py:")),
        (("SIG", '"*fp32, *fp32, i32, i32, i32"'), ("gives the constant BLOCK a type", "actual: i32")),
        (("SIG", 'f"*fp32, *fp32, i32, {block + 1}, 0"'), ("sets BLOCK twice", "1025 in sig, 1024 in kwargs")),
        (
            ("    table = []", "    table = []\n    if torch.version.hip: return []"),
            ("gives other rows for sm_90a than for other targets", "declare a kernel for each kind of target"),
        ),
    ],
)
def test_tables_of_another_form_are_refused(
    scratch: Scratch, change: tuple[str, str], expected: tuple[str, ...]
) -> None:
    with pytest.raises(ClosureError) as caught:
        table(scratch, text=TABLE.replace(*change))
    print(caught.value)
    for text in expected:
        assert text in str(caught.value)
