"""Results and hidden states of every golden encoder against transformers'."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_dag import evaluate, record
from lang_core import Module
from tests.goldens.encoders._sound_cases import SOUND_CASES
from tests.goldens.encoders.cases import ENCODER_CASES, EncoderCase
from tests.goldens.encoders.files import encoder_weights, read_encoder_golden, write_encoder_checkpoint
from tests.parity._golden_encoders import forward_of, opened_encoder
from tests.parity._golden_models import relative_error
from transformer_core.checkpoints import SafetensorsCheckpoint, audit
from transformer_core.models import load_model, stored_specs, tied_keys, unused_keys, weights_of

TOLERANCE = 2e-4
_ALL = pytest.mark.parametrize("case", ENCODER_CASES.values(), ids=ENCODER_CASES)


# Parts of the names of stored tensors that the results do not depend on.
_UNUSED = {
    **dict.fromkeys(
        ("dinov2", "dinov2_classifier", "dinov2_registers", "dinov2_registers_classifier"), ("mask_token",)
    ),
    **{case.name: ("masked_spec_embed",) for case in SOUND_CASES},
    "dinov3": ("mask_token",),
    "dinov3_gated": ("mask_token", "register_tokens"),  # of no rows
    **dict.fromkeys(("esm", "esm_masked_lm", "esm_classifier"), ("contact_head",)),
    "big_bird_classifier": ("bert.pooler.",),
    **dict.fromkeys(("led", "longformer_masked_lm"), ("_global.",)),
    "layoutlmv3_tokens": ("patch_embed", "cls_token", "pos_embed", "layoutlmv3.LayerNorm", "layoutlmv3.norm"),
    "segformer": ("num_batches_tracked",),
    "clip_classifier": ("post_layernorm",),
    "siglip_classifier": (".head.",),
}


_LAYERS = (
    "BeitLayer",
    "BottleneckLayer",
    "ConvNextLayer",
    "DecoderLayer",
    "EncoderLayer",
    "GlobalEncoderLayer",
    "SandwichLayer",
    "SoundLayer",
    "WavLMLayer",
)


@_ALL
def test_the_checkpoint_has_what_the_model_needs(case: EncoderCase, tmp_path: Path) -> None:
    write_encoder_checkpoint(tmp_path, case)
    model = load_model(tmp_path)
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        wanted, tied = stored_specs(model, checkpoint), tied_keys(model, checkpoint)
        report = audit(checkpoint, wanted, tied=tied, ignorable=unused_keys(model, checkpoint))
        left = set(encoder_weights(case)) - set(report.used)
        pooler = {f"{name}.{kind}" for name in ("pooler.dense", "pooler") for kind in ("weight", "bias")} & set(
            encoder_weights(case)
        )
        unused = {name for name in encoder_weights(case) if any(part in name for part in _UNUSED.get(case.name, ()))}
        assert left == (pooler if case.pooling else set()) | unused
        weights = weights_of(model, checkpoint)
        assert all(weights.spec(path).shape == p.spec.shape for path, p in model.named_parameters())


@_ALL
def test_forward(case: EncoderCase, tmp_path: Path) -> None:
    golden = read_encoder_golden(case.name)
    with opened_encoder(case, tmp_path) as (model, ctx):
        point = forward_of(model, golden.inputs)
        assert [argument.name for argument in point.arguments] == list(golden.inputs)
        results = point(ctx, *map(ctx.constant, golden.inputs.values()))
        assert set(results) == ({"logits"} if case.steps else set(golden.outputs))
        for name, tensor in results.items():
            assert tensor.dtype.name == "f32"
            assert relative_error(tensor, golden.outputs[name]) < TOLERANCE, name


@_ALL
def test_hidden_states_after_every_layer(case: EncoderCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = read_encoder_golden(case.name)
    states: list[np.ndarray] = []
    call = Module.__call__

    def noted(self: Module, ctx: Any, *inputs: Any, **named: Any) -> Any:
        result = call(self, ctx, *inputs, **named)
        if type(self).__name__ in _LAYERS:
            states.append((result[0] if isinstance(result, tuple) else result).numpy())
        return result

    monkeypatch.setattr(Module, "__call__", noted)
    with opened_encoder(case, tmp_path) as (model, ctx):
        forward_of(model, golden.inputs)(ctx, *map(ctx.constant, golden.inputs.values()))
    real = golden.inputs["attention_mask"] != 0 if case.name == "led" else np.s_[:]  # Longformer's padding has zeros
    for actual, expected in zip(states[: len(golden.hidden)], golden.hidden, strict=True):  # of SigLIP, the pictures'
        assert relative_error(actual[real], expected[real]) < TOLERANCE


@_ALL
def test_recorded_entry_points_give_the_bits_of_eager_ones(case: EncoderCase, tmp_path: Path) -> None:
    golden = read_encoder_golden(case.name)
    with opened_encoder(case, tmp_path) as (model, ctx):
        point = forward_of(model, golden.inputs)
        inputs = {name: ctx.constant(array) for name, array in golden.inputs.items()}
        graph = record(point.fn, *[a.spec for a in point.arguments], input_names=list(inputs), name=point.name)
        actual, eager = evaluate(graph, ctx, inputs), point(ctx, *inputs.values())
        assert list(actual) == list(eager)
        for name in eager:
            assert actual[name].numpy().tobytes() == eager[name].numpy().tobytes(), name


@pytest.mark.parametrize(("dtype", "tolerance"), [("bf16", 3e-2), ("f16", 1e-2)])
@_ALL
def test_short_dtypes(case: EncoderCase, dtype: str, tolerance: float, tmp_path: Path) -> None:
    golden = read_encoder_golden(case.name)
    with opened_encoder(case, tmp_path) as (_, ctx):
        model = load_model(tmp_path, dtype)
        results = forward_of(model, golden.inputs)(ctx, *map(ctx.constant, golden.inputs.values()))
        for name, tensor in results.items():
            expected = golden.outputs[name]
            error = np.linalg.norm(tensor.numpy() - expected) / np.linalg.norm(expected)
            assert error < tolerance, name
