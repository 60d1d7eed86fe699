"""Read the golden files in ``data/``."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent / "data"
QUANTIZED = DATA / "quantized"
"""Directory of the quantised checkpoints of ``read_quantized_golden``, as ``<case>.safetensors``."""


@dataclass(frozen=True)
class Golden:
    """Results of transformers for a ``GoldenCase``, in f32 with eager attention.

    Attributes:
        prompt: ``[B, T]`` i64.
        tokens: ``[B, steps]`` i64, chosen greedily; end-of-sequence tokens do not stop.
        logits: ``[B, steps, V]`` f32; ``logits[:, i]`` are those that ``tokens[:, i]`` was chosen from, computed with a
            cache: step 0 by the prompt, each later step by one token.
        prompt_logits: ``[B, T, V]`` f32, the prompt's own forward; its last position equals ``logits[:, 0]``.
        hidden: ``[L, B, T, D]`` f32, the prompt's residual stream after each block (before the final norm), or None.
    """

    prompt: np.ndarray
    tokens: np.ndarray
    logits: np.ndarray
    prompt_logits: np.ndarray
    hidden: np.ndarray | None


@dataclass(frozen=True)
class RopeGolden:
    """Results of transformers for a ``RopeCase``; R is the number of rotated dims of a head.

    Attributes:
        inv_freq: ``[R/2]`` f32, the frequencies after scaling (of the table for this sequence's length).
        attention_factor: what cos and sin are multiplied by; contained in ``cos`` and ``sin`` already.
        positions: ``[P]`` i64, or ``[3, P]`` for multi-section RoPE.
        cos, sin: ``[P, R]`` f32 in the SPLIT_HALF layout: entry i and entry i + R/2 are the same.
    """

    inv_freq: np.ndarray
    attention_factor: float
    positions: np.ndarray
    cos: np.ndarray
    sin: np.ndarray


@dataclass(frozen=True)
class GatedDeltaGolden:
    """Results of transformers' Gated DeltaNet for ``gated_delta_sizes.CASES[name]``, in f32.

    Attributes:
        weights: by their names in the checkpoint.
        x: ``[B, T, D]``.
        whole: ``[B, T, D]``, of x at once.
        pieces: ``[B, T, D]``, of x in ``gated_delta_sizes.PIECES``, with a cache.
        conv: ``[B, W - 1, C]``, the convolution's state after the last piece.
        delta: ``[B, N, Hk, Hv]``, the delta rule's.
    """

    weights: dict[str, np.ndarray]
    x: np.ndarray
    whole: np.ndarray
    pieces: np.ndarray
    conv: np.ndarray
    delta: np.ndarray


def read_golden(name: str) -> Golden:
    """The golden arrays of the case called ``name``."""
    with np.load(DATA / f"{name}.npz", allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    return Golden(**{"hidden": None, **arrays})


def read_rope_golden(name: str) -> RopeGolden:
    """The golden table of the RoPE case called ``name``."""
    with np.load(DATA / "rope.npz", allow_pickle=False) as file:
        fields = {field: file[f"{name}.{field}"] for field in ("inv_freq", "positions", "cos", "sin")}
        return RopeGolden(attention_factor=float(file[f"{name}.attention_factor"]), **fields)


def read_gated_delta_golden(name: str) -> GatedDeltaGolden:
    """The golden arrays of the Gated DeltaNet called ``name``."""
    with np.load(DATA / "gated_delta_net.npz", allow_pickle=False) as file:
        arrays = {key.removeprefix(f"{name}."): file[key] for key in file.files if key.startswith(f"{name}.")}
    weights = {key.removeprefix("weights."): arrays.pop(key) for key in list(arrays) if key.startswith("weights.")}
    return GatedDeltaGolden(weights=weights, **arrays)


def read_manifest() -> dict[str, Any]:
    """``manifest.json``: versions, and per case the digests of its data and of its weights."""
    return json.loads((DATA / "manifest.json").read_text())


def read_quantized_golden(case: str) -> dict[str, np.ndarray]:
    """Returns the weights, f32, that the format's own library makes of a quantised checkpoint, by key."""
    with np.load(DATA / "quantized.npz") as file:
        return {key.partition("/")[2]: file[key] for key in file.files if key.startswith(f"{case}/")}
