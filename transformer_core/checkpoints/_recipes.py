"""How one tensor of a model is made of those that a checkpoint stores."""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from lang_core import CheckpointError, DType, TensorSpec, WeightSource

Shape = tuple[int, ...]


class Recipe(Protocol):
    """Makes one tensor of a model, a few rows at a time.

    Attributes:
        keeps_rows: whether its rows are whole rows of one stored tensor, unchanged, so that packed ones can stay so.
    """

    @property
    def keeps_rows(self) -> bool: ...

    def stored(self) -> dict[str, Shape]:
        """The keys that it reads, and the shapes that they must have."""
        ...

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Rows ``start`` to ``stop`` of the first axis: a view onto the source's where that is possible."""
        ...


class Stored:
    """A tensor that is stored as the model has it, under the same name or another."""

    keeps_rows: bool = True

    def __init__(self, key: str, shape: Shape) -> None:
        self._key: Final = key
        self._shape: Final = shape

    def stored(self) -> dict[str, Shape]:
        """The key and its shape."""
        return {self._key: self._shape}

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """The source's own rows."""
        return source.read_rows(self._key, start, stop)


class Stacked:
    """Tensors that are stored one by one and lie one behind the other along a new first axis.

    Args:
        keys: in the order of that axis.
        shape: of each.
    """

    keeps_rows: bool = False

    def __init__(self, keys: Sequence[str], shape: Shape) -> None:
        self._keys: Final = keys
        self._shape: Final = shape

    def stored(self) -> dict[str, Shape]:
        """Every key."""
        return dict.fromkeys(self._keys, self._shape)

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """One row is a view of one stored tensor; of more a copy is made, of these and no others."""
        if start == stop:
            return np.empty((0, *self._shape), source.spec(self._keys[0]).dtype.numpy)
        parts = [source.read_rows(key, 0, self._shape[0]) for key in self._keys[start:stop]]
        return parts[0][np.newaxis] if len(parts) == 1 else np.stack(parts)


class Cut:
    """A part of a stored tensor.

    Args:
        key: of the whole.
        shape: of the whole.
        axis: that is cut.
        start: of the part.
        stop: of the part.
    """

    def __init__(self, key: str, shape: Shape, axis: int, start: int, stop: int) -> None:
        self._key: Final = key
        self._shape: Final = shape
        self._axis: Final = axis
        self._start: Final = start
        self._stop: Final = stop

    @property
    def keeps_rows(self) -> bool:
        """Whether it is rows that are cut."""
        return self._axis == 0

    def stored(self) -> dict[str, Shape]:
        """The whole's key and shape."""
        return {self._key: self._shape}

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """A view."""
        if self._axis == 0:
            return source.read_rows(self._key, self._start + start, self._start + stop)
        before = (slice(None),) * self._axis
        return source.read_rows(self._key, start, stop)[(*before, slice(self._start, self._stop))]


class Interleaved:
    """Every so many groups of rows of a stored tensor: of each head its queries, say, where its keys and values follow.

    Args:
        key: of the whole.
        shape: of the whole: [groups * parts * rows, ..].
        groups: how many times all parts follow each other.
        parts: how many there are in a group.
        part: which of them this is.
    """

    keeps_rows: bool = True

    def __init__(self, key: str, shape: Shape, groups: int, parts: int, part: int) -> None:
        self._key: Final = key
        self._shape: Final = shape
        self._rows: Final = shape[0] // (groups * parts)
        self._parts: Final = parts
        self._part: Final = part

    def stored(self) -> dict[str, Shape]:
        """The whole's key and shape."""
        return {self._key: self._shape}

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """A copy, of these rows only."""
        first, last, group = start // self._rows, -(-stop // self._rows), self._parts * self._rows
        read = source.read_rows(self._key, first * group, last * group)
        mine = read.reshape(last - first, self._parts, self._rows, *read.shape[1:])[:, self._part]
        begin = start - first * self._rows
        return mine.reshape(-1, *read.shape[1:])[begin : begin + stop - start]


class Transposed:
    """Columns of a stored matrix, as rows.

    Args:
        key: of the whole.
        shape: of the whole: [inputs, outputs].
        start: of the columns.
        stop: of the columns.
    """

    keeps_rows: bool = False

    def __init__(self, key: str, shape: Shape, start: int, stop: int) -> None:
        self._key: Final = key
        self._shape: Final = shape
        self._start: Final = start
        self._stop: Final = stop

    def stored(self) -> dict[str, Shape]:
        """The whole's key and shape."""
        return {self._key: self._shape}

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """A view."""
        return source.read_rows(self._key, 0, self._shape[0])[:, self._start + start : self._start + stop].T


def common_dtype(source: WeightSource, recipe: Recipe) -> DType:
    """The dtype of all the tensors that a recipe reads.

    Raises:
        CheckpointError: a tensor has another shape than the recipe wants, or two have different dtypes.
    """
    first: tuple[str, TensorSpec] | None = None
    for key, shape in recipe.stored().items():
        found = source.spec(key)
        if found.shape != shape:
            raise CheckpointError(
                f"{source.origin(key)}: {key!r} has shape {list(found.shape)}, the model needs {list(shape)}"
            )
        first = first or (key, found)
        if found.dtype is not first[1].dtype:
            raise CheckpointError(
                f"{source.origin(key)}: {key!r} is {found.dtype.name}, but {first[0]!r}, which becomes a part of the "
                f"same parameter, is {first[1].dtype.name}: store both in one dtype"
            )
    if first is None:
        raise CheckpointError("a parameter is made of no stored tensor at all")
    return first[1].dtype
