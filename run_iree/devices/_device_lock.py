"""Lock of a device that several threads use."""

import ctypes
import threading
from types import TracebackType
from typing import Any, Final, Self

from lang_core import DeviceError

_CUDA: Final = "libcuda.so.1"


class CudaContext:
    """CUDA context that is current on the thread that makes this object."""

    def __init__(self, library: Any = None) -> None:
        """Remembers the context.

        Args:
            library: CUDA's driver; the machine's if None.

        Raises:
            DeviceError: the driver fails.
        """
        self._cuda: Final = ctypes.CDLL(_CUDA) if library is None else library
        self._handle: Final = ctypes.c_void_p()
        _check(self._cuda.cuCtxGetCurrent(ctypes.byref(self._handle)), "say which context is current")

    def make_current(self) -> None:
        """Makes the context current on the calling thread; it costs less than a microsecond.

        Raises:
            DeviceError: the driver fails.
        """
        _check(self._cuda.cuCtxSetCurrent(self._handle), "make the device's context current on this thread")


class DeviceLock:
    """Lock that one thread has at a time, which may take it again; that thread can then use the device.

    IREE 3.13 makes CUDA's context current on the thread that opens the device alone, and calls from others fail.
    """

    def __init__(self, context: CudaContext) -> None:
        """Makes a lock that is free, for a device of the context."""
        self._lock: Final = threading.RLock()
        self._context: Final = context

    def __enter__(self) -> Self:
        self._lock.acquire()
        try:
            self._context.make_current()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()


def _check(code: int, what: str) -> None:
    if code:
        raise DeviceError(f"CUDA cannot {what} (error {code}): end the program and open the device again")
