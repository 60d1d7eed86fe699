"""Checkpoints of GPTQ and AWQ, unpacked by auto-gptq and autoawq: for ``make_quantized_goldens.py``.

Neither package imports beside a present transformers any more: the one file of each that has the arithmetic is run.
"""

import importlib.util
from pathlib import Path
from typing import Any

import torch

_ROWS = 32


def integer_cases() -> dict[str, Any]:
    """Returns quantization_config, stored tensors and weights of each case."""
    return {
        "gptq": _gptq(
            torch.float16, {"a": (4, 32, False), "b": (4, 32, True), "c": (8, 64, False), "d": (3, 32, True)}
        ),
        "gptq_bits": _gptq(torch.bfloat16, {"a": (2, 32, False), "b": (3, 32, False), "c": (8, 32, True)}),
        "gptq_v2": _gptq(torch.float16, {"a": (4, 32, False), "b": (2, 64, True), "c": (8, 64, False)}, added=0),
        "gptq_rows": _gptq(torch.float32, {"a": (4, -1, False)}, group=-1),
        "gptq_sym": _gptq(torch.float16, {"a": (4, 32, False), "b": (8, 32, False)}, symmetric=True),
        "awq": _awq(),
    }


def _file(package: str, path: str) -> Any:
    """Runs one file of an installed package, and nothing else of it."""
    whole = importlib.util.find_spec(package)
    assert whole is not None, package
    assert whole.origin is not None, package
    spec = importlib.util.spec_from_file_location(Path(path).stem, Path(whole.origin).parent / path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _gptq(
    dtype: torch.dtype, sizes: dict[str, Any], *, added: int = 1, group: int = 32, symmetric: bool = False
) -> Any:
    torch.manual_seed(4)
    kind = _file("auto_gptq", "nn_modules/qlinear/qlinear_cuda.py").QuantLinear
    form = {} if added else {"checkpoint_format": "gptq_v2"}
    config = {"quant_method": "gptq", "bits": 4, "group_size": group, "desc_act": True, "sym": symmetric, **form}
    stored: dict[str, torch.Tensor] = {}
    weights: dict[str, torch.Tensor] = {}
    for name, (bits, size, reordered) in sizes.items():
        columns = 128
        count = 1 if size == -1 else columns // size
        index = torch.arange(columns) // (columns if size == -1 else size)
        if reordered:
            index = index[torch.randperm(columns)]
        zeros = torch.randint(1, 1 << bits, (_ROWS, count)).float()
        if symmetric:
            zeros[:] = 1 << bits - 1
        scales = (torch.rand(_ROWS, count) / 50 + 0.01).to(dtype)
        linear = torch.nn.Linear(columns, _ROWS, bias=False)
        linear.weight.data = torch.randn(_ROWS, columns) / 30
        packer = kind(bits, size, columns, _ROWS, False, weight_dtype=dtype)
        packer.pack(linear, scales.float(), zeros.clone(), index.to(torch.int32))
        parts = {key: getattr(packer, key).to(dtype if key == "scales" else torch.int32) for key in _PARTS}
        results: dict[torch.dtype, torch.Tensor] = {}
        for kept in (torch.float32, dtype):
            layer = kind(bits, size, columns, _ROWS, False, weight_dtype=kept)
            layer.load_state_dict(parts)
            results[kept] = layer(torch.eye(columns, dtype=kept)).T
        weight = results[torch.float32]
        assert torch.equal(weight.to(dtype), results[dtype]), name
        if not added:  # gptqmodel's convert_gptq_v1_to_v2_format
            parts["qzeros"] = parts["qzeros"] + sum(1 << place for place in range(0, 32, bits))
        if not reordered and name == "a":
            del parts["g_idx"]
        stored |= {f"{name}.{key}": part for key, part in parts.items()}
        weights[f"{name}.weight"] = weight
    return config, stored, weights


_PARTS = ("qweight", "qzeros", "scales", "g_idx")


def _awq() -> Any:
    torch.manual_seed(5)
    dequantize = _file("awq", "utils/packing_utils.py").dequantize_gemm
    stored: dict[str, torch.Tensor] = {}
    weights: dict[str, torch.Tensor] = {}
    for name, (columns, rows) in {"a": (128, 40), "b": (64, 24)}.items():
        words = torch.randint(-(2**31), 2**31, (columns, rows // 8), dtype=torch.int64).to(torch.int32)
        zeros = torch.randint(-(2**31), 2**31, (columns // 32, rows // 8), dtype=torch.int64).to(torch.int32)
        scales = (torch.rand(columns // 32, rows) / 50).to(torch.float16)
        weight = dequantize(words, zeros, scales.float(), 4, 32)
        assert torch.equal(weight.half(), dequantize(words, zeros, scales, 4, 32)), name
        stored |= {f"{name}.qweight": words, f"{name}.qzeros": zeros, f"{name}.scales": scales}
        weights[f"{name}.weight"] = weight.T
    config = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}
    return config, stored, weights
