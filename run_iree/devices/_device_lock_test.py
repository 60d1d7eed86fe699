import ctypes
import threading
from typing import Any

import pytest

from lang_core import DeviceError
from run_iree.devices._device_lock import CudaContext, DeviceLock


class Driver:
    """CUDA's driver as far as contexts go: each thread has one of its own, or none."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.current = threading.local()

    def cuCtxGetCurrent(self, handle: Any) -> int:  # noqa: N802 - CUDA's name
        ctypes.cast(handle, ctypes.POINTER(ctypes.c_void_p))[0] = getattr(self.current, "handle", None)
        return self.code

    def cuCtxSetCurrent(self, handle: ctypes.c_void_p) -> int:  # noqa: N802 - CUDA's name
        self.current.handle = handle.value
        return self.code


def test_a_thread_that_has_its_turn_has_the_context() -> None:
    driver = Driver()
    driver.current.handle = 4711
    turns, seen = DeviceLock(CudaContext(driver)), []

    def use() -> None:
        with turns, turns:
            seen.append(getattr(driver.current, "handle", None))

    for _ in range(2):
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    assert seen == [4711, 4711]


def test_one_thread_at_a_time() -> None:
    turns, entered = DeviceLock(CudaContext(Driver())), threading.Event()

    def use() -> None:
        with turns:
            entered.set()

    thread = threading.Thread(target=use)
    with turns:
        thread.start()
        assert not entered.wait(0.05)
    assert entered.wait(10)
    thread.join()


def test_a_driver_that_fails_is_an_error_and_keeps_no_turn() -> None:
    with pytest.raises(DeviceError, match=r"CUDA cannot say which context is current \(error 3\): end the program"):
        CudaContext(Driver(3))
    driver = Driver()
    turns = DeviceLock(CudaContext(driver))
    driver.code = 201
    with pytest.raises(DeviceError, match=r"cannot make the device's context current on this thread \(error 201\)"):
        turns.__enter__()
    driver.code = 0
    thread = threading.Thread(target=turns.__enter__)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
