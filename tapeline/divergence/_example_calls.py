"""Example calls of entry points: inputs that exercise them, and the results to expect."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from generation import likeliest_ids
from lang_core import TensorSpec
from tapeline.divergence._slot_calls import Arrays, slot_inputs, slot_state, works_on_rows
from transformer_core import NEXT_IDS

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
            inputs[name] = np.where(np.arange(spec.shape[1]) == 0, 0, inputs["attention_mask"]).astype(spec.dtype.numpy)
        elif name == "token_type_ids":
            inputs[name] = np.tile(np.arange(spec.shape[1]) * 2 // spec.shape[1], (spec.shape[0], 1)).astype(np.int32)
        elif name in _NUMBERS:
            waves = np.sin(np.arange(spec.size, dtype=np.float64) * 0.37) * 1.5
            inputs[name] = waves.reshape(spec.shape).astype(spec.dtype.numpy)
        else:
            inputs[name] = _cached(spec, state.get(name))
    return inputs


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
