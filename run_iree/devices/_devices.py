"""Devices that a compiled module can run on."""

import contextlib
import functools
import mmap
import os
import re
import threading
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final

from iree import runtime

from lang_core import DeviceError, near_names
from run_iree.devices._device_lock import CudaContext, DeviceLock

# Driver of each device. vmvx is the local-task driver with modules of the vmvx target.
_DRIVERS: Final = {
    "local-task": "local-task",
    "local-sync": "local-sync",
    "vmvx": "local-task",
    "vulkan": "vulkan",
    "cuda": "cuda",
}

DEVICES: Final = tuple(_DRIVERS)
"""Names of the devices that modules run on."""

IREE_ERRORS: Final = (RuntimeError, ValueError, IndexError, KeyError, OSError, MemoryError, TypeError)
"""Errors of the runtime's binding, by the status code of the failure."""

MOST_BINDINGS: Final = MappingProxyType({name: 16 if name == "cuda" else 32 for name in _DRIVERS})
"""Tensors that a fused op may take, by the device of IREE 3.13."""

_COPIED: Final = 64 * 2**20  # bytes up to which a module is copied; one with its weights inline is larger
_LONGEST_REASON: Final = 300  # characters; IREE spells out whole target descriptions

LAVAPIPE: Final = "llvmpipe"  # device name of Mesa's CPU driver for Vulkan
"""Name of the device of Mesa's driver for Vulkan on CPUs."""


def _contents(path: Path) -> mmap.mmap:
    """Returns a compiled module in memory: a copy, which a change of the file does not reach; of a large one a map."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > _COPIED:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        contents = mmap.mmap(-1, size)
        if file.readinto(contents) != size:
            raise OSError(f"{path} was changed while it was loaded")
        return contents


class Device:
    """Open device, which sessions may share.

    ``local-task`` uses as many worker threads as the machine has physical cores; ``local-sync`` computes on the
    calling thread. Both work in host memory: only NumPy arrays are copied in and out.

    Attributes:
        name: one of ``DEVICES``.
        hal: IREE's object.
    """

    # Longest wait for a module that somebody has when its device goes; workers need microseconds. The class has it:
    # names of a Python module may be gone when the interpreter ends.
    _RELEASE_S: ClassVar[float] = 30.0

    def __init__(self, name: str) -> None:
        """Opens the device.

        Raises:
            DeviceError: the name is unknown, or the device is not available on this machine.
        """
        present, reason = available(name)
        if not present:
            raise DeviceError(f"device {name!r} is not available: {reason}; available: {', '.join(_present())}")
        self.name: Final = name
        self.hal: Final = runtime.get_driver(_DRIVERS[name]).create_default_device()
        self._context: Final = CudaContext() if _DRIVERS[name] == "cuda" else None
        # Contents of modules, by locks that are held while somebody has the module.
        self._mapped: Final[dict[threading.Lock, mmap.mmap]] = {}

    def map_module(self, instance: runtime.VmInstance, path: Path) -> runtime.VmModule:
        """Loads a compiled module that is to run on this device, which waits for its release before it goes itself.

        A worker of ``local-task`` may be the last to have the module: it cleans up after a call has returned its
        results. IREE 3.13 takes Python's lock to release a module, and holds it while a device waits for its workers.
        """
        contents = _contents(path)
        in_use = threading.Lock()
        in_use.acquire()
        # After this call a worker must not wait for Python's lock once more. So it runs no Python code, which may give
        # the lock up, and the worker's is not the last reference to the mapping, whose end gives it up.
        module = runtime.VmModule.wrap_buffer(instance, contents, in_use.release)
        for lock in list(self._mapped):
            if not lock.locked():
                self._mapped.pop(lock, None)
        self._mapped[in_use] = contents
        return module

    def __del__(self) -> None:
        for lock in getattr(self, "_mapped", ()):  # there is none if opening it failed
            if not lock.acquire(timeout=self._RELEASE_S):
                break

    @property
    def is_local(self) -> bool:
        """True if it computes in host memory."""
        return _DRIVERS[self.name].startswith("local-")

    def turns(self) -> contextlib.AbstractContextManager[object]:
        """Returns a lock, which a thread may take again, under which any thread can use the device."""
        return threading.RLock() if self._context is None else DeviceLock(self._context)

    def __repr__(self) -> str:
        return f"Device({self.name!r})"


@functools.cache
def available(name: str) -> tuple[bool, str]:
    """Returns whether a device can be opened on this machine, and its driver or the reason why not.

    Raises:
        DeviceError: the device is unknown.

    >>> available("local-sync")
    (True, "driver 'local-sync': default")
    """
    if name not in _DRIVERS:
        raise DeviceError(f"device {name!r} not found; available: {', '.join(DEVICES)}{near_names(name, DEVICES)}")
    driver = _DRIVERS[name]
    if driver not in runtime.query_available_drivers():
        return False, f"the installed IREE runtime has no driver {driver!r}"
    try:
        devices = runtime.get_driver(driver).query_available_devices()
    except (RuntimeError, ValueError) as error:
        return False, f"driver {driver!r}: {reason(error)}"
    if not devices:
        return False, f"driver {driver!r} finds no device"
    return True, f"driver {driver!r}: {devices[0]['name']}"


def vulkan_device_name() -> str | None:
    """Returns the name of the Vulkan device that sessions open, or None if there is none."""
    present, _ = available("vulkan")
    if not present:
        return None
    return str(runtime.get_driver("vulkan").query_available_devices()[0]["name"])


def too_many_buffers(count: int, cap: int) -> str:
    """Returns the message about an op with more tensors than a device can pass, with the fix."""
    return (
        f"the compiler fused a chain of ops into one that takes {count} tensors, and the device passes {cap} at "
        f"most: stack tensors that are used alike into one"
    )


def _present() -> list[str]:
    return [name for name in DEVICES if available(name)[0]]


def reason(error: BaseException) -> str:
    """Returns the first line of IREE's message, shortened and without positions in IREE's own code."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    text = re.sub(r"^.*?\w+\.(?:c|cc|h|cpp):\d+: ", "", line).strip().rstrip(";")
    return text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + "..."
