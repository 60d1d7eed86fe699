"""Names that acme_models registers work in every place of Tapeline, without a line of Tapeline's own changed."""

import json

import jax
import numpy as np
import pytest
from acme_models import SoftclipKernel, softclip
from safetensors.numpy import save_file

from autotune import ConfigSelectorChain, Executor
from compile_dag.gradient import value_and_gradient
from lang_core import EagerExecutionContext, OpError, load_plugins
from run_jax import jax_function
from tapeline.command import main
from transformer_core.family import architectures

X = np.linspace(-9, 9, 24, dtype=np.float32).reshape(4, 6)
CONFIG = {
    "architectures": ["AcmeForCausalLM"],
    "model_type": "acme",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A tiny checkpoint with random weights, as a training script would leave it."""
    directory = tmp_path_factory.mktemp("acme")
    (directory / "config.json").write_text(json.dumps(CONFIG))
    random = np.random.default_rng(7)
    shapes = {"model.embed_tokens.weight": (96, 64), "model.norm.weight": (64,)}
    for layer in range(2):
        prefix = f"model.layers.{layer}"
        shapes |= {
            f"{prefix}.self_attn.{name}_proj.weight": (rows, 64)
            for name, rows in zip("qkvo", (64, 32, 32, 64), strict=True)
        }
        shapes |= {f"{prefix}.mlp.{name}_proj.weight": (96, 64) for name in ("gate", "up")}
        shapes |= {f"{prefix}.mlp.down_proj.weight": (64, 96)}
        shapes |= {f"{prefix}.{name}_layernorm.weight": (64,) for name in ("input", "post_attention")}
    weights = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(weights, directory / "model.safetensors")
    return directory


def test_tapeline_finds_the_plugin():
    assert "acme" in load_plugins()
    assert "AcmeForCausalLM" in architectures()


def test_the_op_computes_and_refuses():
    ctx = EagerExecutionContext()
    np.testing.assert_allclose(softclip(ctx, X, 4).numpy(), 4 * np.tanh(X / 4), rtol=1e-6)
    with pytest.raises(OpError, match=r"acme\.softclip_c2: limit is -1\.0"):
        softclip(ctx, X, -1)


def test_its_gradient_by_our_rule_and_by_jax():
    def loss(ctx, x):
        return ctx.ops.sum(softclip(ctx, x, 4))

    ctx = EagerExecutionContext()
    _, (recorded,) = value_and_gradient(loss)(ctx, ctx.constant(X))
    by_jax = jax.grad(jax_function(loss), argnums=1)({}, X)
    for gradient in (recorded.numpy(), by_jax):
        np.testing.assert_allclose(gradient, 1 - np.tanh(X / 4) ** 2, rtol=1e-4, atol=1e-6)


def test_the_kernel_runs_with_each_configuration():
    kernel = SoftclipKernel()
    executor = Executor(ConfigSelectorChain(policy="heuristics"))
    for cfg in (None, 1, 4):
        result = executor(kernel, X, 4.0) if cfg is None else executor(kernel, X, 4.0, cfg=cfg)
        np.testing.assert_allclose(result, 4 * np.tanh(X / 4), rtol=1e-6)


def test_the_family_is_exported_packed_verified_and_generates(checkpoint, tmp_path, capsys):
    bundle = tmp_path / "bundle"
    sizes = ("--sequence=8", "--max_sequence=32", "--quantize=acme_q4")
    assert main(["export", f"--model={checkpoint}", f"--output={bundle}", "--target=llvm-cpu", *sizes]) == 0
    report = json.loads((bundle / "report.json").read_text())
    assert {row["device"] for row in report["verification"]} == {"local-task"}
    capsys.readouterr()
    assert main(["generate", f"--bundle={bundle}", "--token_ids=5,6,7", "--max_new_tokens=6", "--ignore_eos"]) == 0
    ids = capsys.readouterr().out.strip().split(",")
    assert len(ids) == 6
    assert "acme.softclip" not in (bundle / "module.mlir").read_text(), "it is written as portable StableHLO"
