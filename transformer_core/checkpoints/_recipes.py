"""Recipes that make a tensor of a model from tensors that a checkpoint stores."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np

from lang_core import CheckpointError, DType, TensorSpec, WeightSource

Shape = tuple[int, ...]


class Recipe(Protocol):
    """Makes one tensor of a model, a few rows at a time.

    Attributes:
        keeps_rows: whether its rows are unchanged rows of stored tensors, so that packed rows can stay packed.
    """

    @property
    def keeps_rows(self) -> bool: ...

    def stored(self) -> dict[str, Shape]:
        """Returns the keys that it reads, and the shapes that they must have."""
        ...

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns rows [stop - start, ..] of the first axis, as a view onto the source's if possible."""
        ...


class Stored:
    """Tensor that is stored as the model has it, under the same name or another."""

    keeps_rows: bool = True

    def __init__(self, key: str, shape: Shape) -> None:
        self._key: Final = key
        self._shape: Final = shape

    def stored(self) -> dict[str, Shape]:
        """Returns the key and its shape."""
        return {self._key: self._shape}

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns the source's own rows, [stop - start, ..]."""
        return source.read_rows(self._key, start, stop)


class Reshaped:
    """Small tensor that is stored in another shape; its elements are in the same order.

    Args:
        key: key of the stored tensor.
        stored_shape: its shape.
        shape: shape of the tensor that is made.
    """

    keeps_rows: bool = False

    def __init__(self, key: str, stored_shape: Shape, shape: Shape) -> None:
        self._key: Final = key
        self._stored_shape: Final = stored_shape
        self._shape: Final = shape

    def stored(self) -> dict[str, Shape]:
        """Returns the key and its shape."""
        return {self._key: self._stored_shape}

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns a view of these rows, [stop - start, ..]; the whole is read."""
        return source.read_rows(self._key, 0, self._stored_shape[0]).reshape(self._shape)[start:stop]


class WeightNormed:
    """Weight [O, I, W] of a convolution that is stored as directions and lengths of each tap (torch's weight norm).

    Args:
        lengths: key of the lengths [1, 1, W].
        directions: key of the directions [O, I, W].
        shape: shape of the weight.
    """

    keeps_rows: bool = False

    def __init__(self, lengths: str, directions: str, shape: Shape) -> None:
        self._lengths: Final = lengths
        self._directions: Final = directions
        self._shape: Final = shape

    def stored(self) -> dict[str, Shape]:
        """Returns both keys and their shapes."""
        return {self._lengths: (1, 1, self._shape[2]), self._directions: self._shape}

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns these rows, [stop - start, I, W]; the whole is read, for the norms are over O and I."""
        whole = source.read_rows(self._directions, 0, self._shape[0])
        wide = whole.astype(np.float32)
        scale = source.read_rows(self._lengths, 0, 1).astype(np.float32) / np.sqrt((wide * wide).sum((0, 1)))
        return (wide[start:stop] * scale).astype(whole.dtype)


class StackedInputMajor:
    """Experts' weights [E, O, I] that are stored as one matrix [E I, O] (DBRX).

    Args:
        key: key of the stored matrix.
        shape: shape of the parameter.
    """

    keeps_rows: bool = False

    def __init__(self, key: str, shape: Shape) -> None:
        self._key: Final = key
        self._shape: Final = shape

    def stored(self) -> dict[str, Shape]:
        """Returns the key and the shape of the matrix."""
        experts, outputs, inputs = self._shape
        return {self._key: (experts * inputs, outputs)}

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns a view of these experts, [stop - start, O, I]."""
        _, outputs, inputs = self._shape
        read = source.read_rows(self._key, start * inputs, stop * inputs)
        return read.reshape(stop - start, inputs, outputs).swapaxes(1, 2)


class Stacked:
    """Tensors that are stored one by one and are stacked along a new first axis.

    Args:
        keys: keys in the order of that axis.
        shape: shape of each tensor.
    """

    keeps_rows: bool = True

    def __init__(self, keys: Sequence[str], shape: Shape) -> None:
        self._keys: Final = keys
        self._shape: Final = shape

    def stored(self) -> dict[str, Shape]:
        """Returns every key and the shape of each."""
        return dict.fromkeys(self._keys, self._shape)

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns [stop - start, ..]: a view of one stored tensor, or a stacked copy of several."""
        if start == stop:
            return np.empty((0, *self._shape), source.spec(self._keys[0]).dtype.numpy)
        parts = [source.read_rows(key, 0, self._shape[0]) for key in self._keys[start:stop]]
        return parts[0][np.newaxis] if len(parts) == 1 else np.stack(parts)

    def matrix_rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns rows [stop - start, columns] of the stored matrices, one below the other: a view or a copy."""
        height = self._shape[0]
        parts = [
            source.read_rows(self._keys[index], max(0, start - index * height), min(height, stop - index * height))
            for index in range(start // height, max(start // height + 1, -(-stop // height)))
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


class Cut:
    """Part of a stored tensor.

    Args:
        key: key of the whole tensor.
        shape: shape of the whole tensor.
        axis: axis that is cut.
        start: first index of the part.
        stop: index after the last of the part.
    """

    def __init__(self, key: str, shape: Shape, axis: int, start: int, stop: int) -> None:
        self._key: Final = key
        self._shape: Final = shape
        self._axis: Final = axis
        self._start: Final = start
        self._stop: Final = stop

    @property
    def keeps_rows(self) -> bool:
        """True if rows are cut."""
        return self._axis == 0

    def stored(self) -> dict[str, Shape]:
        """Returns the key and shape of the whole tensor."""
        return {self._key: self._shape}

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns a view of these rows, [stop - start, ..]."""
        if self._axis == 0:
            return source.read_rows(self._key, self._start + start, self._start + stop)
        before = (slice(None),) * self._axis
        return source.read_rows(self._key, start, stop)[(*before, slice(self._start, self._stop))]


class Interleaved:
    """Every n-th group of rows of a stored tensor, such as each head's queries if its keys and values follow.

    Args:
        key: key of the whole tensor.
        shape: shape of the whole tensor, [groups * parts * rows, ..].
        groups: number of repetitions of all parts.
        parts: number of parts in a group.
        part: index of this part in a group.
        count: number of parts, from this one on, that the tensor has of each group.
    """

    keeps_rows: bool = True

    def __init__(self, key: str, shape: Shape, groups: int, parts: int, part: int, count: int = 1) -> None:
        self._key: Final = key
        self._shape: Final = shape
        self._rows: Final = count * (shape[0] // (groups * parts))
        self._group: Final = parts * (shape[0] // (groups * parts))
        self._start: Final = part * (shape[0] // (groups * parts))

    def stored(self) -> dict[str, Shape]:
        """Returns the key and shape of the whole tensor."""
        return {self._key: self._shape}

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns a copy of these rows only, [stop - start, ..]."""
        first, last, group = start // self._rows, -(-stop // self._rows), self._group
        read = source.read_rows(self._key, first * group, last * group)
        mine = read.reshape(last - first, group, *read.shape[1:])[:, self._start : self._start + self._rows]
        begin = start - first * self._rows
        return mine.reshape(-1, *read.shape[1:])[begin : begin + stop - start]


class NormedRows:
    """Stored matrix whose rows are divided by their lengths (Baichuan 2).

    Args:
        key: key of the stored matrix.
        shape: its shape.
    """

    keeps_rows: bool = False

    def __init__(self, key: str, shape: Shape) -> None:
        self._key: Final = key
        self._shape: Final = shape

    def stored(self) -> dict[str, Shape]:
        """Returns the key and its shape."""
        return {self._key: self._shape}

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns these rows, [stop - start, ..], each of length 1 if it is not 0."""
        rows = source.read_rows(self._key, start, stop)
        lengths = np.sqrt((rows.astype(np.float32) ** 2).sum(-1, keepdims=True))
        return (rows / np.maximum(lengths, 1e-12)).astype(rows.dtype)


class Paired:
    """Rows of two stored tensors by turns: a group of the first, then one of the second.

    Args:
        first: key of the tensor whose group comes first.
        second: key of the other tensor, of the same shape.
        shape: shape of the tensor that results, twice as many rows.
        groups: number of groups in each.
    """

    keeps_rows: bool = True

    def __init__(self, first: str, second: str, shape: Shape, groups: int) -> None:
        self._keys: Final = first, second
        self._shape: Final = shape[0] // 2, *shape[1:]
        self._rows: Final = shape[0] // (2 * groups)

    def stored(self) -> dict[str, Shape]:
        """Returns both keys and their shape."""
        return dict.fromkeys(self._keys, self._shape)

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns a copy of these rows only, [stop - start, ..]."""
        first, last = start // (2 * self._rows), -(-stop // (2 * self._rows))
        parts = [source.read_rows(key, first * self._rows, last * self._rows) for key in self._keys]
        grouped = [part.reshape(last - first, self._rows, *part.shape[1:]) for part in parts]
        joined = np.stack(grouped, 1).reshape(-1, *parts[0].shape[1:])
        return joined[start - first * 2 * self._rows : stop - first * 2 * self._rows]


class Transposed:
    """Columns of a stored matrix, as rows.

    Args:
        key: key of the whole matrix.
        shape: shape of the whole matrix, [inputs, outputs].
        start: first column.
        stop: column after the last.
    """

    keeps_rows: bool = False

    def __init__(self, key: str, shape: Shape, start: int, stop: int) -> None:
        self._key: Final = key
        self._shape: Final = shape
        self._start: Final = start
        self._stop: Final = stop

    def stored(self) -> dict[str, Shape]:
        """Returns the key and shape of the whole matrix."""
        return {self._key: self._shape}

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns a view of these rows, [stop - start, ..]."""
        return source.read_rows(self._key, 0, self._shape[0])[:, self._start + start : self._start + stop].T


class Computed:
    """Tensor that is not stored, and whose values do not depend on those that are.

    Args:
        beside: key of a stored tensor, whose dtype it has.
        whole: shape of that tensor.
        values: function that returns rows [stop - start, ..] f32.
    """

    keeps_rows: bool = False

    def __init__(self, beside: str, whole: Shape, values: Callable[[int, int], np.ndarray]) -> None:
        self._beside: Final = beside
        self._whole: Final = whole
        self._values: Final = values

    def stored(self) -> dict[str, Shape]:
        """Returns the key and shape of the tensor beside it."""
        return {self._beside: self._whole}

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns these rows, [stop - start, ..], in the dtype of the tensor beside it."""
        return self._values(start, stop).astype(source.spec(self._beside).dtype.numpy)


def common_dtype(source: WeightSource, recipe: Recipe) -> DType:
    """Returns the dtype that all tensors of a recipe have.

    Raises:
        CheckpointError: a tensor has another shape than the recipe wants, or two have different dtypes.
    """
    first: tuple[str, TensorSpec] | None = None
    for key, shape in recipe.stored().items():
        spec = source.spec(key)
        if spec.shape != shape:
            raise CheckpointError(
                f"{source.origin(key)}: {key!r} has shape {list(spec.shape)}, the model needs {list(shape)}"
            )
        first = first or (key, spec)
        if spec.dtype is not first[1].dtype:
            raise CheckpointError(
                f"{source.origin(key)}: {key!r} is {spec.dtype.name}, but {first[0]!r}, which becomes a part of the "
                f"same parameter, is {first[1].dtype.name}: store both in one dtype"
            )
    if first is None:
        raise CheckpointError("a parameter is made of no stored tensor at all")
    return first[1].dtype
