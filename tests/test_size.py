"""`doit size`: what it prints of images that are built, stale and not built, and what it takes."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest

from kiln.doit_plugin.commands.crate_size import crate_as_table
from kiln.packaging.crate_parts import Part, split
from project import Project
from softmax_images import make_manifest

IMAGES = [f"scale_fp32_{block}@{target}" for block in (128, 256) for target in ("sm_80", "gfx942")]


def facts(project: Project, image: str) -> dict[str, Any]:
    variant, _, target = image.partition("@")
    found: dict[str, Any] = json.loads(project.read(f"build/images/{target}/{variant}.facts.json"))
    return found


def rows(output: str) -> list[list[str]]:
    """The cells of each line of a table: they stand two blanks apart, and the first may be empty."""
    return [re.split(r"\s{2,}", line) for line in output.splitlines() if line and not re.match(r" {4}\S", line)]


def states(project: Project) -> dict[str, str]:
    """Image -> state, by --json."""
    found = json.loads(project.doit("size", "--json").expect().output)
    return {image["image"]: image["state"] for image in found["images"]}


def test_a_table_by_kernel_and_target(built: Project) -> None:
    head, first, second, *totals = rows(built.doit("size").expect().output)
    assert head == ["kernel", "target", "images", "total", "largest", "regs", "spills", "stack", "shared"]
    for target, row in (("sm_80", first), ("gfx942", second)):
        own = [facts(built, image) for image in IMAGES if image.endswith(target)]
        size = [each["size"] for each in own]
        expected = ["2", f"{sum(size) / 1024:.1f} KiB", f"{max(size) / 1024:.1f} KiB"]
        expected += [str(max(each["registers"] for each in own)), "0 B", "0 B", "0 B"]
        assert row == ["scale" if target == "sm_80" else "", target, *expected]
        assert ["all", target, *expected] in totals
    assert totals[-1][:3] == ["all", "all", "4"] and len(totals) == 3


def test_a_line_an_image(built: Project) -> None:
    found = rows(built.doit("size", "--by", "variant", "sm_80").expect().output)
    assert [row[:3] for row in found] == [
        ["variant", "target", "images"],
        ["scale_fp32_128", "sm_80", "1"],
        ["scale_fp32_256", "sm_80", "1"],
        ["all", "sm_80", "2"],
    ]


def test_json_has_every_number(built: Project) -> None:
    found = json.loads(built.doit("size", "--json").expect().output)
    assert found["schema"] == 1
    assert [image["image"] for image in found["images"]] == IMAGES
    for image in found["images"]:
        own = facts(built, image["image"])
        assert image["state"] == "built"
        assert (image["kernel"], f"{image['variant']}@{image['target']}") == ("scale", image["image"])
        assert image["uses"] == {
            "registers": own["registers"],
            "spills": 0,
            "stack": own["stack"],
            "shared": own["shared_static"] + own["shared_dynamic"],
            "size": own["size"],
        }


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["scale"], IMAGES),
        (["gfx942"], IMAGES[1::2]),
        (["sm_80", "gfx942"], IMAGES),
        (["scale_fp32_128"], IMAGES[:2]),
        (["scale_fp32_128", "sm_80"], IMAGES[:1]),
        (["scale_fp32_256@gfx942", "scale_fp32_128@sm_80"], [IMAGES[0], IMAGES[3]]),
        (["scale_fp32_256@gfx942", "scale"], IMAGES),
    ],
)
def test_names_select(built: Project, names: list[str], expected: list[str]) -> None:
    found = json.loads(built.doit("size", "--json", *names).expect().output)
    assert [image["image"] for image in found["images"]] == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scales"], "there is no kernel, target, variant or image 'scales': did you mean 'scale'"),
        (["sm_89"], "'sm_89': did you mean 'sm_80'"),
        (["nonsense"], "'nonsense': there are the kernels scale"),
        (["scale", "--json"], "--json stands behind a name: write options in front of all names"),
        (["scale_fp32_128@sm_80", "gfx942"], "nothing is selected: scale_fp32_128@sm_80 is not built for gfx942"),
        (["--by", "target"], "'target' but available choices are: 'kernel', 'variant'"),
    ],
)
def test_what_it_does_not_take(built: Project, arguments: list[str], message: str) -> None:
    built.doit("size", *arguments).expect(f"^ERROR: .*{message}", code=3)


def test_nothing_built(built: Project) -> None:
    built.doit("clean").expect()
    result = built.doit("size").expect(r"^not built: 4 of 4 images; `doit` builds them$")
    assert "kernel" not in result.output and all(image in result.output for image in IMAGES)
    assert set(states(built).values()) == {"not built"}
    assert built.files() == set()


def test_stale_images_are_named_and_not_counted(built: Project) -> None:
    """One is edited, one is damaged, one was removed, and one is left."""
    built.edit(
        "kernels.yaml", "blocks: [128, 256]", "blocks: [128, 256]\n    options: {num_warps: 4 if block < 200 else 8}"
    )
    (built.folder / "build/images/sm_80/scale_fp32_128.cubin").write_bytes(b"damaged")
    (built.folder / "build/images/gfx942/scale_fp32_256.facts.json").unlink()
    result = built.doit("size").expect(
        r"^not up to date, and not counted: 2 of 4 images; `doit` builds them$",
        r"^    scale_fp32_128@sm_80, scale_fp32_256@sm_80$",
        r"^not built: 1 of 4 images; `doit` builds them$",
        r"^    scale_fp32_256@gfx942$",
    )
    assert [row[:3] for row in rows(result.output)][:2] == [["kernel", "target", "images"], ["scale", "gfx942", "1"]]
    assert states(built) == dict(zip(IMAGES, ["stale", "built", "stale", "not built"], strict=True))
    built.doit().expect("0 failed")
    assert set(states(built).values()) == {"built"}


def test_a_source_that_cannot_be_read_makes_images_stale(built: Project) -> None:
    built.write("kernels/scale.py", "def broken(:\n")
    assert set(states(built).values()) == {"stale"}


def test_it_changes_nothing(built: Project) -> None:
    before = {path: path.stat().st_mtime_ns for path in (built.folder / "build").rglob("*")}
    built.doit("size").expect()
    assert {path: path.stat().st_mtime_ns for path in (built.folder / "build").rglob("*")} == before


def test_a_dodo_without_rules(built: Project) -> None:
    built.write("dodo.py", "def task_x():\n    return {'actions': ['true']}\n")
    built.doit("size").expect("^ERROR: dodo.py has no rules of Kiln's", code=3)


def test_the_crate_as_cargo_packs_it(built: Project) -> None:
    """Its size is what Cargo itself makes of it; the parts are all its files."""
    found = json.loads(built.doit("size", "--crate", "--json").expect().output)["crate"]
    assert [part["target"] for part in found["parts"]] == [None, "sm_80", "gfx942"]
    files = [path for path in (built.folder / "build/rust/scratch").rglob("*") if path.is_file()]
    assert sum(part["files"] for part in found["parts"]) == len(files)
    assert found["size"] == sum(part["size"] for part in found["parts"]) == sum(path.stat().st_size for path in files)

    target = built.folder / "target"
    words = ["cargo", "package", "--no-verify", "--allow-dirty", "--offline", "--quiet", "--target-dir", str(target)]
    subprocess.run(words, cwd=built.folder / "build/rust/scratch", check=True)
    (packed,) = (target / "package").glob("scratch-0.0.0.crate")
    # Cargo adds a lock file and its reading of Cargo.toml, and packs all in one.
    assert 0.9 < found["packed"] / packed.stat().st_size < 1.1
    assert (found["limit"], found["split"]) == (10 * 2**20, None)

    table = built.doit("size", "--crate").expect("scratch 0.0.0 can be published", r"takes 10\.0 MiB$").output
    assert [row[0] for row in rows(table)[:5]] == ["part", "sources", "sm_80", "gfx942", "all"]
    built.doit("size", "--crate", "sm_80").expect("takes no names: 'sm_80'", code=3)
    built.edit("kernels/scale.py", "x * 2", "x * 3")
    built.doit("size", "--crate").expect("the crate is not built, or not up to date: `doit crate` builds it", code=3)


def test_what_the_crate_says_of_itself_comes_from_kernels_yaml(built: Project) -> None:
    """No image is built anew for it, and Cargo, which packs the crate, reads what was written."""
    said = {"license": "MIT OR Apache-2.0", "description": 'Scales "a\\b" 🔥', "homepage": "https://e.org"}
    section = f"crate: {json.dumps(said, ensure_ascii=False)}\n"
    built.edit("kernels.yaml", "library: scratch\n", f"library: scratch\n{section}")
    done = built.doit().expect(r"^\[\d+/\d+\] crate$", r"^1 built, ")
    assert done.ran("compile") == []
    words = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--offline"]
    told = json.loads(subprocess.check_output(words, cwd=built.folder / "build/rust/scratch"))["packages"][0]
    assert said.items() <= told.items() and told["repository"] is None
    built.edit("kernels.yaml", '"MIT OR Apache-2.0"', "MIT")
    assert "crate.license changed: MIT OR Apache-2.0 -> MIT\n" in built.doit("explain", "crate").output
    built.doit().expect(r"^1 built, ")
    assert 'license = "MIT"\n' in built.read("build/rust/scratch/Cargo.toml")


def test_a_crate_that_is_too_large_is_split_by_target() -> None:
    """As few as there can be, in order; a target that is too large by itself has one, and the words say so."""
    sizes = {None: 1, "sm_80": 5, "sm_90a": 4, "compute_80": 2, "gfx942": 12, "gfx90a": 1}
    parts = [Part(target=name, files=1, size=size, packed=size) for name, size in sizes.items()]
    assert [[part.target for part in crate] for crate in split(parts, 10)] == [
        ["sm_80", "sm_90a"],
        ["compute_80"],
        ["gfx942"],
        ["gfx90a"],
    ]
    lines = crate_as_table(make_manifest([]), parts, 10).splitlines()
    assert "too large to be published: Cargo's default registry takes 10 B" in lines[10]
    assert lines[-4:] == [
        "    doit --targets sm_80,sm_90a --build-dir DIR crate    10 B packed",
        "    doit --targets compute_80 --build-dir DIR crate    3 B packed",
        "    doit --targets gfx942 --build-dir DIR crate    13 B packed, too large still: divide its kernels",
        "    doit --targets gfx90a --build-dir DIR crate    2 B packed",
    ]
