"""A checkpoint under a model's names: tensors are renamed, stacked and cut as they are read."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from lang_core import PackedRows, StoredBytes, TensorSpec, WeightSource, matrix_rows_by, matrix_rows_of
from transformer_core.checkpoints._recipes import Recipe, Stacked, Stored, Transposed, common_dtype

RecipeOf = Callable[[str, tuple[int, ...], WeightSource], Recipe | None]
"""Gives the recipe of a parameter, by name and shape, in a checkpoint; None if it is stored as it is."""


class ComposedWeights:
    """Weights of a model made from those of a checkpoint, read on demand. Implements ``lang_core.WeightSource``.

    Args:
        source: checkpoint.
        wanted: spec of each parameter of the model.
        recipe_of: gives the recipe of a parameter.
    """

    def __init__(self, source: WeightSource, wanted: Mapping[str, TensorSpec], recipe_of: RecipeOf) -> None:
        self._source: Final = source
        self._wanted: Final = wanted
        self._recipe_of: Final = recipe_of

    def stored(self) -> dict[str, TensorSpec]:
        """Returns the stored keys that the model needs with the specs it needs, which ``audit`` compares."""
        specs: dict[str, TensorSpec] = {}
        for name, spec in self._wanted.items():
            made: dict[tuple[int, ...], TensorSpec] = {}
            for key, shape in self.recipe(name).stored().items():
                specs[key] = made.setdefault(shape, TensorSpec(shape, spec.dtype))
        return specs

    def transposed(self) -> frozenset[str]:
        """Returns the keys of the matrices that are stored [inputs, outputs] (``Conv1D`` of GPT-2)."""
        recipes = [recipe for recipe in map(self.recipe, self._wanted) if isinstance(recipe, Transposed)]
        return frozenset(key for recipe in recipes for key in recipe.stored())

    def stored_key(self, name: str) -> str:
        """Returns the first of the stored keys that a parameter is made of."""
        return next(iter(self.recipe(name).stored()))

    def keys(self) -> Iterator[str]:
        """Yields the parameters with complete stored tensors."""
        return (name for name in self._wanted if self.has(name))

    def has(self, key: str) -> bool:
        """Returns whether all stored tensors of a parameter are there."""
        return all(map(self._source.has, self.recipe(key).stored()))

    def spec(self, key: str) -> TensorSpec:
        """Returns the parameter's shape in the stored dtype.

        Raises:
            CheckpointError: a stored tensor is missing or has another shape; names it and its file.
        """
        if key not in self._wanted:
            return self._source.spec(key)
        return TensorSpec(self._wanted[key].shape, common_dtype(self._source, self.recipe(key)))

    def encoding(self, key: str) -> str | None:
        """Returns the encoding of the first packed tensor of the parameter's recipe; None if none is packed."""
        encodings = map(self._source.encoding, self.recipe(key).stored())
        return next(filter(None, encodings), None)

    def read(self, key: str) -> np.ndarray:
        """Reads the whole parameter, of its spec's shape."""
        shape = self.spec(key).shape
        return self.read_rows(key, 0, shape[0]) if shape else self._source.read(self.stored_key(key))

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows [stop - start, ..] of the parameter, and only the necessary part of the stored tensors."""
        return self.recipe(key).rows(self._source, start, stop)

    def read_matrix_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows of the parameter as a matrix, [product of all dims but the last, last dim].

        If the parameter is stored unchanged, and the source supports it, only these rows are read; otherwise the rows
        of the first axis that contain them.
        """
        recipe = self.recipe(key)
        if type(recipe) is Stored:
            return matrix_rows_of(self._source, next(iter(recipe.stored())), start, stop)
        if isinstance(recipe, Stacked):
            return recipe.matrix_rows(self._source, start, stop)
        return matrix_rows_by(self.read_rows, key, self.spec(key).shape, start, stop)

    def packed_as(self, key: str) -> str | None:
        """Returns the encoding of the stored rows; None if the parameter's rows differ from them, or in encoding."""
        recipe, source = self.recipe(key), self._source
        if not recipe.keeps_rows or not isinstance(source, PackedRows):
            return None
        first, *others = {source.packed_as(stored) for stored in recipe.stored()}
        return None if others else first

    def read_packed_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows of the parameter, packed as the source has them; see ``PackedRows``."""
        packed: Any = _AsPacked(self._source)  # recipes that keep rows ask for nothing but rows
        return self.recipe(key).rows(packed, start, stop)

    def stored_bytes(self, key: str) -> int | None:
        """Returns the parameter's share of the bytes of the stored tensors that it is made of; None if not known."""
        source, shapes = self._source, self.recipe(key).stored()
        sizes = [source.stored_bytes(stored) for stored in shapes] if isinstance(source, StoredBytes) else [None]
        known = [size for size in sizes if size is not None]
        if len(known) < len(sizes):
            return None
        return sum(known) * self.spec(key).size // max(1, sum(math.prod(shape) for shape in shapes.values()))

    def origin(self, key: str) -> str:
        """Returns the file, and the stored keys if they differ from the parameter's name."""
        first, *others = self.recipe(key).stored()
        file = self._source.origin(first)
        if first == key:
            return file
        return f"{file} ({first}{f' and {len(others)} more' if others else ''})"

    def recipe(self, name: str) -> Recipe:
        """Returns the recipe of a parameter."""
        spec = self._wanted.get(name)
        shape = self._source.spec(name).shape if spec is None else spec.shape
        return self._recipe_of(name, shape, self._source) or Stored(name, shape)


class _AsPacked:
    """A source with packed rows, for recipes that keep rows."""

    def __init__(self, source: Any) -> None:
        self._source: Final = source

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows as they are stored."""
        return self._source.read_packed_rows(key, start, stop)
