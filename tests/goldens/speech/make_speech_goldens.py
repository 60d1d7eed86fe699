"""Compute the golden files of speech with transformers: run by hand, outside Bazel (see ../README.md).

    python -m tests.goldens.speech.make_speech_goldens

``data/speech.flac`` is espeak-ng's: ``espeak-ng -v en-us -s 170 -w s.wav "The quick brown fox jumps."``, as FLAC.

Features are those of the extractor's NumPy form, in f64. (Its torch form computes in f32, which in quiet bands beside
loud ones is off by up to 5e-5; transcriptions are made from that form, as transformers does by default.)
Each case is checked while it is made: every choice of a token is clear.
"""

import json
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import soundfile
import soxr
import torch
import transformers
from transformers.generation.logits_process import (
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    WhisperTimeStampLogitsProcessor,
)

from tests.goldens.speech.cases import ADDED, CONFIG, FEATURE_CASES, GENERATION, RULES, SPEECH_CASES, SpeechCase
from tests.goldens.speech.files import (
    DATA,
    RATE,
    SPEECH,
    TRIALS,
    drawn_logits,
    drawn_tokens,
    kept_frames,
    sound,
    write_speech_checkpoint,
)

_CLEAR_MARGIN = 4e-4
Json = dict[str, Any]


def main() -> int:
    """Make both files."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    np.savez_compressed(
        DATA / "features.npz", **{f"{name}.{bands}": _features(name, bands) for name, bands in FEATURE_CASES}
    )
    shapes = _shapes()
    cases = {name: _transcribed(name, case, shapes) for name, case in SPEECH_CASES.items()}
    head = {
        "script": "tests/goldens/speech/make_speech_goldens.py",
        "versions": {
            "numpy": np.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "shapes": shapes,
    }
    head["chosen"] = [_chosen(number) for number in range(TRIALS)]
    head["cuts"] = [_cut(number) for number in range(TRIALS)]
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
    text = f'{json.dumps(head)[:-1]},\n "cases": {{\n{lines}\n }}\n}}\n'
    (DATA / "transcriptions.json").write_text(text)
    return 0


def _features(name: str, bands: int) -> np.ndarray:
    """The features at the frames that are kept; speech is resampled by soxr, as librosa does."""
    extractor = transformers.WhisperFeatureExtractor(feature_size=bands)
    samples = _speech() if name == "speech" else sound(name)
    padded = np.pad(samples, (0, max(0, extractor.n_samples - len(samples))))
    features = extractor._np_extract_fbank_features([padded], "cpu")[0]
    return features[:, kept_frames(features.shape[1])].astype(np.float32)


def _speech() -> np.ndarray:
    samples, rate = soundfile.read(SPEECH, dtype="float32")
    resampled = soxr.resample(samples, rate, RATE, quality="HQ")  # as librosa.load does
    return np.pad(resampled, (0, -(-len(samples) * RATE // rate) - len(resampled)))


def _shapes() -> dict[str, list[int]]:
    """Keys and shapes that transformers stores of such a model."""
    with tempfile.TemporaryDirectory() as name:
        config = transformers.WhisperConfig(**CONFIG)
        transformers.WhisperForConditionalGeneration(config).save_pretrained(name)
        with safetensors.safe_open(Path(name) / "model.safetensors", "np") as file:
            return {key: list(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118


class _Margins(transformers.LogitsProcessor):
    """Notes how clear each choice is: between the two likeliest tokens, and between timestamps and words."""

    def __init__(self) -> None:
        self.least = np.inf

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        first, second = scores[0].topk(2).values.tolist()
        self.least = min(self.least, first - second)
        return scores


def _transcribed(name: str, case: SpeechCase, shapes: dict[str, list[int]]) -> Json:
    with tempfile.TemporaryDirectory() as folder:
        write_speech_checkpoint(Path(folder), shapes, case.generation)
        model, info = transformers.WhisperForConditionalGeneration.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
        problems = {kind: keys for kind, keys in info.items() if keys}
        if problems:
            raise RuntimeError(f"transformers does not take the checkpoint as it is: {problems}")
        tokenizer = transformers.WhisperTokenizer.from_pretrained(folder)
        extractor = transformers.WhisperFeatureExtractor.from_pretrained(folder)
    model.eval()
    samples = sound(case.sound)
    is_long = len(samples) > extractor.n_samples
    asked = {"language": case.asked.get("language"), "task": case.asked.get("task", "transcribe")}
    asked = asked if case.generation is GENERATION else {}
    timestamps = case.asked.get("timestamps") or (None if is_long else False)
    form = {"truncation": False, "padding": "longest"} if is_long else {}
    inputs = extractor(samples, sampling_rate=RATE, return_tensors="pt", return_attention_mask=True, **form)
    margins = _Margins()
    result = model.generate(
        **inputs, return_timestamps=timestamps, return_segments=True, logits_processor=[margins], **asked
    )
    (segments,) = result["segments"]
    start = len(segments[0]["result"]) - len(_after_prompt(segments[0]["result"].tolist()))
    pipeline = transformers.pipeline(
        "automatic-speech-recognition", model=model, tokenizer=tokenizer, feature_extractor=extractor
    )
    text = pipeline(samples, return_timestamps=timestamps, generate_kwargs={**asked, "num_beams": 1})["text"]
    made = {
        "prompt": segments[0]["result"][:start].tolist(),
        "segments": [[float(row["start"]), float(row["end"]), row["tokens"].tolist()] for row in segments],
        "text": text,
    }
    print(f"{name}: margin {margins.least:.2g}, {len(segments)} segments, {text[:60]!r}")
    if margins.least < _CLEAR_MARGIN:
        raise RuntimeError(f"{name}: a choice is not clear; take another seed")
    return made


def _chosen(number: int) -> int:
    """The token that transformers' processors choose after drawn tokens."""
    config = transformers.GenerationConfig(**RULES)
    tokens = torch.tensor([[config.decoder_start_token_id, *drawn_tokens(number)]])
    scores = torch.from_numpy(drawn_logits(number))[None].clone()
    for processor in (
        SuppressTokensAtBeginLogitsProcessor(config.begin_suppress_tokens, begin_index=1),
        SuppressTokensLogitsProcessor(config.suppress_tokens),
        WhisperTimeStampLogitsProcessor(config, begin_index=1),
    ):
        scores = processor(tokens, scores)
    return int(scores.argmax())


def _cut(number: int) -> Json | None:
    """The segments that transformers cuts of drawn tokens, of a window of 29 frames; None of no tokens."""
    tokens = torch.tensor(drawn_tokens(number))
    if not len(tokens):
        return None
    segments, advance = transformers.WhisperForConditionalGeneration._retrieve_segment(
        seek_sequence=tokens,
        seek_outputs=[{}],
        time_offset=torch.zeros(1, dtype=torch.float64),
        timestamp_begin=RULES["no_timestamps_token_id"] + 1,
        seek_num_frames=torch.tensor([29]),
        time_precision=0.02,
        time_precision_features=0.01,
        input_stride=2,
        prev_idx=0,
        idx=0,
        return_token_timestamps=False,
        decoder_input_ids=torch.zeros((1, 1)),
    )
    rows = [[round(float(row["start"]) * 100), round(float(row["end"]) * 100), len(row["tokens"])] for row in segments]
    return {"segments": rows, "advance": int(advance)}


def _after_prompt(tokens: list[int]) -> list[int]:
    special = range(ADDED["<|startoftranscript|>"], ADDED["<|notimestamps|>"] + 1)
    return tokens[next(place for place, token in enumerate(tokens) if token not in special) :]


if __name__ == "__main__":
    sys.exit(main())
