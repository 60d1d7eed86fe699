"""Runs a bundle's portable artifact on JAX's devices."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import numpy as np

from compile_hlo.calls import Counters
from compile_hlo.directions import Signature
from lang_core import DescriptionError, DeviceError, OpError, TensorSpec, WeightSource, as_dtype, near_names
from run_jax.sessions._device_tensor import DeviceTensor
from run_jax.sessions._function import Function
from run_jax.sessions._held import HeldTensors
from run_jax.sessions._memory import Zeros, placed
from run_jax.sessions._partitions import Partitions, single
from run_jax.sessions._program import Program
from run_jax.sessions._updating import Updating


class Session:
    """Portable artifact on devices of JAX, with its parameters; the interface is that of ``run_iree.Session``.

    XLA compiles an entry point when it is first called. Parameters are read when an entry point that uses them is
    compiled, by each device its part. One call runs at a time; calls from several threads take turns. ``close`` frees
    everything, as does the end of a ``with`` block; any use afterwards raises DeviceError.

    Attributes:
        counters: calls and bytes copied so far.
    """

    def __init__(
        self,
        artifact: str | os.PathLike[str],
        *,
        signatures: Sequence[Signature],
        weights: WeightSource | None = None,
        parameters: Sequence[str] = (),
        partitions: Partitions | None = None,
    ) -> None:
        """Reads the artifact, and no parameter yet.

        Args:
            artifact: path of the portable artifact (``module.vhlo``).
            signatures: signatures of its entry points, as a bundle records them.
            weights: source of the parameters, which the session keeps; None where the module has none.
            parameters: names of all parameters; an entry point takes them behind its arguments, in this order, unless
                its signature names those that it takes.
            partitions: devices, and what each holds; JAX's first device where None.

        Raises:
            InputError: the file is missing.
            VerificationError: it is not an artifact.
            DescriptionError: a signature's entry point is not in it.
        """
        self._program: Final = Program(Path(artifact), partitions or single(), weights, parameters)
        self.counters: Final[Counters] = self._program.counters
        self._signatures: Final = {signature.name: signature for signature in signatures}
        self._functions: Final[dict[str, Function]] = {}
        compiled = self._program.artifact.names
        for name in self._signatures:
            if name not in compiled:
                raise DescriptionError(
                    f"entry point {name!r} is described, and not found in {self._program.origin!r}; available: "
                    f"{', '.join(compiled)}{near_names(name, compiled)}: the two do not belong together: export again"
                )

    @property
    def device(self) -> str:
        """Kind of the devices: ``cpu``, ``cuda``, ``rocm`` or ``tpu``."""
        return self._program.partitions.platform

    @property
    def target(self) -> str:
        """Name of what compiles for them: ``xla-cpu``, ..."""
        return f"xla-{self.device}"

    @property
    def module(self) -> Path:
        """Path of the artifact."""
        return self._program.artifact.path

    @property
    def entry_points(self) -> tuple[str, ...]:
        """Names of the functions that can be called."""
        return tuple(self._signatures)

    @property
    def closed(self) -> bool:
        """True once ``close`` was called."""
        return self._program.closed

    @property
    def parameter_bytes(self) -> int:
        """Bytes of parameters that were read so far: those of this process's devices."""
        return self._program.parameter_bytes

    def function(self, name: str) -> Function:
        """Returns an entry point to call.

        Raises:
            DeviceError: the entry point is not found, or the session is closed.
            InputError: the mesh does not divide an argument.
        """
        with self._program.lock:
            self._check_open(f"look up {name!r}")
            if name not in self._signatures:
                raise DeviceError(
                    f"{self._program.origin!r} has no entry point {name!r}; available: {', '.join(self._signatures)}"
                    f"{near_names(name, self._signatures)}"
                )
            if name not in self._functions:
                self._functions[name] = Function(self._program, self._signatures[name])
            return self._functions[name]

    def updating(self, name: str, first: int | None = None) -> Updating:
        """Returns an entry point to call on held tensors.

        Args:
            name: name of the entry point.
            first: index of the result that replaces the first donated argument; the following ones replace the
                following arguments. None where each comes back in the buffer of its argument.

        Raises:
            DeviceError: see ``function``.
            InputError: see ``function``.
        """
        return Updating(self._program, self.function(name), first)

    def compiled_text(self, name: str) -> str:
        """Returns what XLA runs for an entry point on each device, in XLA's language: with its collectives.

        Raises:
            DeviceError: see ``function``; or XLA refuses the module.
        """
        return self.function(name).compiled.text()

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
        """Copies an array of any shape to the devices, whole to each.

        Raises:
            DeviceError: the session is closed, or the array's dtype is not supported.
        """
        with self._program.lock:
            self._check_open("upload an array")
            try:
                spec = TensorSpec(array.shape, as_dtype(array.dtype))
            except OpError as error:
                raise DeviceError(f"cannot upload an array of shape {array.shape}: {error}") from error
            tensor = DeviceTensor(self._program, self._program.add(placed(array, self._program.partitions.whole)), spec)
        self.counters.bytes_in += spec.nbytes
        return tensor

    def zeros(self, spec: TensorSpec) -> DeviceTensor:
        """Returns a tensor of zeros on the devices, for example an empty key/value cache.

        It is allocated when it is first used, and each device holds what that use wants of it.

        Raises:
            DeviceError: the session is closed.
        """
        with self._program.lock:
            self._check_open("allocate a tensor")
            program = self._program
            return DeviceTensor(program, program.add(Zeros(spec, program.partitions.whole)), spec)

    def close(self) -> None:
        """Frees the parameters and every tensor; closing twice is allowed."""
        self._program.close()

    def __enter__(self) -> Self:
        self._check_open("enter it")
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({self._program.origin!r}, {self.device!r}{', closed' if self.closed else ''})"

    def _check_open(self, action: str) -> None:
        if self._program.closed:
            raise DeviceError(f"cannot {action}: the session on {self._program.origin!r} is closed; open a new one")
