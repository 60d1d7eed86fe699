"""Renamed modules and keys, and fused projections."""

import numpy as np
import pytest

from lang_core import MappingWeights, Module, Parameter, TensorSpec, WeightSource
from transformer_core.checkpoints import (
    ComposedWeights,
    ExpertKeys,
    FusedKeys,
    RenamedKeys,
    RenamedModules,
    first_of,
)
from transformer_core.layers._weights_testing import RandomWeights

NOTHING = RandomWeights(Module())
RENAMED = RenamedKeys({"after": "post", "before": "after"})


def test_a_module_is_stored_under_another_name():
    for name, stored in (("layers.2.after.weight", "layers.2.post.weight"), ("before.bias", "after.bias")):
        recipe = RENAMED(name, (3,), NOTHING)
        assert recipe is not None
        assert recipe.stored() == {stored: (3,)}
    assert RENAMED("layers.2.after.norm.weight", (3,), NOTHING) is None


def test_the_first_recipe_counts():
    both = first_of(FusedKeys({"mlp.both": [("after", 3), ("up", 3)]}), RENAMED)
    fused, renamed = both("mlp.after.weight", (3, 5), NOTHING), both("attn.after.weight", (3, 5), NOTHING)
    assert fused is not None
    assert renamed is not None
    assert fused.stored() == {"mlp.both.weight": (6, 5)}
    assert renamed.stored() == {"attn.post.weight": (3, 5)}
    assert both("attn.o.weight", (3, 5), NOTHING) is None


FUSED = FusedKeys({"attn.qkv": [("q", 4), ("k", 2), ("v", 2)], "mlp.both": [("gate", 3), ("up", 3)]})


class Part(Module):
    def __init__(self) -> None:
        self.weight = Parameter((8, 5))
        self.bias = Parameter((8,))


class Stored(Module):
    def __init__(self) -> None:
        self.qkv = Part()


class Layer(Module):
    def __init__(self) -> None:
        self.attn = Stored()


SOURCE = RandomWeights(Layer())


def test_parts_lie_one_below_the_other():
    whole = SOURCE.read("attn.qkv.weight")
    for name, start, stop in (("q", 0, 4), ("k", 4, 6), ("v", 6, 8)):
        recipe = FUSED(f"attn.{name}.weight", (stop - start, 5), SOURCE)
        assert recipe is not None
        assert recipe.stored() == {"attn.qkv.weight": (8, 5)}
        np.testing.assert_array_equal(recipe.rows(SOURCE, 0, stop - start), whole[start:stop])
        np.testing.assert_array_equal(recipe.rows(SOURCE, 1, 2), whole[start + 1 : start + 2])


def test_biases_and_prefixes():
    bias = FUSED("attn.v.bias", (2,), SOURCE)
    assert bias is not None
    np.testing.assert_array_equal(bias.rows(SOURCE, 0, 2), SOURCE.read("attn.qkv.bias")[6:])
    deep = FUSED("model.layers.3.mlp.up.weight", (3, 5), SOURCE)
    assert deep is not None
    assert deep.stored() == {"model.layers.3.mlp.both.weight": (6, 5)}


def test_others_are_stored_as_they_are():
    assert FUSED("model.layers.3.attn.o.weight", (5, 8), SOURCE) is None
    assert FUSED("weight", (5, 8), SOURCE) is None


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


@pytest.mark.parametrize("shape", [(4,), (1, 4)])
def test_a_correction_may_stand_elsewhere_and_be_one_row(shape: tuple[int, ...]):
    stored = np.arange(4, dtype=np.float32).reshape(shape)
    source = MappingWeights({"layers.1.moe.statics.bias": stored})
    keys = ExpertKeys(layer="moe", correction="statics.bias")
    recipe = keys("layers.1.mlp.gate.e_score_correction_bias", (4,), source)
    assert recipe is not None
    assert recipe.stored() == {"layers.1.moe.statics.bias": shape}
    np.testing.assert_array_equal(recipe.rows(source, 1, 3), [1.0, 2.0])
    router = keys("layers.1.mlp.gate.weight", (4, 5), source)
    assert router is not None
    assert router.stored() == {"layers.1.moe.gate.weight": (4, 5)}
