"""Where a kernel runs: what two runs must share for a configuration of one to be good for the other."""

import os
import platform
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np

from autotune.kernel._jax_arrays import HOST_KINDS, is_jax, is_tracer, jax_module
from autotune.kernel._specs import arrays_of, short_hash
from lang_core import EagerTensor, ExecutionContext, Tensor

# What decides how many threads NumPy's and XLA's kernels take, and how they compute.
_FLAGS: Final = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "OPENBLAS_CORETYPE",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_JAX_FLAGS: Final = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "JAX_DEFAULT_MATMUL_PRECISION", "JAX_ENABLE_X64")


@dataclass(frozen=True)
class Environment:
    """Device, versions and flags.

    Attributes:
        runtime: what runs the kernel: ``numpy``, ``jax``, ``iree``.
        platform: ``cpu``, ``gpu`` or ``tpu``: which variants of a kernel's methods are taken.
        device: the device's model.
        cpu: the CPU's model, and how many threads may run.
        versions: of runtime and compiler.
        flags: of runtime and compiler.
        mesh: how several devices share the work; empty for one.
    """

    runtime: str
    platform: str
    device: str
    cpu: str
    versions: tuple[str, ...]
    flags: tuple[str, ...] = ()
    mesh: str = ""

    @cached_property
    def fingerprint(self) -> str:
        """``runtime|platform|device|hash of all``: the device part of keys."""
        return f"{self.runtime}|{self.platform}|{self.device.replace('|', '/')}|{short_hash(self)}"


_CHOSEN: ContextVar[Environment | None] = ContextVar("tapeline_kernel_environment", default=None)


@contextmanager
def compile_environment(environment: Environment) -> Iterator[None]:
    """Says where what is recorded inside will run: configurations are chosen for that, not for this process."""
    token = _CHOSEN.set(environment)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


@cache
def cpu_model() -> str:
    """The CPU's name, and how many threads this process may run."""
    name = platform.processor() or platform.machine()
    path = Path("/proc/cpuinfo")
    if path.is_file():
        fields = [line.partition(":") for line in path.read_text(errors="replace").splitlines()]
        name = next((value.strip() for key, _, value in fields if key.strip() == "model name"), name)
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {threads} threads"


@cache
def host_environment() -> Environment:
    """NumPy in this process."""
    python = f"python {sys.version_info.major}.{sys.version_info.minor}"
    versions = (f"numpy {np.__version__}", f"ml_dtypes {ml_dtypes.__version__}", python)
    return Environment("numpy", "cpu", cpu_model(), cpu_model(), versions, flags_of(_FLAGS))


@cache
def recorded_environment() -> Environment:
    """A recording that does not say where it will run."""
    return replace(host_environment(), runtime="recorded")


def flags_of(names: Iterable[str]) -> tuple[str, ...]:
    """Those environment variables that are set, as ``NAME=value``."""
    return tuple(f"{name}={os.environ[name]}" for name in names if name in os.environ)


def environment_of(arrays: Iterable[Any]) -> Environment:
    """Where a call with these arguments runs: by the first array of a library, or context that records."""
    chosen = _CHOSEN.get()
    if chosen is not None:
        return chosen
    for each in arrays:
        kind = type(each)
        if kind in HOST_KINDS:
            continue
        if kind is list or kind is tuple or kind is dict:
            inside = environment_of(arrays_of(each))
            if inside is not host_environment():
                return inside
        elif is_jax(each):
            return _jax_environment(each)
        elif isinstance(each, Tensor):
            if not isinstance(each, EagerTensor):
                return recorded_environment()
        elif isinstance(each, ExecutionContext) and each.isRecording:
            return recorded_environment()
    return host_environment()


def _jax_environment(array: Any) -> Environment:
    if is_tracer(array):
        return _jax_on(None, "")
    devices = array.devices()
    return _jax_on(next(iter(devices)), repr(array.sharding) if len(devices) > 1 else "")


@cache
def _jax_on(device: Any, mesh: str) -> Environment:
    jax = jax_module()
    device = jax.devices()[0] if device is None else device
    platform_name = str(device.platform)
    lib = sys.modules.get("jaxlib")
    versions = (f"jax {jax.__version__}", f"jaxlib {getattr(lib, '__version__', '')}", f"numpy {np.__version__}")
    kind = {"cuda": "gpu", "rocm": "gpu"}.get(platform_name, platform_name)
    flags = (*flags_of(_JAX_FLAGS), f"x64={jax.config.jax_enable_x64}")
    return Environment("jax", kind, str(device.device_kind), cpu_model(), versions, flags, mesh)


def device_fingerprint(*arrays: Any) -> str:
    """The device part of a key: of a call with these arrays, of NumPy in this process where there are none."""
    return environment_of(arrays).fingerprint


def get_device_platform(*arrays: Any) -> str:
    """``cpu``, ``gpu`` or ``tpu``: see ``device_fingerprint``."""
    return environment_of(arrays).platform
