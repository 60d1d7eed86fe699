"""Holds every public callable of every package to its fixed sets of values.

An argument that is an enumeration, a ``typing.Literal`` or a bool is converted or refused, never taken as it comes:
``mode is RopeMode.SPLIT_HALF`` is False of the string ``"split_half"``, and ``"no"`` is true.
"""

import ast
import enum
import importlib
import inspect
import pkgutil
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from lang_core import ChoiceError, EagerExecutionContext, TapelineError
from tests.layering._layers import LAYERS
from tests.layering._measures import public_names

_PACKAGES: Final = tuple(LAYERS)
_COLLECTIONS: Final = (tuple, list, set, frozenset, Mapping, Sequence)
_WRONG: Final = "no such choice"

# Callables that check inside, behind arguments that they need first: calls without the argument in question.
_X: Final = np.ones((2, 3), np.float32)
_OPS: Final = EagerExecutionContext().ops
SAMPLES: Final[Mapping[str, Callable[..., object]]] = {
    f"lang_core.Ops.{name}": lambda name=name, **given: getattr(_OPS, name)(_X, axis=0, **given)
    for name in ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "mean", "sort")
} | {
    f"lang_core.Ops.{name}": lambda name=name, **given: getattr(_OPS, name)(**given)
    for name in ("packed_linear", "packed_expert_linear")
}

# Arguments that are not checked, each with the reason.
EXEMPT: Final[Mapping[str, str]] = {
    "detail": "of tags: says which globs select a tag; asked at each tag of each eager call, and no layout",
}
# Rooms whose names are called by this package's own passes and rules alone.
INTERNAL: Final = ("compile_hlo.directions.", "compile_hlo.emit.", "compile_hlo.streaming.")


def rooms() -> Iterator[types.ModuleType]:
    """Yields every package of this tree and every room in it."""
    for package in _PACKAGES:
        top = importlib.import_module(package)
        yield top
        for info in pkgutil.walk_packages(top.__path__, package + "."):
            if info.ispkg:
                yield importlib.import_module(info.name)


def is_choice(annotation: Any) -> bool:
    """Returns whether a part of an annotation is a fixed set of values; a bool beside numbers is a number."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal or annotation is bool:
        return True
    if inspect.isclass(annotation) and issubclass(annotation, enum.Enum):
        return True
    if origin in (typing.Union, types.UnionType):
        numeric = int in parts or float in parts
        return any(is_choice(part) for part in parts if not (numeric and part is bool))
    return inspect.isclass(origin) and issubclass(origin, _COLLECTIONS) and any(map(is_choice, parts))


def wrong_value(annotation: Any) -> Any:
    """Returns a value that the annotation does not allow, in a collection where it is one."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return wrong_value(next(part for part in parts if is_choice(part)))
    if inspect.isclass(origin) and is_choice(annotation) and origin is not typing.Literal:
        if issubclass(origin, Mapping):
            return {"a": _WRONG} if is_choice(parts[1]) else {_WRONG: "a"}
        return (_WRONG,)
    return _WRONG


def hints(function: Any) -> dict[str, Any]:
    """Returns the annotations of a callable; those that name what is not imported at run time are left out."""
    try:
        values = typing.get_type_hints(function)
    except (NameError, TypeError):
        values = {n: a for n, a in function.__annotations__.items() if not isinstance(a, str)}
    values.pop("return", None)
    return values


def callables() -> Iterator[tuple[str, Any, Any]]:
    """Yields each public function, constructor and method: its name, what is annotated, and what to call."""
    seen: set[Any] = set()
    for room in rooms():
        for public in public_names(ast.parse(Path(room.__file__ or "").read_text(encoding="utf-8"))):
            thing = getattr(room, public)
            if not str(getattr(thing, "__module__", "")).startswith(_PACKAGES):
                continue
            name = f"{room.__name__}.{public}"
            if inspect.isclass(thing):
                yield from _of_class(name, thing, seen)
            elif inspect.isfunction(thing) and thing not in seen:
                seen.add(thing)
                yield name, thing, thing


def _of_class(name: str, kind: type, seen: set[Any]) -> Iterator[tuple[str, Any, Any]]:
    if issubclass(kind, enum.Enum | BaseException) or getattr(kind, "_is_protocol", False):
        return
    constructor = kind.__new__ if issubclass(kind, tuple) else kind.__init__
    if constructor not in seen and not inspect.isabstract(kind):
        seen.add(constructor)
        yield name, constructor, kind
    for attribute in dir(kind):
        function = inspect.getattr_static(kind, attribute)
        bound = isinstance(function, classmethod | staticmethod)
        function = function.__func__ if bound else function
        if attribute.startswith("_") or not inspect.isfunction(function) or function in seen:
            continue
        if not function.__module__.startswith(_PACKAGES):
            continue
        seen.add(function)
        yield f"{name}.{attribute}", function, getattr(kind, attribute) if bound else partial(function, None)


def cases() -> list[Any]:
    """Lists every public argument with a fixed set of values."""
    parameters = []
    for name, function, call in callables():
        variadic = {p.name for p in inspect.signature(function).parameters.values() if p.kind is p.VAR_POSITIONAL}
        for argument, annotation in hints(function).items():
            if is_choice(annotation) and argument not in EXEMPT and not name.startswith(INTERNAL):
                parameters.append(
                    pytest.param(name, call, argument, annotation, argument in variadic, id=f"{name}.{argument}")
                )
    return parameters


CASES: Final = cases()


@pytest.mark.parametrize(("name", "call", "argument", "annotation", "variadic"), CASES)
def test_every_public_callable_refuses_what_is_no_choice(
    name: str, call: Any, argument: str, annotation: Any, variadic: bool
) -> None:
    message = refusal(name, call, argument, wrong_value(annotation), variadic)
    assert argument in message
    assert repr(_WRONG) in message


def refusal(name: str, call: Any, argument: str, value: Any, variadic: bool) -> str:
    """Returns the message with which a callable refuses a value; fails where it does not."""
    try:
        if name in SAMPLES:
            SAMPLES[name](**{argument: value})
        else:
            call(value) if variadic else call(**{argument: value})
    except ChoiceError as error:
        return str(error)
    except (AttributeError, TypeError, TapelineError) as error:
        problem = f"raised {type(error).__name__} ({error}) first"
    else:
        problem = "took it"
    pytest.fail(
        f"{name}({argument}={value!r}) {problem}: put lang_core's @checked_choices on the function, or on the class "
        f"(above @dataclass); where the check is inside (choice, flag), add a sample call to SAMPLES of this test"
    )


def test_the_walk_sees_every_package() -> None:
    names = [parameter.id or "" for parameter in CASES]
    assert {name.partition(".")[0] for name in names} >= set(_PACKAGES) - {"run_jax"}
    assert len(names) > 150
    assert "transformer_core.RopeConfig.mode" in names
    assert "transformer_core.flow.FlowContext.load_param.transpose" in names


def test_what_is_exempt_is_there() -> None:
    everything = {f"{name}.{argument}" for name, function, _ in callables() for argument in hints(function)}
    for exempt in EXEMPT:
        assert any(name.endswith(f".{exempt}") for name in everything), exempt
    for room in INTERNAL:
        assert importlib.import_module(room.rstrip(".")), room
