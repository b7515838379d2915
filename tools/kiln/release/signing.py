"""Signatures of a release: a DSSE envelope of its statement, with an Ed25519 key or by sigstore.

Sources: DSSE v1.0.2 (secure-systems-lab/dsse), in-toto attestation, "Envelope", for the type of the payload.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from kiln.digests import digest_file
from kiln.errors import ReleaseError, os_failure

PAYLOAD_TYPE = "application/vnd.in-toto+json"

_MOST = 64 << 20
"""bytes of an envelope: a statement has some 200 bytes for each source and tool"""
_MAKE_KEY = (
    "make a pair: openssl genpkey -algorithm ed25519 -out KEY.pem; openssl pkey -in KEY.pem -pubout -out PUB.pem"
)


def sign(statement: Path, tar: Path, key: Path, envelope: Path) -> str:
    """Sign a release's statement with the private key in a file, and write the envelope; the key's id.

    The envelope is there whole or not at all. Raises ReleaseError where there is no release or it is not the one that
    its statement is of, and where the key cannot be used; StateError where the envelope cannot be written.
    """
    dsse, signers = _library("securesystemslib.dsse"), _library("securesystemslib.signer")
    payload = _checked(statement, tar)
    signer = signers.CryptoSigner(_private_key(key))
    made = dsse.Envelope(payload, PAYLOAD_TYPE, {})
    made.sign(signer)
    _write(envelope, (json.dumps(made.to_dict(), indent=1, sort_keys=True) + "\n").encode())
    key_id: str = signer.public_key.keyid
    return key_id


def sign_with_sigstore(statement: Path, tar: Path, bundle: Path) -> str:
    """Sign a release's statement with the identity that the machine has, as CI services give one; who that is.

    Nobody is asked: where no identity is to be had, that is an error. Raises ReleaseError and StateError as `sign`.
    """
    try:
        oidc, dsse, signing, models = (
            importlib.import_module(f"sigstore.{name}") for name in ("oidc", "dsse", "sign", "models")
        )
    except ImportError as error:
        raise ReleaseError(
            "sigstore is not installed",
            actual=str(error),
            remedy="pip install 'PATH/OF/KILN[sigstore]', or sign with a key of your own: --key KEY.pem",
        ) from error
    payload = _checked(statement, tar)
    try:
        found = oidc.detect_credential()
        if found is None:
            raise ReleaseError(
                "this machine has no identity that sigstore can sign with",
                expected="a token of a CI service, such as GitHub's with `permissions: id-token: write`",
                actual="none, and nobody is asked to log in",
                remedy="run it in such a CI job, or sign with a key of your own: --key KEY.pem",
            )
        token = oidc.IdentityToken(found)
        context = signing.SigningContext.from_trust_config(models.ClientTrustConfig.production())
        with context.signer(token, cache=True) as signer:
            signed = signer.sign_dsse(dsse.Statement(payload))
    except ReleaseError:
        raise
    except Exception as error:
        # Networks, clocks and services fail in more ways than sigstore has exceptions of its own for.
        raise ReleaseError(
            "sigstore did not sign",
            where=str(statement),
            actual=f"{type(error).__name__}: {error}",
            remedy="try again when the service can be reached, or sign with a key of your own: --key KEY.pem",
        ) from error
    _write(bundle, (signed.to_json() + "\n").encode())
    return str(token.identity)


def check_signature(envelope: Path, statement: bytes, public_key: Path) -> Iterator[ReleaseError]:
    """What is wrong with an envelope of a statement, of which one signature has to be by the key in a file.

    Raises ReleaseError where the key cannot be used.
    """
    dsse = _library("securesystemslib.dsse")
    key = _public_key(public_key)
    try:
        with envelope.open("rb") as file:
            made = dsse.Envelope.from_dict(json.loads(file.read(_MOST)))
    except OSError as error:
        yield ReleaseError(
            "the release is not signed, or its signature did not come along",
            where=str(envelope),
            expected="an envelope beside the tar",
            actual=error.strerror,
            remedy="sign it (doit release:sign --key KEY.pem), or ask who released it for that file",
        )
        return
    except Exception as error:
        # Anything can stand in a file that somebody changed; the library tells of it by whatever its code runs into.
        yield ReleaseError(
            "the envelope cannot be read",
            where=str(envelope),
            expected="a DSSE envelope: JSON with payload, payloadType and signatures",
            actual=f"{type(error).__name__}: {error}",
            remedy="get it again from who released it",
        )
        return
    if made.payload_type != PAYLOAD_TYPE:
        yield _wrong(envelope, "the envelope is not of a statement", PAYLOAD_TYPE, repr(made.payload_type))
    if not _is_signed_by(made, key):
        others = ", ".join(sorted(signature.keyid or "a key without a name" for signature in made.signatures.values()))
        is_ours = any(signature.keyid == key.keyid for signature in made.signatures.values())
        if is_ours:
            what = "the signature does not match: envelope or signature was changed after it was signed"
        else:
            what = "the signature is not by this key"
        yield _wrong(envelope, what, f"a signature by {key.keyid}, the key in {public_key}", f"by {others or 'nobody'}")
    if made.payload != statement:
        yield _wrong(
            envelope,
            "what was signed is not the statement that lies beside it: one of them was changed",
            f"the {len(statement)} bytes of the statement",
            f"{len(made.payload)} others",
        )


def check_payload(envelope: Path, data: bytes, statement: Path) -> Iterator[ReleaseError]:
    """What can be seen without a key: whether an envelope, with these bytes, is of the statement beside it at all."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        stated, payload = statement.read_bytes(), base64.b64decode(json.loads(data)["payload"])
        if payload != stated:
            yield ReleaseError(
                "the release was signed when it was another one: the envelope is not of the statement beside it",
                where=str(envelope),
                expected=f"the {len(stated)} bytes of {statement.name}",
                actual=f"{len(payload)} others",
                remedy="sign it anew (doit release:sign --key KEY.pem), or get it again from who released it",
            )


def signers_of(envelope: bytes) -> tuple[str, ...]:
    """The ids of the keys that an envelope names, whether or not they signed it; none where it cannot be read."""
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        signatures = json.loads(envelope)["signatures"]
        return tuple(str(each.get("keyid")) for each in signatures if base64.b64decode(each["sig"]))
    return ()


def _is_signed_by(envelope: Any, key: Any) -> bool:
    signer = _library("securesystemslib.signer")
    unverified = _library("securesystemslib.exceptions").UnverifiedSignatureError
    message = envelope.pae()
    for signature in envelope.signatures.values():
        # DSSE: a key's id is a hint, and what is not signed proves nothing. So each is tried.
        with suppress(unverified):
            key.verify_signature(signer.Signature(key.keyid, signature.signature), message)
            return True
    return False


def _wrong(envelope: Path, what: str, expected: str, actual: str) -> ReleaseError:
    remedy = "do not use this release; get it again, with its signature and key, from who released it"
    return ReleaseError(what, where=str(envelope), expected=expected, actual=actual, remedy=remedy)


def _checked(statement: Path, tar: Path) -> bytes:
    """The statement of a tar, which has to be of that tar. Raises ReleaseError."""
    try:
        payload = statement.read_bytes()
        digest = digest_file(tar)
    except OSError as error:
        raise ReleaseError(
            "there is no release to sign",
            where=str(error.filename),
            expected="a tar and its statement",
            actual=error.strerror,
            remedy="make it first: doit release",
        ) from error
    try:
        subjects = {subject["name"]: subject["digest"]["sha256"] for subject in json.loads(payload)["subject"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        subjects = {}
    if subjects != {tar.name: digest}:
        raise ReleaseError(
            "the release is stale: its tar is not the one that its statement is of",
            where=str(tar),
            expected=", ".join(f"{name} with sha256 {sha256}" for name, sha256 in subjects.items()) or "a subject",
            actual=f"{tar.name} with sha256 {digest}",
            remedy="make it again: doit release",
        )
    return payload


def _private_key(path: Path) -> Any:
    """The private key in a PEM file. Raises ReleaseError."""
    serialization = _library("cryptography.hazmat.primitives.serialization")
    kind = _library("cryptography.hazmat.primitives.asymmetric.ed25519").Ed25519PrivateKey
    pem = _read_key(path, "private")
    if b"ENCRYPTED" in pem:
        raise ReleaseError(
            "the private key is encrypted, and nobody is asked for its passphrase",
            where=str(path),
            expected="an Ed25519 key in PKCS #8 without a passphrase",
            remedy="decrypt it where nobody else can read it: openssl pkey -in KEY.pem -out PLAIN.pem",
        )
    return _loaded(path, "private", kind, lambda: serialization.load_pem_private_key(pem, None))


def _public_key(path: Path) -> Any:
    """The public key in a PEM file, as securesystemslib has it. Raises ReleaseError."""
    serialization = _library("cryptography.hazmat.primitives.serialization")
    kind = _library("cryptography.hazmat.primitives.asymmetric.ed25519").Ed25519PublicKey
    pem = _read_key(path, "public")
    key = _loaded(path, "public", kind, lambda: serialization.load_pem_public_key(pem))
    return _library("securesystemslib.signer").SSlibKey.from_crypto(key)


def _loaded(path: Path, word: str, kind: type[Any], load: Any) -> Any:
    try:
        key = load()
    except Exception as error:
        # ValueError, TypeError, UnsupportedAlgorithm and what else OpenSSL makes of a damaged file.
        raise ReleaseError(
            f"the {word} key cannot be read",
            where=str(path),
            expected=f"an Ed25519 {word} key in PEM",
            actual=f"{type(error).__name__}: {error}".splitlines()[0],
            remedy=_MAKE_KEY,
        ) from error
    if not isinstance(key, kind):
        raise ReleaseError(
            f"the {word} key is of another kind",
            where=str(path),
            expected=f"an Ed25519 {word} key",
            actual=type(key).__name__.removesuffix("PrivateKey").removesuffix("PublicKey").lstrip("_"),
            remedy=_MAKE_KEY,
        )
    return key


def _read_key(path: Path, word: str) -> bytes:
    """The text of a PEM file with a key of a kind, `private` or `public`. Raises ReleaseError."""
    try:
        with path.open("rb") as file:
            pem = file.read(1 << 20)
    except OSError as error:
        raise ReleaseError(
            f"the {word} key cannot be read", where=str(path), actual=error.strerror, remedy=_MAKE_KEY
        ) from error
    other = "public" if word == "private" else "private"
    if f"{other.upper()} KEY-----".encode() in pem:
        raise ReleaseError(
            f"this is a {other} key",
            where=str(path),
            expected=f"the {word} key",
            remedy="name the other file" if word == "private" else "openssl pkey -in KEY.pem -pubout -out PUB.pem",
        )
    return pem


def _library(name: str) -> ModuleType:
    """A module of what the extra `release` brings. Raises ReleaseError where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ReleaseError(
            "what signs releases is not installed",
            expected="the package securesystemslib, with cryptography",
            actual=str(error),
            remedy="pip install 'PATH/OF/KILN[release]'",
        ) from error


def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all. Raises StateError."""
    new = path.with_name(f"{path.name}.new")
    try:
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise os_failure("the signature cannot be written", error, path) from error
