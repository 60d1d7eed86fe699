"""Tokenizers that are assembled from all files of a directory; ``tests/parity/drawn_tokenizers_test.py`` draws them."""

import doctest
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from lang_core import CheckpointError, TapelineError
from tapeline.text import Chat, ChatTemplate, Tokenizer, _samples_testing, _spaces, find_tokenizer
from tapeline.text._assembly import special_tokens
from tapeline.text._spaces import SpaceStream, without_spaces

_CHATML = "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"


def write(
    directory: Path, config: Any = None, *, scheme: str | None = "byte_level", model: str = "llama", **files: Any
) -> Path:
    if scheme is not None:
        getattr(_samples_testing, scheme)().save(str(directory / "tokenizer.json"))
    (directory / "config.json").write_text(json.dumps({"model_type": model}))
    for name, fields in {"tokenizer_config": config, **files}.items():
        if fields is not None:
            (directory / f"{name}.json").write_text(fields if isinstance(fields, str) else json.dumps(fields))
    return directory


def token(content: str, **flags: bool) -> dict[str, Any]:
    base = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    return {"content": content, **base, "special": True, **flags}


def test_tokens_of_the_configuration_are_added(tmp_path: Path) -> None:
    size = _samples_testing.byte_level().get_vocab_size()
    added = {str(size): token("<|im_start|>"), str(size + 1): token("<|im_end|>", rstrip=True)}
    config = {"eos_token": "<|im_end|>", "bos_token": "<s>", "added_tokens_decoder": added, "chat_template": _CHATML}
    tokenizer = Tokenizer.load(write(tmp_path, config))
    assert tokenizer.encode("<|im_start|>the<|im_end|>  the", special_tokens=False)[0] == size
    assert tokenizer.encode("<|im_end|>  the")[1:] == tokenizer.encode("the")
    chat = Chat.of(tmp_path, tokenizer)
    assert chat.ask("the", 10**6)[:2] == [0, size]
    assert chat.end_ids() == {size + 1}
    assert tokenizer.eos_id() == size + 1


def test_older_files_name_the_tokens(tmp_path: Path) -> None:
    named = {
        "bos_token": "<s>",
        "eos_token": {**token("<|end|>"), "lstrip": True},
        "additional_special_tokens": ["<x>"],
    }
    size = _samples_testing.byte_level().get_vocab_size()
    files = {"special_tokens_map": named, "added_tokens": {"<|new|>": size}}
    tokenizer = Tokenizer.load(write(tmp_path, {"chat_template": _CHATML, "eos_token": "</s>"}, **files))
    assert tokenizer.tokens == {"bos_token": "<s>", "eos_token": "<|end|>"}
    assert tokenizer.encode("<|new|> <|end|><x>") == [size, size + 1, size + 2]
    assert tokenizer.decode([size, size + 1, size + 2]) == "<|new|>"
    assert ChatTemplate.find(tmp_path).render([{"role": "user", "content": "a"}]).startswith("<s><|im_start|>a")
    config = {"added_tokens_decoder": {}, "eos_token": "</s>"}  # which replaces the older files
    assert Tokenizer.load(write(tmp_path, config, **files)).tokens == {"eos_token": "</s>"}


@pytest.mark.parametrize(
    ("config", "model", "expected"),
    [
        ({"tokenizer_class": "LlamaTokenizer"}, "olmo_unheard", {"bos_token": "<s>", "eos_token": "</s>"}),
        ({"tokenizer_class": "LlamaTokenizerFast", "bos_token": None}, "llama", {"eos_token": "</s>"}),
        ({"tokenizer_class": "LlamaTokenizer"}, "mistral", {}),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, "gemma2", {}),
        ({"tokenizer_class": "OwnTokenizer"}, "llama", {}),
        (None, "llama", {}),
        (None, "gemma2", {"bos_token": "<bos>", "eos_token": "<eos>"}),
    ],
)
def test_the_class_has_tokens_of_its_own(config: Any, model: str, expected: dict[str, str], tmp_path: Path) -> None:
    tokens = Tokenizer.load(write(tmp_path, config, scheme="byte_fallback", model=model)).tokens
    assert {name: tokens[name] for name in ("bos_token", "eos_token") if name in tokens} == expected
    assert special_tokens(tmp_path) == tokens


def test_the_class_replaces_parts_of_the_file(tmp_path: Path) -> None:
    inner = _samples_testing.byte_level()
    cases = {"PreTrainedTokenizerFast": "e\u0301", "Qwen2Tokenizer": "é"}
    for name, composed in cases.items():
        tokenizer = Tokenizer.load(write(tmp_path, {"tokenizer_class": name}))
        assert tokenizer.encode("e\u0301") == inner.encode(composed, add_special_tokens=False).ids
    bert = {"tokenizer_class": "BertTokenizer", "do_lower_case": False, "unk_token": "<unk>"}
    cased = Tokenizer.load(write(tmp_path, bert, scheme="word_piece", model="bert"))
    lower = Tokenizer.load(write(tmp_path, {**bert, "do_lower_case": True}, scheme="word_piece", model="bert"))
    assert lower.encode("TAPE") == lower.encode("tape") == cased.encode("tape") != cased.encode("TAPE")


@pytest.mark.parametrize("kind", ["QuestionEncoder", "ContextEncoder", "Reader"])
def test_the_classes_of_dpr_lowercase_whatever_the_files_say(kind: str, tmp_path: Path) -> None:
    config = {"tokenizer_class": f"DPR{kind}TokenizerFast", "do_lower_case": False, "unk_token": "<unk>"}
    tokenizer = Tokenizer.load(write(tmp_path, config, scheme="word_piece", model="dpr"))
    assert tokenizer.encode("TAPE") == tokenizer.encode("tape")


def test_another_model_than_that_of_the_class_is_used_as_it_is(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(write(tmp_path, {"tokenizer_class": "LlamaTokenizer"}, scheme="no_decoder"))
    assert tokenizer.encode("the tape") == [2, 3]
    assert [note.partition(": ")[2] for note in tokenizer.notes] == [
        "tokenizer class LlamaTokenizer needs a BPE model; found WordLevel, used as it is"
    ]
    unknown = Tokenizer.load(write(tmp_path, {"tokenizer_class": "AlbertTokenizer"}, scheme="no_decoder"))
    own = Tokenizer.load(write(tmp_path, {"auto_map": {"AutoTokenizer": ["code.Own", None]}}, scheme="no_decoder"))
    assert [note[:37] for note in own.notes] == ["the tokenizer has code of its own (au"]
    assert unknown.notes == ("tokenizer class AlbertTokenizer is not known here: tokenizer.json is used as it is",)
    speech = Tokenizer.load(write(tmp_path, {"tokenizer_class": "ParakeetTokenizer"}, scheme="no_decoder"))
    assert speech.notes == ("tokenizer class ParakeetTokenizer is not known here: tokenizer.json is used as it is",)


def test_vocabularies_without_a_tokenizer_json(tmp_path: Path) -> None:
    bert = {"tokenizer_class": "BertTokenizer"}
    write(tmp_path, bert, scheme=None, model="bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "tape", "##s"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    tokenizer = find_tokenizer(tmp_path)
    assert tokenizer is not None
    assert tokenizer.encode("The tapes") == [2, 5, 6, 7, 3]
    (tmp_path / "vocab.txt").unlink()
    state = json.loads(_samples_testing.byte_level().to_str())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(state["vocab"]))
    write(tmp_path, {"tokenizer_class": "GPT2Tokenizer"}, scheme=None)
    with pytest.raises(CheckpointError, match=r"has vocab\.json but no tokenizer\.json, and of files without one only"):
        find_tokenizer(tmp_path)
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(pair) for pair in state["merges"]))
    tokenizer = find_tokenizer(tmp_path)
    assert tokenizer is not None
    assert tokenizer.encode("the tape") == _samples_testing.byte_level().encode("the tape").ids
    assert tokenizer.tokens["eos_token"] == "<|endoftext|>"
    (tmp_path / "merges.txt").write_text("#version: 0.2\nnever there\n")
    with pytest.raises(CheckpointError, match=r"vocab\.json and .*merges\.txt cannot be read \(.*it is damaged: copy"):
        find_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"added_tokens_decoder": 3}, r"added_tokens_decoder: expected an object with token ids as keys; found 3"),
        ({"added_tokens_decoder": {"x": {}}}, "added_tokens_decoder: expected an object with token ids as keys"),
        ({"added_tokens_decoder": {"3": {}}}, r"added_tokens_decoder\.3: expected a token with 'content' and flags"),
        ({"added_tokens_decoder": {"3": token("a") | {"lstrip": 1}}}, "flags that are true or false; found"),
        ({"eos_token": 3}, "eos_token: expected a token; found 3: copy it again"),
        ({"extra_special_tokens": [3]}, r"extra_special_tokens: expected tokens; found 3"),
        ("[1]", r"tokenizer_config\.json: expected a JSON object; found list"),
        ("{", r"cannot read .*tokenizer_config\.json: .*; copy it again from the model's source"),
    ],
)  # fmt: skip
def test_damage_is_named(config: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=message):
        Tokenizer.load(write(tmp_path, config))


def test_damaged_older_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"added_tokens\.json: 'a': expected a token id; found 'b'"):
        Tokenizer.load(write(tmp_path, added_tokens={"a": "b"}))


_KEYS = st.sampled_from(["content", "3", "x"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 400) | st.sampled_from(["", "<s>", "the", "a b", ":0", "$A"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_KEYS, inner, max_size=2),
    max_leaves=4,
)
_FIELDS = st.sampled_from(
    ["bos_token", "eos_token", "unk_token", "image_token", "added_tokens_decoder", "additional_special_tokens",
     "extra_special_tokens", "add_bos_token", "legacy", "add_prefix_space", "tokenizer_class", "auto_map",
     "do_lower_case", "chat_template", "extra_ids", "model_specific_special_tokens", "clean_up_tokenization_spaces"]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    config=st.dictionaries(_FIELDS, _VALUES),
    named=st.dictionaries(_FIELDS, _VALUES, max_size=3),
    scheme=st.sampled_from([scheme.__name__ for scheme in _samples_testing.SCHEMES]),
    name=st.sampled_from(["LlamaTokenizer", "Qwen2Tokenizer", "BertTokenizer", "T5Tokenizer", "GPT2Tokenizer", None]),
)
def test_any_fields_are_used_or_refused(
    config: dict[str, Any],
    named: dict[str, Any],
    scheme: str,
    name: str | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("drawn")
    write(directory, {"tokenizer_class": name, **config}, scheme=scheme, special_tokens_map=named)
    try:
        tokenizer = Tokenizer.load(directory)
        tokenizer.decode(tokenizer.encode("the tape <s>"))
    except TapelineError as error:
        assert str(error)  # noqa: PT017


@given(pieces=st.lists(st.text(" .,'?nmtsverx", max_size=4)))
def test_spaces_are_removed_from_pieces_as_from_the_whole(pieces: list[str]) -> None:
    stream = SpaceStream()
    assert "".join([*map(stream.push, pieces), stream.finish()]) == without_spaces("".join(pieces))


def test_decoding_removes_spaces_if_the_configuration_asks(tmp_path: Path) -> None:
    inner = _samples_testing.no_decoder()
    inner.add_tokens([AddedToken("."), AddedToken("n't")])
    write(tmp_path, {"clean_up_tokenization_spaces": True})
    inner.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    ids = tokenizer.encode("the tape is n't .")
    assert tokenizer.decode(ids) == "the tape isn't."
    stream = tokenizer.stream()
    assert "".join([*map(stream.push, ids), stream.finish()]) == "the tape isn't."


def test_doctest() -> None:
    assert doctest.testmod(_spaces).failed == 0
