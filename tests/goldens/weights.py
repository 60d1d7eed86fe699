"""Deterministic random weights of tiny models, and real checkpoint files of them.

No weight is stored in the repository. Each tensor comes from its own stream of ``numpy.random.PCG64`` raw bits, seeded
by a hash of the case's seed and the tensor's key: NumPy promises that the raw streams of its bit generators never
change, and the way from bits to floats is here, in exact arithmetic. ``goldens_test.py`` holds a checksum per case.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import ml_dtypes
import numpy as np
import safetensors.numpy

from tests.goldens._case_types import Config, GoldenCase, StoredDType
from tests.goldens._shapes import is_zero_centred, sizes_of, weight_shapes
from tests.goldens._wrapper_shapes import other_shapes

__all__ = [
    "checksum",
    "random_tensor",
    "random_weights",
    "sizes_of",
    "stored_weights",
    "unit_values",
    "weight_shapes",
    "write_checkpoint",
]

Layout = Literal["sequential", "round_robin"]

_NUMPY_DTYPES: dict[StoredDType, np.dtype] = {
    "f32": np.dtype(np.float32),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
}
_TORCH_NAMES: dict[StoredDType, str] = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}


_SCALES = ("layer_scalar", "_scale", "router.scale", "layernorm_1.weight", "layernorm_2.weight")
_OTHER_NORMS = (
    "ln_attn.weight",
    "ln_mlp.weight",
    "norm_1.weight",
    "norm_2.weight",
    "post_norm1.weight",
    "post_norm2.weight",
    "LayerNorm.weight",
    "layernorm1.weight",
    "layernorm2.weight",
    ".ln.weight",
    "layer_norm.weight",
    "layernorm.weight",
)
_NORMS = ("norm.weight", "norm_f.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight", *_SCALES, *_OTHER_NORMS)
_EMBEDDINGS = tuple(
    f"{name}.weight"
    for name in ("embed_tokens", "embed_tokens_per_layer", "embed_in", "embeddings", "wte", "wpe", "transformer.w")
)


def random_weights(config: Config, seed: int) -> dict[str, np.ndarray]:
    """Weights in f32, in the order of ``weight_shapes``.

    Norm weights lie in ``[0.75, 1.25)``, those to which a model adds 1 in ``[-0.25, 0.25)``, biases in ``[-0.5, 0.5)``,
    embeddings have standard deviation ``2 / sqrt(D)`` and the matrices ``gain / sqrt(inputs)``, with gains that let
    attention be picky and logits spread over a few units.

    Args:
        config: a ``config.json`` in either form.
        seed: the case's seed.
    """
    return {
        key: random_tensor(key, shape, seed, sizes_of(config)[1], 0.0 if is_zero_centred(config, key) else 1.0)
        for key, shape in (weight_shapes(config) | other_shapes(config)).items()
    }


def unit_values(key: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """f32 in ``[-1, 1)``, the same on every machine, other ones for every key and seed."""
    digest = hashlib.sha256(f"{seed}:{key}".encode()).digest()
    bits = np.random.PCG64(int.from_bytes(digest[:16], "little")).random_raw(int(np.prod(shape)))
    # 24 bits fill an f32's significand: the integer, its conversion and the scaling by 2**-23 are all exact.
    integers = (bits >> np.uint64(40)).astype(np.int64) - (1 << 23)
    return (integers.astype(np.float32) * np.float32(2.0**-23)).reshape(shape)


def random_tensor(key: str, shape: tuple[int, ...], seed: int, d: int, centre: float) -> np.ndarray:
    """One tensor of ``random_weights``, in a model of size D whose norms' weights lie around ``centre``."""
    if key.endswith(".encoder.embed_positions.weight"):
        return _sines(*shape)
    unit = unit_values(key, shape, seed)
    if key.endswith(_NORMS):
        return np.float32(centre) + np.float32(0.25) * unit
    if key.endswith((".bias", ".beta", ".eps")):
        return np.asarray(np.float32(0.5) * unit)
    if key.endswith(_EMBEDDINGS):
        return unit * np.float32(np.sqrt(3.0 * 4.0 / d))
    picky = any(name in key for name in ("q_proj", "k_proj", "qkv_proj", "query_key_value", "c_attn"))
    gain_squared = 3.0 if picky else 4.0 if key.endswith(("lm_head.weight", "embed_out.weight")) else 1.5
    inputs = shape[0] if ".c_" in key else shape[-1]
    return unit * np.float32(np.sqrt(3.0 * gain_squared / inputs))


def _sines(positions: int, size: int) -> np.ndarray:
    """Returns RoFormer's table, as transformers computes it: sines, then cosines."""
    angles = np.arange(positions)[:, None] / np.power(10000, 2 * np.arange(size // 2) / size)
    return np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)


def stored_weights(case: GoldenCase, dtype: StoredDType | None = None) -> dict[str, np.ndarray]:
    """The weights of a case as its checkpoint has them, rounded to ``dtype`` (``case.stored`` where None)."""
    target = _NUMPY_DTYPES[dtype or case.stored]
    return {key: value.astype(target) for key, value in random_weights(case.config, case.seed).items()}


def checksum(weights: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over key, dtype, shape and little-endian bytes of every tensor, in the order given."""
    digest = hashlib.sha256()
    for key, value in weights.items():
        digest.update(f"{key} {value.dtype.name} {list(value.shape)}\n".encode())
        digest.update(value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes())
    return digest.hexdigest()


def write_checkpoint(
    directory: Path,
    case: GoldenCase,
    *,
    dtype: StoredDType | None = None,
    shards: int = 1,
    layout: Layout = "sequential",
    stored_head: bool = False,
) -> None:
    """Write ``config.json`` and the weights with the safetensors library, as transformers lays them out.

    One shard is ``model.safetensors``; more are ``model-00001-of-0000N.safetensors`` ... and
    ``model.safetensors.index.json``.

    Args:
        directory: an existing, empty directory.
        case: the case whose config and weights to write.
        dtype: the dtype of every tensor; ``case.stored`` where None. ``config.json`` names the same.
        shards: the number of files.
        layout: ``sequential`` fills shard after shard in the model's order; ``round_robin`` deals the tensors out one
            by one, so that each layer's tensors lie in several files.
        stored_head: also store ``lm_head.weight`` (equal to the embedding) in a tied checkpoint, as some files do.
    """
    dtype = dtype or case.stored
    weights = stored_weights(case, dtype)
    if stored_head and case.config.get("tie_word_embeddings", False):
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].copy()
    (directory / "config.json").write_text(_config_text(case.config, dtype))
    files = _assign_files(weights, shards, layout)
    for name in sorted(set(files.values())):
        tensors = {key: weights[key] for key, file in files.items() if file == name}
        safetensors.numpy.save_file(tensors, directory / name, metadata={"format": "pt"})
    if shards > 1:
        total = sum(value.nbytes for value in weights.values())
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(files.items()))}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def _config_text(config: Config, dtype: StoredDType) -> str:
    field = "torch_dtype" if "torch_dtype" in config else "dtype"
    return json.dumps({**config, field: _TORCH_NAMES[dtype]}, indent=2, sort_keys=True) + "\n"


def _assign_files(weights: Mapping[str, np.ndarray], shards: int, layout: Layout) -> dict[str, str]:
    """The file of each key; every shard gets at least one tensor while there are as many tensors as shards."""
    if shards == 1:
        return dict.fromkeys(weights, "model.safetensors")
    count = len(weights)
    numbers = [i % shards if layout == "round_robin" else i * shards // count for i in range(count)]
    return {
        key: f"model-{number + 1:05d}-of-{shards:05d}.safetensors" for key, number in zip(weights, numbers, strict=True)
    }
