"""Contents of a quantised checkpoint, as its format's reader finds them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from lang_core import CheckpointError
from transformer_core.checkpoints.quantized._matrix import QuantizedMatrix
from transformer_core.checkpoints.quantized._stored import StoredTensors

_CACHES: Final = (".k_scale", ".v_scale", ".q_scale", ".kv_scale", ".prob_scale", ".output_scale")


@dataclass(slots=True)
class Contents:
    """Quantised weights of a checkpoint, and the stored keys that only other programs use.

    Attributes:
        matrices: quantised weights by the keys that they would have unquantised.
        parts: keys of weights, by the stored keys that are their parts.
        unused: stored keys that say how other programs quantise activations and caches.
        notes: sentences for the report about what was left out.
    """

    matrices: dict[str, QuantizedMatrix] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    unused: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

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
