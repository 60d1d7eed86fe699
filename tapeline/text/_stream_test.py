"""The stream's pieces joined are the decoding of all ids, whatever the tokenizer and whatever the ids."""

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from tapeline.text import TextStream, _samples_testing

_SCHEMES = {make.__name__: make for make in _samples_testing.SCHEMES}
_every_scheme = pytest.mark.parametrize("scheme", _SCHEMES)


@functools.cache
def _tokenizer(scheme: str) -> Tokenizer:
    return _SCHEMES[scheme]()


def _id(tokenizer: Tokenizer, token: str) -> int:
    token_id = tokenizer.token_to_id(token)
    assert token_id is not None
    return token_id


def _pieces(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    stream = TextStream(tokenizer)
    return [*(stream.push(one) for one in ids), stream.finish()]


def _check(tokenizer: Tokenizer, ids: list[int]) -> None:
    pieces = _pieces(tokenizer, ids)
    whole = tokenizer.decode(ids, skip_special_tokens=True)
    assert "".join(pieces) == whole
    assert sum(piece.count("\ufffd") for piece in pieces) == whole.count("\ufffd")


@_every_scheme
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_ids(scheme: str, data: st.DataObject) -> None:
    tokenizer = _tokenizer(scheme)
    highest = tokenizer.get_vocab_size() + 2  # some ids have no token
    _check(tokenizer, data.draw(st.lists(st.integers(0, highest), max_size=25)))


@_every_scheme
@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=30) | st.lists(st.sampled_from([*"aehtT,. 日é🙂\u0301", "the", "  ", " a"])).map("".join))
def test_ids_of_text(scheme: str, text: str) -> None:
    tokenizer = _tokenizer(scheme)
    _check(tokenizer, tokenizer.encode(text).ids)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_bytes_and_letters_and_specials(data: st.DataObject) -> None:
    """Byte runs that are right, wrong, cut short, and parted by tokens with and without text."""
    tokenizer = _tokenizer("byte_fallback")
    parts = ["日".encode(), "🙂".encode()[:3], b"\xff", b"\x82", "é".encode(), *"the▁", "▁▁", "</s>", "�"]
    ids: list[int] = []
    for part in data.draw(st.lists(st.sampled_from(parts), max_size=12)):
        tokens = [f"<0x{byte:02X}>" for byte in part] if isinstance(part, bytes) else [part]
        ids += [_id(tokenizer, token) for token in tokens]
    _check(tokenizer, ids)


def test_each_character_comes_with_its_last_byte() -> None:
    tokenizer = _tokenizer("byte_level")
    stream = TextStream(tokenizer)
    printed = ""
    for character in "aß日🙂 ":
        ids = tokenizer.encode(character).ids
        printed += "".join(stream.push(one) for one in ids)
        assert printed.endswith(character)
    assert stream.finish() == ""


def test_first_space_goes_and_later_ones_stay() -> None:
    tokenizer = _tokenizer("byte_fallback")
    the = _id(tokenizer, "▁the")
    end = _id(tokenizer, "</s>")
    assert _pieces(tokenizer, [1, the, the, end, the]) == ["", "the", " the", "", " the", ""]


def test_byte_run_comes_when_it_ends() -> None:
    tokenizer = _tokenizer("byte_fallback")
    run = [_id(tokenizer, f"<0x{byte:02X}>") for byte in "🙂".encode()]
    letter = _id(tokenizer, "a")
    assert _pieces(tokenizer, [letter, *run, letter]) == ["a", "", "", "", "", "🙂a", ""]
    assert _pieces(tokenizer, run) == ["", "", "", "", "🙂"]
    assert _pieces(tokenizer, run[:2]) == ["", "", "��"]


def test_byte_tokens_are_plain_text_without_byte_fallback() -> None:
    tokenizer = Tokenizer(models.BPE(vocab={"<0xE2>": 0, "a": 1}, merges=[]))
    tokenizer.decoder = decoders.Fuse()
    assert _pieces(tokenizer, [0, 1]) == ["<0xE2>", "a", ""]


def test_finish_makes_the_stream_new() -> None:
    tokenizer = _tokenizer("byte_fallback")
    the = _id(tokenizer, "▁the")
    stream = TextStream(tokenizer)
    assert [stream.push(the), stream.finish(), stream.push(the)] == ["the", "", "the"]


def test_window_stays_small() -> None:
    """The cost of a token must not grow with the text."""
    tokenizer = _tokenizer("metaspace")
    stream = TextStream(tokenizer)
    for one in tokenizer.encode(" ".join(["the tape is"] * 200)).ids:
        stream.push(one)
        assert len(stream._window) <= 2


@pytest.mark.parametrize("scheme", ["byte_level", "byte_fallback"])
def test_special_tokens_that_are_kept(scheme: str) -> None:
    """They are shown where they stand, and the text around them is what it is without them."""
    tokenizer = _tokenizer(scheme)
    ids = tokenizer.encode("the tape, 日本", add_special_tokens=False).ids
    first, second = _id(tokenizer, "<s>"), _id(tokenizer, "</s>")
    for place in range(len(ids) + 1):
        stream = TextStream(tokenizer, keep=["<s>", "no token"])
        pieces = [stream.push(token) for token in (*ids[:place], first, second, *ids[place:])]
        text = "".join([*pieces, stream.finish()])
        assert text.count("<s>") == 1
        assert "</s>" not in text
        if "\ufffd" not in text:  # it stands between characters
            assert text.replace("<s>", "") == tokenizer.decode(ids)
        assert pieces[place].endswith("<s>")  # at once
