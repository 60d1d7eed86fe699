import numpy as np
import pytest

from lang_core import MappingWeights, TensorSpec, WeightSource
from transformer_core.checkpoints import ComposedWeights, RenamedModules

KEYS = RenamedModules(
    {"tokens": "words", "layers.{}.norm": "layer.{}.LayerNorm", "head.bias": "cls.bias"}, above=("bert.",)
)


def names(*keys: str) -> WeightSource:
    return MappingWeights({key: np.zeros((2, 3), np.float32) for key in keys})


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("tokens.weight", "words.weight"),
        ("tokens.weight", "bert.words.weight"),
        ("layers.12.norm.bias", "layer.12.LayerNorm.bias"),
        ("layers.12.norm.bias", "bert.layer.12.LayerNorm.bias"),
        ("layers.3.norm.weight", "bert.layer.3.LayerNorm.gamma"),
        ("layers.3.norm.bias", "layer.3.LayerNorm.beta"),
        ("head.bias", "cls.bias"),
        ("other.0.weight", "other.0.weight"),
    ],
)
def test_names(name: str, stored: str) -> None:
    assert KEYS.key(name, names(stored)) == stored


def test_what_is_missing_is_named_as_the_checkpoint_would() -> None:
    assert KEYS.key("layers.1.norm.weight", names()) == "layer.1.LayerNorm.weight"


def test_as_weights() -> None:
    source = MappingWeights({"bert.layer.1.LayerNorm.gamma": np.array([1, 2, 3], np.float32)})
    weights = ComposedWeights(source, {"layers.1.norm.weight": TensorSpec((3,), "f32")}, KEYS)
    assert weights.read("layers.1.norm.weight").tolist() == [1, 2, 3]
    assert list(weights.keys()) == ["layers.1.norm.weight"]
