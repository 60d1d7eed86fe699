"""Tokenizers to GGUF's metadata and back: the same ids. What llama.cpp does, done plainly, gives them, too."""

import functools
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Inner

from lang_core import CheckpointError
from tapeline.text import Tokenizer, UnreadTokenizerError, _samples_testing, gguf_tokenizer, write_gguf_tokenizer

ODD = (
    "", " ", "  a  ", "\n", "\r\n\t", "the tape", " the", "a\u0301 é", "日本語 🙂", "👩‍👩‍👧", "1234567", "x1y22",
    "'ll ISN'T",
    "<s>the</s>", "<tool>the", "a<unk>b", "▁the", "\x00\x7f\u200b\ufeff", "über" * 5, "the" * 7, "<0x41>",
)  # fmt: skip


@functools.cache
def both(scheme: str, listed: bool = False) -> tuple[Inner, Inner]:
    """A sample, and what comes back of it."""
    sample = getattr(_samples_testing, scheme)()
    space = {"ggml.add_space_prefix": False} if scheme.endswith("strip") else {}
    metadata = _samples_testing.metadata_of(sample, **space)
    if listed:  # as Gemma 4
        pairs = json.loads(sample.to_str())["model"]["merges"]
        metadata |= {"tokenizer.ggml.model": "gemma4", "tokenizer.ggml.merges": [" ".join(pair) for pair in pairs]}
    made = gguf_tokenizer(metadata, "some.gguf")
    assert made is not None
    return sample, made[0]


_SCHEMES = pytest.mark.parametrize("scheme", ["byte_level", "byte_fallback", "byte_fallback_without_strip"])


@_SCHEMES
@pytest.mark.parametrize("text", ODD)
def test_odd_texts_come_back(scheme: str, text: str) -> None:
    sample, converted = both(scheme)
    assert converted.encode(text).ids == sample.encode(text).ids
    ids = converted.encode(text).ids
    assert converted.decode(ids) == sample.decode(ids)


@pytest.mark.parametrize("text", ODD)
def test_listed_merges_give_the_same(text: str) -> None:
    sample, converted = both("byte_fallback_without_strip", listed=True)
    ids = sample.encode(text).ids
    assert converted.encode(text).ids == ids
    assert converted.decode(ids) == sample.decode(ids)


@_SCHEMES
@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=25) | st.lists(st.sampled_from(["the", " ", "1", "\n", "é", "🙂", "<s>"])).map("".join))
def test_any_text_comes_back(scheme: str, text: str) -> None:
    sample, converted = both(scheme)
    assert converted.encode(text).ids == sample.encode(text).ids


def plain_merging(text: str, scores: dict[str, float]) -> list[str]:
    """llama.cpp's ``llm_tokenizer_spm``: the best pair that makes a token first, the leftmost of equals."""
    parts = list(text)
    while True:
        pairs = [(-scores[a + b], i) for i, (a, b) in enumerate(itertools.pairwise(parts)) if a + b in scores]
        if not pairs:
            return parts
        _, i = min(pairs)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_scores_order_merges_as_in_llama_cpp(data: st.DataObject) -> None:
    """Random vocabularies of a small alphabet: tokens that several pairs make, and tokens that no pair makes."""
    longer = data.draw(st.lists(st.text("abc", min_size=2, max_size=4), unique=True, max_size=12))
    order = data.draw(st.permutations(longer))
    tokens = ["<unk>", "<s>", "a", "b", "c", *longer]
    scores = [0.0] * 5 + [float(-order.index(token)) for token in longer]
    metadata = {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": [2, 3] + [1] * (len(tokens) - 2), "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.ggml.add_bos_token": False,
    }  # fmt: skip
    made = gguf_tokenizer(metadata, "some.gguf")
    assert made is not None
    text = data.draw(st.text("abc", min_size=1, max_size=12))
    known = dict(zip(tokens[2:], scores[2:], strict=True))
    assert made[0].encode(text).tokens == plain_merging(text, known)


def test_the_first_and_the_last_token() -> None:
    fields = _samples_testing.metadata_of(_samples_testing.byte_fallback())
    del fields["tokenizer.ggml.add_bos_token"]  # old files: SentencePiece begins with it all the same
    for flags, expected in (
        ({}, ["<s>", "▁the"]),
        ({"add_bos_token": False}, ["▁the"]),
        ({"add_eos_token": True, "eos_token_id": 2}, ["<s>", "▁the", "</s>"]),
        ({"add_eos_token": True}, ["<s>", "▁the", "</s>"]),
    ):
        made = gguf_tokenizer(fields | {f"tokenizer.ggml.{key}": value for key, value in flags.items()}, "some.gguf")
        assert made is not None
        assert made[0].encode("the").tokens == expected
        assert made[0].encode("the", add_special_tokens=False).tokens == ["▁the"]
    for pre, begins in {"llama-bpe": True, "qwen2": False, "gpt-2": False}.items():
        fields = _samples_testing.metadata_of(_samples_testing.byte_level()) | {"tokenizer.ggml.pre": pre}
        del fields["tokenizer.ggml.add_bos_token"]
        made = gguf_tokenizer(fields, "some.gguf")
        assert made is not None
        assert (made[0].encode("the").tokens[0] == "<s>", made[1]["add_bos_token"]) == (begins, begins)


@pytest.mark.parametrize("token", ["<1:", ":", "a:b:0", "$A", "$", "", "bos", "eos"])
def test_the_first_and_the_last_token_have_any_name(token: str, tmp_path: Path) -> None:
    """A template of the library's reads colons and dollars in a name."""
    fields = _samples_testing.metadata_of(_samples_testing.byte_level())
    tokens = fields["tokenizer.ggml.tokens"]
    first, last = tokens.index("<s>"), tokens.index("</s>")
    fields["tokenizer.ggml.tokens"] = [token if name == "<s>" else name for name in tokens]
    fields |= {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}
    write_gguf_tokenizer(fields | {"tokenizer.ggml.eos_token_id": last}, "some.gguf", tmp_path)
    tokenizer, plain = Tokenizer.load(tmp_path), _samples_testing.byte_level()
    middle = plain.encode("the tape", add_special_tokens=False).ids
    assert tokenizer.encode("the tape") == [first, *middle, last]
    assert tokenizer.encode("the tape", special_tokens=False) == middle


def test_a_merge_that_is_listed_twice_has_its_first_place() -> None:
    fields = _samples_testing.metadata_of(_samples_testing.byte_level())
    once = gguf_tokenizer(fields, "some.gguf")
    merges = fields["tokenizer.ggml.merges"]
    twice = gguf_tokenizer(fields | {"tokenizer.ggml.merges": [*merges, *merges[:2]]}, "some.gguf")
    assert once is not None
    assert twice is not None
    assert twice[0].to_str() == once[0].to_str()


def test_scores_can_be_whole_numbers() -> None:
    fields = _samples_testing.metadata_of(_samples_testing.byte_fallback())
    scores = fields["tokenizer.ggml.scores"]
    assert all(score == int(score) for score in scores)
    floats = gguf_tokenizer(fields, "some.gguf")
    whole = gguf_tokenizer(fields | {"tokenizer.ggml.scores": [int(score) for score in scores]}, "some.gguf")
    assert floats is not None
    assert whole is not None
    assert whole[0].to_str() == floats[0].to_str()


def test_digits_are_cut_where_the_file_says_so() -> None:
    fields = _samples_testing.metadata_of(_samples_testing.byte_level())
    fields["tokenizer.ggml.tokens"] = [*fields["tokenizer.ggml.tokens"], "12"]
    fields["tokenizer.ggml.token_type"] = [*fields["tokenizer.ggml.token_type"], 1]
    fields["tokenizer.ggml.merges"] = ["1 2", *fields["tokenizer.ggml.merges"]]
    cases = {"gpt-2": ["12", "12"], "smollm": ["1", "2", "1", "2"], "llama-bpe": ["12", "1", "2"]}  # 121 and 2
    for pre, expected in cases.items():
        made = gguf_tokenizer(fields | {"tokenizer.ggml.pre": pre}, "some.gguf")
        assert made is not None
        assert made[0].encode("1212").tokens == expected


def test_the_files_of_a_directory(tmp_path: Path) -> None:
    fields = _samples_testing.metadata_of(
        _samples_testing.byte_level(), chat_template="{{ messages }}", **{"ggml.eos_token_id": 1}
    )
    write_gguf_tokenizer(fields, "some.gguf", tmp_path)
    assert Tokenizer.load(tmp_path).encode("the tape") == _samples_testing.byte_level().encode("the tape").ids
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config == {
        "tokenizer_class": "TokenizersBackend",
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": None, "pad_token": None,
        "add_bos_token": False, "add_eos_token": False, "chat_template": "{{ messages }}",
    }  # fmt: skip
    named = {"chat_templates": ["tool_use"], "chat_template.tool_use": "{{ tools }}"}
    write_gguf_tokenizer(fields | {f"tokenizer.{key}": value for key, value in named.items()}, "some.gguf", tmp_path)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["chat_template"] == [
        {"name": "default", "template": "{{ messages }}"},
        {"name": "tool_use", "template": "{{ tools }}"},
    ]


def test_no_tokenizer(tmp_path: Path) -> None:
    write_gguf_tokenizer({"general.architecture": "llama"}, "some.gguf", tmp_path)
    write_gguf_tokenizer({"tokenizer.ggml.model": "no_vocab"}, "some.gguf", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"model": "rwkv"},
            r"some.gguf: tokenizer.ggml.model: expected one of gpt2, llama, gemma4, bert, t5; found 'rwkv'",
        ),
        (
            {"pre": "llama-bqe"},
            r"tokenizer.ggml.pre: expected one of llama-bpe, .* in all\); found 'llama-bqe'; did you mean",
        ),
        ({"model": ["gpt2"]}, r"tokenizer.ggml.model: expected one of gpt2, llama, gemma4, bert, t5; found \['gpt2'\]"),
        ({"pre": None}, r"tokenizer.ggml.pre: expected one of .*; found None"),
    ],
)
def test_kinds_that_are_not_read(change: dict[str, Any], message: str) -> None:
    fields = _samples_testing.metadata_of(
        _samples_testing.byte_level(), **{f"ggml.{key}": value for key, value in change.items()}
    )
    with pytest.raises(UnreadTokenizerError, match=message):
        gguf_tokenizer(fields, "some.gguf")


@pytest.mark.parametrize(
    ("scheme", "change", "message"),
    [
        ("byte_level", {"tokens": None}, r"tokenizer.ggml.tokens: expected a list of strings; found None: convert"),
        ("byte_level", {"tokens": ["a", 3]}, r"tokens: expected a list of strings; found a list of 2"),
        ("byte_level", {"token_type": [1, 1]}, r"token_type: expected \d+ values, one per token; found a list of 2"),
        ("byte_level", {"merges": None}, r"merges: expected a list of strings; found None"),
        ("byte_level", {"merges": ["ab"]}, r"merges: entry 0 is 'ab', expected two tokens and a space"),
        ("byte_level", {"merges": ["a b c"]}, r"merges: entry 0 is 'a b c', expected two tokens"),
        (
            "byte_level",
            {"merges": ["never there"]},
            r"merges do not fit the tokens \(.*never.*\): convert the",
        ),
        ("byte_level", {"bos_token_id": 10**6}, r"bos_token_id: expected an id below \d+; found 1000000: convert"),
        ("byte_level", {"add_bos_token": 1}, r"add_bos_token: expected true or false; found 1"),
        ("byte_fallback", {"scores": None}, r"tokenizer.ggml.scores are missing, expected one per token"),
        ("byte_fallback", {"scores": [0.5]}, r"scores: expected \d+ values, one per token; found a list of 1"),
    ],
)
def test_damage_is_named(scheme: str, change: dict[str, Any], message: str) -> None:
    sample = getattr(_samples_testing, scheme)()
    fields = _samples_testing.metadata_of(sample, **{f"ggml.{key}": value for key, value in change.items()})
    with pytest.raises(CheckpointError, match=message):
        gguf_tokenizer(fields, "some.gguf")


def test_a_template_that_is_no_text() -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer.chat_template \(default\): expected text; found 3"):
        gguf_tokenizer(_samples_testing.metadata_of(_samples_testing.byte_level(), chat_template=3), "some.gguf")


def _spm(architecture: str, tokens: dict[str, int], **fields: Any) -> Inner:
    """Returns the tokenizer of SentencePiece's BPE with further tokens, by type, behind bytes and letters."""
    plain = [f"<0x{byte:02X}>" for byte in range(256)], [*"▁abht", "▁a"]
    named = {"<unk>": 2, "<s>": 3, "</s>": 3, **dict.fromkeys(plain[0], 6), **dict.fromkeys(plain[1], 1), **tokens}
    stated = {"model": "llama", "tokens": [*named], "token_type": [*named.values()], "add_bos_token": False}
    stated |= {"scores": [float(-index) for index in range(len(named))], "unknown_token_id": 0, **fields}
    metadata = {"general.architecture": architecture} | {
        key if key.startswith("general.") else f"tokenizer.ggml.{key}": value for key, value in stated.items()
    }
    made = gguf_tokenizer(metadata, "some.gguf")
    assert made is not None
    assert made[0].get_vocab_size(with_added_tokens=True) == len(named)
    return made[0]


@pytest.mark.parametrize("architecture", ["gemma", "gemma2", "gemma3", "gemma3n", "gemma-embedding"])
def test_runs_of_spaces_are_the_tokens_of_the_file(architecture: str) -> None:
    runs = {" " * count: 4 for count in range(2, 5)}
    tokenizer = _spm(architecture, runs, add_space_prefix=False)
    for text, expected in {
        "a  b": ["a", "  ", "b"],
        "a      b": ["a", "    ", "  ", "b"],
        "  a b": ["  ", "a", "▁", "b"],
    }.items():
        encoded = tokenizer.encode(text)
        assert encoded.tokens == expected
        assert tokenizer.decode(encoded.ids) == text


@pytest.mark.parametrize("name", ["Phi-3-mini", "Phi 3 mini", None])
def test_special_tokens_of_phi_3_take_the_white_space_behind_them(name: str | None) -> None:
    tokens = {"<|user|>": 3, "<|assistant|>": 3, "<|endoftext|>": 3}
    named = {} if name is None else {"general.name": name}
    tokenizer = _spm("phi3", tokens, add_space_prefix=False, **named)
    other = _spm("llama", tokens, add_space_prefix=False)
    user, end, letter, spaced = map(tokenizer.token_to_id, ("<|user|>", "<|endoftext|>", "a", "▁a"))
    assert tokenizer.encode("<|user|>\n a").ids == [user, letter]
    assert tokenizer.encode("<|endoftext|> a").ids == [end, spaced]
    assert other.encode("<|user|> a").ids == [user, spaced]


def test_tokens_that_end_answers_are_special_whatever_their_type() -> None:
    tokenizer = _spm("llama", {"<|im_end|>": 1, "<|im_start|>": 3}, add_space_prefix=False)
    assert tokenizer.encode("a<|im_end|>").tokens == ["a", "<|im_end|>"]
    assert tokenizer.decode(tokenizer.encode("a<|im_end|>").ids) == "a"


def test_kimi_without_merges_merges_by_ids() -> None:
    fields = _samples_testing.metadata_of(_samples_testing.byte_level(), **{"ggml.pre": "kimi-k2"})
    listed = gguf_tokenizer(fields, "some.gguf")
    del fields["tokenizer.ggml.merges"]
    ranked = gguf_tokenizer(fields, "some.gguf")
    assert listed is not None
    assert ranked is not None
    for text in ODD:
        assert ranked[0].encode(text).ids == listed[0].encode(text).ids
    with pytest.raises(CheckpointError, match="merges: expected a list of strings; found None"):
        gguf_tokenizer(fields | {"tokenizer.ggml.pre": "qwen2"}, "some.gguf")


def test_a_missing_splitting_is_told(tmp_path: Path) -> None:
    fields = _samples_testing.metadata_of(_samples_testing.byte_level())
    assert write_gguf_tokenizer(fields, "some.gguf", tmp_path) == ()
    del fields["tokenizer.ggml.pre"]
    (note,) = write_gguf_tokenizer(fields, "some.gguf", tmp_path)
    assert "tokenizer.ggml.pre is missing, so texts are split as 'default' says" in note
