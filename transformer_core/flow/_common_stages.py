"""The stages that most models have, besides modules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lang_core import ConfigError, DType, OpError, Parameter
from transformer_core._embedding import Embedding
from transformer_core._linear import Linear
from transformer_core._logits import logits_of
from transformer_core._rows import row_of
from transformer_core.flow._build import BuildContext, InputSpec, Part
from transformer_core.flow._profile import Memory, Rows
from transformer_core.flow._stages import needed
from transformer_core.flow._value import Dim, FlowValue

if TYPE_CHECKING:
    from transformer_core.flow._context import FlowContext


@dataclass(frozen=True, slots=True)
class Input:
    """An argument of the model; it becomes the present value."""

    name: str
    dims: tuple[Dim, ...]
    dtype: DType | None = None

    def build(self, build: BuildContext) -> Sequence[Part]:
        """Registers the input.

        Raises:
            ConfigError: another one has the name.
        """
        spec = InputSpec(self.name, self.dims, build.dtype if self.dtype is None else self.dtype)
        if build.registry.inputs.setdefault(self.name, spec) != spec:
            raise ConfigError(f"input {self.name!r}: two inputs of different shapes have this name")
        return (self,)

    def run(self, flow: "FlowContext", x: FlowValue | None) -> FlowValue:
        """The input's value."""
        del x
        return flow.input(self.name)


@dataclass(frozen=True, slots=True)
class TokenEmbed:
    """Token ids i32 [B, T] to the residual stream [B, T, D]."""

    name: str
    vocabulary: int
    size: int

    def build(self, build: BuildContext) -> Sequence[Part]:
        """Makes the embedding, and tells the other stages V and D."""
        embedding = build.attach(self.name, Embedding(self.vocabulary, self.size, dtype=build.dtype))
        build.registry.embedding = embedding.weight
        return (_TokenEmbedPart(embedding, self.name),)


@dataclass(frozen=True, slots=True)
class _TokenEmbedPart:
    embedding: Embedding
    name: str

    def run(self, flow: "FlowContext", x: FlowValue | None) -> FlowValue:
        embedded = flow.run(self.embedding, needed(x, self.name))
        flow.state.embedding, flow.state.hidden = self.embedding.weight, embedded.spec
        return embedded


@dataclass(frozen=True, slots=True)
class PositionEmbed:
    """Adds a learned embedding per position, of ``count`` positions (GPT-2)."""

    name: str
    count: int

    def build(self, build: BuildContext) -> Sequence[Part]:
        """Makes the embedding.

        Raises:
            ConfigError: positions are the caller's.
        """
        if build.profile.memory is Memory.BINDINGS:
            raise ConfigError(
                f"stage {self.name!r}: learned positions need memory none, taps or caches; found bindings"
            )
        embedding = build.attach(self.name, Embedding(self.count, build.size, dtype=build.dtype, packable=False))
        return (_PositionEmbedPart(embedding, self.name),)


@dataclass(frozen=True, slots=True)
class _PositionEmbedPart:
    embedding: Embedding
    name: str

    def run(self, flow: "FlowContext", x: FlowValue | None) -> FlowValue:
        positions = flow.run(self.embedding, FlowValue.of(flow.step.positions))
        return flow.emit("add", needed(x, self.name), positions)


@dataclass(frozen=True, slots=True)
class LastToken:
    """[B, T, D] to [B, D], where the profile wants the last row: row ``last``, or T - 1 where nothing is padding."""

    name: str = ""

    def build(self, build: BuildContext) -> Sequence[Part]:
        """Nothing is made; the model takes ``last`` where there may be padding."""
        build.registry.takes_last = True
        return (self,)

    def run(self, flow: "FlowContext", x: FlowValue | None) -> FlowValue:
        """The row."""
        x = needed(x, "last_token")
        if flow.profile.rows is Rows.ALL:
            return x
        if len(x.shape) != 3:
            raise OpError(f"last_token at {flow.where}: expected [B, T, D]; found {x.spec!r}")
        return FlowValue.of(row_of(flow.ctx, x.tensor, flow.state.last))


@dataclass(frozen=True, slots=True)
class RowsAt:
    """[B, T, D] to [B, D]: of each sequence the row that an input i32 [B] says."""

    rows: str
    name: str = ""

    def build(self, build: BuildContext) -> Sequence[Part]:
        """Nothing is made."""
        del build
        return (self,)

    def run(self, flow: "FlowContext", x: FlowValue | None) -> FlowValue:
        """The rows."""
        x, rows = needed(x, "rows_at"), flow.read(self.rows)
        if len(x.shape) != 3 or rows.shape != x.shape[:1]:
            raise OpError(
                f"rows_at {self.rows!r} at {flow.where}: expected [B, T, D] and [B]; found {x.spec!r}, {rows.spec!r}"
            )
        return FlowValue.of(row_of(flow.ctx, x.tensor, rows.tensor))


@dataclass(frozen=True, slots=True)
class Head:
    """The residual stream [.., D], normed, to logits f32 [.., V]; see ``logits_of``."""

    name: str
    tied: bool
    bias: bool
    scale: float
    softcap: float | None
    vocabulary: int | None

    def build(self, build: BuildContext) -> Sequence[Part]:
        """Makes the head's projection, unless it is the embedding.

        Raises:
            ConfigError: no stage has an embedding, or it is tied and has a bias or a vocabulary.
        """
        build.registry.result = "logits"
        if self.tied and (self.bias or self.vocabulary is not None):
            raise ConfigError(f"stage {self.name!r}: a tied head is the embedding: it has no bias and no other size")
        embedding = build.embedding
        if self.tied:
            build.registry.tied_heads.append(self.name)
            return (_HeadPart(embedding, None, self),)
        vocabulary = embedding.spec.shape[0] if self.vocabulary is None else self.vocabulary
        linear = build.attach(self.name, Linear(build.size, vocabulary, bias=self.bias, dtype=build.dtype))
        return (_HeadPart(linear.weight, linear.bias, self),)


@dataclass(frozen=True, slots=True)
class _HeadPart:
    weight: Parameter
    bias: Parameter | None
    stage: Head

    def run(self, flow: "FlowContext", x: FlowValue | None) -> FlowValue:
        x, size = needed(x, self.stage.name), self.weight.spec.shape[1]
        if x.shape[-1:] != (size,):
            raise OpError(f"stage {self.stage.name!r}: expected [.., {size}]; found {x.spec!r}")
        scale, softcap = self.stage.scale, self.stage.softcap
        return FlowValue.of(logits_of(flow.ctx, x.tensor, self.weight, self.bias, scale=scale, softcap=softcap))


@dataclass(frozen=True, slots=True)
class Action:
    """What needs the run and the present value only."""

    function: Callable[["FlowContext", FlowValue], FlowValue]
    name: str = ""

    def build(self, build: BuildContext) -> Sequence[Part]:
        """Nothing is made."""
        del build
        return (self,)

    def run(self, flow: "FlowContext", x: FlowValue | None) -> FlowValue:
        """Calls the function."""
        return self.function(flow, needed(x, self.name or self.function.__name__))


def store_residual(flow: "FlowContext", x: FlowValue) -> FlowValue:
    """Keeps the value until ``add_residual``."""
    if flow.state.residual is not None:
        raise OpError(f"store_residual at {flow.where}: one is stored already: .add_residual() comes first")
    flow.state.residual = x
    return x


def add_residual(flow: "FlowContext", x: FlowValue, scale: float) -> FlowValue:
    """What was stored, plus the value times ``scale``."""
    before, flow.state.residual = flow.state.residual, None
    if before is None:
        raise OpError(f"add_residual at {flow.where}: none is stored: .store_residual() comes first")
    return flow.emit("add", before, x if scale == 1.0 else flow.emit("mul", x, scale), spec=before.spec)


@dataclass(frozen=True, slots=True)
class ResultName:
    """Names the model's result."""

    result: str
    name: str = ""

    def build(self, build: BuildContext) -> Sequence[Part]:
        """Tells it to the model."""
        build.registry.result = self.result
        return ()
