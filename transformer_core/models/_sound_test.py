"""Models of raw sound: padding, and configurations that are refused."""

from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError, EagerExecutionContext, MappingWeights
from transformer_core import ConfigFields
from transformer_core.models.encoders import SoundConfig, SoundModel
from transformer_core.models.encoders._wav2vec2 import HUBERT, WAV2VEC2
from transformer_core.models.encoders._wavlm import WAVLM

_FIELDS = {
    "conv_dim": [6, 5, 7],
    "conv_kernel": [5, 3, 2],
    "conv_stride": [3, 2, 2],
    "hidden_size": 12,
    "intermediate_size": 17,
    "num_attention_heads": 3,
    "num_conv_pos_embedding_groups": 2,
    "num_conv_pos_embeddings": 19,
    "num_hidden_layers": 2,
    "vocab_size": 9,
}


def _read(family: Any, **changes: Any) -> SoundConfig:
    return family.read(ConfigFields({**_FIELDS, **changes}, "config.json"))


def _model(family: Any, **changes: Any) -> tuple[SoundModel, EagerExecutionContext]:
    model = family.make(_read(family, **changes), "f32", None)
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal(p.spec.shape).astype(np.float32) for name, p in model.named_parameters()}
    return model, EagerExecutionContext(MappingWeights(weights))


@pytest.mark.parametrize("norm", ["group", "layer"])
@pytest.mark.parametrize("family", [*WAV2VEC2, HUBERT[1], *WAVLM], ids=lambda family: family.architecture)
def test_padding_changes_nothing(family: Any, norm: str) -> None:
    """Whatever the samples behind a sound are, its results are those of the sound alone, and others are 0."""
    model, ctx = _model(family, feat_extract_norm=norm, do_stable_layer_norm=norm == "layer")
    rng = np.random.default_rng(1)
    samples = model.config.samples(9)
    sound = rng.standard_normal((1, samples)).astype(np.float32)
    alone = model.results(ctx, ctx.constant(sound), ctx.constant(np.array([samples], np.int32)))
    longer = rng.standard_normal((2, samples + 5 * model.config.ratio)).astype(np.float32)
    longer[1, :samples] = sound
    lengths = np.array([longer.shape[1], samples], np.int32)
    padded = model.results(ctx, ctx.constant(longer), ctx.constant(lengths))
    for name, tensor in alone.items():
        expected, actual = tensor.numpy()[0], padded[name].numpy()[1]
        frames = expected.shape[0]
        np.testing.assert_allclose(actual[:frames], expected, rtol=2e-4, atol=2e-4)
        assert not actual[frames:].any()


def test_samples_of_frames() -> None:
    """wav2vec2-base: 20 ms per frame, 25 ms for the first."""
    config = _read(WAV2VEC2[1], conv_dim=None, conv_kernel=None, conv_stride=None)
    assert (config.ratio, config.fewest, config.samples(1), config.samples(999)) == (320, 400, 640, 320_000)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"add_adapter": True}, "'add_adapter': expected false, or no such field"),
        ({"conv_dim": [6, 5]}, "'conv_dim': expected as many numbers as conv_kernel"),
        ({"conv_stride": [3, 2, 0]}, "'conv_stride': expected a list of 1 to 16 integers of 1 to 64"),
        ({"feat_extract_norm": "batch"}, "'feat_extract_norm': expected"),
        ({"num_attention_heads": 5}, "'num_attention_heads': expected a number that divides hidden_size"),
        ({"num_conv_pos_embedding_groups": 5}, "'num_conv_pos_embedding_groups': expected a number that divides"),
    ],
)
def test_configurations_that_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _read(WAV2VEC2[1], **changes)


def test_buckets_need_a_distance_beyond_them() -> None:
    with pytest.raises(ConfigError, match="'max_bucket_distance': expected more than a quarter of num_buckets"):
        _read(WAVLM[1], num_buckets=40, max_bucket_distance=10)
