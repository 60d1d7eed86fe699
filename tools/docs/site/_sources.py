"""Which file of the repository is which page of the site, and links between them."""

import posixpath
import re
from collections.abc import Callable, Mapping
from typing import Final

_READMES: Final = (
    "autotune",
    "compile_hlo/directions",
    "compile_hlo/quirks",
    "compile_hlo/streaming",
    "run_iree",
    "run_iree/kernels",
    "run_jax",
    "tapeline",
    "tests/goldens",
    "transformer_core/flow",
)
EXTRA_PAGES: Final = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
} | {f"{folder}/README.md": f"rooms/{folder.replace('/', '.')}.md" for folder in _READMES}
"""Pages outside of docs/: path in the repository, path in the site."""

_HOME: Final = "README.md"
_DOCS: Final = "docs/"
_FENCE: Final = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
# HTML parsers take what begins so for a declaration, in code too.
_DECLARATION: Final = re.compile(r"`([^`\n]*<!\[[^`\n]*)`")
_LINK: Final = re.compile(r"(!?)\[([^\]\[]*(?:\[[^\]\[]*\][^\]\[]*)*)\]\(([^)\s]+)\)")


def site_path(path: str) -> str | None:
    """Returns where a file of the repository is in the site, or None for one that is not in it."""
    if path == _HOME:
        return _HOME  # the site's first page is docs/README.md
    if path.startswith(_DOCS):
        return path.removeprefix(_DOCS)
    return EXTRA_PAGES.get(path)


def indexed_page(target: str) -> str:
    """Returns the page of the site that a link of docs/README.md leads to."""
    path = posixpath.normpath(_DOCS + target)
    return site_path(path) or path


def repository_path(page: str) -> str:
    """Returns the file of the repository that a page of the site was made from."""
    sources = {place: path for path, place in EXTRA_PAGES.items()}
    return sources.get(page, _DOCS + page)


def rewrite_links(text: str, page: str, titles: Mapping[str, str], source_url: str | None) -> str:
    """Returns a page's Markdown with links to files of the repository as links within the site.

    Args:
        text: Markdown of the page; fenced blocks stay as they are.
        page: its path in the site.
        titles: of the files of the site, by path; a link whose text is a file's name gets the title.
        source_url: address of the repository's files, which ends in a slash. Without one, a link to a file that the
            site lacks becomes its text and the file's path.
    """

    def replaced(match: re.Match[str]) -> str:
        image, label, target = match.groups()
        return image + _link(label, target, page, titles, source_url)

    return _outside_fences(text, lambda part: _DECLARATION.sub(_as_html, _LINK.sub(replaced, part)))


def _as_html(match: re.Match[str]) -> str:
    return "<code>" + re.sub(r"[<>*_\[\]]", lambda mark: f"&#{ord(mark[0])};", match[1]) + "</code>"


def _outside_fences(text: str, change: Callable[[str], str]) -> str:
    return "".join(part if part.startswith("```") else change(part) for part in _FENCE.split(text))


def _link(label: str, target: str, page: str, titles: Mapping[str, str], source_url: str | None) -> str:
    file, mark, anchor = target.partition("#")
    if not file or ":" in file:
        return f"[{label}]({target})"
    path = posixpath.normpath(posixpath.join(posixpath.dirname(repository_path(page)), file))
    place = site_path(path) or site_path(f"{path}/README.md")
    for candidate in (place, f"{place}/README.md"):
        if candidate is not None and candidate in titles:
            label = titles[candidate] if label.endswith((".md", "/")) else label
            return f"[{label}]({posixpath.relpath(candidate, posixpath.dirname(page) or '.')}{mark}{anchor})"
    if source_url:
        return f"[{label}]({source_url}{path}{mark}{anchor})"
    return label if label.strip("`") == path else f"{label} (`{path}`)"
