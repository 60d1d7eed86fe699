"""Comparison of tensors: figures of two tensors, of two dumps, the first divergence, and the table of a comparison."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.compare._agreement import (
        FORMER_ACTIVATIONS,
        PACKED,
        PACKED_Q8,
        TOLERANCE,
        Agreement,
        agreement,
        precision_of,
    )
    from tapeline.compare._comparison import ComparedTensor, Comparison, block_of, tolerance_of
    from tapeline.compare._dumps import compare_dumps, is_dump
    from tapeline.compare._tensors import compare_tensors, left_out
    from tapeline.compare._text import comparison_text, error_of

export_lazily(__name__)
