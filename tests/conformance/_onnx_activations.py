"""Adapters of ONNX's activations."""

from collections.abc import Callable
from typing import Final

from lang_core import Tensor
from lang_core.ops import Ops
from tests.conformance._onnx_elementwise import floating_operand
from tests.conformance._onnx_node import ADAPTERS, Node, adapts


def _elu(ops: Ops, x: Tensor, alpha: float) -> Tensor:
    return ops.select(ops.greater(x, 0), x, ops.mul(ops.expm1(ops.minimum(x, 0)), alpha))


def _selu(node: Node, x: Tensor) -> Tensor:
    alpha = node.attribute("alpha", 1.67326319217681884765625)
    return node.ops.mul(_elu(node.ops, x, alpha), node.attribute("gamma", 1.05070102214813232421875))


def _celu(node: Node, x: Tensor) -> Tensor:
    alpha = node.attribute("alpha", 1.0)
    below = node.ops.mul(node.ops.expm1(node.ops.div(node.ops.minimum(x, 0), alpha)), alpha)
    return node.ops.add(node.ops.maximum(x, 0), below)


def _hard_sigmoid(node: Node, x: Tensor) -> Tensor:
    line = node.ops.add(node.ops.mul(x, node.attribute("alpha", 0.2)), node.attribute("beta", 0.5))
    return node.ops.clamp(line, 0, 1)


def _hard_swish(node: Node, x: Tensor) -> Tensor:
    return node.ops.mul(x, node.ops.clamp(node.ops.add(node.ops.mul(x, 1 / 6), 0.5), 0, 1))


def _shrink(node: Node, x: Tensor) -> Tensor:
    ops, bias, limit = node.ops, node.attribute("bias", 0.0), node.attribute("lambd", 0.5)
    above = ops.select(ops.greater(x, limit), ops.sub(x, bias), ops.mul(x, 0))
    return ops.select(ops.less(x, -limit), ops.add(x, bias), above)


def _swish(node: Node, x: Tensor) -> Tensor:
    alpha = node.attribute("alpha", 1.0)
    return node.ops.silu(x) if alpha == 1 else node.ops.mul(x, node.ops.logistic(node.ops.mul(x, alpha)))


def _leaky_relu(node: Node, x: Tensor) -> Tensor:
    return node.ops.select(node.ops.less(x, 0), node.ops.mul(x, node.attribute("alpha", 0.01)), x)


def _thresholded_relu(node: Node, x: Tensor) -> Tensor:
    return node.ops.select(node.ops.greater(x, node.attribute("alpha", 1.0)), x, node.ops.mul(x, 0))


_OF_ONE: Final[dict[str, Callable[[Node, Tensor], Tensor]]] = {
    "Elu": lambda node, x: _elu(node.ops, x, node.attribute("alpha", 1.0)),
    "Selu": _selu,
    "Celu": _celu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Shrink": _shrink,
    "Swish": _swish,
    "LeakyRelu": _leaky_relu,
    "ThresholdedRelu": _thresholded_relu,
    "Gelu": lambda node, x: (
        node.ops.gelu_tanh(x) if node.attribute("approximate", "none") == "tanh" else node.ops.gelu(x)
    ),
    "Mish": lambda node, x: node.ops.mul(x, node.ops.tanh(node.ops.softplus(x))),
    "Softsign": lambda node, x: node.ops.div(x, node.ops.add(node.ops.abs(x), 1.0)),
}


def _adapter(function: Callable[[Node, Tensor], Tensor]) -> Callable[[Node], Tensor]:
    def adapter(node: Node) -> Tensor:
        x, dtype = floating_operand(node)
        return node.ops.cast(function(node, x), dtype)

    return adapter


ADAPTERS.update({kind: _adapter(function) for kind, function in _OF_ONE.items()})


@adapts("Relu")
def _relu(node: Node) -> Tensor:
    return node.ops.relu(node.tensor(0))


@adapts("PRelu")
def _prelu(node: Node) -> Tensor:
    x = node.tensor(0)
    return node.ops.select(node.ops.less(x, 0), node.ops.mul(x, node.tensor(1)), x)


@adapts("SwiGLU")
def _swiglu(node: Node) -> Tensor:
    x, dtype = floating_operand(node)
    gate = _swish(node, x)
    return node.ops.cast(node.ops.mul(gate, node.tensor(1)), dtype)


@adapts("Softmax", "LogSoftmax")
def _softmax(node: Node) -> Tensor:
    """Since operator set 13 along one axis; before, over all axes from one on."""
    ops, x = node.ops, node.tensor(0)
    apply = ops.softmax if node.kind == "Softmax" else ops.log_softmax
    if node.opset >= 13:
        return apply(x, node.attribute("axis", -1))
    axis = node.attribute("axis", 1)
    flat = ops.reshape(x, (*x.shape[:axis], -1) if axis else (-1,))
    return ops.reshape(apply(flat, -1), x.shape)


@adapts("Hardmax")
def _hardmax(node: Node) -> Tensor:
    """1 at the first of the largest elements."""
    ops, x = node.ops, node.tensor(0)
    axis = node.attribute("axis", -1) % x.ndim
    first = ops.argmax(x, axis, keepdims=True)
    return ops.cast(ops.equal(ops.iota(x.shape, axis), first), x.dtype)
