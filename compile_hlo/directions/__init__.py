"""Directions: which tensor arguments of entry points and kernels are read, and which are written.

Facts of the program, found by following buffers through it (docs/design/0007-directions.md).
"""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from compile_hlo.directions._dataflow import origins_of
    from compile_hlo.directions._direction import (
        Direction,
        KernelArgument,
        KernelResult,
        WrittenAt,
        joined,
    )
    from compile_hlo.directions._events import NONE, Event, Events, Origin, Origins, add_all, updates_old
    from compile_hlo.directions._function import (
        FunctionFlow,
        StretchFlow,
        StretchUses,
        check_declared,
        directions_of,
        graph_directions,
        tensor_roots,
    )
    from compile_hlo.directions._kernel_signature import Attribute, KernelSignature
    from compile_hlo.directions._overlaps import (
        SHARED,
        FunctionOverlaps,
        Reach,
        StretchOverlaps,
        Update,
        stretch_overlaps,
    )
    from compile_hlo.directions._reflection import DECLARATION, REFLECTION, reflected
    from compile_hlo.directions._signature import LoweredArgument, LoweredResult, Signature, signature_of

export_lazily(__name__)
