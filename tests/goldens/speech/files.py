"""Read the golden files in ``data/``, make sounds, and write checkpoints of the tiny Whisper. No weight is stored."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from tapeline.media.audio import read_audio
from tests.goldens.byte_level import ADDED_FLAGS, byte_level_tokenizer
from tests.goldens.speech.cases import ADDED, CONFIG, GENERATION, PREPROCESSOR, RULES, RULES_VOCABULARY, SEED, WORDS
from tests.goldens.weights import unit_values

DATA = Path(__file__).parent / "data"
SPEECH = DATA / "speech.flac"
"""Two seconds of speech at 22,050 samples per second, by a synthesiser (espeak-ng)."""

RATE = 16_000
TRIALS = 300
"""Number of drawn trials of the rules of tokens, and of the cuts of windows."""

_LENGTHS = {"one": 1, "noise": 16_001, "window": 480_000, "beyond": 480_161}


def sound(name: str) -> np.ndarray:
    """Mono samples f32 at ``RATE``: ``speech``, ``long`` (75 seconds of it with noise), or noise of some length."""
    if name == "speech":
        return read_audio(SPEECH, RATE)
    if name == "long":
        words = np.resize(sound("speech"), 75 * RATE + 77)
        return words * _loudness(len(words)) + np.float32(0.01) * _noise(name, len(words))
    return _noise(name, _LENGTHS.get(name, 64 * RATE + 5))


def _noise(name: str, length: int) -> np.ndarray:
    return unit_values(name, (length,), SEED) * _loudness(length) ** 4


def _loudness(length: int) -> np.ndarray:
    """Values in [0.05, 1) that rise and fall in steps, so that they are the same on every machine."""
    steps = unit_values("loudness", (length // 4000 + 1,), SEED)
    return np.repeat(np.abs(steps) * np.float32(0.95) + np.float32(0.05), 4000)[:length]


def read_feature_goldens() -> dict[str, np.ndarray]:
    """Features of each (sound, bands), named ``sound.bands``, at the frames of ``kept_frames``."""
    with np.load(DATA / "features.npz", allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def kept_frames(frames: int) -> np.ndarray:
    """Frames whose features are kept: the first and the last ones, and some between."""
    return np.unique(np.r_[:3, np.linspace(0, frames - 1, 24).astype(int), frames - 3 : frames])


def read_speech_goldens() -> dict[str, Any]:
    """Versions, shapes of the weights, and per case the prompt, the segments and the text."""
    return json.loads((DATA / "transcriptions.json").read_text())


def read_word_goldens() -> dict[str, Any]:
    """Paths through drawn matrices, words with their times per case, and what guards saw and left."""
    return json.loads((DATA / "words.json").read_text())


def speech_weights(shapes: Mapping[str, list[int]]) -> dict[str, np.ndarray]:
    """f32 weights with which timestamps, words and the end all come."""
    return {key: _tensor(key, tuple(shape)) for key, shape in shapes.items()}


def _tensor(key: str, shape: tuple[int, ...]) -> np.ndarray:
    unit = unit_values(key, shape, SEED)
    if len(shape) == 1:
        return np.float32(0.5) * unit if key.endswith("bias") else np.float32(1.0) + np.float32(0.25) * unit
    if "embed_tokens" in key:
        scale = np.full((shape[0], 1), 0.45, np.float32)
        scale[: len(WORDS)] = 1.0
        scale[ADDED["<|endoftext|>"]] = 0.8
        return unit * scale
    if "embed_positions" in key:
        return unit * np.float32(4.0 if "decoder" in key else 2.0)
    gain = 2.0 if key.endswith(("encoder_attn.v_proj.weight", "encoder_attn.out_proj.weight")) else 4.0
    return unit * np.float32(np.sqrt(3.0 * gain / np.prod(shape[1:])))


def drawn_logits(number: int) -> np.ndarray:
    """The logits f32 [RULES_VOCABULARY] of a trial of the rules; half of them favour no token much."""
    return unit_values(f"rules {number}", (RULES_VOCABULARY,), SEED) * np.float32(1 + 7 * (number % 2))


def drawn_tokens(number: int) -> list[int]:
    """Tokens of a window in a trial: timestamps that do not fall, alone and in pairs, between up to two words."""
    draws = ((unit_values(f"tokens {number}", (24,), SEED) + 1) / 2).tolist()
    timestamp, tokens = RULES["no_timestamps_token_id"] + 1, list[int]()
    for first, second, third in zip(draws[::3], draws[1::3], draws[2::3], strict=True):
        tokens += [int(first * 20)] * int(third * 3)
        timestamp = min(timestamp + int(second * 4), RULES_VOCABULARY - 1)
        tokens += [timestamp] * (1 + (first + second > 0.8))
    return tokens[number % 2 : int(draws[0] * 26)]


def write_speech_checkpoint(
    directory: Path, shapes: Mapping[str, list[int]], generation: Mapping[str, Any] = GENERATION
) -> None:
    """Writes the tiny Whisper into an empty directory, as transformers stores one."""
    files = {
        "config.json": CONFIG,
        "generation_config.json": generation,
        "preprocessor_config.json": PREPROCESSOR,
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {"tokenizer_class": "WhisperTokenizer", "eos_token": "<|endoftext|>"},
    }
    for name, fields in files.items():
        (directory / name).write_text(json.dumps(fields))
    safetensors.numpy.save_file(speech_weights(shapes), directory / "model.safetensors", metadata={"format": "pt"})


def _tokenizer() -> dict[str, Any]:
    added = [
        {"id": token, "content": name, "special": not name[2].isdigit(), **ADDED_FLAGS} for name, token in ADDED.items()
    ]
    return byte_level_tokenizer({str(word): number for word, number in WORDS.items()}, added)
