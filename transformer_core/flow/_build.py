"""Building of stages: their protocol, and the context that they get."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from lang_core import ConfigError, DType, Module, Parameter, Repeated, near_keywords
from transformer_core.flow._context import Block, FlowContext
from transformer_core.flow._profile import CompileProfile
from transformer_core.flow._value import FlowValue, InputSpec
from transformer_core.layers._rope_config import RopeConfig

M = TypeVar("M", bound=Module | Repeated)

StageRun = Callable[[FlowContext, FlowValue | None], FlowValue | None]
"""A stage that was built: takes the present value, None before the first input, and returns the next."""


class Stage(Protocol):
    """A stage of a recipe: immutable, and built any number of times."""

    @property
    def name(self) -> str:
        """Its place in the module tree, dotted; empty if it has none."""
        ...

    def build(self, build: "BuildContext") -> StageRun:
        """Makes and attaches its modules, and returns the function that runs them."""
        ...


def chained(runs: Sequence[StageRun]) -> StageRun:
    """Returns a function that runs built stages one after the other."""

    def run(flow: FlowContext, x: FlowValue | None) -> FlowValue | None:
        for stage_run in runs:
            x = stage_run(flow, x)
        return x

    return run


def unchanged(flow: FlowContext, x: FlowValue | None) -> FlowValue | None:
    """Returns the present value; the run of a stage that only tells the model something."""
    del flow
    return x


class Group(Block, may_declare=False):
    """Module with the modules of stages as attributes; it runs these stages."""

    def __init__(self) -> None:
        self._run: StageRun | None = None

    def run(self, flow: FlowContext, *values: FlowValue) -> FlowValue | tuple[FlowValue, ...]:
        """Returns the value that the last stage hands on."""
        result = self.run_stages(flow, values[0] if values else None)
        return () if result is None else result

    def run_stages(self, flow: FlowContext, x: FlowValue | None) -> FlowValue | None:
        """Runs the stages; without any the value stays as it is."""
        return x if self._run is None else self._run(flow, x)

    def build_stages(self, stages: Sequence[Stage], build: "BuildContext") -> None:
        """Builds stages; ``build`` attaches their modules to this one."""
        self._run = chained([stage.build(build) for stage in stages])

    @property
    def is_built(self) -> bool:
        """True if the group has stages."""
        return self._run is not None


@dataclass(frozen=True, slots=True)
class RopeSettings:
    """RoPE of a model, and the windows of its layers, each once; ``local_rope`` is that of layers with a second one.

    ``chunked`` says that windows do not slide; see ``causal_mask``.
    """

    rope: RopeConfig
    windows: tuple[int | None, ...]
    local_rope: RopeConfig | None
    chunked: bool = False

    @property
    def threshold(self) -> int | None:
        """Length of a sequence up to which frequencies do not depend on it; None if none ever does."""
        ropes = (self.rope, self.local_rope)
        known = [rope.scaling.threshold for rope in ropes if rope is not None]
        return min((length for length in known if length is not None), default=None)


@dataclass(slots=True)
class BuildRegistry:
    """Facts that the stages of a model tell one another while it is built.

    Attributes:
        inputs: the model's inputs by name, in order.
        rope: settings of ``rope_tables``.
        embedding: weight [V, D] of ``token_embed``.
        tied_heads: names of heads that are the embedding.
        result: name of the result.
        takes_last: whether a stage asks for the last row.
        has_head: whether a stage computes logits.
    """

    inputs: dict[str, InputSpec] = field(default_factory=dict)
    rope: RopeSettings | None = None
    embedding: Parameter | None = None
    tied_heads: list[str] = field(default_factory=list)
    result: str = "output"
    takes_last: bool = False
    has_head: bool = False

    def tied(self) -> dict[str, str]:
        """Returns the names under which checkpoints may store the embedding once more, with its path."""
        return {} if self.embedding is None else {f"{name}.weight": self.embedding.path for name in self.tied_heads}


@near_keywords
@dataclass(frozen=True, slots=True)
class BuildContext:
    """Facts that functions that make modules may ask for.

    Attributes:
        profile: profile that the model is built for.
        group: module to which the stages' modules are attached.
        registry: facts from other stages.
        index: number of the layer in ``repeat_layers``; 0 elsewhere.
    """

    profile: CompileProfile
    group: Module
    registry: BuildRegistry
    index: int = 0

    @property
    def dtype(self) -> DType:
        """The profile's dtype: that of parameters."""
        return self.profile.dtype

    @property
    def size(self) -> int:
        """D of ``token_embed``.

        Raises:
            ConfigError: a stage that embeds tokens is missing.
        """
        return self.embedding.spec.shape[1]

    @property
    def embedding(self) -> Parameter:
        """The weight [V, D] of ``token_embed``.

        Raises:
            ConfigError: a stage that embeds tokens is missing.
        """
        if self.registry.embedding is None:
            raise ConfigError("the model's size is not known: put .token_embed(..) before this stage, or give the size")
        return self.registry.embedding

    def attach(self, name: str, module: M) -> M:
        """Attaches a module at a dotted name below the group.

        Raises:
            ConfigError: the name is taken, or is one that modules use themselves.
        """
        group, (*above, last) = self.group, name.split(".")
        for step in above:
            inner = vars(group).get(step)
            if inner is None:
                inner = self._put(group, step, Group(), name)
            if not isinstance(inner, Group):
                raise ConfigError(
                    f"stage {name!r}: {inner.path!r} is a {type(inner).__name__}, which takes no further stages"
                )
            group = inner
        return self._put(group, last, module, name)

    def group_at(self, name: str) -> Group:
        """Returns the group at a dotted name, a new one if there is none.

        Raises:
            ConfigError: the group has stages already.
        """
        group: Any = self.group
        for step in name.split("."):
            group = vars(group).get(step)
            if not isinstance(group, Group):
                return self.attach(name, Group())
        if group.is_built:
            raise ConfigError(f"stage {name!r}: the name is taken by another stage: give each its own")
        return group

    def _put(self, group: Module, step: str, module: M, name: str) -> M:
        if not step or step.startswith("_") or hasattr(type(group), step):
            raise ConfigError(f"stage {name!r}: {step!r} cannot be part of a path: choose another name")
        if step in vars(group):
            raise ConfigError(f"stage {name!r}: the name is taken by another stage: give each its own")
        setattr(group, step, module)
        return module


Maker = Callable[[BuildContext], Module]
"""Makes a stage's module: ``lambda build: RMSNorm(build.size, dtype=build.dtype)``."""
