"""Safetensors files: the header, and reads of every tensor."""

import json
import struct
from random import Random

from lang_core import CheckpointError
from tests.fuzz._files import written
from tests.fuzz._json_mutations import mutate_json
from tests.fuzz._target import Target
from transformer_core.checkpoints import SafetensorsFile

_LENGTH = struct.Struct("<Q")
_DTYPES = ("BOOL", "U8", "I8", "I16", "F16", "BF16", "I32", "F32", "I64", "F64", "F4", "F8_E4M3", "F8_E8M0", "C64")
_VALUES = (*_DTYPES, [0, 0], [0, 4], [4, 8], [2, 2], [2**62, 2**62], [0], [0, 2**63], [-1, 4], [1] * 32, [1] * 33)
_KEYS = ("__metadata__", "dtype", "shape", "data_offsets", "w", "b")


def _file(header: object, data: bytes, padding: int = 0) -> bytes:
    text = json.dumps(header).encode() + b" " * padding
    return _LENGTH.pack(len(text)) + text + data


def _entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def _seeds() -> list[bytes]:
    two = {"w": _entry("F32", [2, 3], 0, 24), "b": _entry("BF16", [4], 24, 32), "__metadata__": {"format": "pt"}}
    mixed = {name: _entry(name, [1], 8 * place, 8 * place + 8) for place, name in enumerate(("I64", "F64", "C64"))}
    return [
        _file(two, bytes(range(32))),
        _file(mixed, bytes(24), padding=5),
        _file({"q": _entry("F8_E4M3", [2, 2], 0, 4), "e": _entry("F32", [0], 4, 4)}, bytes(4)),
        _file({"scalar": _entry("I32", [], 0, 4)}, bytes(4)),
        _file({}, b""),
    ]


def _mutate(data: bytes, draw: Random) -> bytes:
    if len(data) < _LENGTH.size:
        return data
    end = _LENGTH.size + min(_LENGTH.unpack_from(data)[0], len(data))
    header, tensors = data[_LENGTH.size : end], data[end:]
    if draw.random() < 0.2:
        tensors = draw.choice((tensors[:-1], tensors + b"\0", tensors * 2, b""))
    header = mutate_json(header, draw, _VALUES, _KEYS)
    length = len(header) if draw.random() < 0.95 else draw.choice((0, 1, len(header) + 1, 2**31, 2**63, 2**64 - 1))
    return _LENGTH.pack(length) + header + tensors


def _run(data: bytes) -> bool:
    with SafetensorsFile(written("model.safetensors", data)) as file:
        for key in [*file.keys()]:
            dtype, shape = file.stored_form(key)
            try:
                array = file.read(key)
            except CheckpointError:  # a dtype that is listed and not read
                continue
            if array.shape != tuple(shape) or array.tobytes() not in data:
                raise AssertionError(f"{key}: read {array.dtype}{array.shape}, stored as {dtype}{shape}")
    return True


TARGET = Target(seeds=_seeds, run=_run, mutate=_mutate)
