"""Data URIs of pictures, and the memory that pictures may take."""

import base64

import numpy as np
import pytest

from tapeline.server._errors import RequestError
from tapeline.server._messages import ChatMessage, ImagePart, ImageUrl, TextPart
from tapeline.server._options import ServerOptions
from tapeline.server._pictures import PixelBudget, picture_bytes, refuse_pictures
from tapeline.server._scripted_server_testing import chat, script_tokens, scripted_server
from tapeline.server._server_testing import RunningServer

__all__ = ["script_tokens", "scripted_server"]

DATA = b"\x89PNG and so on"
URI = f"data:image/png;base64,{base64.b64encode(DATA).decode()}"


def test_a_data_uri_is_its_bytes() -> None:
    assert picture_bytes(URI, "url", len(DATA)) == DATA
    assert picture_bytes(URI.replace("data:image/png;base64", "DATA:;charset=x;BASE64"), "url", 99) == DATA


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://example.org/a.png", "url: expected a data URI .*; found 'https': nothing that a request names is"),
        ("file:///etc/passwd", "found 'file': nothing that a request names is fetched"),
        ("/etc/passwd", "found '/etc/passwd': nothing"),
        ("data:image/png,abc", "expected a data URI in base64"),
        ("data:image/png;base64", "expected a data URI in base64"),
        ("data:image/png;base64,a*b=", "this is no base64 .*: encode the picture again"),
        ("data:image/png;base64,\u00e9", "this is no base64"),
        (f"{URI}{'A' * 400}", "expected a picture of at most 99 bytes: make it smaller"),
    ],
)
def test_other_addresses_are_refused(url: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        picture_bytes(url, "url", 99)
    assert (caught.value.status, caught.value.param) == (400, "url")


def test_pixels_are_held_while_they_live() -> None:
    budget = PixelBudget(ServerOptions(max_pixel_bytes=100))
    first, larger = np.zeros(60, np.uint8), np.zeros(90, np.uint8)
    budget.hold(first)
    view = first[:1]
    with pytest.raises(RequestError, match="holds as many pictures as it may: ask again") as caught:
        budget.hold(larger)
    assert (caught.value.status, caught.value.headers) == (429, {"retry-after": "1"})
    del first
    assert budget.nbytes == 60
    del view
    assert budget.nbytes == 0
    budget.hold(np.zeros(200, np.uint8))  # alone, a picture has what it needs


def test_a_model_that_sees_nothing_refuses_pictures(server: RunningServer) -> None:
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": URI}}]
    answered = chat(server, messages=[{"role": "user", "content": parts}])
    assert answered.status == 400
    assert answered.error["param"] == "messages[0].content[1].image_url.url"
    assert "model 'demo' takes no pictures: send text only" in answered.error["message"]
    tokens = server.request("/tokenize", {"model": "demo", "messages": [{"role": "user", "content": parts}]})
    assert tokens.status == 400
    refuse_pictures([ChatMessage(role="user", content=(TextPart(type="text", text="."),))], "demo")
    picture = ImagePart(type="image_url", image_url=ImageUrl(url=URI))
    with pytest.raises(RequestError, match=r"messages\[0\]\.content\[0\]\.image_url\.url: model 'demo' takes no"):
        refuse_pictures([ChatMessage(role="user", content=(picture,))], "demo")
