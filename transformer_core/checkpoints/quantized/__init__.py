"""Quantised safetensors: FP8 and MXFP4 (docs/quantized.md has what is read, and how exactly)."""

from transformer_core.checkpoints.quantized._methods import METHODS, quantization_fields
from transformer_core.checkpoints.quantized._weights import QuantizedWeights

__all__ = ["METHODS", "QuantizedWeights", "quantization_fields"]
