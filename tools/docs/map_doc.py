"""Writes the measures of the tree into ARCHITECTURE.md, between its markers: ``bazel run //tools/docs:map_doc``."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.layering import _measures as measures
from tests.layering._layers import LAYERS
from tests.layering._measures import Package, Tree

BEGIN: Final = "<!-- measures: begin -->"
END: Final = "<!-- measures: end -->"
_COLUMNS: Final = (
    "package",
    "files",
    "lines",
    "public names",
    "import depth",
    "median file",
    "greatest file",
    "median function",
)


def render(tree: Tree) -> str:
    """Returns the section: a table of packages, and the rules with their present figures."""
    packages = [tree.package(name) for name in (*LAYERS, "tools")]
    header = [f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    return "\n".join([*header, *map(_row, packages), "", *_rules(tree)])


def _row(package: Package) -> str:
    cells = [f"`{package.name}`", *(f"{value:,g}" if value < 1e3 else f"{value:,}" for value in package[1:])]
    return f"| {' | '.join(cells)} |"


def _rules(tree: Tree) -> Iterator[str]:
    functions = [size for path, text in tree.texts.items() for size in measures.function_lines(text, tree.syntax[path])]
    median = measures.statistics.median(functions)
    greatest = max(tree.texts, key=tree.lines)
    yield "Tests are left out of the table and are part of what follows. Lines of functions are those of code."
    yield ""
    yield f"- import circles, also below `if TYPE_CHECKING:` (rule: 0): {len(measures.circles(tree.imports))}"
    yield f"- lines of the greatest file: {tree.lines(greatest)}"
    yield f"- lines of the median function: {median:g}"
    build = measures.build_lines(tree.root)
    yield f"- lines of all BUILD files: {build:,}"
    yield f"- docstrings that open with a banned word (rule: 0): {len(measures.banned_docstrings(tree))}"


def replaced(page: str, section: str) -> str:
    """Returns the page with ``section`` between its markers.

    Raises:
        ValueError: the page lacks a marker.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} and {END}: write both where the measures are to stand")
    return f"{before}{begin}\n{section}\n{end}{after}"


def main() -> None:
    """Prints the section, and writes it into the workspace that Bazel was started in, else into the current folder."""
    root = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", ".")).resolve()
    page, section = root / "ARCHITECTURE.md", render(Tree(root))
    page.write_text(replaced(page.read_text(), section))
    print(section)


if __name__ == "__main__":
    main()
