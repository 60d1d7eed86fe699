"""The built site in a real browser, at two widths and in both palettes: nothing sticks out, pictures are kept."""

import functools
import http.server
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tapeline.server._browser_testing import CHROMIUM, Browser, browsing
from tests.docs._built_site import pages_folder

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="this machine has no Chromium: Debian's package is chromium")

_START: Final = Path(__file__).resolve().parents[2] / "docs" / "start.md"
_SIZES: Final = ((1280, 900), (390, 844))
_PAGES: Final = ("index", "start", "commands", "architecture", "benchmarks", "ops", "bundle", "api/tapeline.running")
_TOGGLE: Final = "document.querySelector('[data-md-component=palette] label:not([hidden])')"
# Text that reaches beyond the window, and is in nothing that scrolls by itself.
_OUTSIDE: Final = """[...document.querySelectorAll('.md-content *')].filter(one =>
    one.getBoundingClientRect().right > innerWidth + 1
    && !one.closest('.md-typeset__scrollwrap, pre, .highlight, .life')
).map(one => one.tagName + ' ' + one.textContent.slice(0, 40))"""

# Shell commands that are cut, flags that are broken, and other code that is cut without a scroll bar.
_CUT: Final = """[...document.querySelectorAll('.md-content pre > code')].filter(code =>
    code.scrollWidth > code.clientWidth + 1
    && (code.closest('[class*=language-sh], [class*=language-bash]') || getComputedStyle(code).overflowX !== 'auto')
).concat(
    [...document.querySelectorAll('.md-content .flag')].filter(one => one.getClientRects().length > 1)
).map(one => one.textContent)"""

# Rows for titles of columns that have none.
_EMPTY_TITLES: Final = """[...document.querySelectorAll('.md-content thead')].filter(head =>
    head.offsetHeight && !head.textContent.trim()
).length"""


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Address of the site's pages."""
    handler = functools.partial(_Silent, directory=str(pages_folder()))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Browser with an empty profile."""
    with browsing(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the pictures: that of the test's outputs under Bazel."""
    return Path(os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR") or tmp_path_factory.mktemp("pictures"))


def _looks() -> list[tuple[str, int, int]]:
    """Returns pages with sizes of the window: the narrow one of all, where least fits, the wide one of every third."""
    pages = {_SIZES[0]: _PAGES if os.environ.get("TAPELINE_LONG") else _PAGES[::3], _SIZES[1]: _PAGES}
    return [(page, *size) for size, shown in pages.items() for page in shown]


@pytest.mark.parametrize(("page", "width", "height"), _looks())
def test_pages_fit(browser: Browser, address: str, pictures: Path, page: str, width: int, height: int) -> None:
    browser.open(f"{address}/{page}.html", width, height)
    browser.wait(f"document.readyState === 'complete' && location.pathname === '/{page}.html'")
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert not browser.run(_OUTSIDE)
    assert not browser.run(_CUT)
    assert not browser.run(_EMPTY_TITLES)
    for palette in ("default", "slate"):  # the one that was chosen on the page before is remembered
        browser.wait(f"!!{_TOGGLE} && !!document.body.dataset.mdColorScheme")
        if browser.run("document.body.dataset.mdColorScheme") != palette:
            browser.run(f"{_TOGGLE}.click()")
        browser.wait(f"document.body.dataset.mdColorScheme === '{palette}'")
        browser.screenshot(pictures / f"{page.replace('/', '_')}_{width}_{palette}.png")


def test_commands_are_copied_as_they_are_written(browser: Browser, address: str) -> None:
    browser.open(f"{address}/start.html", 390, 844)  # where every line is broken
    browser.wait("document.readyState === 'complete' && location.pathname === '/start.html'")
    for language in ("sh", "python"):
        code = browser.run(f"[...document.querySelectorAll('.language-{language} code')].map(code => code.innerText)")
        assert code == re.findall(rf"^```{language}\n(.*?)^```$", _START.read_text(), re.MULTILINE | re.DOTALL)


def test_the_first_page_is_one_screen(browser: Browser, address: str) -> None:
    browser.open(f"{address}/index.html", 1280, 900)
    browser.wait("document.readyState === 'complete' && location.pathname === '/index.html'")
    shown = ("h1", ".front .language-sh", ".front .language-text", ".way > div:last-child", ".peers table")
    bottoms = [
        browser.run(f"document.querySelector('.md-content {part}').getBoundingClientRect().bottom") for part in shown
    ]
    assert max(bottoms) <= 900, dict(zip(shown, bottoms, strict=True))
    assert browser.run("[...document.querySelectorAll('.way > div > b')].map(one => one.textContent)") == [
        "model",
        "tape",
        "StableHLO",
        "device",
        "verified",
    ]


def test_search_finds_a_name(browser: Browser, address: str) -> None:
    browser.open(f"{address}/index.html", 1280, 900)
    browser.wait("document.readyState === 'complete' && !!document.querySelector('.md-search__input')")
    browser.run("document.querySelector('.md-search__input').focus()")
    browser.type("compare_dumps")
    browser.wait("!!document.querySelector('.md-search-result__link[href*=\"compare_dumps\"]')")


def test_the_ways_of_lives_are_drawn(browser: Browser, address: str) -> None:
    browser.open(f"{address}/architecture.html", 1280, 900)
    browser.wait("document.readyState === 'complete' && document.querySelectorAll('.life svg').length === 4")
    assert browser.run("document.querySelectorAll('.life circle').length") == browser.run(
        "[...document.querySelectorAll('.life')].reduce((n, life) => "
        "n + life.nextElementSibling.querySelectorAll('tbody tr').length, 0)"
    )
