"""Sentence embeddings: pooling of a model's last states as in the sentence-transformers library."""

import enum
import os
from dataclasses import dataclass
from typing import Any, Final

from lang_core import ConfigError, ExecutionContext, Tensor, checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core._json_files import config_fields, json_array
from transformer_core._logits import row_of

SENTENCE_FILES: Final = (
    "modules.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
    "1_LogitScore/config.json",
    *(f"{place}_Dense/config.json" for place in range(2, 6)),
)
"""Files beside config.json that describe the pooling, or the score of a reranker."""

SENTENCE_WEIGHTS: Final = tuple(f"{place}_Dense/model.safetensors" for place in range(2, 6))
"""Files beside the model's with the weights of matrices after the pooling."""

_MODULES: Final = "modules.json"

# Kinds of modules in modules.json; old files have sentence_transformers.models.Pooling.
_TRANSFORMER: Final = "Transformer"
_POOLING: Final = "Pooling"
_NORMALIZE: Final = "Normalize"
_DENSE: Final = "Dense"
_LOGIT_SCORE: Final = "LogitScore"


class PoolingMode(enum.Enum):
    """Pooling of the states of a sentence's tokens into one vector."""

    MEAN = "mean"
    CLS = "cls"
    MAX = "max"
    LAST = "lasttoken"


# Directories of these.
_PATHS: Final = {_TRANSFORMER: "", _POOLING: "1_Pooling", _LOGIT_SCORE: "1_LogitScore"}

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


# Activations of matrices after the pooling, and whether each is a tanh.
_ACTIVATIONS: Final = {"torch.nn.modules.linear.Identity": False, "torch.nn.modules.activation.Tanh": True}


@dataclass(frozen=True, slots=True)
class DenseConfig:
    """Configuration of a matrix after the pooling.

    Attributes:
        place: number of its module, which begins the name of its directory.
        inputs: size of its inputs.
        outputs: size of its outputs.
        bias: whether it has a bias.
        tanh: whether a tanh follows.
    """

    place: int
    inputs: int
    outputs: int
    bias: bool
    tanh: bool


@dataclass(frozen=True, slots=True)
class ScoreTokens:
    """Tokens whose logits after a pair of texts say how well these fit (Qwen3-Reranker).

    Attributes:
        yes: id of the token for what fits.
        no: id of the token for what does not, whose logit is subtracted; None where that of ``yes`` counts alone.
    """

    yes: int
    no: int | None = None


@checked_choices
@dataclass(frozen=True, slots=True)
class Pooling:
    """Pooling of token states into one vector (Reimers, Gurevych 2019, arXiv:1908.10084, section 3).

    Attributes:
        mode: kind of pooling.
        normalize: whether the vector is scaled to length 1.
        size: D, if the files have it.
        dense: matrices that follow, before the scaling to length 1.
    """

    mode: PoolingMode
    normalize: bool
    size: int | None = None
    dense: tuple[DenseConfig, ...] = ()

    def __call__(self, ctx: ExecutionContext, x: Tensor, mask: Tensor) -> Tensor:
        """Pools x f32 [B, T, D] with mask i32 [B, T], 0 where padding, into f32 [B, D], without the matrices."""
        pooled = self.pooled(ctx, x, mask)
        return of_length_one(ctx, pooled) if self.normalize else pooled

    def pooled(self, ctx: ExecutionContext, x: Tensor, mask: Tensor) -> Tensor:
        """Pools x f32 [B, T, D] with mask i32 [B, T] as ``__call__`` into f32 [B, D], and does not scale."""
        ops = ctx.ops
        batch, tokens, size = x.shape
        is_real = ops.reshape(ops.not_equal(mask, 0), (batch, tokens, 1))
        if self.mode is PoolingMode.CLS:
            return ops.reshape(ops.slice_axis(x, 1, 0, 1), (batch, size))
        if self.mode is PoolingMode.LAST:
            return row_of(ctx, x, last_places(ctx, mask))
        if self.mode is PoolingMode.MAX:
            return ops.max(ops.select(is_real, x, float("-inf")), 1)
        total = ops.sum(ops.select(is_real, x, 0.0), 1)
        return ops.div(total, ops.maximum(ops.sum(ops.cast(is_real, "f32"), 1), 1e-9))

    def facts(self) -> dict[str, Any]:
        """Returns the entries for a description."""
        return {"mode": self.mode.value, "normalize": self.normalize}


def of_length_one(ctx: ExecutionContext, x: Tensor) -> Tensor:
    """Scales the rows of x f32 [B, D] to length 1."""
    ops = ctx.ops
    length = ops.sqrt(ops.sum(ops.mul(x, x), -1, keepdims=True))
    return ops.div(x, ops.maximum(length, _SHORTEST))


def last_places(ctx: ExecutionContext, mask: Tensor) -> Tensor:
    """Returns the places i32 [B] of the last tokens of mask i32 [B, T], 0 where padding."""
    ops, tokens = ctx.ops, mask.shape[1]
    return ops.max(ops.select(ops.not_equal(mask, 0), ops.iota((1, tokens), 1), 0), 1)


def read_pooling(directory: str | os.PathLike[str]) -> Pooling | None:
    """Reads the pooling of a sentence-transformers directory; None without a modules.json.

    Raises:
        ConfigError: a file is missing, damaged or not supported; names file and field.
    """
    path = os.path.join(os.fspath(directory), _MODULES)
    if not os.path.exists(path):
        return None
    kinds = _kinds(path)
    matrices = kinds[2 : len(kinds) - (kinds[-1:] == [_NORMALIZE])]
    if kinds[:2] != [_TRANSFORMER, _POOLING] or any(kind != _DENSE for kind in matrices):
        raise ConfigError(
            f"{path}: expected the modules {_TRANSFORMER}, {_POOLING} and perhaps some {_DENSE} and {_NORMALIZE}; "
            f"found {', '.join(kinds) or 'none'}: others are not supported"
        )
    fields = config_fields(
        os.path.join(os.fspath(directory), _PATHS[_POOLING], "config.json"),
        "modules.json names a module Pooling, which it describes",
    )
    if not fields.boolean("include_prompt", True):
        fields.refuse("include_prompt", "true, or no such field")
    named = next((name for name in _SIZES if fields.has(name)), None)
    size = None if named is None else fields.integer(named)
    dense = tuple(_dense(directory, place) for place, kind in enumerate(kinds) if kind == _DENSE)
    _check_sizes(path, size, dense)
    return Pooling(_mode(fields), _NORMALIZE in kinds, size, dense)


def read_score_tokens(directory: str | os.PathLike[str]) -> ScoreTokens | None:
    """Reads the tokens of a reranker of sentence-transformers that is a decoder; None where there is no such one.

    Raises:
        ConfigError: a file is missing, damaged or not supported; names file and field.
    """
    path = os.path.join(os.fspath(directory), _MODULES)
    if not os.path.exists(path) or _kinds(path) != [_TRANSFORMER, _LOGIT_SCORE]:
        return None
    fields = config_fields(
        os.path.join(os.fspath(directory), _PATHS[_LOGIT_SCORE], "config.json"),
        "modules.json names a module LogitScore, which it describes",
    )
    fields.choice("module_input_name", ("causal_logits",), "causal_logits")
    no = fields.integer("false_token_id", minimum=0) if fields.has("false_token_id") else None
    return ScoreTokens(fields.integer("true_token_id", minimum=0), no)


def _kinds(path: str) -> list[str]:
    """Returns the kinds of the modules in modules.json, whose directories are checked."""
    kinds: list[str] = []
    for place, entry in enumerate(json_array(path, "fetch the file again")):
        kind = entry.get("type") if isinstance(entry, dict) else None
        if not isinstance(kind, str):
            raise ConfigError(f"{path}: expected objects with a field 'type'; found {entry!r}: fetch the file again")
        kinds.append(kind.rpartition(".")[2])
        wanted = f"{place}_{_DENSE}" if kinds[-1] == _DENSE else _PATHS.get(kinds[-1])
        if wanted is not None and entry.get("path", wanted) != wanted:
            raise ConfigError(f"{path}: module {kinds[-1]}: expected path {wanted!r}; found {entry['path']!r}")
    return kinds


def _dense(directory: str | os.PathLike[str], place: int) -> DenseConfig:
    where = os.path.join(os.fspath(directory), f"{place}_{_DENSE}", "config.json")
    fields = config_fields(where, "modules.json names a module Dense, which it describes")
    if fields.boolean("use_residual", False):
        fields.refuse("use_residual", "false, or no such field")
    for name in ("module_input_name", "module_output_name"):
        fields.choice(name, ("sentence_embedding",), "sentence_embedding")
    return DenseConfig(
        place,
        fields.integer("in_features"),
        fields.integer("out_features"),
        fields.boolean("bias", True),
        _ACTIVATIONS[fields.choice("activation_function", _ACTIVATIONS, "torch.nn.modules.activation.Tanh")],
    )


def _check_sizes(path: str, size: int | None, dense: tuple[DenseConfig, ...]) -> None:
    """Checks that each matrix takes vectors of the size that comes before it."""
    for matrix in dense:
        if size not in (None, matrix.inputs):
            raise ConfigError(
                f"{path}: module {matrix.place}_{_DENSE} takes vectors of {matrix.inputs} numbers, and those before it "
                f"have {size}: fetch its config.json again"
            )
        size = matrix.outputs


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
