"""How well tensors agree, and where a computation first departs from another."""

from compile_hlo.compare._agreement import PACKED, TOLERANCE, Agreement, agreement
from compile_hlo.compare._comparison import ComparedTensor, Comparison, block_of, tolerance_of
from compile_hlo.compare._dumps import compare_dumps
from compile_hlo.compare._tensors import compare_tensors, left_out

__all__ = [
    "PACKED",
    "TOLERANCE",
    "Agreement",
    "ComparedTensor",
    "Comparison",
    "agreement",
    "block_of",
    "compare_dumps",
    "compare_tensors",
    "left_out",
    "tolerance_of",
]
