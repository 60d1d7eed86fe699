"""Dumps the tensors of a session's call."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from iree.runtime import HalBufferView

from compile_hlo.directions import LoweredArgument, Signature
from lang_core import InputError
from run_iree.devices import peek
from run_iree.dump import DumpedCall
from run_iree.sessions._device_tensor import DeviceTensor
from run_iree.sessions._program import Program


class Tap:
    """Reader of one call's arguments, traces and results, without a copy, while the call holds the program's lock.

    Errors are stored without their frames: a frame may hold a buffer, and must not outlive the device.
    """

    def __init__(self, program: Program, signature: Signature, call: DumpedCall) -> None:
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

    def traced(self, key: str, views: Sequence[HalBufferView]) -> None:
        """Dumps a trace, during the call; IREE calls this, so errors are stored for ``check``."""
        for view in views:
            self._guarded(self._tag, key, view)

    def results(self, keys: Sequence[int]) -> None:
        """Dumps the results, after the call.

        Raises:
            InputError: the dump cannot be written.
        """
        if self._call.wants_arguments:
            aliases = self._signature.aliases
            for index, key in enumerate(keys):
                self._guarded(self._result, index, key, index in aliases)
        self.check()

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
        if isinstance(value, DeviceTensor):
            array = self._peek(self._program.views[value.key], argument.spec)
        else:
            array = np.asarray(value, argument.spec.dtype.numpy)
        self._call.argument(argument.name, array, donated=argument.donated)

    def _tag(self, key: str, view: HalBufferView) -> None:
        info = self._call.tags.get(key)
        if info is None or view.byte_length != info.spec.nbytes:
            recorded = "no such tag" if info is None else f"{info.spec!r} there"
            raise InputError(
                f"{self._program.origin!r} traced {key!r} ({view.byte_length} bytes), and the bundle's description has "
                f"{recorded}: export again with `dump_tags`"
            )
        self._call.tag(key, self._peek(view, info.spec))

    def _result(self, index: int, key: int, aliased: bool) -> None:
        result = self._signature.results[index]
        self._call.result(result.name, self._peek(self._program.views[key], result.spec), aliased=aliased)

    def _peek(self, view: HalBufferView, spec: Any) -> Any:
        assert self._program.device is not None
        return peek(self._program.device.hal, view, spec)


def _without_frames(error: BaseException) -> BaseException:
    inner: BaseException | None = error
    while inner is not None:
        inner.__traceback__ = None
        inner = inner.__cause__ or inner.__context__
    return error
