"""Quantised safetensors as sources of the weights that they stand for (docs/quantized.md has what is read)."""

from transformer_core.checkpoints.quantized._weights import METHODS, QuantizedWeights, quantization_fields

__all__ = ["METHODS", "QuantizedWeights", "quantization_fields"]
