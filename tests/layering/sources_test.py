import ast
from pathlib import Path

import pytest

from tests.layering._measures import public_names
from tests.layering._sources import Import, imports_of, module_name, python_files, workspace_root


def test_imports_are_found_wherever_they_stand() -> None:
    source = """
import a.b, c
from d import e, f
if TYPE_CHECKING:
    from g.h import i
def function():
    import j
class K:
    import l
    async def method(self):
        from m import n
"""
    assert imports_of(source) == [
        Import("a.b", 2),
        Import("c", 2),
        Import("d", 3),
        Import("g.h", 5, typing=True),
        Import("j", 7, local=True),
        Import("l", 9),
        Import("m", 11, local=True),
    ]


def test_lazy_exports_are_imports_at_run_time() -> None:
    lazy = "if TYPE_CHECKING:\n    from a._b import c\nexport_lazily(__name__)\n"
    assert imports_of(lazy) == [Import("a._b", 2)]
    assert imports_of(lazy.replace("export_lazily", "other")) == [Import("a._b", 2, typing=True)]


def test_no_lazy_name_is_that_of_a_module() -> None:
    """A module that is imported takes the place of a package's name."""
    root = workspace_root()
    for path in python_files(root):
        text = (root / path).read_text(encoding="utf-8")
        if "export_lazily(__name__)" not in text:
            continue
        modules = {entry.stem for entry in (root / path).parent.iterdir() if entry.suffix == ".py" or entry.is_dir()}
        assert not modules & set(public_names(ast.parse(text))), path


def test_an_imported_module_is_told_from_an_imported_name() -> None:
    source = "from a import b, c, D"
    assert imports_of(source, frozenset({"a", "a.b", "a.c"})) == [
        Import("a.b", 1),
        Import("a.c", 1),
        Import("a", 1),
    ]


def test_what_a_namespace_holds_are_modules() -> None:
    assert imports_of("from iree import runtime") == [Import("iree.runtime", 1)]


def test_relative_imports_are_rejected() -> None:
    with pytest.raises(SyntaxError, match="line 2: relative import; write the whole name"):
        imports_of("\nfrom . import a")


def test_files_are_found_in_the_top_level_packages_only(tmp_path: Path) -> None:
    ignored = ("lang_core/__pycache__/x.py", "lang_core/.venv/y.py", "other/z.py", "tests/make_some_goldens.py")
    for path in ("lang_core/ops/_add.py", *ignored):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    assert python_files(tmp_path) == ["lang_core/ops/_add.py"]


@pytest.mark.parametrize(("path", "name"), [("a/b/_c.py", "a.b._c"), ("a/b/__init__.py", "a.b")])
def test_module_name(path: str, name: str) -> None:
    assert module_name(path) == name
