"""The emitter: walks nodes in order and writes one function's text. It keeps names, never text."""

import math
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from compile_dag import ComputeGraph, Node, Stretch, Value
from compile_hlo.emit._groups import Group
from compile_hlo.emit._helpers import HelperFunctions
from compile_hlo.emit._parameter_table import ParameterTable
from compile_hlo.emit._types import dense, integers, tensor_type
from compile_hlo.emit._widened import WidenedValues
from lang_core import DType, GraphError, TensorSpec, as_dtype, bf16, f32, i32, u8

Write = Callable[[str], object]
Rule = Callable[["Emitter", Node], None]

# Ops that are written where a stretch uses them, not where they were recorded.
LEAVES: Final = ("constant", "parameter")

# One rule per op; filled by the modules of this folder.
RULES: Final[dict[str, Rule]] = {}


def emits(*op_names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for ops."""

    def register(rule: Rule) -> Rule:
        for name in op_names:
            if name in RULES:
                raise GraphError(f"op {name!r} has an emission rule already")
            RULES[name] = rule
        return rule

    return register


class ParameterForm(Protocol):
    """How a parameter's value comes into the function."""

    def load(self, emitter: "Emitter", path: str, spec: TensorSpec) -> str:
        """Writes what is needed and returns the name of the value."""
        ...


def _conversion_step(source: DType, target: DType) -> DType | None:
    """The dtype by way of which a conversion goes; None where it is direct."""
    if f32 not in (source, target) and (source.itemsize == 2 or target is bf16):
        return f32  # as the eager cast does; and IREE's vmvx converts 16-bit floats from and to f32 only
    if target is u8 and source.itemsize > 2 and source.is_floating:
        return i32  # vmvx converts floats to signed integers only
    return None


class Emitter:
    """Writes the body of a function, node by node.

    Constants and parameters are written where a block first uses them, so that a block's text does not depend
    on what stands before it; so are operands that must be broadcast or converted first.

    Attributes:
        parameters: the weights that were loaded so far.
        leaves: the constants and parameters that were made, by the numbers of their values.
        helpers: the module's private functions that rules call.
    """

    def __init__(
        self, write: Write, parameters: ParameterForm, indent: str = "    ", helpers: HelperFunctions | None = None
    ) -> None:
        self._write = write
        self.helpers = HelperFunctions() if helpers is None else helpers
        self._parameters = parameters
        self._indent = indent
        self._names: dict[int, str] = {}
        self.leaves: dict[int, Node] = {}
        # What the current block has converted already: (value or text, target) -> name.
        self._ready: dict[Any, str] = {}
        self._count = 0
        self._path = ""
        self._stretch: Stretch | None = None
        self.parameters = ParameterTable()
        self._widened = WidenedValues()

    def bind(self, value: Value, name: str) -> None:
        """Names a value that exists already, such as an argument."""
        self._names[id(value)] = name

    def forget(self, values: Iterable[Value]) -> None:
        """Drops what is known of values that are not used any more."""
        for value in values:
            self._names.pop(id(value), None)
            self.leaves.pop(value.number, None)
            self._widened.forget(value)

    def fresh(self) -> str:
        """A name that is not taken."""
        name = f"%{self._count}"
        self._count += 1
        return name

    def line(self, text: str) -> None:
        """Writes one line of the body."""
        self._write(f"{self._indent}{text}\n")

    def new(self, text: str, results: int = 1) -> str:
        """Writes ``%n = text`` and returns ``%n``; its results, if several, are ``%n#0``, ``%n#1``, ..."""
        name = f"%{self._count}"
        self._count += 1
        self._write(f"{self._indent}{name if results == 1 else f'{name}:{results}'} = {text}\n")
        return name

    def new_in_pieces(self, pieces: Iterable[str]) -> str:
        """The same as ``new`` for text that is too long to hold."""
        name = self.fresh()
        self._write(f"{self._indent}{name} = ")
        for piece in pieces:
            self._write(piece)
        self._write("\n")
        return name

    def define(self, node: Node, text: str) -> None:
        """Writes the only result of a node."""
        self._names[id(node.results[0])] = self.new(text)

    def alias(self, node: Node, name: str) -> None:
        """Makes a value that exists already the only result of a node."""
        self._names[id(node.results[0])] = name

    def name(self, value: Value) -> str:
        """The name of a value; a constant or a parameter is written first if this block has not yet."""
        found = self._names.get(id(value))
        return self._leaf(value) if found is None else found

    def _leaf(self, value: Value) -> str:
        leaf = self.leaves.get(value.number)
        if leaf is None:
            return self.foreign(value)
        if leaf.op.name == "constant":
            return self.constant(leaf.attributes[0].array)
        return self.parameter(*leaf.attributes)

    def foreign(self, value: Value) -> str:
        """The name of a value that was not made here."""
        raise GraphError(f"{value!r} is used before it is made: verify the graph")

    def comment(self, path: str) -> str:
        """What is said of a module path."""
        return path or "the root"

    def parameter(self, path: str, spec: TensorSpec) -> str:
        """The name of a weight, loaded once per stretch."""
        key = "parameter", path
        if key not in self._ready:
            self.parameters.add(path, spec)
            self._ready[key] = self._parameters.load(self, path, spec)
        return self._ready[key]

    def constant(self, array: Any, spec: TensorSpec | None = None) -> str:
        """A constant, filled to a shape if a spec is given and the array has one element."""
        spec = spec or TensorSpec(array.shape, as_dtype(array.dtype))
        text = f"stablehlo.constant {dense(array)} : {tensor_type(spec)}"
        if text not in self._ready:
            self._ready[text] = self.new(text)
        return self._ready[text]

    def scalar(self, number: float, dtype: DType) -> str:
        """A rank-0 constant."""
        return self.constant(dtype.numpy.type(number))

    def operand(self, value: Value, shape: tuple[int, ...], dtype: DType) -> str:
        """The name of a value, broadcast to a shape (NumPy's rules) and converted to a dtype."""
        spec = value.spec
        if spec.shape == shape and spec.dtype is dtype:
            return self.name(value)
        leaf = self.leaves.get(value.number)
        if leaf is not None and leaf.op.name == "constant" and spec.size == 1 and shape:
            array = leaf.attributes[0].array.astype(dtype.numpy)
            return self.constant(array.reshape(()), TensorSpec(shape, dtype))
        key = id(value), shape, dtype
        if key not in self._ready:
            name = self.convert(self.name(value), spec, dtype)
            self._ready[key] = self.broadcast(name, TensorSpec(spec.shape, dtype), shape)
        return self._ready[key]

    def convert(self, name: str, spec: TensorSpec, dtype: DType) -> str:
        """Converts to a dtype; a number becomes bool by ``!= 0``."""
        if spec.dtype is dtype:
            return name
        source, target = tensor_type(spec), tensor_type(TensorSpec(spec.shape, dtype))
        between = _conversion_step(spec.dtype, dtype)
        if between is not None:
            step = TensorSpec(spec.shape, between)
            name = self.convert(name, spec, between)
            if dtype is bf16 and not spec.dtype.is_floating:
                # IREE 3.13 fuses the steps into one that vmvx and Vulkan cannot compile.
                name = self.barrier(name, step)
            return self.convert(name, step, dtype)
        if dtype.name == "bool":
            zero = self.constant(spec.dtype.numpy.type(0), spec)
            return self.compare("NE", name, zero, spec)
        if spec.dtype.is_floating and dtype.is_integer:
            name = self._truncated(name, spec)
        return self.new(f"stablehlo.convert {name} : ({source}) -> {target}")

    def _truncated(self, name: str, spec: TensorSpec) -> str:
        """Rounds towards zero, as a conversion to integers is to do: IREE's vmvx rounds to nearest there."""
        kind = tensor_type(spec)
        negative = self.compare("LT", name, self.constant(spec.dtype.numpy.type(0), spec), spec)
        up, down = self.new(f"stablehlo.ceil {name} : {kind}"), self.new(f"stablehlo.floor {name} : {kind}")
        return self.select(negative, up, down, spec)

    def select(self, pred: str, on_true: str, on_false: str, spec: TensorSpec) -> str:
        """Chooses between two values of one spec by a bool value of its shape."""
        types = f"{tensor_type(TensorSpec(spec.shape, 'bool'))}, {tensor_type(spec)}"
        return self.new(f"stablehlo.select {pred}, {on_true}, {on_false} : {types}")

    def compare(self, direction: str, x: str, y: str, spec: TensorSpec) -> str:
        """Compares two values of one spec."""
        if x == y and direction in ("EQ", "NE") and spec.dtype.is_floating:
            return self._number(x, direction, spec)
        if direction == "GE" and spec.dtype.is_floating:  # IREE's vmvx takes NaN >= y for true, y <= NaN not
            direction, x, y = "LE", y, x
        kind = "FLOAT" if spec.dtype.is_floating else "UNSIGNED" if spec.dtype.name in ("u8", "bool") else "SIGNED"
        source, target = tensor_type(spec), tensor_type(TensorSpec(spec.shape, "bool"))
        return self.new(f"stablehlo.compare {direction}, {x}, {y}, {kind} : ({source}, {source}) -> {target}")

    def _number(self, name: str, direction: str, spec: TensorSpec) -> str:
        """Whether a float is equal to itself, that is no NaN: IREE's vmvx takes that for granted."""
        infinity = self.constant(spec.dtype.numpy.type(math.inf), spec)
        number = self.compare("LE", name, infinity, spec)
        flags = tensor_type(TensorSpec(spec.shape, "bool"))
        return number if direction == "EQ" else self.new(f"stablehlo.not {number} : {flags}")

    def broadcast(self, name: str, spec: TensorSpec, shape: tuple[int, ...]) -> str:
        """Broadcasts to a shape, aligned at the right."""
        if spec.shape == shape:
            return name
        dims = tuple(range(len(shape) - spec.ndim, len(shape)))
        target = tensor_type(TensorSpec(shape, spec.dtype))
        return self.new(
            f"stablehlo.broadcast_in_dim {name}, dims = {integers(dims)} : ({tensor_type(spec)}) -> {target}"
        )

    def reshape(self, name: str, spec: TensorSpec, shape: tuple[int, ...]) -> str:
        """Reshapes, where the shape changes."""
        if spec.shape == shape:
            return name
        return self.new(
            f"stablehlo.reshape {name} : ({tensor_type(spec)}) -> {tensor_type(TensorSpec(shape, spec.dtype))}"
        )

    def nodes(self, nodes: Iterable[Node]) -> None:
        """Writes nodes in order. A comment says the module path where it changes."""
        for node in nodes:
            if node.op.name in LEAVES:
                self.leaves[node.results[0].number] = node
                continue
            if node.stretch != self._stretch:
                self.enter(node.stretch)
            for path in node.paths if isinstance(node, Group) else (node.results[0].path,):
                if path != self._path:
                    self._path = path
                    self._write(f"{self._indent}// {self.comment(path)}\n")
            rule = RULES.get(node.op.name)
            if rule is None:
                raise GraphError(f"{node!r}: the op has no emission rule")
            rule(self, node)
            self._widened.follow(node)

    def barrier(self, name: str, spec: TensorSpec) -> str:
        """The value once more; IREE fuses nothing across it."""
        return self.new(f"stablehlo.optimization_barrier {name} : {tensor_type(spec)}")

    def is_widened(self, value: Value) -> bool:
        """Whether a value is arithmetic on a conversion from fewer bytes: see ``_widened.py``."""
        return self._widened.has(value)

    def enter(self, stretch: Stretch) -> None:
        """Another stretch begins: nothing is ready."""
        self._stretch = stretch
        self._ready = {}

    def region(self, graph: ComputeGraph, arguments: Iterable[str]) -> None:
        """Writes the body of a region; what it makes ready is not ready outside."""
        ready, indent = self._ready, self._indent
        self._ready, self._indent = dict(ready), indent + "  "
        for value, name in zip(graph.inputs.values(), arguments, strict=True):
            self.bind(value, name)
        stretch, path = self._stretch, self._path
        self.nodes(graph.nodes)
        self.end("stablehlo.return", graph.outputs.values())
        self._ready, self._indent, self._stretch, self._path = ready, indent, stretch, path

    def separate(self, name: str, spec: TensorSpec) -> str:
        """A copy that IREE 3.13 does not elide: a barrier alone, or what computes nothing, it does."""
        line = spec if spec.shape else TensorSpec((1,), spec.dtype)
        name = self.reshape(name, spec, line.shape)
        longer = TensorSpec((line.shape[0] + 1, *line.shape[1:]), spec.dtype)
        none = integers((0,) * line.ndim)
        filler, scalar = self.scalar(0, spec.dtype), tensor_type(TensorSpec((), spec.dtype))
        high = integers((1, *(0,) * (line.ndim - 1)))
        source, target = tensor_type(line), tensor_type(longer)
        name = self.new(
            f"stablehlo.pad {name}, {filler}, low = {none}, high = {high}, interior = {none} : "
            f"({source}, {scalar}) -> {target}"
        )
        name = self.barrier(name, longer)
        ranges = ", ".join([f"0:{dim}" for dim in line.shape])
        return self.reshape(self.new(f"stablehlo.slice {name} [{ranges}] : ({target}) -> {source}"), line, spec.shape)

    def end(self, terminator: str, results: Iterable[Value], separate: Iterable[bool] = ()) -> None:
        """Writes the return of a function or region.

        Args:
            terminator: the op that returns.
            results: what it returns.
            separate: of each result, whether it gets a buffer of its own; none do where empty.
        """
        values = tuple(results)
        found = [self.name(value) for value in values]
        for number, apart in enumerate(separate):
            if apart:
                found[number] = self.separate(found[number], values[number].spec)
        names = ", ".join(found)
        types = ", ".join([tensor_type(value.spec) for value in values])
        self.line(f"{terminator} {names} : {types}" if values else terminator)
