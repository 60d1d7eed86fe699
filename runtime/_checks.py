"""Checks of the values that a caller passes to an entry point."""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from compile_hlo.directions import LoweredArgument, Signature
from lang_core import DeviceError, InputError, Tensor
from runtime._handle import DeviceHandle

_NUMBERS: Final = (int, float, bool)
Value = Any
"""Array of NumPy, number, or handle of the engine."""


class ArgumentChecks:
    """Refuses values that an entry point cannot take, before anything is copied or donated."""

    def __init__(self, program: object, signature: Signature, handle: type[DeviceHandle[Any]]) -> None:
        """Prepares the checks.

        Args:
            program: owner of the handles that are taken.
            signature: signature of the entry point.
            handle: class of the engine's handles.
        """
        self._program: Final = program
        self._handle: Final = handle
        self._name: Final = signature.name
        self._arguments: Final = signature.arguments
        arguments = tuple(enumerate(signature.arguments))
        self._all: Final = tuple(range(len(arguments)))
        self._donated: Final = tuple((index, argument.spec) for index, argument in arguments if argument.donated)
        self._others: Final = tuple(index for index, argument in arguments if not argument.donated)

    def __call__(self, values: Sequence[Value]) -> None:
        """Checks a call's values; the program is open and its lock held.

        Raises:
            DeviceError: the count, or a value's kind, shape or dtype is wrong; a tensor is dead, or is donated and
                passed twice.
            InputError: a number is outside of the allowed range.
        """
        arguments = self._arguments
        if len(values) != len(arguments):
            names = ", ".join(argument.name for argument in arguments)
            raise DeviceError(f"{self._name!r} takes {len(arguments)} arguments ({names}), found {len(values)}")
        donated: set[int] = set()
        passed: set[int] = set()
        for index in self._others if self._takes_all_donated(values) else self._all:
            argument, value = arguments[index], values[index]
            self.check(argument, value)
            if argument.kind == "tensor" and isinstance(value, self._handle):
                key = value.key
                if key in donated or (argument.donated and key in passed):
                    raise DeviceError(
                        f"{self._name!r}: the tensor for {argument.name!r} is passed twice and one of the arguments is "
                        f"donated; pass a copy (session.upload(tensor.numpy()))"
                    )
                passed.add(key)
                if argument.donated:
                    donated.add(key)

    def check(self, argument: LoweredArgument, value: Value) -> None:
        """Checks one value; the program is open and its lock held.

        Raises:
            DeviceError: its kind, shape or dtype is wrong, or it is dead.
            InputError: a number is outside of the allowed range.
        """
        if argument.kind == "scalar":
            self._check_scalar(argument, value)
            self._check_range(argument, value)
        elif isinstance(value, self._handle):
            self._check_handle(argument, value)
        elif not isinstance(value, np.ndarray | np.generic):
            raise self._mismatch(argument, f"a {type(value).__name__}")
        elif value.shape != argument.spec.shape or value.dtype != argument.spec.dtype.numpy:
            raise self._mismatch(argument, f"an array of shape {value.shape} and dtype {value.dtype}")
        else:
            self._check_range(argument, value)

    def _takes_all_donated(self, values: Sequence[Value]) -> bool:
        """Returns whether every donated argument is a live handle of its spec, passed once: the usual case."""
        program, keys = self._program, set[int]()
        for index, spec in self._donated:
            value = values[index]
            if not isinstance(value, self._handle) or not value.usable_as(spec, program):
                return False
            keys.add(value.key)
        others = (values[index] for index in self._others)
        twice = any(isinstance(value, self._handle) and value.key in keys for value in others)
        return len(keys) == len(self._donated) and not twice

    def _check_range(self, argument: LoweredArgument, value: Value) -> None:
        numbers = np.asarray(value)
        if argument.bounds is None or not numbers.size:
            return
        least, greatest = argument.bounds
        if numbers.min() < least or numbers.max() > greatest:
            wrong = numbers.min() if numbers.min() < least else numbers.max()
            raise InputError(
                f"{self._name!r}: argument {argument.name!r}: expected {least} to {greatest}; found {wrong}: the "
                f"bundle was exported for no more"
            )

    def _check_handle(self, argument: LoweredArgument, value: DeviceHandle[Any]) -> None:
        value.check(f"pass for {argument.name!r} of {self._name!r}")
        if value.program is not self._program:
            raise self._mismatch(argument, f"a tensor of another session ({value.spec}); pass its .numpy()")
        if value.spec != argument.spec:
            raise self._mismatch(argument, f"a tensor {value.spec}")

    def _check_scalar(self, argument: LoweredArgument, value: Value) -> None:
        dtype = argument.spec.dtype
        if isinstance(value, np.generic):
            value = value.item()
        if dtype.is_floating:
            fits = isinstance(value, int | float) and not isinstance(value, bool)
        elif dtype.is_integer:
            limits = np.iinfo(dtype.numpy)
            fits = isinstance(value, int) and not isinstance(value, bool) and limits.min <= value <= limits.max
        else:
            fits = isinstance(value, bool)
        if not fits:
            raise self._mismatch(argument, f"{value!r}" if isinstance(value, int | float) else type(value).__name__)

    def _mismatch(self, argument: LoweredArgument, actual: str) -> DeviceError:
        expected = f"a number of dtype {argument.spec.dtype}" if argument.kind == "scalar" else f"{argument.spec}"
        return DeviceError(f"{self._name!r}: argument {argument.name!r} is {expected}, found {actual}")


def admitted(arguments: Sequence[LoweredArgument], values: Sequence[Value]) -> tuple[Value, ...]:
    """Returns the values of a call, each as ``admitted_value`` has it; all if the count is wrong, to be refused."""
    if len(values) != len(arguments):
        return tuple(values)
    return tuple([admitted_value(argument, value) for argument, value in zip(arguments, values, strict=True)])


def admitted_value(argument: LoweredArgument, value: Value) -> Value:
    """Returns a value as sessions pass it on; one that they refuse is returned unchanged.

    Tensors of a context, and arrays of other libraries, become arrays of NumPy; arrays of rank 0 become numbers for a
    scalar; Python numbers become arrays for a tensor of one element, by the op table's rule for numbers.

    Raises:
        TraceEscapeError: a tensor is recorded and lacks data.
    """
    kind = type(value)
    if kind is not np.ndarray and kind not in _NUMBERS and not isinstance(value, DeviceHandle):
        if isinstance(value, Tensor):
            value = value.numpy()
        elif not isinstance(value, np.ndarray | np.generic) and hasattr(value, "__array__"):
            value = np.asarray(value)
    if argument.kind == "scalar":
        return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value
    return number_as_tensor(argument, value) if type(value) in _NUMBERS else value


def number_as_tensor(argument: LoweredArgument, value: Value) -> Value:
    """Returns an array for a Python number that stands for a tensor of one element; other values unchanged.

    As in the op table, an int stands for a number of every kind, a float for a floating one, and a bool for a bool. A
    number that the dtype cannot hold is returned unchanged, to be refused.
    """
    spec = argument.spec
    if type(value) not in _NUMBERS or argument.kind != "tensor" or spec.size != 1:
        return value
    dtype = spec.dtype
    if type(value) is bool:
        fits = not dtype.is_integer and not dtype.is_floating
    elif dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        fits = type(value) is int and limits.min <= value <= limits.max
    else:
        fits = dtype.is_floating
    if not fits:
        return value
    with np.errstate(over="ignore"):
        try:
            array = np.full(spec.shape, value, dtype.numpy)
        except OverflowError:  # an int beyond every floating dtype
            return value
    overflows = dtype.is_floating and math.isfinite(value) and not np.isfinite(array).all()
    return value if overflows else array
