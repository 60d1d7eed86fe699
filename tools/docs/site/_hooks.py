"""Events of MkDocs: files that scripts write join the site, `FOLDER/*` in the nav are expanded, links are rewritten."""

import functools
import os
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools.docs.site._code import keep_flags_whole
from tools.docs.site._generated import additions, generated_pages
from tools.docs.site._nav import HOME, nav_of
from tools.docs.site._signatures import use_own_formatter
from tools.docs.site._sources import EXTRA_PAGES, rewrite_links

SOURCE_URL: Final = "TAPELINE_SOURCE_URL"
"""Environment variable with the address of the repository's files."""
_NOT_SEARCHED: Final = ("onnx.md", "behaviours.md")


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).parent


def on_startup(**kwargs: Any) -> None:
    """Prepares the API's pages."""
    use_own_formatter()


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds pages of the root and of packages, and pages that scripts write; sorts all into the nav."""
    root = _root(config)
    for path, place in EXTRA_PAGES.items():
        if files.get_file_from_path(place):
            raise PluginError(f"{path} and docs/{place} have the same page, {place}: name another in EXTRA_PAGES")
        files.append(File.generated(config, place, content=(root / path).read_text(encoding="utf-8")))
    for place, text in generated_pages(root).items():
        files.append(File.generated(config, place, content=text))
    index = (root / "docs" / HOME).read_text(encoding="utf-8")
    config.nav = nav_of(index, sorted(file.src_uri for file in files.documentation_pages()))
    return files


def _titles(files: Files) -> dict[str, str]:
    """Returns the first heading of each page, and the path of each other file, by path."""
    return {file.src_uri: _title(file) for file in files}


@functools.cache
def _title(file: File) -> str:
    heading = re.search(r"^# (.*)", file.content_string, re.MULTILINE) if file.is_documentation_page() else None
    return heading[1] if heading else file.src_uri


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files, **kwargs: Any) -> str:
    """Returns a page's text with what scripts add, and with links within the site."""
    place = page.file.src_uri
    if place == HOME:
        page.meta["hide"] = ["navigation", "toc"]  # the whole width, for one screen
    if place in _NOT_SEARCHED:
        page.meta["search"] = {"exclude": True}
    text = rewrite_links(markdown, place, _titles(files), os.environ.get(SOURCE_URL))
    return additions(place, text, _root(config))


def on_page_content(html: str, **kwargs: Any) -> str:
    """Returns a page's HTML with the flags of commands in elements."""
    return keep_flags_whole(html)
