"""What stages get when a model is built."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lang_core import ConfigError, DType, Module, Parameter, Repeated
from transformer_core._rope_config import RopeConfig
from transformer_core.flow._block import Block
from transformer_core.flow._profile import CompileProfile
from transformer_core.flow._value import Dim, FlowValue

if TYPE_CHECKING:
    from transformer_core.flow._context import FlowContext

M = TypeVar("M", bound=Module | Repeated)


class Part(Protocol):
    """A stage that was built."""

    def run(self, flow: "FlowContext", x: FlowValue | None) -> FlowValue | None:
        """Takes the present value, which there is none of before the first input, and gives the next."""
        ...


class Stage(Protocol):
    """A stage of a recipe: immutable, and built any number of times."""

    @property
    def name(self) -> str:
        """Its place in the module tree, dotted; empty where it has none."""
        ...

    def build(self, build: "BuildContext") -> Sequence[Part]:
        """Makes and attaches its modules."""
        ...


class Group(Block):
    """A module that runs parts, one after the other; its attributes are the stages' modules."""

    def __init__(self) -> None:
        self._parts: tuple[Part, ...] = ()

    def run(self, flow: "FlowContext", *values: FlowValue) -> FlowValue | tuple[FlowValue, ...]:
        """The value that the last part hands on."""
        result = run_parts(flow, self._parts, values[0] if values else None)
        return () if result is None else result


def run_parts(flow: "FlowContext", parts: Sequence[Part], x: FlowValue | None) -> FlowValue | None:
    """What the last part hands on."""
    for part in parts:
        x = part.run(flow, x)
    return x


@dataclass(frozen=True, slots=True)
class InputSpec:
    """An input of a model: its name, its shape in sizes and letters, its dtype."""

    name: str
    dims: tuple[Dim, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class SharedStep:
    """What ``rope_tables`` was told."""

    rope: RopeConfig
    windows: tuple[int | None, ...]
    local_rope: RopeConfig | None


@dataclass(slots=True)
class Registry:
    """What the stages of a model tell one another while it is built.

    Attributes:
        inputs: in order.
        step: of ``rope_tables``.
        embedding: the weight [V, D] of ``token_embed``.
        tied_heads: the names of heads that are the embedding.
        result: the name of the result.
        takes_last: whether a stage asks for the last row.
    """

    inputs: dict[str, InputSpec] = field(default_factory=dict)
    step: SharedStep | None = None
    embedding: Parameter | None = None
    tied_heads: list[str] = field(default_factory=list)
    result: str = "output"
    takes_last: bool = False

    def tied(self) -> dict[str, str]:
        """Names under which checkpoints may store the embedding once more, and its path."""
        return {} if self.embedding is None else {f"{name}.weight": self.embedding.path for name in self.tied_heads}


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What makers of modules may ask.

    Attributes:
        profile: what the model is built for.
        group: the module to which those of the stages are attached.
        registry: what other stages said.
        index: of the layer, in ``repeat_layers``; 0 elsewhere.
    """

    profile: CompileProfile
    group: Module
    registry: Registry
    index: int = 0

    @property
    def dtype(self) -> DType:
        """The profile's: of parameters."""
        return self.profile.dtype

    @property
    def size(self) -> int:
        """D, as ``token_embed`` has it.

        Raises:
            ConfigError: there is none.
        """
        return self.embedding.spec.shape[1]

    @property
    def embedding(self) -> Parameter:
        """The weight [V, D] of ``token_embed``.

        Raises:
            ConfigError: there is none.
        """
        if self.registry.embedding is None:
            raise ConfigError("the model's size is not known: put .token_embed(..) before this stage, or give the size")
        return self.registry.embedding

    def attach(self, name: str, module: M) -> M:
        """Puts a module at a dotted name below the group.

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
        """The group at a dotted name, new where there is none."""
        found: Any = self.group
        for step in name.split("."):
            found = vars(found).get(step)
            if not isinstance(found, Group):
                return self.attach(name, Group())
        if found._parts:
            raise ConfigError(f"stage {name!r}: the name is taken by another stage: give each its own")
        return found

    def _put(self, group: Module, step: str, module: M, name: str) -> M:
        if not step or step.startswith("_") or hasattr(type(group), step):
            raise ConfigError(f"stage {name!r}: {step!r} cannot be part of a path: choose another name")
        if step in vars(group):
            raise ConfigError(f"stage {name!r}: the name is taken by another stage: give each its own")
        setattr(group, step, module)
        return module


Maker = Callable[[BuildContext], Module]
"""Makes a stage's module: ``lambda build: RMSNorm(build.size, dtype=build.dtype)``."""
