"""Reads the BUILD.bazel files of the working tree as far as Python targets go."""

import ast
import os
import posixpath
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.layering._sources import runs_outside_bazel

_PYTHON_RULES = ("py_library", "py_binary", "py_test", "py_tool", "py_pytest_test", "py_device_tests")

# Names that the macros of build_defs/python.bzl take where a call does not say it; a library is named as its folder.
_NAMES = {"py_pytest_test": "tests", "py_device_tests": "device_tests"}
_TOOL_DEPS = "//tapeline/program:program"

# Files that the macros take where a call does not say it.
_ALL_OF_FOLDER: Mapping[str, Callable[[str], bool]] = {
    "py_library": lambda file: not file.endswith(("_test.py", "_testing.py")) and not runs_outside_bazel(file),
    "py_pytest_test": lambda file: file.endswith("_test.py"),
}

# The distribution that provides a module, where it has another name: longest prefix first.
_DISTRIBUTIONS = {
    "re2": "google_re2",
    "PIL": "pillow",
    "yaml": "pyyaml",
    "absl": "absl_py",
    "griffe": "griffelib",
    "mkdocstrings_handlers": "mkdocstrings_python",
    "iree.compiler": "iree_base_compiler",
    "iree.runtime": "iree_base_runtime",
    "iree._runtime": "iree_base_runtime",
    "orbax": "orbax_checkpoint",
}


class Target(NamedTuple):
    """One Python target.

    Attributes:
        label: `//package:name`.
        rule: the rule or macro that makes it.
        srcs: its sources, relative to the workspace.
        deps: labels in the form of ``label``; `@pip//name` for a distribution.
        kept: those of ``deps`` whose line says `# keep`: needed, though no source imports them.
        testonly: whether only tests may depend on it.
        line: of the BUILD.bazel file, from 1.
    """

    label: str
    rule: str
    srcs: tuple[str, ...]
    deps: tuple[str, ...]
    kept: tuple[str, ...]
    testonly: bool
    line: int

    @property
    def is_test(self) -> bool:
        """True if `bazel test` runs it."""
        return self.rule not in ("py_library", "py_binary", "py_tool")


def full_label(label: str, package: str) -> str:
    """`//a/b` and `:c` in full, as `//a/b:b` and `//package:c`; labels of other repositories as they are."""
    if label.startswith("@"):
        return label
    if not label.startswith("//"):
        return f"//{package}:{label.removeprefix(':')}"
    return label if ":" in label else f"{label}:{posixpath.basename(label)}"


def parse_targets(text: str, package: str, files: Sequence[str] = ()) -> list[Target]:
    """The Python targets of a BUILD.bazel file, which is read as the Python it nearly is.

    Args:
        text: the file's text.
        package: the folder of the file, relative to the workspace.
        files: Python files of the package, relative to it, which a target without ``srcs`` takes.
    """
    lines = text.splitlines()
    targets = []
    for statement in ast.parse(text).body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id not in _PYTHON_RULES:
            continue
        attributes = {keyword.arg: keyword.value for keyword in call.keywords}
        default = _NAMES.get(call.func.id, posixpath.basename(package))
        name = next(iter(_strings(attributes.get("name"))), _String(default, statement.lineno))
        srcs, deps = _strings(attributes.get("srcs")), _strings(attributes.get("deps"))
        if "srcs" not in attributes and call.func.id in _ALL_OF_FOLDER:
            srcs = [_String(file, statement.lineno) for file in files if _ALL_OF_FOLDER[call.func.id](file)]
        if call.func.id == "py_tool":
            srcs = srcs or [_String(f"{name.value}.py", name.lineno)]
            deps = deps or [_String(_TOOL_DEPS, name.lineno)]
        labels = [(full_label(d.value, package), lines[d.lineno - 1]) for d in deps]
        target = Target(
            label=f"//{package}:{name.value}",
            rule=call.func.id,
            srcs=tuple(_source(full_label(s.value, package)) for s in srcs),
            deps=tuple(label for label, _ in labels),
            kept=tuple(label for label, line in labels if "# keep" in line),
            testonly="testonly" in attributes,
            line=statement.lineno,
        )
        targets.append(target)
    return targets


def targets_of(root: Path) -> list[Target]:
    """The Python targets of every BUILD.bazel file below ``root``, in the order of their labels.

    A folder below with a WORKSPACE of its own is another workspace, and left out.
    """
    targets: list[Target] = []
    for folder, folders, files in os.walk(root):
        folders[:] = [
            f
            for f in folders
            if not f.startswith((".", "bazel-", "__pycache__")) and not Path(folder, f, "WORKSPACE").exists()
        ]
        if "BUILD.bazel" in files:
            package = Path(folder).relative_to(root).as_posix()
            text = Path(folder, "BUILD.bazel").read_text()
            targets += parse_targets(text, "" if package == "." else package, _python_files(Path(folder)))
    return sorted(targets)


def _python_files(package: Path) -> list[str]:
    """The Python files of a package, relative to it: of its folder, and of folders below without a BUILD file."""
    names = []
    for folder, folders, files in os.walk(package):
        folders[:] = [
            f for f in folders if f not in ("__pycache__", "testdata") and not Path(folder, f, "BUILD.bazel").exists()
        ]
        names += [Path(folder, file).relative_to(package).as_posix() for file in files if file.endswith(".py")]
    return sorted(names)


def distribution_label(module: str) -> str:
    """The label of the distribution that provides a third-party module."""
    prefix = next((p for p in _DISTRIBUTIONS if module == p or module.startswith(p + ".")), module.split(".")[0])
    return "@pip//" + _DISTRIBUTIONS.get(prefix, prefix)


class _String(NamedTuple):
    value: str
    lineno: int


def _strings(node: ast.expr | None) -> list[_String]:
    """Every string in an attribute's value, the branches of a select included, its conditions left out."""
    if node is None:
        return []
    if isinstance(node, ast.Dict):
        return [s for value in node.values for s in _strings(value)]
    if isinstance(node, ast.Constant):
        return [_String(node.value, node.lineno)] if isinstance(node.value, str) else []
    return [s for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr) for s in _strings(child)]


def _source(label: str) -> str:
    package, _, name = label.removeprefix("//").partition(":")
    return f"{package}/{name}" if package else name
