"""Compute the golden file of words and guards of a Whisper with transformers: run by hand, outside Bazel.

    python -m tests.goldens.speech.make_word_goldens

Words and their times are the pipeline's; of each window there are the figures that guards look at, and the segments
that are left with bounds that leave windows out.
"""

import json
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers.models.whisper.generation_whisper import _dynamic_time_warping

from tests.goldens.speech.cases import BOUNDS, GENERATION, SPEECH_CASES, WORD_CASES, SpeechCase
from tests.goldens.speech.files import DATA, read_speech_goldens, sound, write_speech_checkpoint

_DRAWN = 40


def main() -> int:
    """Make the file."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    head = {
        "script": "tests/goldens/speech/make_word_goldens.py",
        "versions": {
            "numpy": np.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "warped": [_warped(number) for number in range(_DRAWN)],
    }
    cases = {name: _words(SPEECH_CASES[name]) for name in WORD_CASES}
    head["guarded"] = _guarded(SPEECH_CASES["long_detected"])
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(words)}" for name, words in cases.items())
    (DATA / "words.json").write_text(f'{json.dumps(head)[:-1]},\n "words": {{\n{lines}\n }}\n}}\n')
    return 0


def _warped(number: int) -> list[list[int]]:
    """The path through a drawn matrix."""
    random = np.random.default_rng(number)
    costs = np.round(random.standard_normal((random.integers(1, 9), random.integers(1, 30))), 1 + number % 2)
    return [indices.tolist() for indices in _dynamic_time_warping(costs)]


def _opened(case: SpeechCase) -> tuple[Any, Any, Any]:
    with tempfile.TemporaryDirectory() as folder:
        write_speech_checkpoint(Path(folder), read_speech_goldens()["shapes"], case.generation)
        model = transformers.WhisperForConditionalGeneration.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        )
        tokenizer = transformers.WhisperTokenizer.from_pretrained(folder)
        return model.eval(), tokenizer, transformers.WhisperFeatureExtractor.from_pretrained(folder)


def _words(case: SpeechCase) -> list[list[Any]]:
    model, tokenizer, extractor = _opened(case)
    pipeline = transformers.AutomaticSpeechRecognitionPipeline(
        model=model, tokenizer=tokenizer, feature_extractor=extractor, device=torch.device("cpu")
    )
    asked = {"language": case.asked.get("language"), "task": case.asked.get("task", "transcribe")}
    asked = asked if case.generation is GENERATION else {}
    result = pipeline(sound(case.sound).copy(), return_timestamps="word", generate_kwargs={**asked, "num_beams": 1})
    print(len(result["chunks"]), "words:", result["chunks"][:3])
    return [[chunk["text"], *chunk["timestamp"]] for chunk in result["chunks"]]


def _guarded(case: SpeechCase) -> dict[str, Any]:
    """Figures of each window, and the segments that are left."""
    model, _, extractor = _opened(case)
    figures: list[list[float]] = []
    need = model._need_fallback

    def noted(sequence: Any, outputs: Any, index: int, processors: Any, *rest: Any) -> Any:
        ratio = model._retrieve_compression_ratio(sequence, model.config.vocab_size)
        mean = float(model._retrieve_avg_logprobs(outputs[index]["scores"], sequence, 0.0))
        speech = next(p for p in processors if type(p).__name__ == "WhisperNoSpeechDetection")
        answer = need(sequence, outputs, index, processors, *rest)
        figures.append([ratio, mean, float(speech.no_speech_prob[index]), bool(answer[1])])
        return answer

    model._need_fallback = noted
    inputs = extractor(
        sound(case.sound), sampling_rate=16_000, truncation=False, padding="longest", return_tensors="pt",
        return_attention_mask=True,
    )  # fmt: skip
    result = model.generate(
        inputs["input_features"],
        attention_mask=inputs["attention_mask"],
        task="transcribe",
        return_timestamps=True,
        return_segments=True,
        temperature=(0.0,),
        compression_ratio_threshold=BOUNDS["most_compression"],
        logprob_threshold=BOUNDS["least_log_probability"],
        no_speech_threshold=BOUNDS["most_silence"],
    )
    segments = [segment["tokens"].tolist() for segment in result["segments"][0]]
    print(figures)
    return {"figures": figures, "segments": segments}


if __name__ == "__main__":
    sys.exit(main())
