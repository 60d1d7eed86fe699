"""y = W x of one token, for CPUs with AVX-512 VNNI: at the speed of memory."""

from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._packed_matvec import packed_matvec
from run_iree.kernels._packed_row import packed_buffers
from run_iree.kernels._text import Kernel, wanted_workgroups
from run_iree.kernels._vnni_k_steps import q4_k_steps, q6_k_steps
from run_iree.kernels._vnni_steps import block_steps

NAME: Final = "avx512-vnni-matvec"


def fits_matvec(columns: int, encoding: Encoding) -> bool:
    """Whether there is a kernel for so many columns: for whole steps."""
    return columns % max(encoding.block, 2 * BLOCK) == 0


def matvec_kernel(outputs: int, columns: int, encoding: Encoding, dtype: str, *, ahead: int) -> Kernel:
    """q i8 [columns], scale f32, total i32 [columns / 32], w [outputs, bytes]: y [outputs]; see ``fits_matvec``.

    Args:
        outputs: how many.
        columns: how many.
        encoding: of w.
        dtype: of y.
        ahead: how many bytes ahead memory is asked; 0 where the CPU looks ahead well enough.
    """
    buffers = packed_buffers(1, outputs, columns, encoding, dtype)
    w = buffers[3]
    make = {"q4_k": q4_k_steps, "q6_k": q6_k_steps}.get(encoding.name)
    steps = block_steps(columns, encoding, w.memref) if make is None else make(columns, w.memref)
    return packed_matvec(NAME, buffers, steps, ahead=ahead, workgroups=wanted_workgroups(w.elements))
