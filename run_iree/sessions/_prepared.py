"""Prepared calls: the common parts of all calls of an entry point are set up once."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
from iree.runtime import VmRef, VmVariantList

from compile_hlo.directions import LoweredArgument, Signature
from lang_core import i32, i64, plain_bools
from run_iree.devices import writable
from run_iree.sessions._device_tensor import DeviceTensor
from run_iree.sessions._program import Program

_NO_RANGE: Final = (1, 0)  # contains no number
_LARGE: Final = 1 << 16  # bytes of a staged input that is allocated when it is first filled: it may be a handle always


class PreparedCall:
    """Call of an entry point without handles and without allocations.

    Every argument that is not donated has a staged input: memory that a call fills before it begins, while other calls
    are not running. Donated arguments must be adjacent; they come as references to buffers. A prepared call owns
    objects of IREE and memory of the session, so only the session's ``Program`` may keep it.
    """

    __slots__ = ("_after", "_before", "_complete", "_counters", "_invoke", "_result_count", "_size", "_tensors")

    def __init__(self, program: Program, signature: Signature, *, takes_numbers: bool) -> None:
        """Allocates the staged inputs.

        Args:
            program: open program of the session, on a device with host-writable memory.
            signature: signature of the entry point.
            takes_numbers: True if a Python integer may stand for a tensor of one integer.
        """
        arguments = signature.arguments
        donated = [index for index, argument in enumerate(arguments) if argument.donated]
        begin = donated[0] if donated else len(arguments)

        def staged(part: Sequence[LoweredArgument]) -> list[_StagedScalar | _StagedTensor]:
            return [_staged_input(program, argument, takes_numbers=takes_numbers) for argument in part]

        self._before: Final = staged(arguments[:begin])
        self._after: Final = staged(arguments[begin + len(donated) :])
        self._invoke: Final = program.invoker(signature.name)
        self._counters: Final = program.counters
        self._size: Final = len(arguments)
        self._result_count: Final = len(signature.results)
        # Where all arguments are tensors and none is donated, one list of inputs serves all calls.
        self._tensors: Final = tuple(staged for staged in self._before if isinstance(staged, _StagedTensor))
        self._complete: Final = _complete(self._tensors) if len(self._tensors) == len(arguments) else None

    def run(self, values: Sequence[object], refs: Sequence[VmRef] = ()) -> VmVariantList | None:
        """Calls the entry point and waits for its results; the program's lock is held.

        Args:
            values: arguments that are not donated, in order.
            refs: buffers of the donated arguments, in order.

        Returns:
            The results as IREE gives them; None if a value needs the checks of a general call, which passes or
            refuses it.
        """
        counters = self._counters
        if len(values) != len(self._before) + len(self._after):
            return None
        copied = counters.bytes_in
        inputs = self._inputs(values, refs) if self._complete is None else self._filled(self._complete, values)
        if inputs is None:
            counters.bytes_in = copied
            return None
        outputs = VmVariantList(self._result_count)
        began = time.perf_counter()
        self._invoke(inputs, outputs)
        counters.module_seconds += time.perf_counter() - began
        return outputs

    def _inputs(self, values: Sequence[object], refs: Sequence[VmRef]) -> VmVariantList | None:
        """Returns new inputs with the values and references; None if a value cannot be passed."""
        inputs = VmVariantList(self._size)
        index = 0
        for staged in self._before:
            if not staged.push(inputs, values[index]):
                return None
            index += 1
        for ref in refs:
            inputs.push_ref(ref)
        for staged in self._after:
            if not staged.push(inputs, values[index]):
                return None
            index += 1
        return inputs

    def _filled(self, inputs: VmVariantList, values: Sequence[object]) -> VmVariantList | None:
        """Returns the complete inputs after copying arrays into them; None if a value cannot be passed."""
        for staged, value in zip(self._tensors, values, strict=True):
            if not isinstance(value, np.ndarray) or not staged.fill(value):
                return None
        return inputs


class _StagedScalar:
    """Scalar argument; IREE takes the number itself."""

    __slots__ = ("_greatest", "_least")

    def __init__(self, argument: LoweredArgument) -> None:
        self._least, self._greatest = _range(argument)

    def push(self, inputs: VmVariantList, value: object) -> bool:
        """Appends a value to the inputs; returns whether it could."""
        if type(value) is int and self._least <= value <= self._greatest:
            inputs.push_int(value)
            return True
        return False


class _StagedTensor:
    """Tensor argument with memory of its own.

    Attributes:
        ref: reference to that memory; None before a large one is allocated.
    """

    __slots__ = (
        "_argument",
        "_array",
        "_bounds",
        "_counters",
        "_dtype",
        "_greatest",
        "_least",
        "_make",
        "_nbytes",
        "_number",
        "_shape",
        "_view",
        "_views",
        "ref",
    )

    def __init__(self, program: Program, argument: LoweredArgument, *, takes_numbers: bool) -> None:
        assert program.device is not None
        self._counters: Final = program.counters
        self._argument: Final = argument
        self._bounds: Final = argument.bounds
        self._shape: Final = argument.spec.shape
        self._dtype: Final = argument.spec.dtype.numpy
        self._nbytes: Final = argument.spec.nbytes
        self._views: Final = program.views
        self._least, self._greatest = _range(argument) if takes_numbers else _NO_RANGE
        self._make: Final = partial(writable, program.device.hal, argument.spec)
        self._array: np.ndarray | None = None
        self._number = memoryview(b"")
        self.ref: VmRef | None = None
        if self._nbytes < _LARGE:
            self.stage()

    def stage(self) -> np.ndarray:
        """Allocates the memory if there is none, and returns it."""
        if self._array is None:
            self._view, self._array = self._make()
            self.ref = self._view.ref
            if self._least <= self._greatest:
                # Not written through NumPy, whose code is not in the processor's caches after a step.
                self._number = self._array.reshape(-1).data
        return self._array

    def push(self, inputs: VmVariantList, value: object) -> bool:
        """Appends a value to the inputs; returns whether it could."""
        if type(value) is int:
            if not self._least <= value <= self._greatest:
                return False
            self._number[0] = value
            self._counters.bytes_in += self._number.itemsize
        elif isinstance(value, DeviceTensor):
            return self._push_handle(inputs, value)
        elif not isinstance(value, np.ndarray) or not self.fill(value):
            return False
        assert self.ref is not None  # it was filled
        inputs.push_ref(self.ref)
        return True

    def fill(self, value: np.ndarray) -> bool:
        """Copies an array into the staged input; returns whether it fits."""
        if value.shape != self._shape or value.dtype != self._dtype:
            return False
        bounds = self._bounds
        if bounds and value.size and (value.min() < bounds[0] or value.max() > bounds[1]):
            return False
        array = self._array if self._array is not None else self.stage()
        array[...] = plain_bools(value) if self._dtype == np.bool_ else value
        self._counters.bytes_in += self._nbytes
        return True

    def _push_handle(self, inputs: VmVariantList, value: DeviceTensor) -> bool:
        program, argument = value.program, self._argument
        if argument.guarded or program.views is not self._views or not value.usable_as(argument.spec, program):
            return False
        inputs.push_ref(self._views[value.key].ref)
        return True


def _staged_input(program: Program, argument: LoweredArgument, *, takes_numbers: bool) -> _StagedScalar | _StagedTensor:
    """Allocates the staged input of an argument."""
    if argument.kind == "scalar":
        return _StagedScalar(argument)
    return _StagedTensor(program, argument, takes_numbers=takes_numbers)


def _complete(tensors: Sequence[_StagedTensor]) -> VmVariantList:
    """Returns inputs with the memory of every staged tensor."""
    inputs = VmVariantList(len(tensors))
    for staged in tensors:
        staged.stage()
        assert staged.ref is not None
        inputs.push_ref(staged.ref)
    return inputs


def _range(argument: LoweredArgument) -> tuple[int, int]:
    """Returns the allowed range of a single integer; an empty one for any other argument."""
    spec = argument.spec
    if spec.dtype not in (i32, i64) or spec.size != 1:
        return _NO_RANGE
    limits = np.iinfo(spec.dtype.numpy)
    return argument.bounds or (int(limits.min), int(limits.max))
