"""Models of every family, at sizes that four devices divide, with random weights."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from lang_core import MeshShape
from tests.goldens.cases import CASES
from tests.goldens.grown import grown
from tests.goldens.weights import unit_values
from tests.mesh._xla import MeshFunction
from transformer_core.models import DecoderConfig, DecoderLM, Model, entry_points
from transformer_core.sharding import divide_experts, sharding

STEPS: Final = 12
BATCH: Final = 2
_PROMPT: Final = 6


def golden_decoder(name: str, dtype: str = "f32") -> DecoderLM:
    """Returns the decoder of a golden case, grown."""
    return DecoderLM(DecoderConfig.from_hf(grown(CASES[name].config, experts=True)), dtype)


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
