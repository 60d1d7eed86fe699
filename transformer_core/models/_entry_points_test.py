from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lang_core import (
    ConfigError,
    DType,
    EagerExecutionContext,
    EntryPoint,
    Module,
    OpError,
    TensorSpec,
    encoding_named,
    f32,
)
from transformer_core._packing import pack_weights
from transformer_core.family._config import DecoderConfig, family_of
from transformer_core.family._decoder import DecoderLM
from transformer_core.family._model import entry_points
from transformer_core.flow import Block
from transformer_core.layers._rope_config import RopeConfig
from transformer_core.layers._rope_scaling import DynamicScaling, LongropeScaling
from transformer_core.layers._weights_testing import context_of
from transformer_core.models._tiny_testing import LLAMA, VARIANTS, changed

IDS = np.random.default_rng(5).integers(0, 31, (2, 17)).astype(np.int32)


class Runner:
    """Runs entry points with the caches carried along, in NumPy."""

    def __init__(self, model: DecoderLM, ctx: EagerExecutionContext, capacity: int, fill: float = 0.0) -> None:
        self.ctx, self.capacity, self.model, self.length = ctx, capacity, model, 0
        specs = [argument.spec for argument in self.entry("decode", 1).arguments if argument.alias_result]
        self.caches = [np.full(spec.shape, fill, spec.dtype.numpy) for spec in specs]

    def entry(self, name: str, tokens: int) -> EntryPoint:
        sizes: Any = {"batch": 2, "sequence": tokens, "max_sequence": self.capacity}
        return entry_points(self.model, names=[name], **sizes)[0]

    def run(self, name: str, tokens: np.ndarray, *scalars: int) -> np.ndarray:
        entry = self.entry(name, tokens.shape[1])
        if any(argument.name == "length" for argument in entry.arguments):
            scalars = *scalars, self.length
        results = entry(self.ctx, tokens, *map(np.int32, scalars), *self.caches)  # pyright: ignore[reportArgumentType]
        logits, *caches, next_ids = (tensor.numpy() for tensor in results.values())
        np.testing.assert_array_equal(next_ids, logits.argmax(-1))
        self.caches = caches
        return logits


@pytest.fixture(params=VARIANTS)
def model(request) -> DecoderLM:
    return DecoderLM(changed(**VARIANTS[request.param]))


def forward(model: DecoderLM) -> np.ndarray:
    return model(context_of(model), IDS).numpy()  # [B, 17, V]


def close(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_one_prefill_gives_what_forward_gives_of_its_last_row(model):
    close(Runner(model, context_of(model), 20).run("prefill", IDS, 0, 16), forward(model)[:, 16])


@pytest.mark.parametrize("chunk", [1, 3, 5])
def test_chunks_with_a_padded_last_one_give_what_one_prefill_gives(model, chunk):
    expected = forward(model)
    runner = Runner(model, context_of(model), 20)
    for begin in range(0, 17, chunk):
        tokens = IDS[:, begin : begin + chunk]
        last = tokens.shape[1] - 1
        padded = np.pad(tokens, ((0, 0), (0, chunk - 1 - last)), constant_values=30)
        close(runner.run("prefill", padded, begin, last), expected[:, begin + last])


def test_decode_after_a_padded_prefill_gives_what_forward_gives(model):
    expected = forward(model)
    runner = Runner(model, context_of(model), 17)
    padded = np.pad(IDS[:, :6], ((0, 0), (0, 5)), constant_values=30)
    close(runner.run("prefill", padded, 0, 5), expected[:, 5])
    for position in range(6, 17):  # to the last place of the cache; padding's entries are overwritten on the way
        close(runner.run("decode", IDS[:, position : position + 1], position), expected[:, position])


def test_a_last_chunk_at_the_end_of_the_cache_repeats_tokens(model):
    runner = Runner(model, context_of(model), 17)
    for begin in (0, 7):
        runner.run("prefill", IDS[:, begin : begin + 7], begin, 6)
    close(runner.run("prefill", IDS[:, 10:], 10, 6), forward(model)[:, 16])


def test_what_is_in_the_caches_before_does_not_matter(model):
    ctx = context_of(model)
    clean, dirty = Runner(model, ctx, 20), Runner(model, ctx, 20, fill=1e3)
    np.testing.assert_array_equal(clean.run("prefill", IDS[:, :9], 0, 8), dirty.run("prefill", IDS[:, :9], 0, 8))
    np.testing.assert_array_equal(clean.run("decode", IDS[:, 9:10], 9), dirty.run("decode", IDS[:, 9:10], 9))


def test_padding_does_not_count_as_length():
    """A length-dependent RoPE takes its length from ``last``, not from the padded chunk."""
    model = DecoderLM(changed(rope=RopeConfig(rotated=6, trained_length=5, scaling=DynamicScaling(4.0, 5))))
    ctx = context_of(model)
    exact = Runner(model, ctx, 20).run("prefill", IDS[:, :7], 0, 6)
    padded = np.pad(IDS[:, :7], ((0, 0), (0, 4)))
    close(Runner(model, ctx, 20).run("prefill", padded, 0, 6), exact)
    close(exact, model(ctx, IDS[:, :7]).numpy()[:, 6])


@pytest.mark.parametrize("scaling", [DynamicScaling(4.0, 5), LongropeScaling((1.0,) * 3, (1.5, 3.0, 7.0), 5, 1.25)])
def test_pieces_of_a_sequence_have_the_rope_of_its_length(scaling):
    model = DecoderLM(changed(rope=RopeConfig(rotated=6, trained_length=17, scaling=scaling)))
    ctx = context_of(model)
    whole = model(ctx, IDS).numpy()
    runner = Runner(model, ctx, 17)
    runner.length = 17
    close(runner.run("prefill", IDS[:, :4], 0, 3), whole[:, 3])
    close(runner.run("prefill", IDS[:, 4:9], 4, 4), whole[:, 8])
    close(runner.run("decode", IDS[:, 9:10], 9), whole[:, 9])
    close(runner.run("verify", IDS[:, 10:], 10, 6), whole[:, 10:])
    short = Runner(model, ctx, 17)
    assert np.abs(short.run("prefill", IDS[:, :4], 0, 3) - whole[:, 3]).max() > 1e-2, "a shorter sequence has another"


def test_the_length_is_an_argument_where_frequencies_change():
    model = DecoderLM(changed(rope=RopeConfig(rotated=6, trained_length=5, scaling=DynamicScaling(4.0, 5))))
    sizes: Any = {"sequence": 4, "verify_tokens": 2}

    def takers(capacity: int, **options: Any) -> list[str]:
        points = entry_points(model, max_sequence=capacity, **sizes, **options)
        return [point.name for point in points if any(argument.name == "length" for argument in point.arguments)]

    names = ("forward", "prefill", "decode", "verify")
    assert takers(6, names=names) == ["prefill", "decode", "verify"]
    assert takers(5, names=names) == []
    assert takers(17, slots=3) == []  # rows share prefixes: frequencies are those of the capacity
    (prefill,) = entry_points(model, names=["prefill"], max_sequence=6, sequence=4, batch=3, positions="per_row")
    assert [(a.name, a.spec.shape) for a in prefill.arguments[1:4]] == [
        ("position", (3,)),
        ("last", (3,)),
        ("length", (3,)),
    ]


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_short_dtypes_are_near_f32(dtype):
    short, wide = DecoderLM(LLAMA, dtype), DecoderLM(LLAMA)
    expected = wide(context_of(wide), IDS)
    logits = short(context_of(wide), IDS)  # the same weights, rounded when they are read
    assert logits.dtype.name == "f32"
    error = np.linalg.norm(logits.numpy() - expected.numpy()) / np.linalg.norm(expected.numpy())
    assert 1e-5 < error < (3e-2 if dtype == "bf16" else 1e-2)
    assert Runner(short, context_of(wide), 20).run("prefill", IDS, 0, 16).dtype == np.float32


def test_f64_gives_f32_logits():
    model, wide = DecoderLM(LLAMA, "f64"), DecoderLM(LLAMA)
    close(model(context_of(wide), IDS).numpy(), forward(wide))


def test_signatures():
    model = DecoderLM(LLAMA, "bf16")
    names = ["forward", "prefill", "decode"]
    fwd, prefill, decode = entry_points(model, names=names, batch=3, sequence=5, max_sequence=9)
    assert [e.name for e in (fwd, prefill, decode)] == names
    assert [(a.name, a.spec) for a in fwd.arguments] == [("token_ids", TensorSpec((3, 5), "i32"))]
    assert [a.name for a in prefill.arguments] == [
        "token_ids",
        "position",
        "last",
        "layers.0.key_cache",
        "layers.0.value_cache",
        "layers.1.key_cache",
        "layers.1.value_cache",
    ]
    assert [a.kind for a in prefill.arguments] == ["tensor", "scalar", "scalar", *["tensor"] * 4]
    assert [a.alias_result for a in prefill.arguments[3:]] == [a.name for a in prefill.arguments[3:]]
    assert {a.spec for a in prefill.arguments[3:]} == {TensorSpec((3, 2, 9, 6), "bf16")}
    assert [a.name for a in decode.arguments] == [a.name for a in prefill.arguments if a.name != "last"]
    assert decode.arguments[0].spec.shape == (3, 1)


def test_a_latent_cache_holds_the_rotated_and_the_compressed_part():
    model = DecoderLM(changed(**VARIANTS["latent"]))
    decode = entry_points(model, names=["decode"], sequence=1, max_sequence=9)[0]
    assert [a.spec for a in decode.arguments[2:4]] == [TensorSpec((1, 1, 9, 4), "f32"), TensorSpec((1, 1, 9, 7), "f32")]


def test_results_are_the_logits_the_caches_by_name_and_the_next_ids():
    model = DecoderLM(LLAMA)
    runner = Runner(model, context_of(model), 9)
    prefill = runner.entry("prefill", 4)
    results = prefill(runner.ctx, IDS[:, :4], np.int32(0), np.int32(3), *runner.caches)  # pyright: ignore[reportArgumentType]
    assert list(results) == ["logits", *(a.name for a in prefill.arguments[3:]), "next_ids"]
    assert results["logits"].shape == (2, 31)
    assert results["next_ids"].spec == TensorSpec((2,), "i32")


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"sequence": 0}, "sequence: expected 1 or more; found 0"),
        ({"sequence": 4, "batch": -1}, "batch: expected 1 or more; found -1"),
        ({"sequence": 9, "max_sequence": 8}, r"sequence: expected at most max_sequence \(8\); found 9: lower one"),
        (
            {"sequence": 9, "max_sequence": 25},
            "max_sequence: expected at most 24, the positions .*; found 25: lower it",
        ),
        (
            {"sequence": 4, "names": ["prefil"]},
            r"'prefil' is unknown; available: forward, .*; did you mean 'prefill'\?",
        ),
        ({"sequence": 4, "names": []}, "entry points: expected at least one, each once; found none"),
        ({"sequence": 4, "names": ["decode", "decode"]}, "each once; found decode, decode"),
    ],
)
def test_sizes_and_names_are_checked(sizes, message):
    with pytest.raises(ConfigError, match=message):
        entry_points(DecoderLM(LLAMA), **sizes)


def test_a_growing_rope_sets_no_limit():
    model = DecoderLM(changed(rope=RopeConfig(rotated=6, trained_length=24, scaling=DynamicScaling(2.0, 24))))
    assert entry_points(model, sequence=8, max_sequence=100_000)


def test_too_few_caches_are_refused():
    model = DecoderLM(LLAMA)
    prefill = entry_points(model, names=["prefill"], batch=2, sequence=17)[0]
    with pytest.raises(OpError, match=r"expected 7 tensors \(token_ids, position, last, layers\.0.*\); found 3"):
        prefill(context_of(model), IDS, np.int32(0), np.int32(16))  # pyright: ignore[reportArgumentType]


def test_entry_points_make_layers_only_for_their_caches_and_when_they_run(monkeypatch):
    config, made = LLAMA, []
    make, ctx = family_of(config).layer, context_of(DecoderLM(config))

    def counted(config: DecoderConfig, index: int, dtype: DType) -> Module:
        made.append(index)
        return make(config, index, dtype)

    family = replace(family_of(config), layer=counted)
    monkeypatch.setattr("transformer_core.family._decoder.family_of", lambda config: family)
    # Classes of blocks of other tests in this process would have every layer looked at; those of the package do not.
    own = [kind for kind in Block.__subclasses__() if kind.__module__.startswith("transformer_core.family.")]
    assert own
    assert not any(kind.may_declare() for kind in own)
    monkeypatch.setattr("transformer_core.flow._patching._may_declare", lambda kind: False)
    model = DecoderLM(config)
    forward, _ = entry_points(model, names=["forward", "decode"])
    assert made == [0, 1]  # decode's caches; no walk over parameters that are not packed
    forward(ctx, ctx.constant(IDS))
    assert made[2:] == [0, 1]


@pytest.mark.parametrize("tied", [False, True])
def test_entry_points_are_packed_as_their_model_is_before_and_after(tied):
    model = DecoderLM(replace(LLAMA, hidden=32, intermediate=64, tied=tied))
    pack_weights(model, encoding_named("q8_0"), f32)
    packed = {path: parameter.encoding for path, parameter in model.named_parameters() if parameter.encoding}
    run: Any = entry_points(model, names=["forward"], sequence=5)[0].fn
    built = run.__self__
    assert {path: parameter.encoding for path, parameter in built.named_parameters() if parameter.encoding} == packed
    assert "model.layers.1.mlp.down_proj.weight" in packed
