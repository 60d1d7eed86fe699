from lang_core import Module
from transformer_core._weights_testing import RandomWeights
from transformer_core.checkpoints._fused_keys import FusedKeys
from transformer_core.checkpoints._renamed_keys import RenamedKeys, first_of

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
