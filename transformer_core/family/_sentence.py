"""Sentence embeddings: pooling of a model's last states as in the sentence-transformers library."""

import enum
import os
from dataclasses import dataclass
from typing import Any, Final

from lang_core import ConfigError, ExecutionContext, Tensor, checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core._json_files import config_fields, json_array

SENTENCE_FILES: Final = ("modules.json", "1_Pooling/config.json")
"""Files beside config.json that describe the pooling."""

# Kinds of modules in modules.json; old files have sentence_transformers.models.Pooling.
_TRANSFORMER: Final = "Transformer"
_POOLING: Final = "Pooling"
_NORMALIZE: Final = "Normalize"


class PoolingMode(enum.Enum):
    """Pooling of the states of a sentence's tokens into one vector."""

    MEAN = "mean"
    CLS = "cls"
    MAX = "max"


# Directories of these two.
_PATHS: Final = {_TRANSFORMER: "", _POOLING: "1_Pooling"}

# Fields of 1_Pooling/config.json, one per mode; new files have pooling_mode.
_FLAGS: Final = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}

_SIZES: Final = ("embedding_dimension", "word_embedding_dimension")  # new files, and old ones

# Shorter vectors are divided by this, as torch's normalize does.
_SHORTEST: Final = 1e-12


@checked_choices
@dataclass(frozen=True, slots=True)
class Pooling:
    """Pooling of token states into one vector (Reimers, Gurevych 2019, arXiv:1908.10084, section 3).

    Attributes:
        mode: kind of pooling.
        normalize: whether the vector is scaled to length 1.
        size: D, if the files have it.
    """

    mode: PoolingMode
    normalize: bool
    size: int | None = None

    def __call__(self, ctx: ExecutionContext, x: Tensor, mask: Tensor) -> Tensor:
        """Pools x f32 [B, T, D] with mask i32 [B, T], 0 where padding, into f32 [B, D]."""
        ops = ctx.ops
        batch, tokens, size = x.shape
        is_real = ops.reshape(ops.not_equal(mask, 0), (batch, tokens, 1))
        if self.mode is PoolingMode.CLS:
            pooled = ops.reshape(ops.slice_axis(x, 1, 0, 1), (batch, size))
        elif self.mode is PoolingMode.MAX:
            pooled = ops.max(ops.select(is_real, x, float("-inf")), 1)
        else:
            total = ops.sum(ops.select(is_real, x, 0.0), 1)
            pooled = ops.div(total, ops.maximum(ops.sum(ops.cast(is_real, "f32"), 1), 1e-9))
        if not self.normalize:
            return pooled
        length = ops.sqrt(ops.sum(ops.mul(pooled, pooled), -1, keepdims=True))
        return ops.div(pooled, ops.maximum(length, _SHORTEST))

    def facts(self) -> dict[str, Any]:
        """Returns the entries for a description."""
        return {"mode": self.mode.value, "normalize": self.normalize}


def read_pooling(directory: str | os.PathLike[str]) -> Pooling | None:
    """Reads the pooling of a sentence-transformers directory; None without a modules.json.

    Raises:
        ConfigError: a file is missing, damaged or not supported; names file and field.
    """
    path = os.path.join(os.fspath(directory), "modules.json")
    if not os.path.exists(path):
        return None
    kinds: list[str] = []
    for entry in json_array(path, "fetch the file again"):
        kind = entry.get("type") if isinstance(entry, dict) else None
        if not isinstance(kind, str):
            raise ConfigError(f"{path}: expected objects with a field 'type'; found {entry!r}: fetch the file again")
        kinds.append(kind.rpartition(".")[2])
        wanted = _PATHS.get(kinds[-1])
        if wanted is not None and entry.get("path", wanted) != wanted:
            raise ConfigError(f"{path}: module {kinds[-1]}: expected path {wanted!r}; found {entry['path']!r}")
    if kinds not in ([_TRANSFORMER, _POOLING], [_TRANSFORMER, _POOLING, _NORMALIZE]):
        raise ConfigError(
            f"{path}: expected the modules {_TRANSFORMER}, {_POOLING} and perhaps {_NORMALIZE}; found "
            f"{', '.join(kinds) or 'none'}: others are not supported"
        )
    where = os.path.join(os.fspath(directory), "1_Pooling", "config.json")
    fields = config_fields(where, "modules.json names a module Pooling, which it describes")
    named = next((name for name in _SIZES if fields.has(name)), None)
    return Pooling(_mode(fields), _NORMALIZE in kinds, None if named is None else fields.integer(named))


def _mode(fields: ConfigFields) -> PoolingMode:
    known = tuple(mode.value for mode in PoolingMode)
    if fields.has("pooling_mode"):
        return PoolingMode(fields.choice("pooling_mode", known))
    chosen = [name for name in _FLAGS if fields.boolean(name, False)] or ["pooling_mode_mean_tokens"]
    if len(chosen) > 1:
        fields.refuse(chosen[1], f"false, for {chosen[0]} is true: several modes at once are not supported")
    if _FLAGS[chosen[0]] not in known:
        supported = ", ".join(name for name, mode in _FLAGS.items() if mode in known)
        fields.refuse(chosen[0], f"false: supported are {supported}")
    return PoolingMode(_FLAGS[chosen[0]])
