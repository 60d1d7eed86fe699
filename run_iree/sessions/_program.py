"""Loaded module with everything that IREE needs kept alive, released in the one order that does not crash."""

import atexit
import functools
import itertools
import os
import re
import threading
import weakref
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from iree import runtime

from lang_core import DeviceError, InputError
from run_iree.devices import IREE_ERRORS, Device, reason, too_many_buffers
from run_iree.sessions._parameters import load_index, read_index
from runtime import CallGuard, Counters

_ZIP_END: Final = b"PK\x05\x06"  # begins the last record of a ZIP file
_ZIP_END_BYTES: Final = 22  # size of that record, without a comment
_TOO_MANY_BUFFERS: Final = re.compile(
    r"binding count (\d+) > (\d+)|binding_flags count (\d+) exceeds maximum of (\d+)|"
    r"declares (\d+) storage buffers, exceeding device limit (\d+)"
)

_MANY: Final = 256


Tracer = Callable[[str, Sequence[runtime.HalBufferView]], None]


class Releasable(Protocol):
    """Holder of an object of IREE."""

    def release(self) -> None:
        """Lets go of the object."""
        ...


class Program:
    """Owner of a context and of every buffer that a session hands out.

    Handles name their buffer by a key into ``views`` and do not hold objects of IREE: a buffer, a function or a
    reflection that outlives its context or its device ends the interpreter with SIGSEGV.

    Attributes:
        views: live buffers, by the keys of handles.
        prepared: prepared calls by key.
        counters: calls and bytes copied so far.
        held: references to the buffers of held tensors.
        lock: lock held while IREE works on the context.
        tracer: callback with the name and the buffers of each trace, during a call; it must not raise.
        device: None once closed.
    """

    def __init__(
        self,
        vmfb_path: Path,
        device: Device,
        parameters: Path | None,
        scope: str,
        *,
        traces: bool = False,
        guard: CallGuard | None = None,
    ) -> None:
        """Loads the module.

        Raises:
            InputError: a file is missing or damaged, or the archive lacks a parameter.
            DeviceError: the device cannot run the module.
        """
        self.origin: Final = str(vmfb_path)
        self.views: Final[dict[int, runtime.HalBufferView]] = {}
        self.held: Final[dict[int, list[runtime.VmRef]]] = {}
        self._releasable: Final[list[weakref.ref[Releasable]]] = []
        self._prune_at = _MANY
        self.prepared: Final[dict[str, Any]] = {}
        self.counters: Final = Counters()
        self.keys: Final = itertools.count()
        self.lock: Final = device.turns()
        self.device: Device | None = device
        self._guard: Final = guard
        if guard is not None:
            guard.bind(self.lock)
        self._functions: Final[dict[str, runtime.VmFunction]] = {}
        self._modules: Final[list[runtime.VmModule]] = []
        self._context: runtime.VmContext | None = None
        self._instance: runtime.VmInstance | None = vm_instance()
        self._index: runtime.ParameterIndex | None = None
        self.tracer: Tracer | None = None
        # A weak reference: the garbage collector does not see cycles through IREE's objects.
        self._sink = runtime.HalModuleDebugSink(_Traces(weakref.ref(self))) if traces else None
        try:
            with self.lock:
                self._load(vmfb_path, device, parameters, scope)
        except BaseException:
            self.close()
            raise
        _OPEN.add(self)

    def _load(self, vmfb_path: Path, device: Device, parameters: Path | None, scope: str) -> None:
        assert self._instance is not None
        check_module_file(vmfb_path)
        self._modules.append(runtime.create_hal_module(self._instance, device.hal, debug_sink=self._sink))
        if parameters is not None:
            maps = self._guard is None or self._guard.holds_writers() or not device.is_local
            self._index = load_index(parameters) if maps else read_index(parameters)
            provider = self._index.create_provider(scope=scope)
            self._modules.append(runtime.create_io_parameters_module(self._instance, provider))
        failure = ""
        try:
            self._modules.append(device.map_module(self._instance, vmfb_path))
            self._context = runtime.VmContext(self._instance, modules=self._modules)
        except IREE_ERRORS as error:
            failure = reason(error)
        if failure:
            archive = f"parameters {str(parameters)!r}, scope {scope!r}" if parameters else "no parameter archive"
            kind = InputError if "parameter" in failure else DeviceError
            raise kind(f"cannot load {str(vmfb_path)!r} on {device.name} with {archive}: {failure}{_hint(failure)}")

    @property
    def closed(self) -> bool:
        """True once ``close`` was called."""
        return self.device is None

    def function_names(self) -> tuple[str, ...]:
        """Returns the names of the public functions."""
        return tuple(name for name in self._modules[-1].function_names if not name.startswith("__"))

    def reflection(self, name: str) -> dict[str, str]:
        """Returns a copy of the reflection of a function in the module."""
        return dict(self._function(name).reflection)

    def _function(self, name: str) -> runtime.VmFunction:
        if name not in self._functions:
            function = self._modules[-1].lookup_function(name)
            if function is None:
                raise DeviceError(f"{self.origin!r} has no function {name!r}")
            self._functions[name] = function
        return self._functions[name]

    def check(self) -> None:
        """Raises an error if a mapped file is not the one that was loaded; the lock is held."""
        if self._guard is not None:
            self._guard.check()

    def invoke(self, name: str, inputs: runtime.VmVariantList, outputs: runtime.VmVariantList) -> None:
        """Calls a function and waits for its results; the lock is held and the program open."""
        assert self._context is not None
        self._context.invoke(self._function(name), inputs, outputs)

    def invoker(self, name: str) -> Callable[[runtime.VmVariantList, runtime.VmVariantList], None]:
        """Returns a callable for calls of a function, which only ``prepared`` may keep; the program is open."""
        assert self._context is not None
        return functools.partial(self._context.invoke, self._function(name))

    def remember(self, holder: Releasable) -> None:
        """Calls a holder's ``release`` when the program closes, if the holder still exists; the lock is held."""
        if len(self._releasable) >= self._prune_at:
            self._releasable[:] = [reference for reference in self._releasable if reference() is not None]
            self._prune_at = 2 * len(self._releasable) + _MANY
        self._releasable.append(weakref.ref(holder))

    def close(self) -> None:
        """Frees everything, waiting for a call in another thread; closing twice is allowed."""
        with self.lock:
            self.prepared.clear()
            for holder in filter(None, (reference() for reference in self._releasable)):
                holder.release()
            self._releasable.clear()
            self.held.clear()
            self.views.clear()
            self._functions.clear()
            self._context = None
            while self._modules:
                self._modules.pop()
            self._sink = None
            self._index = None
            self.device = None
            self._instance = None
        if self._guard is not None:
            self._guard.close()

    def __del__(self) -> None:
        self.close()


_INSTANCE_LOCK: Final = threading.Lock()


def vm_instance() -> runtime.VmInstance:
    """Returns the instance of IREE's virtual machine that all programs of the process share. Any thread may call it.

    A new instance registers IREE's types anew, in variables of the whole process that are empty for a moment. A call
    that another thread runs in that moment fails ("ref type mismatch") or does not return.
    """
    with _INSTANCE_LOCK:
        return _only_instance()


@functools.cache
def _only_instance() -> runtime.VmInstance:
    return runtime.VmInstance()


class _Traces:
    """Receiver of IREE's traces."""

    def __init__(self, program: "weakref.ref[Program]") -> None:
        self._program = program

    def __call__(self, key: str, views: Sequence[runtime.HalBufferView]) -> None:
        program = self._program()
        if program is not None and program.tracer is not None:
            program.tracer(key, views)


def check_module_file(path: Path) -> None:
    """Checks a ``.vmfb`` by its checksums: it is a ZIP file.

    IREE verifies the bytecode but neither the checksums nor the machine code: a damaged module may load, and end the
    process when it is called.

    Raises:
        InputError: the file is missing, truncated or damaged.
    """
    if not path.is_file():
        raise InputError(f"cannot load the module {str(path)!r}: file not found; export writes it")
    try:
        damaged = _damaged_part(path)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, OSError, RuntimeError, ValueError) as error:
        raise InputError(
            f"cannot load the module {str(path)!r}: truncated, or not a .vmfb ({error}); export again"
        ) from error
    if damaged is not None:
        raise InputError(f"cannot load the module {str(path)!r}: its part {damaged!r} is damaged; export again")


def _damaged_part(path: Path) -> str | None:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        # zipfile searches backward, and would find the directory of a ZIP file inside of this one.
        file.seek(max(size - _ZIP_END_BYTES, 0))
        if file.read(len(_ZIP_END)) != _ZIP_END:
            raise zipfile.BadZipFile("it does not end as a .vmfb does")
        with zipfile.ZipFile(file) as archive:
            parts = archive.infolist()
            if not parts or parts[0].header_offset != 0:
                raise zipfile.BadZipFile("its first part is missing")
            return archive.testzip()


_OPEN: Final[weakref.WeakSet[Program]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Closes all programs at the interpreter's exit, where a device might go before its buffers."""
    for program in list(_OPEN):
        program.close()
    _only_instance.cache_clear()


def _hint(failure: str) -> str:
    """Returns the fix for a limit of a device that the compiler does not know; empty for other failures."""
    match = _TOO_MANY_BUFFERS.search(failure)
    if match is None:
        return ""
    count, cap = (int(number) for number in match.groups() if number)
    return f": {too_many_buffers(count, cap)}"
