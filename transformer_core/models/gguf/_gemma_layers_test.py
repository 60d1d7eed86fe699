"""Metadata of Gemma 3n and Gemma 4 files: what they say by layer, and what is refused by name."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter

from lang_core import ConfigError
from transformer_core.layers._rope_scaling import ProportionalScaling
from transformer_core.models import DecoderConfig
from transformer_core.models.gguf import GgufModel

_BOTH: dict[str, Any] = {
    "block_count": 3, "context_length": 64, "embedding_length": 32, "feed_forward_length": 48,
    "attention.head_count": 4, "attention.head_count_kv": 2, "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.key_length": 16, "attention.value_length": 16, "attention.sliding_window": 8,
    "attention.sliding_window_pattern": [True, False, False], "rope.freq_base": 1e6, "rope.freq_base_swa": 5e3,
    "embedding_length_per_layer_input": 4,
}  # fmt: skip
_GEMMA4: dict[str, Any] = {
    **_BOTH, "attention.key_length_swa": 8, "attention.value_length_swa": 8, "rope.dimension_count": 16,
    "rope.dimension_count_swa": 8,
}  # fmt: skip
_GEMMA3N: dict[str, Any] = {
    **_BOTH, "altup.active_idx": 1, "altup.num_inputs": 3, "activation_sparsity_scale": [1.6448536, 0.0, -float("inf")],
}  # fmt: skip
_DIVISORS = [1.0, 1.0, *[1e30] * 6]


def _read(path: Path, name: str, fields: dict[str, Any], divisors: Sequence[float], *tensors: str) -> DecoderConfig:
    writer = GGUFWriter(path, name)
    for key, value in fields.items():
        add = {int: writer.add_uint32, float: writer.add_float32}.get(type(value), writer.add_array)
        add(f"{name}.{key}", value)
    shapes = {
        "token_embd": (7, 32),
        "per_layer_token_embd": (9, 12),
        "blk.0.laurel_l": (5, 32),
        "blk.2.attn_norm": (2,),
    }
    for tensor, shape in {**shapes, **dict.fromkeys(tensors, (2, 2))}.items():
        writer.add_tensor(f"{tensor}.weight", np.zeros(shape, np.float32))
    if divisors:
        writer.add_tensor("rope_freqs.weight", np.array(divisors, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with GgufModel(path) as file:
        return file.config()


def _gemma4(path: Path, divisors: Sequence[float] = _DIVISORS, **changes: Any) -> DecoderConfig:
    values = ("blk.1.attn_v", "blk.2.attn_v")
    return _read(path / "some.gguf", "gemma4", _GEMMA4 | changes, divisors, *values)


def _gemma3n(path: Path, **changes: Any) -> DecoderConfig:
    return _read(path / "some.gguf", "gemma3n", _GEMMA3N | changes, [])


def test_gemma4_has_sizes_by_layer(tmp_path: Path):
    config = _gemma4(tmp_path, **{"attention.head_count_kv": [2, 1, 1]})
    assert [(sizes.kv_heads, sizes.head_size) for sizes in config.layer_sizes] == [(2, 8), (1, 16), (1, 16)]
    assert not any(sizes.values_are_keys for sizes in config.layer_sizes)
    assert (config.rope.base, config.rope.rotated, config.rope.scaling) == (1e6, 16, ProportionalScaling(0.25))
    assert config.local_rope is not None
    assert (config.local_rope.base, config.local_rope.rotated) == (5e3, 8)
    assert (config.windows, config.cache_owners) == ((8, None, None), ())


def test_without_divisors_whole_heads_turn(tmp_path: Path):
    assert _gemma4(tmp_path, []).rope.scaling == ProportionalScaling(1.0)


def test_wide_layers_are_those_that_share_caches(tmp_path: Path):
    config = _gemma4(tmp_path, **{"feed_forward_length": [48, 48, 96], "attention.shared_kv_layers": 1})
    assert [sizes.intermediate for sizes in config.layer_sizes] == [48, 48, 96]
    assert config.cache_owners == (None, None, 1)


def test_keys_are_values_where_no_values_are_stored(tmp_path: Path):
    config = _read(tmp_path / "some.gguf", "gemma4", _GEMMA4, _DIVISORS)
    assert [sizes.values_are_keys for sizes in config.layer_sizes] == [False, True, True]


def test_gemma3n_has_sparsities_by_layer(tmp_path: Path):
    config = _gemma3n(tmp_path, feed_forward_length=[48, 32, 48])
    assert config.altup is not None
    assert (config.altup.sparsities, config.altup.active, config.altup.copies) == ((0.95, 0.5, 0.0), 1, 3)
    assert (config.altup.laurel_rank, [sizes.intermediate for sizes in config.layer_sizes]) == (5, [48, 32, 48])
    assert config.per_layer is not None
    assert (config.per_layer.vocabulary, config.per_layer.size) == (9, 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feed_forward_length": [48, 96]}, r"'feed_forward_length': expected an integer .*, or 3 \(block_count\) of"),
        ({"feed_forward_length": [48, 96, 48]}, "expected one size, or twice as much in the last 0 layers"),
        ({"attention.head_count_kv": [2, 0, 1]}, "'attention.head_count_kv': expected an integer of at least 1"),
        ({"attention.sliding_window_pattern": [True]}, "'attention.sliding_window_pattern': expected a number, or 3"),
        ({"attention.shared_kv_layers": 3}, "'num_kv_shared_layers': expected a number of last layers"),
        ({"divisors": [1.0] * 4}, r"'attention.key_length': expected half of it ones and then 1e30 in rope_freqs"),
        ({"divisors": [*[1e30] * 7, 2.0]}, r"expected half of it ones and then 1e30 in rope_freqs\.weight; found 16"),
        ({"expert_count": 4}, "field 'expert_used_count' is missing"),
    ],
)
def test_what_gemma4_cannot_be_is_refused(changes: dict[str, Any], message: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=message):
        _gemma4(tmp_path, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation_sparsity_scale": [0.0]}, r"'activation_sparsity_scale': expected 3 \(block_count\) numbers"),
        ({"altup.active_idx": 3}, "'altup_active_idx': expected 0 to 2"),
        ({"feed_forward_length": [48]}, "'feed_forward_length': expected an integer of at least 1, or 3"),
        ({"embedding_length_per_layer_input": 0}, "'hidden_size_per_layer_input': expected an integer of at least 1"),
    ],
)
def test_what_gemma3n_cannot_be_is_refused(changes: dict[str, Any], message: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=message):
        _gemma3n(tmp_path, **changes)
