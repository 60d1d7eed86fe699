"""Weights in memory, for tests."""

import zlib
from collections.abc import Iterator

import numpy as np

from lang_core import EagerExecutionContext, Module, TensorSpec, as_dtype


class RandomWeights:
    """A WeightSource with normal random values for every parameter of a module; the norms' lie around 1.

    The values depend on the seed and the parameter's path only.
    """

    def __init__(self, module: Module, seed: int = 0) -> None:
        self._arrays: dict[str, np.ndarray] = {}
        for path, parameter in module.named_parameters():
            random = np.random.default_rng([seed, zlib.crc32(path.encode())])
            values = random.standard_normal(parameter.spec.shape)
            values = 1 + values / 8 if parameter.spec.ndim == 1 else values / np.sqrt(parameter.spec.shape[-1])
            self._arrays[path] = values.astype(parameter.spec.dtype.numpy)

    def keys(self) -> Iterator[str]:
        return iter(self._arrays)

    def has(self, key: str) -> bool:
        return key in self._arrays

    def spec(self, key: str) -> TensorSpec:
        return TensorSpec(self._arrays[key].shape, as_dtype(self._arrays[key].dtype))

    def read(self, key: str) -> np.ndarray:
        return self._arrays[key]

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        return self._arrays[key][start:stop]

    def origin(self, key: str) -> str:
        return "memory"


def context_of(module: Module, seed: int = 0) -> EagerExecutionContext:
    """An eager context with random weights for the module."""
    return EagerExecutionContext(RandomWeights(module, seed))
