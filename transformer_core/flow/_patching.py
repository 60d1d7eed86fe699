"""Search and replacement of stages of recipes by name."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from lang_core import ConfigError, Module, Repeated, near_names
from transformer_core.flow._build import Stage
from transformer_core.flow._context import Block
from transformer_core.flow._stages import CustomStage, GroupStage, WhenStage

Change = Callable[[Stage], Stage | None]


def addresses(stages: Sequence[Stage], above: str = "") -> Iterator[str]:
    """Yields the full name of each stage that has one, outer stages before inner ones."""
    for stage in stages:
        here = _joined(above, stage.name)
        if stage.name:
            yield here
        for inner in _inside(stage):
            yield from addresses(inner, here)


def calls_others(stages: Sequence[Stage], root: Module) -> bool:
    """Returns whether functions or blocks run that are not of this package; they may load parameters and add inputs.

    Args:
        stages: stages of a recipe.
        root: module to which their modules are attached.
    """
    # Where no class of blocks declares, no layer need be made to see what it is.
    return any(_has_custom(stage) for stage in stages) or (_may_declare(Block) and _has_blocks(root))


def _may_declare(kind: type[Block]) -> bool:
    return any(below.may_declare() or _may_declare(below) for below in kind.__subclasses__())


def _has_custom(stage: Stage) -> bool:
    return isinstance(stage, CustomStage) or any(_has_custom(inner) for part in _inside(stage) for inner in part)


def _has_blocks(module: Module) -> bool:
    if isinstance(module, Block) and module.may_declare():
        return True
    values = [value for name, value in vars(module).items() if not name.startswith("_")]
    parts = [value if isinstance(value, list | tuple | Repeated) else (value,) for value in values]
    return any(_has_blocks(child) for part in parts for child in part if isinstance(child, Module))


def changed(stages: Sequence[Stage], name: str, change: Change, flow: str) -> tuple[Stage, ...]:
    """Returns the stages with the one of a name changed.

    Args:
        stages: stages of a recipe.
        name: a full name, or the end of exactly one.
        change: function that makes the new stage; None removes it.
        flow: name of the recipe, for messages.

    Raises:
        ConfigError: the name does not exist, or several names end in it.
    """
    known = list(dict.fromkeys(addresses(stages)))
    matches = [name] if name in known else [full for full in known if full.endswith(f".{name}")]
    if not matches:
        there = ", ".join(known) or "none"
        near = near_names(name, [*known, *(full.rpartition(".")[2] for full in known)])
        raise ConfigError(f"flow {flow!r}: stage {name!r} not found{near}; available: {there}")
    if len(matches) > 1:
        raise ConfigError(f"flow {flow!r}: {name!r} may be {' or '.join(matches)}: give the full name")
    return _changed(stages, matches[0], change, "")


def _changed(stages: Sequence[Stage], wanted: str, change: Change, above: str) -> tuple[Stage, ...]:
    result: list[Stage] = []
    for stage in stages:
        here = _joined(above, stage.name)
        if stage.name and here == wanted:
            new = change(stage)
            result.extend(() if new is None else (new,))
        else:
            result.append(_with_inside(stage, lambda inner, here=here: _changed(inner, wanted, change, here)))
    return tuple(result)


def _inside(stage: Stage) -> tuple[Sequence[Stage], ...]:
    if isinstance(stage, GroupStage):
        return (stage.stages,)
    if isinstance(stage, WhenStage):
        return stage.then, stage.otherwise
    layer = getattr(stage, "layer", None)
    return () if layer is None else (layer,)


def _with_inside(stage: Any, change: Callable[[Sequence[Stage]], tuple[Stage, ...]]) -> Stage:
    if isinstance(stage, GroupStage):
        return replace(stage, stages=change(stage.stages))
    if isinstance(stage, WhenStage):
        return replace(stage, then=change(stage.then), otherwise=change(stage.otherwise))
    layer = getattr(stage, "layer", None)
    return stage if layer is None else replace(stage, layer=change(layer))


def _joined(above: str, name: str) -> str:
    return f"{above}.{name}" if above and name else above or name
