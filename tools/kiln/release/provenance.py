"""The statement beside a release: an in-toto Statement v1 that says by SLSA's provenance v1 of what the tar was made.

https://in-toto.io/Statement/v1, https://slsa.dev/provenance/v1. It names no time and no machine, so that whoever makes
the release again gets the same one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import STATEMENT_TYPE_URI, Statement
from in_toto_attestation.v1.statement_pb2 import Statement as Message

from kiln.errors import ReleaseError
from kiln.release.buildinfo import python_abi
from kiln.release.documents import Package, Shape, read_json, write_json
from kiln.release.plan import ReleasePlan, Source

PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:kiln:release:v1"
BUILDER = "urn:kiln:doit-release"

_TAKE_ANEW = "take the release anew from where it was published"


@dataclass(frozen=True, kw_only=True)
class StatedTool:
    """A tool as the statement names it."""

    name: str
    version: str
    sha256: str
    level: str


@dataclass(frozen=True, kw_only=True)
class ProvenanceStatement:
    """The statement, read."""

    subject: str
    """kernels-1.2.0.tar"""
    sha256: str
    """of the subject"""
    parameters: Mapping[str, Any]
    """library, version, part, targets, host and manifest: what the release was asked for"""
    kiln_version: str
    sources: tuple[Source, ...]
    tools: tuple[StatedTool, ...]
    packages: tuple[Package, ...]


_DEPENDENCY: Shape = {
    "name": str,
    "uri?": str,
    "digest?": {"sha256": str},
    "annotations": {"kind": str, "version?": str, "level?": str, "usedFor?": str},
}
_SHAPE: Shape = {
    "_type": str,
    "subject": [{"name": str, "digest": {"sha256": str}}],
    "predicateType": str,
    "predicate": {
        "buildDefinition": {
            "buildType": str,
            "externalParameters": {
                "library": str,
                "version": str,
                "part": [str],
                "targets": [str],
                "host": str,
                "manifest": str,
            },
            "internalParameters": {"locked": bool, "python": str, "kilnSha256": str},
            "resolvedDependencies": [_DEPENDENCY],
        },
        "runDetails": {"builder": {"id": str, "version": {"kiln": str}}},
    },
}


def write_statement(plan: ReleasePlan, sha256: str, used: Sequence[Package]) -> str:
    """The statement on the tar with this digest; `used` are the Python packages that took part."""
    subject = ResourceDescriptor(name=f"{plan.names.stem}.tar", digest={"sha256": sha256})
    dependencies = [
        *(
            ResourceDescriptor(name=source.name, digest={"sha256": source.sha256}, annotations={"kind": "source"})
            for source in plan.sources
        ),
        *(
            ResourceDescriptor(
                name=tool.name,
                digest={"sha256": tool.sha256},
                annotations={
                    "kind": "tool",
                    "version": tool.version,
                    "level": tool.level,
                    "usedFor": tool.used_for,
                },
            )
            for tool in plan.tools
        ),
        *(
            ResourceDescriptor(
                name=package.name, uri=package.purl, annotations={"kind": "package", "version": package.version}
            )
            for package in used
        ),
    ]
    predicate = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {
                "library": plan.library,
                "version": plan.version,
                "part": list(plan.part),
                "targets": list(plan.targets),
                "host": plan.host,
                "manifest": plan.manifest,
            },
            "internalParameters": {
                "locked": plan.is_locked,
                "python": python_abi(),
                "kilnSha256": plan.kiln_sha256,
            },
            "resolvedDependencies": [MessageToDict(each.pb) for each in dependencies],
        },
        "runDetails": {"builder": {"id": BUILDER, "version": {"kiln": plan.kiln_version}}},
    }
    statement = Statement([subject.pb], PREDICATE_TYPE, predicate)
    statement.validate()
    # The tables of a message have no order of their own.
    return write_json(json.loads(json.dumps(MessageToDict(statement.pb), sort_keys=True)))


def read_statement(text: str, document: str = "the statement") -> ProvenanceStatement:
    """Raises ReleaseError for what is no Statement v1 with SLSA's provenance v1, or none that `write_statement` writes.

    `document` is the name of its file.
    """
    data = read_json(text, {"*": object}, document)
    try:
        message = ParseDict(data, Message())
        Statement.copy_from_pb(message).validate()
        if message.predicate_type != PREDICATE_TYPE:
            raise ValueError(f"predicateType is {message.predicate_type!a}, and not {PREDICATE_TYPE!a}")
        ParseDict(data["predicate"], Provenance())
    except (ParseError, ValueError, TypeError) as error:
        raise ReleaseError(
            f"{document} is no in-toto Statement with SLSA provenance: {error}",
            where=document,
            expected=f"{STATEMENT_TYPE_URI} with {PREDICATE_TYPE}",
            remedy=_TAKE_ANEW,
        ) from error
    data = read_json(text, _SHAPE, document)
    definition = data["predicate"]["buildDefinition"]
    if len(data["subject"]) != 1 or definition["buildType"] != BUILD_TYPE:
        raise ReleaseError(
            f"{document} is about something else than one release of Kiln's",
            where=document,
            expected=f"one subject, and the buildType {BUILD_TYPE}",
            actual=f"{len(data['subject'])} subjects, and the buildType {definition['buildType']}",
            remedy=_TAKE_ANEW,
        )
    (subject,) = data["subject"]
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for each in definition["resolvedDependencies"]:
        by_kind.setdefault(each["annotations"]["kind"], []).append(each)
    return ProvenanceStatement(
        subject=subject["name"],
        sha256=subject["digest"]["sha256"],
        parameters=definition["externalParameters"],
        kiln_version=data["predicate"]["runDetails"]["builder"]["version"]["kiln"],
        sources=tuple(Source(name=each["name"], sha256=_sha256(each)) for each in by_kind.get("source", ())),
        tools=tuple(
            StatedTool(
                name=each["name"],
                version=each["annotations"].get("version", ""),
                sha256=_sha256(each),
                level=each["annotations"].get("level", ""),
            )
            for each in by_kind.get("tool", ())
        ),
        packages=tuple(
            Package(name=each["name"], version=each["annotations"].get("version", ""))
            for each in by_kind.get("package", ())
        ),
    )


def _sha256(dependency: Mapping[str, Any]) -> str:
    """Empty where there is none."""
    digest: Mapping[str, str] = dependency.get("digest", {})
    return digest.get("sha256", "")
