"""Finding and changing stages of recipes by name."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from lang_core import ConfigError, near_names
from transformer_core.flow._build import Stage
from transformer_core.flow._stages import GroupStage, WhenStage

Change = Callable[[Stage], Stage | None]


def addresses(stages: Sequence[Stage], above: str = "") -> Iterator[str]:
    """The full name of each stage that has one, inner ones after the one that holds them."""
    for stage in stages:
        here = _joined(above, stage.name)
        if stage.name:
            yield here
        for inner in _inside(stage):
            yield from addresses(inner, here)


def changed(stages: Sequence[Stage], name: str, change: Change, flow: str) -> tuple[Stage, ...]:
    """The stages, with what has a name changed.

    Args:
        stages: of a recipe.
        name: a full name, or the end of just one.
        change: makes the new stage; None takes it away.
        flow: the recipe's name, for messages.

    Raises:
        ConfigError: no stage has the name, or several end in it.
    """
    known = list(dict.fromkeys(addresses(stages)))
    found = [name] if name in known else [each for each in known if each.endswith(f".{name}")]
    if not found:
        there = ", ".join(known) or "none"
        near = near_names(name, [*known, *(each.rpartition(".")[2] for each in known)])
        raise ConfigError(f"flow {flow!r}: there is no stage {name!r}{near}; its stages are {there}")
    if len(found) > 1:
        raise ConfigError(f"flow {flow!r}: {name!r} may be {' or '.join(found)}: give the full name")
    return _changed(stages, found[0], change, "")


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
