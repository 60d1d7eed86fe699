"""Weights in memory, for tests."""

import zlib

import numpy as np

from lang_core import EagerExecutionContext, MappingWeights, Module


class RandomWeights(MappingWeights):
    """Normal random values for every parameter of a module; the norms' lie around 1.

    The values depend on the seed and the parameter's path only.
    """

    def __init__(self, module: Module, seed: int = 0) -> None:
        arrays: dict[str, np.ndarray] = {}
        for path, parameter in module.named_parameters():
            random = np.random.default_rng([seed, zlib.crc32(path.encode())])
            values = random.standard_normal(parameter.spec.shape)
            values = 1 + values / 8 if parameter.spec.ndim == 1 else values / np.sqrt(parameter.spec.shape[-1])
            arrays[path] = values.astype(parameter.spec.dtype.numpy)
        super().__init__(arrays)


def context_of(module: Module, seed: int = 0) -> EagerExecutionContext:
    """An eager context with random weights for the module."""
    return EagerExecutionContext(RandomWeights(module, seed))
