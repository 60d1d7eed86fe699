"""Directions: which tensor arguments of entry points and kernels are read, and which are written.

Facts of the program, found by following buffers through it (docs/design/0007-directions.md).
"""

from compile_hlo.directions._dataflow import NONE, Origin, Origins, origins_of
from compile_hlo.directions._direction import (
    ArgumentDirection,
    Direction,
    KernelArgument,
    KernelResult,
    WrittenAt,
    joined,
)
from compile_hlo.directions._function import (
    FunctionFlow,
    StretchFlow,
    check_declared,
    in_place_arguments,
    in_place_of,
)
from compile_hlo.directions._kernel import Kernel

__all__ = [
    "NONE",
    "ArgumentDirection",
    "Direction",
    "FunctionFlow",
    "Kernel",
    "KernelArgument",
    "KernelResult",
    "Origin",
    "Origins",
    "StretchFlow",
    "WrittenAt",
    "check_declared",
    "in_place_arguments",
    "in_place_of",
    "joined",
    "origins_of",
]
