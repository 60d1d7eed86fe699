"""Calls of an entry point on held tensors, and their results."""

from collections.abc import Sequence
from typing import Any

import jax

from lang_core import DeviceError, TensorSpec, i32
from run_jax.sessions._device_tensor import DeviceTensor
from run_jax.sessions._function import Function
from run_jax.sessions._held import HeldTensors
from run_jax.sessions._memory import fetch, settled
from run_jax.sessions._program import Program
from runtime import BaseUpdating, Value


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


class Updating(BaseUpdating[Program, Function, HeldTensors, Results]):
    """Entry point that runs on held tensors in the place of its donated arguments."""

    def __call__(self, held: HeldTensors, *values: Value) -> Results:
        program, function, plan = self._program, self._function, self._plan
        with program.lock:
            program.check()
            plan.check(held, values)
            arrays, shardings = held.arrays("update"), function.compiled.shardings
            arrays[:] = [settled(array, shardings[i]) for i, array in zip(plan.donated, arrays, strict=True)]
            given: dict[int, Any] = dict(zip(plan.donated, arrays, strict=True))
            for i, value in plan.given(values).items():
                argument = function.signature.arguments[i]
                function.checks.check(argument, value)
                given[i] = function.array(argument, shardings[i], value)
            everything = [given[i] for i in range(len(given))]
            observation = function.compiled.observed(everything)
            try:
                results = function.compiled(everything, observation)
            except BaseException:
                if any(array.is_deleted() for array in arrays):  # else it was refused
                    held.drop()
                raise
            program.counters.calls += 1
            arrays[:] = plan.replacing(results)
            return Results(program, plan.specs, results)
