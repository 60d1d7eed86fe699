"""Models of every family, at sizes that four devices divide, with random weights."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from lang_core import MeshShape
from tests.goldens.weights import unit_values
from tests.mesh._xla import MeshFunction
from transformer_core.models import Model, entry_points
from transformer_core.sharding import sharding

_FACTOR: Final = 4
# Fields of config.json that are multiplied: numbers of heads, and sizes that these or the devices divide.
_GROWN: Final = frozenset(
    "num_attention_heads num_key_value_heads hidden_size intermediate_size moe_intermediate_size vocab_size n_embd "
    "n_head n_inner linear_num_key_heads linear_num_value_heads shared_expert_intermediate_size mamba_n_heads "
    "mamba_num_heads mamba_d_ssm moe_shared_expert_intermediate_size shared_intermediate_size num_heads d_model "
    "ffn_hidden_size block_ff_dim vocab_size_per_layer_input intermediate_size_mlp".split()
)
STEPS: Final = 12
import os

BATCH: Final = int(os.environ.get("MB", "2"))


def grown(config: Any, factor: int = _FACTOR) -> Any:
    """Returns a configuration with more heads and features; sizes of heads stay."""
    if not isinstance(config, dict):
        return config
    made: dict[str, Any] = {}
    for name, value in config.items():
        if name not in _GROWN:
            made[name] = grown(value, factor)
        elif isinstance(value, list):
            made[name] = [item * factor for item in value]
        else:
            made[name] = value * factor if type(value) is int else value
    return made


def random_parameters(model: Model[Any], seed: int = 7) -> dict[str, np.ndarray]:
    """Returns weights of a model whose results are of the order of 1."""
    weights: dict[str, np.ndarray] = {}
    for path, parameter in model.named_parameters():
        shape, dtype = parameter.spec.shape, parameter.spec.dtype.numpy
        unit = unit_values(path, shape, seed)
        scale = np.sqrt(3.0 / shape[-1]) if len(shape) > 1 else 0.25
        weights[path] = ((1.0 if len(shape) == 1 else 0.0) + scale * unit).astype(dtype)
    return weights


def answers(
    model: Model[Any], mesh: MeshShape, weights: Mapping[str, np.ndarray], **options: Any
) -> tuple[np.ndarray, np.ndarray, dict[str, MeshFunction]]:
    """Runs a prefill and some decodes: logits [steps, B, V], ids [steps, B], and the compiled functions."""
    per_row = options.get("positions") == "per_row"
    points = entry_points(model, batch=BATCH, sequence=6, max_sequence=24, **options)
    axes = sharding(model, mesh).parameters
    functions = {point.name: MeshFunction(point, mesh, axes, BATCH) for point in points}
    vocabulary = model.config.vocabulary
    ids = (np.arange(BATCH * 6).reshape(BATCH, 6) * 37 % vocabulary).astype(np.int32)
    begin = np.zeros(BATCH, np.int32) if per_row else np.int32(0)
    last = np.array([5, 3], np.int32)[:BATCH] if per_row else np.int32(5)
    caches = [np.zeros(a.spec.shape, a.spec.dtype.numpy) for a in points[0].arguments if a.alias_result is not None]
    results = functions["prefill"]([ids, begin, last, *caches], weights)
    logits, tokens = [np.asarray(results["logits"])], [np.asarray(results["next_ids"])]
    for step in range(STEPS):
        kept = [results[a.name] for a in points[1].arguments if a.alias_result is not None]
        position = last + np.int32(1 + step)
        results = functions["decode"]([tokens[-1][:, None], position, *kept], weights)
        assert all(cache.is_deleted() for cache in kept)
        logits.append(np.asarray(results["logits"]))
        tokens.append(np.asarray(results["next_ids"]))
    return np.stack(logits), np.stack(tokens), functions
