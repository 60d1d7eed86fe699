"""Reads the Python files of the working tree: which there are, and what each imports."""

import ast
import fnmatch
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# The folders whose Python files are checked; build_defs and tools/bootstrap run without Bazel, too.
TOP_LEVEL = (
    "autotune",
    "build_defs",
    "compile_dag",
    "compile_hlo",
    "generation",
    "lang_core",
    "run_iree",
    "run_jax",
    "runtime",
    "tapeline",
    "tests",
    "tools",
    "transformer_core",
)

# Packages that are nothing but a name in common: `from iree import runtime` imports iree.runtime.
NAMESPACES = frozenset({"iree"})


class Import(NamedTuple):
    """One imported module.

    Attributes:
        module: dotted and absolute; of ``from a import b`` it is ``a.b`` where that is a module of the tree.
        line: of the statement, from 1.
        local: whether it stands inside a function.
        typing: whether it stands below `if TYPE_CHECKING:`, and does not happen at run time. Imports of a package that
            calls ``export_lazily`` happen when a name is first used.
    """

    module: str
    line: int
    local: bool = False
    typing: bool = False


def workspace_root() -> Path:
    """The source tree that this test runs from, reached through the link in its runfiles."""
    root = Path(__file__).resolve().parents[2]
    if not (root / "WORKSPACE").is_file():
        raise FileNotFoundError(f"{root} is no workspace: run this target with the tag `local`, not in a sandbox")
    return root


def runs_outside_bazel(name: str) -> bool:
    """True if a file runs other people's models, whose packages are too large for the lock: to make goldens, say."""
    patterns = ("make_*goldens.py", "draw_*.py", "run_*_reference.py", "run_*_client.py")
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def python_files(root: Path) -> list[str]:
    """The Python files below ``root``'s top-level packages, relative to it, sorted; see runs_outside_bazel."""
    paths: list[str] = []
    for top in TOP_LEVEL:
        for folder, folders, files in os.walk(root / top):
            folders[:] = [f for f in folders if not f.startswith((".", "__pycache__"))]
            sources = [f for f in files if f.endswith(".py") and not runs_outside_bazel(f)]
            paths += [Path(folder, f).relative_to(root).as_posix() for f in sources]
    return sorted(paths)


def module_name(path: str) -> str:
    """The dotted name of a file: `a/b.py` is a.b, `a/__init__.py` is a."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports_of(source: str, modules: frozenset[str] = frozenset()) -> list[Import]:
    """The imports of a Python source, in its order; relative ones are rejected.

    Args:
        source: its text.
        modules: names of the tree's modules, to tell `from package import module` from an imported name.
    """
    tree = ast.parse(source)
    return list(_imports_in(tree, modules, Import("", 0), typing=not any(map(_exports_lazily, tree.body))))


def _exports_lazily(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "export_lazily"


def _imports_in(node: ast.AST, modules: frozenset[str], context: Import, *, typing: bool) -> Iterator[Import]:
    """The imports below ``node``; ``context`` has the flags that hold there, ``typing`` that of `if TYPE_CHECKING:`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield context._replace(module=alias.name, line=child.lineno)
        elif isinstance(child, ast.ImportFrom):
            if child.level or child.module is None:
                raise SyntaxError(f"line {child.lineno}: relative import; write the whole name")
            named = [f"{child.module}.{alias.name}" for alias in child.names]
            is_module = child.module in NAMESPACES
            for module in dict.fromkeys(n if is_module or n in modules else child.module for n in named):
                yield context._replace(module=module, line=child.lineno)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _imports_in(child, modules, context._replace(local=True), typing=typing)
        elif isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            yield from _imports_in(child, modules, context._replace(typing=typing), typing=typing)
        elif not isinstance(child, ast.expr):  # most of a tree, and no statement is in one
            yield from _imports_in(child, modules, context, typing=typing)
