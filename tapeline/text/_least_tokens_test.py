"""The least number of tokens of a text, against what the tokenizers library encodes."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from tapeline.text import _samples_testing as samples
from tapeline.text._least_tokens import least_tokens


def composed() -> Tokenizer:
    """NFC before bytes, as Qwen has it."""
    tokenizer = samples.byte_level()
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens([AddedToken("ﬁ\u0958e\u0301", normalized=True)])
    return tokenizer


def stripped() -> Tokenizer:
    """Tokens that take the spaces beside them, as Phi-3 has them."""
    tokenizer = samples.byte_fallback()
    tokenizer.add_special_tokens([AddedToken("<|end|>", rstrip=True), AddedToken("<mask>", lstrip=True, rstrip=True)])
    return tokenizer


def split() -> Tokenizer:
    """A pattern, then bytes, as Llama 3 has it."""
    tokenizer = samples.byte_level()
    steps = [pre_tokenizers.Split(Regex(r"\p{L}+|\s+"), "isolated"), pre_tokenizers.ByteLevel(use_regex=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return tokenizer


BOUNDED = (samples.byte_level, samples.byte_fallback, samples.byte_fallback_without_strip, composed, stripped, split)
PIECES = (
    *(
        "the ",
        "The tape tells ",
        " ",
        "  ",
        "\t",
        "\u3000",
        "\n",
        "ü",
        "日本語",
        "🙂",
        "x" * 40,
        "e\u0301",
        "\u1100\u1161\u11a8",
    ),
    *(
        "<s>",
        "</s>",
        "<tool>",
        "<mask>",
        "<|end|>",
        "<unk>",
        "ﬁ\u0958e\u0301",
        "\u0915\u093c",
        "\u0390\u0301",
        "\u2126",
        "\ufb2c",
        "\x00",
    ),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=30), st.integers(1, 50))
def test_no_text_has_fewer_tokens(pieces: list[str], often: int) -> None:
    text = "".join(pieces) + "".join(pieces[:2]) * often
    for tokenizer, least in BOUNDS:
        count = len(tokenizer.encode_batch([text], add_special_tokens=False)[0].ids)
        assert least(text) <= count


@pytest.mark.parametrize("tokenizer", [one() for one in BOUNDED], ids=[one.__name__ for one in BOUNDED])
def test_spaces_beside_tokens_and_composed_letters(tokenizer: Tokenizer) -> None:
    least = least_tokens(tokenizer)
    assert least is not None
    for text in (
        " " * 5000 + "<mask>" + "\u3000\t" * 5000,
        "<|end|>" + "\n" * 5000,
        "\u1fbf\u0345" * 500,
        "e\u0301" * 500,
    ):
        for inner in (
            text,
            "\u1100\u1161\u11a8" * 300,
            "\u03b1\u0313\u0300\u0345" * 300,
            "<tool>" * 90,
            "ﬁ\u0958e\u0301" * 90,
        ):
            count = len(tokenizer.encode(text + inner, add_special_tokens=False).ids)
            assert least(text + inner) <= count
    assert least("") == 0
    assert least("z" * 10_000) > 40  # it says something


def _with(change: Callable[[Tokenizer], Any], of: Callable[[], Tokenizer] = samples.byte_level) -> Tokenizer:
    tokenizer = of()
    change(tokenizer)
    return tokenizer


def _normalizer(step: normalizers.Normalizer) -> Callable[[Tokenizer], Any]:
    return lambda tokenizer: setattr(tokenizer, "normalizer", step)


def _pre(step: pre_tokenizers.PreTokenizer) -> Callable[[Tokenizer], Any]:
    return lambda tokenizer: setattr(tokenizer, "pre_tokenizer", step)


_BYTES = pre_tokenizers.ByteLevel()
_UNBOUNDED: dict[str, Tokenizer] = {
    "unigram joins unknown letters": samples.metaspace(),
    "a long word is one unknown token": samples.word_piece(),
    "a suffix": samples.word_suffix(),
    "unknown letters": Tokenizer(models.BPE({"a": 0, "<unk>": 1}, [], unk_token="<unk>", fuse_unk=True)),
    "missing bytes": _with(_pre(_BYTES), lambda: Tokenizer(models.BPE({"a": 0, "<unk>": 1}, [], unk_token="<unk>"))),
    "removed": _with(_pre(pre_tokenizers.Sequence([pre_tokenizers.Split(" ", "removed"), _BYTES]))),
    "spaces": _with(_pre(pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), _BYTES]))),
    "strip": _with(_normalizer(normalizers.Strip())),
    "accents": _with(_normalizer(normalizers.Sequence([normalizers.NFC(), normalizers.StripAccents()]))),
    "shorter": _with(_normalizer(normalizers.Replace("aa", "a"))),
    "nothing": _with(_normalizer(normalizers.Replace("a", ""))),
    "pattern": _with(_normalizer(normalizers.Replace(Regex("a+"), "aaa"))),
    "compatible": _with(_normalizer(normalizers.NFKC())),
}


@pytest.mark.parametrize("name", _UNBOUNDED)
def test_what_may_drop_letters_has_no_bound(name: str) -> None:
    assert least_tokens(_UNBOUNDED[name]) is None


BOUNDS = [(tokenizer, least) for tokenizer in (one() for one in BOUNDED) if (least := least_tokens(tokenizer))]
