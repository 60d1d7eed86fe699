"""A call that is prepared: of what is the same in every step of a generation nothing is done twice."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from iree.runtime import HalBufferView, HalDevice, VmRef, VmVariantList

from compile_hlo.directions import LoweredArgument
from lang_core import i32, i64
from run_iree.devices import writable
from run_iree.sessions._counters import Counters
from run_iree.sessions._device_tensor import DeviceTensor

_NONE: Final = (1, 0)  # bounds that no number is within


class QuickCall:
    """Of a function whose donated arguments come one after the other, and whose results lie apart from its others.

    It has objects of IREE's and the session's memory, so nothing but the session's ``Program`` keeps it.

    Arguments that are not donated have a buffer each, which every call writes before it begins: none is running then.
    """

    __slots__ = ("_after", "_before", "_counters", "_invoke", "_size")

    def __init__(
        self,
        device: HalDevice,
        invoke: Callable[[VmVariantList, VmVariantList], None],
        arguments: Sequence[LoweredArgument],
        views: Mapping[int, HalBufferView],
        counters: Counters,
    ) -> None:
        """Prepares calls.

        Args:
            device: of the program; the host can write its memory.
            invoke: calls the function.
            arguments: of the function.
            views: the live buffers of the program, by the keys of handles.
            counters: of the session.
        """
        donated = [index for index, argument in enumerate(arguments) if argument.donated]
        begin = donated[0] if donated else len(arguments)

        def slots(some: Sequence[LoweredArgument]) -> list[_Scalar | _Tensor]:
            return [_Scalar(each) if each.kind == "scalar" else _Tensor(device, each, views, counters) for each in some]

        self._before: Final = slots(arguments[:begin])
        self._after: Final = slots(arguments[begin + len(donated) :])
        self._invoke: Final = invoke
        self._counters: Final = counters
        self._size: Final = len(arguments)

    def __call__(self, refs: Sequence[VmRef], values: Sequence[object]) -> VmVariantList | None:
        """Calls the function and waits for its results; None where a value cannot be passed without another look.

        Args:
            refs: of the donated arguments' buffers.
            values: of the other arguments.
        """
        before, after = self._before, self._after
        if len(values) != len(before) + len(after):
            return None
        copied = self._counters.bytes_in
        inputs = VmVariantList(self._size)
        push = inputs.push_ref
        at = 0
        for slot in before:
            if not slot.push(inputs, values[at]):
                return self._undone(copied)
            at += 1
        for ref in refs:
            push(ref)
        for slot in after:
            if not slot.push(inputs, values[at]):
                return self._undone(copied)
            at += 1
        outputs = VmVariantList(self._size)
        began = time.perf_counter()
        self._invoke(inputs, outputs)
        self._counters.module_seconds += time.perf_counter() - began
        return outputs

    def _undone(self, copied: int) -> None:
        """What was put into buffers goes nowhere: another look passes it, or refuses all."""
        self._counters.bytes_in = copied


def _bounds(argument: LoweredArgument) -> tuple[int, int]:
    """What a number may be; of what is no single integer none is within."""
    spec = argument.spec
    if spec.dtype not in (i32, i64) or spec.size != 1:
        return _NONE
    limits = np.iinfo(spec.dtype.numpy)
    return argument.bounds or (int(limits.min), int(limits.max))


class _Scalar:
    __slots__ = ("_least", "_most")

    def __init__(self, argument: LoweredArgument) -> None:
        self._least, self._most = _bounds(argument)

    def push(self, inputs: VmVariantList, value: object) -> bool:
        """Passes a value; tells whether that could be done."""
        if type(value) is int and self._least <= value <= self._most:
            inputs.push_int(value)
            return True
        return False


class _Tensor:
    """Has a buffer of its own."""

    __slots__ = ("_argument", "_array", "_counters", "_least", "_most", "_number", "_ref", "_view", "_views")

    def __init__(
        self, device: HalDevice, argument: LoweredArgument, views: Mapping[int, HalBufferView], counters: Counters
    ) -> None:
        spec = argument.spec
        self._counters: Final = counters
        self._argument: Final = argument
        self._views: Final = views
        self._least, self._most = _bounds(argument)
        view, self._array = writable(device, spec)
        self._view: Final = view
        self._ref: Final = view.ref
        # Not by NumPy, whose code has to be fetched from memory.
        self._number: Final = self._array.reshape(-1).data if self._least <= self._most else memoryview(b"")

    def push(self, inputs: VmVariantList, value: object) -> bool:
        """Passes a value; tells whether that could be done."""
        if type(value) is int:
            if not self._least <= value <= self._most:
                return False
            self._number[0] = value
            self._counters.bytes_in += self._number.itemsize
            inputs.push_ref(self._ref)
            return True
        if isinstance(value, DeviceTensor):
            return self._push_handle(inputs, value)
        return isinstance(value, np.ndarray) and self._push_array(inputs, value)

    def _push_handle(self, inputs: VmVariantList, value: DeviceTensor) -> bool:
        program, argument = value.program, self._argument
        if argument.guarded or program.views is not self._views or not value.usable_as(argument.spec, program):
            return False
        inputs.push_ref(self._views[value.key].ref)
        return True

    def _push_array(self, inputs: VmVariantList, value: np.ndarray) -> bool:
        array, bounds = self._array, self._argument.bounds
        if value.shape != array.shape or value.dtype != array.dtype:
            return False
        if bounds and value.size and (value.min() < bounds[0] or value.max() > bounds[1]):
            return False
        np.copyto(array, value)
        self._counters.bytes_in += array.nbytes
        inputs.push_ref(self._ref)
        return True
