"""Types of the arguments of ``ctx.ops``' methods, checked by their annotations before anything is computed."""

import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from lang_core._dtypes import DType, as_dtype
from lang_core._errors import OpError
from lang_core._keywords import check_keywords
from lang_core._operands import operand_advice
from lang_core._packing import Encoding
from lang_core._parameter import Named
from lang_core._tensor import Tensor

T = TypeVar("T")
Check = Callable[[Any], Any]
"""Function that returns an argument, converted where its type is another one of the same meaning."""

_REFUSED: Final = (bool, np.bool_)
# Values that a context checks itself, because it knows which tensors are its own.
_CARRIED: Final = ("init", "operands")
# Checks that accept None, with the check of every other value.
_OPTIONAL: Final[dict[Check, Check]] = {}


class _WrongTypeError(Exception):
    """An argument has an unexpected type; ``args`` has the expected type."""


def checks_arguments(kind: type[T], names: Collection[str] | None = None) -> type[T]:
    """Wraps the public methods of a class that have attributes: an argument of a wrong type is an OpError.

    Integers of NumPy become Python's, and sequences of integers tuples; a bool is not an integer. Calls of the methods
    on their own object are not checked again: they use ``self._plain``, which has the methods without wrappers.

    Args:
        kind: class to change.
        names: names of the methods; all if None.

    Returns:
        The class itself.
    """
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_") and (names is None or name in names):
            wrapped = _wrapped(name, method)
            if wrapped is not method:
                setattr(kind, name, wrapped)
    return kind


def _wrapped(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    annotations = {
        parameter.name: parameter.annotation for parameter in list(inspect.signature(method).parameters.values())[1:]
    }
    by_name = {
        parameter: _sequence_of(_operand, None) if parameter in _CARRIED else _check_of(annotation)
        for parameter, annotation in annotations.items()
    }
    attributes = {parameter: check for parameter, check in by_name.items() if check not in _OPERANDS}
    if not any(attributes.values()) and not {_tensor, _tensor_or_none} & set(by_name.values()):
        return method  # elementwise ops take operands only, which the contexts check
    # Attributes are checked before each call; operands, which are hot and mostly right, once a call has failed.
    needed = {parameter: check for parameter, check in attributes.items() if check is not None}
    names = tuple(by_name)
    placed = tuple([(i, *_fast_check(check)) for i, check in enumerate(map(needed.get, names)) if check is not None])

    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        count = len(args)
        place, value = 0, None
        try:
            for place, kind, kind_too, check in placed:
                if place >= count:
                    break
                value = args[place]
                actual = type(value)
                if actual is not kind and actual is not kind_too:
                    after = check(value)
                    if after is not value:
                        args = (*args[:place], after, *args[place + 1 :])
        except _WrongTypeError as error:
            raise _refusal(name, names[place], error, value) from None
        if kwargs:
            for parameter, value in kwargs.items():
                check = needed.get(parameter)
                if check is not None:
                    try:
                        kwargs[parameter] = check(value)
                    except _WrongTypeError as error:
                        raise _refusal(name, parameter, error, value) from None
        try:
            return method(self._plain, *args, **kwargs) if kwargs else method(self._plain, *args)
        except (AttributeError, TypeError, IndexError, ValueError):
            check_keywords(method, f"ctx.ops.{name}", kwargs)
            _check_operands(name, by_name, dict(zip(names, args, strict=False)) | kwargs)
            raise

    return checked


def _fast_check(check: Check) -> tuple[type | None, type | None, Check]:
    """Returns two types that a check accepts as they are, and a check of values of other types."""
    optional = check in _OPTIONAL
    check = _OPTIONAL.get(check, check)
    return _ACCEPTED.get(check), types.NoneType if optional else None, check


def _check_operands(name: str, checks: Mapping[str, Check | None], arguments: Mapping[str, Any]) -> None:
    """Checks the operands of a call that has failed.

    Raises:
        OpError: one is of a wrong type, which explains the failure.
    """
    for parameter, value in arguments.items():
        check = checks.get(parameter)
        if check is not None:
            try:
                check(value)
            except _WrongTypeError as error:
                raise _refusal(name, parameter, error, value) from None


def _refusal(name: str, parameter: str, error: _WrongTypeError, value: Any) -> OpError:
    values = value if isinstance(value, list | tuple) else (value,)
    advice = next((operand_advice(part) for part in values if isinstance(part, Named)), "")
    return OpError(f"{name}: {parameter}: expected {error.args[0]}; found {advice or _text(value)}")


def _text(value: Any) -> str:
    if isinstance(value, Tensor):
        return repr(value.spec)
    text = repr(value)
    return f"{text if len(text) <= 80 else f'{text[:77]}...'} of type {type(value).__name__}"


def _check_of(annotation: Any) -> Check | None:
    """Returns the check of a parameter; None for one that is checked elsewhere, or may be anything."""
    arms = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
    optional = types.NoneType in arms
    arms = tuple(arm for arm in arms if arm is not types.NoneType)
    check = _check_of_arms(arms)
    return _or_none(check) if optional and check is not None else check


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def _check_of_arms(arms: tuple[Any, ...]) -> Check | None:
    if Tensor in arms:
        return _tensor if len(arms) == 1 else _operand
    if DType in arms:
        return _dtype
    origins = [typing.get_origin(arm) or arm for arm in arms]
    if origins == [bool, int, float]:
        return _number
    known: dict[Any, Check] = {int: _integer, float: _real, str: _string, Encoding: _encoding}
    if len(arms) == 1 and origins[0] in known:
        return known[origins[0]]
    if origins[0] is int and len(arms) == 2:  # an axis, or several
        return _integer_or_integers
    if origins[0] is Callable:
        return _callable
    if origins[0] in (Sequence, tuple):
        held = [arm for arm in typing.get_args(arms[0]) if arm is not Ellipsis]
        inner = _check_of(held[0])
        count = len(held) if origins[0] is tuple else None
        return None if inner is None else _sequence_of(inner, count)
    return None


def _or_none(check: Check) -> Check:
    if check is _tensor or check is _operand:
        return _tensor_or_none if check is _tensor else _operand_or_none

    def check_or_none(value: Any) -> Any:
        return None if value is None else check(value)

    _OPTIONAL[check_or_none] = check
    return check_or_none


def _tensor(value: Any) -> Any:
    if isinstance(value, Tensor) or (hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "ndim")):
        return value
    raise _WrongTypeError("a tensor")


def _operand(value: Any) -> Any:
    if isinstance(value, Tensor | bool | int | float) or (hasattr(value, "shape") and hasattr(value, "dtype")):
        return value
    raise _WrongTypeError("a tensor or a number")


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    floating = isinstance(value, Tensor) and not value.dtype.is_integer
    if not isinstance(value, _REFUSED) and not floating and hasattr(value, "__index__"):
        try:
            return operator.index(value)  # of a recorded value this is a TraceEscapeError
        except (TypeError, ValueError):
            pass
    raise _WrongTypeError("an integer")


def _integers(value: Any) -> tuple[int, ...]:
    if type(value) is tuple:
        for part in value:
            if type(part) is not int:
                break
        else:
            return value
    is_row = isinstance(value, np.ndarray) and value.ndim == 1
    if (isinstance(value, Sequence) and not isinstance(value, str | bytes)) or is_row:
        try:
            return tuple([_integer(part) for part in value])
        except _WrongTypeError:
            pass
    raise _WrongTypeError("a sequence of integers")


def _integer_or_integers(value: Any) -> Any:
    if type(value) is int:
        return value
    if type(value) is tuple:  # a tuple is known before its class is asked whether it is a Sequence, which takes longer
        for part in value:
            if type(part) is not int:
                break
        else:
            return value
    try:
        is_row = isinstance(value, Sequence) or (isinstance(value, np.ndarray) and value.ndim > 0)
        return _integers(value) if is_row else _integer(value)
    except _WrongTypeError:
        raise _WrongTypeError("an integer, a sequence of integers, or None") from None


def _real(value: Any) -> float:
    if type(value) is float or type(value) is int:
        return value
    if isinstance(value, float | int | np.floating | np.integer) and not isinstance(value, _REFUSED):
        return float(value)
    raise _WrongTypeError("a number")


def _number(value: Any) -> Any:
    if isinstance(value, str | bytes | None) or not (isinstance(value, bool | int | float) or hasattr(value, "dtype")):
        raise _WrongTypeError("a number")
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise _WrongTypeError("a string")
    return value


def _encoding(value: Any) -> Encoding:
    if not isinstance(value, Encoding):
        raise _WrongTypeError("an Encoding, such as ENCODINGS['q8_0']")
    return value


def _dtype(value: Any) -> Any:
    if type(value) is DType:
        return value
    if not isinstance(value, DType | str | np.dtype):
        raise _WrongTypeError("a dtype, such as 'f32'")
    as_dtype(value)  # raises
    return value


def _callable(value: Any) -> Any:
    if not callable(value):
        raise _WrongTypeError("a function")
    return value


def _tensor_or_none(value: Any) -> Any:
    return value if value is None else _tensor(value)


def _operand_or_none(value: Any) -> Any:
    return value if value is None else _operand(value)


_OPERANDS: Final = (_tensor, _operand, _tensor_or_none, _operand_or_none)
# Types of values that a check returns unchanged.
_ACCEPTED: Final[dict[Check, type]] = {
    _integer: int,
    _integer_or_integers: int,
    _real: float,
    _string: str,
    _dtype: DType,
    _encoding: Encoding,
    _callable: types.FunctionType,
}


def _sequence_of(check: Check, count: int | None) -> Check:
    if check is _integer and count is None:
        return _integers
    length = "" if count is None else f" of {count}"

    def sequence(value: Any) -> Any:
        is_sequence = type(value) is tuple or (isinstance(value, Sequence) and not isinstance(value, str | bytes))
        if not is_sequence or (count is not None and len(value) != count):
            raise _WrongTypeError(f"a sequence{length}")
        try:
            for part in value:
                if check(part) is not part:
                    return tuple([check(part) for part in value])
        except _WrongTypeError as error:
            raise _WrongTypeError(f"a sequence{length}, each {error.args[0]}") from None
        return value

    return _pair_of_axes(sequence) if check is _integers and count == 2 else sequence


def _pair_of_axes(check: Check) -> Check:
    """Returns a check that makes further calls only for values other than two tuples of integers (each product)."""

    def pair(value: Any) -> Any:
        if type(value) is tuple and len(value) == 2:
            one, other = value
            if type(one) is tuple and type(other) is tuple:
                for axis in one + other:
                    if type(axis) is not int:
                        break
                else:
                    return value
        return check(value)

    return pair
