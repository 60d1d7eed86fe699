import numpy as np

from lang_core import Module, Parameter
from transformer_core._weights_testing import RandomWeights
from transformer_core.checkpoints._fused_keys import FusedKeys

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
