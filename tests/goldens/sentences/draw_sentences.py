"""Write drawn models of sentence-transformers with its vectors: run by hand, outside Bazel (see ../README.md).

    python -m tests.goldens.sentences.draw_sentences --count 200 --output DIR
    TAPELINE_SENTENCES=DIR pytest tests/goldens/sentences/drawn_test.py

Models that sentence-transformers itself cannot load or run are left out, and counted.
"""

import argparse
import dataclasses
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import transformers

from tests.goldens.sentences.cases import SENTENCE_CASES, SentenceCase, module_shapes, write_files, write_weights
from tests.goldens.sentences.make_sentence_goldens import embedded, ranked, transformer_shapes

_MODES: Final = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
_FLAGS: Final = {mode: f"pooling_mode_{mode}_tokens" for mode in _MODES} | {
    "cls": "pooling_mode_cls_token",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
_ACTIVATIONS: Final = (
    "torch.nn.modules.linear.Identity",
    *(f"torch.nn.modules.activation.{name}" for name in ("Tanh", "ReLU", "GELU", "SiLU", "Sigmoid")),
)
_CLASSES: Final = {
    "bert": ("BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification"),
    "roberta": ("RobertaModel", "RobertaForMaskedLM", "RobertaForSequenceClassification"),
    "xlm-roberta": ("XLMRobertaModel", "XLMRobertaForMaskedLM"),
    "mpnet": ("MPNetModel", "MPNetForMaskedLM", "MPNetForSequenceClassification"),
    "distilbert": ("DistilBertModel", "DistilBertForMaskedLM", "DistilBertForSequenceClassification"),
    "t5": ("T5EncoderModel", "T5ForConditionalGeneration"),
    "qwen3": ("Qwen3Model", "Qwen3ForCausalLM"),
    "modernbert": ("ModernBertModel", "ModernBertForMaskedLM"),
}
_PROMPTS: Final = ("", "query: ", "Instruct: find a cat\nQuery:", " on the mat ", "Q")


def main() -> int:
    """Write the models and their goldens."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    refused: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.count):
        case = drawn(seed)
        try:
            _write(case, options.output)
        except (AssertionError, AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            refused[type(error).__name__] += 1
            print(f"{seed}: left out: {type(error).__name__}: {str(error)[:100]!r}", file=sys.stderr)
    print(f"{options.count - refused.total()} models; left out: {dict(refused)}")
    return 0


def _write(case: SentenceCase, output: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_files(directory, case)
        shapes = {case.folder: transformer_shapes(directory / case.folder, case), **module_shapes(case)}
        write_weights(directory, case, shapes)
        ids, vectors = ranked(directory) if case.ranks else embedded(directory, case)
    if not np.isfinite(vectors).all() and not case.ranks:
        vectors = np.where(np.isfinite(vectors), vectors, np.nan)
    output.mkdir(parents=True, exist_ok=True)
    facts = {"case": dataclasses.asdict(case), "shapes": shapes, "ids": ids}
    (output / f"{case.name}.json").write_text(json.dumps(facts))
    np.save(output / f"{case.name}.npy", vectors)


def drawn(seed: int) -> SentenceCase:
    """Returns the model of a seed."""
    rng = random.Random(seed)
    base = rng.choice(list(SENTENCE_CASES.values()))
    config: dict[str, Any] = dict(base.config)
    if base.ranks:
        return _ranker(rng, seed, base, config)
    config["architectures"] = [rng.choice(_CLASSES[config["model_type"]])]
    folder = rng.choice(("", "", "0_Transformer", "model"))
    files: dict[str, Any] = {}
    kinds, size = _chain(rng, files)
    del size
    entries = []
    for place, kind in enumerate(kinds):
        path = folder if place == 0 else f"{place}_{kind}"
        entries.append({"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"})
    files["modules.json"] = entries
    settings = _settings(rng)
    if settings is not None:
        names = ("sentence_bert_config.json", "sentence_roberta_config.json", "sentence_distilbert_config.json")
        files[f"{folder}/{rng.choice(names)}".lstrip("/")] = settings
    prompt = _prompts(rng, files)
    tokenizer: dict[str, Any] = {}
    limit = rng.choice((None, 9, 17, 33, 10**30))
    if config["model_type"] in ("roberta", "xlm-roberta", "mpnet") and not (settings or {}).get("max_seq_length"):
        limit = rng.choice((9, 38))
    if limit is not None:
        tokenizer["model_max_length"] = limit
    if rng.random() < 0.3:
        tokenizer["truncation_side"] = rng.choice(("left", "right"))
    return SentenceCase(f"drawn{seed}", "", config, base.tokenizer, files, folder, tokenizer, prompt, seed=1000 + seed)


def _ranker(rng: random.Random, seed: int, base: SentenceCase, config: dict[str, Any]) -> SentenceCase:
    for name in ("sbert_ce_default_activation_function", "sentence_transformers"):
        config.pop(name, None)
    files: dict[str, Any] = {}
    activation = f"torch.nn.modules.{rng.choice(('linear.Identity', 'activation.Sigmoid', 'activation.Tanh'))}"
    if rng.random() < 0.5:
        files["modules.json"] = [
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}
        ]
        settings = {**(_settings(rng) or {}), "transformer_task": "sequence-classification"}
        files["sentence_bert_config.json"] = settings
        beside: dict[str, Any] = {"model_type": "CrossEncoder"}
        if rng.random() < 0.6:
            beside["activation_fn"] = activation
        if rng.random() < 0.5:
            beside |= {"prompts": {"q": rng.choice(_PROMPTS)}, "default_prompt_name": rng.choice((None, "q"))}
        files["config_sentence_transformers.json"] = beside
    if rng.random() < 0.5:
        config["sentence_transformers"] = {"activation_fn": "torch.nn.modules.linear.Identity"}
    elif rng.random() < 0.5:
        config["sbert_ce_default_activation_function"] = "torch.nn.modules.linear.Identity"
    tokenizer: dict[str, Any] = {"model_max_length": rng.choice((9, 20, 38))}
    if rng.random() < 0.3:
        tokenizer["truncation_side"] = "left"
    if rng.random() < 0.5:
        tokenizer["model_input_names"] = ["input_ids", "attention_mask", *rng.choice(([], ["token_type_ids"]))]
    if "roberta" in config["model_type"]:
        tokenizer.pop("model_input_names", None)
    return SentenceCase(f"drawn{seed}", "", config, base.tokenizer, files, "", tokenizer, ranks=True, seed=1000 + seed)


def _chain(rng: random.Random, files: dict[str, Any]) -> tuple[list[str], int]:
    """Returns the kinds of the modules, and writes their files; and the size of the vectors."""
    modes = rng.sample(_MODES, rng.choice((1, 1, 1, 2, 3)))
    prompt = {} if rng.random() < 0.6 else {"include_prompt": rng.random() < 0.4}
    if rng.random() < 0.5:
        value: Any = modes if len(modes) > 1 or rng.random() < 0.3 else modes[0]
        files["1_Pooling/config.json"] = {"embedding_dimension": 12, "pooling_mode": value, **prompt}
    else:
        flags = {_FLAGS[mode]: mode in modes for mode in _MODES if mode in modes or rng.random() < 0.5}
        files["1_Pooling/config.json"] = {"word_embedding_dimension": 12, **flags, **prompt}
    kinds, size = ["Transformer", "Pooling"], 12 * len(modes)
    for place in range(2, 2 + rng.choice((0, 1, 1, 2, 3))):
        kind = rng.choice(("Dense", "Dense", "LayerNorm", "Normalize", "Dropout"))
        kinds.append(kind)
        if kind == "Dense":
            outputs = rng.choice((size, 7, 10))
            files[f"{place}_Dense/config.json"] = {
                "in_features": size,
                "out_features": outputs,
                "bias": rng.random() < 0.5,
                "activation_function": rng.choice(_ACTIVATIONS),
                **({"use_residual": True} if rng.random() < 0.3 else {}),
            }
            size = outputs
        if kind == "LayerNorm":
            files[f"{place}_LayerNorm/config.json"] = {"dimension": size}
        if kind == "Dropout":
            files[f"{place}_Dropout/config.json"] = {"dropout": 0.3}
    return kinds, size


def _settings(rng: random.Random) -> dict[str, Any] | None:
    if rng.random() < 0.25:
        return None
    settings: dict[str, Any] = {}
    if rng.random() < 0.6:
        settings["max_seq_length"] = rng.choice((None, 6, 12, 21, 36))
    if rng.random() < 0.5:
        settings["do_lower_case"] = rng.random() < 0.6
    if rng.random() < 0.2:
        settings[rng.choice(("tokenizer_args", "processor_kwargs"))] = {"model_max_length": rng.choice((8, 14))}
    return settings


def _prompts(rng: random.Random, files: dict[str, Any]) -> str | None:
    """Writes prompts, and returns the name of the one to embed with."""
    if rng.random() < 0.4:
        return None
    prompts = {name: rng.choice(_PROMPTS) for name in ("query", "document", "x")}
    default = rng.choice((None, None, "query", "x"))
    files["config_sentence_transformers.json"] = {
        "prompts": prompts,
        "default_prompt_name": default,
        "similarity_fn_name": rng.choice(("cosine", "dot", None)),
    }
    return rng.choice((None, *prompts))


if __name__ == "__main__":
    sys.exit(main())
