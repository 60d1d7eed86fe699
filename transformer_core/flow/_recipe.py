"""Recipes of models."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lang_core import ConfigError, DType, Module, TensorSpec, WeightSource, checked_choices, near_keywords
from transformer_core.flow._build import Maker, RopeSettings, Stage
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
from transformer_core.flow._value import Dim, FlowValue, declared
from transformer_core.layers._embedding import sinusoids
from transformer_core.layers._norm import RMSNorm
from transformer_core.layers._rope_config import RopeConfig


@near_keywords
@dataclass(frozen=True, slots=True)
class ModelFlow:
    """Immutable recipe of a model: a chain of stages. Each method returns a new recipe.

    Names are places in the module tree: a stage ``model.norm`` with an ``RMSNorm`` has the parameter
    ``model.norm.weight``. Functions that make modules take a ``BuildContext``, which knows dtype, D and the layer's
    index.

    Attributes:
        name: name of the recipe, for messages.
        stages: stages in order.
    """

    name: str
    stages: tuple[Stage, ...] = ()

    def build(
        self, profile: CompileProfile, weights: WeightSource | None = None, *, root: Module | None = None
    ) -> FlowModel:
        """Makes the modules for a profile.

        Args:
            profile: sizes and kind of the entry point.
            weights: source of ``load_param``; read lazily, only its specs while tracing.
            root: module to which the modules are attached; the returned one if None.

        Raises:
            ConfigError: the stages contradict one another or the profile.
        """
        return FlowModel(self.name, self.stages, profile, weights, root)

    def names(self) -> tuple[str, ...]:
        """Returns the full names of the stages, for ``patch``."""
        return tuple(dict.fromkeys(addresses(self.stages)))

    # Composition.

    def then(self, *parts: "ModelFlow | Stage") -> "ModelFlow":
        """Appends stages, or the stages of other recipes."""
        added: list[Stage] = []
        for part in parts:
            added.extend(part.stages if isinstance(part, ModelFlow) else (part,))
        return replace(self, stages=(*self.stages, *added))

    def include(self, name: str, recipe: "ModelFlow") -> "ModelFlow":
        """Appends another recipe below a name; it may have a residual of its own."""
        return self.then(GroupStage(name, recipe.stages))

    @checked_choices
    def when(self, condition: Condition, then: "ModelFlow", otherwise: "ModelFlow | None" = None) -> "ModelFlow":
        """Appends another recipe's stages if the condition holds: a bool, or a function of the profile."""
        return self.then(WhenStage(condition, then.stages, () if otherwise is None else otherwise.stages))

    def patch(
        self,
        name: str,
        replacement: "Maker | ModelFlow | None" = None,
        *,
        wrap: Callable[[Maker], Maker] | None = None,
    ) -> "ModelFlow":
        """Replaces or wraps one stage at its place.

        Args:
            name: full name of the stage, or its unique end; without the layer's index in a repeated recipe.
            replacement: function that makes another module (of each layer, for ``repeat_layers``), or a recipe.
            wrap: function from the maker of the module to the maker of the new one.

        Raises:
            ConfigError: zero or several stages have the name, or it lacks a module.
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
        """Removes one stage. Raises ConfigError as ``patch``."""
        return replace(self, stages=changed(self.stages, name, lambda stage: None, self.name))

    # Inputs and results.

    def input(self, name: str, shape: Sequence[Dim] | TensorSpec, dtype: DType | str | None = None) -> "ModelFlow":
        """Makes an argument of the model the present value.

        Args:
            name: name of the argument.
            shape: sizes and letters, of which the profile has ``B``, ``T`` and ``S``; or a spec.
            dtype: dtype of the argument; the profile's if None.
        """
        return self.then(Input(name, *declared(name, shape, dtype)))

    def side_output(
        self, name: str, shape: Sequence[Dim] | None = None, dtype: DType | str | None = None
    ) -> "ModelFlow":
        """Makes the present value a further result; its shape and dtype are checked if given."""

        def output(flow: FlowContext, x: FlowValue) -> FlowValue:
            return flow.side_output(name, x, shape, dtype)

        return self.then(Action(output))

    def result(self, name: str) -> "ModelFlow":
        """Names the model's result; ``logits`` with a head and ``output`` without by default."""
        return self.then(ResultName(name))

    # Stages with modules.

    def stage(self, name: str, make: Maker, *, streams: Sequence[str] = (), reads: Sequence[str] = ()) -> "ModelFlow":
        """Appends a module: a ``Block``, or any of ``transformer_core``'s.

        Args:
            name: place in the module tree.
            make: function that makes the module.
            streams: names of the streams that it takes and gives; the first becomes the present value.
            reads: names of further operands: streams, kept values or inputs.
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
        rows: Sequence[str] = (),
    ) -> "ModelFlow":
        """Appends layers, each in a block of its own, a unit of lowering; they are made when they run, and not kept.

        Args:
            count: L.
            layer: function that makes layer ``build.index``, or the recipe of every layer.
            name: name of the list of layers.
            streams: as for ``stage``.
            reads: as for ``stage``.
            rows: names of values [L, ..] of which layer i takes row i, behind its other operands.

        Raises:
            ConfigError: a stage of the layers' recipe has streams.
        """
        operands = Operands(tuple(streams), tuple(reads), tuple(rows))
        if isinstance(layer, ModelFlow):
            if operands != Operands():
                raise ConfigError(f"stage {name!r}: a recipe takes no streams=: it loads and stores them itself")
            return self.then(RepeatStage(name, count, None, layer.stages, operands))
        return self.then(RepeatStage(name, count, layer, None, operands))

    def token_embed(self, vocabulary: int, size: int, *, scale: float = 1.0, name: str = "embed_tokens") -> "ModelFlow":
        """Embeds token ids [B, T] as [B, T, D], times ``scale``; tells the other stages V and D."""
        embedded = self.then(TokenEmbed(name, vocabulary, size))
        return embedded if scale == 1.0 else embedded.then(Action(lambda flow, x: flow.emit("mul", x, scale)))

    def position_embed(self, count: int, *, name: str = "embed_positions") -> "ModelFlow":
        """Adds a learned embedding per position; put it after ``rope_tables``, which knows the positions."""
        return self.then(PositionEmbed(name, count))

    @checked_choices
    def sinusoidal_positions(self, first: int = 0, *, paired: bool = False) -> "ModelFlow":
        """Adds sines and cosines of the positions, of which the first has the number ``first`` (XGLM).

        Args:
            first: number of the first position.
            paired: whether frequencies end before 1 / 10000, as those of pairs of dims (CTRL).
        """

        def add(flow: FlowContext, x: FlowValue) -> FlowValue:
            return flow.emit(
                "add", x, FlowValue.of(sinusoids(flow.ctx, flow.step.positions, first, x.spec, paired=paired))
            )

        return self.then(Action(add))

    @checked_choices
    def rope_tables(
        self,
        rope: RopeConfig,
        windows: Sequence[int | None] = (None,),
        local_rope: RopeConfig | None = None,
        *,
        chunked: bool = False,
    ) -> "ModelFlow":
        """Computes the inputs that all layers share: RoPE's tables, a mask per window or chunk, places in caches."""
        return self.then(RopeTables(RopeSettings(rope, tuple(dict.fromkeys(windows)), local_rope, chunked)))

    def final_norm(self, make: Maker | None = None, *, eps: float = 1e-6, name: str = "norm") -> "ModelFlow":
        """Appends a norm over D, an RMSNorm if ``make`` is None; its result is tagged ``<name>.output``."""

        def rms_norm(build: Any) -> Module:
            return RMSNorm(build.size, eps=eps, dtype=build.dtype)

        return self.then(ModuleStage(name, make or rms_norm, tag=f"{name}.output"))

    @checked_choices
    def lm_head(
        self,
        *,
        tied: bool = False,
        bias: bool = False,
        scale: float = 1.0,
        softcap: float | None = None,
        vocabulary: int | None = None,
        size: int | None = None,
        name: str = "lm_head",
    ) -> "ModelFlow":
        """Computes logits f32 by the embedding (``tied``) or a projection of its own, of ``size`` inputs or D."""
        return self.then(Head(name, tied, bias, scale, softcap, vocabulary, size))

    # Rows and streams.

    def last_token(self) -> "ModelFlow":
        """Takes [B, D] of [B, T, D] if the profile wants the last rows only."""
        return self.then(LastToken())

    def rows_at(self, rows: str) -> "ModelFlow":
        """Takes [B, D] of [B, T, D]: row ``rows[b]`` of sequence b, an input i32 [B]."""
        return self.then(RowsAt(rows))

    def custom(self, name: str, function: Custom) -> "ModelFlow":
        """Calls a function of the ``FlowContext`` and the present value, below a name."""
        return self.then(CustomStage(name, function))

    def store_stream(self, name: str) -> "ModelFlow":
        """Stores the present value in a stream."""

        def store(flow: FlowContext, x: FlowValue) -> FlowValue:
            flow.store_stream(name, x)
            return x

        return self.then(Action(store))

    def load_stream(self, name: str) -> "ModelFlow":
        """Makes the value of a stream the present one."""
        return self.then(Action(lambda flow, x: flow.stream(name)))

    def keep(self, name: str) -> "ModelFlow":
        """Keeps the present value under a name, for ``reads=`` and ``flow.named``; in a layer, for this layer."""
        return self.then(Action(lambda flow, x: flow.keep(name, x)))

    def store_residual(self) -> "ModelFlow":
        """Keeps the present value for ``add_residual``."""
        return self.then(Action(store_residual))

    def add_residual(self, scale: float = 1.0) -> "ModelFlow":
        """Adds the present value times ``scale`` to the value that ``store_residual`` kept."""
        return self.then(Action(lambda flow, x: add_residual(flow, x, scale)))


@near_keywords
def sequence(*parts: ModelFlow | Stage) -> ModelFlow:
    """Returns a recipe of the stages of several."""
    return ModelFlow("sequence").then(*parts)


@checked_choices
def when(condition: Condition, then: ModelFlow, otherwise: ModelFlow | None = None) -> ModelFlow:
    """Returns a recipe with stages chosen by a condition; see ``ModelFlow.when``."""
    return ModelFlow("when").when(condition, then, otherwise)
