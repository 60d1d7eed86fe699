"""Golden cases as quantised checkpoints, written from their formats' descriptions, and the weights of these."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np

from tests.goldens.cases import GoldenCase
from tests.goldens.weights import random_weights

_Parts = dict[str, np.ndarray]
_Quantizer = Callable[[np.ndarray], tuple[_Parts, np.ndarray]]
"""Gives the stored parts of a weight f32 [N, K], by the ends of their keys, and the weight that they stand for."""

GROUP: Final = 32
_BLOCK: Final = (32, 48)
_E2M1: Final = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
_NAMES: Final = {
    "float32": "F32", "float16": "F16", "bfloat16": "BF16", "uint8": "U8", "int8": "I8", "int32": "I32", "int64": "I64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0",
}  # fmt: skip


def write_quantized(directory: Path, case: GoldenCase, form: str) -> dict[str, np.ndarray]:
    """Writes a case's checkpoint with the projections of its layers quantised.

    Args:
        directory: gets config.json and model.safetensors.
        case: the case; numbers of inputs are multiples of 32.
        form: one of ``FORMS``.

    Returns:
        The weights, f32, that the checkpoint stands for.
    """
    config, quantizer = FORMS[form]
    tensors: dict[str, np.ndarray] = {}
    weights: dict[str, np.ndarray] = {}
    for key, weight in random_weights(case.config, case.seed).items():
        module = key.removesuffix(".weight")
        if "proj" in key and weight.ndim == 2:
            parts, weights[key] = quantizer(weight.astype(np.float32))
            tensors |= {f"{module}.{end}": part for end, part in parts.items()}
        else:
            tensors[key] = weights[key] = weight
    directory.mkdir(exist_ok=True)
    values = {**case.config, "quantization_config": config}
    (directory / "config.json").write_text(json.dumps(values))
    write_tensors(directory / "model.safetensors", tensors)
    return weights


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> None:
    """Writes a safetensors file of tensors that may be 8-bit floats."""
    fields: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    begin = 0
    for key, tensor in tensors.items():
        span = [begin, begin + tensor.nbytes]
        fields[key] = {"dtype": _NAMES[tensor.dtype.name], "shape": list(tensor.shape), "data_offsets": span}
        begin = span[1]
    header = json.dumps(fields).encode()
    header += b" " * (-len(header) % 8)
    data = b"".join(np.ascontiguousarray(tensor).tobytes() for tensor in tensors.values())
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


def packed_words(integers: np.ndarray, bits: int) -> np.ndarray:
    """Packs integers [R, C] along the last axis into i32 [R, C * bits / 32], lowest bits first."""
    single = (integers[..., np.newaxis] >> np.arange(bits) & 1).astype(np.uint8).reshape(len(integers), -1)
    padded = np.pad(single, ((0, 0), (0, -single.shape[1] % 32)))
    return np.packbits(padded, axis=1, bitorder="little").view(np.int32)


def _groups(weight: np.ndarray) -> np.ndarray:
    return weight.reshape(len(weight), -1, GROUP)


def _integers(weight: np.ndarray, bits: int, *, symmetric: bool, dtype: Any) -> tuple[np.ndarray, ...]:
    """Returns codes [N, K], zero points [N, G], scales [N, G] in a 16-bit dtype, and the weight that they stand for."""
    groups, most = _groups(weight), (1 << bits) - 1
    low, high = (0 * groups.min(-1), np.abs(groups).max(-1)) if symmetric else (groups.min(-1), groups.max(-1))
    scales = ((high - low) / (most / (2 if symmetric else 1))).astype(dtype)
    wide = scales.astype(np.float32)
    zeros = np.full(scales.shape, 1 << bits - 1) if symmetric else np.clip(np.rint(-low / wide), 1, most)
    codes = np.clip(np.rint(groups / wide[..., np.newaxis]) + zeros[..., np.newaxis], 0, most)
    exact = ((codes - zeros[..., np.newaxis]).astype(np.float32) * wide[..., np.newaxis]).reshape(weight.shape)
    return codes.astype(np.int64).reshape(weight.shape), zeros.astype(np.int64), scales, exact


def _gptq(bits: int, *, reordered: bool = False) -> _Quantizer:
    def quantize(weight: np.ndarray) -> tuple[_Parts, np.ndarray]:
        order = np.random.default_rng(7).permutation(weight.shape[1]) if reordered else np.arange(weight.shape[1])
        codes, zeros, scales, exact = _integers(weight[:, order], bits, symmetric=not reordered, dtype=np.float16)
        index = np.empty(len(order), np.int32)
        index[order] = np.arange(len(order)) // GROUP
        back = np.argsort(order)
        return {
            "qweight": packed_words(codes[:, back], bits).T,
            "qzeros": packed_words(zeros.T - 1, bits),
            "scales": scales.T,
            "g_idx": index,
        }, exact[:, back]

    return quantize


def _awq(weight: np.ndarray) -> tuple[_Parts, np.ndarray]:
    codes, zeros, scales, exact = _integers(weight, 4, symmetric=False, dtype=np.float16)
    places = np.array([0, 2, 4, 6, 1, 3, 5, 7])

    def words(integers: np.ndarray) -> np.ndarray:
        return packed_words(
            integers.T.reshape(integers.shape[1], -1, 8)[:, :, places].reshape(integers.shape[1], -1), 4
        )

    return {"qweight": words(codes), "qzeros": words(zeros), "scales": scales.T}, exact


def _packed(weight: np.ndarray) -> tuple[_Parts, np.ndarray]:
    codes, _, scales, exact = _integers(weight, 4, symmetric=True, dtype=ml_dtypes.bfloat16)
    shape = np.array(weight.shape, np.int64)
    return {"weight_packed": packed_words(codes, 4), "weight_scale": scales, "weight_shape": shape}, exact


def _rows(weight: np.ndarray) -> tuple[_Parts, np.ndarray]:
    scales = (np.abs(weight).max(1, keepdims=True) / 127).astype(ml_dtypes.bfloat16)
    codes = np.clip(np.rint(weight / scales.astype(np.float32)), -128, 127)
    codes[0, 0] = -128
    exact = codes.astype(np.float32) * scales.astype(np.float32)
    return {"weight": codes.astype(np.int8), "weight_scale": scales}, exact


def _fp8(weight: np.ndarray) -> tuple[_Parts, np.ndarray]:
    height, width = _BLOCK
    rows, columns = (-(-size // step) for size, step in zip(weight.shape, _BLOCK, strict=True))
    scales = np.random.default_rng(3).uniform(0.002, 0.01, (rows, columns)).astype(np.float32)
    spread = np.repeat(np.repeat(scales, height, 0), width, 1)[: weight.shape[0], : weight.shape[1]]
    codes = (weight / spread).astype(ml_dtypes.float8_e4m3fn)
    return {"weight": codes, "weight_scale_inv": scales}, codes.astype(np.float32) * spread


def _fours(weight: np.ndarray, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the nearest floats of four bits, two in a byte, and what they stand for; scales are f32 [N, G]."""
    groups = weight.reshape(len(weight), scales.shape[1], -1) / scales[..., np.newaxis]
    codes = np.abs(np.abs(groups)[..., np.newaxis] - _E2M1).argmin(-1)
    exact = np.copysign(_E2M1[codes], groups).astype(np.float32) * scales[..., np.newaxis]
    codes = (codes + 8 * np.signbit(groups)).reshape(weight.shape).astype(np.uint8)
    return codes[:, ::2] | codes[:, 1::2] << 4, exact.reshape(weight.shape)


def _nvfp4(weight: np.ndarray) -> tuple[_Parts, np.ndarray]:
    whole = np.array([448 * 6 / np.abs(weight).max()], np.float32)
    groups = weight.reshape(len(weight), -1, 16)
    scales = (np.abs(groups).max(-1) / 6 * whole).astype(ml_dtypes.float8_e4m3fn)
    codes, exact = _fours(weight, scales.astype(np.float32) / whole)
    return {"weight_packed": codes, "weight_scale": scales, "weight_global_scale": whole}, exact


def _mxfp4(weight: np.ndarray) -> tuple[_Parts, np.ndarray]:
    exponents = np.floor(np.log2(np.abs(_groups(weight)).max(-1))).astype(np.int32) - 2
    codes, exact = _fours(weight, np.ldexp(np.float32(1), exponents))
    return {"weight_packed": codes, "weight_scale": (exponents + 127).astype(np.uint8)}, exact


def _compressed(form: str, targets: Iterable[str] = ("Linear",), **weights: Any) -> dict[str, Any]:
    group = {"targets": list(targets), "weights": weights, "input_activations": {"num_bits": 8, "dynamic": True}}
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"], "config_groups": {"g": group}}


def _gptq_config(bits: int) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": bits, "group_size": GROUP, "desc_act": bits == 4}


FORMS: Final[Mapping[str, tuple[dict[str, Any], _Quantizer]]] = {
    "fp8": ({"quant_method": "fp8", "weight_block_size": list(_BLOCK), "activation_scheme": "dynamic"}, _fp8),
    "int4": (_compressed("pack-quantized", num_bits=4, strategy="group", group_size=GROUP), _packed),
    "int8": (_compressed("int-quantized", num_bits=8, strategy="channel"), _rows),
    "nvfp4": (
        _compressed("nvfp4-pack-quantized", num_bits=4, type="float", strategy="tensor_group", group_size=16),
        _nvfp4,
    ),
    "mxfp4": (_compressed("mxfp4-pack-quantized", num_bits=4, type="float", strategy="group", group_size=32), _mxfp4),
    "gptq3": (_gptq_config(3), _gptq(3)),
    "gptq4_reordered": (_gptq_config(4), _gptq(4, reordered=True)),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": GROUP}, _awq),
}
"""Forms of checkpoints: ``quantization_config``, and the quantiser of a weight."""

ENCODINGS: Final = {"int4": "q4_0", "int8": "q8_0", "mxfp4": "mxfp4", "gptq3": "q4_0", "awq": "q5_0"}
"""Encodings of packed weights that hold exactly what a form stores; none holds the others."""
