import importlib.metadata
import json
import re
from email.message import Message
from pathlib import Path

import pytest

from tools.docs import third_party_doc
from tools.docs._lock import read_lock, shipped
from tools.docs.third_party_doc import (
    LOCK,
    PAGE,
    REQUIREMENTS,
    SBOM,
    VENDORED,
    licence_of,
    read_vendored,
    render_page,
    render_sbom,
)

PACKAGES = list(shipped(read_lock(LOCK), REQUIREMENTS))
# Metadata needs every package installed, which a test does not; the page has what was read last.
_LOCKED_ROWS = PAGE.read_text().partition("\n## ")[0]
LICENCES = {row[1]: row[2] for row in re.finditer(r"(?m)^\| ([a-z0-9-]+) \| \d\S* \| (.+?) \|", _LOCKED_ROWS)}
FILES = read_vendored(VENDORED)


def test_the_page_and_the_bill_of_materials_are_those_of_the_lock() -> None:
    again = "run: bazel run //tools/docs:third_party_doc"
    assert set(LICENCES) == {package.name for package in PACKAGES}, again
    assert PAGE.read_text(encoding="utf-8") == render_page(LICENCES, PACKAGES, FILES), again
    assert SBOM.read_text(encoding="utf-8") == render_sbom(LICENCES, PACKAGES, FILES), again


def test_what_wheels_import_is_there_and_what_tests_import_is_not() -> None:
    direct = {package.name for package in PACKAGES if package.direct}
    assert {"numpy", "jax", "iree-base-compiler", "huggingface-hub"} <= direct
    names = {package.name for package in PACKAGES}
    assert "h11" in names, "uvicorn requires it"
    assert not {"pytest", "hypothesis", "mkdocs", "nbclient", "onnx"} & names


def test_every_dependency_is_a_component() -> None:
    bill = json.loads(SBOM.read_text())
    references = {component["bom-ref"] for component in bill["components"]}
    assert {"pkg:pypi/numpy@" + next(p.version for p in PACKAGES if p.name == "numpy")} <= references
    root = bill["metadata"]["component"]["bom-ref"]
    for entry in bill["dependencies"]:
        assert entry["ref"] in references | {root}
        assert set(entry["dependsOn"]) <= references
    reached = {name for entry in bill["dependencies"] for name in entry["dependsOn"]}
    assert reached == references


def test_a_vendored_file_that_was_changed_is_an_error(tmp_path: Path) -> None:
    for path in VENDORED.parent.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert read_vendored(tmp_path / VENDORED.name) == FILES
    with (tmp_path / FILES[0].file).open("a") as file:
        file.write(" ")
    with pytest.raises(ValueError, match=f"{FILES[0].file}: sha256 is"):
        read_vendored(tmp_path / VENDORED.name)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"License-Expression": "MIT AND Zlib"}, "MIT AND Zlib"),
        ({"Classifier": "License :: OSI Approved :: Apache Software License"}, "Apache-2.0"),
        ({"License": "BSD-2-Clause"}, "BSD-2-Clause"),
        ({"License": "MIT License\nand its whole text"}, "MIT"),
    ],
)
def test_licences_have_spdx_names(fields: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "metadata", lambda _: _metadata(fields))
    assert licence_of("some") == expected


def test_an_unknown_licence_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "metadata", lambda _: _metadata({"License": "Do as you like, but ask"}))
    with pytest.raises(ValueError, match="some: licence 'Do as you like, but ask': add it to this file"):
        licence_of("some")


def test_it_is_written_where_the_workspace_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vendored = [path.relative_to(VENDORED.parent) for path in VENDORED.parent.iterdir()]
    for path in (LOCK, REQUIREMENTS, *(VENDORED.parent / name for name in vendored)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path.read_text())
    (tmp_path / "docs").mkdir()
    monkeypatch.setenv("BUILD_WORKSPACE_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(third_party_doc, "licence_of", LICENCES.__getitem__)
    third_party_doc.main()
    assert (tmp_path / PAGE).read_text() == PAGE.read_text()
    assert (tmp_path / SBOM).read_text() == SBOM.read_text()


def _metadata(fields: dict[str, str]) -> Message:
    metadata = Message()
    for name, value in fields.items():
        metadata[name] = value
    return metadata
