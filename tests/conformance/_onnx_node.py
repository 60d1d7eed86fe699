"""ONNX nodes as adapters see them: tensors of a context, values known at compile time, attributes."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import onnx

from lang_core import DType, ExecutionContext, OpError, Tensor, as_dtype
from lang_core.ops import Ops

Array = np.ndarray[Any, Any]


class NotExpressible(Exception):
    """Model that the op table cannot express; the message is the reason that the documentation gives."""


class KnownValueNeeded(Exception):
    """An adapter needs a value at compile time; ``inputs`` are the graph's inputs on which the value depends."""

    def __init__(self, inputs: frozenset[str]) -> None:
        super().__init__(f"{sorted(inputs)} must be known at compile time")
        self.inputs: Final = inputs


def dtype_of(array: Array) -> DType:
    """The table's dtype of an array.

    Raises:
        NotExpressible: there is none.
    """
    try:
        return as_dtype(array.dtype)
    except OpError:
        kind = "strings" if array.dtype.kind in "OUST" else str(array.dtype)
        raise NotExpressible(f"dtype: the op table has no {kind}") from None


def dtype_numbered(number: int) -> DType:
    """The table's dtype of ONNX's TensorProto.DataType."""
    if number == onnx.TensorProto.STRING:
        raise NotExpressible("dtype: the op table has no strings")
    return dtype_of(np.zeros(0, onnx.helper.tensor_dtype_to_np_dtype(number)))


@dataclasses.dataclass(slots=True)
class Value:
    """A value of an ONNX graph.

    Attributes:
        tensor: of the context; None until a known value is asked for as a tensor.
        known: the data, where it is known at compile time.
        inputs: the graph's inputs on which it depends.
    """

    tensor: Tensor | None = None
    known: Array | None = None
    inputs: frozenset[str] = frozenset()


class Node:
    """One node of an ONNX graph, with its operands.

    Attributes:
        ctx: where to compute or record.
        ops: its ops.
        kind: the op's name.
        proto: the node itself.
        opset: the version of the operator set that the model names for the op's domain.
        run: computes a graph that is an attribute of the node, on values for its inputs.
    """

    def __init__(
        self,
        ctx: ExecutionContext,
        proto: onnx.NodeProto,
        inputs: Sequence[Value | None],
        opset: int,
        run: Callable[[onnx.GraphProto, Sequence[Value]], list[Value]],
    ) -> None:
        self.ctx: Final = ctx
        self.ops: Final[Ops] = ctx.ops
        self.kind: Final[str] = proto.op_type
        self.proto: Final = proto
        self.opset: Final = opset
        self.run: Final = run
        self._inputs: Final = tuple(inputs)
        self._attributes: Final = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}

    def __len__(self) -> int:
        """The number of operands, absent optional ones included."""
        return len(self._inputs)

    def has(self, index: int) -> bool:
        """Returns whether the optional operand is given."""
        return index < len(self._inputs) and self._inputs[index] is not None

    def wants(self, index: int) -> bool:
        """Returns whether the optional result is used."""
        return index < len(self.proto.output) and bool(self.proto.output[index])

    def value(self, index: int) -> Value:
        """An operand.

        Raises:
            NotExpressible: it is absent.
        """
        value = self._inputs[index] if index < len(self._inputs) else None
        if value is None:
            raise NotExpressible(f"{self.kind} without operand {index}")
        return value

    def tensor(self, index: int) -> Tensor:
        """An operand as a tensor of the context."""
        return self.tensors_of([self.value(index)])[0]

    def tensors_of(self, values: Sequence[Value]) -> list[Tensor]:
        """Values as tensors of the context."""
        tensors = []
        for value in values:
            if value.tensor is None:
                if value.known is None:
                    raise NotExpressible(f"{self.kind} of a value that no node computes")
                dtype_of(value.known)
                value.tensor = self.ctx.constant(value.known)
            tensors.append(value.tensor)
        return tensors

    def shape(self, index: int) -> tuple[int, ...]:
        """An operand's shape, known whatever the dtype."""
        value = self.value(index)
        return value.known.shape if value.known is not None else self.tensor(index).shape

    def dtype(self, index: int) -> DType:
        """An operand's dtype."""
        return self.tensor(index).dtype

    def tensors(self) -> list[Tensor]:
        """All operands as tensors."""
        return [self.tensor(index) for index in range(len(self._inputs))]

    def optional(self, index: int) -> Tensor | None:
        """An operand as a tensor; None where it is absent."""
        return self.tensor(index) if self.has(index) else None

    def known(self, index: int) -> Array:
        """An operand's data.

        Raises:
            KnownValueNeeded: it is not known at compile time.
        """
        value = self.value(index)
        if value.known is None:
            raise KnownValueNeeded(value.inputs)
        return value.known

    def ints(self, index: int) -> list[int]:
        """An operand's data as integers."""
        return [int(item) for item in self.known(index).reshape(-1)]

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute; strings are decoded."""
        value = self._attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    @staticmethod
    def array(value: bool | int) -> Array:
        """A number as ONNX has it: bool, or int64."""
        return np.array(value, np.bool_ if isinstance(value, bool) else np.int64)

    def graph_attribute(self, name: str) -> onnx.GraphProto:
        """A graph that is an attribute."""
        value = self._attributes.get(name)
        if not isinstance(value, onnx.GraphProto):
            raise NotExpressible(f"{self.kind} without the graph {name}")
        return value

    def tensor_attribute(self, name: str) -> Array:
        """A tensor attribute's data."""
        value = self._attributes.get(name)
        if not isinstance(value, onnx.TensorProto):
            raise NotExpressible(f"{self.kind} without the tensor attribute {name}")
        return onnx.numpy_helper.to_array(value)

    def ints_of(self, name: str, index: int) -> list[int] | None:
        """Returns an attribute of older operator sets or the operand of newer ones; None where it is neither."""
        if name in self._attributes:
            return [int(item) for item in self._attributes[name]]
        return self.ints(index) if self.has(index) else None


# Tensors, or data known at compile time, or None for a result that is not wanted; one alone needs no tuple.
Results = Tensor | Array | Sequence[Tensor | Array | None]
Adapter = Callable[[Node], Results]

ADAPTERS: Final[dict[str, Adapter]] = {}


def adapts(*kinds: str) -> Callable[[Adapter], Adapter]:
    """Registers the adapter of ONNX ops; those of other domains than ai.onnx are ``domain.Op``."""

    def register(adapter: Adapter) -> Adapter:
        for kind in kinds:
            assert kind not in ADAPTERS, kind
            ADAPTERS[kind] = adapter
        return adapter

    return register


def axis_of(axis: int, ndim: int) -> int:
    """An axis counted from the start."""
    return axis + ndim if axis < 0 else axis
