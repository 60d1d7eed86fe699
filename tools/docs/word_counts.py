"""Counts words, fragments, imports and public names of the tree: ``python -m tools.docs.word_counts``.

The figures belong into notes of docs/lab. Product packages and tools count, without tests; generated pages, laboratory
notes and design notes do not.
"""

import argparse
import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tapeline.command import COMMANDS, load_command, shown_flags
from tests.layering._layers import LAYERS
from tests.layering._measures import Tree, public_names
from tests.layering._sources import module_name, workspace_root

WORDS: Final = ("what", "if", "where", "whose", "no <noun>", "one", "those")
"""Words that the table counts."""

_PATTERNS: Final = {word: re.compile(rf"\b{word}\b", re.IGNORECASE) for word in WORDS} | {
    "no <noun>": re.compile(r"\bno (?!longer\b|more\b)[a-z`_]\w*", re.IGNORECASE)
}
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z'-]*")
_CODE: Final = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_GENERATED: Final = frozenset({"behaviours", "models", "onnx", "ops", "status", "third-party", "errors"})
_LONGEST_SUBJECT: Final = 72
_PAIR_LINES: Final = 300


def frequencies(texts: Iterable[str]) -> dict[str, float]:
    """Returns the number of words, and how often each of `WORDS` occurs in 10,000 words."""
    text = "\n".join(texts)
    words = len(_WORD.findall(text))
    return {"words": words} | {
        word: 1e4 * len(pattern.findall(text)) / max(words, 1) for word, pattern in _PATTERNS.items()
    }


def docstrings(syntax: ast.Module) -> list[str]:
    """Returns the docstrings of a module, its classes and its functions."""
    nodes = (
        node
        for node in ast.walk(syntax)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return [text for node in nodes if (text := ast.get_docstring(node))]


def page_texts(root: Path) -> list[str]:
    """Returns the prose of the pages of docs/ and of the root, without code."""
    pages = [page for page in (root / "docs").glob("*.md") if page.stem not in _GENERATED]
    pages += [root / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")]
    return [_CODE.sub("", page.read_text()) for page in sorted(pages)]


def help_texts() -> list[str]:
    """Returns the help of the flags of all commands."""
    texts = [[(name, load_command(command).FLAGS) for name in load_command(command).FLAGS] for command in COMMANDS]
    return [values[name].help or "" for command in texts for name, values in command]


def single_importers(tree: Tree, paths: Sequence[str]) -> dict[str, str]:
    """Returns the files that exactly one other file imports, with that file.

    Files that an ``__init__.py`` imports belong to the room's interface and are left out.
    """
    importers: dict[str, set[str]] = {}
    modules = {module_name(path): path for path in tree.texts if not path.endswith(("_test.py", "_testing.py"))}
    for module, path in modules.items():
        for other in tree.imports[module]:
            importers.setdefault(other, set()).add(path)
    files = (path for path in paths if not path.endswith("__init__.py"))
    single = {path: min(users) for path in files if len(users := importers.get(module_name(path), set())) == 1}
    return {path: user for path, user in single.items() if not user.endswith("__init__.py")}


def import_lines(tree: Tree, paths: Sequence[str]) -> tuple[int, int]:
    """Returns the lines of imports and of ``__all__``."""
    imports = exports = 0
    for path in paths:
        for node in tree.syntax[path].body:
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports += lines
            elif isinstance(node, ast.Assign) and any(getattr(x, "id", "") == "__all__" for x in node.targets):
                exports += lines
    return imports, exports


def unused_names(tree: Tree, root: Path, paths: Sequence[str]) -> tuple[list[str], int]:
    """Returns the public names that no other room's product code and no page uses, and the number of public names."""
    used: dict[str, set[str]] = {}
    for path in paths:
        for word in set(re.findall(r"\w+", tree.texts[path])):
            used.setdefault(word, set()).add(str(Path(path).parent))
    written = set(
        re.findall(r"\w+", "\n".join(page.read_text() for page in [*root.glob("docs/*.md"), *root.glob("*.md")]))
    )
    names = [
        (str(Path(path).parent), name)
        for path in paths
        if path.endswith("__init__.py")
        for name in public_names(tree.syntax[path])
    ]
    unused = [f"{room}: {name}" for room, name in names if name not in written and not used.get(name, set()) - {room}]
    return unused, len(names)


def duplicate_classes(tree: Tree, paths: Sequence[str]) -> dict[str, int]:
    """Returns the names that several classes of product code have, with their number."""
    names = Counter(
        node.name for path in paths for node in ast.walk(tree.syntax[path]) if isinstance(node, ast.ClassDef)
    )
    return {name: count for name, count in sorted(names.items()) if count > 1}


def long_subjects(root: Path) -> tuple[int, int]:
    """Returns the number of commit subjects that are too long, and of all commits."""
    log = subprocess.run(["git", "log", "--format=%s"], cwd=root, capture_output=True, text=True, check=True).stdout
    subjects = log.splitlines()
    return sum(len(subject) > _LONGEST_SUBJECT for subject in subjects), len(subjects)


def report(tree: Tree, root: Path) -> str:
    """Returns the figures as two tables in Markdown."""
    paths = [p for p in tree.texts if p.split("/")[0] in LAYERS and not p.endswith(("_test.py", "_testing.py"))]
    columns = {
        "docstrings": frequencies(text for path in paths for text in docstrings(tree.syntax[path])),
        "pages": frequencies(page_texts(root)),
        "help of flags": frequencies(help_texts()),
    }
    rows = ["| per 10,000 words | " + " | ".join(columns) + " |", "|---" + "|--:" * len(columns) + "|"]
    for row in ("words", *WORDS):
        rows.append(f"| {row} | " + " | ".join(f"{column[row]:,.0f}" for column in columns.values()) + " |")
    single = single_importers(tree, paths)
    siblings = {path: user for path, user in single.items() if Path(path).parent == Path(user).parent}
    short = sum(tree.lines(path) + tree.lines(user) <= _PAIR_LINES for path, user in siblings.items())
    lines = sum(map(tree.lines, paths))
    imports, exports = import_lines(tree, paths)
    unused, public = unused_names(tree, root, paths)
    long, commits = long_subjects(root)
    rows += [
        "",
        "| figure | value |",
        "|---|--:|",
        f"| production files | {len(paths):,} |",
        f"| their lines | {lines:,} |",
        f"| files that exactly one file imports | {len(single)} |",
        f"| their lines | {sum(map(tree.lines, single)):,} |",
        f"| pairs of siblings that fit into {_PAIR_LINES} lines | {short} |",
        f"| lines of imports | {imports / lines:.1%} |",
        f"| lines of `__all__` | {exports / lines:.1%} |",
        f"| public names that no other room and no page uses | {len(unused)} of {public:,} |",
        f"| names that several classes have | {len(duplicate_classes(tree, paths))} |",
        f"| commit subjects over {_LONGEST_SUBJECT} characters | {long} of {commits:,} |",
        f"| flags of `export` | {len(_export_flags())} |",
    ]
    return "\n".join(rows)


def _export_flags() -> list[str]:
    return [flag.name for flag in shown_flags(load_command("export").FLAGS)]


def _listed(tree: Tree, root: Path, wanted: str) -> list[str]:
    """Returns one list in full: ``single``, ``unused`` or ``classes``."""
    paths = [p for p in tree.texts if p.split("/")[0] in LAYERS and not p.endswith(("_test.py", "_testing.py"))]
    if wanted == "single":
        single = single_importers(tree, paths)
        return [f"{path} <- {user}  {tree.lines(path)}+{tree.lines(user)}" for path, user in single.items()]
    if wanted == "unused":
        return unused_names(tree, root, paths)[0]
    return [f"{name}: {count}" for name, count in duplicate_classes(tree, paths).items()]


def main() -> None:
    """Prints the tables, or one list in full."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", choices=("single", "unused", "classes"), help="List to print in place of the tables.")
    chosen = parser.parse_args().list
    root = workspace_root()
    tree = Tree(root)
    print("\n".join(_listed(tree, root, chosen)) if chosen else report(tree, root))


if __name__ == "__main__":
    main()
