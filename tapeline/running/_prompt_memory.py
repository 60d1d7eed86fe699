"""Memory of earlier prompts in a bundle's caches."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from generation import common_length
from lang_core import TensorSpec
from tapeline.running._model import BundleModel


def is_whole(name: str, spec: TensorSpec, capacity: int) -> bool:
    """Returns whether a cache [B, K, S, H] has a slot for every position, and so serves any shorter prefix as well."""
    return name.endswith("_cache") and spec.shape[2] == capacity


class BundlePromptMemory:
    """Memory of one model's prompts: the ``PromptMemory`` of ``generate``.

    Whole caches stay where they are, and are cut by going on from an earlier position. Ring caches and states are
    copied when they hold what is to be kept, for whatever follows changes them for good.

    Attributes:
        token_ids: tokens that the caches hold.
        reused: number of tokens of the last prompt that the caches had.
        rope_regime: number that tells keys with other frequencies of RoPE apart, of the tokens that the caches hold.
    """

    def __init__(self, model: BundleModel) -> None:
        """Begins with empty caches."""
        specs, capacity = model.cache_specs, model.capacity
        self._model: Final = model
        self._moving: Final = [name for name, spec in specs.items() if not is_whole(name, spec, capacity)]
        self._copies: dict[str, np.ndarray] = {}
        self.token_ids: list[int] = []
        self.reused = 0
        self.rope_regime = model.rope_regime

    @property
    def copies(self) -> Mapping[str, np.ndarray]:
        """The ring caches and states after ``token_ids``, of the shapes of the entry points' arguments."""
        return self._copies

    def assume(self, token_ids: Sequence[int], arrays: Mapping[str, np.ndarray], rope_regime: int = 0) -> None:
        """Takes over caches that were kept elsewhere.

        Args:
            token_ids: a multiple of ``chunk``.
            arrays: every cache and state after them, of the shapes of the entry points' arguments.
            rope_regime: as the attribute.
        """
        self.rope_regime = rope_regime
        self._copies = {name: arrays[name] for name in self._moving}
        self._model.write_caches({name: array for name, array in arrays.items() if name not in self._copies})
        self.token_ids = list(token_ids)

    def restore(self, token_ids: Sequence[int]) -> int:
        """Makes the caches those of the first tokens and returns their number, a multiple of ``chunk``."""
        chunk = self._model.chunk
        kept = common_length(self.token_ids, token_ids) // chunk * chunk
        if (self._moving and kept < len(self.token_ids)) or self._model.rope_regime != self.rope_regime:
            kept = 0
        self.rope_regime = self._model.rope_regime
        if kept == 0:
            specs = self._model.cache_specs
            self._copies = {
                name: np.zeros(specs[name].shape, specs[name].dtype.numpy)
                for name in self._moving
                if name.endswith("_state")
            }
        self._model.write_caches(self._copies)
        self.token_ids = self.token_ids[:kept]  # what follows is about to be written over
        self.reused = kept
        return kept

    def forget(self) -> None:
        """Notes that the next prompt may reuse nothing."""
        self.token_ids = []

    def keep(self, token_ids: Sequence[int]) -> None:
        """Notes that the caches hold just these tokens now."""
        if len(token_ids) > len(self.token_ids):
            self._copies = {name: self._model.read_cache(name) for name in self._moving}
        self.token_ids = list(token_ids)
