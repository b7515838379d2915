"""bom.cdx.json: the software bill of materials, in CycloneDX 1.6: the files of a release, and what made them.

What made them is no part of the release, and has the scope `excluded`, which CycloneDX has for that. There is no time
stamp, and the serial number follows from the contents.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from kiln.digests import digest_json
from kiln.errors import ReleaseError
from kiln.release.documents import Entry, Package, Shape, read_json, write_json
from kiln.release.names import BOM
from kiln.release.plan import ReleasePlan

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:kiln:release:bom")

_PART = 200
"""components that are rendered at once"""
_TYPES = {"file": "file", "tool": "application", "package": "library"}
"""what a component's reference begins with -> its type"""

_LEVEL, _USED_FOR, _HOST, _TARGET = "kiln:level", "kiln:used-for", "kiln:host", "kiln:target"


@dataclass(frozen=True, kw_only=True)
class BomTool:
    """A tool as the SBOM names it."""

    name: str
    version: str
    sha256: str
    level: str


@dataclass(frozen=True, kw_only=True)
class BillOfMaterials:
    """bom.cdx.json, read."""

    library: str
    version: str
    serial_number: str
    serial_of_contents: str
    """what the serial number is to be, of all else that stands there"""
    files: Mapping[str, str]
    """path in the release -> sha256: all but the SBOM itself and SHA256SUMS"""
    tools: tuple[BomTool, ...]
    packages: tuple[Package, ...]


_PROPERTIES: Shape = [{"name": str, "value": str}]
_SHAPE: dict[str, Shape] = {
    "$schema": str,
    "bomFormat": str,
    "specVersion": str,
    "serialNumber": str,
    "version": int,
    "metadata": {
        "component": {"bom-ref": str, "type": str, "name": str, "version": str, "properties": _PROPERTIES},
        "tools": {"components": [{"*": object}]},
    },
    "components": [
        {
            "bom-ref": str,
            "type": str,
            "name": str,
            "version?": str,
            "scope?": str,
            "purl?": str,
            "hashes?": [{"alg": str, "content": str}],
            "properties?": _PROPERTIES,
        }
    ],
    "dependencies": [{"ref": str, "dependsOn?": [str]}],
}


def write_bom(plan: ReleasePlan, entries: Iterable[Entry], used: Sequence[Package]) -> str:
    """`entries` are all files but the SBOM and SHA256SUMS, and `used` the Python packages that took part."""
    library = Component(
        type=ComponentType.LIBRARY,
        name=plan.library,
        version=plan.version,
        bom_ref="library",
        properties=[
            Property(name=_HOST, value=plan.host),
            *(Property(name=_TARGET, value=target) for target in plan.targets),
        ],
    )
    kiln = Component(
        type=ComponentType.APPLICATION,
        name="kiln",
        version=plan.kiln_version,
        bom_ref="kiln",
        hashes=[_hash(plan.kiln_sha256)],
    )
    components = [
        *(
            Component(
                type=ComponentType.FILE,
                name=entry.path,
                bom_ref=f"file:{entry.path}",
                hashes=[_hash(entry.sha256)],
                properties=[Property(name=_LEVEL, value=entry.level)],
            )
            for entry in entries
        ),
        *(
            Component(
                type=ComponentType.APPLICATION,
                name=tool.name,
                version=tool.version or None,
                bom_ref=f"tool:{tool.name}",
                scope=ComponentScope.EXCLUDED,
                hashes=[_hash(tool.sha256)],
                properties=[
                    Property(name=_LEVEL, value=tool.level),
                    Property(name=_USED_FOR, value=tool.used_for),
                ],
            )
            for tool in plan.tools
        ),
        *(
            Component(
                type=ComponentType.LIBRARY,
                name=package.name,
                version=package.version,
                bom_ref=f"package:{package.name}",
                scope=ComponentScope.EXCLUDED,
                purl=PackageURL(type="pypi", name=package.name, version=package.version),
            )
            for package in used
        ),
    ]
    data = _rendered(Bom(metadata=BomMetaData(component=library, tools=ToolRepository(components=[kiln]))))
    del data["metadata"]["timestamp"]
    # In parts, for the time that the library takes grows with the square of the number of components in one.
    parts = (components[at : at + _PART] for at in range(0, len(components), _PART))
    rendered = {each["bom-ref"]: each for part in parts for each in _rendered(Bom(components=part))["components"]}
    references = [component.bom_ref.value for component in components]
    data["components"] = [rendered[reference] for reference in references]
    data["dependencies"] = [{"ref": "library", "dependsOn": references}, *({"ref": each} for each in references)]
    data["serialNumber"] = _serial_number(data)
    return write_json({key: data[key] for key in _SHAPE})


def _rendered(bom: Bom) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string())
    return data


def _serial_number(data: Mapping[str, Any]) -> str:
    """What follows from all else in the document."""
    rest = {key: value for key, value in data.items() if key != "serialNumber"}
    return uuid.uuid5(_NAMESPACE, digest_json(rest)).urn


def read_bom(text: str) -> BillOfMaterials:
    """Raises ReleaseError for what `write_bom` does not write."""
    data = read_json(text, _SHAPE, BOM)
    components = data["components"]
    known: set[str] = set()
    for at, each in enumerate(components):
        reference, kind = each["bom-ref"], each["bom-ref"].partition(":")[0]
        if reference in known or _TYPES.get(kind) != each["type"] or reference != f"{kind}:{each['name']}":
            raise ReleaseError(
                f"{BOM} has a component twice"
                if reference in known
                else f"{BOM} has a component that Kiln does not list",
                where=f"{BOM}: components[{at}]",
                expected="each file, tool and Python package once",
                actual=f"{each['type']} {each['name']!a}, called {reference!a}",
                remedy="take the release anew from where it was published",
            )
        known.add(reference)
    return BillOfMaterials(
        library=data["metadata"]["component"]["name"],
        version=data["metadata"]["component"]["version"],
        serial_number=data["serialNumber"],
        serial_of_contents=_serial_number(data),
        files={each["name"]: _sha256(each) for each in components if each["type"] == "file"},
        tools=tuple(
            BomTool(
                name=each["name"],
                version=each.get("version", ""),
                sha256=_sha256(each),
                level=_property(each, _LEVEL),
            )
            for each in components
            if each["bom-ref"].startswith("tool:")
        ),
        packages=tuple(
            Package(name=each["name"], version=each.get("version", ""))
            for each in components
            if each["bom-ref"].startswith("package:")
        ),
    )


def _hash(sha256: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=sha256)


def _sha256(component: Mapping[str, Any]) -> str:
    """Empty where there is none."""
    return next((each["content"] for each in component.get("hashes", ()) if each["alg"] == "SHA-256"), "")


def _property(component: Mapping[str, Any], name: str) -> str:
    return next((each["value"] for each in component.get("properties", ()) if each["name"] == name), "")
