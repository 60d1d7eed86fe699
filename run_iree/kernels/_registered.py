"""Kernels of other packages, by kind of helper function and instruction set."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from compile_hlo.directions import KernelSignature
from compile_hlo.emit import helper_kinds
from lang_core import ConfigError, load_plugins, near_names
from run_iree.kernels._instruction_sets import instruction_sets
from run_iree.kernels._text import CpuKernel

KernelBuilder = Callable[[KernelSignature], CpuKernel | None]
"""Function that builds the kernel of a helper function; it returns None for sizes and dtypes that it is not for."""


@dataclass(frozen=True, slots=True)
class RegisteredKernel:
    """Kernel that another package registered.

    Attributes:
        kind: kind of the helper functions that it computes.
        instruction_set: name of the instruction set that it needs; None if it runs on any CPU.
        build: function that builds it.
    """

    kind: str
    instruction_set: str | None
    build: KernelBuilder


_KERNELS: Final[dict[tuple[str, str | None], RegisteredKernel]] = {}


def register_kernel(kind: str, build: KernelBuilder, *, instruction_set: str | None = None) -> RegisteredKernel:
    """Registers and returns a CPU kernel, for a kind of helper functions of the caller's or of this tree.

    Registered kernels are asked before this tree's: first those with the most features.

    Args:
        kind: kind of the helper functions, one of ``compile_hlo.emit.helper_kinds()``.
        build: function that builds the kernel from the record of a helper function, with attributes and specs.
        instruction_set: name of the instruction set that it needs; None if it runs on any CPU.

    Raises:
        ConfigError: the kind or the instruction set is unknown, or they have a registered kernel.
    """
    if kind not in helper_kinds():
        raise ConfigError(
            f"CPU kernel: kind of helper function {kind!r} not found; available: {', '.join(helper_kinds())}"
            f"{near_names(kind, helper_kinds())}; register_helper of compile_hlo.emit adds one"
        )
    names = _features()
    if instruction_set is not None and instruction_set not in names:
        raise ConfigError(
            f"CPU kernel of {kind!r}: instruction set {instruction_set!r} not found; available: {', '.join(names)}"
            f"{near_names(instruction_set, names)}; register_instruction_set adds one"
        )
    if (kind, instruction_set) in _KERNELS:
        raise ConfigError(
            f"CPU kernel of {kind!r} for {instruction_set or 'any CPU'} is registered already: there is one for each "
            f"instruction set"
        )
    kernel = _KERNELS[kind, instruction_set] = RegisteredKernel(kind, instruction_set, build)
    return kernel


def registered_kernels(kind: str | None = None) -> Iterator[RegisteredKernel]:
    """Yields the registered kernels in the order in which they are asked.

    Args:
        kind: kind of helper functions; all kinds if None.

    Raises:
        PluginError: an installed plugin cannot be loaded.
    """
    load_plugins()
    features = _features()
    kernels = [kernel for kernel in _KERNELS.values() if kind in (None, kernel.kind)]
    yield from sorted(kernels, key=lambda kernel: -features.get(kernel.instruction_set or "", 0))


def _features() -> dict[str, int]:
    """Returns the number of features of each instruction set, by name."""
    return {instructions.name: len(instructions.features) for instructions in instruction_sets()}
