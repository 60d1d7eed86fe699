"""Tensors of a GGUF file that Gated DeltaNets are made of."""

import math
import re
from typing import Final

import numpy as np

from lang_core import WeightSource
from transformer_core.checkpoints import Recipe, Reshaped, Stored
from transformer_core.models import DeltaConfig
from transformer_core.models.gguf._keys import GgufKeys
from transformer_core.models.gguf.readers import LogOfNegative

Shape = tuple[int, ...]

_DELTA: Final = re.compile(r"model\.layers\.(\d+)\.linear_attn\.(A_log|dt_bias|in_proj_qkvz\.weight)")
_REFORMED: Final = ".linear_attn.conv1d.weight"


class HybridKeys(GgufKeys):
    """Recipes of a Qwen3-Next or Qwen3.5; otherwise as ``GgufKeys``."""

    def __call__(self, name: str, shape: Shape, source: WeightSource) -> Recipe:
        """Returns the recipe of a parameter."""
        mixer = self.config.mixer
        match = _DELTA.fullmatch(name)
        if match is None or not isinstance(mixer, DeltaConfig):
            recipe = super().__call__(name, shape, source)
            return _reformed(recipe, shape, source) if name.endswith(_REFORMED) else recipe
        above = f"blk.{match[1]}."
        if match[2] == "A_log":
            return LogOfNegative(f"{above}ssm_a", shape, shape)
        if match[2] == "dt_bias":
            return Stored(f"{above}ssm_dt.bias", shape)
        whole = f"{above}ssm_in.weight"  # of early files
        if source.has(whole):
            return Stored(whole, shape)
        return GroupedRows(f"{above}attn_qkv.weight", f"{above}attn_gate.weight", shape, mixer)


def _reformed(recipe: Recipe, shape: Shape, source: WeightSource) -> Recipe:
    """Returns the recipe of a tensor; the file may lack its axes of size 1."""
    key = next(iter(recipe.stored()))
    stored = source.spec(key).shape if source.has(key) else shape
    alike = stored != shape and math.prod(stored) == math.prod(shape)
    return Reshaped(key, stored, shape) if alike else recipe


class GroupedRows:
    """``in_proj_qkvz`` of stored q, k and v of all heads, and z of all: rows of key head after key head.

    Args:
        qkv: key of q, k and v, one after the other.
        gate: key of z.
        shape: shape of the whole.
        mixer: sizes of the layers.
    """

    keeps_rows: bool = True

    def __init__(self, qkv: str, gate: str, shape: Shape, mixer: DeltaConfig) -> None:
        self._qkv: Final = qkv
        self._gate: Final = gate
        self._inputs: Final = shape[1:]
        self._groups: Final = mixer.key_heads
        self._key: Final = mixer.key_size
        self._value: Final = mixer.value_heads // mixer.key_heads * mixer.value_size

    def stored(self) -> dict[str, Shape]:
        """Returns both keys and their shapes."""
        values = self._groups * self._value
        return {
            self._qkv: (2 * self._groups * self._key + values, *self._inputs),
            self._gate: (values, *self._inputs),
        }

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns a copy of these rows; the groups that contain them are read."""
        size = 2 * (self._key + self._value)
        first, last = start // size, -(-stop // size)
        keys = self._groups * self._key
        places = ((self._qkv, 0, self._key), (self._qkv, keys, self._key), (self._qkv, 2 * keys, self._value),
                  (self._gate, 0, self._value))  # fmt: skip
        parts = [source.read_rows(key, begin + first * rows, begin + last * rows) for key, begin, rows in places]
        groups = np.concatenate([part.reshape(last - first, -1, *part.shape[1:]) for part in parts], 1)
        begin = start - first * size
        return groups.reshape(-1, *groups.shape[2:])[begin : begin + stop - start]
