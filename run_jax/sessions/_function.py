"""General calls of an entry point: every value is checked, results are handles."""

from collections.abc import Sequence
from typing import Any, Final

from compile_hlo.directions import LoweredArgument, Signature
from lang_core import DeviceError
from run_jax.sessions._compiled import CompiledEntry, as_array
from run_jax.sessions._device_tensor import DeviceTensor
from run_jax.sessions._memory import Sharding, placed
from run_jax.sessions._program import Program
from runtime import ArgumentChecks, Value, admitted


class Function:
    """Entry point of a session; a call checks the arguments and returns a tuple of DeviceTensor.

    Attributes:
        name: name of the entry point.
        signature: its arguments and results.
        compiled: the entry point on the devices.
        checks: checks of its values.
    """

    def __init__(self, program: Program, signature: Signature) -> None:
        self.name: Final = signature.name
        self.signature: Final = signature
        self.compiled: Final = CompiledEntry(program, signature)
        self.checks: Final = ArgumentChecks(program, signature, DeviceTensor)
        self._program: Final = program

    def __repr__(self) -> str:
        arguments = ", ".join(f"{argument.name}: {argument.spec}" for argument in self.signature.arguments)
        return f"Function({self.name}({arguments}) -> {[result.spec for result in self.signature.results]})"

    def __call__(self, *values: Value) -> tuple[DeviceTensor, ...]:
        """Runs the entry point and waits for its results; the first call compiles it.

        Args:
            *values: per argument an array or a tensor of a context (copied to the device), a DeviceTensor of the same
                session, or a number for a scalar or a tensor of one element. A tensor that is donated is dead
                afterwards, even when the call fails.

        Raises:
            DeviceError: the session is closed; an argument's count, kind, shape or dtype is wrong, or it is dead; a
                donated tensor is passed twice; XLA refuses the module; or the device failed.
            InputError: a number is outside of the argument's allowed range.
            VerificationError: the module is of a former version, and its products of f32 would lose bits.
        """
        program = self._program
        with program.lock:
            if program.closed:
                raise DeviceError(f"cannot call {self.name!r}: the session on {program.origin!r} is closed")
            program.check()
            values = admitted(self.signature.arguments, values)
            self.checks(values)
            arguments = self.signature.arguments
            shardings = self.compiled.shardings
            arrays = [self.array(*one) for one in zip(arguments, shardings, values, strict=True)]
            observation = self.compiled.observed(arrays)
            try:
                results = self.compiled(arrays, observation)
            finally:
                self._end_donated(values)
            program.counters.calls += 1
            specs = (result.spec for result in self.signature.results)
            return tuple(DeviceTensor(program, program.add(a), spec) for a, spec in zip(results, specs, strict=True))

    def array(self, argument: LoweredArgument, sharding: Sharding, value: Value) -> Any:
        """Returns a value that was checked as an array for the compiled entry point."""
        if isinstance(value, DeviceTensor):
            return value.array(sharding)
        array = as_array(argument, value)
        if argument.kind == "tensor":
            self._program.counters.bytes_in += array.nbytes
        return placed(array, sharding) if argument.donated else array

    def _end_donated(self, values: Sequence[Value]) -> None:
        """Marks donated handles as dead."""
        for argument, value in zip(self.signature.arguments, values, strict=True):
            if argument.donated and isinstance(value, DeviceTensor):
                value.donate(f"{self.name!r} as argument {argument.name!r}")
