"""SentencePiece's Unigram from GGUF metadata (``tokenizer.ggml.model`` t5): T5, XLM-RoBERTa and its rerankers."""

from typing import Any, Final

from tokenizers import Regex, Tokenizer, decoders, models, normalizers

from lang_core import CheckpointError
from tapeline.text._gguf_vocabulary import PREFIX, TokenType, Vocabulary
from tapeline.text._limits import check_character_map
from tapeline.text._token_bytes import HIDDEN

_SPACE: Final = "▁"
_MAP: Final = "precompiled_charsmap"
_UNKNOWN: Final = 2  # id of the unknown token if no field has it
_MOST: Final = 1 << 24  # bytes of a map of characters


def unigram(vocabulary: Vocabulary) -> tuple[Tokenizer, bool]:
    """Returns the tokenizer, and the default of putting a first token before texts: none.

    Raises:
        CheckpointError: scores are missing or of another number, the unknown token is missing, or the map of characters
            is damaged.
    """
    scores = vocabulary.listed("scores", float, int)
    unknown = next((index for index, kind in enumerate(vocabulary.types) if kind is TokenType.UNKNOWN), None)
    if unknown is None and TokenType.CONTROL not in vocabulary.types:  # an old file, without types
        named = vocabulary.token("unknown_token_id", _UNKNOWN)
        unknown = None if named is None else vocabulary.ids()[named]
    if scores is None or unknown is None:
        raise CheckpointError(
            f"{vocabulary.path}: {PREFIX}scores and token_type: expected a score per token, and a token of unknown "
            f"letters; found {'no scores' if scores is None else 'no such token'}: convert the model again"
        )
    kinds = zip(vocabulary.tokens, vocabulary.types, strict=True)
    names = [HIDDEN + token if kind is TokenType.BYTE else token for token, kind in kinds]  # no text has such a name
    listed = list(zip(names, scores, strict=True))
    tokenizer = Tokenizer(models.Unigram(listed, unk_id=unknown, byte_fallback=False))
    steps: list[Any] = _mapped(vocabulary)
    single = vocabulary.flag("remove_extra_whitespaces", False)
    if single:
        steps += [normalizers.Replace(Regex(r"\A +| +\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    spaces = normalizers.Replace(" ", _SPACE)
    prefix = vocabulary.flag("add_space_prefix", single)
    tokenizer.normalizer = normalizers.Sequence([*steps, *([normalizers.Prepend(_SPACE)] if prefix else []), spaces])
    tokenizer.decoder = decoders.Metaspace(_SPACE, "always" if prefix else "never")
    if TokenType.BYTE in vocabulary.types:
        tail = [decoders.Strip(" ", 1, 0)] if prefix else []
        tokenizer.decoder = decoders.Sequence(
            [
                decoders.Replace(HIDDEN, ""),
                decoders.Replace(_SPACE, " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                *tail,
            ]
        )
    return tokenizer, False


def _mapped(vocabulary: Vocabulary) -> list[Any]:
    """Returns the normalizer that maps characters as the file says; nothing if it says nothing."""
    stored = vocabulary.fields.get(_MAP)
    if not stored:
        return []
    try:
        table = bytes(number & 0xFF for number in stored[:_MOST])
    except TypeError as error:
        raise CheckpointError(
            f"{vocabulary.path}: {PREFIX}{_MAP}: expected SentencePiece's map of characters, a list of bytes; "
            f"found {type(stored).__name__}: convert the model again"
        ) from error
    check_character_map(table, vocabulary.path, f"{PREFIX}{_MAP}")
    try:
        return [normalizers.Precompiled(table)]
    except Exception as error:  # the library raises bare Exceptions
        raise CheckpointError(
            f"{vocabulary.path}: {PREFIX}{_MAP}: expected SentencePiece's map of characters ({error}): convert again"
        ) from error
