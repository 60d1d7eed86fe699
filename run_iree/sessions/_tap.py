"""Dumps the tensors of a session's call."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from iree.runtime import HalBufferView

from compile_hlo.directions import LoweredArgument, Signature
from run_iree.devices import peek
from run_iree.sessions._device_tensor import DeviceTensor
from run_iree.sessions._program import Program
from runtime.dump import Companion, DumpedCall, add_traced, traced_specs


class Tap:
    """Reader of one call's arguments, traces and results, without a copy, while the call holds the program's lock.

    Errors are stored without their frames: a frame may hold a buffer, and must not outlive the device.
    """

    def __init__(
        self, program: Program, signature: Signature, call: DumpedCall, companions: Sequence[Companion] = ()
    ) -> None:
        self._companions: Final = companions
        self._others: list[Any] = []
        self._program: Final = program
        self._signature: Final = signature
        self._call: Final = call
        self._error: BaseException | None = None

    def arguments(self, values: Sequence[Any]) -> None:
        """Dumps the arguments, before the call.

        Raises:
            InputError: the dump cannot be written.
        """
        if self._call.wants_arguments:
            for argument, value in zip(self._signature.arguments, values, strict=True):
                self._guarded(self._argument, argument, value)
        self.check()
        if self._companions:
            pairs = zip(self._signature.arguments, values, strict=True)
            arrays = [np.array(self._array(argument, value)) for argument, value in pairs]
            name = self._signature.name
            self._others = [(companion, companion.run(name, arrays)) for companion in self._companions]

    def traced(self, key: str, views: Sequence[HalBufferView]) -> None:
        """Dumps a trace, during the call; IREE calls this, so errors are stored for ``check``."""
        self._guarded(self._traced, key, views)

    def results(self, keys: Sequence[int]) -> None:
        """Dumps the results, after the call.

        Raises:
            InputError: the dump cannot be written.
        """
        if self._call.wants_arguments:
            taken_over = self._signature.taken_over
            for index, key in enumerate(keys):
                aliased = self._signature.results[index].name in taken_over
                self._guarded(self._result, index, key, aliased)
        self.check()
        names = [result.name for result in self._signature.results]
        copied = keys if self._others else ()  # an error's frames may keep the arrays beyond the device
        expected = [np.array(self._view(index, key)) for index, key in enumerate(copied)]
        for companion, actual in self._others:
            if actual is not None:
                companion.compare(self._signature.name, names, actual, expected)
        if self._call.sites and not self._companions:
            self._call.check_kernels()

    def check(self) -> None:
        """Raises the first stored error.

        Raises:
            InputError: the dump cannot be written, or the module's traces are not those of its description.
        """
        if self._error is not None:
            raise self._error

    def _guarded(self, dump: Callable[..., None], *arguments: Any) -> None:
        if self._error is not None:
            return
        try:
            dump(*arguments)
        except BaseException as error:  # noqa: BLE001 - raised again by check
            self._error = _without_frames(error)

    def _argument(self, argument: LoweredArgument, value: Any) -> None:
        self._call.argument(argument.name, self._array(argument, value), donated=argument.donated)

    def _array(self, argument: LoweredArgument, value: Any) -> Any:
        if isinstance(value, DeviceTensor):
            return self._peek(self._program.views[value.key], argument.spec)
        return np.asarray(value, argument.spec.dtype.numpy)

    def _traced(self, key: str, views: Sequence[HalBufferView]) -> None:
        specs = traced_specs(self._call, self._program.origin, key, [view.byte_length for view in views])
        add_traced(self._call, key, [self._peek(view, spec) for view, spec in zip(views, specs, strict=True)])

    def _result(self, index: int, key: int, aliased: bool) -> None:
        self._call.result(self._signature.results[index].name, self._view(index, key), aliased=aliased)

    def _view(self, index: int, key: int) -> Any:
        return self._peek(self._program.views[key], self._signature.results[index].spec)

    def _peek(self, view: HalBufferView, spec: Any) -> Any:
        assert self._program.device is not None
        return peek(self._program.device.hal, view, spec)


def _without_frames(error: BaseException) -> BaseException:
    inner: BaseException | None = error
    while inner is not None:
        inner.__traceback__ = None
        inner = inner.__cause__ or inner.__context__
    return error
