"""y = W x of one token, for CPUs with AVX2, FMA and F16C."""

from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._avx2_k_steps import q4_k_steps, q6_k_steps
from run_iree.kernels._avx2_steps import q4_0_steps, q8_0_steps
from run_iree.kernels._packed_matvec import packed_matvec
from run_iree.kernels._packed_row import packed_buffers
from run_iree.kernels._text import Kernel, wanted_workgroups

NAME: Final = "avx2-matvec"
# Of Q4_0 and Q4_K each column takes 9 bytes of the stack for 8, and a kernel may have 32 KiB.
_MOST_COLUMNS: Final = 28672
_STEPS: Final = {"q4_0": q4_0_steps, "q8_0": q8_0_steps, "q4_k": q4_k_steps, "q6_k": q6_k_steps}


def fits_avx2_matvec(columns: int, encoding: Encoding) -> bool:
    """Whether there is a kernel for so many columns: for whole steps."""
    return columns % max(encoding.block, 2 * BLOCK) == 0 and columns <= _MOST_COLUMNS


def avx2_matvec_kernel(outputs: int, columns: int, encoding: Encoding, dtype: str, *, ahead: int) -> Kernel:
    """q i8 [columns], scale f32, total i32 [columns / 32], w [outputs, bytes]: y [outputs]; see ``fits_avx2_matvec``.

    Args:
        outputs: how many.
        columns: how many.
        encoding: of w.
        dtype: of y.
        ahead: how many bytes ahead memory is asked.
    """
    buffers = packed_buffers(1, outputs, columns, encoding, dtype)
    w = buffers[3]
    steps = _STEPS[encoding.name](columns, w.memref)
    # Each workgroup has x to arrange: half as many are faster.
    return packed_matvec(NAME, buffers, steps, ahead=ahead, workgroups=wanted_workgroups(w.elements // 2))
