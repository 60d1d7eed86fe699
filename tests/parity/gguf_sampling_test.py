"""Sampling keys of GGUF files, as the converter of llama.cpp writes them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGUFWriter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from generation import DEFAULT_SAMPLING, default_sampling, load_default_sampling
from lang_core import ConfigError
from transformer_core.models.gguf import GgufModel
from transformer_core.models.gguf._metadata_testing import LLAMA

Add = Callable[[GGUFWriter], object]
_FILE = "generation_config.json"


def _made(path: Path, add: Add) -> GgufModel:
    """Writes a file with the metadata of a small model and a few more, and opens it."""
    writer = GGUFWriter(path, "llama")
    for key, value in LLAMA.items():
        write: Any = writer.add_uint32 if isinstance(value, int) else writer.add_float32
        write(f"llama.{key}", value)
    add(writer)
    writer.add_tensor("token_embd.weight", np.zeros((7, 32), np.float32))
    writer.add_tensor("blk.1.attn_norm.weight", np.zeros((2, 2), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GgufModel(path)


def _described(path: Path, add: Add) -> Path:
    """Returns a directory with the description of such a file."""
    with _made(path / "some.gguf", add) as file:
        file.write_description(path)
    return path


_DECIMALS = st.integers(0, 100).map(lambda n: n / 100)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "temperature": st.integers(1, 300).map(lambda n: n / 100),
            "top_k": st.integers(0, 100),
            "top_p": _DECIMALS,
            "min_p": _DECIMALS,
        },
    )
)
def test_what_the_converter_writes_is_the_models_own_recommendation(tmp_path: Path, config: dict[str, Any]) -> None:
    """The gguf package reads generation_config.json and writes the keys, as convert_hf_to_gguf.py has it do."""
    model = tmp_path / "model"
    model.mkdir(exist_ok=True)
    (model / _FILE).write_text(json.dumps(config))
    metadata = gguf.Metadata.load(model_path=model)
    (tmp_path / _FILE).unlink(missing_ok=True)
    folder = _described(tmp_path, metadata.set_gguf_meta_model)
    assert load_default_sampling(folder) == default_sampling(config)
    assert (folder / _FILE).exists() == bool(config)
    if config:
        assert json.loads((folder / _FILE).read_text()) == config  # 0.7, not the nearest float32


def _penalty(last: int) -> Add:
    """Returns the keys of a repetition penalty over so many tokens."""
    return lambda writer: (writer.add_sampling_penalty_repeat(1.25), writer.add_sampling_penalty_last_n(last))


@pytest.mark.parametrize(
    ("add", "expected"),
    [
        (lambda w: w.add_sampling_temp(0.0), {"temperature": 0.0}),
        (lambda w: w.add_sampling_temp(-1.0), {"temperature": 0.0}),
        (lambda w: w.add_sampling_top_k(-1), {"top_k": 0}),
        (lambda w: w.add_sampling_top_p(1.5), {"top_p": 1.0}),
        (lambda w: w.add_sampling_min_p(-0.5), {"min_p": 0.0}),
        (lambda w: w.add_sampling_penalty_repeat(1.25), {"repetition_penalty": 1.25}),
        (_penalty(64), {"repetition_penalty": 1.25}),
        (_penalty(0), {}),
        (lambda w: w.add_string("general.sampling.temp", "0.3"), {"temperature": 0.3}),
        (lambda w: w.add_uint32("general.sampling.temp", 1), {"temperature": 1.0}),
        (lambda w: w.add_float32("general.sampling.top_k", 20.0), {"top_k": 20}),
        (lambda w: w.add_sampling_mirostat(2), {}),
    ],
)  # fmt: skip
def test_values_mean_what_they_mean_to_llama_cpp(add: Add, expected: dict[str, Any], tmp_path: Path) -> None:
    sampling = load_default_sampling(_described(tmp_path, add))
    assert sampling == default_sampling(expected)
    assert expected or sampling == DEFAULT_SAMPLING


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda w: w.add_sampling_temp(float("nan")), "'temp': expected a finite number; found nan"),
        (lambda w: w.add_sampling_temp(float("inf")), "'temp': expected a finite number; found inf"),
        (lambda w: w.add_string("general.sampling.top_p", "most"), "'top_p': expected a finite number; found 'most'"),
        (lambda w: w.add_bool("general.sampling.top_k", True), "'top_k': expected a finite number; found True"),
        (lambda w: w.add_array("general.sampling.min_p", [0.5]), "'min_p': expected a finite number"),
        (lambda w: w.add_sampling_penalty_repeat(0.0), "'penalty_repeat': expected a finite number above 0"),
    ],
)
def test_values_that_are_no_numbers_are_refused_by_name(add: Add, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"metadata general\.sampling\.\*: field {message}"):
        _made(tmp_path / "some.gguf", add)
