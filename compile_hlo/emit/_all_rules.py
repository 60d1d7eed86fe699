"""Rules of all ops: importing this module registers them."""

from compile_hlo.emit import (
    _cached_attention,
    _contract,
    _control,
    _conv,
    _elementwise,
    _erf,
    _indexing,
    _norm,
    _order,
    _packed,
    _packed_experts,
    _quantize,
    _reduce,
    _shape,
    _tag,
)
from compile_hlo.emit._emitter import CHAINS, RULES

del (
    _cached_attention,
    _contract,
    _control,
    _conv,
    _elementwise,
    _erf,
    _indexing,
    _norm,
    _order,
    _packed,
    _packed_experts,
    _quantize,
    _reduce,
    _shape,
    _tag,
)

__all__ = ["CHAINS", "RULES"]
