"""Numbers of activations in metadata: which are taken, and which are refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError
from transformer_core.models.gguf import GgufModel, _config_test
from transformer_core.models.gguf._metadata_testing import LLAMA

made = _config_test.made
_XIELU = {"xielu.alpha_p": 0.5, "xielu.alpha_n": [0.25, -0.5], "xielu.beta": 0.75, "xielu.eps": -1e-6}
_FINITE = r"'{}': expected 2 \(block_count\) finite numbers, or one for all layers; found"


def test_a_number_is_of_all_layers_and_a_list_of_each(made: Callable[..., GgufModel]) -> None:
    file = made("apertus", {**LLAMA, **_XIELU})
    numbers = {key: file.read(key) for key in file.keys() if ".xielu." in key}  # noqa: SIM118
    assert [numbers[f"blk.{layer}.xielu.alpha_n"].tolist() for layer in (0, 1)] == [[0.25], [-0.5]]
    assert [numbers[f"blk.{layer}.xielu.beta"].item() for layer in (0, 1)] == [0.75, 0.75]
    assert {key: array.shape for key, array in numbers.items()} == {key: file.spec(key).shape for key in numbers}
    assert {file.origin(key) for key in numbers} == {file.path}
    assert file.read_rows("blk.1.xielu.alpha_n", 0, 1).tolist() == [-0.5]
    assert file.read_rows("blk.1.xielu.alpha_n", 1, 1).shape == (0,)
    np.testing.assert_array_equal(file.read_rows("blk.1.xielu.eps", 0, 1), np.float32(-1e-6))
    assert (file.encoding("blk.0.xielu.eps"), file.packed_as("blk.0.xielu.eps")) == (None, None)


def test_a_rope_that_nothing_scales_stays_unscaled(made: Callable[..., GgufModel]) -> None:
    rope = made("apertus", {**LLAMA, **_XIELU, "rope.freq_base": 500.0}).config().rope
    assert (rope.base, rope.scaling.depends_on_length, type(rope.scaling).__name__) == (500.0, False, "NoScaling")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"xielu.alpha_p": None}, r"'xielu.alpha_p': expected 2 numbers \(block_count\), which llama.cpp's converter"),
        ({"xielu.alpha_n": [0.5]}, _FINITE.format("xielu.alpha_n")),
        ({"xielu.beta": [0.5, float("nan")]}, _FINITE.format("xielu.beta")),
        ({"xielu.eps": True}, _FINITE.format("xielu.eps")),
        ({"xielu.eps": "small"}, _FINITE.format("xielu.eps")),
    ],
)
def test_numbers_that_are_no_numbers_of_layers(
    changes: dict[str, Any], message: str, made: Callable[..., GgufModel]
) -> None:
    fields = {key: value for key, value in {**LLAMA, **_XIELU, **changes}.items() if value is not None}
    with pytest.raises(ConfigError, match=message):
        made("apertus", fields)
