"""Calls of an entry point with NumPy arrays, for NumPy arrays: less general than handles, and less work per call."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from iree.runtime import HalBufferView, VmVariantList

from compile_hlo.directions import Signature
from run_iree.devices import IREE_ERRORS, reason
from run_iree.sessions._function import Function
from run_iree.sessions._prepared import PreparedCall
from run_iree.sessions._program import Program

Array = np.ndarray[Any, Any]

# Largest sum of staged inputs. Beyond it an allocation is cheap beside the copy, and idle memory is expensive.
KEPT_BYTES: Final = 4 << 20


class HostFunction:
    """Entry point as a function from NumPy arrays to a tuple of NumPy arrays, which belong to the caller.

    On devices that work in host memory calls are prepared: arguments are copied into staged inputs, results out of
    their buffers, and nothing else is allocated. On other devices, and for values that are not arrays of the right
    shape and dtype, it is the general function with its checks.

    Attributes:
        function: the general function.
    """

    def __init__(self, function: Function, program: Program) -> None:
        signature = function.signature
        self.function: Final = function
        self._program: Final = program
        self._key: Final = f"arrays of {function.name}"
        self._results: Final = tuple((result.spec.shape, result.spec.dtype.numpy) for result in signature.results)
        self._bytes_out: Final = sum(result.spec.nbytes for result in signature.results)
        local = program.device is not None and program.device.is_local
        self._can_prepare: Final = local and not function.dumps and _is_plain(signature)

    def __call__(self, *arrays: Any) -> tuple[Array, ...]:
        """Runs it.

        Raises:
            DeviceError: see ``Function``.
            InputError: see ``Function``.
        """
        results = self.quick(arrays)
        return tuple(tensor.numpy() for tensor in self.function(*arrays)) if results is None else results

    def quick(self, arrays: Sequence[Any]) -> tuple[Array, ...] | None:
        """Runs it as a prepared call; returns None if the arguments need the checks of the general function.

        Raises:
            DeviceError: the device failed.
        """
        program, failure, outputs, results = self._program, "", None, None
        with program.lock:
            program.check()  # before there is a local: a traceback keeps this frame
            call = program.prepared.get(self._key) or self._prepare()
            if call is None:
                return None
            try:
                outputs = call.run(arrays)
                if outputs is None:
                    return None
                results = tuple([_copied(outputs, index, *result) for index, result in enumerate(self._results)])
            except IREE_ERRORS as error:
                failure = reason(error)
        if failure:  # a traceback keeps this frame: it must hold no buffer
            call = outputs = None
            raise self.function.failed(failure)
        counters = program.counters
        counters.calls += 1
        counters.bytes_out += self._bytes_out
        return results

    def _prepare(self) -> PreparedCall | None:
        """Prepares calls; returns None if that cannot be done. The lock is held."""
        program = self._program
        if not self._can_prepare or program.closed:
            return None
        call = program.prepared[self._key] = PreparedCall(program, self.function.signature, takes_numbers=False)
        return call


def _copied(outputs: VmVariantList, index: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Copies a result that lies in the host's memory."""
    mapped: Any = outputs.get_as_object(index, HalBufferView).map()  # a buffer, which its stub does not say
    return np.ndarray(shape, dtype, mapped).copy()


def _is_plain(signature: Signature) -> bool:
    """Returns whether every argument is a small array that the caller keeps, of any values, and nothing is empty."""
    arguments = signature.arguments
    plain = all(
        argument.kind == "tensor" and not argument.donated and argument.bounds is None for argument in arguments
    )
    sizes = [value.spec.nbytes for value in (*arguments, *signature.results)]
    return plain and all(sizes) and sum(argument.spec.nbytes for argument in arguments) <= KEPT_BYTES
