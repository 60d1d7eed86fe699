from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError, EagerExecutionContext, OpError, TensorSpec
from transformer_core.flow import BuildContext, CompileProfile, FlowModel, Memory, ModelFlow, Rows, sequence, when
from transformer_core.layers._feed_forward import FeedForward, SwiGLU
from transformer_core.layers._linear import Linear
from transformer_core.layers._norm import LayerNorm, RMSNorm
from transformer_core.layers._rope_config import RopeConfig
from transformer_core.layers._weights_testing import RandomWeights, context_of

PROFILE = CompileProfile.preset("training", sequence=5)
IDS = np.array([[3, 1, 4, 1, 5]], np.int32)


def _norm(build: BuildContext) -> RMSNorm:
    return RMSNorm(build.size, dtype=build.dtype)


LAYER = (
    ModelFlow("layer")
    .store_residual()
    .stage("norm", _norm)
    .stage("mlp", lambda build: SwiGLU(build.size, 12, dtype=build.dtype))
    .add_residual()
)
DECODER = ModelFlow("decoder").token_embed(11, 8).repeat_layers(2, LAYER)
LM = (
    ModelFlow("lm")
    .input("token_ids", ("B", "T"), "i32")
    .include("model", DECODER)
    .final_norm(name="model.norm")
    .lm_head()
)


def _paths(recipe: ModelFlow, profile: CompileProfile = PROFILE) -> list[str]:
    return [path for path, _ in recipe.build(profile).named_parameters()]


def _logits(model: FlowModel) -> np.ndarray:
    return model(context_of(model), IDS)["logits"].numpy()


def test_names_of_stages_are_places_in_the_tree():
    assert _paths(LM) == [
        "model.embed_tokens.weight",
        *(
            f"model.layers.{index}.{name}.weight"
            for index in range(2)
            for name in ("norm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
        ),
        "model.norm.weight",
        "lm_head.weight",
    ]
    assert LM.names() == (
        *("token_ids", "model", "model.embed_tokens", "model.layers", "model.layers.norm", "model.layers.mlp"),
        *("model.norm", "lm_head"),
    )


def test_a_recipe_never_changes():
    before = LM.stages
    LM.lm_head(name="other")
    LM.patch("model.norm", _norm)
    LM.without("model.layers")
    assert LM.stages is before
    first, second = LM.build(PROFILE), LM.build(PROFILE)
    np.testing.assert_array_equal(_logits(first), _logits(second))


def test_flat_and_included_recipes_are_the_same_model():
    flat = (
        ModelFlow("flat")
        .input("token_ids", ("B", "T"), "i32")
        .token_embed(11, 8, name="model.embed_tokens")
        .repeat_layers(2, LAYER, name="model.layers")
        .final_norm(name="model.norm")
        .lm_head()
    )
    np.testing.assert_array_equal(_logits(flat.build(PROFILE)), _logits(LM.build(PROFILE)))


def test_sequence_and_then_join_recipes():
    head = ModelFlow("head").final_norm(name="model.norm").lm_head()
    joined = sequence(
        ModelFlow("in").input("token_ids", ("B", "T"), "i32"), ModelFlow("m").include("model", DECODER), head
    )
    assert _paths(joined) == _paths(LM)
    np.testing.assert_array_equal(_logits(joined.build(PROFILE)), _logits(LM.build(PROFILE)))


def test_when_is_decided_by_the_profile_when_the_model_is_built():
    def norm_of(kind: Any) -> ModelFlow:
        return ModelFlow("norm").stage("norm", lambda build: kind(build.size))

    recipe = ModelFlow("m").input("token_ids", ("B", "T"), "i32").token_embed(11, 8)
    recipe = recipe.when(lambda profile: profile.rows is Rows.LAST, norm_of(LayerNorm), norm_of(RMSNorm))
    recipe = recipe.then(when(True, ModelFlow("x").stage("yes", _norm)), when(False, ModelFlow("x").stage("no", _norm)))
    last = CompileProfile.preset("training", sequence=5, rows="last")
    assert _paths(recipe) == ["embed_tokens.weight", "norm.weight", "yes.weight"]
    assert _paths(recipe, last) == ["embed_tokens.weight", "norm.weight", "norm.bias", "yes.weight"]
    assert recipe.names() == ("token_ids", "embed_tokens", "norm", "yes", "no")
    condition: Any = lambda profile: 1  # noqa: E731
    with pytest.raises(ConfigError, match="when: expected a condition that is True or False; found 1"):
        recipe.when(condition, LAYER).build(PROFILE)


def test_patch_replaces_a_stage_of_every_layer():
    patched = LM.patch("model.layers.mlp", lambda build: FeedForward(build.size, 7, dtype=build.dtype))
    assert "model.layers.1.mlp.up_proj.bias" in _paths(patched)
    assert not any("gate_proj" in path for path in _paths(patched))
    assert patched.names() == LM.names()
    assert _logits(patched.build(PROFILE)).shape == (1, 5, 11)


def test_patch_wraps_what_makes_a_module():
    def second_only(make: Any) -> Any:
        return lambda build: FeedForward(build.size, 7) if build.index == 1 else make(build)

    paths = _paths(LM.patch("mlp", wrap=second_only))
    assert "model.layers.0.mlp.gate_proj.weight" in paths
    assert "model.layers.1.mlp.gate_proj.weight" not in paths


def test_patch_puts_a_recipe_in_place_of_a_stage_or_of_the_layers():
    twice = ModelFlow("twice").stage("a", _norm).stage("b", _norm)
    assert "model.norm.b.weight" in _paths(LM.patch("model.norm", twice))
    layers = _paths(LM.patch("layers", twice))
    assert [path for path in layers if "layers.1" in path] == ["model.layers.1.a.weight", "model.layers.1.b.weight"]
    makes = _paths(LM.patch("layers", lambda build: SwiGLU(build.size, 6 + build.index)))
    assert "model.layers.1.up_proj.weight" in makes


def test_without_takes_a_stage_away():
    headless = LM.without("lm_head").result("hidden").build(PROFILE)
    assert list(headless.trace().results.items()) == [("hidden", TensorSpec((1, 5, 8), "f32"))]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "model.nrom",
            r"flow 'lm': stage 'model.nrom' not found; did you mean 'model.norm'.*available: token_ids, model, ",
        ),
        ("lm_haed", "stage 'lm_haed' not found; did you mean 'lm_head'"),
        ("norm", r"flow 'lm': 'norm' may be model\.layers\.norm or model\.norm: give the full name"),
        ("lm_head", "patch 'lm_head': the stage is no single module: patch it with a recipe"),
        ("model.embed_tokens", "the stage is no single module"),
    ],
)
def test_patch_of_what_cannot_be_patched(name: str, message: str):
    with pytest.raises(ConfigError, match=message):
        LM.patch(name, _norm)


def test_patch_wants_one_of_two():
    with pytest.raises(ConfigError, match="patch 'norm': expected either a replacement or wrap="):
        LM.patch("norm")
    with pytest.raises(ConfigError, match="patch 'layers': the stage is no single module"):
        LM.patch("layers", wrap=lambda make: make)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (LM.stage("lm_head", _norm), "stage 'lm_head': the name is taken by another stage"),
        (
            LM.stage("lm_head.norm", _norm),
            "stage 'lm_head.norm': 'lm_head' is a VocabularyLinear, which takes no further stages",
        ),
        (LM.include("model.layers", LAYER), "stage 'model.layers': the name is taken by another stage"),
        (LM.include("model", LAYER), "stage 'model': the name is taken by another stage"),
        (LM.stage("path", _norm), "stage 'path': 'path' cannot be part of a path"),
        (LM.stage("entry_point", _norm), "'entry_point' cannot be part of a path"),
        (LM.stage("weights", _norm), "'weights' cannot be part of a path"),
        (LM.stage("a..b", _norm), "stage 'a..b': '' cannot be part of a path"),
        (LM.stage("_a", _norm), "'_a' cannot be part of a path"),
        (LM.repeat_layers(-1, LAYER), "stage 'layers': expected a number of layers, 0 or more; found -1"),
        (LM.input("token_ids", ("B", 3), "i32"), "input 'token_ids': two inputs of different shapes"),
        (ModelFlow("m").stage("norm", _norm), "the model's size is not known"),
        (ModelFlow("m").stage("norm", lambda build: RMSNorm(3)), "flow 'm': no stage is an input"),
        (ModelFlow("m").input("x", ("T",)).lm_head(), "the model's size is not known"),
        (
            LM.lm_head(tied=True, vocabulary=9, name="b"),
            "stage 'b': a tied head is the embedding: it has no other size",
        ),
    ],
)
def test_recipes_that_contradict_themselves(recipe: ModelFlow, message: str):
    with pytest.raises(ConfigError, match=message):
        recipe.build(PROFILE)


def test_makers_make_modules():
    module: Any = RMSNorm(8)
    with pytest.raises(
        ConfigError, match=r"stage 'x': expected a function that makes a module.*found a RMSNorm: a modu"
    ):
        LM.stage("x", module).build(PROFILE)
    maker: Any = lambda build: 3  # noqa: E731
    with pytest.raises(ConfigError, match="stage 'x': expected a module; its function made a int"):
        LM.stage("x", maker).build(PROFILE)
    with pytest.raises(ConfigError, match="input 'x': unknown dtype 'f33'"):
        LM.input("x", (1,), "f33")
    with pytest.raises(ConfigError, match="stage 'layers': a recipe takes no streams="):
        LM.repeat_layers(2, LAYER, streams=["a"])


def test_inputs_are_held_to_their_letters():
    recipe = (
        ModelFlow("m").input("x", ("B", "T", 4)).input("y", TensorSpec((1, 2), "f32")).input("z", ("B", "T"), "i32")
    )
    model = recipe.build(CompileProfile.preset("training", sequence=3, dtype="bf16"))
    assert [repr(argument.spec) for argument in model.arguments()] == ["bf16[1,3,4]", "f32[1,2]", "i32[1,3]"]
    ctx, bf16 = EagerExecutionContext(), model.profile.dtype.numpy
    x, y, z = np.zeros((2, 7, 4), bf16), np.zeros((1, 2), np.float32), np.zeros((2, 7), np.int32)
    assert model(ctx, x, y, z)["output"].shape == (2, 7)  # not the profile's sizes
    with pytest.raises(OpError, match=r"input 'z': expected i32\[B,T\] with B = 2, T = 7; found i32\[2,6\]"):
        model(ctx, x, y, z[:, :6])
    with pytest.raises(OpError, match=r"input 'x': expected bf16\[B,T,4\]; found f32\[2,7,4\]"):
        model(ctx, x.astype(np.float32), y, z)
    with pytest.raises(OpError, match=r"input 'y': expected f32\[1,2\] with .*; found f32\[2,1\]"):
        model(ctx, x, y.reshape(2, 1), z)
    with pytest.raises(OpError, match=r"flow 'm': expected 3 tensors \(x, y, z\); found 2"):
        model(ctx, x, y)
    with pytest.raises(OpError, match="input 'q': axis 'Q' has no size: the letters of a profile are B, T, S"):
        ModelFlow("m").input("q", ("Q",)).build(PROFILE).arguments()


def test_a_recipe_must_begin_with_an_input():
    recipe = ModelFlow("m").custom("twice", lambda flow, x: x).input("x", (2,))
    with pytest.raises(OpError, match=r"stage 'twice' has no value to take: begin the recipe with \.input"):
        recipe.build(PROFILE).trace()


def test_a_head_takes_what_is_as_wide_as_the_embedding():
    narrow = LM.patch("model.norm", lambda build: Linear(build.size, 5))
    with pytest.raises(OpError, match=r"stage 'lm_head': expected \[\.\., 8\]; found f32\[1,5,5\]"):
        narrow.build(PROFILE).trace()
    wide = LM.without("lm_head").lm_head(vocabulary=13, bias=True, name="head").build(PROFILE)
    assert wide.trace().results["logits"].shape == (1, 5, 13)
    assert [path for path, _ in wide.named_parameters()][-2:] == ["head.weight", "head.bias"]


def test_learned_positions_are_added_and_must_be_known():
    rope = RopeConfig(rotated=4, trained_length=16)
    recipe = ModelFlow("m").input("ids", ("B", "T"), "i32").rope_tables(rope).token_embed(11, 8).position_embed(16)
    model = recipe.build(PROFILE)
    weights = RandomWeights(model)
    actual = model(context_of(model), IDS)["output"].numpy()
    words, places = (weights.read(f"embed_{name}.weight") for name in ("tokens", "positions"))
    np.testing.assert_array_equal(actual, words[IDS] + places[:5])
    bound = CompileProfile(name="m", sequence=2, memory=Memory.BINDINGS)
    with pytest.raises(
        ConfigError, match="stage 'embed_positions': learned positions need memory none, taps or caches"
    ):
        recipe.build(bound)


def test_embeddings_are_scaled_and_the_final_norm_is_tagged():
    begin = ModelFlow("m").input("ids", ("B", "T"), "i32")
    seen: dict[str, np.ndarray] = {}
    for scale in (1.0, 3.0):
        model = begin.token_embed(11, 8, scale=scale).side_output("embedded").final_norm(eps=0.5).build(PROFILE)
        weights = RandomWeights(model)
        ctx = EagerExecutionContext(weights, tag_sink=lambda name, x: seen.update({name: x.numpy()}))
        results = model(ctx, IDS)
        embedded = scale * weights.read("embed_tokens.weight")[IDS]
        np.testing.assert_array_equal(results["embedded"].numpy(), embedded)
        normed = embedded / np.sqrt((embedded**2).mean(-1, keepdims=True) + 0.5) * weights.read("norm.weight")
        np.testing.assert_allclose(seen["norm.output"], normed, rtol=1e-5)
        np.testing.assert_array_equal(seen["norm.output"], results["output"].numpy())
