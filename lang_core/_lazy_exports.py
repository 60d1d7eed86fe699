"""Packages whose names are imported when they are first used, so that a program loads only the parts that it uses."""

import ast
import importlib
import sys
from pathlib import Path
from typing import Any


def export_lazily(package: str) -> None:
    """Makes a package import its names when they are first used.

    The names are those that the package's ``__init__.py`` imports under ``if TYPE_CHECKING:``, where type checkers and
    editors read them; ``__all__`` and ``dir`` have them too. No name may be that of a module of the package, which
    would take its place.

    Args:
        package: ``__name__`` of the package that calls this.
    """
    module = sys.modules[package]
    sources = _sources(Path(module.__file__ or "").read_text(encoding="utf-8"))

    def import_name(name: str) -> Any:
        if name not in sources:  # Python adds a near name of __dir__ to the message
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        source, exported = sources[name]
        value = getattr(importlib.import_module(source), exported)
        setattr(module, name, value)
        return value

    module.__getattr__ = import_name
    vars(module)["__all__"] = sorted(sources)
    module.__dir__ = lambda: sorted({*(name for name in vars(module) if name.startswith("__")), *sources})


def _sources(text: str) -> dict[str, tuple[str, str]]:
    r"""Returns the module and the name there of each name that a text imports under ``if TYPE_CHECKING:``.

    >>> _sources("if TYPE_CHECKING:\n    from a._b import C, d as e")
    {'C': ('a._b', 'C'), 'e': ('a._b', 'd')}
    """
    return {
        alias.asname or alias.name: (node.module or "", alias.name)
        for block in ast.parse(text).body
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
