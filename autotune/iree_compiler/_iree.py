"""Kernels recorded, lowered to StableHLO, compiled and run by IREE."""

import dataclasses
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from autotune import (
    ArraySpec,
    CompileRequest,
    Environment,
    KernelError,
    abstractify,
    arrays_of,
    cpu_model,
    map_arrays,
    register_compiler,
    with_jax_arrays,
)
from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import Argument, EntryPoint, Tensor, TensorSpec, as_dtype
from run_iree import Device, HostFunction, Session, Target, compile_module, target_named, target_of_device
from run_iree.kernels import CpuKernels

ENTRY_POINT: Final = "main"
# Number of loaded modules that a compiler keeps for reuse.
_KEPT: Final = 32
# Fields of a target that an environment has under other names; all other fields change the code and are flags.
_TOLD: Final = ("name", "flags", "devices", "cpu")
_PLATFORMS: Final = {"vulkan": "gpu", "cuda": "gpu"}


class KernelModule:
    """Request lowered to a module with one function of its arrays.

    Attributes:
        text: StableHLO text, with the call's label as a comment.

    Raises:
        KernelError: the kernel does not take a context, or did not return an array.
    """

    def __init__(self, request: CompileRequest) -> None:
        if not request.takes_context:
            raise KernelError(
                f"kernel {request.call.kernel.op_id!r} has no argument ctx: it is not written in ctx.ops, and cannot "
                f"be recorded for StableHLO: compile it with compiler='jax', or write run(..., *, cfg, ctx)"
            )
        self._form: Any = None
        pieces: list[str] = []

        def fn(ctx: Any, *tensors: Tensor) -> Mapping[str, Tensor]:
            result = request.run(*tensors, ctx=ctx)
            self._form = abstractify(result)
            results = {f"result{number}": value for number, value in enumerate(arrays_of(result))}
            if not results:
                op = request.call.kernel.op
                raise KernelError(f"{op} returned no array: return an array, or a tuple of arrays; found {result!r}")
            return results

        arguments = tuple(Argument(f"x{i}", table_spec(spec)) for i, spec in enumerate(request.specs))
        lower_module([EntryPoint(ENTRY_POINT, fn, arguments)], pieces.append, ExternalParameters())
        self.text: Final = "".join(pieces)

    def in_form(self, results: Sequence[Any]) -> Any:
        """Returns results in the structure that the kernel returns: one array, a tuple, or another tree."""
        remaining = iter(results)
        return map_arrays(lambda _: next(remaining), self._form)

    @property
    def gives_one(self) -> bool:
        """True if the kernel returns one array."""
        return isinstance(self._form, ArraySpec)


def table_spec(spec: ArraySpec) -> TensorSpec:
    """Converts an array's spec to a ``TensorSpec``.

    Raises:
        OpError: the op table does not have its dtype.
    """
    return TensorSpec(spec.shape, as_dtype(np.dtype(spec.dtype)))


class IreeFunction:
    """Compiled kernel as a function of arrays. It returns NumPy arrays, and JAX's if an argument is JAX's.

    Attributes:
        text: StableHLO text.
        function: function of the session.
    """

    def __init__(self, module: KernelModule, session: Session) -> None:
        self.text: Final = module.text
        self.function: Final[HostFunction] = session.host_function(ENTRY_POINT)
        self._module, self._session = module, session
        self._one = module.gives_one

    def __call__(self, *arrays: Any) -> Any:
        """Runs the function.

        Raises:
            DeviceError: an array has another shape or dtype than the function was compiled for.
        """
        result = self.function.quick(arrays)
        if result is None:
            return with_jax_arrays(self._run, arrays)
        return result[0] if self._one else self._module.in_form(result)

    def _run(self, *arrays: Any) -> Any:
        result = self.function(*arrays)
        return result[0] if self._one else self._module.in_form(result)


class IreeCompiler:
    """Compiler of kernels for a device of IREE.

    Args:
        device: name of the device, one of ``run_iree.DEVICES``.
        flags: flags of the compiler, after the target's and before those of a configuration with ``compile_flags``.
        parameters: archive with the weights that kernels read; None if they read none.
        scope: name of the archive in modules.

    Attributes:
        name: ``iree``.
    """

    name = "iree"

    def __init__(
        self,
        device: str = "local-task",
        flags: Sequence[str] = (),
        parameters: Path | None = None,
        scope: str = "model",
    ) -> None:
        self._parameters, self._scope = parameters, scope
        self._target: Final = target_named(target_of_device(device))
        self._flags: Final = tuple(flags)
        self._device_name: Final = device
        self._device: Device | None = None
        self._loaded: Final[dict[str, Session]] = {}
        self._loading: Final = threading.RLock()

    def environment(self, arrays: Sequence[Any] = ()) -> Environment:
        """Returns the device, IREE's versions, and all flags of the compiler."""
        del arrays
        versions = tuple(f"{name} {version(name)}" for name in ("iree-base-compiler", "iree-base-runtime"))
        more = {name: value for name, value in dataclasses.asdict(self._target).items() if name not in _TOLD}
        flags = (*self._target.flags, *self._flags, *(f"{name}={value}" for name, value in more.items() if value))
        platform = _PLATFORMS.get(self._device_name, "cpu")
        return Environment("iree", platform, self._device_name, cpu_model(), versions, flags)

    def compile(self, request: CompileRequest) -> IreeFunction:
        """Records, lowers, compiles and loads a kernel; a configuration that is ``CpuKernels`` is that of the target.

        Raises:
            KernelError: the kernel is not written in ``ctx.ops``.
            CompileError: IREE refuses the module.
        """
        module, cfg = KernelModule(request), request.call.cfg
        flags = (*self._flags, *getattr(cfg, "compile_flags", ()))
        target = dataclasses.replace(self._target, kernels=cfg) if isinstance(cfg, CpuKernels) else self._target
        return IreeFunction(module, self._session(module.text, target, flags))

    def _session(self, text: str, target: Target, flags: tuple[str, ...]) -> Session:
        """Returns a session with the module; a module that was compiled as a candidate is reused."""
        lines = (line for line in text.splitlines() if not line.lstrip().startswith("//"))
        code = "\n".join([repr(target.kernels), *flags, *lines])
        with self._loading:  # threads may share the compiler
            return self._loaded_session(code, text, target, flags)

    def _loaded_session(self, code: str, text: str, target: Target, flags: tuple[str, ...]) -> Session:
        if code not in self._loaded:
            if self._device is None:
                self._device = Device(self._device_name)
            while len(self._loaded) >= _KEPT:
                del self._loaded[next(iter(self._loaded))]
            with tempfile.TemporaryDirectory(prefix="tapeline-kernel-") as folder:
                source, compiled = Path(folder, "kernel.mlir"), Path(folder, "kernel.vmfb")
                source.write_text(text)
                compile_module(source, compiled, target, extra_flags=flags)
                weights: dict[str, Any] = {"parameters": self._parameters, "scope": self._scope}
                self._loaded[code] = Session(compiled, self._device, **weights)
        return self._loaded[code]


register_compiler("iree", cache(IreeCompiler))
