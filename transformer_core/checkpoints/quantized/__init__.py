"""Quantized safetensors as sources of dequantized weights (docs/quantized.md lists supported formats)."""

from transformer_core.checkpoints.quantized._weights import METHODS, QuantizedWeights, quantization_fields
