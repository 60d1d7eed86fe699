"""``quantization_config`` of every method that is read, with the stored tensors that belong to it.

An input is a JSON object with a checkpoint's name, its configuration, and dtypes and shapes of its tensors. Each weight
is read whole and in rows, and in the packed encoding that holds it, if there is one.
"""

import functools
import json
import math
from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np

from tests.fuzz._files import written
from tests.fuzz._json_mutations import mutate_json
from tests.fuzz._target import Target
from tests.goldens.golden_files import QUANTIZED
from transformer_core.checkpoints import SafetensorsFile
from transformer_core.checkpoints.quantized import METHODS, QuantizedWeights

_BYTES = {"I16": 2, "F32": 4, "I32": 4, "U32": 4, "I64": 8, "F64": 8, "F16": 2, "BF16": 2}
_BYTES |= dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "U8", "I8"), 1)
_MOST = 2**15  # bytes of a tensor
_FORMATS = ("pack-quantized", "int-quantized", "float-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized")
_VALUES = (
    *(*METHODS, *_FORMATS, *_BYTES, "tensor", "channel", "group", "block", "tensor_group", "int", "float", "gptq_v2"),
    *("Linear", "re:.*", "re:.*q_proj$", "re:(a+)+$", "16x16", "gemm", "dense", "mixed-precision", "dynamic", -1),
    *([16, 16], [1, 32], [2, 4], [4, 1], [64, 4], [1], [], {"num_bits": 4}, {"format": "dense"}, 16, 32, 64, 128),
)
_KEYS = (
    *(
        "quant_method",
        "bits",
        "group_size",
        "desc_act",
        "checkpoint_format",
        "weight_block_size",
        "zero_point",
        "version",
    ),
    *(
        "config_groups",
        "format",
        "weights",
        "targets",
        "ignore",
        "strategy",
        "num_bits",
        "type",
        "symmetric",
        "dynamic",
    ),
    *("block_structure", "actorder", "kv_cache_scheme", "transform_config", "sparsity_config", "input_activations"),
    *("modules_to_not_convert", "activation_scheme", "load_in_4bit", "w_bit", "q_group_size"),
)


@functools.cache
def _cases() -> Mapping[str, tuple[dict[str, Any], dict[str, bytes]]]:
    """Returns the input and the bytes of the tensors of each golden checkpoint that is small enough."""
    cases: dict[str, tuple[dict[str, Any], dict[str, bytes]]] = {}
    for path in sorted(QUANTIZED.glob("*.safetensors")):
        with SafetensorsFile(path) as file:
            keys = [*file.keys()]
            stored = {key: file.read_stored(key).tobytes() for key in keys}
            forms = {key: [file.stored_form(key)[0], list(file.stored_form(key)[1])] for key in keys}
            kept = [key for key in keys if len(stored[key]) <= _MOST]
            if len(kept) == len(keys):
                config = json.loads(file.metadata["quantization_config"])
                cases[path.stem] = {"case": path.stem, "config": config, "tensors": forms}, stored
    return cases


def _seeds() -> list[bytes]:
    return [json.dumps(document).encode() for document, _ in _cases().values()]


def _mutate(data: bytes, draw: Random) -> bytes:
    return mutate_json(data, draw, _VALUES, _KEYS)


def _run(data: bytes) -> bool:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return False
    case = document.get("case") if isinstance(document, dict) else None
    if not isinstance(case, str) or case not in _cases() or not isinstance(document.get("tensors"), dict):
        return False
    if not isinstance(document.get("config"), dict):
        return False
    file = written("model.safetensors", _file(document["tensors"], _cases()[case][1]))
    with SafetensorsFile(file) as source:
        _read(QuantizedWeights(source, document["config"]))
    return True


def _file(forms: Mapping[str, Any], stored: Mapping[str, bytes]) -> bytes:
    """Returns a safetensors file: tensors of other sizes repeat the bytes of the stored one."""
    header, data = dict[str, Any](), bytearray()
    for key, form in forms.items():
        if not (isinstance(form, list) and len(form) == 2 and isinstance(form[1], list)):
            continue
        dtype, shape = form
        size = _BYTES.get(dtype, 0) if isinstance(dtype, str) else 0
        if not size or len(shape) > 5 or not all(type(dim) is int and 0 <= dim <= _MOST for dim in shape):
            continue
        size *= math.prod(shape)
        if size <= _MOST:
            content = stored.get(key) or bytes(range(256))
            header[key] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + size]}
            data += (content * (size // len(content) + 1))[:size]
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def _read(weights: QuantizedWeights) -> None:
    for key in weights.keys():  # noqa: SIM118
        spec = weights.spec(key)
        if weights.encoding(key) is None:
            continue
        array = weights.read(key)
        if array.shape != spec.shape or array.dtype != np.float32:
            raise AssertionError(f"{key}: read {array.dtype}{array.shape}, expected {spec!r}")
        rows = spec.shape[0]
        if not np.array_equal(weights.read_rows(key, rows // 2, rows), array[rows // 2 :], equal_nan=True):
            raise AssertionError(f"{key}: rows of it are others than those of the whole")
        if weights.packed_as(key):
            packed = weights.read_packed_rows(key, 0, rows)
            if packed.dtype != np.uint8 or len(packed) != rows:
                raise AssertionError(f"{key}: packed as {packed.dtype}{packed.shape}")


TARGET = Target(seeds=_seeds, run=_run, mutate=_mutate)
