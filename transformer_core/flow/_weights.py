"""Weights that a flow loads by key or computes, beside those of its modules."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from lang_core import (
    CheckpointError,
    DType,
    MappingWeights,
    Module,
    Parameter,
    TensorSpec,
    WeightSource,
    checked_choices,
    near_names,
)


@checked_choices
@dataclass(frozen=True, slots=True)
class ParameterKey:
    """Identity of a loaded value."""

    key: str
    transpose: bool
    dtype: DType


@dataclass(frozen=True, slots=True)
class LoadedParameter:
    """Weight that a stage loaded or computed.

    Attributes:
        parameter: weight as stored; the same for both orientations.
        key: key of the source; None if it was synthesised.
    """

    parameter: Parameter
    key: str | None


class FlowWeights:
    """Weight source of a flow: a source, synthesised arrays, and keys that are read in a second dtype.

    Implements ``lang_core.WeightSource``: contexts and exports of a flow read from it.

    Args:
        source: source of all other weights; None without.
    """

    def __init__(self, source: WeightSource | None) -> None:
        self.source: Final = source
        self._stored: Final = MappingWeights({}, "the flow, built without weights") if source is None else source
        self._arrays: Final[dict[str, np.ndarray]] = {}
        self._made: Final = MappingWeights(self._arrays, "synthesised by the flow")
        self._keys: Final[dict[str, str]] = {}

    def synthesise(self, name: str, array: np.ndarray) -> None:
        """Adds an array; replaces one of the same name."""
        self._arrays[name] = array

    def rename(self, name: str, key: str) -> None:
        """Makes ``name`` an alias of the source's ``key``."""
        self._keys[name] = key

    def is_alias(self, name: str) -> bool:
        """Returns whether ``name`` is an alias of a key of the source."""
        return name in self._keys

    def is_free(self, name: str, key: str) -> bool:
        """Returns whether ``name`` may be an alias of ``key``: it is not another key, alias or synthesised array."""
        return self._keys.get(name) == key or not self.has(name)

    def keys(self) -> Iterator[str]:
        """Yields the source's keys, then the added ones."""
        yield from self._stored.keys()
        yield from self._keys
        yield from self._arrays

    def has(self, key: str) -> bool:
        """Returns whether the key exists."""
        source, stored = self._of(key)
        return source.has(stored)

    def spec(self, key: str) -> TensorSpec:
        """Returns the shape and dtype that reading gives."""
        source, stored = self._of(key)
        return source.spec(stored)

    def encoding(self, key: str) -> str | None:
        """Returns the name of the tensor's encoding; None if it is not packed."""
        source, stored = self._of(key)
        return source.encoding(stored)

    def read(self, key: str) -> np.ndarray:
        """Reads the whole tensor."""
        source, stored = self._of(key)
        return source.read(stored)

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows ``start`` to ``stop`` of the first axis."""
        source, stored = self._of(key)
        return source.read_rows(stored, start, stop)

    def origin(self, key: str) -> str:
        """Returns the file or place of the tensor, for messages."""
        source, stored = self._of(key)
        return source.origin(stored)

    def _of(self, key: str) -> tuple[WeightSource, str]:
        """Returns the source that has a key, and its key there."""
        return (self._made, key) if key in self._arrays else (self._stored, self._keys.get(key, key))


class _Root(Module):
    """Parent of parameters with paths of their own."""


def parameter_at(path: str, spec: TensorSpec) -> Parameter:
    """Makes a parameter outside modules, under a path."""
    parameter = Parameter(spec.shape, spec.dtype)
    _Root()._adopt(parameter, path)  # not as an attribute: a key of a file may be any text
    return parameter


def stored_spec(
    source: WeightSource | None, key: str, where: str, shape: tuple[int, ...] | None, transpose: bool
) -> TensorSpec:
    """Returns the stored spec of a key that a stage loads.

    Args:
        source: weights that the flow was built with.
        key: key of the source.
        where: module path, for messages.
        shape: required shape in the orientation of the value; any if None.
        transpose: whether the value is the transposed matrix.

    Raises:
        CheckpointError: the flow lacks weights, the key is missing, or the tensor has another shape.
    """
    asked = f"load_param({key!r}) at {where or 'the root'}"
    if source is None:
        raise CheckpointError(f"{asked}: the flow was built without weights: pass build(.., weights=..)")
    if not source.has(key):
        raise CheckpointError(f"{asked}: the weights have no such key{near_names(key, source.keys())}")
    spec = source.spec(key)
    if transpose and spec.ndim != 2:
        raise CheckpointError(f"{asked}, transposed: expected a matrix; {source.origin(key)} has {spec!r}")
    actual = spec.shape[::-1] if transpose else spec.shape
    if shape is not None and actual != shape:
        raise CheckpointError(
            f"{asked}{', transposed' if transpose else ''}: expected shape {list(shape)}, found {list(actual)} "
            f"(stored as {spec!r} in {source.origin(key)})"
        )
    return spec
