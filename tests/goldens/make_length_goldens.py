"""Compute the goldens of ``length_cases`` with transformers: run by hand, outside Bazel (see README.md).

    python -m tests.goldens.make_length_goldens

A model is loaded for every prompt, because that of dynamic NTK keeps the greatest length that it has seen.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM

from tests.goldens.length_cases import LENGTHS, MODELS, PROMPTS, STEPS, prompt_of
from tests.goldens.weights import write_checkpoint


def main() -> int:
    """Writes tokens and logits of all prompts."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    arrays: dict[str, np.ndarray] = {}
    for name, case in MODELS.items():
        with tempfile.TemporaryDirectory() as directory:
            write_checkpoint(Path(directory), case)
            for count in PROMPTS:
                ids = torch.tensor([prompt_of(name, count)])
                made = _model(directory).generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    do_sample=False,
                    max_new_tokens=STEPS,
                    output_logits=True,
                    return_dict_in_generate=True,
                )
                key = f"{name}_{count}"
                arrays[f"{key}_tokens"] = made.sequences[0, count:].numpy().astype(np.int32)
                arrays[f"{key}_logits"] = torch.cat(made.logits).numpy()
                arrays[f"{key}_whole"] = _model(directory)(made.sequences, use_cache=False).logits[0].numpy()
                print(key, arrays[f"{key}_tokens"].tolist())
    versions = np.array([f"transformers {transformers.__version__}", f"torch {torch.__version__}"])
    np.savez_compressed(LENGTHS, versions=versions, **arrays)
    return 0


def _model(directory: str) -> Any:
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    model.generation_config.eos_token_id = model.generation_config.pad_token_id = None
    return model


if __name__ == "__main__":
    sys.exit(main())
