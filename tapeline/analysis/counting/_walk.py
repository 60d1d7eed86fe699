"""Walk over the nodes of a stretch or of a loop's body: layouts, costs of ops, rounds of loops, and live values."""

import math
import re
from collections.abc import Callable, Sequence, Set
from typing import Final, NamedTuple

from compile_dag import ComputeGraph, Node, Value
from compile_hlo.passes import with_row_writes
from lang_core import Axes, TensorSpec
from tapeline.analysis.counting._factors import Factors
from tapeline.analysis.counting._grid import DeviceGrid, Layout, whole
from tapeline.analysis.counting._rules import factors_of
from tapeline.analysis.counting._spread import Spread, Transfer, moved, spread
from tapeline.analysis.counting._work import Collective, Work


def rounds_of(node: Node) -> float:
    """Returns how often the body of a ``while`` runs.

    A loop that counts up by a constant to a constant: exactly. One that counts up to a number that is computed, and in
    each round writes some rows for one choice of each group (experts that devices divide): as many as choices are made,
    if all are equally frequent. A loop with a step that sums over the rows with one number (the loop over experts):
    about as many as numbers differ, if all are equally frequent, and at least as many as full rows need. Any other
    loop: once.
    """
    cond, body, _ = node.attributes
    limit = _limit(cond)
    if limit is None:
        return _rounds_of_groups(body)
    place, most = limit
    step = list(body.outputs.values())[place]
    made = {value.number: inner for inner in body.nodes for value in inner.results}
    adding = made.get(step.number)
    if adding is None or adding.op.name != "add":
        return 1
    counted = next((made[value.number] for value in adding.inputs if value.number in made), None)
    if counted is None:
        return 1
    if counted.op.name == "constant":
        return -(-most // int(counted.attributes[0].array))
    rows = counted.inputs[0].spec.size if counted.inputs else 1
    return max(most / rows, _distinct(_choices(body), most))


def _rounds_of_groups(body: ComputeGraph) -> float:
    written = [
        inner for inner in body.nodes if inner.op.name == "dynamic_update_slice" and inner.inputs[0].spec.ndim == 3
    ]
    sizes = [
        inner.inputs[0].spec.shape[1]
        for inner in body.nodes
        if inner.op.name == "dynamic_slice" and inner.inputs[0].spec.ndim > 2 and inner.attributes[0][1] == 1
    ]
    if not written or not sizes:
        return 1
    (groups, places, _), rows = written[0].inputs[0].spec.shape, written[0].inputs[1].spec.shape[1]
    # There is room for all full rounds and for one more of each choice, or of each draw if these are fewer.
    choices, most = max(sizes), places // rows
    draws = most * rows // (rows + 1)
    if draws > choices:
        draws = (most - choices) * rows
    return max(draws / (groups * rows), _distinct(choices, draws))


def _limit(cond: ComputeGraph) -> tuple[int, int] | None:
    """Returns which carried value is compared with which constant; None if the condition is another one."""
    (result,) = cond.outputs.values()
    made = {value.number: inner for inner in cond.nodes for value in inner.results}
    less = made.get(result.number)
    carried = [value.number for value in cond.inputs.values()]
    if less is None or less.op.name != "less" or less.inputs[0].number not in carried:
        return None
    bound = made.get(less.inputs[1].number)
    if bound is None or bound.op.name != "constant":
        return None
    return carried.index(less.inputs[0].number), int(bound.attributes[0].array)


def _choices(body: ComputeGraph) -> int:
    """Returns from how many slices of a stacked weight each round takes one; 1 if it takes none."""
    sizes = [
        inner.inputs[0].spec.shape[0]
        for inner in body.nodes
        if inner.op.name == "dynamic_slice" and inner.attributes[0][0] == 1 and inner.inputs[0].spec.ndim > 1
    ]
    sizes += [inner.inputs[2].spec.shape[0] for inner in body.nodes if inner.op.name == "packed_expert_linear"]
    return max(sizes, default=1)


def _distinct(choices: int, draws: int) -> float:
    """Returns how many of some choices occur among so many draws, on average."""
    return choices * (1 - (1 - 1 / choices) ** draws)


_ATTENTION: Final = frozenset({"cached_attention", "packed_cached_attention"})
PRODUCTS: Final = frozenset({"dot_general", "conv", "packed_linear", "packed_expert_linear", *_ATTENTION})
"""Ops that multiply and add: they read their operands and write their results."""

VIEWS: Final = frozenset({"reshape", "transpose", "broadcast", "slice", "cast", "dequantize", "dynamic_slice"})
"""Ops that are computed where their result is read."""

UPDATES: Final = {"dynamic_update_slice": 1, "scatter": 2, "put": 2}
"""Ops that change their first operand in place, with the place of what they write."""

_PICKING: Final = frozenset({"take", "gather"})
_REDUCING: Final = frozenset({"sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "cumsum", "sort"})


def flops_of(node: Node, factors: Factors, spread: Spread, grid: DeviceGrid) -> int:
    """Returns the additions and multiplications of an op on one device; other functions of a number count as one."""
    sizes = [-(-size // grid.size(cuts)) for size, cuts in zip(factors.sizes, spread.cuts, strict=True)]
    name = node.op.name
    if name in _ATTENTION:
        *outer, size, keys, width = sizes[:7]
        return 2 * math.prod(outer) * keys * (size + width)
    if name == "conv":
        spec, (inputs, _) = node.results[0].spec, factors.operands[1][-2:]
        inner = math.prod(sizes[factor] for factor in inputs) if inputs else node.inputs[1].spec.shape[-2]
        made = grid.local_bytes(spec, spread.results[0]) // spec.dtype.itemsize
        return 2 * made * math.prod(node.inputs[1].spec.shape[:-2]) * inner
    if name in PRODUCTS:
        return 2 * math.prod(sizes[factor] for factor in _loops(factors))
    if name in VIEWS or name in UPDATES or name in _PICKING or not node.inputs:
        return 0
    if not node.inputs[0].spec.dtype.is_floating:
        return 0
    if name in _REDUCING:
        spec, layout = node.inputs[0].spec, spread.operands[0]
    else:
        spec, layout = node.results[0].spec, spread.results[0]
    return grid.local_bytes(spec, layout) // spec.dtype.itemsize


def _loops(factors: Factors) -> set[int]:
    """Returns the factors of the first operand and of the results: not the experts that are not chosen."""
    return {factor for dims in (*factors.operands[0], *factors.results[0]) for factor in dims}


def bytes_of(node: Node, spread: Spread, grid: DeviceGrid, sources: Sequence[int]) -> int:
    """Returns the bytes that an op reads and writes on one device.

    Args:
        node: the op.
        spread: how it is spread.
        grid: the devices.
        sources: bytes of the source of each operand, without products in between: packed weights of unpacked ones.
    """
    name = node.op.name
    made = sum(grid.local_bytes(value.spec, layout) for value, layout in zip(node.results, spread.results, strict=True))
    if name == "packed_expert_linear":
        groups, experts = node.inputs[1].spec.shape[0], node.inputs[2].spec.shape[0]
        return sources[0] + sources[2] * min(groups, experts) // experts + made
    if name in PRODUCTS:
        return sum(sources) + made
    if name in _PICKING:
        return 2 * made
    if name in UPDATES:
        place = UPDATES[name]
        return 2 * grid.local_bytes(node.inputs[place].spec, spread.operands[place])
    return 0


ParameterAxes = Callable[[str, TensorSpec], Axes]

_NUMBER: Final = re.compile(r"\d+")
_FREE: Final = frozenset({"iota", "constant", "parameter", "broadcast"})


class Tensor(NamedTuple):
    """Tensor as a device has it.

    Attributes:
        layout: how it is cut.
        source: bytes that reading it reads.
        owned: bytes that it takes, besides weights and caches.
        stored: whether it is a weight or a cache, or a view of one.
    """

    layout: Layout
    source: int
    owned: int = 0
    stored: bool = False


class Walk:
    """Walk over nodes.

    Args:
        grid: the devices.
        parameter_axes: returns the axes of a parameter as it is stored.
        tensors: tensors by number of their value; those that are made are added.
        around: numbers of the values that are made around the loop.

    Attributes:
        work: work so far.
        before: exchanges that a loop needs once, before it begins.
        needs: by number, layouts that ops need of values that are cut less.
    """

    def __init__(
        self,
        grid: DeviceGrid,
        parameter_axes: ParameterAxes,
        tensors: dict[int, Tensor],
        around: Set[int] = frozenset(),
    ) -> None:
        self._grid = grid
        self._parameter_axes = parameter_axes
        self.tensors = tensors
        self._around = around
        self.work, self.before = Work(), Work()
        self.needs: dict[int, Layout] = {}

    def nodes(self, nodes: Sequence[Node], needed: set[int], dying: Set[int] = frozenset()) -> None:
        """Walks over nodes.

        Args:
            nodes: the nodes, in order.
            needed: numbers of the values that are used afterwards.
            dying: numbers of values from before that are not.
        """
        nodes = with_row_writes(nodes, needed)
        last = {value.number: i for i, node in enumerate(nodes) for value in node.inputs}
        own = dying | {value.number for node in nodes for value in node.results}
        alive = sum(self.tensors[number].owned for number in dying)
        for i, node in enumerate(nodes):
            gone = {v.number for v in node.inputs if last[v.number] == i and v.number in own and v.number not in needed}
            freed = sum(self.tensors[number].owned for number in gone)
            inner = self._node(node)
            made = sum(self.tensors[value.number].owned for value in node.results)
            before = alive if node.op.name in PRODUCTS or inner else alive - freed
            self.work.activation_bytes = max(self.work.activation_bytes, before + made + inner)
            alive += made - freed

    def _node(self, node: Node) -> int:
        """Walks over one node; returns the bytes that are alive inside of it."""
        name = node.op.name
        if name == "parameter":
            path, spec = node.attributes
            layout = self._grid.layout(self._parameter_axes(path, spec))
            self._made(node.results[0], Tensor(layout, self._grid.local_bytes(spec, layout), 0, stored=True))
        elif name == "while":
            return self._loop(node)
        elif name == "cond":
            return self._branches(node)
        else:
            self._op(node)
        return 0

    def _made(self, value: Value, tensor: Tensor) -> None:
        self.tensors[value.number] = tensor

    def _op(self, node: Node) -> None:
        operands = [self.tensors[value.number] for value in node.inputs]
        layouts = [operand.layout for operand in operands]
        factors = factors_of(node, layouts)
        placed = spread(
            self._grid,
            factors,
            layouts,
            [value.spec for value in node.inputs],
            [value.spec for value in node.results],
        )
        self._bring(node, operands, placed)
        self._exchange([*_greatest(node, placed.summed), *placed.summed], node.results[0].path)
        self._cost(node, factors, placed, operands)
        for value, layout in zip(node.results, placed.results, strict=True):
            self._made(value, self._result(node, value.spec, layout, operands))

    def _bring(self, node: Node, operands: Sequence[Tensor], placed: Spread) -> None:
        """Brings the operands of an op into their layouts; those from around a loop before it begins."""
        for value, operand, layout, moves in zip(node.inputs, operands, placed.operands, placed.moved, strict=True):
            around = value.number in self._around
            self._exchange(moves, node.results[0].path, self.before if around else self.work)
            if layout != operand.layout:
                self.needs[value.number] = finer(operand.layout, layout)

    def _cost(self, node: Node, factors: Factors, placed: Spread, operands: Sequence[Tensor]) -> None:
        flops = flops_of(node, factors, placed, self._grid)
        if flops:
            self.work.flops[node.inputs[0].spec.dtype.name] += flops
        self.work.memory_bytes += bytes_of(node, placed, self._grid, [operand.source for operand in operands])

    def _result(self, node: Node, spec: TensorSpec, layout: Layout, operands: Sequence[Tensor]) -> Tensor:
        name, size = node.op.name, self._grid.local_bytes(spec, layout)
        if name in VIEWS and operands[0].stored:
            return Tensor(layout, min(size, operands[0].source), 0, stored=True)
        if name in UPDATES and operands[0].stored:
            return Tensor(layout, size, 0, stored=True)
        return Tensor(layout, size, 0 if name in _FREE else size)

    def _exchange(self, transfers: Sequence[Transfer], path: str, work: Work | None = None) -> None:
        work = self.work if work is None else work
        for transfer in transfers:
            devices, axes = self._grid.size(transfer.cuts), self._grid.axes(transfer.cuts)
            collective = Collective(transfer.kind, transfer.bytes, devices, axes, _NUMBER.sub("*", path))
            work.collectives[collective] += 1
            work.calls[collective] += 1

    def wanted(self, value: Value, layout: Layout, path: str) -> None:
        """Brings a result into a layout, from that in which ops need it: a partitioner makes it so."""
        tensor = self.tensors[value.number]
        made = finer(tensor.layout, self.needs.get(value.number, tensor.layout))
        self._exchange(tuple(moved(self._grid, value.spec, made, layout)), path)

    def _loop(self, node: Node) -> int:
        cond, body, carried = node.attributes
        starts = [self.tensors[value.number] for value in node.inputs[:carried]]
        layouts = [tensor.layout for tensor in starts]
        for _ in range(carried + 1):  # each round may cut one more value
            after = self._region(body, layouts)[0]
            cut = [finer(old, new) for old, new in zip(layouts, after, strict=True)]
            if cut == layouts:
                break
            layouts = cut
        rounds = rounds_of(node)
        tested, inner = self._region(cond, layouts)[1], self._region(body, layouts)[1]
        for walk in (tested, inner):
            self.work.add(walk.work, rounds)
            self.work.add(walk.before)
        for value, layout in zip(node.results, layouts, strict=True):
            size = self._grid.local_bytes(value.spec, layout)
            self._made(value, Tensor(layout, size, size))
        return inner.work.activation_bytes

    def _branches(self, node: Node) -> int:
        layouts = [self.tensors[value.number].layout for value in node.inputs[1:]]
        results = [self._region(region, layouts) for region in node.attributes]
        for _, walk in results:
            self.work.add(walk.work)
            self.work.add(walk.before)
        for i, value in enumerate(node.results):
            layout = results[0][0][i] if results[0][0][i] == results[1][0][i] else whole(value.spec.ndim)
            size = self._grid.local_bytes(value.spec, layout)
            self._made(value, Tensor(layout, size, size))
        return max(walk.work.activation_bytes for _, walk in results)

    def _region(self, region: ComputeGraph, layouts: Sequence[Layout]) -> "tuple[list[Layout], Walk]":
        """Returns the layouts of a region's results, and the walk over it; captured values are known."""
        inner = Walk(self._grid, self._parameter_axes, dict(self.tensors), self.tensors.keys())
        for value, layout in zip(region.inputs.values(), layouts, strict=False):
            size = self._grid.local_bytes(value.spec, layout)
            inner._made(value, Tensor(layout, size, size))
        outputs = list(region.outputs.values())
        inner.nodes(region.nodes, {value.number for value in outputs})
        return [inner.tensors[value.number].layout for value in outputs], inner


def _greatest(node: Node, transfers: Sequence[Transfer]) -> list[Transfer]:
    """Returns the exchange of the greatest values, for an op that returns their indices."""
    if node.op.name not in ("argmax", "argmin"):
        return []
    value, index = node.inputs[0].spec.dtype.itemsize, node.results[0].spec.dtype.itemsize
    summed = [transfer for transfer in transfers if transfer.kind == "all-reduce"]
    return [transfer._replace(bytes=transfer.bytes // index * value) for transfer in summed]


def finer(old: Layout, new: Layout) -> Layout:
    """Returns a layout with the cuts of another one along dimensions that it leaves whole."""
    return tuple(after if before == () else before for before, after in zip(old, new, strict=True))
