"""Decoders that encode texts, with RoPE that depends on the length: a text's own, not that of its padding."""

from typing import Any

import numpy as np
import pytest

from transformer_core.layers._rope_config import RopeConfig
from transformer_core.layers._rope_scaling import DynamicScaling, LongropeScaling
from transformer_core.layers._weights_testing import context_of
from transformer_core.models._tiny_testing import changed
from transformer_core.models.encoders import DecoderEncoder, DecoderEncoderConfig

IDS = np.random.default_rng(3).integers(0, 31, (3, 9)).astype(np.int32)
LENGTHS = (9, 4, 6)


@pytest.mark.parametrize("scaling", [DynamicScaling(4.0, 5), LongropeScaling((1.0,) * 3, (1.5, 3.0, 7.0), 5, 1.25)])
def test_padding_does_not_change_a_text(scaling: Any) -> None:
    decoder = changed(rope=RopeConfig(rotated=6, trained_length=5, scaling=scaling))
    model = DecoderEncoder(DecoderEncoderConfig(architecture="LlamaModel", decoder=decoder))
    ctx = context_of(model)
    mask: Any = (np.arange(9) < np.array(LENGTHS)[:, None]).astype(np.int32)
    ids: Any = IDS
    padded = model.results(ctx, ids, mask)["last_hidden_state"].numpy()
    for row, length in enumerate(LENGTHS):
        text: Any = IDS[row : row + 1, :length]
        alone = model.results(ctx, text, np.ones_like(text))["last_hidden_state"].numpy()
        np.testing.assert_allclose(padded[row, :length], alone[0], rtol=1e-4, atol=1e-5, err_msg=f"{length} tokens")
