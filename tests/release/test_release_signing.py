"""Signatures with Ed25519: what openssl makes signs, what was changed since is found, and what cannot sign says why."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from release_changes import STEM, edit_json, flip

from kiln.errors import KilnError, ReleaseError
from kiln.release.signing import check_signature, sign, sign_with_sigstore, signers_of
from project import REPOSITORY

STATEMENT, TAR, ENVELOPE = f"{STEM}.intoto.json", f"{STEM}.tar", f"{STEM}.dsse.json"


def openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys as people make them: two pairs of Ed25519, and others."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("key", "other"):
        openssl("genpkey", "-algorithm", "ed25519", "-out", folder / f"{name}.pem")
        openssl("pkey", "-in", folder / f"{name}.pem", "-pubout", "-out", folder / f"{name}.pub.pem")
    openssl("genpkey", "-algorithm", "RSA", "-out", folder / "rsa.pem")
    openssl("pkey", "-in", folder / "rsa.pem", "-pubout", "-out", folder / "rsa.pub.pem")
    openssl("genpkey", "-algorithm", "ed448", "-out", folder / "ed448.pem")
    openssl("pkey", "-in", folder / "key.pem", "-aes256", "-passout", "pass:secret", "-out", folder / "encrypted.pem")
    (folder / "empty.pem").write_bytes(b"")
    (folder / "damaged.pem").write_text((folder / "key.pem").read_text().replace("A", "B"))
    return folder


def signed(released: Path, keys: Path) -> str:
    return sign(released / STATEMENT, released / TAR, keys / "key.pem", released / ENVELOPE)


def faults(released: Path, key: Path) -> list[str]:
    return [
        str(fault).splitlines()[0].partition(": ")[2]
        for fault in check_signature(released / ENVELOPE, (released / STATEMENT).read_bytes(), key)
    ]


def test_what_is_signed_is_accepted(released: Path, keys: Path) -> None:
    key = signed(released, keys)
    assert faults(released, keys / "key.pub.pem") == []
    assert signers_of((released / ENVELOPE).read_bytes()) == (key,)
    assert not list(released.glob("*.new"))


def test_openssl_accepts_the_signature_too(released: Path, keys: Path, tmp_path: Path) -> None:
    """By the definition of DSSE, and with nothing of Kiln's: who has the key needs no Kiln to look at it."""
    signed(released, keys)
    envelope = json.loads((released / ENVELOPE).read_text())
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"].encode()
    assert payload == (released / STATEMENT).read_bytes()
    (tmp_path / "message").write_bytes(b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload))
    (tmp_path / "signature").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
    openssl(
        *("pkeyutl", "-verify", "-pubin", "-inkey", keys / "key.pub.pem", "-rawin"),
        *("-in", tmp_path / "message", "-sigfile", tmp_path / "signature"),
    )


def test_what_the_page_says_is_enough_without_kiln(released: Path, keys: Path) -> None:
    """The commands of docs/release.md accept what is signed, and no other tar."""
    signed(released, keys)
    page = (REPOSITORY / "docs/release.md").read_text("utf-8").splitlines()
    start = next(index for index, line in enumerate(page) if line.startswith("    tar -xf"))
    lines = list(itertools.takewhile(lambda line: line.startswith("    "), page[start:]))
    script = "\n".join(lines).replace("kernels-1.2.0", STEM)
    shutil.copy(keys / "key.pub.pem", released / "PUB.pem")
    subprocess.run(["sh", "-ec", script], cwd=released, check=True, capture_output=True)
    flip(released / TAR, 1000)
    assert subprocess.run(["sh", "-ec", script], cwd=released, capture_output=True).returncode != 0
    flip(released / TAR, 1000)
    shutil.copy(keys / "other.pub.pem", released / "PUB.pem")
    assert subprocess.run(["sh", "-ec", script], cwd=released, capture_output=True).returncode != 0


def test_signing_again_gives_the_same_bytes(released: Path, keys: Path) -> None:
    signed(released, keys)
    before = (released / ENVELOPE).read_bytes()
    signed(released, keys)
    assert (released / ENVELOPE).read_bytes() == before


def test_another_key_is_told(released: Path, keys: Path) -> None:
    signed(released, keys)
    assert faults(released, keys / "other.pub.pem") == ["the signature is not by this key"]


def test_a_key_that_claims_the_name_of_another_is_told(released: Path, keys: Path) -> None:
    """A key's id is what anybody writes."""
    sign(released / STATEMENT, released / TAR, keys / "other.pem", released / ENVELOPE)
    shutil.copy(released / ENVELOPE, released / "theirs")
    ours = signed(released, keys)
    shutil.copy(released / "theirs", released / ENVELOPE)
    edit_json(released / ENVELOPE, lambda data: data["signatures"][0].update(keyid=ours))
    (line,) = faults(released, keys / "key.pub.pem")
    assert line.startswith("the signature does not match")


def test_a_signature_whose_key_has_no_name_counts(released: Path, keys: Path) -> None:
    """DSSE leaves the key's id to whoever signs."""
    signed(released, keys)
    edit_json(released / ENVELOPE, lambda data: data["signatures"][0].update(keyid=""))
    assert faults(released, keys / "key.pub.pem") == []


def _flip(text: str) -> str:
    data = bytearray(base64.b64decode(text))
    data[-1] ^= 1
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (
            lambda data: data["signatures"][0].update(sig=_flip(data["signatures"][0]["sig"])),
            ["the signature does not"],
        ),
        (
            lambda data: data.update(payload=_flip(data["payload"])),
            ["the signature does not match", "what was signed is not the statement"],
        ),
        (lambda data: data.update(signatures=[]), ["the signature is not by this key"]),
        (
            lambda data: data.update(payloadType="text/plain"),
            ["the envelope is not of a statement", "the signature does not match"],
        ),
        (lambda data: data.pop("payload"), ["the envelope cannot be read"]),
        (lambda data: data.update(signatures="x"), ["the envelope cannot be read"]),
        (lambda data: data.update(signatures=[{}]), ["the envelope cannot be read"]),
        (lambda data: data["signatures"][0].update(sig=5), ["the envelope cannot be read"]),
    ],
)
def test_a_changed_envelope_is_told(
    released: Path, keys: Path, change: Callable[[Any], object], lines: list[str]
) -> None:
    signed(released, keys)
    edit_json(released / ENVELOPE, lambda data: change(data) and None)
    found = faults(released, keys / "key.pub.pem")
    assert [line[: len(start)] for line, start in zip(found, lines, strict=True)] == lines


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "x", "[" * 5000, "\ud800"])
def test_an_envelope_of_anything_is_told(released: Path, keys: Path, text: str) -> None:
    (released / ENVELOPE).write_bytes(text.encode("utf-8", "surrogatepass"))
    assert faults(released, keys / "key.pub.pem") == ["the envelope cannot be read"]
    assert signers_of((released / ENVELOPE).read_bytes()) == ()


def test_a_statement_that_was_changed_after_it_was_signed_is_told(released: Path, keys: Path) -> None:
    signed(released, keys)
    flip(released / STATEMENT, 100)
    (line,) = faults(released, keys / "key.pub.pem")
    assert line.startswith("what was signed is not the statement that lies beside it")


def test_a_release_that_nobody_signed_is_told(released: Path, keys: Path) -> None:
    (line,) = faults(released, keys / "key.pub.pem")
    assert line.startswith("the release is not signed")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("missing.pem", "the private key cannot be read.*No such file"),
        ("rsa.pem", "the private key is of another kind.*actual: RSA"),
        ("ed448.pem", "the private key is of another kind.*actual: Ed448"),
        ("encrypted.pem", "encrypted, and nobody is asked.*openssl pkey -in"),
        ("key.pub.pem", "this is a public key"),
        ("empty.pem", "the private key cannot be read.*openssl genpkey"),
        ("damaged.pem", "the private key cannot be read"),
        (".", "the private key cannot be read.*Is a directory"),
    ],
)
def test_a_key_that_cannot_sign_is_told(released: Path, keys: Path, name: str, text: str) -> None:
    with pytest.raises(ReleaseError, match=f"(?s){text}"):
        sign(released / STATEMENT, released / TAR, keys / name, released / ENVELOPE)
    assert not (released / ENVELOPE).exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("missing.pem", "the public key cannot be read.*No such file"),
        ("rsa.pub.pem", "the public key is of another kind.*actual: RSA"),
        ("key.pem", "this is a private key.*-pubout"),
        ("empty.pem", "the public key cannot be read"),
    ],
)
def test_a_key_that_cannot_verify_is_told(released: Path, keys: Path, name: str, text: str) -> None:
    signed(released, keys)
    with pytest.raises(ReleaseError, match=f"(?s){text}"):
        faults(released, keys / name)


def test_a_stale_release_is_not_signed(released: Path, keys: Path) -> None:
    flip(released / TAR, 1000)
    with pytest.raises(ReleaseError, match="stale: its tar is not the one"):
        signed(released, keys)
    assert not (released / ENVELOPE).exists()


@pytest.mark.parametrize("text", ["", "{}", '{"subject": 5}', '{"subject": [{"name": "x"}]}'])
def test_a_statement_of_nothing_is_not_signed(released: Path, keys: Path, text: str) -> None:
    (released / STATEMENT).write_text(text)
    with pytest.raises(ReleaseError, match="stale"):
        signed(released, keys)


@pytest.mark.parametrize("name", [STATEMENT, TAR])
def test_no_release_is_told(released: Path, keys: Path, name: str) -> None:
    (released / name).unlink()
    with pytest.raises(ReleaseError, match=r"(?s)there is no release to sign.*doit release"):
        signed(released, keys)


def test_an_envelope_that_cannot_be_written_leaves_the_one_before(released: Path, keys: Path) -> None:
    """A folder in the way stands for whatever a system refuses."""
    (released / ENVELOPE).mkdir()
    with pytest.raises(KilnError, match="the signature cannot be written"):
        signed(released, keys)
    assert sorted(path.name for path in released.glob("*.dsse.json*")) == [ENVELOPE]


def test_sigstore_says_what_it_lacks(released: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not installed, how to install it; where it is, that there is no identity. Nobody is asked."""
    for name in ("GITHUB_ACTIONS", "GITLAB_CI", "CIRCLECI", "BUILDKITE", "GOOGLE_SERVICE_ACCOUNT_NAME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ReleaseError, match=r"sigstore is not installed|no identity that sigstore") as raised:
        sign_with_sigstore(released / STATEMENT, released / TAR, released / f"{STEM}.sigstore.json")
    assert "--key KEY.pem" in str(raised.value)
    assert not (released / f"{STEM}.sigstore.json").exists()
