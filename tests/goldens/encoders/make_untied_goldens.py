"""Compute the goldens of ``untied_cases`` with transformers: run by hand, outside Bazel (see ../README.md).

python -m tests.goldens.encoders.make_untied_goldens
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.files import read_encoder_golden
from tests.goldens.encoders.untied_cases import UNTIED, UNTIED_CASES, write_untied


def main() -> int:
    """Writes the results of all cases."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    versions = np.array([f"transformers {transformers.__version__}", f"torch {torch.__version__}"])
    np.savez_compressed(UNTIED, versions=versions, **_untied())
    return 0


def _untied() -> dict[str, np.ndarray]:
    results: dict[str, np.ndarray] = {}
    for name, case in UNTIED_CASES.items():
        golden, encoder = read_encoder_golden(case.model), ENCODER_CASES[case.model]
        with tempfile.TemporaryDirectory() as directory:
            write_untied(Path(directory), case)
            model = getattr(transformers, encoder.architecture).from_pretrained(
                directory, dtype=torch.float32, attn_implementation="eager"
            )
        names = {"decoder_token_ids": "decoder_input_ids"}
        names["token_ids"] = "decoder_input_ids" if "input_features" in golden.inputs else "input_ids"
        inputs = {
            names.get(key, key): torch.tensor(value, dtype=torch.float32 if value.dtype.kind == "f" else torch.int64)
            for key, value in golden.inputs.items()
        }
        results[name] = model.eval()(**inputs, return_dict=True)[0].numpy()
        print(name, results[name].shape, results[name].max())
    return results


if __name__ == "__main__":
    sys.exit(main())
