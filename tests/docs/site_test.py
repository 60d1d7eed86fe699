"""The built site: every link and anchor of its HTML, its search, its inventory, its versions."""

import json
import posixpath
import re
from collections.abc import Iterator
from urllib.parse import unquote

from tests.docs._built_site import html_pages, pages_folder, site_folder


def _broken(page: str) -> Iterator[str]:
    for address in html_pages()[page].links | html_pages()[page].files:
        if not address.startswith(("https://", "http://", "mailto:", "data:")):
            file, _, anchor = address.partition("#")
            target = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(file))) if file else page
            target = f"{target}/index.html" if (pages_folder() / target).is_dir() else target
            if not (pages_folder() / target).is_file():
                yield f"{page}: {address}: no such file"
            elif anchor and unquote(anchor) not in html_pages()[target].anchors:
                yield f"{page}: {address}: no such place"


def test_every_link_and_anchor_leads_somewhere() -> None:
    assert len(html_pages()) > 100
    assert not [line for page in html_pages() for line in _broken(page)]


def test_pages_of_the_same_name_in_two_folders_are_two_pages() -> None:
    """SECURITY.md has the promises, docs/security.md the measurements."""
    assert {"security.html", "security-policy.html"} <= html_pages().keys()


def test_nothing_is_loaded_from_elsewhere() -> None:
    files = {file for page in html_pages().values() for file in page.files}
    assert not [file for file in files if file.startswith(("http:", "https:", "//"))]


def test_search_finds_pages_and_names() -> None:
    entries = json.loads((pages_folder() / "search" / "search_index.json").read_text())["docs"]
    places = {entry["location"] for entry in entries}
    assert {"guide.html", "ops.html", "api/tapeline.exporting.html#tapeline.exporting.export"} <= places
    assert not [place for place in places if place.startswith("onnx.html#")]


def test_other_projects_can_link_to_names() -> None:
    assert (pages_folder() / "objects.inv").read_bytes().startswith(b"# Sphinx inventory version 2")


def test_the_first_page_leads_to_the_version() -> None:
    (entry,) = json.loads((site_folder() / "versions.json").read_text())
    assert entry["version"] == pages_folder().name
    assert f"url={entry['version']}/" in (site_folder() / "index.html").read_text()


def test_enums_list_their_members() -> None:
    page = (pages_folder() / "api" / "transformer_core.family.html").read_text(encoding="utf-8")
    kind = re.sub("<[^>]+>", "", page.partition("The norms of a decoder.")[2])
    assert kind.split()[:4] == ["Members:", "RMS", "=", "'rms'"]
