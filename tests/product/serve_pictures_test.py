"""Pictures in conversations: a tiny SmolVLM behind ``tapeline serve``, driven by the official client."""

import base64
import concurrent.futures
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import openai
import pytest

import tapeline
from tapeline.server._browser_testing import CHROMIUM, Browser, browsing
from tapeline.text import Tokenizer
from tests.goldens.vision_language.cases import CASES, Turn
from tests.goldens.vision_language.files import (
    STEPS,
    read_vision_language_golden,
    read_vision_language_manifest,
    turn_picture,
    write_vision_language_checkpoint,
)
from tests.product._bundles import export
from tests.product._serving import ServerProcess, serving

CASE = CASES["smolvlm"]
NAMES = ("rgb", "rgba", "turned_6")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with slots and picture files."""
    folder = tmp_path_factory.mktemp("seeing")
    (folder / "model").mkdir()
    write_vision_language_checkpoint(
        folder / "model", CASE, read_vision_language_manifest()["cases"][CASE.name]["shapes"]
    )
    export(folder / "model", folder / "smolvlm", sequence=8, slots=3, max_sequence=256)
    for name in {*NAMES, "rgb_jpeg_progressive", *(name for turn in CASE.turns for name in turn.pictures)}:
        (folder / name).write_bytes(turn_picture(name))
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    flags = (f"--bundle={folder / 'smolvlm'}", "--max_images=3", "--max_image_pixels=4000", "--max_image_bytes=20000")
    with serving(folder / "server", *flags) as started:
        yield started
        assert started.end() == 0


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=60) as started:
        yield started


def picture(folder: Path, name: str) -> dict[str, Any]:
    data = base64.b64encode((folder / name).read_bytes()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}", "detail": "auto"}}


def user(folder: Path, turn: Turn) -> Mapping[str, Any]:
    parts = [*(picture(folder, name) for name in turn.pictures), {"type": "text", "text": turn.text}]
    return {"role": "user", "content": parts}


def ask(client: openai.OpenAI, *messages: Any, **fields: Any) -> Any:
    given = {"model": "smolvlm", "temperature": 0, "max_tokens": STEPS, "logprobs": True, **fields}
    return client.chat.completions.create(messages=messages, **{"extra_body": {"ignore_eos": True}, **given})


def said(answer: Any) -> list[tuple[bytes, float]]:
    return [(bytes(one.bytes), one.logprob) for one in answer.choices[0].logprobs.content]


@pytest.mark.parametrize("place", range(len(CASE.turns)))
def test_answers_are_those_of_transformers_and_generate(client: openai.OpenAI, folder: Path, place: int) -> None:
    turn, golden = CASE.turns[place], read_vision_language_golden(CASE.name)[place]
    answer = ask(client, user(folder, turn))
    tokenizer = Tokenizer.load(folder / "smolvlm")
    assert [token for token, _ in said(answer)] == [tokenizer.token_bytes(one) for one in golden["tokens"].tolist()]
    assert answer.usage.prompt_tokens == len(golden["prompt"])
    with tapeline.load(folder / "smolvlm") as model:
        images = [folder / name for name in turn.pictures]
        stream = model.chat().stream(turn.text, images=images, max_new_tokens=STEPS, ignore_eos=True)
        assert [token.token_id for token in stream] == golden["tokens"].tolist()


def test_pictures_are_kept_apart_and_known_again(client: openai.OpenAI, server: ServerProcess, folder: Path) -> None:
    turns = [user(folder, Turn((name,), "What is this?")) for name in NAMES]
    fields = {"temperature": 1.5, "seed": 5}
    alone = [ask(client, turn, **fields) for turn in turns]
    assert len({str(said(answer)) for answer in alone}) == len(NAMES)
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        together = list(pool.map(lambda turn: ask(client, turn, **fields), turns * 3))
    for place, answer in enumerate(together):
        assert said(answer) == said(alone[place % 3])
        first = alone[place % 3]
        assert answer.usage.prompt_tokens == first.usage.prompt_tokens
        assert answer.usage.prompt_tokens_details.cached_tokens == first.usage.prompt_tokens - 1
    assert "tapeline:engine_tick_seconds_count" in server.request("/metrics")[1]


def test_a_conversation_goes_on_after_a_picture(client: openai.OpenAI, folder: Path) -> None:
    first = user(folder, Turn(("rgb",), "What is this?"))
    answer = ask(client, first, max_tokens=4)
    messages = [first, {"role": "assistant", "content": "A cat."}, {"role": "user", "content": "And its colour?"}]
    later = ask(client, *messages)
    assert later.usage.prompt_tokens_details.cached_tokens >= answer.usage.prompt_tokens - 16
    fresh = ask(client, *messages)
    assert said(fresh) == said(later)


def test_two_answers_and_streams(client: openai.OpenAI, folder: Path) -> None:
    turn = user(folder, Turn(("rgb",), "What is this?"))
    both = ask(client, turn, n=2, seed=3, temperature=1)
    one = ask(client, turn, seed=4, temperature=1)
    assert both.choices[1].message.content == one.choices[0].message.content
    parts = ask(client, turn, seed=4, temperature=1, stream=True)
    text = "".join(part.choices[0].delta.content or "" for part in parts)
    assert text == one.choices[0].message.content


def test_tokens_of_a_picture_are_counted(client: openai.OpenAI, server: ServerProcess, folder: Path) -> None:
    turn = user(folder, Turn(("rgb",), "What is this?"))
    status, body = server.request("/tokenize", {"messages": [turn]})
    assert (status, body["count"]) == (200, ask(client, turn).usage.prompt_tokens)


def test_pictures_that_cannot_be_taken_are_400(client: openai.OpenAI, folder: Path) -> None:
    whole = picture(folder, "rgb")
    damaged = base64.b64encode((folder / "rgb").read_bytes()[:200]).decode()
    url = "messages[0].content[0].image_url.url"
    for bad, message in (
        ("http://127.0.0.1/a.png", "found 'http': nothing that a request names is fetched"),
        ("file:///etc/hostname", "found 'file': nothing"),
        (f"data:image/png;base64,{damaged}", "the picture: damaged or cut off"),
        ("data:image/png;base64,AAAA", "no image that is known"),
        (picture(folder, "rgb_jpeg_progressive")["image_url"]["url"], "83 x 64 pixels, expected at most 4,000 in all"),
        (f"data:image/png;base64,{'A' * 40_000}", "expected a picture of at most 20000 bytes"),
    ):
        with pytest.raises(openai.BadRequestError, match=message) as caught:
            ask(client, {"role": "user", "content": [{"type": "image_url", "image_url": {"url": bad}}]})
        assert caught.value.param == url
    with pytest.raises(openai.BadRequestError, match="expected at most 3 pictures in a request; found 4"):
        ask(client, {"role": "user", "content": [whole] * 4})
    with pytest.raises(openai.BadRequestError, match="pictures go with the role user, not system"):
        ask(client, {"role": "system", "content": [whole]}, user(folder, Turn((), "Hello")))
    with pytest.raises(openai.BadRequestError, match="has <image> in its text"):
        ask(client, {"role": "user", "content": [whole, {"type": "text", "text": "<image> or what?"}]})
    with pytest.raises(openai.BadRequestError, match="prompt_logprobs: not supported with pictures"):
        ask(client, user(folder, Turn(("rgb",), "?")), extra_body={"prompt_logprobs": 1})
    with pytest.raises(openai.BadRequestError, match=r"content\[0\]\.type: input_audio is not supported"):
        ask(
            client, {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]}
        )
    with pytest.raises(openai.BadRequestError, match="has 1 image tokens"):
        client.completions.create(model="smolvlm", prompt="<image>", max_tokens=1)
    assert ask(client, user(folder, Turn(("rgb",), "?"))).choices


def test_images_of_any_size_have_positions_in_rows_of_the_server(tmp_path: Path) -> None:
    # Positions of three streams go on behind images, so rows with other images are at other positions.
    case = CASES["qwen3_vl"]
    (tmp_path / "model").mkdir()
    shapes = read_vision_language_manifest()["cases"][case.name]["shapes"]
    write_vision_language_checkpoint(tmp_path / "model", case, shapes)
    export(tmp_path / "model", tmp_path / "qwen", sequence=8, slots=3, max_sequence=256)
    for name in {name for turn in case.turns for name in turn.pictures}:
        (tmp_path / name).write_bytes(turn_picture(name))
    tokenizer, golden = Tokenizer.load(tmp_path / "qwen"), read_vision_language_golden(case.name)
    expected = [[tokenizer.token_bytes(token) for token in one["tokens"].tolist()] for one in golden]
    with (
        serving(tmp_path / "server", f"--bundle={tmp_path / 'qwen'}") as server,
        openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=60) as client,
        concurrent.futures.ThreadPoolExecutor(6) as pool,
    ):
        turns = [user(tmp_path, turn) for turn in case.turns]
        for _ in range(2):  # the second time images and prefixes are known
            answers = pool.map(lambda turn: ask(client, turn, model="qwen", max_tokens=len(expected[0])), turns * 2)
            assert [[token for token, _ in said(answer)] for answer in answers] == expected * 2
        assert server.end() == 0


PENDING = "document.querySelectorAll('#pending img').length"
NOTE = "at('note').textContent"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("this machine has no Chromium: Debian's package is chromium")
    with browsing(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def page(browser: Browser, server: ServerProcess) -> Browser:
    browser.open(f"http://127.0.0.1:{server.port}/", 390, 780)
    browser.wait("document.readyState === 'complete' && document.querySelectorAll('#model option').length === 1")
    for name, value in (("temperature", "0"), ("max_tokens", str(STEPS))):
        browser.run(f"at('{name}').value = '{value}'")
    return browser


def choose(page: Browser, *files: Path) -> None:
    """Chooses files in the page's dialog."""
    root = page.call("DOM.getDocument")["root"]["nodeId"]
    node = page.call("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
    page.call("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])


def hand_over(page: Browser, file: Path, event: str) -> None:
    """Lets an event bring a file."""
    data = base64.b64encode(file.read_bytes()).decode()
    page.run(
        f"data = new DataTransfer(); bytes = Uint8Array.from(atob('{data}'), one => one.charCodeAt(0));"
        f"data.items.add(new File([bytes], 'a.png', {{type: 'image/png'}})); document.dispatchEvent({event})"
    )


def send(page: Browser, text: str) -> str:
    """Sends a message and returns its answer, without the line breaks that stand around blocks of Markdown."""
    page.run("at('text').focus()")
    page.type(text)
    page.press_enter()
    page.wait("!running && at('turns').children.length > 1")
    return page.run("[...document.querySelectorAll('.turn.assistant')].at(-1)?.textContent ?? ''").strip()


def test_the_page_sends_pictures(page: Browser, client: openai.OpenAI, folder: Path) -> None:
    assert page.run("!at('attach').hidden")
    file = folder / "rgb.png"
    file.write_bytes((folder / "rgb").read_bytes())
    choose(page, file)
    page.wait(f"{PENDING} === 1 && !reading")
    assert page.run(NOTE).startswith("1 of 3 pictures, 0.0 MiB of 4.0 MiB")
    page.type("What is this?")
    page.screenshot(Path(os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR") or folder) / "serve_page_picture.png")
    page.run("at('text').value = ''")
    first = user(folder, Turn(("rgb",), "What is this?"))
    given: dict[str, Any] = {"model": "smolvlm", "temperature": 0, "max_tokens": STEPS}
    expected = client.chat.completions.create(messages=[first], **given).choices[0].message.content  # pyright: ignore
    assert send(page, "What is this?") == (expected or "").strip()
    assert page.run(f"{PENDING} === 0 && at('note').hidden && document.querySelectorAll('.turn.user img').length === 1")
    hand_over(page, folder / "rgba", "new ClipboardEvent('paste', {clipboardData: data})")
    page.wait(f"{PENDING} === 1 && !reading")
    hand_over(page, folder / "rgb", "new DragEvent('drop', {dataTransfer: data})")
    page.wait(f"{PENDING} === 2 && !reading")
    assert page.run(NOTE).startswith("3 of 3 pictures")
    choose(page, file)
    page.wait(f"{NOTE}.includes('rgb.png: a conversation has at most 3 pictures')")
    page.run("document.querySelector('#pending button').click()")
    assert page.run(PENDING) == 1
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    page.run("at('fresh').click()")
    assert page.run(PENDING) == 0
    choose(page, file)
    page.wait(f"{PENDING} === 1 && !reading")
    send(page, "")  # a picture says enough
    assert page.run("document.querySelector('.turn.wrong')?.textContent") is None
    assert page.run("messages[0].content.map(part => part.type).join()") == "image_url"


def test_the_page_makes_large_pictures_smaller(page: Browser, folder: Path) -> None:
    large = page.run(
        "canvas = document.createElement('canvas'); canvas.width = 3000; canvas.height = 1000;"
        "canvas.getContext('2d').fillRect(9, 9, 500, 500); canvas.toDataURL('image/png')"
    )
    (folder / "large.png").write_bytes(base64.b64decode(large.partition(",")[2]))
    (folder / "broken.png").write_bytes(b"none")
    choose(page, folder / "broken.png", folder / "large.png")
    page.wait(f"{PENDING} === 1 && !reading")
    assert page.run(NOTE) == "broken.png: no picture that this browser can read."
    assert page.run("pending[0].startsWith('data:image/jpeg;base64,')")
    image = "document.querySelector('#pending img')"
    assert page.run(f"[{image}.naturalWidth, {image}.naturalHeight]") == [109, 36]
    send(page, "What is this?")
    assert page.run("document.querySelector('.turn.wrong')?.textContent") is None
