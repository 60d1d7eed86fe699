"""Cuts: which dimension of a parameter an axis of a mesh may divide, and into what."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from lang_core import GraphError, Module, Parameter, Repeated, checked_choices


@checked_choices
@dataclass(frozen=True, slots=True)
class Cut:
    """Dimension of a parameter that devices along an axis divide among them.

    Attributes:
        parameter: the parameter.
        axis: axis of the mesh.
        dimension: number of the dimension.
        units: number of equal parts of the dimension that stay whole, such as heads.
        unit: name of such a part, for messages.
        shared: whether several devices may hold the same part if there are fewer parts than devices.
        optional: whether the parameter is replicated, with a note, if the axis does not divide the parts.
    """

    parameter: Parameter
    axis: str
    dimension: int
    units: int
    unit: str
    shared: bool = False
    optional: bool = False


ModuleT = TypeVar("ModuleT", bound=Module)
Rule = Callable[[Any], Iterator[Cut]]
"""Rule of a kind of layer: gives the cuts of its parameters."""

_SEQUENCES: Final = (list, tuple, Repeated)
_RULES: Final[dict[type[Module], Rule]] = {}


def cuts_of(kind: type[ModuleT]) -> Callable[[Callable[[ModuleT], Iterator[Cut]]], Rule]:
    """Registers the rule of a class of modules, and of its subclasses that have none of their own.

    The rule yields the cuts of the parameters of a module and of those below it; it goes before theirs. A parameter
    without a rule is replicated.

    Raises:
        GraphError: the class has a rule already.

    >>> from transformer_core import Linear
    >>> from transformer_core.sharding import columns, cuts_of
    >>> class Doubled(Linear):
    ...     pass
    >>> @cuts_of(Doubled)
    ... def _doubled(module):
    ...     yield from columns(module, module.weight.spec.shape[0] // 2, "pairs")
    """

    def register(rule: Callable[[ModuleT], Iterator[Cut]]) -> Rule:
        if kind in _RULES:
            raise GraphError(f"{kind.__name__} has a rule of its cuts already")
        _RULES[kind] = rule
        return rule

    return register


def cuts_in(model: Module) -> dict[str, list[Cut]]:
    """Returns the cuts of a model's parameters by path: of each parameter those of the outermost rule that has some."""
    cuts: dict[str, list[Cut]] = {}

    def add(module: Module) -> None:
        rule = next((_RULES[kind] for kind in type(module).__mro__ if kind in _RULES), None)
        own: dict[str, list[Cut]] = {}
        for cut in () if rule is None else rule(module):
            own.setdefault(cut.parameter.path, []).append(cut)
        for path, given in own.items():
            cuts.setdefault(path, given)

    _visit(model, add)
    return cuts


def _visit(module: Module, act: Callable[[Module], None]) -> None:
    """Calls a function on a module, then on those below it; of repeated ones on each, made once for it."""
    act(module)
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        for child in value if isinstance(value, _SEQUENCES) else (value,):
            if isinstance(child, Module):
                _visit(child, act)
