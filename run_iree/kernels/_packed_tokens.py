"""Y = X W^T of several tokens with packed weights: each row of W is read once, and its integers serve all tokens.

A token's results have the same bits as those of the kernel for one token, which has the same steps (``RowSteps``):
``_token_lines.py`` has them for a tile of tokens at once. A workgroup goes along a group of rows of W a part at a time,
so that x of the tile's part stays in the first cache, and keeps the rows' sums beside it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from run_iree.kernels._lines import Buffer
from run_iree.kernels._packed_matvec import RowSteps
from run_iree.kernels._text import CpuKernel, constants, indented, own_rows, share, wanted_workgroups
from run_iree.kernels._token_loop import TokenLoop
from run_iree.kernels._token_x import TokenX

_X_BYTES: Final = 20 << 10  # of x of a tile's part, in the first cache
_FEW: Final = 16  # tokens whose products wait for memory

MakeSteps = Callable[[int | None], RowSteps]


def packed_tokens(
    name: str,
    sizes: tuple[int, int, int],
    buffers: tuple[Buffer, ...],
    make: MakeSteps,
    *,
    tile: int,
    ahead: int,
    parts_apart: bool = False,
) -> CpuKernel:
    """Builds the kernel of y [T, N] of x of T tokens and w.

    Args:
        name: name of the kernel; a dot, and then the parameters of the order of x beside its shape.
        sizes: T, N, K.
        buffers: x of T tokens in the given form; w and y.
        make: returns the steps for one token, with x of so many prepared at a time, or of as many as the stack takes.
        tile: most tokens at once.
        ahead: prefetch distance in bytes.
        parts_apart: whether to go along a row once for each part of a sum, so that those of a tile fit registers.
    """
    (tokens, outputs, columns), (*given, w, y) = sizes, buffers
    of_token, one = tuple(replace(buffer, elements=buffer.elements // tokens) for buffer in given), make(None)
    count = -(-columns // one.width)
    ranges = 1 if one.most is None else -(-count // one.most)  # whose sums are added up in f32, as for one token
    width, tiles = -(-count // ranges), -(-tokens // tile)
    tile = -(-tokens // tiles)
    parts = -(-width * tile * sum(memory.bytes for memory in make(1).kept) // _X_BYTES)
    steps = make(-(-width // max(1, parts)))
    loop = TokenLoop(TokenX(tokens, columns, of_token, steps, width, count), w, y, tile, ahead, parts_apart)
    own, workgroups = share(outputs, loop.group, wanted_workgroups(w.bytes) if tokens <= _FEW else outputs)
    numbers = [1, *steps.numbers, *loop.numbers, own, outputs, loop.group, tile, tiles, tokens, tokens - tile]
    body = f"""\
{constants(numbers)}
{indented([*loop.x.viewed(), *steps.before, *loop.room()], 0)}
%none = arith.constant dense<0.0> : {loop.sums}
%zero = arith.constant 0.0 : f32
{own_rows(own, outputs)}
scf.for %band = %first to %end step %c{loop.group} {{
  %band_most = arith.addi %band, %c{loop.group} : index
  %band_end = arith.minui %band_most, %end : index
  scf.for %tile = %c0 to %c{tiles} step %c1 {{
    %token_even = arith.muli %tile, %c{tile} : index
    %token = arith.minui %token_even, %c{tokens - tile} : index
{indented(loop.of_tile(), 4)}
  }}
}}
"""
    arrangement = loop.x.arrangement(f"{name.replace('-', '_')}.{of_token[0].elements}.{tokens}x{columns}")
    return CpuKernel(name.partition(".")[0], (loop.x.made, w, y), workgroups, body, arrangement)
