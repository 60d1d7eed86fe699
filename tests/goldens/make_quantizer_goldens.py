"""Errors of ggml's own quantizers, which Tapeline's must not exceed: data/quantizers.json.

    make_quantizer_goldens.py LIBRARY

LIBRARY is llama.cpp's libggml-base.so (docs/benchmarks.md says how it is built from the source that llama-cpp-python
carries). Weights and importance are those of ``quantizer_weights``.
"""

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, quants

from tests.goldens.quantizer_weights import ENCODINGS, KINDS, drawn_weights, row_errors


def _packed(library: Any, weights: np.ndarray, kind: GGMLQuantizationType, importance: np.ndarray | None) -> np.ndarray:
    rows, columns = weights.shape
    out = np.zeros(weights.size * 4, np.uint8)
    size = library.ggml_quantize_chunk(
        ctypes.c_int(kind.value),
        weights.ctypes.data_as(ctypes.c_void_p),
        out.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_int64(0),
        ctypes.c_int64(rows),
        ctypes.c_int64(columns),
        None if importance is None else importance.ctypes.data_as(ctypes.c_void_p),
    )
    return out[:size].reshape(rows, -1)


def main() -> None:
    library = ctypes.CDLL(sys.argv[1])
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    errors: dict[str, Any] = {}
    for name in ENCODINGS:
        kind = GGMLQuantizationType[name.upper()]
        for drawn in KINDS:
            weights, importance = drawn_weights(drawn)
            for squares in (None, importance):
                restored = quants.dequantize(_packed(library, weights, kind, squares), kind)
                key = f"{name} {drawn}{'' if squares is None else ' weighed'}"
                errors[key] = [float(f"{error:.6g}") for error in row_errors(weights, restored, squares)]
    target = Path(__file__).parent / "data" / "quantizers.json"
    target.write_text(json.dumps({"made_by": "make_quantizer_goldens.py", "errors": errors}, indent=0) + "\n")


if __name__ == "__main__":
    main()
