"""Compute the goldens of ``stored_cases`` with transformers: run by hand, outside Bazel (see README.md).

python -m tests.goldens.make_stored_goldens
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM

from tests.goldens.cases import CASES
from tests.goldens.stored_cases import STORED, STORED_CASES, write_stored


def main() -> int:
    """Writes the logits of all cases."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logits: dict[str, np.ndarray] = {}
    for name, case in STORED_CASES.items():
        with tempfile.TemporaryDirectory() as directory:
            write_stored(Path(directory), case)
            model = AutoModelForCausalLM.from_pretrained(
                directory, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
            ).eval()
            logits[name] = model(torch.tensor(CASES[case.model].prompt), use_cache=False).logits.numpy()
        print(name, logits[name].shape, logits[name].max())
    versions = np.array([f"transformers {transformers.__version__}", f"torch {torch.__version__}"])
    np.savez_compressed(STORED, versions=versions, **logits)
    return 0


if __name__ == "__main__":
    sys.exit(main())
