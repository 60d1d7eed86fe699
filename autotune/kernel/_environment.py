"""Environments: device, versions and flags that two runs must share to share configurations."""

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

from autotune.kernel._jax_arrays import HOST_KINDS, data_of, is_jax, is_tracer, jax_module
from autotune.kernel._specs import arrays_of
from autotune.kernel._values import short_hash
from lang_core import EagerTensor, ExecutionContext, Tensor

# Variables that change the number of threads of NumPy's and XLA's kernels, or how they compute.
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
    """Device, versions and flags with which a kernel runs.

    Attributes:
        runtime: engine: ``numpy``, ``jax``, ``iree``; ``recorded`` for a recording for an unknown device.
        platform: ``cpu``, ``gpu`` or ``tpu``; selects variants of a kernel's methods.
        device: model of the device.
        cpu: model of the CPU, and the number of threads that may run.
        versions: versions of runtime and compiler.
        flags: flags of runtime and compiler.
        mesh: description of how several devices share the work; empty for one device.
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
        """The device part of keys: ``runtime|platform|device|hash of all fields``."""
        return f"{self.runtime}|{self.platform}|{self.device.replace('|', '/')}|{short_hash(self)}"


_CHOSEN: ContextVar[Environment | None] = ContextVar("tapeline_kernel_environment", default=None)


@contextmanager
def compile_environment(environment: Environment) -> Iterator[None]:
    """Chooses configurations for another environment than this process, within a ``with`` block that records."""
    token = _CHOSEN.set(environment)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


@cache
def cpu_model() -> str:
    """Returns the CPU's name and the number of threads that this process may run."""
    name = platform.processor() or platform.machine()
    path = Path("/proc/cpuinfo")
    if path.is_file():
        fields = [line.partition(":") for line in path.read_text(errors="replace").splitlines()]
        name = next((value.strip() for key, _, value in fields if key.strip() == "model name"), name)
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {threads} threads"


@cache
def host_environment() -> Environment:
    """Returns the environment of NumPy in this process."""
    python = f"python {sys.version_info.major}.{sys.version_info.minor}"
    versions = (f"numpy {np.__version__}", f"ml_dtypes {ml_dtypes.__version__}", python)
    return Environment("numpy", "cpu", cpu_model(), cpu_model(), versions, flags_of(_FLAGS))


@cache
def recorded_environment() -> Environment:
    """Returns the environment of a recording for an unknown device."""
    return replace(host_environment(), runtime="recorded")


def flags_of(names: Iterable[str]) -> tuple[str, ...]:
    """Returns those environment variables that are set, as ``NAME=value``."""
    return tuple(f"{name}={os.environ[name]}" for name in names if name in os.environ)


def environment_of(arrays: Iterable[Any]) -> Environment:
    """Returns the environment of a call, by its first array of JAX or recorded value; NumPy's if it has neither."""
    chosen = _CHOSEN.get()
    if chosen is not None:
        return chosen
    for value in arrays:
        kind = type(value)
        if kind in HOST_KINDS:
            continue
        if kind is list or kind is tuple or kind is dict:
            inside = environment_of(arrays_of(value))
            if inside is not host_environment():
                return inside
        elif is_jax(value):
            return _jax_environment(value)
        elif isinstance(value, Tensor):
            if is_jax(data_of(value)):
                return _jax_environment(data_of(value))
            if not isinstance(value, EagerTensor):
                return recorded_environment()
        elif isinstance(value, ExecutionContext) and value.isRecording:
            return recorded_environment()
    return host_environment()


def _jax_environment(array: Any) -> Environment:
    wide = bool(jax_module().config.jax_enable_x64)
    if is_tracer(array):
        return _jax_on(None, "", wide)
    devices = array.devices()
    return _jax_on(next(iter(devices)), repr(array.sharding) if len(devices) > 1 else "", wide)


@cache
def _jax_on(device: Any, mesh: str, wide: bool) -> Environment:
    jax = jax_module()
    device = jax.devices()[0] if device is None else device
    platform_name = str(device.platform)
    lib = sys.modules.get("jaxlib")
    versions = (f"jax {jax.__version__}", f"jaxlib {getattr(lib, '__version__', '')}", f"numpy {np.__version__}")
    kind = {"cuda": "gpu", "rocm": "gpu"}.get(platform_name, platform_name)
    flags = (*flags_of(_JAX_FLAGS), f"x64={wide}")
    return Environment("jax", kind, str(device.device_kind), cpu_model(), versions, flags, mesh)


def device_fingerprint(*arrays: Any) -> str:
    """Returns the device part of the key of a call with these arrays; NumPy's in this process if there are none."""
    return environment_of(arrays).fingerprint


def get_device_platform(*arrays: Any) -> str:
    """Returns the platform of a call with these arrays: ``cpu``, ``gpu`` or ``tpu``."""
    return environment_of(arrays).platform
