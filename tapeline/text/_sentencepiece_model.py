"""SentencePiece's model files (``tokenizer.model``): a message of protocol buffers.

Only the fields that affect tokenization are read. Numbers of the fields are those of SentencePiece's
``sentencepiece_model.proto``, which has the syntax of proto2.
"""

import enum
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lang_core import CheckpointError, file_bytes

_MOST_BYTES: Final = 1 << 25
_MOST_PIECES: Final = 1 << 21
_MOST_LETTERS: Final = 1 << 31  # of all pieces' squared lengths: finding merges takes that many steps
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT: Final = 10
_COPY: Final = "copy it again from the model's source"

Value = int | float | bytes


class PieceType(enum.IntEnum):
    """``SentencePiece.Type``."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class ModelType(enum.IntEnum):
    """``TrainerSpec.ModelType``."""

    UNIGRAM = 1
    BPE = 2
    WORD = 3
    CHAR = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the vocabulary.

    Attributes:
        text: with marks for spaces.
        score: log-probability (Unigram) or rank of the merge (BPE).
        kind: type of the piece.
    """

    text: str
    score: float
    kind: PieceType


@dataclass(frozen=True, slots=True, kw_only=True)
class SentencePieceModel:
    """A model of SentencePiece.

    Attributes:
        path: its file.
        pieces: by id.
        kind: algorithm it was trained with.
        byte_fallback: True if unknown letters are spelled by byte pieces.
        unknown: id of the unknown piece.
        tokens: text of ``unk``, ``bos`` and ``eos`` if the model has them.
        character_map: compiled map of characters; empty if there is none.
        adds_prefix: True if a space is put before texts.
        removes_spaces: True if runs of spaces count as one, and spaces around a text are dropped.
    """

    path: Path
    pieces: tuple[Piece, ...]
    kind: ModelType
    byte_fallback: bool
    unknown: int
    tokens: dict[str, str]
    character_map: bytes
    adds_prefix: bool
    removes_spaces: bool


class _DamageError(ValueError):
    """The bytes are not such a message."""


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """Reads a model file.

    Raises:
        CheckpointError: the file is damaged, or larger than a vocabulary is.
    """
    try:
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise _DamageError(f"expected at most {_MOST_BYTES} bytes; found {size}")
        return _model(path, file_bytes(path, _MOST_BYTES))
    except (OSError, _DamageError) as error:
        raise CheckpointError(f"{path} is no SentencePiece model ({error}): {_COPY}") from error


def _model(path: Path, data: bytes) -> SentencePieceModel:
    pieces: list[Piece] = []
    trainer: list[bytes] = []
    normalizer: list[bytes] = []
    for number, value in _fields(data):
        if number == 1:
            pieces.append(_piece(len(pieces), _message(value)))
            if len(pieces) > _MOST_PIECES:
                raise _DamageError(f"it has more than {_MOST_PIECES} pieces")
        elif number == 2:
            trainer.append(_message(value))
        elif number == 3:
            normalizer.append(_message(value))
    if not pieces:
        raise _DamageError("it has no pieces")
    if sum(len(piece.text) ** 2 for piece in pieces) > _MOST_LETTERS:
        raise _DamageError(f"the longest piece has {max(len(piece.text) for piece in pieces)} letters")
    spec, rules = (dict(_fields(b"".join(parts))) for parts in (trainer, normalizer))  # parts are one message
    kind = _number(spec, 3, 1)
    if kind not in set(ModelType):
        raise _DamageError(f"model_type is {kind}")
    names = {"unk": (40, 0, 45, "<unk>"), "bos": (41, 1, 46, "<s>"), "eos": (42, 2, 47, "</s>")}
    return SentencePieceModel(
        path=path,
        pieces=tuple(pieces),
        kind=ModelType(kind),
        byte_fallback=bool(_number(spec, 35, 0)),
        unknown=_number(spec, 40, 0),
        tokens={
            name: _text(spec.get(place, default.encode()), f"{name}_piece") or default
            for name, (number, first, place, default) in names.items()
            if _number(spec, number, first) >= 0
        },
        character_map=_message(rules.get(2, b"")),
        adds_prefix=bool(_number(rules, 3, 1)),
        removes_spaces=bool(_number(rules, 4, 1)),
    )


def _piece(index: int, data: bytes) -> Piece:
    fields = dict(_fields(data))
    score, kind = fields.get(2, 0.0), _number(fields, 3, 1)
    if not isinstance(score, float):
        raise _DamageError(f"piece {index} has a score that is no number")
    if kind not in set(PieceType):
        raise _DamageError(f"piece {index} has the type {kind}")
    return Piece(_text(fields.get(1, b""), f"piece {index}"), score, PieceType(kind))


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Yields the fields of a message: their numbers and values; bytes of texts and of messages."""
    place, end = 0, len(data)
    while place < end:
        key, place = _varint(data, place)
        number, kind = key >> 3, key & 7
        if not number:
            raise _DamageError(f"byte {place}: a field has the number 0")
        if kind == _VARINT:
            value, place = _varint(data, place)
            yield number, value
            continue
        size, place = _varint(data, place) if kind == _BYTES else ({_FIXED64: 8, _FIXED32: 4}.get(kind), place)
        if size is None:
            raise _DamageError(f"byte {place}: field {number} has the wire type {kind}")
        if size > end - place:
            raise _DamageError(f"byte {place}: field {number} needs {size} bytes; found {end - place}")
        stored = data[place : place + size]
        place += size
        yield number, struct.unpack("<f", stored)[0] if kind == _FIXED32 else stored


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for count, byte in enumerate(data[place : place + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, place + count + 1
    raise _DamageError(f"byte {place}: a number has no end")


def _number(fields: dict[int, Value], number: int, default: int) -> int:
    """Returns a field of type int32, bool or enum."""
    value = fields.get(number, default)
    if not isinstance(value, int):
        raise _DamageError(f"field {number} is no whole number")
    low = value & 0xFFFF_FFFF
    return low - (1 << 32) if low >= 1 << 31 else low


def _message(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise _DamageError("a message is a number")
    return value


def _text(value: Value, name: str) -> str:
    try:
        return _message(value).decode()
    except UnicodeDecodeError as error:
        raise _DamageError(f"{name} is no UTF-8") from error
