"""The section `onnxruntime`: what it reads to, and each thing that can be wrong, with file, line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from kiln.errors import ManifestError, Position
from kiln.manifest.loader import load
from kiln.manifest.model import Manifest

HEAD = "version: 1\nlibrary: l\ntargets: TARGETS\n"
KERNELS = """\
kernels:
  soft:
    source: k.py
    function: f
    dtypes: [fp32]
    name: "soft_{dtype}"
    signature: "*{dtype}"
    grid: [1]
  wide:
    source: k.py
    function: g
    dtypes: [fp32]
    targets: WIDE
    name: "wide_{dtype}"
    signature: "*{dtype}"
    grid: [1]
"""


def read(
    folder: Path,
    section: str,
    *,
    targets: str = "[sm_80, sm_90a]",
    wide: str = "[sm_90a]",
    gpus: tuple[str, ...] = ("sm_86", "sm_90a"),
    only: tuple[str, ...] | None = None,
) -> Manifest:
    (folder / "k.py").touch()
    text = HEAD.replace("TARGETS", targets) + f"onnxruntime: {section}\n" + KERNELS.replace("WIDE", wide)
    (folder / "kernels.yaml").write_text(text.replace("onnxruntime: \n", ""))

    def find(position: Position) -> tuple[str, ...]:
        return gpus

    return load(folder / "kernels.yaml", find_native=find, only=only)


def test_nothing_is_made_when_it_is_left_out(tmp_path: Path) -> None:
    assert read(tmp_path, "").onnxruntime is None


def test_the_target_alone_stands_for_all_kernels_that_fit(tmp_path: Path) -> None:
    declared = read(tmp_path, "{target: sm_90a}").onnxruntime
    assert declared is not None
    assert (declared.target, declared.kernels) == ("sm_90a", None)
    assert (declared.position.line, declared.position.column) == (4, 1)


def test_kernels_are_kept_as_they_are_listed(tmp_path: Path) -> None:
    declared = read(tmp_path, "{target: sm_90a, kernels: [wide, soft]}").onnxruntime
    assert declared is not None and declared.kernels == ("wide", "soft")


def test_a_manifest_that_is_read_in_part_has_it_too(tmp_path: Path) -> None:
    """A build that loads some kernels alone has the same steps."""
    declared = read(tmp_path, "{target: sm_90a, kernels: [wide]}", only=("soft",)).onnxruntime
    assert declared is not None and declared.kernels == ("wide",)


def test_native_is_the_machines_one_kind_of_gpu(tmp_path: Path) -> None:
    declared = read(tmp_path, "{target: native}", targets="native", wide="native", gpus=("sm_86",)).onnxruntime
    assert declared is not None and declared.target == "sm_86"


@pytest.mark.parametrize(
    ("section", "place", "said"),
    [
        ("{target: sm_90}", "4:23", ("is 'sm_90', which the library is not built for", "did you mean 'sm_90a'")),
        ("{target: gfx942}", "4:23", ("one of sm_80, sm_90a", "add it to the library's `targets`")),
        ("{target: native}", "4:23", ("is 'native', which the library is not built for",)),
        ("{kernels: [soft]}", "4:14", ("`onnxruntime` lacks the key `target`",)),
        ("{target: sm_90a, kernel: [soft]}", "4:31", ("unknown key 'kernel'", "did you mean 'kernels'")),
        ("{target: sm_90a, kernels: [sof]}", "4:41", ("there is no such kernel", "did you mean 'soft'")),
        ("{target: sm_90a, kernels: [soft, x]}", "4:47", ("holds 'x'", "remove it here, or declare it")),
        ("{target: sm_80, kernels: [soft, wide]}", "4:46", ("'wide', which is not built for sm_80", "add sm_80")),
        ("{target: sm_90a, kernels: []}", "4:40", ("list at least one",)),
        ("sm_90a", "4:14", ("a map with the keys target",)),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str, place: str, said: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ManifestError) as caught:
        read(Path(), section)
    print(caught.value)
    assert str(caught.value).startswith(f"kernels.yaml:{place}: ")
    assert all(words in str(caught.value) for words in said)


def test_native_of_several_kinds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="the GPUs of this machine are of several kinds") as caught:
        read(tmp_path, "{target: native}", targets="native", wide="native")
    assert "one of sm_86, sm_90a" in str(caught.value)
