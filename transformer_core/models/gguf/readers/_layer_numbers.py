"""Numbers of layers that GGUF files have in their metadata, as tensors."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from lang_core import TensorSpec, f32
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints.gguf import GgufCheckpoint

Shape = tuple[int, ...]


class LayerNumbers:
    """Tensors of one element each in every layer; a file of a checkpoint, as far as its tensors are read.

    Args:
        file: checkpoint with the metadata.
        shapes: shape, of one element, of each kind of tensor, by its metadata field; ``blk.N.<field>`` are its keys.
        layers: L.

    Raises:
        ConfigError: a field is missing, or holds neither one number nor L numbers.
    """

    def __init__(self, file: GgufCheckpoint, shapes: Mapping[str, Shape], layers: int) -> None:
        self.path: Final = file.path
        fields = ConfigFields(file.metadata, f"{file.path}: metadata")
        self._arrays: Final = {
            f"blk.{layer}.{name}": np.full(shape, number, np.float32)
            for name, shape in shapes.items()
            for layer, number in enumerate(_numbers(fields, name, layers))
        }

    def keys(self) -> Iterator[str]:
        """Yields the keys, kind after kind."""
        return iter(self._arrays)

    def spec(self, key: str) -> TensorSpec:
        """Returns the shape, in f32."""
        return TensorSpec(self._arrays[key].shape, f32)

    def encoding(self, key: str) -> None:
        """Returns None, as numbers are not packed."""

    def packed_as(self, key: str) -> None:
        """Returns None, as numbers are not packed."""

    def read(self, key: str) -> np.ndarray:
        """Returns the array of one element, f32 [1] or []."""
        return self._arrays[key]

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Returns these rows of the only one; a rank-0 tensor is its own only row."""
        array = self._arrays[key]
        return array[start:stop] if array.ndim or stop <= start else array


def _numbers(fields: ConfigFields, name: str, layers: int) -> list[float]:
    """Returns a number for each layer; llama.cpp takes one of a field without a list for all."""
    if not fields.has(name):
        fields.refuse(name, f"{layers} numbers (block_count), which llama.cpp's converter writes: convert it again")
    value: Any = fields.values[name]
    numbers = value if isinstance(value, list) else [value] * layers
    if len(numbers) != layers or not all(_is_finite(number) for number in numbers):
        fields.refuse(name, f"{layers} (block_count) finite numbers, or one for all layers")
    return numbers


def _is_finite(number: Any) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number)
