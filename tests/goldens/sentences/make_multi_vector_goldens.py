"""Compute what sentence-transformers' MultiVectorEncoder gives of tiny models: run by hand, outside Bazel.

python -m tests.goldens.sentences.make_multi_vector_goldens
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import MultiVectorEncoder

from tests.goldens.sentences.multi_vector_cases import CASES, DATA, DOCUMENTS, QUERIES, write_model


def main() -> int:
    """Writes the file of all cases."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    arrays: dict[str, np.ndarray] = {}
    for case in CASES:
        with tempfile.TemporaryDirectory() as name:
            write_model(Path(name), case)
            model = MultiVectorEncoder(name, device="cpu")
            queries, documents = model.encode_query([*QUERIES]), model.encode_document([*DOCUMENTS])
            scores = model.similarity(queries, documents).numpy()
            if scores.std() < 1e-2:
                raise RuntimeError(f"{case.name}: texts are not told apart")
            arrays[f"{case.name}.scores"] = scores
            for kind, vectors in (("query", queries), ("document", documents)):
                arrays |= {f"{case.name}.{kind}.{index}": one.numpy() for index, one in enumerate(vectors)}
    np.savez_compressed(DATA, **arrays)
    print(DATA.stat().st_size, "bytes", {name: array.shape for name, array in arrays.items() if "scores" in name})
    return 0


if __name__ == "__main__":
    sys.exit(main())
