"""Weights of a checkpoint in which some tensors have a second key."""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from lang_core import PackedRows, StoredBytes, TensorSpec, WeightSource, matrix_rows_of

_HEADS: Final = ("lm_head.", "embed_out.")


class AliasedWeights:
    """Weights of a checkpoint with further keys for some of its tensors. Implements ``lang_core.WeightSource``.

    Args:
        source: weights of the checkpoint.
        aliases: stored key by each further key.
    """

    def __init__(self, source: WeightSource, aliases: Mapping[str, str]) -> None:
        self._source: Final = source
        self._aliases: Final = aliases

    def keys(self) -> Iterator[str]:
        """Yields the keys of the source, then the further ones."""
        yield from self._source.keys()
        yield from self._aliases

    def has(self, key: str) -> bool:
        """Returns whether the source has a key, or the tensor of a further key."""
        return self._source.has(self._stored(key))

    def spec(self, key: str) -> TensorSpec:
        """Returns the stored spec."""
        return self._source.spec(self._stored(key))

    def encoding(self, key: str) -> str | None:
        """Returns the encoding that the source stores a tensor in."""
        return self._source.encoding(self._stored(key))

    def read(self, key: str) -> np.ndarray:
        """Reads the whole tensor, in its stored shape [...]."""
        return self._source.read(self._stored(key))

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows [stop - start, ..] of the first axis."""
        return self._source.read_rows(self._stored(key), start, stop)

    def read_matrix_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads rows of a tensor as a matrix; see ``MatrixRows``."""
        return matrix_rows_of(self._source, self._stored(key), start, stop)

    def packed_as(self, key: str) -> str | None:
        """Returns the encoding of the source's packed rows; None if they are not packed."""
        return self._source.packed_as(self._stored(key)) if isinstance(self._source, PackedRows) else None

    def read_packed_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Reads packed rows; see ``PackedRows``."""
        assert isinstance(self._source, PackedRows)
        return self._source.read_packed_rows(self._stored(key), start, stop)

    def stored_bytes(self, key: str) -> int | None:
        """Returns the bytes of a tensor in the checkpoint; None if not known."""
        return self._source.stored_bytes(self._stored(key)) if isinstance(self._source, StoredBytes) else None

    def origin(self, key: str) -> str:
        """Returns the source's origin of a tensor, and its stored key if it is read by a further key."""
        stored = self._stored(key)
        return self._source.origin(stored) if stored == key else f"{self._source.origin(stored)} ({stored})"

    def _stored(self, key: str) -> str:
        return self._aliases.get(key, key)


class PrefixedWeights(AliasedWeights):
    """Weights of a model without its head, under the keys that the model with its head has.

    ``save_pretrained`` of the model below the head (``LlamaModel``) omits the prefix (``model.``), and transformers
    loads such a checkpoint into the model with the head as well.

    Args:
        source: weights of the checkpoint.
        prefix: prefix that the checkpoint's keys lack.
    """

    def __init__(self, source: WeightSource, prefix: str) -> None:
        super().__init__(source, {})
        self._prefix: Final = prefix

    def keys(self) -> Iterator[str]:
        """Yields the keys of the source; keys outside the head get the prefix."""
        for key in AliasedWeights.keys(self):
            yield key if key.startswith(_HEADS) else f"{self._prefix}{key}"

    def stored_key(self, key: str) -> str:
        """Returns the source's key."""
        return self._stored(key)

    def _stored(self, key: str) -> str:
        return key.removeprefix(self._prefix)
