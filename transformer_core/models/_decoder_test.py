from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lang_core import ConfigError, EagerExecutionContext, as_dtype
from transformer_core.checkpoints import (
    LLAMA_PRESETS,
    SafetensorsCheckpoint,
    llama_config,
    llama_specs,
    write_random_llama,
)
from transformer_core.family._decoder import DecoderLM
from transformer_core.layers._weights_testing import context_of
from transformer_core.models import DecoderConfig, load_config

TINY = LLAMA_PRESETS["tiny"]
BF16 = as_dtype("bf16")
CONFIG = DecoderConfig.from_hf(llama_config(TINY, BF16))
IDS = np.array([[3, 250, 7]], np.int32)


def test_parameter_paths_and_shapes_are_those_of_the_checkpoint():
    model = DecoderLM(CONFIG, "bf16")
    assert {path: parameter.spec for path, parameter in model.named_parameters()} == llama_specs(TINY, BF16)


def test_a_tied_model_has_one_parameter_for_both_ends():
    tied = DecoderLM(replace(CONFIG, tied=True))
    paths = [path for path, _ in tied.named_parameters()]
    assert len(paths) == len(set(paths)) == len(llama_specs(TINY, BF16)) - 1
    assert "lm_head.weight" not in paths
    assert tied(context_of(tied), IDS).shape == (1, 3, 256)


def test_a_checkpoint_runs(tmp_path: Path):
    write_random_llama(tmp_path, TINY, BF16, shards=2)
    model = DecoderLM(load_config(tmp_path))
    with SafetensorsCheckpoint(tmp_path) as weights:
        logits = model(EagerExecutionContext(weights), IDS).numpy()
    assert logits.shape == (1, 3, 256)
    assert np.isfinite(logits).all()
    assert logits.std() > 1e-3


def test_the_first_layers_alone():
    whole, first = DecoderLM(CONFIG), DecoderLM(CONFIG, num_layers=1)
    assert first.config.layers == len(first.model.layers) == 1
    assert {path for path, _ in first.named_parameters()} < {path for path, _ in whole.named_parameters()}
    assert first(context_of(whole), IDS).shape == (1, 3, 256)


@pytest.mark.parametrize("count", [0, 3, -1])
def test_a_number_of_layers_that_is_not_there_is_refused(count):
    with pytest.raises(ConfigError, match=f"num_layers: expected 1 to 2, the layers of the model; found {count}"):
        DecoderLM(CONFIG, num_layers=count)


def test_integers_are_no_dtype_of_activations():
    with pytest.raises(ConfigError, match=r"dtype: expected f32, bf16, f16 or f64, .*; found i8"):
        DecoderLM(CONFIG, "i8")


def test_a_later_token_changes_no_earlier_logit():
    model = DecoderLM(CONFIG)
    ctx = context_of(model)
    other = IDS.copy()
    other[0, 2] = 99
    a, b = model(ctx, IDS).numpy(), model(ctx, other).numpy()
    np.testing.assert_array_equal(a[:, :2], b[:, :2])
    assert (a[:, 2] != b[:, 2]).any()
