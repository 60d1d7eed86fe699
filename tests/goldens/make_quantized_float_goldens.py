"""Checkpoints of 8-bit and 4-bit floats, unpacked by transformers: for ``make_quantized_goldens.py``."""

from typing import Any

import torch
from transformers.integrations.finegrained_fp8 import _dequantize_fp8_weight
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

_E4M3, _E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def float_cases() -> dict[str, Any]:
    """Returns quantization_config, stored tensors and weights of each case."""
    return {
        "fp8_blocks": _fp8([32, 48], {"a": (70, 100, "grid"), "b": (32, 48, "grid"), "experts": (3, 40, 96, "grid")}),
        "fp8_rows": _fp8(None, {"a": (24, 40, "row"), "b": (24, 40, "rows")}, method="fbgemm_fp8"),
        "fp8_tensor": _fp8(None, {"a": (24, 40, "tensor"), "b": (16, 40, "scalar")}, activation_scheme="static"),
        "mxfp4_experts": _mxfp4(),
    }


def _fp8(block: list[int] | None, sizes: dict[str, Any], method: str = "fp8", **fields: Any) -> Any:
    torch.manual_seed(1)
    config = {"quant_method": method, **fields}
    if block:
        config["weight_block_size"] = block
    stored: dict[str, torch.Tensor] = {}
    weights: dict[str, torch.Tensor] = {}
    for number, (name, (*shape, kind)) in enumerate(sizes.items()):
        codes = (torch.randn(shape) * 60).to(_E5M2 if number == 1 else _E4M3)
        *leading, rows, columns = shape
        grid = [*leading, *(-(-size // step) for size, step in zip((rows, columns), block or (1, 1), strict=True))]
        size: list[int] = {"grid": grid, "row": [rows, 1], "rows": [rows], "tensor": [1], "scalar": []}[kind]
        scales = torch.rand(size) / 50
        if name == "b" and kind == "grid":
            scales = torch.exp2(torch.floor(torch.log2(scales))).to(torch.float8_e8m0fnu)
        key = name if leading else f"{name}.weight"
        suffix = "scale_inv" if kind in ("grid", "scalar") else "scale"
        stored |= {key: codes, f"{key}_{suffix}": scales}
        if kind == "tensor":
            stored[f"{name}.input_scale"] = torch.rand(1)
        wide = scales.to(torch.float32)
        if kind == "grid":
            weights[key] = _dequantize_fp8_weight(codes, wide, block, torch.float32)
        else:  # one scale for each row, or one for all
            weights[key] = codes.to(torch.float32) * (wide[:, None] if kind == "rows" else wide)
    stored["norm.weight"] = torch.ones(5, dtype=torch.bfloat16)
    return config, stored, weights


def _mxfp4() -> Any:
    torch.manual_seed(2)
    blocks = torch.randint(0, 256, (3, 10, 2, 16), dtype=torch.uint8)
    scales = torch.randint(118, 131, (3, 10, 2), dtype=torch.uint8)
    scales[0, 0], scales[1, 1] = torch.tensor([0, 1], dtype=torch.uint8), torch.tensor([254, 2], dtype=torch.uint8)
    weight = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    half = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16)
    assert torch.equal(weight.to(torch.bfloat16), half)
    key = "model.layers.0.mlp.experts.gate_up_proj"
    return {"quant_method": "mxfp4"}, {f"{key}_blocks": blocks, f"{key}_scales": scales}, {key: weight}
