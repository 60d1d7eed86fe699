"""Stored tensors: parts of quantised weights, checked before they are used, and those of a checkpoint."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Protocol

import numpy as np

from lang_core import CheckpointError, WeightSource
from transformer_core.checkpoints.quantized._matrix import QuantizedMatrix

_CACHES: Final = (".k_scale", ".v_scale", ".q_scale", ".kv_scale", ".prob_scale", ".output_scale")


class StoredTensors(WeightSource, Protocol):
    """Checkpoint with tensors that can be viewed in the dtypes of parts of quantized weights."""

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
            f"{source.origin(other)}: {other!r} is a part of a quantized weight, and its other part {key!r} is "
            f"missing: "
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


@dataclass(slots=True)
class Contents:
    """Quantised weights of a checkpoint, and the stored keys that only other programs use.

    Attributes:
        matrices: quantised weights by the keys that they would have unquantised.
        parts: keys of weights, by the stored keys that are their parts.
        unused: stored keys that say how other programs quantise activations and caches.
        notes: sentences for the report about ignored fields.
        zero_biases: stored keys of biases that are all 0, which models may lack.
    """

    matrices: dict[str, QuantizedMatrix] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    unused: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    zero_biases: list[str] = field(default_factory=list)

    def add(self, key: str, matrix: QuantizedMatrix) -> None:
        """Adds a quantised weight.

        Raises:
            CheckpointError: the weight comes twice.
        """
        if key in self.matrices:
            raise CheckpointError(
                f"weight {key!r} is stored twice: as {', '.join(self.matrices[key].parts)} and as "
                f"{', '.join(matrix.parts)}: download the checkpoint again"
            )
        self.matrices[key] = matrix
        self.parts.update(dict.fromkeys(matrix.parts, key))

    def note_activations(self, source: StoredTensors, endings: Iterable[str], scheme: Any) -> None:
        """Leaves out stored scales of activations and caches, and says that these are not quantised here."""
        kinds = (*endings, *_CACHES)
        unused = {key for key in source.keys() if key.endswith(kinds) and key not in self.parts}  # noqa: SIM118
        self.unused |= unused
        if unused or scheme:
            told = f" ({len(unused)} stored scales of them are not used)" if unused else ""
            self.notes.append(f"activations and caches are not quantised, whatever quantization_config says{told}")

    def keys(self, source: StoredTensors) -> Iterator[str]:
        """Yields the keys of the checkpoint as if it were not quantised, in the order of the data."""
        given: set[str] = set()
        for stored in source.keys():  # noqa: SIM118
            key = self.parts.get(stored, stored)
            if stored not in self.unused and key not in given:
                given.add(key)
                yield key
