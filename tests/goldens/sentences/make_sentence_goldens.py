"""Compute ids, vectors and scores with sentence-transformers: run by hand, outside Bazel (see ../README.md).

python -m tests.goldens.sentences.make_sentence_goldens
"""

import json
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import sentence_transformers
import torch
import transformers
from sentence_transformers import CrossEncoder, SentenceTransformer

from tests.goldens.sentences.cases import (
    DATA,
    PAIRS,
    SENTENCE_CASES,
    TEXTS,
    SentenceCase,
    module_shapes,
    write_files,
    write_weights,
)

_VISIBLE = 1e-3


def main() -> int:
    """Make the files; a case that fails a check raises."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    DATA.mkdir(exist_ok=True)
    cases, arrays = {}, {}
    for case in SENTENCE_CASES.values():
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            write_files(directory, case)
            shapes = {case.folder: transformer_shapes(directory / case.folder, case), **module_shapes(case)}
            write_weights(directory, case, shapes)
            ids, arrays[case.name] = ranked(directory) if case.ranks else embedded(directory, case)
        cases[case.name] = {"case": case.digest(), "shapes": shapes, "ids": ids}
        spread = float(arrays[case.name].std(0).min())
        print(f"{case.name}: {arrays[case.name].shape}, spread {spread:.3f}, longest {max(map(len, ids))}")
        if spread < _VISIBLE:
            raise RuntimeError(f"{case.name}: texts are not told apart")
    np.savez_compressed(DATA / "vectors.npz", **arrays)
    versions = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "sentence-transformers": sentence_transformers.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    goldens = {"script": "tests/goldens/sentences/make_sentence_goldens.py", "versions": versions, "cases": cases}
    (DATA / "sentences.json").write_text(json.dumps(goldens, separators=(",", ":")) + "\n", encoding="utf-8")
    return 0


def transformer_shapes(folder: Path, case: SentenceCase) -> dict[str, list[int]]:
    """Keys and shapes that transformers stores of such a model."""
    config = transformers.AutoConfig.from_pretrained(folder)
    with tempfile.TemporaryDirectory() as name:
        getattr(transformers, case.config["architectures"][0])(config).save_pretrained(name)
        with safetensors.safe_open(Path(name) / "model.safetensors", "np") as file:
            return {key: list(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118


def embedded(directory: Path, case: SentenceCase) -> tuple[list[list[int]], np.ndarray]:
    """Returns the ids of the texts, and their vectors f32 [texts, D]."""
    model = SentenceTransformer(str(directory), device="cpu", local_files_only=True)
    prompt = model.prompts.get(case.prompt or model.default_prompt_name or "", "")
    ids = [_ids(model.preprocess([text], prompt=prompt or None)) for text in TEXTS]
    vectors = [model.encode([text], prompt_name=case.prompt, show_progress_bar=False)[0] for text in TEXTS]
    together = model.encode(list(TEXTS), prompt_name=case.prompt, show_progress_bar=False)
    np.testing.assert_allclose(np.stack(vectors), together, atol=2e-4)  # padding does not matter
    return ids, np.stack(vectors)


def ranked(directory: Path) -> tuple[list[list[int]], np.ndarray]:
    """Returns the ids of the pairs, and their scores f32 [pairs]."""
    model = CrossEncoder(str(directory), device="cpu", local_files_only=True)
    prompt = model.prompts.get(model.default_prompt_name or "", "")
    ids = [_ids(model.preprocess([pair], prompt=prompt or None)) for pair in PAIRS]
    scores = [model.predict([pair], show_progress_bar=False)[0] for pair in PAIRS]
    return ids, np.array(scores, np.float32)


def _ids(features: Any) -> list[int]:
    mask = features["attention_mask"][0].bool()
    return features["input_ids"][0][mask].tolist()


if __name__ == "__main__":
    sys.exit(main())
