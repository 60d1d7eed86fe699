"""Runs a compiled module on a device."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from compile_hlo.directions import Signature
from lang_core import TensorSpec
from run_iree.devices import Device, target_of_device, upload
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
from runtime import BaseSession, CallGuard
from runtime.dump import CallDumper, Companion


class Session(BaseSession[Program, DeviceTensor, Function, Updating, HeldTensors]):
    """Compiled module on a device, with its parameters.

    Parameters are mapped from the archive, not read: local devices use weights directly in the page cache. Neither
    file may be changed in place while the session is open, unless a guard watches over it; replacing it by a rename is
    fine.
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
        guard: CallGuard | None = None,
    ) -> None:
        """Loads the module.

        Args:
            vmfb_path: path of the module, compiled for the device's target.
            device: device, or its name, one of ``DEVICES``.
            parameters: path of the archive (``.irpa``); None if the module lacks external parameters.
            scope: name of the archive in the module.
            signatures: signatures of entry points, as a bundle records them, each checked against the module; an absent
                one is read from the module.
            dumper: receiver of the tensors of every call; a debug module has tags too (docs/dump.md).
            companions: other modules that also run each dumped call, with results that must agree; closed with this
                session.
            guard: watch over the files, which is asked before each call and closed with this session.

        Raises:
            InputError: a file is missing or damaged, or the archive lacks a parameter.
            DescriptionError: a recorded signature is not the module's.
            DeviceError: the device is not available or cannot run the module.
        """
        opened = Device(device) if isinstance(device, str) else device
        self._device: Final = opened.name
        archive = Path(parameters) if parameters is not None else None
        super().__init__(
            Program(Path(vmfb_path), opened, archive, scope, traces=dumper is not None, guard=guard),
            Updating,
            HeldTensors,
        )
        self._dumper: Final = dumper
        self._companions: Final = tuple(companions)
        self._entry_points: Final = self._program.function_names()
        self._signatures: Final = {signature.name: signature for signature in signatures}
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

    def host_function(self, name: str) -> HostFunction:
        """Returns an entry point that takes and returns NumPy arrays, at less cost than handles.

        Raises:
            DeviceError: see ``function``.
        """
        return HostFunction(self.function(name), self._program)

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

    def _function(self, signature: Signature) -> Function:
        return Function(self._program, signature, self._dumper, self._companions)

    def _uploaded(self, array: np.ndarray, spec: TensorSpec) -> DeviceTensor:
        program = self._program
        assert program.device is not None
        key = next(program.keys)
        program.views[key] = upload(program.device.hal, array, spec)
        return DeviceTensor(program, key, spec)

    def _check_described(self) -> None:
        origin = self._program.origin
        check_entry_points(tuple(self._signatures.values()), self._entry_points, origin)
        for name, signature in self._signatures.items():
            check_described(signature, self._program.reflection(name), origin)
            check_aliases(signature)

    def _signature(self, name: str) -> Signature:
        recorded = self._signatures.get(name)
        return signature_of_reflection(name, self._program.reflection(name)) if recorded is None else recorded
