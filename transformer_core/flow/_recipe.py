"""Recipes: models that are not built yet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lang_core import ConfigError, DType, Module, OpError, TensorSpec, WeightSource, as_dtype
from transformer_core._norm import RMSNorm
from transformer_core._rope_config import RopeConfig
from transformer_core.flow._build import Maker, Stage
from transformer_core.flow._common_stages import (
    Action,
    Head,
    Input,
    LastToken,
    PositionEmbed,
    ResultName,
    RowsAt,
    TokenEmbed,
    add_residual,
    store_residual,
)
from transformer_core.flow._context import FlowContext
from transformer_core.flow._model import FlowModel
from transformer_core.flow._patching import addresses, changed
from transformer_core.flow._profile import CompileProfile
from transformer_core.flow._sharing import RopeTables
from transformer_core.flow._stages import (
    Condition,
    Custom,
    CustomStage,
    GroupStage,
    ModuleStage,
    Operands,
    RepeatStage,
    WhenStage,
)
from transformer_core.flow._value import Dim, FlowValue


@dataclass(frozen=True, slots=True)
class ModelFlow:
    """A model as a chain of stages. Each method gives a new recipe; no recipe ever changes.

    Names are places in the module tree: a stage ``model.norm`` with an ``RMSNorm`` has the parameter
    ``model.norm.weight``. Functions that make modules take a ``BuildContext``, which knows dtype, D and the layer's
    index.

    Attributes:
        name: for messages.
        stages: in order.
    """

    name: str
    stages: tuple[Stage, ...] = ()

    def build(self, profile: CompileProfile, weights: WeightSource | None = None) -> FlowModel:
        """Makes the modules for a profile.

        Args:
            profile: what the model is for.
            weights: what ``load_param`` reads, lazily; specs are looked at while tracing.

        Raises:
            ConfigError: the stages contradict one another or the profile.
        """
        return FlowModel(self.name, self.stages, profile, weights)

    def names(self) -> tuple[str, ...]:
        """The full names of the stages that have one: what ``patch`` takes."""
        return tuple(dict.fromkeys(addresses(self.stages)))

    # Composition.

    def then(self, *parts: "ModelFlow | Stage") -> "ModelFlow":
        """The stages of other recipes, or stages, after this recipe's."""
        added: list[Stage] = []
        for part in parts:
            added.extend(part.stages if isinstance(part, ModelFlow) else (part,))
        return replace(self, stages=(*self.stages, *added))

    def include(self, name: str, recipe: "ModelFlow") -> "ModelFlow":
        """Another recipe below a name."""
        return self.then(GroupStage(name, recipe.stages))

    def when(self, condition: Condition, then: "ModelFlow", otherwise: "ModelFlow | None" = None) -> "ModelFlow":
        """Another recipe's stages where the condition holds: a bool, or a function of the profile."""
        return self.then(WhenStage(condition, then.stages, () if otherwise is None else otherwise.stages))

    def patch(
        self,
        name: str,
        replacement: "Maker | ModelFlow | None" = None,
        *,
        wrap: Callable[[Maker], Maker] | None = None,
    ) -> "ModelFlow":
        """This recipe with one stage replaced or wrapped, at the same place.

        Args:
            name: the stage's full name, or the end of it where that is unique. A stage of a repeated recipe is named
                without the layer's index.
            replacement: makes another module (of each layer, for ``repeat_layers``), or is a recipe in its place.
            wrap: takes what makes the module, and gives what makes the new one.

        Raises:
            ConfigError: no stage or several have the name, or it has no module.
        """
        if (replacement is None) == (wrap is None):
            raise ConfigError(f"patch {name!r}: expected either a replacement or wrap=")

        def change(stage: Stage) -> Stage:
            old: Any = stage
            if isinstance(replacement, ModelFlow):
                if isinstance(stage, RepeatStage):
                    return replace(stage, make=None, layer=replacement.stages)
                return GroupStage(stage.name, replacement.stages)
            if not isinstance(stage, ModuleStage | RepeatStage) or (wrap is not None and old.make is None):
                raise ConfigError(f"patch {name!r}: the stage is no single module: patch it with a recipe")
            make = replacement if wrap is None else wrap(old.make)
            return replace(stage, make=make, **({"layer": None} if isinstance(stage, RepeatStage) else {}))

        return replace(self, stages=changed(self.stages, name, change, self.name))

    def without(self, name: str) -> "ModelFlow":
        """This recipe without one stage. Raises ConfigError as ``patch``."""
        return replace(self, stages=changed(self.stages, name, lambda stage: None, self.name))

    # Inputs and results.

    def input(self, name: str, shape: Sequence[Dim] | TensorSpec, dtype: DType | str | None = None) -> "ModelFlow":
        """An argument of the model becomes the present value.

        Args:
            name: of the argument.
            shape: sizes, and letters: of the profile ``B``, ``T`` and ``S``. Or a spec.
            dtype: the profile's where None.
        """
        if isinstance(shape, TensorSpec):
            shape, dtype = shape.shape, shape.dtype
        try:
            return self.then(Input(name, tuple(shape), None if dtype is None else as_dtype(dtype)))
        except OpError as error:
            raise ConfigError(f"input {name!r}: {error}") from None

    def side_output(
        self, name: str, shape: Sequence[Dim] | None = None, dtype: DType | str | None = None
    ) -> "ModelFlow":
        """The present value becomes a result, too; of this shape and dtype, where they are given."""

        def output(flow: FlowContext, x: FlowValue) -> FlowValue:
            return flow.side_output(name, x, shape, dtype)

        return self.then(Action(output))

    def result(self, name: str) -> "ModelFlow":
        """Names the model's result; ``logits`` where there is a head, else ``output``."""
        return self.then(ResultName(name))

    # Stages with modules.

    def stage(self, name: str, make: Maker, *, streams: Sequence[str] = (), reads: Sequence[str] = ()) -> "ModelFlow":
        """A module: a ``Block``, or any of ``transformer_core``'s.

        Args:
            name: its place.
            make: makes it.
            streams: what it takes and gives, in place of the present value; that is then the first of them.
            reads: what it takes besides: names of streams, kept values or inputs.
        """
        return self.then(ModuleStage(name, make, Operands(tuple(streams), tuple(reads))))

    def repeat_layers(
        self,
        count: int,
        layer: "Maker | ModelFlow",
        *,
        name: str = "layers",
        streams: Sequence[str] = (),
        reads: Sequence[str] = (),
    ) -> "ModelFlow":
        """Layers, each in a block of its own: a unit of lowering. They are made when they run, and not kept.

        Args:
            count: L.
            layer: makes layer ``build.index``, or is the recipe of every layer.
            name: of the list.
            streams: as for ``stage``.
            reads: as for ``stage``.
        """
        operands = Operands(tuple(streams), tuple(reads))
        if isinstance(layer, ModelFlow):
            if operands != Operands():
                raise ConfigError(f"stage {name!r}: a recipe takes no streams=: it loads and stores them itself")
            return self.then(RepeatStage(name, count, None, layer.stages, operands))
        return self.then(RepeatStage(name, count, layer, None, operands))

    def token_embed(self, vocabulary: int, size: int, *, scale: float = 1.0, name: str = "embed_tokens") -> "ModelFlow":
        """Token ids [B, T] to [B, T, D], times ``scale``; tells the other stages V and D."""
        embedded = self.then(TokenEmbed(name, vocabulary, size))
        return embedded if scale == 1.0 else embedded.then(Action(lambda flow, x: flow.emit("mul", x, scale)))

    def position_embed(self, count: int, *, name: str = "embed_positions") -> "ModelFlow":
        """Adds a learned embedding per position; after ``rope_tables``, which knows the positions."""
        return self.then(PositionEmbed(name, count))

    def rope_tables(
        self, rope: RopeConfig, windows: Sequence[int | None] = (None,), local_rope: RopeConfig | None = None
    ) -> "ModelFlow":
        """What all layers share: RoPE's tables, a mask per window, where caches are written. Once, before them."""
        return self.then(RopeTables(rope, tuple(windows), local_rope))

    def final_norm(self, make: Maker | None = None, *, eps: float = 1e-6, name: str = "norm") -> "ModelFlow":
        """A norm over D, an RMSNorm where ``make`` is None; its result is tagged ``<name>.output``."""

        def rms_norm(build: Any) -> Module:
            return RMSNorm(build.size, eps=eps, dtype=build.dtype)

        return self.then(ModuleStage(name, make or rms_norm, tag=f"{name}.output"))

    def lm_head(
        self,
        *,
        tied: bool = False,
        bias: bool = False,
        scale: float = 1.0,
        softcap: float | None = None,
        vocabulary: int | None = None,
        name: str = "lm_head",
    ) -> "ModelFlow":
        """Logits f32 [.., V]; ``tied`` to the embedding, or of a projection of its own."""
        return self.then(Head(name, tied, bias, scale, softcap, vocabulary))

    # Rows and operands.

    def last_token(self) -> "ModelFlow":
        """[B, T, D] to [B, D] where the profile wants the last rows only."""
        return self.then(LastToken())

    def rows_at(self, rows: str) -> "ModelFlow":
        """[B, T, D] to [B, D]: row ``rows[b]`` of sequence b, an input i32 [B]."""
        return self.then(RowsAt(rows))

    def custom(self, name: str, function: Custom) -> "ModelFlow":
        """A function of the ``FlowContext`` and the present value, below a name."""
        return self.then(CustomStage(name, function))

    def store_stream(self, name: str) -> "ModelFlow":
        """Puts the present value into a stream."""

        def store(flow: FlowContext, x: FlowValue) -> FlowValue:
            flow.store_stream(name, x)
            return x

        return self.then(Action(store))

    def load_stream(self, name: str) -> "ModelFlow":
        """The value of a stream becomes the present one."""
        return self.then(Action(lambda flow, x: flow.stream(name)))

    def keep(self, name: str) -> "ModelFlow":
        """Keeps the present value under a name, for ``reads=`` and ``flow.named``."""
        return self.then(Action(lambda flow, x: flow.keep(name, x)))

    def store_residual(self) -> "ModelFlow":
        """Keeps the present value for ``add_residual``."""
        return self.then(Action(store_residual))

    def add_residual(self, scale: float = 1.0) -> "ModelFlow":
        """What ``store_residual`` kept, plus the present value times ``scale``."""
        return self.then(Action(lambda flow, x: add_residual(flow, x, scale)))


def sequence(*parts: ModelFlow | Stage) -> ModelFlow:
    """A recipe of the stages of several."""
    return ModelFlow("sequence").then(*parts)


def when(condition: Condition, then: ModelFlow, otherwise: ModelFlow | None = None) -> ModelFlow:
    """A recipe that is there where a condition holds; see ``ModelFlow.when``."""
    return ModelFlow("when").when(condition, then, otherwise)
