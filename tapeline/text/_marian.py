"""Tokenizer of a Marian: source.spm and target.spm, each a SentencePiece model, and vocab.json with the ids of pieces.

As transformers' ``MarianTokenizer``: a text is cut into pieces by source.spm, and a piece that vocab.json lacks is the
unknown token; a language in front of a text, ``>>fra<<``, is a token.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from lang_core import LARGE_JSON_BOUNDS, CheckpointError, file_bytes, json_value
from tapeline.text._library import encoding_of
from tapeline.text._limits import check_character_map, check_tokens, check_vocabulary
from tapeline.text._sentencepiece_model import ModelType, read_sentencepiece

FILES: Final = ("source.spm", "target.spm")
"""Names of the models."""
TARGET_VOCABULARY: Final = "target_vocab.json"
"""Name of the ids of the answer's pieces, if these are not those of the source's."""

_VOCABULARY: Final = "vocab.json"
_SPACE: Final = "▁"
_CODE: Final = re.compile(r">>.*?<<", re.DOTALL)
_COPY: Final = "copy it again from the model's source"


class MarianSource:
    """Tokens of sources.

    Args:
        path: source.spm.
        vocabulary: id of each piece.
        special: texts of the special tokens by name.
    """

    def __init__(self, path: Path, vocabulary: Mapping[str, int], special: Mapping[str, str]) -> None:
        model = read_sentencepiece(path)
        check_tokens((piece.text for piece in model.pieces), str(path), "pieces")
        if model.kind is not ModelType.UNIGRAM:
            raise CheckpointError(f"{path}: expected a Unigram model, as Marian's are; found {model.kind.name}")
        pieces = [(piece.text, piece.score) for piece in model.pieces]
        self._inner: Final = tokenizers.Tokenizer(models.Unigram(pieces, model.unknown, model.byte_fallback))
        if model.character_map:
            check_character_map(model.character_map, str(path), "precompiled_charsmap")
            self._inner.normalizer = normalizers.Precompiled(model.character_map)
        scheme: Any = "always" if model.adds_prefix else "never"
        self._inner.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(_SPACE, prepend_scheme=scheme)]
        )
        self._vocabulary: Final = vocabulary
        self._unknown: Final = vocabulary[special["unk_token"]]
        self._end: Final = vocabulary[special["eos_token"]]
        names = sorted({*special.values()} & {*vocabulary}, key=len, reverse=True)
        self._special: Final = re.compile(f"({'|'.join(map(re.escape, names))})")

    def __call__(self, text: str, special_tokens: bool) -> list[int]:
        """Returns the ids of a text, with its end if ``special_tokens``."""
        ids: list[int] = []
        for number, part in enumerate(self._special.split(text)):
            ids += self._pieces(part) if number % 2 == 0 else [self._vocabulary[part]]
        return [*ids, self._end] if special_tokens else ids

    def _pieces(self, text: str) -> list[int]:
        code = _CODE.match(text)
        begun = [] if code is None else [code[0]]
        tokens = encoding_of(self._inner, text[len(begun[0]) if begun else 0 :], special_tokens=False).tokens
        return [self._vocabulary.get(token, self._unknown) for token in (*begun, *tokens)]


def read_marian(
    directory: Path, config: Mapping[str, Any]
) -> tuple[tokenizers.Tokenizer, MarianSource, dict[str, str]]:
    """Reads the tokenizer of a directory.

    Args:
        directory: has source.spm, target.spm and vocab.json.
        config: its tokenizer_config.json.

    Returns:
        The tokenizer of answers, the tokens of sources, and the special tokens by name.

    Raises:
        CheckpointError: a file is missing or damaged, or lacks a special token.
    """
    source = _vocabulary(directory / _VOCABULARY)
    special = {
        name: config[name]["content"] if isinstance(config.get(name), dict) else str(config.get(name) or default)
        for name, default in (("unk_token", "<unk>"), ("eos_token", "</s>"), ("pad_token", "<pad>"))
    }
    lacking = [token for token in special.values() if token not in source]
    if lacking:
        raise CheckpointError(f"{directory / _VOCABULARY} lacks the token {lacking[0]!r}: {_COPY}")
    target = _vocabulary(directory / TARGET_VOCABULARY) if config.get("separate_vocabs") is True else source
    inner = tokenizers.Tokenizer(models.WordLevel(dict(target), special["unk_token"]))
    inner.decoder = decoders.Metaspace(_SPACE, prepend_scheme="always")
    inner.add_special_tokens([token for token in special.values() if token in target])
    return inner, MarianSource(directory / FILES[0], source, special), special


def is_marian(directory: Path) -> bool:
    """Returns whether a directory has the files of a Marian's tokenizer."""
    return all((directory / name).exists() for name in (*FILES, _VOCABULARY))


def _vocabulary(path: Path) -> dict[str, int]:
    try:
        vocabulary = json_value(file_bytes(path, LARGE_JSON_BOUNDS.nbytes), LARGE_JSON_BOUNDS)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {error}; {_COPY}") from error
    if not isinstance(vocabulary, dict) or not all(
        isinstance(number, int) and not isinstance(number, bool) and 0 <= number < len(vocabulary) * 2
        for number in vocabulary.values()
    ):
        raise CheckpointError(f"{path}: expected ids by piece: {_COPY}")
    check_vocabulary(vocabulary, str(path), path.stem)
    return vocabulary
