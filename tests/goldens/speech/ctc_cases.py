"""Tiny CTC models and their sounds, as plain data; ``make_ctc_goldens.py`` computed ``data/ctc.json`` from these."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import safetensors.numpy

from tests.goldens.speech.files import DATA, RATE
from tests.goldens.weights import unit_values

_LETTERS: Final = ("<pad>", "<s>", "</s>", "<unk>", "|", *"ABEINORST'", "<ng>")
CONFIG: Final[Mapping[str, Any]] = {
    "conv_dim": [8, 8, 8],
    "conv_kernel": [20, 10, 6],
    "conv_stride": [10, 8, 4],
    "feat_extract_norm": "group",
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_attention_heads": 2,
    "num_conv_pos_embedding_groups": 2,
    "num_conv_pos_embeddings": 9,
    "num_feat_extract_layers": 3,
    "num_hidden_layers": 1,
    "pad_token_id": 0,
    "vocab_size": len(_LETTERS) + 1,  # the last result has no character
}
FRAMES: Final = 99
"""Frames of a bundle's window: two seconds."""
SECONDS: Final = 2
PREPROCESSOR: Final[Mapping[str, Any]] = {
    "do_normalize": True,
    "feature_extractor_type": "Wav2Vec2FeatureExtractor",
    "feature_size": 1,
    "padding_side": "right",
    "padding_value": 0.0,
    "return_attention_mask": False,
    "sampling_rate": RATE,
}


@dataclass(frozen=True)
class CtcCase:
    """One transcription.

    Attributes:
        sound: name of the sound, as for ``files.sound``.
        samples: the first samples of it.
        model: name of the architecture's beginning.
        tokenizer: fields of tokenizer_config.json.
        vocabulary: vocab.json, whole.
    """

    sound: str
    samples: int
    model: str = "Wav2Vec2"
    tokenizer: Mapping[str, Any] = field(default_factory=dict)
    vocabulary: Mapping[str, Any] = field(default_factory=lambda: {letter: i for i, letter in enumerate(_LETTERS)})

    def config(self) -> dict[str, Any]:
        """Returns config.json."""
        architecture = {"architectures": [f"{self.model}ForCTC"], "model_type": self.model.lower()}
        return {**CONFIG, **architecture}


_NESTED: Final = {"eng": {letter: i for i, letter in enumerate(_LETTERS)}, "deu": {"<pad>": 0, "Ü": 5}}
CTC_CASES: Final = {
    "short": CtcCase("speech", 22_222),
    "window": CtcCase("speech", 32_000),
    "long": CtcCase("long", 5 * RATE + 171),
    "lower": CtcCase("speech", 29_000, tokenizer={"do_lower_case": True, "clean_up_tokenization_spaces": True}),
    "nested": CtcCase("long", 3 * RATE, tokenizer={"target_lang": "eng"}, vocabulary=_NESTED),
    "added": CtcCase("speech", 30_000, tokenizer={"added_tokens_decoder": {"16": {"content": "~", "special": False}}}),
    "hubert": CtcCase("long", 4 * RATE + 7, model="Hubert"),
    "wavlm": CtcCase("long", 4 * RATE - 9, model="WavLM"),
}
"""Transcriptions by their names."""


def ctc_weights(shapes: Mapping[str, list[int]], seed: int) -> dict[str, np.ndarray]:
    """f32 weights with which blanks, repeated characters and ends of words come."""
    return {key: _tensor(key, tuple(shape), seed) for key, shape in shapes.items()}


def _tensor(key: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    unit = unit_values(key, shape, seed)
    if len(shape) == 1:
        return np.float32(0.5) * unit if key.endswith("bias") else np.float32(1.0) + np.float32(0.25) * unit
    if shape[0] == 1:
        return np.float32(1.5) + unit
    return unit * np.float32(np.sqrt(9.0 / np.prod(shape[1:])))


def read_ctc_goldens() -> dict[str, Any]:
    """Versions, and per case the shapes and the seed of the weights, the text, and words with their times."""
    return json.loads((DATA / "ctc.json").read_text())


def write_ctc_checkpoint(directory: Path, case: CtcCase, shapes: Mapping[str, list[int]], seed: int) -> None:
    """Writes a tiny CTC model into an empty directory, as transformers stores one."""
    files = {
        "config.json": case.config(),
        "preprocessor_config.json": PREPROCESSOR,
        "tokenizer_config.json": {"tokenizer_class": "Wav2Vec2CTCTokenizer", "unk_token": "<unk>", **case.tokenizer},
        "vocab.json": case.vocabulary,
    }
    for name, fields in files.items():
        (directory / name).write_text(json.dumps(fields))
    weights = ctc_weights(shapes, seed)
    safetensors.numpy.save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
