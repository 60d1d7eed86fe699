"""Reads the Python files of the working tree: which there are, and what each imports."""

import ast
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# The folders whose Python files are checked; build_defs and tools/bootstrap run without Bazel, too.
TOP_LEVEL = ("build_defs", "compile_dag", "compile_hlo", "lang_core", "tests", "tools", "transformer_core")


class Import(NamedTuple):
    """One imported module.

    Attributes:
        module: dotted and absolute; of ``from a import b`` it is ``a.b`` where that is a module of the tree.
        line: of the statement, from 1.
        local: whether it stands inside a function.
    """

    module: str
    line: int
    local: bool


def workspace_root() -> Path:
    """The source tree that this test runs from, reached through the link in its runfiles."""
    root = Path(__file__).resolve().parents[2]
    if not (root / "WORKSPACE").is_file():
        raise FileNotFoundError(f"{root} is no workspace: run this target with the tag `local`, not in a sandbox")
    return root


def python_files(root: Path) -> list[str]:
    """The Python files below ``root``'s top-level packages, relative to it, sorted."""
    found: list[str] = []
    for top in TOP_LEVEL:
        for folder, folders, files in os.walk(root / top):
            folders[:] = [f for f in folders if not f.startswith((".", "__pycache__"))]
            found += [str(Path(folder, f).relative_to(root)) for f in files if f.endswith(".py")]
    return sorted(found)


def module_name(path: str) -> str:
    """The dotted name of a file: `a/b.py` is a.b, `a/__init__.py` is a."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports_of(source: str, modules: frozenset[str] = frozenset()) -> list[Import]:
    """The imports of a Python source, in its order; relative ones are rejected.

    Args:
        source: its text.
        modules: names of the tree's modules, to tell `from package import module` from an imported name.
    """
    return list(_imports_in(ast.parse(source), modules, local=False))


def _imports_in(node: ast.AST, modules: frozenset[str], *, local: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, local)
        elif isinstance(child, ast.ImportFrom):
            if child.level or child.module is None:
                raise SyntaxError(f"line {child.lineno}: relative import; write the whole name")
            named = [f"{child.module}.{alias.name}" for alias in child.names]
            for module in dict.fromkeys(n if n in modules else child.module for n in named):
                yield Import(module, child.lineno, local)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _imports_in(child, modules, local=local or inside)
