"""The page, in a real browser."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tapeline.cli import ProgressEvent
from tapeline.server._browser_testing import CHROMIUM, Browser, browsing
from tapeline.server._cold_server_testing import cold_server
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


def wait_until(holds: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def ask(page: Browser, text: str) -> None:
    page.run("at('text').focus()")
    page.type(text)
    page.press_enter()


def test_an_answer_is_streamed_with_its_speed(page: Browser, server: RunningServer) -> None:
    put(page, "temperature", "0")
    put(page, "max_tokens", "30")
    ask(page, "Hello")
    page.wait("!at('send').hidden && document.querySelectorAll('.figures').length === 1")
    content = chat(server, messages=HELLO, max_tokens=30).json["choices"][0]["message"]["content"]
    assert page.run("messages.at(-1).content") == content
    assert page.run(LAST).strip() == content.strip()
    speed = "document.querySelector('.figures').textContent"
    assert page.run(f"/^30 tokens . [0-9.]+ tokens.s . first after/.test({speed})")
    ask(page, "More")  # what was said before goes along
    page.wait("!at('send').hidden && document.querySelectorAll('.figures').length === 2")
    assert page.run("messages.length") == 4
    assert page.run("document.querySelector('.turn.user').textContent") == "Hello"
    page.run("at('fresh').click()")
    assert page.run("document.querySelectorAll('.turn').length") == 0


def cancelled(server: RunningServer) -> int:
    return server.service.models.figures()["slow"].ended.get("cancelled", 0)


@pytest.mark.parametrize("how", ["at('stop').click()", "ESCAPE"])
def test_an_answer_can_be_stopped(page: Browser, server: RunningServer, how: str) -> None:
    before = cancelled(server)
    put(page, "model", "slow")
    put(page, "max_tokens", "")
    ask(page, "Hello")
    page.wait(f"!at('stop').hidden && {LAST}.length > 3")
    escape = "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}))"
    page.run(how.replace("ESCAPE", escape))
    # The page is free in the same turn, and the server gives the answer up.
    assert page.run("[at('stop').hidden, at('send').hidden, running, messages.length]") == [True, False, None, 2]
    assert page.run("document.querySelector('.figures').textContent.includes('stopped')")
    wait_until(lambda: cancelled(server) == before + 1)
    wait_until(lambda: server.service.models.figures()["slow"].running == 0)
    length = page.run("messages.at(-1).content.length")
    put(page, "model", "demo")
    put(page, "max_tokens", "3")
    ask(page, "More")
    page.wait("!at('send').hidden && document.querySelectorAll('.figures').length === 2")
    assert page.run("messages.at(1).content.length") == length
    put(page, "max_tokens", "")


def test_a_message_stopped_before_its_answer_is_taken_back(page: Browser) -> None:
    put(page, "model", "slow")
    page.run("at('text').value = 'Hello'; at('form').requestSubmit(); stop()")
    assert page.run("[at('stop').hidden, running, messages.length]") == [True, None, 0]


def test_answers_can_be_copied(page: Browser) -> None:
    page.run("globalThis.copies = []; navigator.clipboard.writeText = async text => { copies.push(text); }; 0")
    put(page, "max_tokens", "30")
    ask(page, "Hello")
    page.wait("document.querySelectorAll('.figures .copy').length === 1")
    page.run("document.querySelector('.figures .copy').click()")
    page.wait("copies.length === 1")
    assert page.run("copies[0]") == page.run("messages.at(-1).content")
    page.run("navigator.clipboard.writeText = async () => { throw new Error('no permission'); }; 0")
    selected = "getSelection().toString() || document.activeElement.value"
    page.run(f"document.addEventListener('copy', () => copies.push({selected}))")
    page.run("document.querySelector('.figures .copy').click()")
    page.wait("copies.length === 2")
    assert page.run("copies[1]") == page.run("messages.at(-1).content")
    put(page, "max_tokens", "")


def test_the_models_are_listed_with_their_states(page: Browser, server: RunningServer) -> None:
    page.run("at('open').click()")
    rows = "[...document.querySelectorAll('#models li')].map(row => row.innerText.replace(/\\s+/g, ' '))"
    page.wait(f"{rows}.length === 3")
    names = [row.split(" ")[0] for row in page.run(rows)]
    assert names == [model["id"] for model in server.request("/v1/models").json["data"]]
    assert all("ready" in row for row in page.run(rows))


def test_a_cold_server_shows_its_progress(browser: Browser, tmp_path: Path) -> None:
    with cold_server(tmp_path) as (server, cold):
        cold.progress(ProgressEvent("weights", 0, 8 << 20))
        cold.seconds += 5
        cold.progress(ProgressEvent("weights", 2 << 20, 8 << 20))
        browser.open(f"http://127.0.0.1:{server.port}/", 390, 780)
        shown = "document.querySelector('.progress')?.innerText ?? ''"
        browser.wait(f"({shown}).includes('weights: 2 of 8 MiB')")
        assert "Loading cold" in browser.run(shown)
        assert "5 s so far, about 15 s left" in browser.run(shown)
        assert browser.run("document.querySelector('progress').position") == 0.25
        assert browser.run("[...document.querySelectorAll('#model option')].map(one => one.text)") == [
            "cold (loading)",
            "behind (waiting)",
        ]
        browser.run("at('text').value = 'Hello'; at('form').requestSubmit()")
        assert browser.run("messages.length") == 0
        cold.progress(ProgressEvent("compiling module.mlir for llvm-cpu ..."))
        cold.seconds += 5
        browser.wait(f"({shown}).includes('compiling module.mlir for llvm-cpu')")
        browser.wait(f"({shown}).includes('10 s so far; the compiler does not report the time left')")
        assert browser.run("document.querySelector('progress').position") == -1  # indeterminate: the bar moves
        cold.go_on.set()
        browser.wait("document.querySelectorAll('#model option').length === 2 && !at('send').disabled")
        assert browser.run("document.querySelector('.progress')") is None


def test_a_refusal_is_shown(page: Browser) -> None:
    put(page, "max_tokens", "100000")
    ask(page, "Hello")
    page.wait("document.querySelectorAll('.turn.wrong').length === 1")
    assert "context is" in page.run(LAST)
    put(page, "max_tokens", "")


def test_empty_settings_show_what_is_used(page: Browser, server: RunningServer) -> None:
    sampling = server.request("/v1/models/demo").json["sampling"]
    for name in ("temperature", "top_k", "top_p", "min_p"):
        put(page, name, "")
        assert float(page.run(f"at('{name}').placeholder")) == sampling[name]
    assert page.run("at('temperature').placeholder") == "0.8"
    sent = "Object.keys(requestBody()).sort().join()"
    assert page.run(sent) == "messages,model,stream,stream_options"
    put(page, "min_p", "0.5")
    put(page, "top_k", "3")
    assert page.run(sent) == "messages,min_p,model,stream,stream_options,top_k"
    for name in ("min_p", "top_k"):
        put(page, name, "")


def test_the_sampling_of_the_next_request_stands_below_the_message(page: Browser, server: RunningServer) -> None:
    used = server.request("/v1/models/demo").json["sampling"]
    for name in ("temperature", "top_k", "top_p", "min_p", "seed"):
        put(page, name, "")
    line = page.run("at('using').textContent")
    for name, label in (("temperature", "temperature"), ("top_k", "top-k"), ("top_p", "top-p"), ("min_p", "min-p")):
        assert f"{label} {used[name]:g}" in line.split(" \u00b7 ")
    put(page, "temperature", "0.3")
    assert "temperature 0.3" in page.run("at('using').textContent")
    put(page, "temperature", "0")
    assert page.run("at('using').textContent") == "temperature 0 (greedy)"
    put(page, "temperature", "")


def test_an_answer_that_is_cut_off_says_so(page: Browser) -> None:
    put(page, "max_tokens", "5")
    ask(page, "Hello")
    page.wait("!at('send').hidden && document.querySelectorAll('.figures').length === 1")
    assert "cut off: raise Maximum new tokens" in page.run("document.querySelector('.figures').textContent")
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
