"""Checkpoints of compressed-tensors, written and unpacked by itself: for ``make_quantized_goldens.py``."""

from typing import Any

import torch
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.compressors.mx_utils import decompress_mx_scale
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams

_INTEGERS = {
    "int4_groups": {"num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": True},
    "int4_zeros": {"num_bits": 4, "strategy": "group", "group_size": 48, "symmetric": False},
    "int4_rows": {"num_bits": 4, "strategy": "channel", "symmetric": False},
    "int3_groups": {"num_bits": 3, "strategy": "group", "group_size": 32, "symmetric": False},
    "int8_groups": {"num_bits": 8, "strategy": "group", "group_size": 96, "symmetric": True},
    "int2_rows": {"num_bits": 2, "strategy": "channel", "symmetric": True},
}
_PLAIN = {
    "int8_rows": ("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}),
    "int8_zeros": ("naive-quantized", {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": False}),
    "int8_tensor": ("int-quantized", {"num_bits": 8, "type": "int", "strategy": "tensor", "symmetric": True}),
    "float_rows": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"}),
    "float_tensor": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "tensor"}),
    "float_blocks": (
        "float-quantized",
        {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [16, 40]},
    ),
}
_FOURS = {
    "nvfp4": ("nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}),
    "mxfp4": ("mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}),
    "mxfp8": ("mxfp8-quantized", {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32}),
}


def compressed_cases() -> dict[str, Any]:
    """Returns quantization_config, stored tensors and weights of each case: one group per matrix."""
    schemes = {name: ("pack-quantized", {"type": "int", **weights}) for name, weights in _INTEGERS.items()}
    return {
        "compressed": _checkpoint(schemes | _PLAIN | _FOURS, torch.bfloat16),
        "compressed_f16": _checkpoint(schemes, torch.float16),
        "compressed_f32": _checkpoint(_PLAIN, torch.float32),
    }


def _checkpoint(schemes: dict[str, Any], dtype: torch.dtype) -> Any:
    """Returns a checkpoint of mixed precision with a matrix of each scheme."""
    torch.manual_seed(3)
    groups: dict[str, Any] = {}
    stored: dict[str, torch.Tensor] = {}
    weights: dict[str, torch.Tensor] = {}
    for number, (name, (form, arguments)) in enumerate(schemes.items()):
        module = f"layers.{number}.{name}"
        target = module if number % 2 else f"re:.*{name}$"
        groups[f"group_{number}"] = {"targets": [target], "format": form, "weights": arguments}
        parts, weights[f"{module}.weight"] = _matrix(form, arguments, dtype)
        stored |= {f"{module}.{key}": tensor for key, tensor in parts.items()}
    config = {
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
        "format": "mixed-precision",
        "ignore": ["lm_head", "re:vision.*"],
        "config_groups": groups,
    }
    return config, stored, weights


def _matrix(form: str, arguments: dict[str, Any], dtype: torch.dtype) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Returns the parts of a random matrix, quantised in this way, and the matrix in f32."""
    scheme = QuantizationScheme(targets=["Linear"], weights=arguments)
    weight = torch.randn(20, 96, dtype=dtype)
    state: dict[str, torch.Tensor] = {"weight": weight}
    scale, zero = _parameters(weight, scheme)
    if form.startswith("nvfp4"):
        state["weight_global_scale"] = torch.tensor([448 * 6 / weight.abs().max().item()], dtype=torch.float32)
        scale = (state["weight_global_scale"] * weight.float().unflatten(1, (-1, 16)).abs().amax(-1) / 6).to(dtype)
    if form.startswith("mx"):
        scale = torch.exp2(torch.floor(torch.log2(scale.float()))).to(dtype)
    state["weight_scale"] = scale
    if not scheme.weights.symmetric:
        state["weight_zero_point"] = zero
    compressor = BaseCompressor.get_value_from_registry(form)
    parts = compressor.compress(state, scheme)
    wide = dict(parts)
    if wide["weight_scale"].dtype == dtype:
        wide["weight_scale"] = wide["weight_scale"].float()
    own = compressor.decompress(dict(parts), scheme)["weight"]
    exact = (
        compressor.decompress(wide, scheme)["weight"]
        if not form.startswith(("nvfp4", "mx"))
        else _f32(parts, own, form)
    )
    assert torch.equal(exact.to(own.dtype), own), form
    return parts, exact.float()


def _parameters(weight: torch.Tensor, scheme: QuantizationScheme) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns scales and zero points by the library's own rule from the least and greatest weights."""
    arguments = scheme.weights
    strategy, rows, columns = arguments.strategy, *weight.shape
    if strategy == "tensor":
        least, most = weight.min().reshape(1), weight.max().reshape(1)
    elif strategy == "channel":
        least, most = weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
    elif strategy == "block":
        height, width = arguments.block_structure
        padded = torch.zeros(-(-rows // height) * height, -(-columns // width) * width, dtype=weight.dtype)
        padded[:rows, :columns] = weight
        blocks = padded.unflatten(1, (-1, width)).unflatten(0, (-1, height))
        least, most = blocks.amin((1, 3)), blocks.amax((1, 3))
    else:
        groups = weight.unflatten(1, (-1, arguments.group_size))
        least, most = groups.amin(-1), groups.amax(-1)
    arguments = arguments.model_copy(update={"scale_dtype": None})
    scale, zero = calculate_qparams(least, most, arguments)
    return scale.to(weight.dtype), zero.to(torch.int8)


def _f32(parts: dict[str, torch.Tensor], own: torch.Tensor, form: str) -> torch.Tensor:
    """Returns the matrix of a format that the library unpacks to 16 bits only, by its own steps in f32."""
    if form == "mxfp8-quantized":
        codes, scale = parts["weight"].float(), decompress_mx_scale(parts["weight_scale"]).float()
    else:
        packed = parts["weight_packed"]
        codes = unpack_fp4_from_uint8(packed, packed.shape[0], packed.shape[1] * 2, dtype=torch.float32)
        scale = parts["weight_scale"]
        scale = decompress_mx_scale(scale).float() if form.startswith("mx") else scale.float()
    if "weight_global_scale" in parts:
        scale = scale / parts["weight_global_scale"]
    return (codes.unflatten(1, (scale.shape[1], -1)) * scale[..., None]).flatten(1)
