"""The page, in a real browser."""

from collections.abc import Iterator

import pytest

from tapeline.server._browser_testing import CHROMIUM, Browser, browsing
from tapeline.server._scripted_server_testing import HELLO, chat, script_tokens, scripted_server
from tapeline.server._server_testing import RunningServer

__all__ = ["script_tokens", "scripted_server"]  # fixtures
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="this machine has no Chromium: Debian's package is chromium")

LAST = "[...document.querySelectorAll('.turn')].at(-1).textContent"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def page(browser: Browser, server: RunningServer) -> Browser:
    browser.open(f"http://127.0.0.1:{server.port}/", 390, 780)
    browser.wait("document.readyState === 'complete' && document.querySelectorAll('#model option').length === 2")
    return browser


def put(page: Browser, name: str, value: str) -> None:
    page.run(f"at('{name}').value = {value!r}; at('{name}').dispatchEvent(new Event('change'))")


def ask(page: Browser, text: str) -> None:
    page.run("at('text').focus()")
    page.type(text)
    page.press_enter()


def test_an_answer_is_streamed_with_its_speed(page: Browser, server: RunningServer) -> None:
    put(page, "temperature", "0")
    put(page, "max_tokens", "30")
    ask(page, "Hello")
    page.wait("!at('send').hidden && document.querySelectorAll('.figures').length === 1")
    assert page.run(LAST) == chat(server, messages=HELLO, max_tokens=30).json["choices"][0]["message"]["content"]
    speed = "document.querySelector('.figures').textContent"
    assert page.run(f"/^30 tokens . [0-9.]+ tokens.s . first after/.test({speed})")
    ask(page, "More")  # what was said before goes along
    page.wait("!at('send').hidden && document.querySelectorAll('.figures').length === 2")
    assert page.run("messages.length") == 4
    assert page.run("document.querySelector('.turn.user').textContent") == "Hello"
    page.run("at('fresh').click()")
    assert page.run("document.querySelectorAll('.turn').length") == 0


def test_an_answer_can_be_stopped(page: Browser, server: RunningServer) -> None:
    before = server.service.models.figures()["slow"].ended.get("cancelled", 0)
    put(page, "model", "slow")
    put(page, "max_tokens", "")
    ask(page, "Hello")
    page.wait(f"!at('stop').hidden && {LAST}.length > 3")
    page.run("at('stop').click()")
    page.wait("!at('send').hidden")
    assert page.run("messages.length") == 2
    page.wait("at('turns').children.length === 3")
    ended = server.service.models.figures()["slow"].ended
    assert ended.get("cancelled", 0) >= before


def test_a_refusal_is_shown(page: Browser) -> None:
    put(page, "max_tokens", "100000")
    ask(page, "Hello")
    page.wait("document.querySelectorAll('.turn.wrong').length === 1")
    assert "context is" in page.run(LAST)
    put(page, "max_tokens", "")


@pytest.mark.parametrize(("width", "height"), [(320, 568), (390, 780), (1200, 800)])
def test_the_page_fits(browser: Browser, page: Browser, server: RunningServer, width: int, height: int) -> None:
    browser.open(f"http://127.0.0.1:{server.port}/", width, height)
    page.wait("document.readyState === 'complete' && document.querySelectorAll('#model option').length === 2")
    page.run("at('open').click()")
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    small = "[...document.querySelectorAll('button, select, input, textarea')].filter(one => !one.hidden)"
    assert page.run(f"{small}.every(one => one.getBoundingClientRect().height >= 40)")
    assert page.run(f"{small}.every(one => one.getBoundingClientRect().right <= innerWidth)")
