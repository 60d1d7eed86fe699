"""Features of sound, rules of tokens and cuts of windows, held to transformers."""

import json

import numpy as np
import pytest

from tapeline.media.audio import LogMel
from tapeline.running.transcribing import SpeechConfig, TokenRules, cut_window, median_filtered, warped
from tests.goldens.speech.cases import FEATURE_CASES, RULES, RULES_VOCABULARY, SPEECH_CASES
from tests.goldens.speech.files import (
    TRIALS,
    drawn_logits,
    drawn_tokens,
    kept_frames,
    read_feature_goldens,
    read_speech_goldens,
    read_word_goldens,
    sound,
)

_TOLERANCE = 1e-5


@pytest.mark.parametrize(("name", "bands"), FEATURE_CASES)
def test_features_are_those_of_transformers(name: str, bands: int) -> None:
    features = LogMel(mels=bands)(sound(name))
    expected = read_feature_goldens()[f"{name}.{bands}"]
    kept = features[:, kept_frames(features.shape[1])]
    assert (kept.dtype, kept.shape) == (expected.dtype, expected.shape)
    assert np.abs(kept - expected).max() < _TOLERANCE


def test_goldens_are_of_these_cases() -> None:
    assert set(read_feature_goldens()) == {f"{name}.{bands}" for name, bands in FEATURE_CASES}
    goldens = read_speech_goldens()
    assert set(goldens["cases"]) == set(SPEECH_CASES)
    assert goldens["script"] == "tests/goldens/speech/make_speech_goldens.py"
    assert {"torch", "transformers"} <= set(goldens["versions"])


def test_paths_through_matrices_are_those_of_transformers() -> None:
    for number, expected in enumerate(read_word_goldens()["warped"]):
        random = np.random.default_rng(number)
        shape = random.integers(1, 9), random.integers(1, 30)
        costs = np.round(random.standard_normal(shape), 1 + number % 2)
        assert [indices.tolist() for indices in warped(costs)] == expected, number


def test_medians_are_mirrored_at_the_ends() -> None:
    rows = np.array([[5.0, 1, 4, 2, 3]], np.float32)
    assert median_filtered(rows, 3).tolist() == [[1, 4, 2, 3, 2]]
    assert median_filtered(rows, 11).tolist() == rows.tolist()


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> SpeechConfig:
    directory = tmp_path_factory.mktemp("rules")
    (directory / "config.json").write_text("{}")
    (directory / "generation_config.json").write_text(json.dumps(RULES))
    return SpeechConfig.load(directory, RULES_VOCABULARY)


def test_chosen_tokens_are_those_of_transformers(config: SpeechConfig) -> None:
    rules = TokenRules(config, RULES_VOCABULARY, timestamps=True)
    chosen = [rules.choose(drawn_logits(number), drawn_tokens(number)) for number in range(TRIALS)]
    assert chosen == read_speech_goldens()["chosen"]


def test_segments_are_those_of_transformers(config: SpeechConfig) -> None:
    for number, expected in enumerate(read_speech_goldens()["cuts"]):
        tokens = drawn_tokens(number)
        if expected is None:
            assert tokens == []
            continue
        cuts, advance = cut_window(tokens, config.first_timestamp, 29)
        assert [[cut.start, cut.stop, len(cut.tokens)] for cut in cuts] == expected["segments"], tokens
        assert advance == expected["advance"], tokens
