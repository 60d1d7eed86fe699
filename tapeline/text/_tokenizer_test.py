"""Tokenizers from a directory."""

import doctest
import json
import shutil
import threading
import time
from pathlib import Path

import pytest
import tokenizers

from lang_core import CheckpointError, ConfigError, InputError
from tapeline.text import (
    IdStream,
    Tokenizer,
    _ids,
    _samples_testing,
    _tokenizer,
    find_tokenizer,
    parse_token_ids,
    register_tokenizer,
    tokenizer_files,
)


def _directory(path: Path, scheme: str = "byte_fallback") -> Path:
    getattr(_samples_testing, scheme)().save(str(path / "tokenizer.json"))
    return path


def test_encode_adds_special_tokens(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(_directory(tmp_path))
    ids = tokenizer.encode("the the")
    assert ids[0] == 1
    assert tokenizer.decode(ids) == "the the"
    stream = tokenizer.stream()
    assert [stream.push(one) for one in ids] == ["", "the", " the"]
    assert tokenizer.vocabulary_size == _samples_testing.byte_fallback().get_vocab_size()


def test_other_threads_go_on_while_a_long_text_is_encoded(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(_directory(tmp_path))
    encoding = threading.Thread(target=tokenizer.encode, args=("the " * 200_000,))
    encoding.start()
    steps = 0
    while encoding.is_alive():
        time.sleep(0.001)
        steps += 1
    assert steps > 20  # 1 to 3 if encoding holds the interpreter's lock


def test_tokens_that_are_matched_whole(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(_directory(tmp_path, "byte_level"))
    tool = tokenizer.vocabulary_size - 1
    assert [tokenizer.added_id(token) for token in ("<tool>", "</s>", "the", "none")] == [tool, 1, None, None]
    assert tokenizer.text_ids() == {tool}
    assert json.loads(tokenizer.serialized()) == json.loads(tokenizer.path.read_text())
    stream = tokenizer.stream(keep=["</s>"])
    assert [stream.push(token) for token in (0, 1, tool)] == ["", "</s>", "<tool>"]


def test_names_of_special_tokens_as_text(tmp_path: Path) -> None:
    """Other tokens that are matched whole stay so; names of infilling are text, special or not."""
    inner = _samples_testing.byte_level()
    inner.add_tokens([tokenizers.AddedToken("<|fim_middle|>", special=False)])
    inner.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    text = "the</s> tape<|fim_middle|><tool>"
    size = tokenizer.vocabulary_size
    (end,), (tool,), (middle,) = (tokenizer.encode(name) for name in ("</s>", "<tool>", "<|fim_middle|>"))
    assert {end, tool, middle} <= {*tokenizer.encode(text)}
    literal = tokenizer.encode_literal(text, size)
    assert {end, tool, middle} & {*literal} == {tool}
    assert tokenizer.decode(literal) == text
    assert tokenizer.encode_literal("", size) == []
    assert tokenizer.begin_ids() == []
    with pytest.raises(InputError, match="not valid UTF-8"):
        tokenizer.encode_literal("\ud800", size)
    llama = _samples_testing.byte_fallback()
    llama.save(str(tmp_path / "tokenizer.json"))
    assert Tokenizer.load(tmp_path).begin_ids() == []  # no file names the token
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<s>"}')
    assert Tokenizer.load(tmp_path).begin_ids() == [1]


def test_padding_and_truncation_of_the_file_are_off(tmp_path: Path) -> None:
    inner = _samples_testing.byte_fallback()
    inner.enable_truncation(3)
    inner.enable_padding(length=9)
    inner.save(str(tmp_path / "tokenizer.json"))
    assert len(Tokenizer.load(tmp_path).encode("the the the the")) == 5


def test_decode_passes_over_unknown_ids(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(_directory(tmp_path))
    assert tokenizer.decode([*tokenizer.encode("the"), 10**6]) == "the"


def test_find(tmp_path: Path) -> None:
    assert find_tokenizer(tmp_path) is None
    tokenizer = find_tokenizer(_directory(tmp_path))
    assert tokenizer is not None
    assert tokenizer.path == tmp_path / "tokenizer.json"


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.json: copy it from .*, or give `token_ids` instead"):
        Tokenizer.load(tmp_path)


def test_foreign_format(tmp_path: Path) -> None:
    (tmp_path / "spiece.model").touch()
    with pytest.raises(CheckpointError, match=r"has spiece\.model but no tokenizer\.json, and of .*save_pretrained"):
        find_tokenizer(tmp_path)


def test_empty_file_of_sentencepiece(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").touch()
    with pytest.raises(
        CheckpointError, match=r"tokenizer\.model is no SentencePiece model \(it has no pieces\): copy it"
    ):
        find_tokenizer(tmp_path)


@pytest.mark.parametrize("damage", ["{", "{}", "", '{"model": {"type": "Unheard"}}'])
def test_damaged_file(tmp_path: Path, damage: str) -> None:
    (tmp_path / "tokenizer.json").write_text(damage)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is damaged .*: copy it again"):
        find_tokenizer(tmp_path)


def test_truncated_file(tmp_path: Path) -> None:
    path = _directory(tmp_path) / "tokenizer.json"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is damaged"):
        find_tokenizer(tmp_path)


def test_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(CheckpointError, match=r"cannot read .*tokenizer\.json: .*utf-8.*; copy it again"):
        find_tokenizer(tmp_path)


def test_directory_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").mkdir()
    with pytest.raises(CheckpointError, match=r"cannot read .*tokenizer\.json: .*directory"):
        find_tokenizer(tmp_path)


def test_prompt_that_is_no_unicode(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(_directory(tmp_path))
    prompt = b"the\xff".decode("utf-8", errors="surrogateescape")  # as Python gives it in sys.argv
    with pytest.raises(
        InputError, match=r"`prompt` is not valid UTF-8 \(character 3 is '\\udcff'\): check the terminal"
    ):
        tokenizer.encode(prompt)


def test_prompt_without_tokens(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(_directory(tmp_path, "byte_level"))
    with pytest.raises(InputError, match=r"prompt='' gives no token with .*tokenizer\.json: give a longer text"):
        tokenizer.encode("")


def test_tokenizer_larger_than_the_model(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(_directory(tmp_path))
    the = tokenizer.encode("the")[1]
    with pytest.raises(
        InputError,
        match=rf"`prompt`, encoded with .*tokenizer\.json \({tokenizer.vocabulary_size} entries\), has token id {the} "
        rf"at position 1, but the model's vocabulary ends at {the - 1}: use this model's tokenizer",
    ):
        tokenizer.encode("the", model_size=the)
    assert tokenizer.encode("the", model_size=the + 1) == [1, the]


def test_parse_token_ids() -> None:
    assert parse_token_ids("0, 31,7", model_size=32) == [0, 31, 7]


@pytest.mark.parametrize(("text", "position", "entry"), [("", 0, ""), ("1,,2", 1, ""), ("1,x", 1, "x"), ("-1", 0, "-1"),
                                                         ("1;2", 0, "1;2"), ("1,²", 1, "²")])  # fmt: skip
def test_parse_what_is_no_id(text: str, position: int, entry: str) -> None:
    with pytest.raises(InputError, match=rf"token_ids={text!r}: entry {position} is {entry!r}, no token id; give a"):
        parse_token_ids(text, model_size=32)


def test_parse_id_above_the_vocabulary() -> None:
    with pytest.raises(InputError, match=r"`token_ids` has token id 32 at position 1, but the model's .* ends at 31"):
        parse_token_ids("5,32", model_size=32)


def test_id_stream() -> None:
    stream = IdStream()
    assert "".join([stream.push(5), stream.push(12), stream.push(0), stream.finish()]) == "5,12,0"


def test_every_scheme_file_is_json(tmp_path: Path) -> None:
    for make in _samples_testing.SCHEMES:
        make().save(str(tmp_path / "tokenizer.json"))
        assert json.loads((tmp_path / "tokenizer.json").read_bytes())["model"]
        assert Tokenizer.load(tmp_path).vocabulary_size > 4
    shutil.rmtree(tmp_path)


def test_doctests() -> None:
    assert doctest.testmod(_ids).failed == 0


def test_a_registered_format_is_read_where_there_is_no_tokenizer_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_tokenizer, "_READERS", {})
    (tmp_path / "words.txt").write_text("the\ntimes\nworst\n")
    assert find_tokenizer(tmp_path) is None

    def read(path: Path) -> tokenizers.Tokenizer:
        words = path.read_text().split()
        if not words:
            raise ValueError("no word in it")
        model = tokenizers.models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="the")
        tokenizer = tokenizers.Tokenizer(model)
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        return tokenizer

    register_tokenizer("words.txt", read)
    assert "words.txt" in tokenizer_files()
    tokenizer = find_tokenizer(tmp_path)
    assert tokenizer is not None
    assert tokenizer.encode("the worst times") == [0, 2, 1]
    with pytest.raises(ConfigError, match=r"tokenizer file 'words\.txt' is registered already"):
        register_tokenizer("words.txt", read)
    (tmp_path / "words.txt").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot read .*words\.txt: no word in it; it is damaged: copy it again"):
        find_tokenizer(tmp_path)
