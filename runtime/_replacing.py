"""Calls of an entry point that replace held tensors by results: the replacements and the arguments."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar

from compile_hlo.directions import Signature
from lang_core import DeviceError, TensorSpec
from runtime._checks import Value, admitted_value
from runtime._handle import Owner, P
from runtime._holding import Holding

F = TypeVar("F")
R = TypeVar("R")
T = TypeVar("T", bound=Holding[Any, Any])


class UpdatePlan:
    """Arguments of an entry point that are held, and the results that replace them.

    Attributes:
        name: name of the entry point.
        donated: numbers of the held arguments.
        in_place: per held argument the result that lies in its buffer; None if there is none.
        returned: per held argument the result that replaces it; None if there is none.
        specs: shape and dtype per result; None of one that is held.
    """

    def __init__(self, program: Owner, signature: Signature, first: int | None = None) -> None:
        """Finds the results that replace held tensors.

        Args:
            program: program of the session.
            signature: signature of the entry point.
            first: index of the result that replaces the first donated argument; the following ones replace the
                following arguments. None if each comes back in the buffer of its argument.
        """
        arguments = tuple(enumerate(signature.arguments))
        in_place = {argument: result for result, argument in signature.aliases.items()}
        self._program: Final = program
        self._signature: Final = signature
        self._values: Final = tuple((i, argument) for i, argument in arguments if not argument.donated)
        self.name: Final = signature.name
        self.donated: Final = tuple(i for i, argument in arguments if argument.donated)
        self.in_place: Final = [in_place.get(i) for i in self.donated]
        count = len(self.donated)
        self.returned: Final = self.in_place if first is None else [*range(first, first + count)]
        self.specs: Final[list[TensorSpec | None]] = [
            None if i in self.returned else result.spec for i, result in enumerate(signature.results)
        ]
        self._held_specs: Final = tuple(signature.arguments[i].spec for i in self.donated)

    def replacing(self, results: Sequence[Any]) -> list[Any]:
        """Returns those of a call's results that replace held tensors, in their order."""
        return [results[index] for index in self.returned if index is not None]

    def given(self, values: Sequence[Value]) -> dict[int, Value]:
        """Returns the other values by the number of their argument; a number may stand for a tensor of one integer."""
        return {i: admitted_value(argument, value) for (i, argument), value in zip(self._values, values, strict=True)}

    def check(self, held: Holding[Any, Any], values: Sequence[Value]) -> None:
        """Refuses held tensors that do not fit, and a wrong number of other values.

        Raises:
            DeviceError: the held tensors do not fit or are dead; the values are too few or too many; or a donated
                argument lacks a result that replaces it.
        """
        held.check(f"update by {self.name!r}")
        if held.program is not self._program or held.specs != self._held_specs:
            where = "" if held.program is self._program else " of another session"
            raise DeviceError(
                f"{self.name!r} updates {list(self._held_specs)}, found held tensors {list(held.specs)}{where}: hold "
                f"those"
            )
        if len(values) != len(self._values):
            names = ", ".join(argument.name for _, argument in self._values)
            raise DeviceError(
                f"{self.name!r} takes {len(self._values)} values beside the held tensors ({names}), found {len(values)}"
            )
        arguments, results = self._signature.arguments, self._signature.results
        for number, index in zip(self.donated, self.returned, strict=True):
            if index is None or results[index].spec != arguments[number].spec:
                raise DeviceError(
                    f"{self.name!r} gives no result in the place of {arguments[number].name!r}: call it with handles"
                )


class BaseUpdating(ABC, Generic[P, F, T, R]):
    """Entry point that runs on held tensors in the place of its donated arguments."""

    def __init__(self, program: P, function: F, plan: UpdatePlan) -> None:
        """Takes the general function, and its held tensors."""
        self._program: Final = program
        self._function: Final = function
        self._plan: Final = plan

    @abstractmethod
    def __call__(self, held: T, *values: Value) -> R:
        """Runs the entry point and waits for its results.

        Args:
            held: tensors for the donated arguments, of their shapes and dtypes; afterwards they have the replacements.
                They are dead when the call fails on the device.
            *values: the other arguments, as for ``Function``; also a number for a tensor of one integer.

        Raises:
            DeviceError: see ``Function``; the held tensors do not fit or are dead; or a donated argument lacks a result
                that replaces it.
            InputError: see ``Function``.
        """
