"""Random checkpoints of every family hold what transformers' checkpoints of it do, under the same keys."""

import json
from pathlib import Path

import numpy as np
import pytest

from lang_core import ConfigError, EagerExecutionContext, InputError, as_dtype
from tests.goldens.cases import CASES
from tests.goldens.weights import weight_shapes
from transformer_core.checkpoints import SafetensorsCheckpoint
from transformer_core.models import load_model, weights_of, write_random_model

F32 = as_dtype("f32")

# Checkpoints of these families are read in two forms, and transformers writes the other one than the one made here.
OTHER_FORM = {"bloom_4x", "gemma3_wrapped_4x", "gpt2", "openai_gpt", "ernie4_5_moe", "ernie4_5_moe_biases"}


def config_of(name: str, directory: Path, **changes: object) -> Path:
    path = directory / "config.json"
    path.write_text(json.dumps({**CASES[name].config, **changes}))
    return path


@pytest.mark.parametrize("name", CASES)
def test_the_keys_and_shapes_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    write_random_model(tmp_path / "model", config_of(name, tmp_path), F32)
    known = weight_shapes(CASES[name].config)
    with SafetensorsCheckpoint(tmp_path / "model") as written:
        shapes = {key: written.spec(key).shape for key in written.keys()}  # noqa: SIM118
        assert (shapes.items() <= known.items()) == (name not in OTHER_FORM)
        model = load_model(tmp_path / "model")
        weights = weights_of(model, written)
        assert all(weights.spec(path) == parameter.spec for path, parameter in model.named_parameters())


@pytest.mark.parametrize("name", ["mixtral", "gpt2"])
def test_a_random_model_runs(name: str, tmp_path: Path) -> None:
    write_random_model(tmp_path / "model", config_of(name, tmp_path), F32, seed=4, shards=2)
    assert (tmp_path / "model" / "config.json").read_text() == (tmp_path / "config.json").read_text()
    with SafetensorsCheckpoint(tmp_path / "model") as written:
        model = load_model(tmp_path / "model")
        ctx = EagerExecutionContext(weights_of(model, written))
        assert model(ctx, np.array([[1, 2, 3]], np.int32)).numpy().std() > 0


def test_the_configuration_may_have_any_name(tmp_path: Path) -> None:
    other = config_of("mixtral", tmp_path).rename(tmp_path / "my config.txt")
    write_random_model(tmp_path / "model", other, F32)
    assert (tmp_path / "model" / "config.json").read_text() == other.read_text()
    wrong = config_of("mixtral", tmp_path, hidden_size="wide").rename(tmp_path / "wrong.json")
    with pytest.raises(ConfigError, match=rf"^{wrong}: field 'hidden_size'"):
        write_random_model(tmp_path / "model", wrong, F32)


def test_what_has_no_random_weights(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"config\.json: field 'quantization_config': random weights are not quantised"
    ):
        write_random_model(
            tmp_path / "model", config_of("mixtral", tmp_path, quantization_config={"quant_method": "gptq"}), F32
        )
    with pytest.raises(InputError, match="random weights are bf16, f16, f32, not i32"):
        write_random_model(tmp_path / "model", config_of("mixtral", tmp_path), as_dtype("i32"))
    for absent in (tmp_path / "other.json", tmp_path / "absent" / "config.json", tmp_path):
        with pytest.raises(InputError, match=rf"{absent}: cannot be read: "):
            write_random_model(tmp_path / "model", absent, F32)
    assert not (tmp_path / "model").exists()
