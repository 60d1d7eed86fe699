"""Example calls of entry points: inputs that exercise them, and the results to expect."""

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from generation import likeliest_ids
from lang_core import TensorSpec
from tapeline.divergence._slot_calls import Arrays, slot_inputs, slot_state, works_on_rows
from transformer_core import NEXT_IDS, TEXT_ALIGNMENT

_LOGITS: Final = "logits"

# Arguments with pictures and sound.
_NUMBERS: Final = ("pixel_values", "input_features")
_NO_TOKENS: Final = TensorSpec((1, 0), "i32")


def example_inputs(arguments: Mapping[str, TensorSpec], vocabulary: int, state: Mapping[str, np.ndarray]) -> Arrays:
    """Returns arrays of the arguments' shapes: varied tokens, then padding; varied numbers; caches of earlier calls.

    Args:
        arguments: specs by name.
        vocabulary: vocabulary size V.
        state: results of earlier calls, with their ``next_position``; caches that it lacks are zeros.
    """
    if works_on_rows(arguments):
        return slot_inputs(arguments, vocabulary, state)
    tokens = arguments.get("token_ids", _NO_TOKENS)
    capacity = max((s.shape[2] for name, s in arguments.items() if name.endswith("_cache")), default=tokens.shape[1])
    begin = np.minimum(state.get("next_position", np.int32(0)), capacity - tokens.shape[1])  # [] or [B]
    inputs: Arrays = {}
    for name, spec in arguments.items():
        if name == "token_ids":
            ids = (np.arange(tokens.size, dtype=np.int64) * 7919 + 11 * (int(begin.max()) + 1)) % vocabulary
            inputs["token_ids"] = ids.astype(np.int32).reshape(tokens.shape)
        elif name == "position":
            inputs["position"] = np.broadcast_to(begin, spec.shape).astype(np.int32)
        elif name == "last":
            fewer = np.arange(spec.size).reshape(spec.shape) % (tokens.shape[1] + 1)  # down to -1, a row without tokens
            inputs["last"] = (tokens.shape[1] - 1 - fewer).astype(np.int32)
        elif name == "length":  # of several tokens, that of a sequence that fills the caches; of one, the length so far
            inputs["length"] = np.full(spec.shape, capacity if tokens.shape[1] > 1 else 0, np.int32)
        elif name == "attention_mask":
            lengths = [max(1, spec.shape[1] * (4 - row % 4) // 4 - 1) for row in range(spec.shape[0])]
            inputs[name] = (np.arange(spec.shape[1]) < np.array(lengths)[:, None]).astype(spec.dtype.numpy)
        elif name == "pooling_mask":  # as if the first token were the prompt's
            real = inputs["attention_mask"] if "attention_mask" in inputs else inputs["text_ids"] >= 0
            inputs[name] = np.where(np.arange(spec.shape[1]) == 0, 0, real).astype(spec.dtype.numpy)
        elif name == "text_ids":
            inputs |= _packed_texts(spec.shape[1], arguments["key_places"].shape[1])
        elif name == "token_type_ids":
            inputs[name] = np.tile(np.arange(spec.shape[1]) * 2 // spec.shape[1], (spec.shape[0], 1)).astype(np.int32)
        elif name in ("positions", "key_places"):
            continue  # of the texts of ``text_ids``
        elif name == "grid":  # of images that are nearly as large as the call takes
            side = max(math.isqrt(arguments["pixel_values"].shape[1]) // 4 * 4, 2)
            inputs[name] = np.full(spec.shape, side, np.int32)
        elif name in _NUMBERS:
            waves = np.sin(np.arange(spec.size, dtype=np.float64) * 0.37) * 1.5
            inputs[name] = waves.reshape(spec.shape).astype(spec.dtype.numpy)
        else:
            inputs[name] = _cached(spec, state.get(name))
    return inputs


def _packed_texts(tokens: int, keys: int) -> Arrays:
    """Returns texts of different lengths in a row of tokens, and padding at the end."""
    text_ids, positions = np.full((1, tokens), -1, np.int32), np.zeros((1, tokens), np.int32)
    places = np.full((1, keys), -1, np.int32)
    begin = first = text = 0
    while begin < tokens - TEXT_ALIGNMENT and first < keys:
        count = min(1 + 11 * text, tokens - TEXT_ALIGNMENT - begin, keys - first)
        text_ids[0, begin : begin + count], positions[0, begin : begin + count] = text, np.arange(count)
        places[0, first : first + count] = np.arange(begin, begin + count)
        first += -(-count // TEXT_ALIGNMENT) * TEXT_ALIGNMENT
        begin, text = begin + count, text + 1
    return {"text_ids": text_ids, "positions": positions, "key_places": places}


def next_state(inputs: Mapping[str, np.ndarray], results: Mapping[str, np.ndarray]) -> Arrays:
    """Returns the state for the next call; see ``example_inputs``."""
    if works_on_rows(inputs):
        return {**results, **slot_state(inputs)}
    tokens = inputs.get("token_ids")
    count = inputs["last"] + 1 if "last" in inputs else 0 if tokens is None else tokens.shape[1]
    return {**results, "next_position": np.asarray(inputs.get("position", np.int32(0)) + count)}


def _cached(spec: TensorSpec, known: np.ndarray | None) -> np.ndarray:
    return np.zeros(spec.shape, spec.dtype.numpy) if known is None else known


def expected_result(name: str, actual: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the expected value of a result, of its shape: the reference's, except for the likeliest tokens.

    Rounding decides which of two nearly equal logits is larger. Logits are therefore compared with the reference, and
    the likeliest tokens must be exactly those of the same side's own logits.

    Args:
        name: name of the result.
        actual: results of the compared side, of their specs' shapes; logits are [.., V].
        reference: results of the reference, of the same shapes.

    >>> actual = {"logits": np.array([[1.0, 1.01]], np.float32), "next_ids": np.array([1], np.int32)}
    >>> expected_result("next_ids", actual, {"next_ids": np.array([0], np.int32)}).tolist()
    [1]
    """
    return likeliest_ids(actual[_LOGITS]) if name == NEXT_IDS and _LOGITS in actual else reference[name]
