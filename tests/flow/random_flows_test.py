"""Whatever stages a recipe has, all lives of the model agree, and patches keep the names."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.flow._support import eager, inputs_of, lowered, random_weights, recorded
from transformer_core import Attention, AttentionConfig, FeedForward, GatedDeltaNet, RMSNorm, RopeConfig, SwiGLU
from transformer_core.flow import BuildContext, CompileProfile, FlowContext, FlowValue, Maker, ModelFlow

SIZE = 8


def _config(index: int) -> AttentionConfig:
    return AttentionConfig(SIZE, 4, 2, 4, window=3 if index else None)


MAKERS: dict[str, Maker] = {
    "norm": lambda build: RMSNorm(SIZE, dtype=build.dtype),
    "swiglu": lambda build: SwiGLU(SIZE, 5, dtype=build.dtype),
    "ff": lambda build: FeedForward(SIZE, 7 + build.index, dtype=build.dtype),
    "attention": lambda build: Attention(_config(build.index), dtype=build.dtype),
    "delta": lambda build: GatedDeltaNet(SIZE, 1, 2, 3, 4, dtype=build.dtype),
}
Node = tuple[str, Any]
_LEAVES = st.sampled_from([*MAKERS, "scale", "side", "store", "load", "keep"]).map(lambda kind: (kind, None))
_NODES = st.recursive(
    st.lists(_LEAVES, max_size=4),
    lambda inner: st.lists(
        st.one_of(
            _LEAVES,
            st.tuples(st.sampled_from(["residual", "include", "repeat", "when", "otherwise"]), inner),
        ),
        max_size=4,
    ),
    max_leaves=8,
)


def _scaled(flow: FlowContext, x: FlowValue) -> FlowValue:
    return flow.emit("mul", x, 0.75, spec=x.spec)


class _Writer:
    """Writes nodes into a recipe; names are numbered, so that no two are the same."""

    def __init__(self) -> None:
        self.count = 0

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}_{self.count}"

    def write(self, recipe: ModelFlow, nodes: list[Node], in_residual: bool = False) -> ModelFlow:
        for kind, inner in nodes:
            name = self.name(kind)
            if kind in MAKERS:
                recipe = recipe.stage(name, MAKERS[kind])
            elif kind == "scale":
                recipe = recipe.custom(name, _scaled)
            elif kind == "side":
                recipe = recipe.side_output(name, ("B", "T", SIZE))
            elif kind == "store":
                recipe = recipe.store_stream("a")
            elif kind == "load":
                recipe = recipe.load_stream("a")
            elif kind == "keep":
                recipe = recipe.store_stream(name).load_stream("a")
            else:
                recipe = self._inner(recipe, kind, name, inner, in_residual)
        return recipe

    def _inner(self, recipe: ModelFlow, kind: str, name: str, inner: Any, in_residual: bool) -> ModelFlow:
        if kind == "residual" and not in_residual:
            return self.write(recipe.store_residual(), inner, True).add_residual(0.5)
        part = self.write(ModelFlow(name), inner, in_residual)
        if kind == "repeat":
            return recipe.repeat_layers(2, part, name=name)
        if kind == "when":
            return recipe.when(lambda profile: profile.causal, part)
        if kind == "otherwise":
            return recipe.when(lambda profile: not profile.causal, ModelFlow("no").stage("no", _never), part)
        return recipe.include(name, part)


def _never(build: BuildContext) -> RMSNorm:
    raise AssertionError("the other side of a condition was built")


def _recipe(nodes: list[Node]) -> ModelFlow:
    begin = ModelFlow("m").input("x", ("B", "T", SIZE)).store_stream("a").rope_tables(RopeConfig(rotated=4), (None, 3))
    return _Writer().write(begin, nodes).custom("end", _scaled)


@settings(max_examples=100, deadline=None)
@given(_NODES, st.sampled_from(["none", "taps", "caches", "bindings"]))
def test_every_flow_is_one_model_in_all_its_lives(nodes: list[Node], memory: Any):
    profile = CompileProfile(name="run", batch=2, sequence=3, max_sequence=5, memory=memory)
    model = _recipe(nodes).build(profile)
    point, weights = model.entry_point(), random_weights(model)
    inputs = inputs_of(point)
    results = eager(point, weights, inputs)
    assert {name: array.shape for name, array in results.items()} == {
        name: spec.shape for name, spec in model.trace().results.items()
    }
    again = recorded(point, weights, inputs)
    assert list(again) == list(results)
    for name, array in results.items():
        np.testing.assert_allclose(again[name], array, rtol=2e-4, atol=2e-4)
    assert lowered([point], streaming=True) == lowered([point])


@settings(max_examples=100, deadline=None)
@given(_NODES, st.data())
def test_a_stage_patched_by_itself_is_itself(nodes: list[Node], data: st.DataObject):
    recipe = _recipe(nodes)
    names = [name for name in recipe.names() if name.rpartition(".")[2].split("_")[0] in MAKERS]
    profile = CompileProfile.preset("training", sequence=3)
    paths = [path for path, _ in recipe.build(profile).named_parameters()]
    if not names:
        return
    name = data.draw(st.sampled_from(names))
    same = recipe.patch(name, wrap=lambda make: make)
    assert same.names() == recipe.names()
    assert [path for path, _ in same.build(profile).named_parameters()] == paths
    gone = recipe.without(name)
    assert set(gone.names()) == set(recipe.names()) - {name}
    left = {path for path, _ in gone.build(profile).named_parameters()}
    assert left < set(paths)
