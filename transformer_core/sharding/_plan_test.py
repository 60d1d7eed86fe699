"""Rules of layers on meshes: what is cut, what is replicated and said, what is refused."""

from collections.abc import Iterator

import pytest

from lang_core import (
    ENCODINGS,
    ConfigError,
    EntryPoint,
    GraphError,
    MeshShape,
    Module,
    Parameter,
    TensorSpec,
    f32,
)
from transformer_core import (
    Attention,
    AttentionConfig,
    Experts,
    FeedForward,
    GatedDeltaNet,
    LatentAttention,
    LatentAttentionConfig,
    Linear,
    Mamba2,
    Mamba2Sizes,
    MultiHeadAttention,
    ShortConv,
    SwiGLU,
    pack_weights,
)
from transformer_core.models import DecoderConfig, DecoderLM, entry_points
from transformer_core.sharding import (
    Cut,
    argument_axes,
    cache_axes,
    columns,
    cuts_of,
    fsdp_axes,
    parameter_axes,
    result_axes,
    sharding,
)

TP4, TP2 = MeshShape.parse("tp=4"), MeshShape.parse("tp=2")
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 20,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 64,
}


def decoder(**changes: object) -> DecoderLM:
    return DecoderLM(DecoderConfig.from_hf({**CONFIG, **changes}))


def cut_parts(module: Module, mesh: MeshShape = TP2) -> dict[str, tuple[str | None, ...]]:
    """Returns the axes of what is cut."""
    return {path: axes for path, axes in parameter_axes(module, mesh).items() if any(axes)}


def test_a_decoder_is_cut_by_heads_features_and_vocabulary() -> None:
    axes = parameter_axes(decoder(), TP2)
    layer = {path.removeprefix("model.layers.1."): cut for path, cut in axes.items() if "layers.1." in path}
    by_columns = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
    assert layer == {
        **{f"{name}.weight": ("tp", None) for name in by_columns},
        **{f"{name}.weight": (None, "tp") for name in ("self_attn.o_proj", "mlp.down_proj")},
        "input_layernorm.weight": (None,),
        "post_attention_layernorm.weight": (None,),
    }
    assert axes["model.embed_tokens.weight"] == axes["lm_head.weight"] == ("tp", None)
    assert axes["model.norm.weight"] == (None,)


def test_biases_and_gates_follow_their_columns_and_sinks_are_whole() -> None:
    attention = Attention(AttentionConfig(16, 4, 2, 6, qkv_bias=True, output_bias=True, gated=True, sinks=True))
    names = ("q_proj", "k_proj", "v_proj")
    assert cut_parts(attention) == {
        **{f"{name}.weight": ("tp", None) for name in names},
        **{f"{name}.bias": ("tp",) for name in names},
        "o_proj.weight": (None, "tp"),
    }
    assert attention.q_proj.weight.spec.shape == (48, 16)  # head after head, each query with its gate


def test_layers_of_every_kind() -> None:
    latent = LatentAttentionConfig(
        size=16, heads=4, plain_size=6, rotated_size=2, value_size=5, rank=8, scale=1.0, query_rank=7
    )
    row, column = (None, "tp"), ("tp", None)
    assert cut_parts(LatentAttention(latent)) == {
        "q_b_proj.weight": column,
        "kv_b_proj.weight": column,
        "o_proj.weight": row,
    }
    assert cut_parts(MultiHeadAttention(16, 4, output_bias=True))["v_proj.bias"] == ("tp",)
    assert cut_parts(FeedForward(16, 24)) == {
        "up_proj.weight": column,
        "up_proj.bias": ("tp",),
        "down_proj.weight": row,
    }


def test_experts_are_cut_by_their_number_and_their_features() -> None:
    axes = cut_parts(Experts(6, 16, 24, biased=True), MeshShape.parse("ep=3,tp=2"))
    assert axes == {
        "gate_proj": ("ep", "tp", None),
        "up_proj": ("ep", "tp", None),
        "down_proj": ("ep", None, "tp"),
        "gate_proj_bias": ("ep", "tp"),
        "up_proj_bias": ("ep", "tp"),
        "down_proj_bias": ("ep", None),
    }


def test_fewer_key_value_heads_than_devices_are_replicated_in_groups_and_said() -> None:
    result = sharding(decoder(), TP4)
    assert result.parameters["model.layers.0.self_attn.k_proj.weight"] == ("tp:2", None)
    assert result.parameters["model.layers.0.self_attn.q_proj.weight"] == ("tp", None)
    assert result.notes == (
        "4 parameters such as model.layers.0.self_attn.k_proj.weight have 2 key/value heads for tp=4: replicated in "
        "groups of 2 devices",
    )
    points = entry_points(decoder(), batch=2, sequence=8, max_sequence=16)
    assert cache_axes(points, TP4)["layers.0.key_cache"] == (None, "tp:2", None, None)
    assert cache_axes(points, TP2)["layers.0.key_cache"] == (None, "tp", None, None)


def test_one_key_value_head_is_whole_and_so_is_a_number_that_no_part_of_an_axis_is() -> None:
    single = sharding(decoder(num_key_value_heads=1), TP4)
    assert single.parameters["model.layers.0.self_attn.k_proj.weight"] == (None, None)
    assert "have 1 key/value heads, which tp=4 does not divide: replicated" in single.notes[0]
    three = sharding(Attention(AttentionConfig(16, 12, 3, 2)), MeshShape.parse("tp=12"))  # 2, 2 and 3
    assert three.parameters["k_proj.weight"] == (None, None)


def test_a_vocabulary_that_does_not_divide_is_replicated_and_said() -> None:
    result = sharding(decoder(vocab_size=21, tie_word_embeddings=True), TP2)
    assert result.parameters["model.embed_tokens.weight"] == (None, None)
    assert result.notes == (
        "model.embed_tokens.weight has 21 tokens of the vocabulary, which tp=2 does not divide: replicated",
    )


@pytest.mark.parametrize("name", ["q8_0", "q4_k"])
def test_packed_rows_are_cut_between_blocks(name: str) -> None:
    encoding = ENCODINGS[name]
    whole, odd = (SwiGLU(256, 2 * blocks * encoding.block) for blocks in (2, 1))
    for module in (whole, odd):
        pack_weights(module, encoding, f32)
    assert cut_parts(whole, TP4)["down_proj.weight"] == (None, "tp")
    result = sharding(odd, TP4)
    assert result.parameters["down_proj.weight"] == (None, None)
    assert result.parameters["up_proj.weight"] == ("tp", None)
    assert result.notes == (f"down_proj.weight has rows of 2 blocks of {name}, which tp=4 does not divide: replicated",)


@pytest.mark.parametrize(
    ("mesh", "message"),
    [
        (
            "tp=3",
            r"mesh tp=3: model.layers.0.self_attn.q_proj.weight has 4 query heads, which tp=3 does not divide; tp may "
            r"be 1, 2 or 4$",
        ),
        ("ep=2", r"mesh ep=2: ep=2 cuts nothing, for the model has no experts"),
    ],
)
def test_what_has_to_stay_whole_is_not_cut(mesh: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sharding(decoder(), MeshShape.parse(mesh))


def test_key_value_heads_neither_divide_nor_are_divided() -> None:
    attention = Attention(AttentionConfig(16, 12, 6, 2))
    with pytest.raises(ConfigError, match=r"k_proj.weight has 6 key/value heads, .*; tp may be 1, 2, 3, 6 or 12$"):
        sharding(attention, TP4)


def test_features_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"gate_proj.weight has 26 features, .*; tp may be 1, 2, 13 or 26$"):
        sharding(SwiGLU(16, 26), TP4)


def test_axes_of_size_1_are_axes() -> None:
    assert parameter_axes(SwiGLU(16, 26), MeshShape.parse("tp=1"))["up_proj.weight"] == ("tp", None)
    assert not any(map(any, parameter_axes(SwiGLU(16, 26), MeshShape.parse("dp=2")).values()))


def test_arguments_and_results_by_sequence() -> None:
    mesh, points = MeshShape.parse("tp=2,dp=2"), entry_points(decoder(), batch=2, sequence=8, max_sequence=16)
    axes = argument_axes(points[0], mesh, 2)
    assert (axes["token_ids"], axes["position"]) == (("dp", None), ())
    assert axes["layers.1.value_cache"] == ("dp", "tp", None, None)
    results = [("logits", TensorSpec((2, 20), "f32")), ("layers.1.value_cache", TensorSpec((2, 2, 16, 4), "f32"))]
    assert result_axes(results, points, mesh, 2) == {
        "logits": ("dp", None),
        "layers.1.value_cache": ("dp", "tp", None, None),
    }
    with pytest.raises(ConfigError, match=r"mesh dp=4: batch=2 sequences cannot be divided among dp=4; batch may be 4"):
        argument_axes(points[0], MeshShape.parse("dp=4"), 2)


def test_mixers_with_states_are_whole_and_that_is_said() -> None:
    sizes = Mamba2Sizes(heads=4, head_size=6, groups=1, state_size=5, taps=3)
    for mixer in (GatedDeltaNet(16, 2, 4, 6, 6, grouped=False), Mamba2(16, sizes), ShortConv(16, 3)):
        result = sharding(mixer, TP2)
        assert not any(map(any, result.parameters.values()))
        assert f"{len(result.parameters)} parameters such as" in result.notes[0]
        assert "have 1 block of states, which tp=2 does not divide: replicated" in result.notes[0]
        for name, axes in mixer.cache_layout(2, 9).axes.items():
            assert axes == ("dp", *[None] * (len(mixer.cache_layout(2, 9).specs[name].shape) - 1))


def test_a_delta_net_whose_projection_has_head_after_head_is_cut_by_key_heads() -> None:
    mixer = GatedDeltaNet(16, 2, 4, 6, 6)
    result = sharding(mixer, TP2)
    assert result.parameters == {
        "in_proj_qkvz.weight": ("tp", None),
        "in_proj_ba.weight": ("tp", None),
        "conv1d.weight": (None, None, None),
        "dt_bias": ("tp",),
        "A_log": ("tp",),
        "norm.weight": (None,),
        "out_proj.weight": (None, "tp"),
    }
    assert not result.notes
    assert mixer.cache_layout(2, 9).axes == {
        "conv_state": ("dp", None, "tp"),
        "delta_state": ("dp", "tp", None, None),
    }
    with pytest.raises(ConfigError, match=r"weight has 2 key heads, which tp=4 does not divide; tp may be 1 or 2"):
        sharding(mixer, MeshShape.parse("tp=4"))


def test_the_greatest_free_dimension_is_cut_while_training() -> None:
    specs = {"a": TensorSpec((6, 8), "f32"), "b": TensorSpec((6, 9), "f32"), "c": TensorSpec((5,), "f32")}
    mesh = MeshShape.parse("tp=2,fsdp=2")
    assert fsdp_axes(specs, mesh) == {"a": (None, "fsdp"), "b": ("fsdp", None), "c": (None,)}
    assert fsdp_axes(specs, mesh, {"a": (None, "tp")})["a"] == ("fsdp", "tp")
    assert fsdp_axes(specs, TP2, {"a": (None, "tp")})["a"] == (None, "tp")


class _Odd(Linear):
    pass


def test_a_family_says_how_its_own_layer_is_cut() -> None:
    @cuts_of(_Odd)
    def _odd(module: _Odd) -> Iterator[Cut]:
        yield from columns(module, 3, "thirds")

    class Above(Module):
        def __init__(self) -> None:
            self.inner = _Odd(4, 12)
            self.other = Parameter((3,))

    assert parameter_axes(Above(), MeshShape.parse("tp=3")) == {"inner.weight": ("tp", None), "other": (None,)}
    with pytest.raises(GraphError, match="_Odd has a rule of its cuts already"):
        cuts_of(_Odd)(_odd)


def test_entry_points_of_no_caches_have_no_axes() -> None:
    assert cache_axes((EntryPoint("f", lambda ctx: {}, ()),), TP2) == {}
