"""Stages besides modules that most models have."""

from collections.abc import Callable
from dataclasses import dataclass

from lang_core import ConfigError, DType, Module, OpError, Parameter
from transformer_core.flow._build import BuildContext, StageRun, unchanged
from transformer_core.flow._context import FlowContext
from transformer_core.flow._profile import Memory, Rows
from transformer_core.flow._stages import needed
from transformer_core.flow._value import Dim, FlowValue, InputSpec
from transformer_core.layers._embedding import Embedding, TokenEmbedding
from transformer_core.layers._linear import VocabularyLinear
from transformer_core.layers._logits import logits_of, row_of


@dataclass(frozen=True, slots=True)
class Input:
    """An argument of the model; it becomes the present value."""

    name: str
    dims: tuple[Dim, ...]
    dtype: DType | None = None

    def build(self, build: BuildContext) -> StageRun:
        """Registers the input.

        Raises:
            ConfigError: another input has the name.
        """
        spec = InputSpec(self.name, self.dims, self.dtype or build.dtype)
        if build.registry.inputs.setdefault(self.name, spec) != spec:
            raise ConfigError(f"input {self.name!r}: two inputs of different shapes have this name")
        return lambda flow, x: flow.input(self.name)


@dataclass(frozen=True, slots=True)
class TokenEmbed:
    """Embeds token ids i32 [B, T] as the residual stream [B, T, D]."""

    name: str
    vocabulary: int
    size: int

    def build(self, build: BuildContext) -> StageRun:
        """Makes the embedding, and tells the other stages V and D."""
        embedding = build.attach(self.name, TokenEmbedding(self.vocabulary, self.size, dtype=build.dtype))
        build.registry.embedding = embedding.weight

        def run(flow: FlowContext, x: FlowValue | None) -> FlowValue:
            embedded = flow.run(embedding, needed(x, self.name))
            flow.state.embedding, flow.state.hidden = embedding.weight, embedded.spec
            return embedded

        return run


@dataclass(frozen=True, slots=True)
class PositionEmbed:
    """Adds a learned embedding per position, for ``count`` positions (GPT-2)."""

    name: str
    count: int

    def build(self, build: BuildContext) -> StageRun:
        """Makes the embedding.

        Raises:
            ConfigError: the caller computes the positions.
        """
        if build.profile.memory is Memory.BINDINGS:
            raise ConfigError(
                f"stage {self.name!r}: learned positions need memory none, taps or caches; found bindings"
            )
        embedding = build.attach(self.name, Embedding(self.count, build.size, dtype=build.dtype, packable=False))

        def run(flow: FlowContext, x: FlowValue | None) -> FlowValue:
            positions = flow.run(embedding, FlowValue.of(flow.step.positions))
            return flow.emit("add", needed(x, self.name), positions)

        return run


@dataclass(frozen=True, slots=True)
class LastToken:
    """Takes the last row of [B, T, D] if the profile wants only this row: row ``last``, or T - 1 without padding."""

    name: str = ""

    def build(self, build: BuildContext) -> StageRun:
        """Makes the model take ``last`` if there may be padding."""
        build.registry.takes_last = True
        return self._run

    def _run(self, flow: FlowContext, x: FlowValue | None) -> FlowValue:
        x = needed(x, "last_token")
        if flow.profile.rows is Rows.ALL:
            return x
        if len(x.shape) != 3:
            raise OpError(f"last_token at {flow.where}: expected [B, T, D]; found {x.spec!r}")
        return FlowValue.of(row_of(flow.ctx, x.tensor, flow.state.last))


@dataclass(frozen=True, slots=True)
class RowsAt:
    """Takes one row of each sequence of [B, T, D]: the row that an input i32 [B] names."""

    rows: str
    name: str = ""

    def build(self, build: BuildContext) -> StageRun:
        """Returns the run, without making a module."""
        del build
        return self._run

    def _run(self, flow: FlowContext, x: FlowValue | None) -> FlowValue:
        x, rows = needed(x, "rows_at"), flow.read(self.rows)
        if len(x.shape) != 3 or rows.shape != x.shape[:1]:
            raise OpError(
                f"rows_at {self.rows!r} at {flow.where}: expected [B, T, D] and [B]; found {x.spec!r}, {rows.spec!r}"
            )
        return FlowValue.of(row_of(flow.ctx, x.tensor, rows.tensor))


class HeadBias(Module):
    """Bias [V] of a head with the embedding as matrix."""

    def __init__(self, vocabulary: int, dtype: DType) -> None:
        self.bias = Parameter((vocabulary,), dtype)


@dataclass(frozen=True, slots=True)
class Head:
    """Computes logits f32 [.., V] of the normed residual stream [.., D]; see ``logits_of``."""

    name: str
    tied: bool
    bias: bool
    scale: float
    softcap: float | None
    vocabulary: int | None
    size: int | None = None

    def build(self, build: BuildContext) -> StageRun:
        """Makes the head's projection, unless it is the embedding.

        Raises:
            ConfigError: a stage that embeds tokens is missing, or the head is tied and has a vocabulary.
        """
        build.registry.result, build.registry.has_head = "logits", True
        if self.tied and self.vocabulary is not None:
            raise ConfigError(f"stage {self.name!r}: a tied head is the embedding: it has no other size")
        embedding = build.embedding
        vocabulary = embedding.spec.shape[0] if self.vocabulary is None else self.vocabulary
        if self.tied:
            build.registry.tied_heads.append(self.name)
            bias = build.attach(self.name, HeadBias(vocabulary, build.dtype)).bias if self.bias else None
            return self._run_of(embedding, bias)
        linear = build.attach(
            self.name, VocabularyLinear(self.size or build.size, vocabulary, bias=self.bias, dtype=build.dtype)
        )
        return self._run_of(linear.weight, linear.bias)

    def _run_of(self, weight: Parameter, bias: Parameter | None) -> StageRun:
        size = weight.spec.shape[1]

        def run(flow: FlowContext, x: FlowValue | None) -> FlowValue:
            x = needed(x, self.name)
            if x.shape[-1:] != (size,):
                raise OpError(f"stage {self.name!r}: expected [.., {size}]; found {x.spec!r}")
            logits = logits_of(flow.ctx, x.tensor, weight, bias, scale=self.scale, softcap=self.softcap)
            return FlowValue.of(logits)

        return run


@dataclass(frozen=True, slots=True)
class Action:
    """A function of the run and the present value, without a module or a name."""

    function: Callable[[FlowContext, FlowValue], FlowValue]
    name: str = ""

    def build(self, build: BuildContext) -> StageRun:
        """Returns a call of the function, without making a module."""
        del build
        return lambda flow, x: self.function(flow, needed(x, self.name or self.function.__name__))


def store_residual(flow: FlowContext, x: FlowValue) -> FlowValue:
    """Keeps the present value for ``add_residual`` of the same recipe, and returns it.

    Raises:
        OpError: one is kept already.
    """
    if flow.state.residual is not None:
        raise OpError(f"store_residual at {flow.where}: one is stored already: .add_residual() comes first")
    flow.state.residual = x
    return x


def add_residual(flow: FlowContext, x: FlowValue, scale: float) -> FlowValue:
    """Returns the value that ``store_residual`` kept, plus ``x`` times ``scale``.

    Raises:
        OpError: none is kept.
    """
    before, flow.state.residual = flow.state.residual, None
    if before is None:
        raise OpError(f"add_residual at {flow.where}: none is stored: .store_residual() comes first")
    return flow.emit("add", before, x if scale == 1.0 else flow.emit("mul", x, scale), spec=before.spec)


@dataclass(frozen=True, slots=True)
class ResultName:
    """Names the model's result."""

    result: str
    name: str = ""

    def build(self, build: BuildContext) -> StageRun:
        """Registers the name."""
        build.registry.result = self.result
        return unchanged
