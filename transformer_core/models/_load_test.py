import json

import pytest

from lang_core import Argument, ConfigError, DType, EntryPoint, TensorSpec, as_dtype
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import LLAMA_PRESETS, llama_config
from transformer_core.family import _registry
from transformer_core.flow import CompileProfile
from transformer_core.models import (
    DecoderConfig,
    DecoderLM,
    Model,
    ModelFamily,
    entry_points,
    load_model,
    register,
)


class OwnConfig:
    """Configuration of a model of another package."""

    architecture, layers, stored_layers = "OwnModel", 3, 3

    def __init__(self, layers: int = 3) -> None:
        self.layers = layers

    def first_layers(self, count: int) -> "OwnConfig":
        return OwnConfig(count)

    def facts(self) -> dict[str, int]:
        return {"layers": self.layers}


class OwnModel(Model[OwnConfig]):
    """Doubles what it gets."""

    ENTRY_POINTS = ("forward", "backward")

    def default_profile(self, batch: int, sequence: int | None, max_sequence: int | None) -> CompileProfile:
        return CompileProfile(name="forward", batch=batch, sequence=sequence or 5, max_sequence=max_sequence or 5)

    def entry_point(self, profile: CompileProfile) -> EntryPoint:
        spec = TensorSpec((profile.batch, profile.sequence), "f32")
        return EntryPoint(profile.name, lambda ctx, x: {"y": ctx.ops.add(x, x)}, (Argument("x", spec),))


def _read(fields: ConfigFields) -> OwnConfig:
    return OwnConfig(fields.integer("layers"))


def _make(config: OwnConfig, dtype: DType | str, num_layers: int | None) -> OwnModel:
    return OwnModel(config, dtype, num_layers)


@pytest.fixture
def own(monkeypatch, tmp_path):
    monkeypatch.setattr(_registry, "_FAMILIES", dict(_registry._FAMILIES))
    register(ModelFamily("OwnModel", "own", _read, _make))
    (tmp_path / "config.json").write_text('{"architectures": ["OwnModel"], "layers": 3}')
    return tmp_path


def test_a_decoder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(llama_config(LLAMA_PRESETS["tiny"], as_dtype("bf16"))))
    model = load_model(tmp_path, "bf16", 1)
    assert isinstance(model, DecoderLM)
    assert (model.config.layers, model.stored_layers, model.dtype.name) == (1, 2, "bf16")
    assert [point.name for point in entry_points(model)] == ["prefill", "decode"]


def test_a_model_of_another_kind(own):
    model = load_model(own, num_layers=2)
    assert isinstance(model, OwnModel)
    assert model.config.facts() == {"layers": 2}
    (point,) = entry_points(model, batch=2)
    assert (point.name, point.arguments[0].spec) == ("forward", TensorSpec((2, 5), "f32"))
    assert [point.name for point in entry_points(model, names=("backward", "forward"))] == ["backward", "forward"]


def test_entry_points_are_the_models_own(own):
    with pytest.raises(ConfigError, match="entry point 'backwards' is unknown; available: forward, backward; did you"):
        entry_points(load_model(own), names=("backwards",))
    with pytest.raises(ConfigError, match="num_layers: expected 1 to 3, the layers of the model; found 4"):
        load_model(own, num_layers=4)
    with pytest.raises(ConfigError, match=r"dtype: expected f32, .*; found i32"):
        load_model(own, "i32")


def test_what_is_no_decoder_is_no_decoders_configuration(own):
    with pytest.raises(ConfigError, match=r"config\.json: OwnModel is no decoder: take load_model"):
        DecoderConfig.from_hf({"architectures": ["OwnModel"], "layers": 3})


def test_what_is_registered_is_a_family(own):
    class Strange:
        architecture, model_type, read = "StrangeModel", "strange", staticmethod(_read)
        stored, layer_key, ignorable = None, "", ()

    register(Strange())
    (own / "config.json").write_text('{"architectures": ["StrangeModel"], "layers": 3}')
    with pytest.raises(ConfigError, match="StrangeModel is registered as a Strange, not a family"):
        load_model(own)
