"""Stages that hold modules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lang_core import ConfigError, Module, OpError, Repeated
from transformer_core.flow._build import BuildContext, Group, Maker, Part, Stage, run_parts
from transformer_core.flow._profile import CompileProfile
from transformer_core.flow._value import FlowValue, checked

if TYPE_CHECKING:
    from transformer_core.flow._context import FlowContext

Custom = Callable[["FlowContext", FlowValue], FlowValue]
Condition = bool | Callable[[CompileProfile], bool]


def needed(x: FlowValue | None, stage: str) -> FlowValue:
    """The present value.

    Raises:
        OpError: there is none.
    """
    if x is None:
        raise OpError(f"stage {stage!r} has no value to take: begin the recipe with .input(..)")
    return x


@dataclass(frozen=True, slots=True)
class Lanes:
    """Which values a module takes: the present one, or streams; and then what it reads besides, by name."""

    streams: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()

    def run(self, flow: "FlowContext", module: Module, x: FlowValue | None, stage: str) -> tuple[FlowValue, ...]:
        """Runs the module, and puts what it makes where it took it from; what it makes."""
        values = [flow.stream(name) for name in self.streams] or [needed(x, stage)]
        results = flow.run_several(module, [*values, *map(flow.read, self.reads)], len(values))
        for name, result in zip(self.streams, results, strict=bool(self.streams)):
            flow.store_stream(name, result)
        return results


@dataclass(frozen=True, slots=True)
class ModuleStage:
    """A module at a place."""

    name: str
    make: Maker
    lanes: Lanes = Lanes()
    tag: str = ""

    def build(self, build: BuildContext) -> Sequence[Part]:
        """Makes the module and attaches it."""
        return (_ModulePart(build.attach(self.name, made(self.name, self.make, build)), self),)


@dataclass(frozen=True, slots=True)
class _ModulePart:
    module: Module
    stage: ModuleStage

    def run(self, flow: "FlowContext", x: FlowValue | None) -> FlowValue:
        first = self.stage.lanes.run(flow, self.module, x, self.stage.name)[0]
        if not self.stage.tag:
            return first
        return FlowValue(flow.ctx.tag(first.tensor, self.stage.tag), first.spec)


def made(name: str, make: Maker | None, build: BuildContext) -> Module:
    """A module, held to be one that is new.

    Raises:
        ConfigError: ``make`` is a module itself, or makes something else.
    """
    if make is None or isinstance(make, Module) or not callable(make):
        raise ConfigError(
            f"stage {name!r}: expected a function that makes a module, such as lambda build: RMSNorm(build.size); "
            f"found a {type(make).__name__}: a module belongs to one model, and a recipe makes many"
        )
    module: Any = make(build)
    if not isinstance(module, Module):
        raise ConfigError(f"stage {name!r}: expected a module; its function made a {type(module).__name__}")
    return module


@dataclass(frozen=True, slots=True)
class GroupStage:
    """Stages below a name."""

    name: str
    stages: tuple[Stage, ...]

    def build(self, build: BuildContext) -> Sequence[Part]:
        """Makes a module of the stages."""
        return (_GroupPart(_built_group(build.group_at(self.name), self.stages, build)),)


def build_stages(module: Module, stages: Sequence[Stage], build: BuildContext) -> tuple[Part, ...]:
    """Builds stages, and attaches what they make to a module."""
    inner = replace(build, group=module)
    return tuple(part for stage in stages for part in stage.build(inner))


def _built_group(group: Group, stages: Sequence[Stage], build: BuildContext) -> Group:
    group._parts = build_stages(group, stages, build)
    return group


@dataclass(frozen=True, slots=True)
class _GroupPart:
    group: Group

    def run(self, flow: "FlowContext", x: FlowValue | None) -> FlowValue | None:
        before, flow.ctx.module_path = flow.ctx.module_path, self.group.path
        try:
            return run_parts(flow, self.group._parts, x)
        finally:
            flow.ctx.module_path = before


@dataclass(frozen=True, slots=True)
class RepeatStage:
    """A module per layer, each in a block of its own.

    Attributes:
        name: of the list of layers.
        count: L.
        make: makes a layer; None where ``layer`` is a recipe's.
        layer: the stages of a layer; None where ``make`` makes it.
        lanes: what a layer takes.
    """

    name: str
    count: int
    make: Maker | None = None
    layer: tuple[Stage, ...] | None = None
    lanes: Lanes = Lanes()

    def build(self, build: BuildContext) -> Sequence[Part]:
        """Attaches the layers, which are made when they are asked for."""
        if type(self.count) is not int or self.count < 0:
            raise ConfigError(f"stage {self.name!r}: expected a number of layers, 0 or more; found {self.count!r}")

        def layer(index: int) -> Module:
            inner = replace(build, index=index)
            if self.layer is not None:
                return _built_group(Group(), self.layer, inner)
            return made(self.name, self.make, inner)

        return (_RepeatPart(build.attach(self.name, Repeated(self.count, layer)), self),)


@dataclass(frozen=True, slots=True)
class _RepeatPart:
    layers: Repeated
    stage: RepeatStage

    def run(self, flow: "FlowContext", x: FlowValue | None) -> FlowValue | None:
        outside = dict(flow.state.loaded)
        for layer in self.layers:
            flow.state.loaded = dict(outside)
            with flow.ctx.block(layer.path):
                lanes = self.stage.lanes
                before = [flow.stream(name).spec for name in lanes.streams] or [needed(x, self.stage.name).spec]
                results = lanes.run(flow, layer, x, self.stage.name)
            for wanted, result in zip(before, results, strict=True):
                if result.spec != wanted:
                    raise OpError(
                        f"{layer.path} ({type(layer).__name__}): a repeated layer gives what it takes, {wanted!r}; "
                        f"found {result.spec!r}"
                    )
            x = results[0]
        flow.state.loaded = outside
        return x


@dataclass(frozen=True, slots=True)
class CustomStage:
    """A function of the flow and the present value, without parameters of its own."""

    name: str
    function: Custom

    def build(self, build: BuildContext) -> Sequence[Part]:
        """Nothing is made."""
        del build
        return (self,)

    def run(self, flow: "FlowContext", x: FlowValue | None) -> FlowValue:
        """Calls the function, below its name."""
        before = flow.ctx.module_path
        flow.ctx.module_path = f"{before}.{self.name}" if before else self.name
        try:
            return checked(self.function(flow, needed(x, self.name)), f"{flow.where} (custom)")
        finally:
            flow.ctx.module_path = before


@dataclass(frozen=True, slots=True)
class WhenStage:
    """Stages of which the profile decides."""

    condition: Condition
    then: tuple[Stage, ...]
    otherwise: tuple[Stage, ...] = ()
    name: str = ""

    def build(self, build: BuildContext) -> Sequence[Part]:
        """Builds one side or the other.

        Raises:
            ConfigError: the condition says neither True nor False.
        """
        holds = self.condition(build.profile) if callable(self.condition) else self.condition
        if type(holds) is not bool:
            raise ConfigError(f"when: expected a condition that is True or False; found {holds!r}")
        return [part for stage in (self.then if holds else self.otherwise) for part in stage.build(build)]
