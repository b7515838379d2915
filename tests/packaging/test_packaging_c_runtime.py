"""The fixed C runtime, compiled as it stands in the repository, under the sanitizers."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from c_library import accepts, compile_program, run, standards

from kiln.packaging import c_names, c_package
from kiln.packaging.c_package import runtime_source

RUNTIME = Path(c_package.__file__).parent / "runtime" / "c"
INCLUDES = ("-I", RUNTIME / "include", "-I", RUNTIME / "src")
SANITIZE = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

# NIST, "Secure Hash Standard" examples: SHA256.pdf, SHA2_Additional.pdf.
NIST = {
    b"abc": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    b"": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq": (
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
    ),
    b"a" * 1_000_000: "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
}

DIGESTS = """#include "internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Digests of the first n bytes of standard input, for each n that is given; each in a buffer of its own size. */
int main(int count, char **lengths) {
    static unsigned char input[1 << 20];
    const size_t size = fread(input, 1, sizeof input, stdin);
    for (int i = 1; i < count; i++) {
        const size_t length = (size_t)strtoul(lengths[i], NULL, 10);
        if (length > size) return 1;
        unsigned char *bytes = malloc(length + 1);
        if (bytes == NULL) return 1;
        memmove(bytes + 1, input, length);
        uint8_t digest[32];
        kiln_sha256(bytes + 1, length, digest);
        free(bytes);
        for (size_t k = 0; k < sizeof digest; k++) printf("%02x", (unsigned)digest[k]);
        printf("\\n");
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def digests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("sha256") / "digests"
    return compile_program(DIGESTS, program, *SANITIZE, *INCLUDES, RUNTIME / "src" / "sha256.c")


@pytest.mark.parametrize(("data", "digest"), NIST.items(), ids=["abc", "empty", "448 bits", "million a"])
def test_sha256_of_nist(digests: Path, data: bytes, digest: str) -> None:
    assert run(digests, str(len(data)), stdin=data).strip() == digest


def test_sha256_of_every_length_around_the_block(digests: Path) -> None:
    """Padding in one block and in two: every length to four blocks, and some beyond, equals hashlib's."""
    data = bytes(i * 131 % 251 for i in range(70_000))
    lengths = [*range(257), 1000, 4096, 65_535, 65_536, 70_000]
    printed = run(digests, *map(str, lengths), stdin=data).split()
    assert printed == [hashlib.sha256(data[:length]).hexdigest() for length in lengths]


LOOKUPS = """#include "internal.h"
#include <assert.h>

struct block {
    struct kiln_image record;
    char variant[2], target[8], group[2];
};

#define BLOCK(place, in_variant, in_target, in_group) \\
    { { .anchor_at = place, .variant_at = offsetof(struct block, variant), \\
        .target_at = offsetof(struct block, target), .group_at = offsetof(struct block, group) }, \\
        in_variant, in_target, in_group }

static const struct block blocks[] = { BLOCK(1, "v", "sm_80", "g"), BLOCK(2, "v", "sm_90a", "g"),
    BLOCK(3, "w", "sm_80", "g"), BLOCK(4, "x", "sm_80", "h") };
#define a blocks[0].record
#define b blocks[1].record
#define c blocks[2].record
#define d blocks[3].record
static const struct kiln_image *const images[] = { &a, ABSENT(&b), &c, &d };
const struct kiln_registry kiln_registry = { images, 4, IS_COMPLETE };

int main(void) {
    assert(kiln_image_count() == (IS_COMPLETE ? 4 : 3));
    assert(kiln_image_at(0) == &a);
    assert(kiln_image_at(1) == (IS_COMPLETE ? &b : &c));
    assert(kiln_image_at(kiln_image_count() - 1) == &d);
    assert(kiln_image_at(kiln_image_count()) == NULL);
    assert(kiln_image_at(SIZE_MAX) == NULL);

    assert(kiln_image_find("w", "sm_80") == &c);
    assert(kiln_image_find("v", "sm_90a") == (IS_COMPLETE ? &b : NULL));
    assert(kiln_image_find("v", "sm_9") == NULL);
    assert(kiln_image_find("V", "sm_80") == NULL);
    assert(kiln_image_find(NULL, "sm_80") == NULL);
    assert(kiln_image_find("v", NULL) == NULL);

    assert(kiln_group_next("g", NULL, NULL) == &a);
    assert(kiln_group_next("g", NULL, &a) == (IS_COMPLETE ? &b : &c));
    assert(kiln_group_next("g", NULL, &c) == NULL);
    const struct block copy = blocks[0]; /* as a program can have one of what a shared library has */
    assert(kiln_group_next("g", "sm_80", &copy.record) == &c);
    assert(kiln_group_next("g", "sm_80", NULL) == &a);
    assert(kiln_group_next("g", "sm_80", &a) == &c);
    assert(kiln_group_next("g", "gfx942", NULL) == NULL);
    assert(kiln_group_next("h", NULL, NULL) == &d);
    assert(kiln_group_next("nothing", NULL, NULL) == NULL);
    assert(kiln_group_next(NULL, NULL, NULL) == NULL);
    const struct block stranger = BLOCK(5, "v", "sm_80", "g");
    assert(kiln_group_next("g", NULL, &stranger.record) == NULL);
    return 0;
}
"""


@pytest.mark.parametrize("complete", [True, False], ids=["complete", "one target left out"])
def test_lookups(tmp_path: Path, complete: bool) -> None:
    """Places, names and groups, with every image there and with one that a program has not linked."""
    header = f"#define IS_COMPLETE {int(complete)}\n#define ABSENT(image) {'image' if complete else 'NULL'}\n"
    if not complete:
        header += '#pragma GCC diagnostic ignored "-Wunused-variable"\n'
    source = RUNTIME / "src" / "lookup.c"
    run(compile_program(header + LOOKUPS, tmp_path / "lookups", *SANITIZE, *INCLUDES, source))


VERIFY = """#include "internal.h"
#include <assert.h>
#include <string.h>

int main(void) {
    static unsigned char data[3] = { 'a', 'b', 'c' };
    static struct kiln_image image;
    image.anchor_at = (int32_t)((intptr_t)&kiln_anchor - (intptr_t)&image);
    image.data_at = (intptr_t)data - (intptr_t)&image;
    image.size = sizeof data;
    assert(!kiln_image_verify(&image));
    kiln_sha256(data, sizeof data, image.sha256);
    assert(kiln_image_verify(&image));
    data[2] ^= 1;
    assert(!kiln_image_verify(&image));
    data[2] ^= 1;
    image.size = 2;
    assert(!kiln_image_verify(&image));
    image.data_at = 0;
    assert(!kiln_image_verify(&image));
    assert(!kiln_image_verify(NULL));
    assert(kiln_abi_version() == KILN_ABI_VERSION);

    uint32_t grid[3] = { 7, 7, 7 };
    assert(kiln_grid_from(1, 2, 3, grid) == KILN_GRID_OK && grid[0] == 1 && grid[1] == 2 && grid[2] == 3);
    assert(kiln_grid_from(INT32_MAX, 65535, 65535, grid) == KILN_GRID_OK && grid[0] == INT32_MAX && grid[2] == 65535);
    assert(kiln_grid_from(5, 0, 1, grid) == KILN_GRID_EMPTY && grid[1] == 0);
    assert(kiln_grid_from(1 + (int64_t)INT32_MAX, 1, 1, grid) == KILN_GRID_OUT_OF_RANGE && grid[0] == 5);
    assert(kiln_grid_from(1, 65536, 1, grid) == KILN_GRID_OUT_OF_RANGE);
    assert(kiln_grid_from(1, 1, 65536, grid) == KILN_GRID_OUT_OF_RANGE);
    assert(kiln_grid_from(0, -1, 1, grid) == KILN_GRID_OUT_OF_RANGE);
    return 0;
}
"""


def test_verify_and_grid(tmp_path: Path) -> None:
    """A changed byte, a changed size and no image at all are no match; a grid is held against the common limits."""
    sources = [RUNTIME / "src" / name for name in ("verify.c", "sha256.c", "records.c")]
    run(compile_program(VERIFY, tmp_path / "verify", *SANITIZE, *INCLUDES, *sources))


@pytest.mark.parametrize(("compiler", "standard"), standards())
def test_sources_compile_without_a_warning(compiler: str, standard: str) -> None:
    """The header in C and C++, the sources in C."""
    assert accepts("#include <kiln/kiln_image.h>\n", compiler, standard, *INCLUDES) == ""
    if "++" not in standard:
        for member in c_names.runtime_members("kiln"):
            text = (RUNTIME / "src" / c_names.source_of(member)).read_text()
            assert accepts(text, compiler, standard, *INCLUDES) == ""


def test_a_library_takes_its_own_prefix() -> None:
    """No name of the fixed sources survives in a library's copy: two libraries must live in one program."""
    for name in c_names.runtime_files("mine").values():
        text = runtime_source(name, "mine")
        assert "kiln" not in text.lower()
        assert text.count("\n") == runtime_source(name, "kiln").count("\n")
    assert "-lmine_sm_80 -Wl,-u,mine__sm_90a" in runtime_source("include/kiln/kiln_image.h", "mine")
