"""Calls an entry point with NumPy arrays, for NumPy arrays: less general than handles, and less work per call."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from iree.runtime import HalBufferView, VmVariantList

from compile_hlo.directions import Signature
from run_iree.devices import IREE_ERRORS, reason, writable
from run_iree.sessions._function import Function
from run_iree.sessions._program import Program

Array = np.ndarray[Any, Any]

# Of all arguments together. Above it an allocation is little beside the copy, and memory that waits is memory taken.
KEPT_BYTES: Final = 4 << 20


class Kept(NamedTuple):
    """What stays from call to call. A program owns it, and drops it when it is closed.

    Attributes:
        places: per argument, the memory of a buffer that every call fills anew, with its shape and dtype.
        inputs: these buffers, as IREE takes them.
        invoke: the function, of inputs and outputs.
    """

    places: tuple[tuple[Array, tuple[int, ...], np.dtype[Any]], ...]
    inputs: VmVariantList
    invoke: Callable[[VmVariantList, VmVariantList], None]


class HostFunction:
    """An entry point as a function from NumPy arrays to a tuple of NumPy arrays, which are the caller's own.

    On devices that work in host memory its arguments lie in buffers that stay, and results are copied from where they
    are: a call allocates nothing but them, and makes no handle. Anywhere else, and for whatever is no array of the
    right shape and dtype, it is the general function with its checks. What IREE itself takes of a quick call is not
    counted among the session's ``module_seconds``.

    Attributes:
        function: the general one.
    """

    def __init__(self, function: Function, program: Program) -> None:
        self.function: Final = function
        self._name: Final = function.name
        self._program: Final = program
        self._counters: Final = function.counters
        self._results: Final = tuple((each.spec.shape, each.spec.dtype.numpy) for each in function.signature.results)
        self._bytes_in: Final = sum(each.spec.nbytes for each in function.signature.arguments)
        self._bytes_out: Final = sum(each.spec.nbytes for each in function.signature.results)
        local = program.device is not None and program.device.is_local
        self._plain: Final = local and not function.dumps and _is_plain(function.signature)

    def __call__(self, *arrays: Any) -> tuple[Array, ...]:
        """Runs it.

        Raises:
            DeviceError: as ``Function``.
            InputError: the same.
        """
        found = self.quick(arrays)
        return tuple(each.numpy() for each in self.function(*arrays)) if found is None else found

    def quick(self, arrays: Sequence[Any]) -> tuple[Array, ...] | None:
        """Runs it in the quick way; None where the arguments have to be looked at.

        Raises:
            DeviceError: the device failed.
        """
        program, failure, found, place, outputs = self._program, "", None, None, None
        with program.lock:
            kept = program.kept.get(self._name) or self._keep()
            if kept is None or len(arrays) != len(kept.places):
                return None
            for array, (place, shape, dtype) in zip(arrays, kept.places, strict=True):
                if type(array) is not np.ndarray or array.shape != shape or array.dtype != dtype:
                    return None
                place[...] = array
            try:
                outputs = VmVariantList(len(self._results))
                kept.invoke(kept.inputs, outputs)
                found = tuple([_copied(outputs, index, *result) for index, result in enumerate(self._results)])
            except IREE_ERRORS as error:
                failure = reason(error)
        if failure:  # a traceback keeps this frame: it must hold no buffer
            kept = place = outputs = None
            raise self.function.failed(failure)
        counters = self._counters
        counters.calls += 1
        counters.bytes_in += self._bytes_in
        counters.bytes_out += self._bytes_out
        return found

    def _keep(self) -> Kept | None:
        """Makes the buffers, once; None where they cannot stay. The lock is held."""
        program, specs = self._program, [each.spec for each in self.function.signature.arguments]
        if not self._plain or program.device is None:
            return None
        hal = program.device.hal
        inputs, places = VmVariantList(len(specs)), []
        for spec in specs:
            view, memory = writable(hal, spec)
            inputs.push_ref(view.ref)
            places.append((memory, spec.shape, spec.dtype.numpy))
        return program.kept.setdefault(self._name, Kept(tuple(places), inputs, program.invoker(self._name)))


def _copied(outputs: VmVariantList, index: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A result that lies in the host's memory."""
    mapped: Any = outputs.get_as_object(index, HalBufferView).get_buffer().map()
    return np.ndarray(shape, dtype, mapped).copy()


def _is_plain(signature: Signature) -> bool:
    """Whether every argument is an array that stays the caller's, all are small, and nothing is empty."""
    arguments = signature.arguments
    plain = all(each.kind == "tensor" and not each.donated and each.bounds is None for each in arguments)
    sizes = [each.spec.nbytes for each in (*arguments, *signature.results)]
    return plain and all(sizes) and sum(each.spec.nbytes for each in arguments) <= KEPT_BYTES
