"""Runs a compiled module on a device."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import numpy as np

from compile_hlo.calls import Counters
from compile_hlo.directions import Signature
from lang_core import DeviceError, OpError, TensorSpec, as_dtype, near_names
from run_iree.compiler import target_of_device
from run_iree.devices import Device, upload
from run_iree.dump import CallDumper, Companion
from run_iree.sessions._device_tensor import DeviceTensor
from run_iree.sessions._function import Function
from run_iree.sessions._held import HeldTensors
from run_iree.sessions._host_function import HostFunction
from run_iree.sessions._program import Program
from run_iree.sessions._signature import (
    check_aliases,
    check_described,
    check_entry_points,
    signature_of_reflection,
)
from run_iree.sessions._updating import Updating


class Session:
    """Compiled module on a device, with its parameters.

    Parameters are mapped from the archive, not read: local devices use weights directly in the page cache. Neither
    file may be changed in place while the session is open; replacing it by a rename is fine. One call runs at a time;
    calls from several threads take turns. ``close`` frees everything, as does the end of a ``with`` block; any use
    afterwards raises DeviceError.

    Attributes:
        counters: calls and bytes copied so far.
    """

    def __init__(
        self,
        vmfb_path: str | os.PathLike[str],
        device: Device | str,
        *,
        parameters: str | os.PathLike[str] | None = None,
        scope: str = "model",
        signatures: Sequence[Signature] = (),
        dumper: CallDumper | None = None,
        companions: Sequence[Companion] = (),
    ) -> None:
        """Loads the module.

        Args:
            vmfb_path: path of the module, compiled for the device's target.
            device: device, or its name, one of ``DEVICES``.
            parameters: path of the archive (``.irpa``); None where the module has no external parameters.
            scope: name of the archive in the module.
            signatures: signatures of entry points, as a bundle records them, each checked against the module; an absent
                one is read from the module.
            dumper: receiver of the tensors of every call; a debug module has tags too (docs/dump.md).
            companions: other modules that run each call that is dumped, whose results must agree; closed with this
                session.

        Raises:
            InputError: a file is missing or damaged, or the archive lacks a parameter.
            DescriptionError: a recorded signature is not the module's.
            DeviceError: the device is not available or cannot run the module.
        """
        opened = Device(device) if isinstance(device, str) else device
        self._device: Final = opened.name
        self._program: Final = Program(
            Path(vmfb_path),
            opened,
            Path(parameters) if parameters is not None else None,
            scope,
            traces=dumper is not None,
        )
        self.counters: Final[Counters] = self._program.counters
        self._dumper: Final = dumper
        self._companions: Final = tuple(companions)
        self._entry_points: Final = self._program.function_names()
        self._signatures: Final = {signature.name: signature for signature in signatures}
        self._functions: Final[dict[str, Function]] = {}
        try:
            self._check_described()
        except BaseException:
            self._program.close()
            raise

    @property
    def device(self) -> str:
        """Name of the device."""
        return self._device

    @property
    def target(self) -> str:
        """Target that the module was compiled for."""
        return target_of_device(self._device)

    @property
    def module(self) -> Path:
        """Path of the module."""
        return Path(self._program.origin)

    @property
    def entry_points(self) -> tuple[str, ...]:
        """Names of the functions that can be called."""
        return self._entry_points

    @property
    def closed(self) -> bool:
        """True once ``close`` was called."""
        return self._program.closed

    def function(self, name: str) -> Function:
        """Returns an entry point to call.

        Raises:
            DeviceError: the entry point is not found, or the session is closed.
        """
        with self._program.lock:
            self._check_open(f"look up {name!r}")
            if name not in self._entry_points:
                known = ", ".join(self._entry_points)
                raise DeviceError(
                    f"{self._program.origin!r} has no entry point {name!r}; available: {known}"
                    f"{near_names(name, self._entry_points)}"
                )
            if name not in self._functions:
                self._functions[name] = Function(self._program, self._signature(name), self._dumper, self._companions)
            return self._functions[name]

    def host_function(self, name: str) -> HostFunction:
        """Returns an entry point that takes and returns NumPy arrays, at less cost than handles.

        Raises:
            DeviceError: see ``function``.
        """
        return HostFunction(self.function(name), self._program)

    def updating(self, name: str, first: int | None = None) -> Updating:
        """Returns an entry point to call on held tensors.

        Args:
            name: name of the entry point.
            first: index of the result that replaces the first donated argument; the following ones replace the
                following arguments. None where each comes back in the buffer of its argument.

        Raises:
            DeviceError: see ``function``.
        """
        return Updating(self._program, self.function(name), first)

    def hold(self, tensors: Sequence[DeviceTensor]) -> HeldTensors:
        """Returns tensors that calls take and leave in their place; the handles are dead afterwards.

        Raises:
            DeviceError: the session is closed; a tensor is dead, of another session, or passed twice.
        """
        with self._program.lock:
            self._check_open("hold tensors")
            for tensor in tensors:
                tensor.check("hold")
                if tensor.program is not self._program:
                    raise DeviceError(f"cannot hold a tensor of another session ({tensor.spec}); upload its .numpy()")
            if len({tensor.key for tensor in tensors}) < len(tensors):
                raise DeviceError("cannot hold a tensor twice: hold a copy (session.upload(tensor.numpy()))")
            return HeldTensors(self._program, tensors)

    def upload(self, array: np.ndarray) -> DeviceTensor:
        """Copies an array of any shape to the device.

        Raises:
            DeviceError: the session is closed, or the array's dtype is not supported.
        """
        with self._program.lock:
            self._check_open("upload an array")
            assert self._program.device is not None
            try:
                spec = TensorSpec(array.shape, as_dtype(array.dtype))
            except OpError as error:
                raise DeviceError(f"cannot upload an array of shape {array.shape}: {error}") from error
            key = next(self._program.keys)
            self._program.views[key] = upload(self._program.device.hal, array, spec)
        self.counters.bytes_in += spec.nbytes
        return DeviceTensor(self._program, key, spec)

    def zeros(self, spec: TensorSpec) -> DeviceTensor:
        """Allocates a tensor of zeros on the device, for example an empty key/value cache.

        Raises:
            DeviceError: the session is closed.
        """
        return self.upload(np.zeros(spec.shape, spec.dtype.numpy))

    def close(self) -> None:
        """Frees the module, the parameters and every tensor; closing twice is allowed."""
        self._program.close()
        for companion in self._companions:
            companion.close()

    def __enter__(self) -> Self:
        self._check_open("enter it")
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({self._program.origin!r}, {self._device!r}{', closed' if self.closed else ''})"

    def _check_open(self, action: str) -> None:
        if self._program.closed:
            raise DeviceError(f"cannot {action}: the session on {self._program.origin!r} is closed; open a new one")

    def _check_described(self) -> None:
        origin = self._program.origin
        check_entry_points(tuple(self._signatures.values()), self._entry_points, origin)
        for name, signature in self._signatures.items():
            check_described(signature, self._program.reflection(name), origin)
            check_aliases(signature)

    def _signature(self, name: str) -> Signature:
        recorded = self._signatures.get(name)
        return signature_of_reflection(name, self._program.reflection(name)) if recorded is None else recorded
