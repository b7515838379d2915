"""The line table of a PTX gets the names of files that are the same on every machine, and of functions too."""

from __future__ import annotations

from kiln.binaries.lines import line_table
from kiln.binaries.ptx import read_ptx
from kiln.compilers.ptx_lines import with_virtual_files, without_lines

NAME = "_ZN34_INTERNAL_{0}_7_unit_cu_{0}4helpEv"


def ptx(folder: str, digest: str) -> str:
    """As nvcc writes it: the files stand behind the code, and names of functions are numbers."""
    name = [str(byte) for byte in f"{NAME.format(digest)}\0".encode()]
    return f"""\
.version 8.0
.target sm_80
.address_size 64

.visible .entry k(
\t.param .u64 k_param_0
)
{{
\t.loc\t1 3 0
\t.loc\t2 9 5, function_name $L__info_string0, inlined_at 1 4 5
\tret;
}}
\t.file\t1 "{folder}/kernels/k.cu", 1700000000, 77
\t.file\t2 "{folder}/kernels/a b.cuh"
\t.section\t.debug_str
\t{{
$L__info_string0:
.b8 {",".join(name[:12])}
.b8 {",".join(name[12:])}

\t}}
"""


def virtual(file: str) -> str:
    return "/<kiln>/kernels/" + file.partition("/kernels/")[2]


def test_no_path_is_left_and_no_digest_of_one() -> None:
    made = [with_virtual_files(ptx(*where), virtual) for where in (("/tmp/x", "0123abcd"), ("/home/y z", "89efcdab"))]
    assert made[0] is not None and made[0] == made[1]
    assert ",".join(str(byte) for byte in NAME.format("00000000").encode()) in made[0]
    assert line_table(made[0].encode(), "ptx") == {
        ("/<kiln>/kernels/k.cu", 3),
        ("/<kiln>/kernels/k.cu", 4),
        ("/<kiln>/kernels/a b.cuh", 9),
    }


def test_a_path_is_read_as_nvcc_writes_it() -> None:
    """Bytes that are not ASCII are octal there, and a backslash is two."""
    named: list[str] = []
    text = ptx('/home/\\303\\274 \\\\1 \\"x\\"', "0123abcd")
    made = with_virtual_files(text, lambda file: named.append(file) or virtual(file))
    assert named == ['/home/\u00fc \\1 "x"/kernels/k.cu', '/home/\u00fc \\1 "x"/kernels/a b.cuh']
    assert made == with_virtual_files(ptx("/tmp/x", "0123abcd"), virtual)
    assert ".file" not in without_lines(text)


def test_the_files_come_to_stand_before_the_code() -> None:
    """So a text that is cut short ends without its last brace, as any other."""
    text = ptx("/tmp/x", "0123abcd")
    made = with_virtual_files(text[: text.index("\t.section")], virtual)
    assert made is not None
    assert read_ptx(made.encode()).entry == "k"


def test_a_text_that_lacks_a_file_is_not_whole() -> None:
    text = ptx("/tmp/x", "0123abcd")
    assert with_virtual_files(text[: text.index("\t.file\t2")], virtual) is None
    assert with_virtual_files(text[: text.index("\t.file\t1")], virtual) is None


def test_without_its_lines_it_is_the_code_alone() -> None:
    made = with_virtual_files(ptx("/tmp/x", "0123abcd"), virtual)
    assert made is not None
    bare = without_lines(made)
    assert line_table(bare.encode(), "ptx") == frozenset()
    assert [line for line in bare.splitlines() if line.strip()] == [
        line for line in ptx("", "").split("\t.file")[0].splitlines() if line.strip() and ".loc" not in line
    ]
