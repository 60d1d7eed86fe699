"""Places that a model's parameters have in a checkpoint of its family, whatever recipes make them of it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from lang_core import ConfigError, TensorSpec, WeightSource, i64
from transformer_core.checkpoints import RecipeOf
from transformer_core.family._model import Model
from transformer_core.models._weights import OwnLayout, stored_specs, weights_of

# Keys by which a family tells the names that its modules have in transformers from others.
_CANONICAL: Final = ("transformer.wte.weight",)
_SHIFT: Final = 42
_ROWS: Final = 256


class StoredRows(NamedTuple):
    """Rows of a stored matrix that are a parameter's.

    Attributes:
        key: key of the stored matrix.
        shape: its shape.
        rows: its rows, or columns if it is transposed, in the parameter's order.
        transposed: whether it is stored [inputs, outputs].
    """

    key: str
    shape: tuple[int, ...]
    rows: Sequence[int]
    transposed: bool

    @property
    def outputs(self) -> int:
        """Outputs of the whole stored matrix."""
        return self.shape[1 if self.transposed else 0]

    @property
    def inputs(self) -> int:
        """Inputs of the stored matrix."""
        return self.shape[0 if self.transposed else 1]

    @property
    def whole(self) -> bool:
        """True if the parameter is the whole matrix, in its order."""
        return np.array_equal(self.rows, np.arange(self.outputs))


class StoredLayout:
    """Layout of a model's parameters in a checkpoint.

    Args:
        model: modules, not packed.
        source: checkpoint with keys that decide between the forms of a family's checkpoints, or a layout of its own;
            None for transformers' names.
    """

    def __init__(self, model: Model[Any], source: WeightSource | None = None) -> None:
        self._model: Final = model
        keys = _OwnKeys if isinstance(source, OwnLayout) else _Keys
        self.specs: Final = stored_specs(model, keys(source, {}))
        self._indices: Final = weights_of(model, keys(source, self.specs))
        self._keys: Final = list(self.specs)

    def matrix(self, path: str, shape: Sequence[int]) -> StoredRows | None:
        """Returns the stored rows of a parameter [out, in]; None if it is none of one matrix."""
        pieces = [self._piece(path, start, min(start + _ROWS, shape[0])) for start in range(0, shape[0], _ROWS)]
        if any(piece is None for piece in pieces) or len({piece[:2] for piece in pieces if piece}) != 1:
            return None
        made = [piece for piece in pieces if piece is not None]
        key, transposed, _ = made[0]
        rows = np.concatenate([piece[2] for piece in made])
        return StoredRows(key, self.specs[key].shape, rows.tolist(), transposed)

    def tensors(self, parameters: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the stored tensors of parameters, each in the shape that it is stored in.

        Raises:
            ConfigError: parameters are not all that a tensor is made of.
        """
        waiting: dict[str, tuple[np.ndarray, int]] = {}
        for path, values in parameters.items():
            stored = self.matrix(path, values.shape) if values.ndim == 2 else None
            if stored is not None and stored.whole and not stored.transposed:
                yield stored.key, values
                continue
            indices = self._read(path, 0, values.shape[0]) if values.ndim else self._indices.read(path)
            numbers, places = indices.reshape(-1) >> _SHIFT, indices.reshape(-1) & ((1 << _SHIFT) - 1)
            for number in np.unique(numbers).tolist():
                key, mine = self._keys[number], numbers == number
                tensor, count = waiting.pop(key, (np.empty(self.specs[key].size, values.dtype), 0))
                tensor[places[mine]] = values.reshape(-1)[mine]
                if (count := count + int(mine.sum())) < tensor.size:
                    waiting[key] = tensor, count
                else:
                    yield key, tensor.reshape(self.specs[key].shape)
        if waiting:
            raise ConfigError(
                f"{self._model.config.architecture}: parameters make up only a part of {', '.join(sorted(waiting)[:4])}"
                ": take all layers; or train an adapter (`lora`)"
            )

    def _piece(self, path: str, start: int, stop: int) -> tuple[str, bool, np.ndarray] | None:
        indices = self._read(path, start, stop)
        number, places = int(indices[0, 0]) >> _SHIFT, indices & ((1 << _SHIFT) - 1)
        shape = self.specs[self._keys[number]].shape
        if len(shape) != 2 or (indices >> _SHIFT != number).any():
            return None
        for transposed, (rows, columns) in enumerate((np.divmod(places, shape[1]), np.divmod(places, shape[1])[::-1])):
            width = shape[0 if transposed else 1]
            if indices.shape[1] == width and (rows == rows[:, :1]).all() and (columns == np.arange(width)).all():
                return self._keys[number], bool(transposed), rows[:, 0]
        return None

    def _read(self, path: str, start: int, stop: int) -> np.ndarray:
        return self._indices.read_rows(path, start, stop)


class _Keys:
    """Checkpoint with elements that are their own places: number of the tensor, and index in it."""

    def __init__(self, source: WeightSource | None, specs: Mapping[str, TensorSpec]) -> None:
        self._source: Final = source
        self._specs: Final = specs
        self._numbers: Final = {key: number for number, key in enumerate(specs)}

    def keys(self) -> Iterator[str]:
        """Yields the keys."""
        return iter(self._specs)

    def has(self, key: str) -> bool:
        """Returns whether the checkpoint has a key."""
        return key in _CANONICAL if self._source is None else self._source.has(key)

    def spec(self, key: str) -> TensorSpec:
        """Returns the shape of a tensor, of i64."""
        if key not in self._specs and self._source is not None:
            return self._source.spec(key)  # while the keys that are needed are asked for
        return TensorSpec(self._specs[key].shape, i64)

    def encoding(self, key: str) -> str | None:
        """Returns None: nothing is packed."""
        del key
        return None

    def read(self, key: str) -> np.ndarray:
        """Returns the places of a tensor."""
        shape = self._specs[key].shape
        first = self._numbers[key] << _SHIFT
        return np.arange(first, first + math.prod(shape), dtype=np.int64).reshape(shape)

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Returns the places of rows."""
        _, *rest = self._specs[key].shape
        first, width = self._numbers[key] << _SHIFT, math.prod(rest)
        return np.arange(first + start * width, first + stop * width, dtype=np.int64).reshape(stop - start, *rest)

    def origin(self, key: str) -> str:
        """Returns the name of nothing that is stored."""
        return f"the layout of {key}"


class _OwnKeys(_Keys):
    """The same of a layout that is not Hugging Face's."""

    def __init__(self, source: WeightSource | None, specs: Mapping[str, TensorSpec]) -> None:
        super().__init__(source, specs)
        self._own: Final[Any] = source
        self.layer_key: Final[str] = self._own.layer_key
        self.ignorable: Final[tuple[str, ...]] = self._own.ignorable

    def recipe_of(self, config: Any) -> RecipeOf:
        """Returns the recipes of the parameters of a configuration."""
        return self._own.recipe_of(config)
