"""The built site: that of //docs:site or of the tar file TAPELINE_SITE_TAR; without either, one that is built now."""

import functools
import html.parser
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
_TAR: Final = Path(os.environ.get("TAPELINE_SITE_TAR", ROOT / "docs" / "site.tar"))


@functools.cache
def site_folder() -> Path:
    """Returns the folder of the site, with the folder of its one version."""
    folder = Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
    if _TAR.exists():
        with tarfile.open(_TAR) as archive:
            archive.extractall(folder, filter="data")
    else:
        command = [sys.executable, "-m", "tools.docs.site", f"--output={folder}"]
        subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
    return folder


@functools.cache
def pages_folder() -> Path:
    """Returns the folder of the pages."""
    (folder,) = (path for path in site_folder().iterdir() if path.is_dir())
    return folder


class HtmlPage(NamedTuple):
    """Links of a page and places that links may lead to.

    Attributes:
        anchors: ids.
        links: addresses of ``a``.
        files: addresses of what a browser loads with the page.
    """

    anchors: set[str]
    links: set[str]
    files: set[str]


class _Reader(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = HtmlPage(set(), set(), set())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value for key, value in attrs if value}
        self.page.anchors.update(values[key] for key in ("id", "name") if key in values)
        if "href" in values:
            (self.page.links if tag == "a" else self.page.files).add(values["href"])
        if "src" in values:
            self.page.files.add(values["src"])


@functools.cache
def html_pages() -> dict[str, HtmlPage]:
    """Returns the pages by their path in the folder; 404.html, whose links are of a server's root, is left out."""
    return {
        path.relative_to(pages_folder()).as_posix(): _read(path)
        for path in sorted(pages_folder().rglob("*.html"))
        if path.name != "404.html"
    }


def _read(path: Path) -> HtmlPage:
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader.page
