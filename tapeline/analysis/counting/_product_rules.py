"""Factors of contractions, packed products, attention over caches, and indexing."""

from collections.abc import Sequence

from compile_dag import Node
from compile_hlo.passes import RowWrite
from tapeline.analysis.counting._factors import Dims, FactorBuilder, single
from tapeline.analysis.counting._rules import rule

_Spread = tuple[Sequence[Dims], Sequence[Dims]]


@rule("dot_general")
def _dot_general(builder: FactorBuilder, node: Node) -> _Spread:
    x, y = (value.spec.shape for value in node.inputs)
    x_contract, y_contract, x_batch, y_batch = node.attributes[:4]
    left, right = dict[int, int](), dict[int, int]()
    for axis, other in zip(x_batch, y_batch, strict=True):
        left[axis] = right[other] = builder.new(x[axis])
    for axis, other in zip(x_contract, y_contract, strict=True):
        left[axis] = right[other] = builder.sum(x[axis])
    batch = [left[axis] for axis in x_batch]
    x_free = [left.setdefault(axis, builder.new(x[axis])) for axis in range(len(x)) if axis not in left]
    y_free = [right.setdefault(axis, builder.new(y[axis])) for axis in range(len(y)) if axis not in right]
    operands = [single([left[axis] for axis in range(len(x))]), single([right[axis] for axis in range(len(y))])]
    return operands, [single([*batch, *x_free, *y_free])]


@rule("conv")
def _conv(builder: FactorBuilder, node: Node) -> _Spread:
    x, kernel = (value.spec.shape for value in node.inputs)
    result, groups = node.results[0].spec.shape, node.attributes[3]
    batch, taps = builder.new(x[0]), builder.all(kernel[:-2])
    builder.kept.update(taps)
    builder.reduced.update(taps)
    spatial = [builder.keep(extent) for extent in x[1:-1]]
    moved: list[int | None] = [None] * (len(result) - 2)
    if groups == x[-1] == kernel[-1]:
        channel = builder.new(x[-1])
        return [single([batch, *spatial, channel]), single([*taps, None, channel])], [single([batch, *moved, channel])]
    if groups > 1:
        inputs, outputs = builder.keep(x[-1]), builder.keep(kernel[-1])
        per_group: int | None = None
    else:
        inputs, outputs = builder.sum(x[-1]), builder.new(kernel[-1])
        per_group = inputs
    return [single([batch, *spatial, inputs]), single([*taps, per_group, outputs])], [single([batch, *moved, outputs])]


@rule("block_quantize")
def _block_quantize(builder: FactorBuilder, node: Node) -> _Spread:
    x = node.inputs[0].spec.shape
    blocks = node.results[1].spec.shape[-1]
    rows, block, inside = builder.all(x[:-1]), builder.new(blocks), builder.keep(x[-1] // blocks)
    lead = single(rows)
    return [(*lead, (block, inside))], [(*lead, (), (block, inside)), (*lead, (block,)), (*lead, (block,))]


@rule("dequantize")
def _dequantize(builder: FactorBuilder, node: Node) -> _Spread:
    packed, encoding = node.inputs[0].spec.shape, node.attributes[0]
    blocks = packed[-1] // encoding.block_bytes
    lead, block = single(builder.all(packed[:-1])), builder.new(blocks)
    stored, inside = builder.keep(encoding.block_bytes), builder.keep(encoding.block)
    return [(*lead, (block, stored))], [(*lead, (block, inside))]


@rule("packed_linear")
def _packed_linear(builder: FactorBuilder, node: Node) -> _Spread:
    x, weight = (value.spec.shape for value in node.inputs)
    lead, outputs = single(builder.all(x[:-1])), builder.new(weight[0])
    columns, stored = _packed_columns(builder, node, 1)
    return [(*lead, columns), ((outputs,), stored)], [(*lead, (outputs,))]


@rule("packed_expert_linear")
def _packed_expert_linear(builder: FactorBuilder, node: Node) -> _Spread:
    x, expert, weight = (value.spec.shape for value in node.inputs)
    given, per_given, rows = builder.new(x[0]), builder.new(expert[0] // x[0]), builder.new(x[1])
    experts, outputs = builder.pick(weight[0]), builder.new(weight[1])
    columns, stored = _packed_columns(builder, node, 2)
    operands = [((given,), (rows,), columns), ((given, per_given),), ((experts,), (outputs,), stored)]
    return operands, [((given, per_given), (rows,), (outputs,))]


def _packed_columns(builder: FactorBuilder, node: Node, weight: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the factors of x's last dimension and of a packed weight's: a weight is cut between its blocks.

    A weight that is whole is unpacked whole, and cut as x is then.
    """
    encoding, columns = node.attributes[0], node.inputs[0].spec.shape[-1]
    if not builder.layouts[weight][-1]:
        return (builder.sum(columns),), ()
    block, inside = builder.sum(columns // encoding.block), builder.keep(encoding.block)
    return (block, inside), (block, builder.keep(encoding.block_bytes))


@rule("cached_attention")
def _cached_attention(builder: FactorBuilder, node: Node) -> _Spread:
    q, k, _, bias, *rows = (value.spec.shape for value in node.inputs)
    batch, heads, group, queries = builder.all(q[:4])
    size, keys, width = builder.sum(q[4]), builder.keep(bias[2]), builder.new(node.results[0].spec.shape[4])
    stored = builder.keep(k[0]) if rows else batch
    pages = [builder.keep(row[1]) for row in rows if len(row) > 1]
    page = builder.keep(k[2]) if pages else keys
    shown = single([batch if bias[0] == q[0] else None, queries, keys])
    operands = [
        single([batch, heads, group, queries, size]),
        single([stored, heads, page, size]),
        single([stored, heads, page, width]),
        shown,
        *(single([batch, *pages]) for _ in rows),
    ]
    return operands, [single([batch, heads, group, queries, width])]


@rule("packed_cached_attention")
def _packed_cached_attention(builder: FactorBuilder, node: Node) -> _Spread:
    (q, k, v, *others), results = _cached_attention(builder, node)
    packed = [
        (*cache[:-1], (builder.keep(value.spec.shape[3]),))
        for cache, value in zip((k, v), node.inputs[1:3], strict=True)
    ]
    return [q, *packed, *others], results


@rule("quantize")
def _quantize(builder: FactorBuilder, node: Node) -> _Spread:
    *outer, columns = node.inputs[0].spec.shape
    kept = [builder.new(extent) for extent in outer]
    given, made = builder.keep(columns), builder.keep(node.results[0].spec.shape[-1])
    return [single([*kept, given])], [single([*kept, made])]


@rule("dynamic_slice")
def _dynamic_slice(builder: FactorBuilder, node: Node) -> _Spread:
    x, sizes = node.inputs[0].spec.shape, node.attributes[0]
    factors = [builder.new(a) if a == b else builder.keep(a) for a, b in zip(x, sizes, strict=True)]
    result = single([factor if a == b else None for factor, a, b in zip(factors, x, sizes, strict=True)])
    return [single(factors), *([()] * (len(node.inputs) - 1))], [result]


@rule("dynamic_update_slice")
def _dynamic_update_slice(builder: FactorBuilder, node: Node) -> _Spread:
    x, update = node.inputs[0].spec.shape, node.inputs[1].spec.shape
    factors = [builder.new(extent) for extent in x]
    pairs = zip(factors, x, update, strict=True)
    written = single([factor if a == b else builder.keep(b) for factor, a, b in pairs])
    return [single(factors), written, *([()] * (len(node.inputs) - 2))], [single(factors)]


@rule("take")
def _take(builder: FactorBuilder, node: Node) -> _Spread:
    x, indices = (value.spec.shape for value in node.inputs)
    axis = node.attributes[0]
    places = builder.all(indices)
    factors = [builder.pick(extent) if i == axis else builder.new(extent) for i, extent in enumerate(x)]
    return [single(factors), single(places)], [single([*factors[:axis], *places, *factors[axis + 1 :]])]


@rule("gather")
def _gather(builder: FactorBuilder, node: Node) -> _Spread:
    x, indices = (value.spec.shape for value in node.inputs)
    axis = node.attributes[0]
    picked, place = builder.pick(x[axis]), builder.new(indices[axis])
    others = builder.all(x)
    taken = single([place if i == axis else factor for i, factor in enumerate(others)])
    return [single([picked if i == axis else factor for i, factor in enumerate(others)]), taken], [taken]


@rule("scatter")
def _scatter(builder: FactorBuilder, node: Node) -> _Spread:
    x, indices = (value.spec.shape for value in node.inputs[:2])
    axis = node.attributes[0]
    changed, place = builder.keep(x[axis]), builder.keep(indices[axis])
    others = builder.all(x)
    given = single([place if i == axis else factor for i, factor in enumerate(others)])
    whole = single([changed if i == axis else factor for i, factor in enumerate(others)])
    return [whole, given, given], [whole]


@rule("put")
def _put(builder: FactorBuilder, node: Node) -> _Spread:
    if isinstance(node, RowWrite):
        return _row_write(builder, node)
    x, indices = (value.spec.shape for value in node.inputs[:2])
    axis = node.attributes[0]
    factors = [builder.keep(extent) if i == axis else builder.new(extent) for i, extent in enumerate(x)]
    place = builder.keep(indices[1])
    written = single([place if i == axis else factor for i, factor in enumerate(factors)])
    marks = single([factors[0], place])
    return [single(factors), marks, written, *([marks] * (len(node.inputs) - 3))], [single(factors)]


def _row_write(builder: FactorBuilder, node: RowWrite) -> _Spread:
    """Returns the factors of a write into rows, and entries, of x: every device has the places, dimensions stay cut."""
    x, places, new, *where = (value.spec.shape for value in node.inputs)
    written = (0, 2) if node.of_entries else (0,)
    factors = [builder.keep(extent) if i in written else builder.new(extent) for i, extent in enumerate(x)]
    given = single([builder.keep(new[i]) if i in written else factor for i, factor in enumerate(factors)])
    marks = single([None, builder.keep(places[1])])
    return [single(factors), marks, given, *([marks] * len(where))], [single(factors)]
