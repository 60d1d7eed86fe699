"""Stored tensors that are parts of quantised weights, checked before they are used."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

import numpy as np

from lang_core import CheckpointError, WeightSource


class StoredTensors(WeightSource, Protocol):
    """Checkpoint whose tensors can be viewed in the dtypes that only parts of quantised weights have."""

    def stored_form(self, key: str) -> tuple[str, tuple[int, ...]]:
        """Returns the name of the tensor's dtype in the safetensors format, and its shape."""
        ...

    def read_stored(self, key: str) -> np.ndarray:
        """Returns the whole tensor as a view."""
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """Stored tensor that is a part of a quantised weight.

    Attributes:
        source: checkpoint that stores it.
        key: key of the tensor.
        dtype: name of its dtype in the format.
        shape: dimensions.
    """

    source: StoredTensors
    key: str
    dtype: str
    shape: tuple[int, ...]

    def read(self) -> np.ndarray:
        """Returns the tensor as a view onto the file."""
        return self.source.read_stored(self.key)

    def refuse(self, problem: str) -> NoReturn:
        """Raises CheckpointError: the part does not fit the weight."""
        raise CheckpointError(
            f"{self.source.origin(self.key)}: tensor {self.key!r} {problem}: the weights and quantization_config do "
            "not belong together, or the file is damaged: download both again"
        )

    def of_shape(self, *shapes: tuple[int, ...]) -> "Part":
        """Returns the part after checking that its shape is one of these.

        Raises:
            CheckpointError: it has another shape.
        """
        if self.shape not in shapes:
            expected = " or ".join(str(list(shape)) for shape in dict.fromkeys(shapes))
            self.refuse(f"has shape {list(self.shape)}, expected {expected}")
        return self


def part_of(weight: Part | str, source: StoredTensors, key: str, dtypes: Sequence[str]) -> Part:
    """Returns a part of a weight.

    Args:
        weight: another part of the same weight, or its key, for the message.
        source: checkpoint.
        key: key of the part.
        dtypes: names of the dtypes that it may have.

    Raises:
        CheckpointError: the checkpoint lacks the part, or stores it in another dtype.
    """
    if not source.has(key):
        other = weight if isinstance(weight, str) else weight.key
        raise CheckpointError(
            f"{source.origin(other)}: {other!r} is a part of a quantised weight, whose other part {key!r} is missing: "
            "download the checkpoint again"
        )
    part = Part(source, key, *source.stored_form(key))
    if part.dtype not in dtypes:
        part.refuse(f"is {part.dtype}, expected {' or '.join(dtypes)}")
    return part


def module_of(key: str) -> str:
    """Returns the path of the module that a key is of.

    >>> module_of("model.layers.0.mlp.up_proj.weight_packed")
    'model.layers.0.mlp.up_proj'
    """
    return key.rpartition(".")[0]
