"""Measures the tree: sizes of files and functions, public names, import depth and circles, docstrings, BUILD lines."""

import ast
import functools
import re
import statistics
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.layering._layers import LAYERS
from tests.layering._sources import Import, imports_of, module_name, python_files

_BANNED_OPENING: Final = re.compile(r"(What|Of|As|Whether|Who|Where|In which)\b")
_BANNED_NAMES: Final = frozenset({"found", "each"})

Graph = Mapping[str, Collection[str]]
"""The modules that each module imports."""


class Finding(NamedTuple):
    """Line of a file that breaks a rule.

    Attributes:
        path: relative to the tree's root.
        line: number, from 1.
        text: docstring's first line, or name.
    """

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


class Package(NamedTuple):
    """Measures of one top-level package, tests left out.

    Attributes:
        name: of the package.
        files: number of Python files.
        lines: sum of their lines.
        public: number of names in the ``__all__`` of its rooms.
        depth: modules on the longest chain of imports that starts in it.
        median_file: lines.
        greatest_file: lines.
        median_function: lines without docstring, blank lines and comments.
    """

    name: str
    files: int
    lines: int
    public: int
    depth: int
    median_file: float
    greatest_file: int
    median_function: float


class Tree:
    """Python files of a workspace, parsed once.

    Args:
        root: folder of the workspace.
    """

    def __init__(self, root: Path) -> None:
        self.root: Final = root
        self.texts: Final = {path: (root / path).read_text() for path in python_files(root)}
        self.syntax: Final = {path: ast.parse(text) for path, text in self.texts.items()}

    def lines(self, path: str) -> int:
        """Returns the number of lines of a file."""
        return self.texts[path].count("\n")

    @functools.cached_property
    def imports(self) -> Graph:
        """Modules of the tree that each module imports, below ``if TYPE_CHECKING:`` and by ``import_module`` too."""
        graph = self._graph(typing=True)
        return {module: {*graph[module], *self._deferred(module)} & graph.keys() for module in graph}

    @functools.cached_property
    def runtime_imports(self) -> Graph:
        """Modules of the tree that each module imports when it runs."""
        return self._graph(typing=False)

    def _graph(self, *, typing: bool) -> Graph:
        modules = frozenset(map(module_name, self.texts))

        def counts(item: Import) -> bool:
            return item.module in modules and (typing or not item.typing)

        return {
            module_name(path): {item.module for item in filter(counts, imports_of(text, modules))}
            for path, text in self.texts.items()
        }

    def _deferred(self, module: str) -> Iterator[str]:
        """Returns the modules that a module imports by name, as ``importlib.import_module("...")``."""
        path = self._paths[module]
        if "import_module" not in self.texts[path]:
            return
        for node in ast.walk(self.syntax[path]):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "import_module"
            ):
                yield from (str(given.value) for given in node.args if isinstance(given, ast.Constant))

    @functools.cached_property
    def _paths(self) -> Mapping[str, str]:
        return {module_name(path): path for path in self.texts}

    def package(self, name: str) -> Package:
        """Returns the measures of a top-level package."""
        paths = [path for path in self.texts if path.startswith(f"{name}/") and not path.endswith("_test.py")]
        sizes = [self.lines(path) for path in paths]
        functions = [size for path in paths for size in function_lines(self.texts[path], self.syntax[path])]
        depths = import_depths(self.runtime_imports)
        return Package(
            name,
            len(paths),
            sum(sizes),
            sum(len(public_names(self.syntax[path])) for path in paths if path.endswith("__init__.py")),
            max(depths[module_name(path)] for path in paths),
            statistics.median(sizes),
            max(sizes),
            statistics.median(functions),
        )


def public_names(tree: ast.Module) -> list[str]:
    """Returns the public names of a room's ``__init__.py``, sorted.

    They are the names that it imports from our packages, or those of ``__all__`` if it has one because it makes names
    itself.
    """
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(x, ast.Name) and x.id == "__all__" for x in node.targets):
            return sorted(map(str, ast.literal_eval(node.value)))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    ours = (node for node in imports if (node.module or "").partition(".")[0] in (*LAYERS, "tools"))
    names = {alias.asname or alias.name for node in ours for alias in node.names}
    return sorted(name for name in names if not name.startswith("_") and name != "export_lazily")


def circles(graph: Graph) -> list[list[str]]:
    """Returns the groups of modules that import each other, in Tarjan's order, each sorted."""
    return [sorted(group) for group in _components(graph) if len(group) > 1 or group[0] in graph[group[0]]]


def _components(graph: Graph) -> Iterator[list[str]]:
    """Yields the strongly connected components, those that import nothing else first (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> Iterator[list[str]]:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in index:
                yield from visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            start = stack.index(module)
            yield stack[start:]
            del stack[start:]

    for module in sorted(graph):
        if module not in index:
            yield from visit(module)


def import_depths(graph: Graph) -> dict[str, int]:
    """Returns the modules on the longest chain of imports from each module; a circle counts as one module."""
    depths: dict[str, int] = {}
    for group in _components(graph):
        below = (depths[other] for module in group for other in graph[module] if other not in group)
        depths |= dict.fromkeys(group, 1 + max(below, default=0))
    return depths


def function_lines(text: str, tree: ast.Module) -> list[int]:
    """Returns the lines of each function: without docstring, blank lines, comments, and functions inside."""
    lines = text.splitlines()
    return [_own_lines(node, lines) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def _own_lines(node: ast.FunctionDef, lines: list[str]) -> int:
    skipped = set[int]()
    if ast.get_docstring(node) is not None:
        skipped.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef) and inner is not node:
            skipped.update(range(inner.lineno, (inner.end_lineno or 0) + 1))
    numbers = range(node.lineno, (node.end_lineno or 0) + 1)
    return sum(number not in skipped and lines[number - 1].strip()[:1] not in ("", "#") for number in numbers)


def banned_docstrings(tree: Tree) -> list[Finding]:
    """Returns the docstrings that open with a word which makes them a fragment."""
    return [
        Finding(path, getattr(node, "lineno", 1), text.splitlines()[0])
        for path, syntax in tree.syntax.items()
        for node in ast.walk(syntax)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and _BANNED_OPENING.match(text := ast.get_docstring(node) or "")
    ]


def banned_bindings(tree: Tree) -> list[Finding]:
    """Returns the places that bind a name which says nothing of its value."""
    return [
        Finding(path, getattr(node, "lineno", 1), name)
        for path, syntax in tree.syntax.items()
        for node in ast.walk(syntax)
        if (name := _bound_name(node)) in _BANNED_NAMES
    ]


def _bound_name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return node.arg if isinstance(node, ast.arg) else None


def calls_of(tree: Tree, module: str, names: Collection[str]) -> list[Finding]:
    """Returns the uses of functions of a module in product packages: as its attributes, or imported by name."""
    return [
        Finding(path, getattr(node, "lineno", 1), f"{module}.{name}")
        for path, syntax in tree.syntax.items()
        if path.split("/")[0] in LAYERS
        for node in ast.walk(syntax)
        for name in _names_of(node, module)
        if name in names
    ]


def _names_of(node: ast.AST, module: str) -> list[str]:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == module:
        return [node.attr]
    if isinstance(node, ast.ImportFrom) and node.module == module:
        return [alias.name for alias in node.names]
    return []


def build_lines(root: Path) -> int:
    """Returns the lines of all BUILD files."""
    return sum(path.read_text().count("\n") for path in build_files(root))


def build_files(root: Path) -> list[Path]:
    """Returns the BUILD files of the tree, in any order, without those of other workspaces in it."""
    folders = [path for path in root.iterdir() if path.is_dir() and not path.name.startswith((".", "bazel-"))]
    files = [file for folder in folders for file in folder.rglob("BUILD.bazel")]
    return [root / "BUILD.bazel", *(file for file in files if not (file.parent / "WORKSPACE").exists())]
