"""Sentence embeddings: pooling of a model's last states as in the sentence-transformers library."""

import enum
import os
from dataclasses import dataclass
from typing import Any, Final

from lang_core import ConfigError, ExecutionContext, Tensor, checked_choices, near_names
from transformer_core._config_fields import ConfigFields
from transformer_core._json_files import config_fields
from transformer_core._sentence_files import MODULES_FILE, SentenceModule, read_modules, read_transformer_settings
from transformer_core.layers._logits import row_of

# Kinds of modules in modules.json, by the last part of the class name.
_TRANSFORMER: Final = "Transformer"
_POOLING: Final = "Pooling"
_NORMALIZE: Final = "Normalize"
_DENSE: Final = "Dense"
_LAYER_NORM: Final = "LayerNorm"
_DROPOUT: Final = "Dropout"
_LOGIT_SCORE: Final = "LogitScore"
_AFTER: Final = (_DENSE, _LAYER_NORM, _NORMALIZE, _DROPOUT)
_OURS: Final = "sentence_transformers."
_TASKS: Final = ("feature-extraction",)
_TYPES: Final = ("SentenceTransformer",)
_MASK: Final = "MultiVectorMask"
_MANY_TYPES: Final = ("MultiVectorEncoder",)
_TOKEN_STATES: Final = "token_embeddings"
# Arguments for transformers in sentence_bert_config.json, by new and old name of their field: those that change how a
# model is loaded, and not what it computes.
_ARGUMENTS: Final = {
    ("config_kwargs", "config_args"): ("trust_remote_code",),
    ("model_kwargs", "model_args"): (
        "add_pooling_layer",
        "attn_implementation",
        "dtype",
        "torch_dtype",
        "trust_remote_code",
        "use_safetensors",
    ),
    ("processor_kwargs", "tokenizer_args"): (
        "model_max_length",
        "padding_side",
        "truncation_side",
        "trust_remote_code",
        "use_fast",
    ),
}


class PoolingMode(enum.Enum):
    """Pooling of the states of a sentence's tokens into one vector."""

    MEAN = "mean"
    CLS = "cls"
    MAX = "max"
    LAST = "lasttoken"
    MEAN_SQRT_LEN = "mean_sqrt_len_tokens"
    """Sum, divided by the square root of the number of tokens."""
    WEIGHTED_MEAN = "weightedmean"
    """Mean with weights 1, 2, 3, ... by position."""
    TOKENS = "tokens"
    """No pooling: each token has a vector (late interaction, Khattab, Zaharia 2020, arXiv:2004.12832)."""


# Fields of the pooling's config.json, one per mode, in the order in which their vectors are joined; new files have
# pooling_mode.
_FLAGS: Final = {
    "pooling_mode_cls_token": PoolingMode.CLS,
    "pooling_mode_max_tokens": PoolingMode.MAX,
    "pooling_mode_mean_tokens": PoolingMode.MEAN,
    "pooling_mode_mean_sqrt_len_tokens": PoolingMode.MEAN_SQRT_LEN,
    "pooling_mode_weightedmean_tokens": PoolingMode.WEIGHTED_MEAN,
    "pooling_mode_lasttoken": PoolingMode.LAST,
}

_SIZES: Final = ("embedding_dimension", "word_embedding_dimension")  # new files, and old ones

# Shorter vectors are divided by this, as torch's normalize does; counts of tokens are at least the other.
_SHORTEST: Final = 1e-12
_FEWEST: Final = 1e-9


class DenseActivation(enum.Enum):
    """Activation after a matrix; the values are classes of torch."""

    IDENTITY = "torch.nn.modules.linear.Identity"
    TANH = "torch.nn.modules.activation.Tanh"
    RELU = "torch.nn.modules.activation.ReLU"
    GELU = "torch.nn.modules.activation.GELU"
    SILU = "torch.nn.modules.activation.SiLU"
    SIGMOID = "torch.nn.modules.activation.Sigmoid"

    def __call__(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [..] to [..]."""
        ops = ctx.ops
        if self is DenseActivation.IDENTITY:
            return x
        if self is DenseActivation.SIGMOID:
            return ops.logistic(x)
        return getattr(ops, self.name.lower())(x)


# The same classes by the other names that torch exports them under.
_ACTIVATIONS: Final = {
    name: kind for kind in DenseActivation for name in (kind.value, f"torch.nn.{kind.value.rpartition('.')[2]}")
}


@dataclass(frozen=True, slots=True)
class DenseConfig:
    """Configuration of a matrix after the pooling.

    Attributes:
        place: number of its module, which begins the name of its directory.
        inputs: size of its inputs.
        outputs: size of its outputs.
        bias: whether it has a bias.
        activation: activation that follows.
        residual: whether its input is added to the result, through a second matrix if the sizes differ.
    """

    place: int
    inputs: int
    outputs: int
    bias: bool
    activation: DenseActivation
    residual: bool = False


@dataclass(frozen=True, slots=True)
class LayerNormConfig:
    """Configuration of a layer norm after the pooling.

    Attributes:
        place: number of its module, which begins the name of its directory.
        size: size of its inputs.
    """

    place: int
    size: int


@dataclass(frozen=True, slots=True)
class UnitLength:
    """Scaling to length 1 in the middle of the modules after the pooling."""


PoolingStage = DenseConfig | LayerNormConfig | UnitLength


@dataclass(frozen=True, slots=True)
class ScoreTokens:
    """Tokens with logits that rate how well two texts fit (Qwen3-Reranker).

    Attributes:
        yes: id of the token for a match.
        no: id of the token for a mismatch; its logit is subtracted; None if that of ``yes`` counts alone.
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
        stages: modules that follow, before the scaling to length 1.
        further: further kinds of pooling; the vectors are joined, that of ``mode`` first.
        include_prompt: whether the tokens of a prompt before the text count, too.
        skipped_words: tokens whose vectors are left out, of texts that are read for one of ``skipped_tasks``.
        skipped_tasks: ``query``, ``document`` or both.
    """

    mode: PoolingMode
    normalize: bool
    size: int | None = None
    stages: tuple[PoolingStage, ...] = ()
    further: tuple[PoolingMode, ...] = ()
    include_prompt: bool = True
    skipped_words: tuple[str, ...] = ()
    skipped_tasks: tuple[str, ...] = ()

    @property
    def of_tokens(self) -> bool:
        """True if each token has a vector, and texts have none."""
        return self.mode is PoolingMode.TOKENS

    @property
    def result(self) -> str:
        """Name of the result."""
        return _TOKEN_STATES if self.of_tokens else "sentence_embedding"

    @property
    def modes(self) -> tuple[PoolingMode, ...]:
        """Every kind of pooling, in the order in which the vectors are joined."""
        return (self.mode, *self.further)

    def __call__(self, ctx: ExecutionContext, x: Tensor, mask: Tensor, pooling_mask: Tensor | None = None) -> Tensor:
        """Pools x f32 [B, T, D] with mask i32 [B, T], 0 where padding, into f32 [B, D'], without the stages."""
        pooled = self.pooled(ctx, x, mask, pooling_mask)
        return of_length_one(ctx, pooled) if self.normalize else pooled

    def pooled(
        self,
        ctx: ExecutionContext,
        x: Tensor,
        mask: Tensor,
        pooling_mask: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Pools x f32 [B, T, D], or of ``PackedTexts`` [1, T, D], into f32 [B, D'], and does not scale.

        Args:
            ctx: context.
            x: states.
            mask: i32 [B, T], 0 where padding.
            pooling_mask: i32 [B, T], 0 where padding or the prompt; ``mask`` if None.
            positions: i32 [1, T], if texts are packed; 0 to T - 1 if None.
        """
        if self.of_tokens:
            return x
        counted = mask if pooling_mask is None else pooling_mask
        vectors = [self._pooled(ctx, mode, x, counted, positions) for mode in self.modes]
        return vectors[0] if len(vectors) == 1 else ctx.ops.concat(vectors, 1)

    def _pooled(
        self, ctx: ExecutionContext, mode: PoolingMode, x: Tensor, mask: Tensor, positions: Tensor | None
    ) -> Tensor:
        ops = ctx.ops
        batch, tokens = mask.shape
        is_real = ops.reshape(ops.not_equal(mask, 0), (batch, tokens, 1))
        if mode is PoolingMode.CLS:
            return first_state(ctx, x, mask) if self.include_prompt else states_at(ctx, x, first_places(ctx, mask))
        if mode is PoolingMode.LAST:
            last = states_at(ctx, x, last_places(ctx, mask))
            if self.include_prompt:
                return last
            left = ops.sum(ops.cast(is_real, "f32"), 1)  # [B, 1]; 0 if no token is left beside the prompt
            return ops.select(ops.not_equal(left, 0.0), last, 0.0)
        if mode is PoolingMode.MAX:
            return ops.max(ops.select(is_real, x, float("-inf")), 1)
        counts = ops.cast(is_real, "f32")
        if mode is PoolingMode.WEIGHTED_MEAN:
            places = ops.iota((tokens,)) if positions is None else positions
            weights = ops.cast(ops.reshape(ops.add(places, 1), (1, tokens, 1)), "f32")
            counts, x = ops.mul(counts, weights), ops.mul(x, weights)
        total = ops.sum(ops.select(is_real, x, 0.0), 1)
        count = ops.maximum(ops.sum(counts, 1), _FEWEST)
        return ops.div(total, ops.sqrt(count) if mode is PoolingMode.MEAN_SQRT_LEN else count)

    def facts(self) -> dict[str, Any]:
        """Returns the entries for a description."""
        prompt = {} if self.include_prompt else {"include_prompt": False}
        skipped = {"skipped_words": list(self.skipped_words), "skipped_tasks": list(self.skipped_tasks)}
        mask = skipped if self.of_tokens else {}
        return {"mode": "+".join(mode.value for mode in self.modes), "normalize": self.normalize, **prompt, **mask}


def of_length_one(ctx: ExecutionContext, x: Tensor) -> Tensor:
    """Scales the rows of x f32 [.., D] to length 1."""
    ops = ctx.ops
    length = ops.sqrt(ops.sum(ops.mul(x, x), -1, keepdims=True))
    return ops.div(x, ops.maximum(length, _SHORTEST))


def first_state(ctx: ExecutionContext, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Returns the first token's state of each text of x [B, T, D]: [B, D].

    Of packed texts x is [1, T, D], and ``mask`` [R, T] has a row for each text.
    """
    if mask is not None and _are_packed(x, mask.shape[0]):
        return states_at(ctx, x, first_places(ctx, mask))
    return ctx.ops.reshape(ctx.ops.slice_axis(x, 1, 0, 1), (x.shape[0], x.shape[2]))


def states_at(ctx: ExecutionContext, x: Tensor, places: Tensor) -> Tensor:
    """Returns the states [B, D] of x [B, T, D], or of ``PackedTexts`` [1, T, D], at places i32 [B]."""
    if _are_packed(x, places.shape[0]):
        return ctx.ops.take(ctx.ops.reshape(x, x.shape[1:]), places)
    return row_of(ctx, x, places)


def _are_packed(x: Tensor, texts: int) -> bool:
    return x.shape[0] != texts


def last_places(ctx: ExecutionContext, mask: Tensor) -> Tensor:
    """Returns the places i32 [B] of the last tokens of mask i32 [B, T], 0 where padding."""
    ops, tokens = ctx.ops, mask.shape[1]
    return ops.max(ops.select(ops.not_equal(mask, 0), ops.iota((1, tokens), 1), 0), 1)


def first_places(ctx: ExecutionContext, mask: Tensor) -> Tensor:
    """Returns the places i32 [B] of the first tokens of mask i32 [B, T]; 0 for a row without tokens."""
    ops, tokens = ctx.ops, mask.shape[1]
    first = ops.min(ops.select(ops.not_equal(mask, 0), ops.iota((1, tokens), 1), tokens), 1)
    return ops.select(ops.equal(first, tokens), 0, first)


def read_pooling(directory: str | os.PathLike[str]) -> Pooling | None:
    """Reads the pooling of a sentence-transformers directory; None without one.

    There is none without a modules.json, or if the Transformer is the only module and its task is to classify.

    Raises:
        ConfigError: a file is missing, damaged or not supported; names file and field.
    """
    modules = read_modules(directory)
    if modules is None or _classifies(directory, modules):
        return None
    path = os.path.join(os.fspath(directory), MODULES_FILE)
    kinds = [module.kind for module in modules]
    if _MASK in kinds:
        return _read_mask(directory, path, modules)
    if kinds[:2] != [_TRANSFORMER, _POOLING] or any(kind not in _AFTER for kind in kinds[2:]):
        unknown = next((kind for kind in kinds if kind not in (_TRANSFORMER, _POOLING, *_AFTER)), None)
        refused = "" if unknown is None else f": the module {unknown} is not supported"
        raise ConfigError(
            f"{path}: expected the modules {_TRANSFORMER}, {_POOLING} and perhaps some of {', '.join(_AFTER)}; "
            f"found {', '.join(kinds) or 'none'}{refused}"
        )
    _check_paths(path, modules)
    _check_transformer(directory)
    _check_type(directory)
    fields = config_fields(
        os.path.join(os.fspath(directory), modules[1].own_path, "config.json"),
        "modules.json names a module Pooling, which it describes",
    )
    named = next((name for name in _SIZES if fields.has(name)), None)
    size = None if named is None else fields.integer(named)
    mode, *further = _modes(fields)
    stages = [_stage(directory, module) for module in modules[2:] if module.kind != _DROPOUT]
    normalize = bool(stages) and isinstance(stages[-1], UnitLength)
    stages = stages[: len(stages) - normalize]
    _check_sizes(path, None if size is None else size * (1 + len(further)), stages)
    return Pooling(
        mode, normalize, size, tuple(stages), tuple(further), include_prompt=fields.boolean("include_prompt", True)
    )


def _read_mask(directory: str | os.PathLike[str], path: str, modules: tuple[SentenceModule, ...]) -> Pooling:
    """Reads the modules of a model whose tokens have a vector each."""
    kinds = [module.kind for module in modules]
    if kinds[0] != _TRANSFORMER or kinds.count(_MASK) > 1 or any(kind not in (*_AFTER, _MASK) for kind in kinds[1:]):
        raise ConfigError(
            f"{path}: expected the modules {_TRANSFORMER}, {_MASK} and perhaps some of {', '.join(_AFTER)}; found "
            f"{', '.join(kinds)}"
        )
    _check_paths(path, modules)
    _check_transformer(directory)
    _check_type(directory, _MANY_TYPES)
    stages = [
        _stage(directory, module, _TOKEN_STATES) for module in modules[1:] if module.kind not in (_DROPOUT, _MASK)
    ]
    normalize = bool(stages) and isinstance(stages[-1], UnitLength)
    stages = stages[: len(stages) - normalize]
    _check_sizes(path, None, stages)
    folder = next(module.own_path for module in modules if module.kind == _MASK)
    mask = config_fields(
        os.path.join(os.fspath(directory), folder, "config.json"),
        "modules.json names a module MultiVectorMask, which it describes",
    )
    if mask.values.get("keep_only_token_ids"):
        mask.refuse("keep_only_token_ids", "null, or no such field")
    words, tasks = _texts(mask, "skiplist_words", []), _texts(mask, "skiplist_tasks", ["document"])
    size = next((stage.inputs for stage in stages if isinstance(stage, DenseConfig)), None)
    return Pooling(
        PoolingMode.TOKENS, normalize, size, tuple(stages), skipped_words=tuple(words), skipped_tasks=tuple(tasks)
    )


def _texts(fields: ConfigFields, name: str, default: list[str]) -> list[str]:
    value = fields.values.get(name)
    value = default if value is None else [value] if isinstance(value, str) else value
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        fields.refuse(name, "a list of texts")
    return value


def read_score_tokens(directory: str | os.PathLike[str]) -> ScoreTokens | None:
    """Reads the tokens of a reranker of sentence-transformers that is a decoder; None if it is not one.

    Raises:
        ConfigError: a file is missing, damaged or not supported; names file and field.
    """
    modules = read_modules(directory)
    if modules is None or [module.kind for module in modules] != [_TRANSFORMER, _LOGIT_SCORE]:
        return None
    _check_paths(os.path.join(os.fspath(directory), MODULES_FILE), modules)
    fields = config_fields(
        os.path.join(os.fspath(directory), modules[1].own_path, "config.json"),
        "modules.json names a module LogitScore, which it describes",
    )
    fields.choice("module_input_name", ("causal_logits",), "causal_logits")
    no = fields.integer("false_token_id", minimum=0) if fields.has("false_token_id") else None
    return ScoreTokens(fields.integer("true_token_id", minimum=0), no)


def _classifies(directory: str | os.PathLike[str], modules: tuple[SentenceModule, ...]) -> bool:
    """Returns whether modules.json is that of a cross-encoder, or has a LogitScore, and pools nothing."""
    kinds = [module.kind for module in modules]
    if kinds == [_TRANSFORMER, _LOGIT_SCORE]:
        return True
    task = read_transformer_settings(directory).values.get("transformer_task")
    return kinds == [_TRANSFORMER] and task == "sequence-classification"


def _check_paths(path: str, modules: tuple[SentenceModule, ...]) -> None:
    """Checks that modules are in the directories of the layout that is read; ``export`` arranges others so."""
    for module in modules:
        if module.path != module.own_path and module.kind not in (_NORMALIZE, _DROPOUT):
            raise ConfigError(
                f"{path}: module {module.kind}: expected path {module.own_path!r}; found {module.path!r}: "
                "`export` takes the directory as it is"
            )


def _check_transformer(directory: str | os.PathLike[str]) -> None:
    """Checks that the Transformer module gives the states of tokens, of texts that are not put into a template."""
    fields = read_transformer_settings(directory)
    fields.choice("transformer_task", _TASKS, _TASKS[0])
    fields.choice("module_output_name", ("token_embeddings",), "token_embeddings")
    _check_arguments(fields)
    if not fields.has("modality_config"):
        return
    inputs = fields.object("modality_config")
    if inputs.has("message"):
        fields.refuse("modality_config", "no entry 'message': texts in a chat template are not embedded")
    text = inputs.object("text")
    text.choice("method", ("forward",), "forward")
    text.choice("method_output_name", ("last_hidden_state",), "last_hidden_state")


def _check_type(directory: str | os.PathLike[str], types: tuple[str, ...] = _TYPES) -> None:
    """Checks that the modules are those of an embedder, and not of a model that scores or has several vectors."""
    path = os.path.join(os.fspath(directory), "config_sentence_transformers.json")
    if os.path.exists(path):
        config_fields(path, "fetch the file again").choice("model_type", types, types[0])


def _check_arguments(fields: ConfigFields) -> None:
    """Checks that the arguments for transformers do not change the model."""
    for names, harmless in _ARGUMENTS.items():
        for name in names:
            if fields.has(name) and not set(fields.object(name).values) <= set(harmless):
                fields.refuse(name, f"no setting but {', '.join(harmless)}")


def _stage(
    directory: str | os.PathLike[str], module: SentenceModule, inputs: str = "sentence_embedding"
) -> PoolingStage:
    path = os.path.join(os.fspath(directory), module.own_path, "config.json")
    if module.kind == _NORMALIZE:
        if os.path.exists(path):
            _check_names(config_fields(path, "fetch the file again"), inputs)
        return UnitLength()
    fields = config_fields(path, f"modules.json names a module {module.kind}, which it describes")
    if module.kind == _LAYER_NORM:
        return LayerNormConfig(module.place, fields.integer("dimension"))
    _check_names(fields, inputs)
    return DenseConfig(
        module.place,
        fields.integer("in_features"),
        fields.integer("out_features"),
        fields.boolean("bias", True),
        _ACTIVATIONS[fields.choice("activation_function", _ACTIVATIONS, DenseActivation.TANH.value)],
        fields.boolean("use_residual", False),
    )


def _check_names(fields: ConfigFields, inputs: str) -> None:
    for name in ("module_input_name", "module_output_name"):
        fields.choice(name, (inputs,), inputs)


def _check_sizes(path: str, size: int | None, stages: list[PoolingStage]) -> None:
    """Checks that each module takes vectors of the size that comes before it."""
    for stage in stages:
        if isinstance(stage, UnitLength):
            continue
        dense = isinstance(stage, DenseConfig)
        inputs = stage.inputs if dense else stage.size
        if size not in (None, inputs):
            raise ConfigError(
                f"{path}: module {stage.place}_{_DENSE if dense else _LAYER_NORM} takes vectors of {inputs} numbers, "
                f"and those before it have {size}: fetch its config.json again"
            )
        size = stage.outputs if dense else inputs


def _modes(fields: ConfigFields) -> list[PoolingMode]:
    known = {mode.value: mode for mode in PoolingMode if mode is not PoolingMode.TOKENS}
    named = fields.values.get("pooling_mode")
    if named is not None:
        names = named if isinstance(named, list) else [named]
        for name in names:
            if not isinstance(name, str) or name not in known:
                fields.refuse("pooling_mode", f"one or a list of {', '.join(known)}{near_names(str(name), known)}")
        if not names:
            fields.refuse("pooling_mode", f"one or a list of {', '.join(known)}")
        return [known[name] for name in names]
    return [mode for name, mode in _FLAGS.items() if fields.boolean(name, False)] or [PoolingMode.MEAN]
