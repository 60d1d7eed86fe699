"""Tiny CLIP and SigLIP with a tokenizer, for labels of pictures; ``make_zero_shot_goldens.py`` computed the scores."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.goldens.encoders.cases import ENCODER_CASES, EncoderCase
from tests.goldens.encoders.files import random_encoder_weights, write_config, write_weights
from tests.goldens.pictures.files import DATA

SCORES: Final = DATA / "zero_shot.json"
LABELS: Final = ("a red cat", "Dog, running!", "house")
HYPOTHESES: Final = ("This is a photo of {}.", "{}")
_WORDS: Final = "<pad> <unk> this is a photo of cat dog red house running . , !".split()
_END: Final = {"clip": 50, "siglip": 49}
_CLASS: Final = {"clip": "PreTrainedTokenizerFast", "siglip": "SiglipTokenizer"}
_SIDE: Final = {"height": 10, "width": 10}
SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "clip": {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 12}, "crop_size": 10},
    "siglip": {"image_processor_type": "SiglipImageProcessor", "size": _SIDE},
}
"""Settings of the image processor of each model."""


def zero_shot_case(name: str) -> EncoderCase:
    """Returns a case of ``ENCODER_CASES`` with as many positions of text as transformers' pipeline needs."""
    case = ENCODER_CASES[name]
    text = {**case.config["text_config"], "max_position_embeddings": 64 if name == "siglip" else 16}
    return replace(case, config={**case.config, "text_config": text})


def tokenizer_json(name: str) -> dict[str, Any]:
    """Returns a tokenizer.json of words, with a token that ends each text."""
    vocabulary = {word: number for number, word in enumerate(_WORDS)} | {"<end>": _END[name]}
    single = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<end>", "type_id": 0}}]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": vocabulary[token], "content": token, **flags} for token in ("<pad>", "<unk>", "<end>")],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<end>": {"id": "<end>", "ids": [vocabulary["<end>"]], "tokens": ["<end>"]}},
        },
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }


def write_zero_shot_checkpoint(directory: Path, name: str, shapes: Mapping[str, list[int]]) -> None:
    """Writes a tiny model with its tokenizer into an empty directory."""
    case = zero_shot_case(name)
    write_config(directory, case)
    write_weights(directory, random_encoder_weights({key: tuple(shape) for key, shape in shapes.items()}, case.seed))
    inputs = {"model_input_names": ["input_ids"] if name == "siglip" else ["input_ids", "attention_mask"]}
    tokens = {**inputs, "pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "<end>"}
    files = {
        "preprocessor_config.json": SETTINGS[name],
        "tokenizer.json": tokenizer_json(name),
        "tokenizer_config.json": {"tokenizer_class": _CLASS[name], **tokens},
    }
    for file, fields in files.items():
        (directory / file).write_text(json.dumps(fields))
