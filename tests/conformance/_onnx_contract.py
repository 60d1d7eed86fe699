"""Adapters of ONNX's sums of products."""

import re
from collections.abc import Sequence

from lang_core import Tensor, i32, i64
from lang_core.ops import Ops
from tests.conformance._onnx_node import Node, NotExpressible, adapts


@adapts("MatMul")
def _matmul(node: Node) -> Tensor:
    return matmul(node.ops, node.tensor(0), node.tensor(1))


def matmul(ops: Ops, x: Tensor, y: Tensor) -> Tensor:
    """numpy.matmul: the last axis of x with the one before the last of y; the axes before are batches."""
    if x.ndim == 1 or y.ndim == 1:
        return ops.dot_general(x, y, ((x.ndim - 1,), (max(y.ndim - 2, 0),)))
    if y.ndim == 2:
        return ops.dot_general(x, y, ((x.ndim - 1,), (0,)))
    batch = _broadcast(x.shape[:-2], y.shape[:-2])
    x, y = (ops.broadcast(part, (*batch, *part.shape[-2:])) for part in (x, y))
    axes = tuple(range(len(batch)))
    return ops.dot_general(x, y, ((x.ndim - 1,), (y.ndim - 2,)), (axes, axes))


def _broadcast(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    width = max(len(a), len(b))
    pairs = zip([*[1] * (width - len(a)), *a], [*[1] * (width - len(b)), *b], strict=True)
    return tuple(n if m == 1 else m for m, n in pairs)


@adapts("MatMulInteger")
def _matmul_integer(node: Node) -> Tensor:
    ops = node.ops
    parts = []
    for i in (0, 1):
        part = ops.cast(node.tensor(i), i32)
        if node.has(i + 2):
            zero = ops.cast(node.tensor(i + 2), i32)
            by_row = i == 0 and zero.ndim == 1 and zero.shape[0] > 1
            part = ops.sub(part, ops.reshape(zero, (-1, 1)) if by_row else zero)
        parts.append(part)
    return matmul(ops, parts[0], parts[1])


@adapts("Gemm")
def _gemm(node: Node) -> Tensor:
    ops, x, y = node.ops, node.tensor(0), node.tensor(1)
    x_axis, y_axis = (0 if node.attribute("transA", 0) else 1), (1 if node.attribute("transB", 0) else 0)
    result = ops.dot_general(x, y, ((x_axis,), (y_axis,)))
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    if not x.dtype.is_floating and (alpha, beta) != (1.0, 1.0):
        raise NotExpressible("Gemm of integers times a fraction")
    result = result if alpha == 1 else ops.mul(result, alpha)
    if not node.has(2):
        return result
    bias = node.tensor(2)
    return ops.add(result, bias if beta == 1 else ops.mul(bias, beta))


@adapts("Einsum")
def _einsum(node: Node) -> Tensor:
    """Operands are multiplied one after the other; an axis that no later term names is summed at once."""
    ops, tensors = node.ops, node.tensors()
    left, _, right = node.attribute("equation").replace(" ", "").partition("->")
    terms = left.split(",")
    explicit = "->" in node.attribute("equation")
    # An ellipsis stands for axes counted from the end; digits name them.
    widths = [t.ndim - len(term.replace("...", "")) for term, t in zip(terms, tensors, strict=True) if "..." in term]
    digits = "0123456789"[: max(widths, default=0)]
    if len(digits) < max(widths, default=0):
        raise NotExpressible("Einsum: more than ten axes in an ellipsis")
    labels = []
    for term, tensor in zip(terms, tensors, strict=True):
        own = tensor.ndim - len(term.replace("...", ""))
        labels.append(term.replace("...", digits[len(digits) - own :]))
    if explicit:
        wanted = right.replace("...", digits)
    else:
        letters = re.sub(r"[^A-Za-z]", "", left)
        wanted = digits + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    return _sum_of_products(ops, list(zip(labels, tensors, strict=True)), wanted)


def _sum_of_products(ops: Ops, operands: list[tuple[str, Tensor]], wanted: str) -> Tensor:
    diagonals = [_diagonal(ops, labels, tensor) for labels, tensor in operands]
    labels, result = diagonals[0]
    for i, (more, tensor) in enumerate(diagonals[1:], 1):
        later = set(wanted).union(*(names for names, _ in diagonals[i + 1 :]))
        labels, result = _product(ops, (labels, result), (more, tensor), later)
    summed = [i for i, label in enumerate(labels) if label not in wanted]
    result = ops.sum(result, summed) if summed else result
    labels = "".join(label for label in labels if label in wanted)
    return ops.transpose(result, [labels.index(label) for label in wanted])


def _product(ops: Ops, x: tuple[str, Tensor], y: tuple[str, Tensor], later: set[str]) -> tuple[str, Tensor]:
    """A dot_general: shared labels are batches where they are needed later, and summed where not."""
    sizes: dict[str, int] = {}
    for labels, tensor in (x, y):
        for label, size in zip(labels, tensor.shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    shared = [label for label in x[0] if label in y[0]]
    tensors = [
        ops.broadcast(t, [sizes[n] if n in shared else d for n, d in zip(names, t.shape, strict=True)])
        for names, t in (x, y)
    ]
    batch = [label for label in shared if label in later]
    summed = [label for label in shared if label not in later]
    axes = [(tuple(names.index(n) for n in summed), tuple(names.index(n) for n in batch)) for names, _ in (x, y)]
    product = ops.dot_general(tensors[0], tensors[1], (axes[0][0], axes[1][0]), (axes[0][1], axes[1][1]))
    free = [label for names, _ in (x, y) for label in names if label not in shared]
    return "".join([*batch, *free]), product


def _diagonal(ops: Ops, labels: str, x: Tensor) -> tuple[str, Tensor]:
    """A label that one operand has twice means its diagonal: everything else is 0 and is summed away."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first, second = labels.index(label), labels.rindex(label)
            on = ops.equal(ops.iota(x.shape, first, i64), ops.iota(x.shape, second, i64))
            x = ops.sum(ops.select(on, x, ops.zeros((), x.dtype)), second)
            labels = labels[:second] + labels[second + 1 :]
    return labels, x
