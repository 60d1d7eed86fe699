"""Compute ``data/quantized/*.safetensors`` and ``data/quantized.npz``: run by hand, outside Bazel (see README.md).

    python -m tests.goldens.make_quantized_goldens

Each file is a checkpoint of a few quantised matrices; its ``__metadata__`` has ``quantization_config``. The archive
has what the format's own library makes of each matrix in f32. The script refuses a matrix of which the library, in the
dtype of the scales, gives anything but that f32 rounded to this dtype.
"""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from tests.goldens.golden_files import DATA
from tests.goldens.make_quantized_compressed_goldens import compressed_cases
from tests.goldens.make_quantized_float_goldens import float_cases
from tests.goldens.make_quantized_integer_goldens import integer_cases

Case = tuple[Mapping[str, Any], Mapping[str, torch.Tensor], Mapping[str, torch.Tensor]]


def main() -> int:
    """Make the files."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    directory = DATA / "quantized"
    directory.mkdir(exist_ok=True)
    arrays: dict[str, np.ndarray] = {}
    makers: tuple[Callable[[], Mapping[str, Case]], ...] = (float_cases, compressed_cases, integer_cases)
    for maker in makers:
        for name, (config, stored, weights) in maker().items():
            metadata = {"quantization_config": json.dumps(config, sort_keys=True)}  # one field: their order is random
            kept = {key: tensor.contiguous() for key, tensor in stored.items()}
            save_file(kept, directory / f"{name}.safetensors", metadata)
            arrays |= {f"{name}/{key}": weight.contiguous().numpy() for key, weight in weights.items()}
    np.savez_compressed(DATA / "quantized.npz", **arrays)
    return 0


if __name__ == "__main__":
    sys.exit(main())
