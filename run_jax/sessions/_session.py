"""Runs a bundle's portable artifact on JAX's devices."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from compile_hlo.directions import Signature
from lang_core import DescriptionError, TensorSpec, WeightSource, near_names
from run_jax.sessions._artifact import Artifact
from run_jax.sessions._device_tensor import DeviceTensor
from run_jax.sessions._function import Function
from run_jax.sessions._held import HeldTensors
from run_jax.sessions._memory import Zeros, placed
from run_jax.sessions._observed import Observer
from run_jax.sessions._partitions import Partitions, single
from run_jax.sessions._program import Program
from run_jax.sessions._updating import Updating
from runtime import BaseSession, CallGuard


class Session(BaseSession[Program, DeviceTensor, Function, Updating, HeldTensors]):
    """Portable artifact on devices of JAX, with its parameters.

    XLA compiles an entry point when it is first called. Parameters are read when an entry point that uses them is
    compiled, by each device its part.
    """

    def __init__(
        self,
        artifact: str | os.PathLike[str],
        *,
        signatures: Sequence[Signature],
        weights: WeightSource | None = None,
        parameters: Sequence[str] = (),
        partitions: Partitions | None = None,
        observer: Observer | None = None,
        traced_text: str | None = None,
        guard: CallGuard | None = None,
    ) -> None:
        """Reads the artifact, but not yet parameters.

        Args:
            artifact: path of the portable artifact (``module.vhlo``).
            signatures: signatures of its entry points, as a bundle records them.
            weights: source of the parameters, which the session keeps; None if the module has none.
            parameters: names of all parameters; an entry point takes them behind its arguments, in this order, unless
                its signature names those that it takes.
            partitions: devices and their shards; JAX's first device if None.
            observer: receiver of the tensors of every call; closed with this session.
            traced_text: StableHLO text with traces, made of the file at ``artifact``, which runs in its place.
            guard: watch over the file of the weights, which is asked before each call and closed with this session.

        Raises:
            InputError: the file is missing.
            VerificationError: it is not an artifact.
            DescriptionError: a signature's entry point is not in it.
        """
        opened = Artifact(Path(artifact), traced_text)
        program = Program(opened, partitions or single(), weights, parameters, observer, guard)
        super().__init__(program, Updating, HeldTensors)
        self._signatures: Final = {signature.name: signature for signature in signatures}
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
        """Name of their compiler: ``xla-cpu``, ..."""
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
    def parameter_bytes(self) -> int:
        """Bytes of parameters that were read so far: those of this process's devices."""
        return self._program.parameter_bytes

    def compiled_text(self, name: str) -> str:
        """Returns the HLO that XLA runs for an entry point on each device, with its collectives.

        Raises:
            DeviceError: see ``function``; or XLA refuses the module.
        """
        return self.function(name).compiled.text()

    def zeros(self, spec: TensorSpec) -> DeviceTensor:
        """Returns a tensor of zeros on the devices, for example an empty key/value cache.

        It is allocated when it is first used, and each device holds the shard that the use needs.

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
        if self._program.observer is not None:
            self._program.observer.close()

    def _signature(self, name: str) -> Signature:
        return self._signatures[name]

    def _function(self, signature: Signature) -> Function:
        return Function(self._program, signature)

    def _uploaded(self, array: np.ndarray, spec: TensorSpec) -> DeviceTensor:
        program = self._program
        return DeviceTensor(program, program.add(placed(array, program.partitions.whole)), spec)
