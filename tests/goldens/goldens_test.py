import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from tests.goldens.cases import CASES, ROPE_CASES, GoldenCase
from tests.goldens.device_cases import BY_DEFAULT, EVERYWHERE, LONG
from tests.goldens.golden_files import DATA, read_golden, read_manifest, read_rope_golden
from tests.goldens.kv_cache_cases import KV_CACHE_CASES, KV_CACHE_ENCODINGS, kv_cache_path
from tests.goldens.mtp_cases import MTP_CASES, golden_path
from tests.goldens.weights import checksum, random_weights, sizes_of, stored_weights, weight_shapes, write_checkpoint

_ALL = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
_NUMPY = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@_ALL
def test_weights_are_those_the_goldens_were_made_from(case: GoldenCase):
    assert checksum(random_weights(case.config, case.seed)) == read_manifest()["cases"][case.name]["weights"]


@_ALL
def test_golden_file_was_made_from_this_case(case: GoldenCase):
    assert case.digest() == read_manifest()["cases"][case.name]["case"]


def test_manifest_and_data_name_the_cases_and_no_others():
    manifest = read_manifest()
    assert set(manifest["cases"]) == set(CASES)
    assert manifest["rope_cases"] == {name: case.digest() for name, case in ROPE_CASES.items()}
    heads = {golden_path(name).stem for name in MTP_CASES}
    others = {"rope", "gated_delta_net", "joint_block", "lengths", "quantized", "stored", "untied", *heads}
    caches = {kv_cache_path(case, encoding).stem for case in KV_CACHE_CASES for encoding in KV_CACHE_ENCODINGS}
    assert {path.stem for path in DATA.glob("*.npz")} == {*CASES, *others, *caches}


@_ALL
def test_golden_arrays_have_the_promised_shapes_and_fit_together(case: GoldenCase):
    golden = read_golden(case.name)
    batch, length = np.shape(case.prompt)
    layers, width, _, vocab = sizes_of(case.config)
    assert golden.prompt.tolist() == [list(row) for row in case.prompt]
    assert golden.tokens.shape == (batch, case.steps)
    assert golden.logits.shape == (batch, case.steps, vocab)
    assert golden.prompt_logits.shape == (batch, length, vocab)
    assert golden.logits.dtype == golden.prompt_logits.dtype == np.float32
    assert (golden.hidden is not None) == case.hidden
    if golden.hidden is not None:
        assert golden.hidden.shape == (layers, batch, length, width)
        assert golden.hidden.dtype == np.float32
    assert (golden.logits.argmax(-1) == golden.tokens).all()
    np.testing.assert_allclose(golden.prompt_logits[:, -1], golden.logits[:, 0], rtol=1e-5, atol=1e-5)


@_ALL
def test_sizes_differ_from_one_another(case: GoldenCase):
    sizes = sizes_of(case.config)
    assert len(set(sizes)) == len(sizes)


@pytest.mark.parametrize("name", ROPE_CASES)
def test_rope_tables_fit_together(name: str):
    golden = read_rope_golden(name)
    half = golden.inv_freq.shape[0]
    assert golden.positions.tolist() == json.loads(json.dumps(ROPE_CASES[name].positions))
    assert golden.cos.shape == golden.sin.shape == (golden.positions.shape[-1], 2 * half)
    assert _same_bits(golden.cos[:, :half].copy(), golden.cos[:, half:].copy())
    np.testing.assert_allclose(golden.cos**2 + golden.sin**2, golden.attention_factor**2, rtol=1e-5)
    if golden.positions.ndim == 1:
        angles = golden.positions[:, None].astype(np.float32) * golden.inv_freq
        np.testing.assert_allclose(golden.cos[:, :half], np.cos(angles) * golden.attention_factor, atol=1e-6)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_single_file_loads_bit_for_bit(tmp_path: Path, dtype):
    case = CASES["qwen3_bias_4x"]
    write_checkpoint(tmp_path, case, dtype=dtype)
    loaded = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    expected = {k: v.astype(_NUMPY[dtype]) for k, v in random_weights(case.config, case.seed).items()}
    assert set(loaded) == set(weight_shapes(case.config))
    assert all(_same_bits(loaded[key], value) for key, value in expected.items())
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors"}


@pytest.mark.parametrize("layout", ["sequential", "round_robin"])
@pytest.mark.parametrize("shards", [2, 3, 7])
def test_index_names_the_shard_of_every_key(tmp_path: Path, shards: int, layout):
    case = CASES["llama_biases"]
    write_checkpoint(tmp_path, case, shards=shards, layout=layout)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    expected = stored_weights(case)
    assert set(index["weight_map"]) == set(expected)
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in expected.values())
    names = {f"model-{i:05d}-of-{shards:05d}.safetensors" for i in range(1, shards + 1)}
    assert {path.name for path in tmp_path.glob("*.safetensors")} == set(index["weight_map"].values()) == names
    for name in names:
        loaded = safetensors.numpy.load_file(tmp_path / name)
        assert set(loaded) == {key for key, file in index["weight_map"].items() if file == name}
        assert all(_same_bits(value, expected[key]) for key, value in loaded.items())


def test_round_robin_spreads_a_layer_over_files(tmp_path: Path):
    write_checkpoint(tmp_path, CASES["llama_mha"], shards=3, layout="round_robin")
    files = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    assert len({file for key, file in files.items() if key.startswith("model.layers.1.")}) == 3


@pytest.mark.parametrize(
    ("name", "field", "dtype", "written"),
    [
        ("llama_mha", "dtype", None, "float32"),
        ("llama_mha", "dtype", "f16", "float16"),
        ("tinyllama_4x", "torch_dtype", None, "bfloat16"),
        ("llama_4x_first", "torch_dtype", "f32", "float32"),
    ],
)
def test_config_names_the_stored_dtype_in_the_field_of_its_form(tmp_path: Path, name, field, dtype, written):
    write_checkpoint(tmp_path, CASES[name], dtype=dtype)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config == {**CASES[name].config, field: written}


def test_tied_checkpoint_has_a_head_only_on_request(tmp_path: Path):
    case = CASES["qwen3"]
    plain, headed = tmp_path / "plain", tmp_path / "headed"
    for directory, stored_head in ((plain, False), (headed, True)):
        directory.mkdir()
        write_checkpoint(directory, case, stored_head=stored_head)
    assert "lm_head.weight" not in safetensors.numpy.load_file(plain / "model.safetensors")
    loaded = safetensors.numpy.load_file(headed / "model.safetensors")
    assert _same_bits(loaded["lm_head.weight"], loaded["model.embed_tokens.weight"])


def test_files_say_that_they_hold_torch_tensors(tmp_path: Path):
    write_checkpoint(tmp_path, CASES["llama_mqa"])
    with safetensors.safe_open(tmp_path / "model.safetensors", framework="np") as file:
        assert file.metadata() == {"format": "pt"}


def test_f32_weights_use_all_24_bits_and_are_spread():
    weights = random_weights(CASES["llama_mha"].config, seed=1)
    head = weights["lm_head.weight"]
    np.testing.assert_allclose(head.std(), 2 / np.sqrt(48), rtol=0.03)
    assert abs(head.mean()) < 0.01
    assert not _same_bits(head, head.astype(ml_dtypes.bfloat16).astype(np.float32))
    assert 0.75 <= weights["model.norm.weight"].min() < weights["model.norm.weight"].max() < 1.25


def test_seed_and_key_both_matter():
    config = CASES["llama_mha"].config
    one, other = random_weights(config, seed=1), random_weights(config, seed=2)
    key = "model.layers.0.self_attn.q_proj.weight"
    assert not np.array_equal(one[key], other[key])
    assert not np.array_equal(one[key], one[key.replace(".0.", ".1.")])


def test_every_family_runs_on_a_device() -> None:
    """With TAPELINE_LONG=1, an architecture of which no case is exported, compiled and run would be a gap."""
    plans = (*EVERYWHERE, *BY_DEFAULT, *LONG)
    walked = {CASES[plan.name].config["architectures"][0] for plan in plans}
    assert walked == {case.config["architectures"][0] for case in CASES.values()}
    assert len({plan.name for plan in plans}) == len(plans)
