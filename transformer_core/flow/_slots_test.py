"""Names of caches, and caches that a flow refuses."""

from typing import Any

import pytest

from lang_core import ConfigError, Module, OpError
from transformer_core.flow import BuildContext, CompileProfile, Memory, ModelFlow
from transformer_core.layers._attention import Attention
from transformer_core.layers._attention_config import AttentionConfig
from transformer_core.layers._cache import CacheLayout
from transformer_core.layers._rope_config import RopeConfig

ROPE = RopeConfig(rotated=4, trained_length=64)


def test_names_of_caches_are_as_long_as_they_must_be():
    def keeping(build: BuildContext) -> Attention:
        return Attention(AttentionConfig(8, 2, 1, 4))

    two = ModelFlow("two").stage("a", keeping).stage("b", keeping)
    recipe = ModelFlow("m").input("x", ("B", "T", 8)).rope_tables(ROPE)
    profile = CompileProfile.preset("decode", max_sequence=4)
    one = ModelFlow("one").stage("a", keeping)

    def keys(recipe: ModelFlow) -> list[str]:
        return [argument.name for argument in recipe.build(profile).arguments()][2::2]

    assert keys(recipe.repeat_layers(2, two)) == [f"layers.{i}.{n}.key_cache" for i in range(2) for n in "ab"]
    stacks = recipe.repeat_layers(1, one, name="encoder.layers").repeat_layers(1, one, name="decoder.layers")
    assert keys(stacks) == ["encoder.layers.0.key_cache", "decoder.layers.0.key_cache"]
    assert keys(recipe.include("x", one)) == ["x.a.key_cache"]


class _Odd(Module):
    """Keeps two tensors of these names, and is never run."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
        from_keys = Attention(AttentionConfig(8, 2, 1, 4)).cache_layout(batch, capacity)
        return CacheLayout(from_keys.make, dict(zip(self._names, from_keys.specs.values(), strict=True)))

    def forward(self, ctx: Any, x: Any) -> Any:
        return x


def test_caches_that_cannot_be_bound_and_caches_that_nobody_writes():
    recipe = ModelFlow("m").input("x", ("B", "T", 8)).rope_tables(ROPE)
    bound = CompileProfile(name="bound", sequence=2, memory=Memory.BINDINGS)
    odd = recipe.stage("odd", lambda build: _Odd("sums", "counts"))
    with pytest.raises(
        ConfigError, match="memory: the cache of 'odd' has a part 'sums', which is neither keys nor val"
    ):
        odd.build(bound).arguments()
    idle = recipe.stage("idle", lambda build: _Odd("key_cache", "value_cache"))
    with pytest.raises(OpError, match="flow 'm': idle has a cache, and no stage has run it"):
        idle.build(CompileProfile.preset("decode", max_sequence=4)).trace()
    with pytest.raises(ConfigError, match=r"memory bindings: no \.rope_tables\(\.\.\) takes cos, sin and mask"):
        ModelFlow("m").input("x", (1,)).build(bound).arguments()
