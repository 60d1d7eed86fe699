"""Metadata of Qwen3-Next and Qwen3.5 as configurations."""

from collections.abc import Callable

import pytest

from lang_core import ConfigError
from transformer_core import HeadOrder
from transformer_core.models import DeltaConfig
from transformer_core.models.gguf import GgufModel, _config_test
from transformer_core.models.gguf._metadata_testing import HYBRID, OTHERS

made = _config_test.made


def test_qwens_hybrids(made: Callable[..., GgufModel]) -> None:
    config = made("qwen35moe", {**HYBRID, "block_count": 6, "nextn_predict_layers": 1}).config()
    assert (config.layers, config.extra_layers, config.prediction_heads) == (5, 1, 1)
    assert isinstance(config.mixer, DeltaConfig)
    assert config.mixer.layers == (True, True, True, False, True)
    assert (config.mixer.order, config.mixer.value_size, config.mixer.grouped) == (HeadOrder.TILED, 6, False)
    alike = made("qwen35", {**OTHERS["qwen35"], "ssm.group_count": 4}).config().mixer
    assert isinstance(alike, DeltaConfig)
    assert alike.order is HeadOrder.CONSECUTIVE
    for changes, message in (
        ({"nextn_predict_layers": 2}, "'nextn_predict_layers': expected fewer layers than block_count; found 2"),
        ({"ssm.inner_size": 25}, r"'ssm.inner_size': expected a multiple of ssm.time_step_rank \(4\); found 25"),
        ({"attention.recurrent_layers": [True]}, r"recurrent_layers': expected 2 of true and false, one for each"),
    ):
        with pytest.raises(ConfigError, match=message):
            made("qwen3next", {**HYBRID, **changes})
