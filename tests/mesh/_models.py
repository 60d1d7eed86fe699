"""Models of every family, at sizes that four devices divide, with random weights."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from lang_core import MeshShape
from tests.goldens.cases import CASES
from tests.goldens.weights import unit_values
from tests.mesh._xla import MeshFunction
from transformer_core.models import DecoderConfig, DecoderLM, Model, entry_points
from transformer_core.sharding import divide_experts, sharding

_FACTOR: Final = 4
# Fields of config.json that are multiplied: numbers of heads, and sizes that these or the devices divide.
_GROWN: Final = frozenset(
    "num_attention_heads num_key_value_heads hidden_size intermediate_size moe_intermediate_size vocab_size n_embd "
    "n_head n_inner linear_num_key_heads linear_num_value_heads shared_expert_intermediate_size mamba_n_heads "
    "mamba_num_heads mamba_d_ssm moe_shared_expert_intermediate_size shared_intermediate_size num_heads d_model "
    "ffn_hidden_size block_ff_dim vocab_size_per_layer_input intermediate_size_mlp num_local_experts num_experts "
    "n_routed_experts".split()
)
STEPS: Final = 12
BATCH: Final = 2
_PROMPT: Final = 6


def grown(config: Any) -> Any:
    """Returns a configuration with more heads, features and experts; sizes of heads stay."""
    if not isinstance(config, dict):
        return config
    made: dict[str, Any] = {}
    for name, value in config.items():
        if name not in _GROWN:
            made[name] = grown(value)
        elif isinstance(value, list):
            made[name] = [item * _FACTOR for item in value]
        else:
            made[name] = value * _FACTOR if type(value) is int else value
    return made


def golden_decoder(name: str, dtype: str = "f32") -> DecoderLM:
    """Returns the decoder of a golden case, grown."""
    return DecoderLM(DecoderConfig.from_hf(grown(CASES[name].config)), dtype)


def random_parameters(model: Model[Any], seed: int = 7) -> dict[str, np.ndarray]:
    """Returns weights of a model whose results are of the order of 1."""
    weights: dict[str, np.ndarray] = {}
    for path, parameter in model.named_parameters():
        shape, dtype = parameter.spec.shape, parameter.spec.dtype.numpy
        unit = unit_values(path, shape, seed)
        scale = np.sqrt(3.0 / shape[-1]) if len(shape) > 1 else 0.25
        weights[path] = ((1.0 if len(shape) == 1 else 0.0) + scale * unit).astype(dtype)
    return weights


class MeshModel:
    """Model whose entry points ``prefill`` and ``decode`` are compiled for a mesh.

    Attributes:
        functions: the compiled functions by name.
    """

    def __init__(self, model: Model[Any], mesh: MeshShape, *, batch: int = BATCH, **options: Any) -> None:
        divide_experts(model, mesh)
        points = entry_points(model, batch=batch, sequence=_PROMPT, max_sequence=24, **options)
        axes = sharding(model, mesh).parameters
        self._batch, self._vocabulary = batch, model.config.vocabulary
        self._per_row = options.get("positions") == "per_row"
        self._kept = [argument for argument in points[0].arguments if argument.alias_result is not None]
        self.functions = {point.name: MeshFunction(point, mesh, axes, batch) for point in points}

    def answers(self, weights: Mapping[str, np.ndarray], steps: int = STEPS) -> tuple[np.ndarray, np.ndarray]:
        """Runs a prefill and some decodes, greedily: logits [steps, B, V], ids [steps, B]."""
        ids = np.arange(self._batch * _PROMPT, dtype=np.int32).reshape(self._batch, _PROMPT) * 37 % self._vocabulary
        lasts = np.array([5, 3], np.int32)[: self._batch]
        begin, last = (np.zeros_like(lasts), lasts) if self._per_row else (np.int32(0), np.int32(5))
        caches = [np.zeros(argument.spec.shape, argument.spec.dtype.numpy) for argument in self._kept]
        results = self.functions["prefill"]([ids, begin, last, *caches], weights)
        logits, tokens = [np.asarray(results["logits"])], [np.asarray(results["next_ids"])]
        for step in range(steps):
            kept = [results[argument.name] for argument in self._kept]
            results = self.functions["decode"]([tokens[-1][:, None], last + np.int32(1 + step), *kept], weights)
            assert all(cache.is_deleted() for cache in kept)
            logits.append(np.asarray(results["logits"]))
            tokens.append(np.asarray(results["next_ids"]))
        return np.stack(logits), np.stack(tokens)
