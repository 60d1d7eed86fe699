import math

import numpy as np
import pytest

from compile_dag import ComputeGraph, record
from compile_hlo.passes import RowWrite, with_row_writes
from lang_core import ExecutionContext, Tensor, TensorSpec

ROWS, HEADS, CAPACITY, SIZE = 3, 2, 5, 4
X, NEW = TensorSpec((ROWS, HEADS, CAPACITY, SIZE), "f32"), TensorSpec((2, HEADS, 1, SIZE), "f32")


def _written(ctx: ExecutionContext, x: Tensor, lines: Tensor, new: Tensor, *where: Tensor, width: int = SIZE) -> Tensor:
    matrix = ctx.ops.reshape(x, (1, math.prod(x.shape) // width, width))
    slices = ctx.ops.reshape(new, (1, lines.shape[1], width))
    return ctx.ops.reshape(ctx.ops.put(matrix, lines, slices, 1, *where), x.shape)


def _passed(graph: ComputeGraph) -> list[RowWrite | str]:
    nodes = with_row_writes(graph.nodes, {value.number for value in graph.outputs.values()})
    return [node if isinstance(node, RowWrite) else node.op.name for node in nodes]


def test_entries_of_heads_are_one_write() -> None:
    graph = record(_written, X, TensorSpec((1, 4), "i32"), NEW, TensorSpec((1, 4), "bool"))
    (write,) = _passed(graph)
    assert isinstance(write, RowWrite)
    assert [value.shape for value in write.inputs] == [X.shape, (1, 4), NEW.shape, (1, 4)]
    assert (write.of_entries, write.results) == (True, graph.nodes[-1].results)


def test_whole_rows_are_one_write() -> None:
    new = TensorSpec((2, *X.shape[1:]), "f32")
    graph = record(
        lambda ctx, *given: _written(ctx, *given, width=math.prod(X.shape[1:])), X, TensorSpec((1, 2), "i32"), new
    )
    (write,) = _passed(graph)
    assert isinstance(write, RowWrite)
    assert not write.of_entries


def test_a_matrix_that_others_read_stays() -> None:
    def written(ctx: ExecutionContext, x: Tensor, lines: Tensor, new: Tensor) -> dict[str, Tensor]:
        matrix = ctx.ops.reshape(x, (1, ROWS * HEADS * CAPACITY, SIZE))
        put = ctx.ops.put(matrix, lines, ctx.ops.reshape(new, (1, 4, SIZE)), 1)
        return {"whole": ctx.ops.reshape(put, X.shape), "matrix": matrix}

    first, write = _passed(record(written, X, TensorSpec((1, 4), "i32"), NEW))
    assert first == "reshape"
    assert isinstance(write, RowWrite)


@pytest.mark.parametrize("shape", [(ROWS, HEADS, CAPACITY, SIZE), (ROWS, CAPACITY, HEADS, SIZE)])
def test_other_writes_stay(shape: tuple[int, ...]) -> None:
    def written(ctx: ExecutionContext, x: Tensor, lines: Tensor, new: Tensor) -> dict[str, Tensor]:
        put = ctx.ops.put(ctx.ops.reshape(x, (1, ROWS * HEADS * CAPACITY, SIZE)), lines, new, 1)
        return {"whole": ctx.ops.reshape(put, shape), "put": put}

    given = TensorSpec((1, 4), "i32"), TensorSpec((1, 4, SIZE), "f32")
    assert _passed(record(written, X, *given)) == ["reshape", "put", "reshape"]
    assert np.prod(shape) == X.size
