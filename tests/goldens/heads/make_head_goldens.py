"""Compute what transformers' pipelines say of tiny models: run by hand, outside Bazel (see ../README.md).

    python -m tests.goldens.heads.make_head_goldens [--texts 20] [--output DIR]

Pipelines that answer questions are gone from transformers 5. With transformers 4 the script makes the results of these
cases alone, and keeps the others: run it once with each. With an ``--output`` the test compares as many texts as are
there: ``TAPELINE_HEADS=DIR``.
"""

import argparse
import json
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
import transformers
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import SpladePooling, Transformer
from transformers import pipeline

from tests.goldens.heads.cases import (
    DATA,
    HEAD_CASES,
    HYPOTHESIS,
    LABELS,
    QUESTIONS,
    TEXTS,
    HeadCase,
    write_files,
    write_weights,
)

_OLD = int(transformers.__version__.partition(".")[0]) < 5
_AGGREGATIONS = ("none", "simple", "first", "average", "max")
_DIGITS = 7
_SPARSE_TEXTS = 4


def main() -> int:
    """Makes the results of the cases that this version of transformers has a pipeline for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=20)
    parser.add_argument("--output", type=Path, default=DATA)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    options.output.mkdir(exist_ok=True)
    path = options.output / "heads.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"versions": {}, "cases": {}}
    for case in HEAD_CASES.values():
        if (case.task == "answer") is _OLD:
            known["cases"][case.name] = made = _case(case, TEXTS[: options.texts])
            print(f"{case.name}: {len(json.dumps(made['results']))} characters")
    known["cases"] = {name: known["cases"][name] for name in HEAD_CASES if name in known["cases"]}
    known["versions"] |= {
        "python": platform.python_version(),
        "torch": torch.__version__,
        f"transformers{' of answers' if _OLD else ''}": transformers.__version__,
    }
    path.write_text(json.dumps(known, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    return 0


def _case(case: HeadCase, texts: tuple[str, ...]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_files(directory, case)
        shapes = _shapes(directory, case)
        write_weights(directory, case, shapes)
        results = _RESULTS[case.task](case, directory, texts)
    return {"case": case.digest(), "shapes": shapes, "results": results}


def _shapes(directory: Path, case: HeadCase) -> dict[str, list[int]]:
    """Keys and shapes that transformers stores of such a model."""
    config = transformers.AutoConfig.from_pretrained(directory)
    with tempfile.TemporaryDirectory() as name:
        getattr(transformers, case.config["architectures"][0])(config).save_pretrained(name)
        with safetensors.safe_open(Path(name) / "model.safetensors", "np") as file:
            return {key: list(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118


def _pipeline(task: str, directory: Path) -> Any:
    return pipeline(task, model=str(directory), device="cpu", model_kwargs={"attn_implementation": "eager"})


def _classes(case: HeadCase, directory: Path, texts: tuple[str, ...]) -> Any:
    """Scores of each text, in the order of the labels."""
    classify = _pipeline("text-classification", directory)
    ordered = list(case.config["id2label"].values())
    results = []
    for text in texts:
        scores = {one["label"]: one["score"] for one in classify(text, top_k=None, truncation=True)}
        results.append([round(scores[label], _DIGITS) for label in ordered])
    spread = np.std(results, axis=0)
    if spread.min() < 1e-3:
        raise RuntimeError(f"{case.name}: texts are not told apart: {spread}")
    return {"texts": results}


def _entailed(case: HeadCase, directory: Path, texts: tuple[str, ...]) -> Any:
    """Scores of texts with the next one as second text; and of labels, alone and together, in their order."""
    classify, zero_shot = _pipeline("text-classification", directory), _pipeline("zero-shot-classification", directory)
    ordered = list(case.config["id2label"].values())
    pairs, labels = [], {"one": [], "several": [], "single": []}
    for text, second in zip(texts, (*texts[1:], texts[0]), strict=True):
        classes = classify({"text": text, "text_pair": second}, top_k=None, truncation="longest_first")
        scores = {one["label"]: one["score"] for one in classes}
        pairs.append([round(scores[label], _DIGITS) for label in ordered])
        if not text:
            continue
        for name, several, given in (("one", False, LABELS), ("several", True, LABELS), ("single", False, LABELS[:1])):
            result = zero_shot(text, list(given), hypothesis_template=HYPOTHESIS, multi_label=several)
            by_label = dict(zip(result["labels"], result["scores"], strict=True))
            labels[name].append([round(by_label[label], _DIGITS) for label in given])
    return {"pairs": pairs, "labels": labels}


def _tags(case: HeadCase, directory: Path, texts: tuple[str, ...]) -> Any:
    """Label, score, word, start, end and number of each tag, by aggregation."""
    tag = _pipeline("token-classification", directory)
    return {
        aggregation: [
            [
                [
                    one.get("entity", one.get("entity_group")),
                    round(float(one["score"]), _DIGITS),
                    one["word"],
                    one["start"],
                    one["end"],
                    one.get("index"),
                ]
                for one in tag(text, aggregation_strategy=aggregation)
            ]
            for text in texts
        ]
        for aggregation in _AGGREGATIONS
    }


def _fillings(case: HeadCase, directory: Path, texts: tuple[str, ...]) -> Any:
    """Token, its text, score and the whole text of the best tokens of each mask; and among some targets."""
    fill = _pipeline("fill-mask", directory)
    targets = ["cat", "berlin", "the"] if case.tokenizer == "bert" else ["th", "er", "Ġis"]

    def listed(results: Any) -> Any:
        several = results if isinstance(results[0], list) else [results]
        return [
            [[one["token"], one["token_str"], round(one["score"], _DIGITS), one["sequence"]] for one in mask]
            for mask in several
        ]

    return {
        "best": [listed(fill(case.masked(text), top_k=3)) for text in texts],
        "targets": [listed(fill(case.masked(text), targets=targets)) for text in texts],
        "names": targets,
        "sparse": _sparse(directory, texts[:_SPARSE_TEXTS]),
    }


def _sparse(directory: Path, texts: tuple[str, ...]) -> Any:
    """Weights of all tokens of each text, as sentence-transformers pools a SPLADE's."""
    encoder = SparseEncoder(
        modules=[Transformer(str(directory), transformer_task="fill-mask"), SpladePooling("max")], device="cpu"
    )
    return [[round(float(weight), _DIGITS) for weight in row] for row in encoder.encode([*texts]).to_dense()]


def _answers(case: HeadCase, directory: Path, texts: tuple[str, ...]) -> Any:
    """Text, score, start and end of the best answers; and of one that may be none."""
    answer = _pipeline("question-answering", directory)

    def listed(results: Any) -> Any:
        several = results if isinstance(results, list) else [results]
        return [[one["answer"], round(one["score"], _DIGITS), one["start"], one["end"]] for one in several]

    ask = [{"question": question, "context": context} for question, context in QUESTIONS]
    return {
        "best": [listed(answer(**one, top_k=3)) for one in ask],
        "short": [listed(answer(**one, max_answer_len=2, handle_impossible_answer=True, top_k=2)) for one in ask],
    }


_RESULTS = {"classify": _classes, "entail": _entailed, "tag": _tags, "fill": _fillings, "answer": _answers}

if __name__ == "__main__":
    sys.exit(main())
