"""All adapters: importing their modules registers them."""

from typing import Final

from tests.conformance import (
    _onnx_activations,
    _onnx_attention,
    _onnx_contract,
    _onnx_control,
    _onnx_elementwise,
    _onnx_indexing,
    _onnx_linear_attention,
    _onnx_losses,
    _onnx_norms,
    _onnx_reduce,
    _onnx_shape,
    _onnx_windows,
)
from tests.conformance._onnx_node import ADAPTERS

MODULES: Final = (
    _onnx_activations,
    _onnx_attention,
    _onnx_contract,
    _onnx_control,
    _onnx_elementwise,
    _onnx_indexing,
    _onnx_linear_attention,
    _onnx_losses,
    _onnx_norms,
    _onnx_reduce,
    _onnx_shape,
    _onnx_windows,
)

__all__ = ["ADAPTERS", "MODULES"]
