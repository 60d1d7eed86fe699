"""Configurations of families with mixtures of experts."""

from transformer_core._rope_scaling import YarnScaling
from transformer_core.models._config_testing import read


def test_gpt_oss_without_rope_has_that_of_transformers():
    values = {"num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 8, "num_experts_per_tok": 3}
    config = read("GptOss", **values)
    scaling = config.rope.scaling
    assert isinstance(scaling, YarnScaling)
    assert (config.rope.base, scaling.factor, scaling.original_length) == (150000.0, 32.0, 4096)
    assert config.windows == (128, None, 128)
    assert read("GptOss", **values, rope_theta=500.0).rope.base == 500.0
