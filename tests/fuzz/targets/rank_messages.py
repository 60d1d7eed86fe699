"""Messages between ranks: an input is a line of JSON, then the bytes of the arrays."""

from random import Random

import numpy as np

from lang_core import TensorSpec
from run_jax.processes._wire_testing import Handle, Written, read_written
from tests.fuzz._json_mutations import mutate_json
from tests.fuzz._target import Target

_VALUES = (
    {"array": 0},
    {"handle": 3},
    {"spec": [[2, 3], "f32"]},
    {"slice": [0, 2, None]},
    {"map": []},
    ["f32", [2, 2]],
)
_KEYS = ("array", "handle", "spec", "slice", "map")
_MESSAGES = (
    {"call": "decode", "arguments": [np.arange(6, dtype=np.float32).reshape(2, 3), 3, None, "a", True]},
    [Handle(1), TensorSpec((2, 3), "bf16"), slice(0, 4, 2), {"a": {"b": [np.int64(7), np.zeros((0, 2), np.int32)]}}],
    {},
)


def _seeds() -> list[bytes]:
    made = [Written(message) for message in _MESSAGES]
    return [one.text + b"\n" + b"".join(array.tobytes() for array in one.arrays) for one in made]


def _mutate(data: bytes, draw: Random) -> bytes:
    text, _, payload = data.partition(b"\n")
    if draw.random() < 0.2:
        payload = draw.choice((payload[:-1], payload * 2, b""))
    return mutate_json(text, draw, _VALUES, _KEYS) + b"\n" + payload


def _run(data: bytes) -> bool:
    text, _, payload = data.partition(b"\n")
    read_written(text, memoryview(payload), Handle)
    return True


TARGET = Target(seeds=_seeds, run=_run, mutate=_mutate)
