"""The nav, read from the index docs/README.md: sections by kind, and the page of each row of their tables."""

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from tools.docs.site._rooms import PACKAGES
from tools.docs.site._sources import indexed_page

HOME: Final = "README.md"
_SECTION: Final = re.compile(r"^(##|###) ([^:\n]*).*\n((?:(?!##).*\n)*)", re.MULTILINE)
_ROW: Final = re.compile(r"^\| \[[^\]]*\]\(([^)#]*\.md)\) \|", re.MULTILINE)
# Pages of these folders follow a page of the index, and need no row.
_FOLDERS: Final = {
    "api/README.md": "api",
    "architecture.md": "rooms",
    "packages.md": "notebooks",
    "lab/README.md": "lab",
}


class Section(NamedTuple):
    """Heading of the index with the pages of its tables.

    Attributes:
        level: of the heading: 2 is a tab of the site, 3 a group in it.
        title: heading up to a colon.
        pages: paths in the site.
    """

    level: int
    title: str
    pages: list[str]


def index_sections(index: str) -> list[Section]:
    """Returns the sections of the index that have pages, or groups below them."""
    return [Section(len(marks), title, _pages(text)) for marks, title, text in _SECTION.findall(index + "\n")]


def nav_of(index: str, pages: Sequence[str]) -> list[Any]:
    """Returns the nav in the form of MkDocs.

    Args:
        index: text of docs/README.md.
        pages: paths of all pages of the site, sorted.
    """
    nav: list[Any] = [HOME]
    for section in index_sections(index):
        entries = [entry for page in section.pages for entry in _entries(page, pages)]
        target = nav if section.level == 2 else next(iter(nav[-1].values()))
        target.append({section.title: entries})
    next(iter(nav[1].values())).insert(0, nav.pop(0))  # the first page is the first of the first tab
    return nav


def _pages(text: str) -> list[str]:
    return [indexed_page(target) for target in _ROW.findall(text) if indexed_page(target) != HOME]


def _entries(page: str, pages: Sequence[str]) -> Iterator[Any]:
    folder = _FOLDERS.get(page)
    others = [other for other in pages if folder and posixpath.dirname(other) == folder and other != page]
    if folder == "api":
        yield {"API": [page, *_by_package(others)]}
        return
    yield page
    yield from [{"Packages": [_named(other) for other in others]}] if folder == "rooms" else others


def _by_package(pages: Sequence[str]) -> Iterator[Any]:
    """Gives a group per package."""
    for package in PACKAGES:
        yield {package: [_named(page) for page in pages if page.split("/")[1].split(".")[0] == package]}


def _named(page: str) -> dict[str, str]:
    return {posixpath.basename(page).removesuffix(".md"): page}
