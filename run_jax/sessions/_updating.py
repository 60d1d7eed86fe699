"""Calls of an entry point on held tensors, and their results."""

from collections.abc import Sequence
from typing import Any, Final

import jax

from compile_hlo.calls import Value, number_as_tensor
from lang_core import DeviceError, TensorSpec, i32
from run_jax.sessions._device_tensor import DeviceTensor
from run_jax.sessions._function import Function
from run_jax.sessions._held import HeldTensors
from run_jax.sessions._memory import fetch, settled
from run_jax.sessions._program import Program


class Results:
    """Results of one call, without those that are held; each becomes a ``DeviceTensor`` when it is first asked for."""

    __slots__ = ("_arrays", "_program", "_specs", "_tensors")

    def __init__(self, program: Program, specs: Sequence[TensorSpec | None], arrays: Sequence[jax.Array]) -> None:
        """Names the results, arrays of the shapes of their specs; those without a spec are held."""
        self._program = program
        self._specs = specs
        self._arrays: list[jax.Array | None] = list(arrays)
        self._tensors: dict[int, DeviceTensor] = {}

    def __getitem__(self, index: int) -> DeviceTensor:
        """Returns a result by its index among all of the function.

        Raises:
            DeviceError: the result is held, or the session is closed.
        """
        if index not in self._tensors:
            spec, array = self._spec(index), self._array(index)
            with self._program.lock:
                self._tensors[index] = DeviceTensor(self._program, self._program.add(array), spec)
            self._arrays[index] = None
        return self._tensors[index]

    def number(self, index: int) -> int:
        """Reads a result that is a single i32.

        Raises:
            DeviceError: the result is held or something else, or the session is closed.
        """
        spec = self._spec(index)
        if spec.dtype is not i32 or spec.size != 1:
            raise DeviceError(f"result {index} is {spec}, and no single i32: ask for its .numpy()")
        if index in self._tensors:
            return int(self._tensors[index].numpy().item())
        self._program.counters.bytes_out += spec.nbytes
        return int(fetch(self._array(index)).item())

    def _spec(self, index: int) -> TensorSpec:
        spec = self._specs[index]
        if spec is None:
            raise DeviceError(f"result {index} of a call on {self._program.origin!r} is held: ask the held tensors")
        return spec

    def _array(self, index: int) -> jax.Array:
        array = self._arrays[index]
        if self._program.closed or array is None:
            raise DeviceError(f"cannot read a result: the session on {self._program.origin!r} is closed")
        return array


class Updating:
    """Entry point that runs on held tensors in the place of its donated arguments."""

    def __init__(self, program: Program, function: Function, first: int | None = None) -> None:
        """Finds the results that replace held tensors.

        Args:
            program: program of the session.
            function: the general function.
            first: index of the result that replaces the first donated argument; the following ones replace the
                following arguments. None where each comes back in the buffer of its argument.
        """
        self._program: Final = program
        self._function: Final = function
        arguments = tuple(enumerate(function.signature.arguments))
        self._donated: Final = tuple((i, argument) for i, argument in arguments if argument.donated)
        self._values: Final = tuple((i, argument) for i, argument in arguments if not argument.donated)
        in_place = {argument: result for result, argument in function.signature.aliases.items()}
        count = len(self._donated)
        self._returned: Final = (
            [in_place.get(i) for i, _ in self._donated] if first is None else list(range(first, first + count))
        )
        results = enumerate(function.signature.results)
        self._specs: Final = [None if i in self._returned else result.spec for i, result in results]

    def __call__(self, held: HeldTensors, *values: Value) -> Results:
        """Runs the entry point and waits for its results; the first call compiles it.

        Args:
            held: tensors for the donated arguments, of their shapes and dtypes; afterwards they have what replaces
                these. They are dead when the call fails on the device.
            *values: the other arguments, as for ``Function``; also a number for a tensor of one integer.

        Raises:
            DeviceError: see ``Function``; the held tensors do not fit or are dead; or a donated argument has no result
                that replaces it.
            InputError: see ``Function``.
        """
        program, function = self._program, self._function
        with program.lock:
            arrays = held.arrays(f"update by {function.name!r}")
            self._check(held, values)
            shardings = function.compiled.shardings
            arrays[:] = [settled(array, shardings[i]) for (i, _), array in zip(self._donated, arrays, strict=True)]
            given: dict[int, Any] = dict(zip((i for i, _ in self._donated), arrays, strict=True))
            for (i, argument), value in zip(self._values, values, strict=True):
                tensor = number_as_tensor(argument, value)
                function.checks.check(argument, tensor)
                given[i] = function.array(argument, shardings[i], tensor)
            try:
                results = function.compiled([given[i] for i in range(len(given))])
            except BaseException:
                if any(array.is_deleted() for array in arrays):  # else it was refused
                    held.drop()
                raise
            program.counters.calls += 1
            arrays[:] = [results[index] for index in self._returned if index is not None]
            return Results(program, self._specs, results)

    def _check(self, held: HeldTensors, values: tuple[Value, ...]) -> None:
        function = self._function
        wanted = tuple(argument.spec for _, argument in self._donated)
        if held.program is not self._program or held.specs != wanted:
            where = "" if held.program is self._program else " of another session"
            raise DeviceError(
                f"{function.name!r} updates {list(wanted)}, found held tensors {list(held.specs)}{where}: hold those"
            )
        if len(values) != len(self._values):
            names = ", ".join(argument.name for _, argument in self._values)
            raise DeviceError(
                f"{function.name!r} takes {len(self._values)} values beside what is held ({names}), found {len(values)}"
            )
        for (_, argument), index in zip(self._donated, self._returned, strict=True):
            if index is None or function.signature.results[index].spec != argument.spec:
                raise DeviceError(
                    f"{function.name!r} gives no result in the place of {argument.name!r}: call it with handles"
                )
