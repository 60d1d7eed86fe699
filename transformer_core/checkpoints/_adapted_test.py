import json
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from lang_core import CheckpointError, ConfigError, InputError, MappingWeights, TapelineError
from transformer_core.checkpoints import AdaptedWeights, Adapter, SafetensorsCheckpoint, adapt

_PREFIX = "base_model.model."
_Q = "model.layers.0.self_attn.q_proj"
_RNG = np.random.default_rng(4)


def normal(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(np.float32)


def write_adapter(directory: Path, tensors: Mapping[str, np.ndarray], **settings: Any) -> Path:
    """Writes an adapter as PEFT does, of rank 2 if nothing else is said."""
    directory.mkdir(exist_ok=True, parents=True)
    fields = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], **settings}
    (directory / "adapter_config.json").write_text(json.dumps(fields))
    stored = {_PREFIX + key: array for key, array in tensors.items()}
    safetensors.numpy.save_file(stored, directory / "adapter_model.safetensors")
    return directory


def pair(module: str = _Q, rows: int = 7, columns: int = 5, rank: int = 2) -> dict[str, np.ndarray]:
    return {f"{module}.lora_A.weight": normal(rank, columns), f"{module}.lora_B.weight": normal(rows, rank)}


BASE = {
    f"{_Q}.weight": normal(7, 5),
    "model.layers.1.self_attn.q_proj.weight": normal(7, 5),
    "model.layers.0.experts.0.w1.weight": normal(4, 5).astype(ml_dtypes.bfloat16),
    "model.layers.0.experts.1.w1.weight": normal(4, 5).astype(ml_dtypes.bfloat16),
    "lm_head.weight": normal(11, 5),
    "position_ids": np.arange(3),
}


@pytest.fixture(name="checkpoint")
def _checkpoint(tmp_path: Path) -> SafetensorsCheckpoint:
    (tmp_path / "base").mkdir()
    safetensors.numpy.save_file(BASE, tmp_path / "base" / "model.safetensors")
    return SafetensorsCheckpoint(tmp_path / "base")


def adapted(checkpoint: SafetensorsCheckpoint, *adapters: Adapter) -> AdaptedWeights:
    return adapt(checkpoint, adapters)


def test_rows_read_one_by_one_are_those_of_the_whole(checkpoint: SafetensorsCheckpoint, tmp_path: Path) -> None:
    tensors = pair()
    first = Adapter(write_adapter(tmp_path / "a", tensors), 0.5)
    magnitude = {f"{_Q}.lora_magnitude_vector": np.abs(normal(7))}
    second = Adapter(write_adapter(tmp_path / "b", {**pair(rank=3), **magnitude}, r=3, use_dora=True))
    weights = adapted(checkpoint, first, second)
    key = f"{_Q}.weight"
    whole = weights.read(key)
    pieces = [weights.read_rows(key, row, row + 1) for row in range(7)]
    np.testing.assert_array_equal(whole, np.concatenate(pieces))
    np.testing.assert_array_equal(whole[2:6], weights.read_matrix_rows(key, 2, 6))
    assert weights.read_rows(key, 3, 3).shape == (0, 5)
    one = adapted(checkpoint, first).read(key)
    delta = 2 * 0.5 * (tensors[f"{_Q}.lora_B.weight"] @ tensors[f"{_Q}.lora_A.weight"])
    np.testing.assert_allclose(one, BASE[key] + delta, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(checkpoint.read(key), BASE[key])


def test_other_tensors_are_the_checkpoints_own(checkpoint: SafetensorsCheckpoint, tmp_path: Path) -> None:
    weights = adapted(checkpoint, Adapter(write_adapter(tmp_path / "a", pair())))
    assert list(weights.keys()) == list(checkpoint.keys())
    np.testing.assert_array_equal(weights.read("lm_head.weight"), BASE["lm_head.weight"])
    assert weights.spec("position_ids") == checkpoint.spec("position_ids")
    np.testing.assert_array_equal(weights.read("position_ids"), BASE["position_ids"])
    assert weights.packed_as("lm_head.weight") is None
    assert not weights.has("model.norm.weight")


class PackedTensors(MappingWeights):
    """Arrays that are stored packed, as those of a quantised checkpoint are."""

    def packed_as(self, key: str) -> str:
        assert self.has(key)
        return "q8_0"

    def read_packed_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        return np.full((stop - start, 34), len(key), np.uint8)

    def stored_bytes(self, key: str) -> int:
        return 34 * self.spec(key).shape[0]


def test_matrices_that_no_adapter_changes_stay_packed(tmp_path: Path) -> None:
    source = PackedTensors({"layers.0.q_proj.weight": normal(7, 5), "layers.1.q_proj.weight": normal(7, 5)}, "a file")
    weights = adapt(source, [Adapter(write_adapter(tmp_path / "a", pair("layers.0.q_proj")))])
    assert [weights.packed_as(key) for key in source.keys()] == [None, "q8_0"]  # noqa: SIM118
    assert weights.read_packed_rows("layers.1.q_proj.weight", 2, 5).shape == (3, 34)
    assert weights.stored_bytes("layers.0.q_proj.weight") == 34 * 7
    np.testing.assert_array_equal(weights.read("layers.1.q_proj.weight"), source.read("layers.1.q_proj.weight"))


def test_a_replaced_tensor_of_three_axes_is_read_as_a_matrix(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    safetensors.numpy.save_file({"experts.down": normal(2, 3, 5)}, tmp_path / "base" / "model.safetensors")
    tensors = {"experts.down": normal(2, 3, 5)}
    with SafetensorsCheckpoint(tmp_path / "base") as base:
        weights = adapted(base, Adapter(write_adapter(tmp_path / "a", tensors)))
        rows = weights.read_matrix_rows("experts.down", 2, 5)
    np.testing.assert_array_equal(rows, tensors["experts.down"].reshape(6, 5)[2:5])


def test_experts_have_one_dtype_where_one_of_them_is_adapted(checkpoint: SafetensorsCheckpoint, tmp_path: Path) -> None:
    weights = adapted(checkpoint, Adapter(write_adapter(tmp_path / "a", pair("model.layers.0.experts.1.w1", rows=4))))
    specs = [weights.spec(f"model.layers.0.experts.{index}.w1.weight").dtype.name for index in range(2)]
    assert specs == ["f32", "f32"]
    key = "model.layers.0.experts.0.w1.weight"
    np.testing.assert_array_equal(weights.read(key), BASE[key].astype(np.float32))
    assert weights.read_matrix_rows(key, 1, 2).dtype == np.float32


def test_memory_is_that_of_the_rows(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    safetensors.numpy.save_file(
        {"q_proj.weight": np.zeros((3000, 1000), np.float32)}, tmp_path / "base" / "model.safetensors"
    )
    tensors = {
        "q_proj.lora_A.weight": normal(2, 3000),
        "q_proj.lora_B.weight": normal(1000, 2),
        "q_proj.lora_magnitude_vector": np.ones(1000, np.float32),
    }
    settings = {"use_dora": True, "fan_in_fan_out": True}
    with SafetensorsCheckpoint(tmp_path / "base") as base:
        weights = adapted(base, Adapter(write_adapter(tmp_path / "a", tensors, **settings)))
        tracemalloc.start()
        weights.read_rows("q_proj.weight", 100, 110)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 3000 * 1000 * 4 * 1.5  # what a column's norm needs comes a few rows at a time


def test_a_magnitude_under_two_names_counts_once_if_both_are_equal(
    checkpoint: SafetensorsCheckpoint, tmp_path: Path
) -> None:
    """PEFT stores both names for tied modules (``ensure_weight_tying``)."""
    magnitude = np.abs(normal(7)) + 1
    tensors = {**pair(), f"{_Q}.lora_magnitude_vector": magnitude}
    key, settings = f"{_Q}.weight", {"use_dora": True}
    once = adapted(checkpoint, Adapter(write_adapter(tmp_path / "once", tensors, **settings)))
    second = {f"{_Q}.lora_magnitude_vector.weight": magnitude}
    twice = adapted(checkpoint, Adapter(write_adapter(tmp_path / "twice", tensors | second, **settings)))
    np.testing.assert_array_equal(twice.read(key), once.read(key))
    second = {name: array + 1 for name, array in second.items()}
    other = write_adapter(tmp_path / "other", tensors | second, **settings)
    with pytest.raises(CheckpointError, match=r"names of one tensor, with different values: fetch it again"):
        Adapter(other)


@pytest.mark.parametrize("name", [f"{_Q}", "layers.0.self_attn.q_proj", "wrapper.model.layers.0.self_attn.q_proj"])
def test_prefixes_of_the_trained_model_may_differ(checkpoint: SafetensorsCheckpoint, tmp_path: Path, name: str) -> None:
    weights = adapted(checkpoint, Adapter(write_adapter(tmp_path / "a", pair(name))))
    assert list(weights.changed) == [f"{_Q}.weight"]


def test_layers_that_are_left_out_need_no_place(checkpoint: SafetensorsCheckpoint, tmp_path: Path) -> None:
    tensors = {**pair(), **pair("model.layers.2.self_attn.q_proj")}
    adapter = Adapter(write_adapter(tmp_path / "a", tensors))
    assert list(adapt(checkpoint, [adapter], range(2, 4)).changed) == [f"{_Q}.weight"]


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            pair("model.layers.0.self_attn.q_prod"),
            r"no tensor for 'model\.layers\.0\.self_attn\.q_prod\.weight'; did you mean 'model\.layers\.0\.self",
        ),
        (pair("model.layers.7.self_attn.q_proj"), r"the adapter is of another model.* It was trained on 'org/Tiny'\."),
        (
            pair(rows=9),
            r"is for a tensor of shape \[9, 5\], and .*q_proj\.weight' in .* is f32 \[7, 5\]: the adapter is",
        ),
        (pair("lm_head", 12), r"'lm_head' is for a tensor of shape \[12, 5\], and 'lm_head\.weight'"),
        ({"lm_head.weight": normal(12, 5)}, r"lm_head\.weight' is for a tensor of shape \[12, 5\]"),
        ({"model.norm.weight": normal(5)}, r"has no tensor for 'model\.norm\.weight'"),
    ],
)
def test_an_adapter_of_another_model_is_told(
    checkpoint: SafetensorsCheckpoint, tmp_path: Path, tensors: dict[str, np.ndarray], message: str
) -> None:
    adapter = Adapter(write_adapter(tmp_path / "a", tensors, base_model_name_or_path="org/Tiny"))
    with pytest.raises(CheckpointError, match=message):
        adapted(checkpoint, adapter)


@pytest.mark.parametrize(
    ("tensors", "settings", "error", "message"),
    [
        ({f"{_Q}.lora_A.weight": normal(2, 5)}, {}, CheckpointError, "q_proj' lacks one of its two matrices"),
        (pair(rank=3), {}, CheckpointError, r"matrices \[7, 3\] and \[3, 5\], and rank 2 in adapter_config\.json"),
        ({**pair(), f"{_Q}.lora_magnitude_vector": normal(7)}, {}, CheckpointError, "a magnitude vector, and use_dora"),
        (pair(), {"use_dora": True}, CheckpointError, "no magnitude vector, and use_dora is True"),
        (pair(), {"peft_type": "IA3"}, ConfigError, "'peft_type': expected one of LORA.*found 'IA3'"),
        (pair(), {"r": 0}, ConfigError, "'r': expected an integer of at least 1"),
        (pair(), {"lora_alpha": "x"}, ConfigError, "'lora_alpha': expected a finite number"),
        (pair(), {"init_lora_weights": "pissa"}, ConfigError, "'init_lora_weights': .*others change the base model's"),
        (pair(), {"use_qalora": True}, ConfigError, "'use_qalora': expected none: a merge of it is not supported"),
        (pair(), {"layer_replication": [[0, 2]]}, ConfigError, "'layer_replication': expected none"),
        (pair(), {"target_parameters": ["experts.down"]}, ConfigError, "'target_parameters': expected names of matr"),
        (pair(), {"a_new_field": 1}, ConfigError, "'a_new_field': expected none"),
        (pair(), {"rank_pattern": {"((a+)+)(?=b)": 2}}, ConfigError, "rank_pattern.* could take very long"),
        (pair(), {"alpha_pattern": {"(?!c).*.*.*.*b": 2}}, ConfigError, "up to three repetitions, none of a group"),
        (pair(), {"rank_pattern": {"[": 2}}, ConfigError, r"'\[' is no regular expression \("),
        (pair(), {"rank_pattern": {"q_proj": 0}}, ConfigError, "'q_proj': expected an integer"),
        (
            {"model.embed.token_adapter.trainable_tokens_delta": normal(2, 5)},
            {"trainable_token_indices": [1]},
            CheckpointError,
            r"has shape \[2, 5\], and adapter_config.json has 1 token ids for 'model.embed'",
        ),
        ({}, {"trainable_token_indices": [1, 1]}, ConfigError, "'trainable_token_indices': expected token ids without"),
        ({}, {"trainable_token_indices": {"embed": [-1]}}, ConfigError, "expected token ids without repetitions"),
        ({"mlp.experts.lora_A.weight": normal(2, 5)}, {}, ConfigError, "experts is not merged; merge the adapter with"),
    ],
)  # fmt: skip
def test_an_adapter_that_is_damaged_or_unsupported_is_told(
    tmp_path: Path, tensors: dict[str, np.ndarray], settings: dict[str, Any], error: type[TapelineError], message: str
) -> None:
    write_adapter(tmp_path, tensors, **settings)
    with pytest.raises(error, match=message):
        Adapter(tmp_path)


def test_a_directory_that_is_no_adapter_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"adapter_config\.json: cannot be read .*: an adapter is a directory of PEFT"
    ):
        Adapter(tmp_path)
    write_adapter(tmp_path, pair())
    (tmp_path / "adapter_model.safetensors").rename(tmp_path / "adapter_model.bin")
    with pytest.raises(CheckpointError, match="a pickle can run code and is never loaded"):
        Adapter(tmp_path)
    (tmp_path / "adapter_config.json").write_text("[" * 100_000)
    with pytest.raises(CheckpointError, match="the configuration is not JSON"):
        Adapter(tmp_path)


def test_weights_of_what_is_not_a_sum_are_refused(tmp_path: Path) -> None:
    magnitude = {f"{_Q}.lora_magnitude_vector": normal(7)}
    dora = write_adapter(tmp_path / "a", {**pair(), **magnitude}, use_dora=True)
    with pytest.raises(InputError, match=r"weight 0\.5 of a DoRA adapter: only weight 1 is defined"):
        Adapter(dora, 0.5)
    head = write_adapter(tmp_path / "b", {**pair(), "lm_head.weight": normal(11, 5)})
    with pytest.raises(InputError, match=r"weight 0\.5, and it replaces 'lm_head\.weight' as a whole"):
        Adapter(head, 0.5)


def test_two_adapters_do_not_replace_one_tensor(checkpoint: SafetensorsCheckpoint, tmp_path: Path) -> None:
    head = write_adapter(tmp_path / "a", {"lm_head.weight": normal(11, 5)}, modules_to_save=["lm_head"])
    with pytest.raises(
        CheckpointError, match=r"replaces 'lm_head\.weight' as a whole, which an adapter before it changes"
    ):
        adapted(checkpoint, Adapter(head), Adapter(head))


def test_rows_of_an_adapted_module_are_those_of_the_adapter(checkpoint: SafetensorsCheckpoint, tmp_path: Path) -> None:
    tensors, rows = pair(), normal(7, 5)
    saved = {**tensors, f"{_Q}.base_layer.weight": rows}
    weights = adapted(checkpoint, Adapter(write_adapter(tmp_path / "a", saved)))
    delta = 2 * (tensors[f"{_Q}.lora_B.weight"] @ tensors[f"{_Q}.lora_A.weight"])
    np.testing.assert_allclose(weights.read(f"{_Q}.weight"), rows + delta, rtol=1e-5, atol=1e-6)
    same = Adapter(write_adapter(tmp_path / "b", saved))
    twice = adapted(checkpoint, Adapter(tmp_path / "a"), same)  # two adapters of one base hold the same rows
    np.testing.assert_allclose(twice.read(f"{_Q}.weight"), rows + 2 * delta, rtol=1e-5, atol=1e-6)
    other = Adapter(write_adapter(tmp_path / "c", {**saved, f"{_Q}.base_layer.weight": rows + 1}))
    with pytest.raises(CheckpointError, match=r"c: has other rows for 'model\.layers.*weight' than an adapter before"):
        adapted(checkpoint, same, other)


def test_a_search_of_patterns_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_adapter(tmp_path, pair(), rank_pattern={".*q_.*": 2})
    assert Adapter(tmp_path).ranks[_Q].rank == 2
    monkeypatch.setattr("transformer_core.checkpoints._patterns.SECONDS", -1.0)
    with pytest.raises(ConfigError, match="'rank_pattern': 1 patterns take longer than -1 s"):
        Adapter(tmp_path)
