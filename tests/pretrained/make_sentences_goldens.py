"""Vectors of real models by sentence-transformers: run by hand, outside Bazel.

python -m tests.pretrained.make_sentences_goldens minilm=DIR mpnet=DIR
"""

import hashlib
import sys
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from tests.goldens.sentences.cases import TEXTS

_OUTPUT = Path(__file__).parent / "data" / "sentences.npz"


def main() -> int:
    """Write the vectors of each model, and the checksum of its weights."""
    torch.set_num_threads(1)
    arrays: dict[str, np.ndarray] = {}
    for argument in sys.argv[1:]:
        name, _, directory = argument.partition("=")
        model = SentenceTransformer(directory, device="cpu", local_files_only=True)
        arrays[f"{name}.vectors"] = model.encode(list(TEXTS), show_progress_bar=False)
        arrays[f"{name}.tokens"] = np.array([model.preprocess([text])["input_ids"].shape[1] for text in TEXTS])
        digest = hashlib.sha256((Path(directory) / "model.safetensors").read_bytes()).hexdigest()
        arrays[f"{name}.sha256"] = np.array(digest)
    np.savez_compressed(_OUTPUT, **arrays)
    return 0


if __name__ == "__main__":
    sys.exit(main())
