"""The packages that docs/stability.md promises are those that pages, notebooks and the example package import."""

import re
from pathlib import Path
from typing import Final

from tests.layering._layers import LAYERS
from tools.docs.site import rooms

_ROOT: Final = Path(__file__).resolve().parents[2]
_IMPORT: Final = re.compile(rf"(?:from|import) ((?:{'|'.join(LAYERS)})(?:\.[a-z]\w*)*)\b")
_ROW: Final = re.compile(r"^\| `(\w+)` \| (`[^|]*`) \|$", re.MULTILINE)
_READERS: Final = ("*.md", "*/README.md", "docs/*.md", "docs/notebooks/*.ipynb", "examples/acme/**/*.py")


def _stable() -> dict[str, list[str]]:
    page = (_ROOT / "docs/stability.md").read_text(encoding="utf-8")
    return {wheel: re.findall(r"`([^`]+)`", names) for wheel, names in _ROW.findall(page)}


def _imported() -> set[str]:
    files = [file for pattern in _READERS for file in _ROOT.glob(pattern)]
    return {name for file in files for name in _IMPORT.findall(file.read_text(encoding="utf-8"))}


def test_each_wheel_has_a_row_with_packages_that_have_public_names() -> None:
    known = {room.name for room in rooms(_ROOT)}
    assert set(_stable()) == set(LAYERS)
    for wheel, names in _stable().items():
        assert names == sorted(names)
        assert {name.partition(".")[0] for name in names} == {wheel}
        assert set(names) <= known


def test_the_stable_packages_are_those_that_readers_import() -> None:
    stable = {name for names in _stable().values() for name in names}
    assert stable == _imported() | set(LAYERS)
