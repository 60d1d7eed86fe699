"""Every kind of error is explained, and a command says where."""

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest

from lang_core import CheckpointError
from tapeline.command import COMMANDS, ERRORS_PAGE, EXPLANATIONS, load_command, main, see_also
from tests.layering._layers import LAYERS
from tests.layering._sources import workspace_root

_ROOT: Final = workspace_root()


def _classes() -> Iterator[ast.ClassDef]:
    for package in LAYERS:
        for path in sorted((_ROOT / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if "Error(" in text and not path.name.endswith(("_test.py", "_testing.py")):
                yield from (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef))


def _kinds() -> set[str]:
    """Returns the names of TapelineError and of all classes below it."""
    bases = {node.name: {ast.unparse(base) for base in node.bases} for node in _classes()}
    kinds = {"TapelineError"}
    while more := {name for name, own in bases.items() if own & kinds} - kinds:
        kinds |= more
    return kinds


def test_every_kind_has_its_section() -> None:
    kinds = _kinds()
    assert {"InputError", "HubError", "UnreachableError"} <= kinds
    assert kinds == set(EXPLANATIONS)


def test_links_lead_to_sections() -> None:
    anchors = re.findall(r"^## (\w+)$", (_ROOT / ERRORS_PAGE).read_text(encoding="utf-8"), re.MULTILINE)
    assert anchors == list(EXPLANATIONS)
    assert len({anchor.lower() for anchor in anchors}) == len(anchors)


def test_pages_and_flags_of_explanations_exist() -> None:
    text = "\n".join(line for _, causes, cures in EXPLANATIONS.values() for line in (*causes, *cures))
    assert [page for page in set(re.findall(r"docs/[\w-]+\.md", text)) if not (_ROOT / page).is_file()] == []
    flags = {flag for name in COMMANDS for flag in load_command(name).FLAGS}
    assert set(re.findall(r"--(\w+)", text)) - {"help"} <= flags


def test_a_command_says_where_its_error_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--bundle=nowhere", "--prompt=a"]) == 2
    *_, said, seen = capsys.readouterr().err.splitlines()
    assert said.startswith("error: nowhere: there is no such directory")
    assert seen == "see: tapeline explain InputError, or docs/errors.md#inputerror"
    assert main(["explain", "inputerror"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("InputError: ")
    assert all(line in shown for line in EXPLANATIONS["InputError"].causes)


def test_a_kind_of_another_package_has_that_of_its_base() -> None:
    class AcmeError(CheckpointError):
        pass

    assert see_also(AcmeError("odd")).startswith("\nsee: tapeline explain CheckpointError, ")
    assert see_also(ZeroDivisionError()) == ""
