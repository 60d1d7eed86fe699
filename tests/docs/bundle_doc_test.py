"""docs/bundle.md against a bundle: its Python is run, and every field of the two JSON files is on the page."""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import tapeline
from tests.docs._snippets import PAGES, Snippets, blocks_of

_NAME: Final = "docs/bundle.md"
_PAGE: Final = PAGES[_NAME]
_BLOCKS: Final = blocks_of(_NAME)
# Objects whose keys are names of the model's or of files, not fields.
_BY_NAME: Final = {"parameters", "sha256", "hashes", "targets", "producer", "files", "steps", "nonfinite"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of the page's example."""
    output = tmp_path_factory.mktemp("docs") / "demo-forward"
    tapeline.export("demo", output, entry_points=("forward",), sequence=16)
    return output


def test_the_page_does_what_it_says(bundle: Path) -> None:
    snippets = Snippets(_NAME)
    names = snippets.names
    shown = 0
    with contextlib.chdir(bundle.parent):
        for number, (kind, code) in enumerate(_BLOCKS):
            if kind == "python":
                output = snippets.run(code, f"block {number}")
                assert _BLOCKS[number + 1] == ("text", output), code
                shown += 1
    # What IREE made goes before the context that it needs, and that before the device.
    for name in ("forward", "context", "modules", "index", "device", "instance"):
        names.pop(name)
    assert shown == 3
    assert snippets.uncalled() == []


def _fields(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, list):
        for entry in value[:50]:
            yield from _fields(entry, name)
    elif isinstance(value, dict):
        for key, entry in value.items():
            if name in _BY_NAME and any(mark in key for mark in ".-/"):
                yield from _fields(entry)
            else:
                yield key
                yield from _fields(entry, key)


@pytest.mark.parametrize("file", ["kernel_config.json", "report.json"])
def test_every_field_is_on_the_page(bundle: Path, file: str) -> None:
    fields = set(_fields(json.loads((bundle / file).read_text())))
    assert {"kernel_config.json": "entry_points", "report.json": "phases"}[file] in fields
    missing = [field for field in sorted(fields) if not re.search(rf"(?<![\w-]){re.escape(field)}(?![\w-])", _PAGE)]
    assert not missing


def test_every_file_is_on_the_page(bundle: Path) -> None:
    for path in bundle.iterdir():
        name = re.sub(r"^module\.[a-z-]+\.vmfb$", "module.<target>.vmfb", path.name)
        assert f"`{name}`" in _PAGE
