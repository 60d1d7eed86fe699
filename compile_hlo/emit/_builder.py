"""Builder of StableHLO text: numbers results and writes the ops that rules have in common.

It keeps names, never text.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from compile_hlo.emit._overrides import NO_OVERRIDES, Overrides, overridable
from compile_hlo.emit._types import dense, integers, tensor_type
from lang_core import DType, TensorSpec, as_dtype, bf16, bool_, f32

Write = Callable[[str], object]
"""Receiver of lines of text."""


class SsaValue(NamedTuple):
    """Value in the text.

    Attributes:
        name: ``%n``, or an argument's name.
        spec: shape and dtype.
    """

    name: str
    spec: TensorSpec

    @property
    def kind(self) -> str:
        """The value's type."""
        return tensor_type(self.spec)


class Builder:
    """Writes ops, each as the StableHLO specification has it unless an override takes its place.

    Attributes:
        overrides: functions that take the place of overridable ones.
        location: text after each op, such as `` loc("model.layers.0":0:0)``; empty if ops have none.
    """

    def __init__(self, write: Write, indent: str = "    ", overrides: Overrides = NO_OVERRIDES) -> None:
        self.overrides = overrides
        self.location = ""
        self._write = write
        self._indent = indent
        # Names of what the current block has made ready: by a constant's text, or by (value or parameter, target).
        self._ready: dict[Any, str] = {}
        # Texts of constants of one number, as MLIR spells it, by the names of values that hold it.
        self._numbers: dict[str, str] = {}
        # What a value is made by, by its name, if a compiler cannot compute it in one pass with what follows.
        self._makers: dict[str, str] = {}
        self._count = 0

    def fresh(self) -> str:
        """Returns a name that is not taken."""
        name = f"%{self._count}"
        self._count += 1
        return name

    def line(self, text: str) -> None:
        """Writes one line of the body, the only or the last one of an op."""
        self._write(f"{self._indent}{text}{self.location}\n")

    def part(self, text: str) -> None:
        """Writes one line of an op with regions, other than its last one."""
        self._write(f"{self._indent}{text}\n")

    def new(self, text: str, results: int = 1) -> str:
        """Writes ``%n = text`` and returns ``%n``; its results, if several, are ``%n#0``, ``%n#1``, ..."""
        name = f"%{self._count}"
        self._count += 1
        self._write(f"{self._indent}{name if results == 1 else f'{name}:{results}'} = {text}{self.location}\n")
        return name

    def new_in_pieces(self, pieces: Iterable[str]) -> str:
        """Does the same as ``new`` for text that is too long to hold."""
        name = self.fresh()
        self._write(f"{self._indent}{name} = ")
        for piece in pieces:
            self._write(piece)
        self._write(f"{self.location}\n")
        return name

    def constant(self, array: Any, spec: TensorSpec | None = None) -> str:
        """Returns the name of a constant, filled to a shape if a spec is given and the array has one element."""
        spec = spec or TensorSpec(array.shape, as_dtype(array.dtype))
        text = f"stablehlo.constant {dense(array)} : {tensor_type(spec)}"
        if text not in self._ready:
            self._ready[text] = name = self.new(text)
            number = text[len("stablehlo.constant dense<") : text.index(">")]
            if spec.dtype.is_floating and number[:1] not in ('"', ""):
                self._numbers[name] = number
        return self._ready[text]

    def is_number(self, name: str, *numbers: str) -> bool:
        """Returns whether a value is a floating constant of one of the numbers, spelled as MLIR does: ``0.0``."""
        return self._numbers.get(name) in numbers

    def scalar(self, number: float, dtype: DType) -> str:
        """Returns the name of a rank-0 constant."""
        return self.constant(dtype.numpy.type(number))

    def filled(self, number: float, spec: TensorSpec) -> str:
        """Returns the name of a constant that repeats one number."""
        return self.constant(spec.dtype.numpy.type(number), spec)

    def elementwise(self, op: str, operands: Sequence[str], spec: TensorSpec) -> str:
        """Applies an op to operands of the result's spec. Overrides have the op's name."""
        override = self.overrides.functions.get(op)
        if override is not None:
            return override(Builder._elementwise, self, op, operands, spec)
        return self._elementwise(op, operands, spec)

    def _elementwise(self, op: str, operands: Sequence[str], spec: TensorSpec) -> str:
        return self.new(f"stablehlo.{op} {', '.join(operands)} : {tensor_type(spec)}")

    @overridable("convert")
    def convert(self, name: str, spec: TensorSpec, dtype: DType) -> str:
        """Converts to a dtype; a number becomes bool by ``!= 0``, and bf16 by way of f32, as the eager cast does."""
        if spec.dtype is dtype:
            return name
        if dtype is bool_:
            return self.compare("NE", name, self.filled(0, spec), spec)
        if dtype is bf16 and spec.dtype is not f32:
            return self.convert(self.convert(name, spec, f32), TensorSpec(spec.shape, f32), dtype)
        source, target = tensor_type(spec), tensor_type(TensorSpec(spec.shape, dtype))
        return self.of_same_elements(name, self.new(f"stablehlo.convert {name} : ({source}) -> {target}"))

    def bitcast(self, name: str, spec: TensorSpec, target: TensorSpec) -> str:
        """Reinterprets the bits; a last axis of parts becomes one element."""
        return self.new(f"stablehlo.bitcast_convert {name} : ({tensor_type(spec)}) -> {tensor_type(target)}")

    def select(self, pred: str, on_true: str, on_false: str, spec: TensorSpec) -> str:
        """Chooses between two values of one spec by a bool value of its shape."""
        types = f"{tensor_type(TensorSpec(spec.shape, 'bool'))}, {tensor_type(spec)}"
        return self.new(f"stablehlo.select {pred}, {on_true}, {on_false} : {types}")

    @overridable("compare")
    def compare(self, direction: str, x: str, y: str, spec: TensorSpec) -> str:
        """Compares two values of one spec."""
        kind = "FLOAT" if spec.dtype.is_floating else "UNSIGNED" if spec.dtype.name in ("u8", "bool") else "SIGNED"
        source, target = tensor_type(spec), tensor_type(TensorSpec(spec.shape, "bool"))
        return self.new(f"stablehlo.compare {direction}, {x}, {y}, {kind} : ({source}, {source}) -> {target}")

    def broadcast(self, name: str, spec: TensorSpec, shape: tuple[int, ...]) -> str:
        """Broadcasts to a shape, aligned at the right."""
        if spec.shape == shape:
            return name
        return self.spread(name, spec, TensorSpec(shape, spec.dtype), tuple(range(len(shape) - spec.ndim, len(shape))))

    def spread(self, name: str, spec: TensorSpec, target: TensorSpec, dims: tuple[int, ...]) -> str:
        """Broadcasts to a spec; axis i of the value becomes axis ``dims[i]``."""
        line = f"stablehlo.broadcast_in_dim {name}, dims = {integers(dims)} : "
        return self.of_same_elements(name, self.new(f"{line}({tensor_type(spec)}) -> {tensor_type(target)}"))

    def reshape(self, name: str, spec: TensorSpec, shape: tuple[int, ...]) -> str:
        """Reshapes, if the shape changes."""
        if spec.shape == shape:
            return name
        line = f"stablehlo.reshape {name} : ({tensor_type(spec)}) -> "
        return self.of_same_elements(name, self.new(f"{line}{tensor_type(TensorSpec(shape, spec.dtype))}"))

    def of_same_elements(self, source: str, name: str) -> str:
        """Notes that a value has the elements of another value: a number, and the value's defining op."""
        number = self._numbers.get(source)
        if number is not None:
            self._numbers[name] = number
        maker = self._makers.get(source)
        if maker is not None:
            self._makers[name] = maker
        return name

    def made_by(self, name: str, maker: str) -> None:
        """Notes the defining op of a value; a reshape of the value has the same defining op."""
        self._makers[name] = maker

    def is_made_by(self, name: str, maker: str) -> bool:
        """Returns whether ``made_by`` was called so for a value, or for one that it is a reshape of."""
        return self._makers.get(name) == maker

    def barrier(self, name: str, spec: TensorSpec) -> str:
        """Returns the value once more; compilers fuse nothing across it."""
        return self.new(f"stablehlo.optimization_barrier {name} : {tensor_type(spec)}")
