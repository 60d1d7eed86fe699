"""Stages that hold modules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lang_core import ConfigError, Module, OpError, Repeated, tag_name
from transformer_core.flow._adapters import adding
from transformer_core.flow._build import BuildContext, Group, Maker, Stage, StageRun, chained
from transformer_core.flow._context import FlowContext
from transformer_core.flow._profile import CompileProfile
from transformer_core.flow._value import FlowValue, checked

Custom = Callable[[FlowContext, FlowValue], FlowValue]
Condition = bool | Callable[[CompileProfile], bool]


def needed(x: FlowValue | None, stage: str) -> FlowValue:
    """Returns the present value.

    Raises:
        OpError: there is none yet.
    """
    if x is None:
        raise OpError(f"stage {stage!r} has no value to take: begin the recipe with .input(..)")
    return x


@dataclass(frozen=True, slots=True)
class Operands:
    """Values that a module takes: the present one or streams, then values read by name.

    Attributes:
        streams: names of the streams that the module takes and gives; the present value if empty.
        reads: names of further values.
        rows: names of values of which layer i of repeated ones takes row i, behind all others.
    """

    streams: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()

    def run(
        self, flow: FlowContext, module: Module, x: FlowValue | None, stage: str, rows: Sequence[FlowValue] = ()
    ) -> tuple[FlowValue, ...]:
        """Runs the module, stores its results in the streams that it took, and returns them."""
        values = [flow.stream(name) for name in self.streams] or [needed(x, stage)]
        results = flow.run_several(module, [*values, *map(flow.read, self.reads), *rows], len(values))
        for name, result in zip(self.streams, results, strict=bool(self.streams)):
            flow.store_stream(name, result)
        return results

    def rows_of(self, flow: FlowContext, index: int) -> list[FlowValue]:
        """Returns the rows that layer ``index`` takes."""
        return [_row(flow, flow.read(name), index) for name in self.rows]


def _row(flow: FlowContext, x: FlowValue, index: int) -> FlowValue:
    """Returns row ``index`` of x [L, ..]: [..]."""
    ops = flow.ctx.ops
    return FlowValue.of(ops.reshape(ops.slice_axis(x.tensor, 0, index, index + 1), x.shape[1:]))


@dataclass(frozen=True, slots=True)
class ModuleStage:
    """A module at a place; its first result is tagged if ``tag`` is given."""

    name: str
    make: Maker
    operands: Operands = Operands()
    tag: str = ""

    def build(self, build: BuildContext) -> StageRun:
        """Makes the module and attaches it."""
        module = build.attach(self.name, made(self.name, self.make, build))

        def run(flow: FlowContext, x: FlowValue | None) -> FlowValue:
            first = self.operands.run(flow, module, x, self.name)[0]
            if not self.tag:
                return first
            return FlowValue(flow.ctx.tag(first.tensor, self.tag), first.spec)

        return run


def made(name: str, make: Maker | None, build: BuildContext) -> Module:
    """Calls a stage's function and returns the new module.

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

    def build(self, build: BuildContext) -> StageRun:
        """Makes a module of the stages."""
        group = build.group_at(self.name)
        group.build_stages(self.stages, replace(build, group=group))

        def run(flow: FlowContext, x: FlowValue | None) -> FlowValue | None:
            with flow.scope(group.path):
                return group.run_stages(flow, x)

        return run


@dataclass(frozen=True, slots=True)
class RepeatStage:
    """A module per layer, each in a block of its own.

    Attributes:
        name: name of the list of layers.
        count: L.
        make: function that makes a layer; None if ``layer`` is given.
        layer: stages of a layer; None if ``make`` is given.
        operands: values that a layer takes.
    """

    name: str
    count: int
    make: Maker | None = None
    layer: tuple[Stage, ...] | None = None
    operands: Operands = Operands()

    def build(self, build: BuildContext) -> StageRun:
        """Attaches the layers; each is made when it is asked for."""
        if type(self.count) is not int or self.count < 0:
            raise ConfigError(f"stage {self.name!r}: expected a number of layers, 0 or more; found {self.count!r}")
        layers = build.attach(self.name, Repeated(self.count, lambda index: self._layer(replace(build, index=index))))

        def run(flow: FlowContext, x: FlowValue | None) -> FlowValue | None:
            for index, layer in enumerate(layers):
                x = self._run_layer(flow, layer, index, x)
            return x

        return run

    def _layer(self, build: BuildContext) -> Module:
        if self.layer is None:
            return made(self.name, self.make, build)
        group = Group()
        group.build_stages(self.layer, replace(build, group=group))
        return group

    def _run_layer(self, flow: FlowContext, layer: Module, index: int, x: FlowValue | None) -> FlowValue:
        rows = self.operands.rows_of(flow, index)  # outside of its block, which is then that of the other layers
        deltas = {} if flow.state.adapters is None else flow.state.adapters.deltas(layer)
        with flow.ctx.block(layer.path), flow.layer(layer.path), adding(layer, deltas):
            before = [flow.stream(name).spec for name in self.operands.streams] or [needed(x, self.name).spec]
            results = self.operands.run(flow, layer, x, self.name, rows)
        for wanted, result in zip(before, results, strict=True):
            if result.spec != wanted:
                raise OpError(
                    f"{layer.path} ({type(layer).__name__}): a repeated layer gives what it takes, {wanted!r}; "
                    f"found {result.spec!r}"
                )
        return results[0]


@dataclass(frozen=True, slots=True)
class CustomStage:
    """A function of the flow and the present value, without parameters of its own."""

    name: str
    function: Custom

    def build(self, build: BuildContext) -> StageRun:
        """Returns a call of the function below its name, without making a module."""
        del build
        return self._run

    def _run(self, flow: FlowContext, x: FlowValue | None) -> FlowValue:
        before = flow.ctx.module_path
        flow.ctx.module_path = tag_name(before, self.name)
        try:
            return checked(self.function(flow, needed(x, self.name)), f"{flow.where} (custom)")
        finally:
            flow.ctx.module_path = before


@dataclass(frozen=True, slots=True)
class WhenStage:
    """Stages that are chosen by the profile."""

    condition: Condition
    then: tuple[Stage, ...]
    otherwise: tuple[Stage, ...] = ()
    name: str = ""

    def build(self, build: BuildContext) -> StageRun:
        """Builds one side or the other.

        Raises:
            ConfigError: the condition is neither True nor False.
        """
        holds = self.condition(build.profile) if callable(self.condition) else self.condition
        if type(holds) is not bool:
            raise ConfigError(f"when: expected a condition that is True or False; found {holds!r}")
        return chained([stage.build(build) for stage in (self.then if holds else self.otherwise)])
