"""Directions: which tensor arguments of entry points and kernels are read, and which are written.

Facts of the program, found by following buffers through it (docs/design/0007-directions.md).
"""

from compile_hlo.directions._direction import (
    ArgumentDirection,
    Direction,
    KernelArgument,
    KernelResult,
    WrittenAt,
    joined,
)
from compile_hlo.directions._function import FunctionFlow, StretchFlow, check_declared
from compile_hlo.directions._kernel import Kernel

__all__ = [
    "ArgumentDirection",
    "Direction",
    "FunctionFlow",
    "Kernel",
    "KernelArgument",
    "KernelResult",
    "StretchFlow",
    "WrittenAt",
    "check_declared",
    "joined",
]
