"""Weights that a flow asks for by key, beside those of its modules."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from lang_core import CheckpointError, DType, MappingWeights, Module, Parameter, TensorSpec, WeightSource, near_names


@dataclass(frozen=True, slots=True)
class ParameterKey:
    """What makes two loads the same."""

    key: str
    transpose: bool
    dtype: DType


@dataclass(frozen=True, slots=True)
class LoadedParameter:
    """A weight that a stage asked for.

    Attributes:
        name: unique: the parameter's path, and ``.transposed`` where the value is.
        parameter: the weight as it is stored; of both orientations the same path.
        key: of the source; None where it was synthesised.
    """

    name: str
    parameter: Parameter
    key: str | None


class FlowWeights:
    """A source, and what a flow adds to it: synthesised arrays, and keys that are read in a second dtype.

    Implements ``lang_core.WeightSource``: contexts and exports of a flow read from it.

    Args:
        source: of all else.
    """

    def __init__(self, source: WeightSource) -> None:
        self.source: Final = source
        self._arrays: Final[dict[str, np.ndarray]] = {}
        self._made: Final = MappingWeights(self._arrays, "synthesised by the flow")
        self._keys: Final[dict[str, str]] = {}

    def synthesise(self, name: str, array: np.ndarray) -> None:
        """Adds an array; the same name again takes the old one's place."""
        self._arrays[name] = array

    def rename(self, name: str, key: str) -> None:
        """Lets ``name`` read the source's ``key``."""
        self._keys[name] = key

    def keys(self) -> Iterator[str]:
        """The source's keys, then those added."""
        yield from self.source.keys()
        yield from self._keys
        yield from self._arrays

    def has(self, key: str) -> bool:
        """Whether there is such a key."""
        return key in self._arrays or self.source.has(self._keys.get(key, key))

    def spec(self, key: str) -> TensorSpec:
        """The shape and the dtype that reading gives."""
        return self._of(key).spec(self._keys.get(key, key))

    def encoding(self, key: str) -> str | None:
        """How the tensor is packed where it lies."""
        return self._of(key).encoding(self._keys.get(key, key))

    def read(self, key: str) -> np.ndarray:
        """The whole tensor."""
        return self._of(key).read(self._keys.get(key, key))

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Rows ``start`` to ``stop`` of the first axis."""
        return self._of(key).read_rows(self._keys.get(key, key), start, stop)

    def origin(self, key: str) -> str:
        """Where the tensor lies."""
        return self._of(key).origin(self._keys.get(key, key))

    def _of(self, key: str) -> WeightSource:
        return self._made if key in self._arrays else self.source


class _Root(Module):
    """Gives parameters paths of their own."""


def parameter_at(path: str, spec: TensorSpec) -> Parameter:
    """A parameter that belongs to no module, under a path."""
    parameter = Parameter(spec.shape, spec.dtype)
    setattr(_Root(), path, parameter)
    return parameter


def stored_spec(
    weights: FlowWeights | None, key: str, where: str, shape: tuple[int, ...] | None, transpose: bool
) -> TensorSpec:
    """The spec of a key that a stage wants to load, as it is stored.

    Args:
        weights: of the flow.
        key: of the source.
        where: the module path, for messages.
        shape: that the stage expects, of the orientation that it asked for; any where None.
        transpose: whether it asked for the other orientation.

    Raises:
        CheckpointError: there are no weights, no such key, or the tensor has another shape.
    """
    asked = f"load_param({key!r}) at {where or 'the root'}"
    if weights is None:
        raise CheckpointError(f"{asked}: the flow was built without weights: pass build(.., weights=..)")
    source = weights.source
    if not source.has(key):
        raise CheckpointError(f"{asked}: the weights have no such key{near_names(key, source.keys())}")
    spec = source.spec(key)
    if transpose and spec.ndim != 2:
        raise CheckpointError(f"{asked}, transposed: expected a matrix; {source.origin(key)} has {spec!r}")
    found = spec.shape[::-1] if transpose else spec.shape
    if shape is not None and found != shape:
        raise CheckpointError(
            f"{asked}{', transposed' if transpose else ''}: expected shape {list(shape)}, found {list(found)} "
            f"(stored as {spec!r} in {source.origin(key)})"
        )
    return spec
