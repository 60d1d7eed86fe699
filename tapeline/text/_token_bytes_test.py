"""Bytes of tokens, against what the tokenizers library decodes."""

from collections.abc import Callable

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from tapeline.text._token_bytes import token_bytes

TEXTS = ("plain words, and 123", "äöü 漢字 🙂\n\ttabs", "\u0000\u0001\u007f\u00a0\u00ad", "<|x|> in text")


def byte_level() -> tokenizers.Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(models.BPE({one: index for index, one in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def byte_fallback() -> tokenizers.Tokenizer:
    pieces = [f"<0x{value:02X}>" for value in range(256)] + ["\u2581", *"abcdefghijklmnopqrstuvwxyz,"]
    vocabulary = {one: index for index, one in enumerate([*pieces, "<unk>"])}
    model = models.BPE(vocabulary, [], byte_fallback=True, unk_token="<unk>")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


@pytest.mark.parametrize("made", [byte_level, byte_fallback])
def test_bytes_of_a_text_are_those_of_its_tokens(made: Callable[[], tokenizers.Tokenizer]) -> None:
    tokenizer = made()
    tokenizer.add_special_tokens([AddedToken("<|x|>", special=True)])
    of = token_bytes(tokenizer)
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        joined = b"".join(map(of, ids))
        assert joined == text.encode()
        assert joined.decode() == tokenizer.decode(ids, skip_special_tokens=False)


def test_an_unknown_id_has_no_bytes() -> None:
    assert token_bytes(byte_level())(10_000) == b""
