"""Sounds and a tiny Whisper, as plain data: nothing here imports torch or transformers.

``make_speech_goldens.py`` computed the files in ``data/`` from these, ``files.py`` reads them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

# Words in the alphabet of byte-level tokenizers, where a space is Ġ and other bytes than ASCII have letters, too.
_WORDS: Final = (
    "Ġthe Ġquick Ġbrown Ġfox Ġjumps Ġover Ġa Ġlazy Ġdog . , Ġit Ġwas Ġbest Ġworst Ġof Ġtimes Ġage Ġwisdom Ġseason "
    "Ġlight Ġspring Ġhope s ing ed Ġein ĠgroÃŁer Ġb Ã¤r Ġel Ġni Ã±o Ġcaf Ã© ? ! Ġyes Ġno Ġ1 Ġ2 7 Ġ- Ġwe Ġhad "
    "Ġeverything Ġbefore Ġus"
).split()
_SPECIAL: Final = (
    "<|endoftext|>",
    "<|startoftranscript|>",
    *("<|en|>", "<|de|>", "<|fr|>", "<|yue|>"),
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
)
_TIMESTAMPS: Final = tuple(f"<|{step * 0.02:.2f}|>" for step in range(1501))
WORDS: Final = dict(zip(_WORDS, range(len(_WORDS)), strict=True))
ADDED: Final = {name: len(_WORDS) + place for place, name in enumerate((*_SPECIAL, *_TIMESTAMPS))}
VOCABULARY: Final = len(WORDS) + len(ADDED)
_EOS: Final = ADDED["<|endoftext|>"]

CONFIG: Final[Mapping[str, Any]] = {
    "activation_function": "gelu",
    "architectures": ["WhisperForConditionalGeneration"],
    "bos_token_id": _EOS,
    "d_model": 16,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 24,
    "decoder_layers": 2,
    "decoder_start_token_id": ADDED["<|startoftranscript|>"],
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 20,
    "encoder_layers": 1,
    "eos_token_id": _EOS,
    "max_source_positions": 1500,
    "max_target_positions": 40,
    "model_type": "whisper",
    "num_mel_bins": 80,
    "pad_token_id": _EOS,
    "scale_embedding": False,
    "vocab_size": VOCABULARY,
}
GENERATION: Final[Mapping[str, Any]] = {
    "alignment_heads": [[1, 3], [0, 1], [1, 0]],
    "begin_suppress_tokens": [WORDS["Ġthe"], _EOS],
    "bos_token_id": _EOS,
    "decoder_start_token_id": ADDED["<|startoftranscript|>"],
    "eos_token_id": _EOS,
    "is_multilingual": True,
    "lang_to_id": {name: ADDED[name] for name in ("<|en|>", "<|de|>", "<|fr|>", "<|yue|>")},
    "max_initial_timestamp_index": 50,
    "max_length": 40,
    "no_timestamps_token_id": ADDED["<|notimestamps|>"],
    "pad_token_id": _EOS,
    "suppress_tokens": [WORDS["Ġ-"], WORDS["?"], *(ADDED[name] for name in _SPECIAL[1:-1])],
    "task_to_id": {name: ADDED[f"<|{name}|>"] for name in ("transcribe", "translate")},
}
ENGLISH: Final[Mapping[str, Any]] = {
    **{name: value for name, value in GENERATION.items() if name not in ("lang_to_id", "task_to_id")},
    "forced_decoder_ids": [[1, ADDED["<|notimestamps|>"]]],
    "is_multilingual": False,
}
"""Generation of a model for English alone, as older files have it."""

PREPROCESSOR: Final[Mapping[str, Any]] = {
    "chunk_length": 30,
    "feature_extractor_type": "WhisperFeatureExtractor",
    "feature_size": 80,
    "hop_length": 160,
    "n_fft": 400,
    "n_samples": 480_000,
    "nb_max_frames": 3000,
    "padding_side": "right",
    "padding_value": 0.0,
    "processor_class": "WhisperProcessor",
    "return_attention_mask": False,
    "sampling_rate": 16_000,
}
SEED: Final = 875


@dataclass(frozen=True)
class SpeechCase:
    """One transcription.

    Attributes:
        sound: name of the sound, as for ``files.sound``.
        asked: keywords of ``LoadedModel.transcribe``.
        generation: generation_config.json.
    """

    sound: str
    asked: Mapping[str, Any] = field(default_factory=dict)
    generation: Mapping[str, Any] = field(default_factory=lambda: GENERATION)


SPEECH_CASES: Final = {
    "plain": SpeechCase("speech"),
    "timed": SpeechCase("speech", {"timestamps": True}),
    "noise": SpeechCase("noise", {"language": "German"}),
    "long": SpeechCase("long", {"timestamps": True, "language": "fr"}),
    "long_detected": SpeechCase("long_noise"),
    "translated": SpeechCase("window", {"task": "translate", "language": "<|yue|>", "timestamps": True}),
    "english": SpeechCase("speech", generation=ENGLISH),
    "english_timed": SpeechCase("long", generation=ENGLISH),
}
"""Transcriptions by their names."""

FEATURE_CASES: Final = (
    *((name, 80) for name in ("speech", "noise", "one", "window", "beyond", "long")),
    *((name, 128) for name in ("speech", "beyond")),
)
"""Sounds and numbers of bands of which there are features."""


RULES_VOCABULARY: Final = 40
RULES: Final[Mapping[str, Any]] = {
    "begin_suppress_tokens": [3, 20],
    "decoder_start_token_id": 21,
    "eos_token_id": 20,
    "max_initial_timestamp_index": 5,
    "no_timestamps_token_id": 25,
    "suppress_tokens": [7, 21, 22, 23, 24],
}
"""Generation of a model with few tokens, on which the rules of tokens and the cuts of windows are tried."""

WORD_CASES: Final = ("timed", "long", "noise", "long_detected", "english_timed")
"""Transcriptions whose words have times."""
BOUNDS: Final = {"most_compression": 1.18, "least_log_probability": -1.5, "most_silence": 0.0002}
"""Bounds of a guarded transcription, of which some windows break one."""
