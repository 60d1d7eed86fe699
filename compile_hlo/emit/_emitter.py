"""Emitter: walks nodes in order and writes one function's text."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, cast

from compile_dag import ComputeGraph, Node, Stretch, Value
from compile_hlo.directions import KernelSignature
from compile_hlo.emit._builder import Builder, SsaValue, Write
from compile_hlo.emit._helpers import HelperFunctions
from compile_hlo.emit._overrides import NO_OVERRIDES, Overrides, overridable
from compile_hlo.emit._parameter_table import ParameterTable
from compile_hlo.emit._sites import SiteTracer
from compile_hlo.emit._types import quoted, tensor_type
from compile_hlo.passes import Chain, Group, chain_of, with_integer_products
from lang_core import DType, GraphError, TensorSpec

Rule = Callable[["Emitter", Node], None]

LEAVES: Final = ("constant", "parameter")
"""Ops that are written where a stretch uses them, not where they were recorded."""

# One rule per op; filled by the modules of this folder.
RULES: Final[dict[str, Rule]] = {}
"""Emission rule of each op, by its name."""


def emits(*op_names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for ops."""

    def register(rule: Rule) -> Rule:
        for name in op_names:
            if name in RULES:
                raise GraphError(f"op {name!r} has an emission rule already")
            RULES[name] = rule
        return rule

    return register


CHAINS: Final[dict[str, list[Chain]]] = {}
"""Chains that rules are registered for, by the names of their last ops."""


def emits_composite(
    composite: str, *then: str, fits: Callable[[Group], bool]
) -> Callable[[Callable[["Emitter", Group], None]], Callable[["Emitter", Group], None]]:
    """Registers a rule for a composite with the ops after it, as a group.

    The group's inputs are the composite's, then the other operands of those ops; its attributes are the composite's.

    Args:
        composite: name of the composite, as it was recorded; or of an op.
        then: names of the ops after it, each the only user of the result before; one or more.
        fits: returns whether the rule can write a group; if it cannot, the nodes are written one by one.
    """
    chain = chain_of(composite, then, fits)

    def register(rule: Callable[["Emitter", Group], None]) -> Callable[["Emitter", Group], None]:
        emits(chain.op.name)(cast("Rule", rule))
        CHAINS.setdefault(then[-1], []).append(chain)
        return rule

    return register


class ParameterForm(Protocol):
    """Form in which a parameter's value comes into a function."""

    def load(self, emitter: "Emitter", path: str, spec: TensorSpec) -> str:
        """Writes the necessary ops and returns the name of the value."""
        ...


class Emitter(Builder):
    """Writes the body of a function, node by node.

    Constants and parameters are written where a block first uses them, so that a block's text does not depend on the
    text before it; so are operands that must be broadcast or converted first.

    Attributes:
        parameters: weights that were loaded so far.
        leaves: nodes of constants and parameters, by the numbers of their values.
        helpers: private functions of the module that rules call.
        path: module path of the node that is written.
        locations: whether ops have locations, which compilers keep: their module paths.
        watcher: follower of the values, made by the overrides.
        node: node that is written.
        in_region: True inside of a loop or a branch.
        tracer: writer of traces of kernels' tensors; None if there are none.
        overlaps: numbers of the results of updates with operands computed from the overwritten buffer.
    """

    def __init__(
        self,
        write: Write,
        parameters: ParameterForm,
        indent: str = "    ",
        helpers: HelperFunctions | None = None,
        overrides: Overrides = NO_OVERRIDES,
        locations: bool = False,
    ) -> None:
        super().__init__(write, indent, overrides)
        self.helpers = HelperFunctions() if helpers is None else helpers
        self._parameters = parameters
        self._names: dict[int, str] = {}
        self.leaves: dict[int, Node] = {}
        self.path = ""
        self.locations = locations
        self._stretch: Stretch | None = None
        self.parameters = ParameterTable()
        self.watcher = None if overrides.watch is None else overrides.watch()
        self.node: Node | None = None
        self.in_region = False
        self.tracer: SiteTracer | None = None
        self.overlaps: frozenset[int] = frozenset()

    def bind(self, value: Value, name: str) -> None:
        """Names a value that exists already, such as an argument."""
        self._names[value.number] = name

    def forget(self, values: Iterable[Value]) -> None:
        """Drops the facts of values that are not used any more."""
        for value in values:
            self._makers.pop(self._names.pop(value.number, ""), None)
            self.leaves.pop(value.number, None)
            if self.watcher is not None:
                self.watcher.forget(value)

    def define(self, node: Node, text: str) -> None:
        """Writes the only result of a node."""
        self._names[node.results[0].number] = self.new(text)

    def alias(self, node: Node, name: str) -> None:
        """Makes a value that exists already the only result of a node."""
        self._names[node.results[0].number] = name

    def name(self, value: Value) -> str:
        """Returns the name of a value; a constant or a parameter is written first if this block has not yet."""
        name = self._names.get(value.number)
        return self._leaf(value) if name is None else name

    def value(self, value: Value) -> SsaValue:
        """Returns name and spec of a value."""
        return SsaValue(self.name(value), value.spec)

    def values(self, values: Iterable[Value]) -> list[SsaValue]:
        """Returns names and specs of values, which are written in this order if they have to be."""
        return [self.value(value) for value in values]

    def _leaf(self, value: Value) -> str:
        leaf = self.leaves.get(value.number)
        if leaf is None:
            return self.foreign(value)
        if leaf.op.name == "constant":
            return self.constant(leaf.attributes[0].array)
        return self.parameter(*leaf.attributes)

    def foreign(self, value: Value) -> str:
        """Refuses a value that was not made here by a GraphError."""
        raise GraphError(f"{value!r} is used before it is made: verify the graph")

    def comment(self, path: str) -> str:
        """Returns the comment of a module path."""
        return path or "the root"

    def locate(self, place: str) -> None:
        """Gives the ops that follow a location."""
        if self.locations:
            self.location = f" loc({quoted(place)}:0:0)"

    def calls(self, function: KernelSignature) -> None:
        """Counts a call of a helper function in the text."""
        function.call_sites += 1

    def parameter(self, path: str, spec: TensorSpec) -> str:
        """Returns the name of a weight, loaded once per stretch."""
        key = "parameter", path, spec
        if key not in self._ready:
            self.parameters.add(path, spec)
            self._ready[key] = self._parameters.load(self, path, spec)
        return self._ready[key]

    def operand(self, value: Value, shape: tuple[int, ...], dtype: DType) -> str:
        """Returns the name of a value, broadcast to a shape (NumPy's rules) and converted to a dtype."""
        spec = value.spec
        if spec.shape == shape and spec.dtype is dtype:
            return self.name(value)
        leaf = self.leaves.get(value.number)
        if leaf is not None and leaf.op.name == "constant" and spec.size == 1 and shape:
            array = leaf.attributes[0].array.astype(dtype.numpy)
            return self.constant(array.reshape(()), TensorSpec(shape, dtype))
        key = value.number, shape, dtype
        if key not in self._ready:
            name = self.convert(self.name(value), spec, dtype)
            self._ready[key] = self.broadcast(name, TensorSpec(spec.shape, dtype), shape)
        return self._ready[key]

    def nodes(self, nodes: Iterable[Node]) -> None:
        """Writes nodes in order, and module paths where they change; an op without a rule is a GraphError."""
        for node in nodes:
            if node.op.name in LEAVES:
                self.leaves[node.results[0].number] = node
                continue
            if node.stretch != self._stretch:
                self.enter(node.stretch)
            for path in node.paths if isinstance(node, Group) else (node.results[0].path,):
                if path != self.path:
                    self.path = path
                    self._write(f"{self._indent}// {self.comment(path)}\n")
                    self.locate(self.comment(path))
            rule = RULES.get(node.op.name)
            if rule is None:
                raise GraphError(f"{node!r}: the op has no emission rule")
            self.node = node
            rule(self, node)
            if self.watcher is not None:
                self.watcher.follow(node)

    def enter(self, stretch: Stretch) -> None:
        """Begins another stretch: nothing is ready."""
        self._stretch = stretch
        self._ready = {}
        self._numbers = {}

    def region(self, graph: ComputeGraph, arguments: Iterable[str]) -> None:
        """Writes the body of a region; values prepared inside are not available outside."""
        ready, indent = self._ready, self._indent
        self._ready, self._indent = dict(ready), indent + "  "
        for value, name in zip(graph.inputs.values(), arguments, strict=True):
            self.bind(value, name)
        stretch, path, location = self._stretch, self.path, self.location
        outside, self.in_region = self.in_region, True
        self.nodes(self.with_products(graph.nodes))
        self.end("stablehlo.return", graph.outputs.values())
        self.in_region = outside
        self._ready, self._indent = ready, indent
        self._stretch, self.path, self.location = stretch, path, location

    def with_products(self, nodes: Sequence[Node]) -> Sequence[Node]:
        """Returns the nodes with products of packed weights in the form that is written."""
        return with_integer_products(nodes, exact=self.overrides.exact_products)

    def end(self, terminator: str, results: Iterable[Value], separate: Iterable[bool] = ()) -> None:
        """Writes the return of a function or region.

        Args:
            terminator: op that returns.
            results: values that it returns.
            separate: per result, whether it needs a buffer of its own; none does if empty.
        """
        values = tuple(results)
        names = [self.name(value) for value in values]
        for number, apart in enumerate(separate):
            if apart:
                names[number] = self.own_buffer(names[number], values[number].spec)
        types = ", ".join([tensor_type(value.spec) for value in values])
        self.line(f"{terminator} {', '.join(names)} : {types}" if values else terminator)

    @overridable("own_buffer")
    def own_buffer(self, name: str, spec: TensorSpec) -> str:
        """Returns a result that must not share an argument's buffer; unchanged for StableHLO, which lacks buffers."""
        del spec
        return name
