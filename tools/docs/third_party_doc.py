"""Writes docs/third-party.md and third_party/sbom.cdx.json: ``bazel run //tools/docs:third_party_doc``.

Both say which packages come with the wheels, their versions and their licences. Licences are read from the packages'
own metadata, so the packages have to be installed.
"""

import hashlib
import importlib.metadata
import json
import os
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tapeline.cli import VERSION
from tools.docs._lock import LockedPackage, read_lock, shipped

LOCK: Final = Path("third_party/requirements_lock.txt")
REQUIREMENTS: Final = Path("third_party/requirements.in")
PAGE: Final = Path("docs/third-party.md")
SBOM: Final = Path("third_party/sbom.cdx.json")
VENDORED: Final = Path("tapeline/server/page/vendor/packages.json")

_HEADER: Final = """\
# Packages of others

This page is generated: run `bazel run //tools/docs:third_party_doc`. It lists what
`pip install 'tapeline[all]'` brings ([start.md](start.md#extras) says what an installation without extras leaves out),
at the versions that the tests ran with, and under which licence each package comes. Its own text of the licence is in
the package's `*.dist-info` folder after the installation. The same list for tools is
[third_party/sbom.cdx.json](../third_party/sbom.cdx.json) (CycloneDX 1.6).

For Tapeline itself no licence has been chosen: the tree has no `LICENSE`, and neither the metadata of its wheels nor
the SBOM names one. That is its owners' to decide.

| package | version | licence | because of |
|---|---|---|---|
"""
_VENDORED_HEADER: Final = """
## Files of others in our wheels

The server's page uses these files. They are byte for byte those of the npm registry's packages; the texts of their
licences lie beside them, in `tapeline/server/page/vendor`.

| package | version | licence | taken under | file | sha256 |
|---|---|---|---|---|---|
"""
# The SPDX name of what a package's metadata says in other words.
_SPDX: Final = {
    "Apache Software License": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "BSD": "BSD-3-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Dual License": "Apache-2.0 OR BSD-3-Clause",
}
# Packages whose metadata has the whole text of the licence in place of its name.
_TEXTS: Final = {
    "contourpy": "BSD-3-Clause",
    "kiwisolver": "BSD-3-Clause",
    "cycler": "BSD-3-Clause",
    "matplotlib": "PSF-2.0",
}
_LONGEST_NAME: Final = 60


@dataclass(frozen=True, slots=True)
class VendoredPackage:
    """Package of the npm registry of which our wheels hold one file.

    Attributes:
        name: its name in the registry.
        version: its version.
        licence: SPDX expression of its licence.
        taken_as: the licence that we take it under.
        file: name of the file in our tree.
        path_in_package: path of the file in the package.
        licence_file: name of the file with the text of the licence.
        sha256: hash of the file.
    """

    name: str
    version: str
    licence: str
    taken_as: str
    file: str
    path_in_package: str
    licence_file: str
    sha256: str

    @property
    def purl(self) -> str:
        """Address of the package."""
        return f"pkg:npm/{self.name}@{self.version}"


def read_vendored(path: Path) -> list[VendoredPackage]:
    """Returns the packages of which the wheels hold files.

    Raises:
        ValueError: a file is not the one of the list.
    """
    packages = [VendoredPackage(**fields) for fields in json.loads(path.read_text(encoding="utf-8"))["packages"]]
    for package in packages:
        actual = hashlib.sha256((path.parent / package.file).read_bytes()).hexdigest()
        if actual != package.sha256 or not (path.parent / package.licence_file).is_file():
            raise ValueError(f"{path.parent / package.file}: sha256 is {actual}; {path.name} has {package.sha256}")
    return packages


def render_page(
    licences: dict[str, str], packages: list[LockedPackage], vendored: Sequence[VendoredPackage] = ()
) -> str:
    """Returns the page.

    Args:
        licences: SPDX expression by package.
        packages: that come with the wheels.
        vendored: packages of which the wheels hold files.
    """
    names = {package.name for package in packages}
    rows = []
    for package in packages:
        causes = ["Tapeline"] * package.direct + [name for name in package.wanted_by if name in names]
        rows.append(f"| {package.name} | {package.version} | {licences[package.name]} | {', '.join(causes)} |")
    files = [
        f"| {one.name} | {one.version} | {one.licence} | {one.taken_as} | `{one.path_in_package}` | `{one.sha256}` |"
        for one in vendored
    ]
    return _HEADER + "\n".join(rows) + "\n" + (_VENDORED_HEADER + "\n".join(files) + "\n" if files else "")


def render_sbom(
    licences: dict[str, str], packages: list[LockedPackage], vendored: Sequence[VendoredPackage] = ()
) -> str:
    """Returns the software bill of materials in CycloneDX 1.6; its serial number follows from its content."""
    components = [_component(package, licences[package.name]) for package in packages]
    components += [_vendored_component(package) for package in vendored]
    root = f"pkg:pypi/tapeline@{VERSION}"
    by_name = {package.name: _purl(package) for package in packages}
    wants: dict[str, list[str]] = {root: [_purl(package) for package in packages if package.direct]}
    wants[root] += [package.purl for package in vendored]
    wants |= {package.purl: [] for package in vendored}
    for package in packages:
        wants.setdefault(_purl(package), [])
        for name in package.wanted_by:
            if name in by_name:
                wants.setdefault(by_name[name], []).append(_purl(package))
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components))}",
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": root, "name": "tapeline", "version": VERSION}},
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": sorted(wants[ref])} for ref in sorted(wants)],
    }
    return json.dumps(document, indent=2) + "\n"


def licence_of(name: str) -> str:
    """Returns the SPDX expression of an installed package's licence.

    Raises:
        ValueError: its metadata says none, or one that this file does not know.
    """
    if name in _TEXTS:
        return _TEXTS[name]
    metadata = importlib.metadata.metadata(name)
    if metadata["License-Expression"]:
        return metadata["License-Expression"]
    classifiers = [
        value.split(" :: ")[-1] for value in metadata.get_all("Classifier", []) if value.startswith("License")
    ]
    for said in (*classifiers, (metadata["License"] or "").split("\n")[0]):
        if said in _SPDX:
            return _SPDX[said]
        if re.fullmatch(r"[A-Za-z0-9.+-]+(?: (?:AND|OR) [A-Za-z0-9.+-]+)*", said) and said not in ("UNKNOWN", "OSI"):
            return said
    raise ValueError(f"{name}: licence {classifiers or metadata['License']!r:.{_LONGEST_NAME}}: add it to this file")


def main() -> None:
    """Writes both files."""
    root = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."))
    packages = list(shipped(read_lock(root / LOCK), root / REQUIREMENTS))
    licences = {package.name: licence_of(package.name) for package in packages}
    vendored = read_vendored(root / VENDORED)
    (root / PAGE).write_text(render_page(licences, packages, vendored), encoding="utf-8")
    (root / SBOM).write_text(render_sbom(licences, packages, vendored), encoding="utf-8")


def _component(package: LockedPackage, licence: str) -> dict[str, Any]:
    compound = " " in licence
    return {
        "type": "library",
        "bom-ref": _purl(package),
        "name": package.name,
        "version": package.version,
        "purl": _purl(package),
        "licenses": [{"expression": licence}] if compound else [{"license": {"id": licence}}],
    }


def _vendored_component(package: VendoredPackage) -> dict[str, Any]:
    compound = " " in package.licence
    return {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
        "licenses": [{"expression": package.licence}] if compound else [{"license": {"id": package.licence}}],
        "hashes": [{"alg": "SHA-256", "content": package.sha256}],
    }


def _purl(package: LockedPackage) -> str:
    return f"pkg:pypi/{package.name}@{package.version}"


if __name__ == "__main__":
    main()
