"""Names that acme_models registers work in every place of Tapeline, without a line of Tapeline's own changed."""

import json
import os
import sys

import jax
import numpy as np
import pytest
from acme_models import ACME_NUMPY, ACME_RCP, NumPySession, SoftclipKernel, softclip
from safetensors.numpy import save_file

import tapeline
from autotune import ConfigSelectorChain, Executor
from compile_dag.gradient import value_and_gradient
from lang_core import DeviceError, EagerExecutionContext, OpError, load_plugins
from run_iree import host_cpu
from run_iree.checking import check_kernel
from run_iree.kernels import CpuKernels, missing_features
from run_jax import jax_function
from tapeline.backends import Place, open_session
from tapeline.bundle import Bundle
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


def _clipped(ctx, x):
    return softclip(ctx, x, 4)


@pytest.mark.parametrize("elements", [8, 4096, 4104, 9000])
def test_the_cpu_kernel_for_any_cpu_computes_what_the_op_means(elements):
    x = np.linspace(-50, 50, elements, dtype=np.float32)
    check = check_kernel(_clipped, x, kernel="acme-softclip", kernels=CpuKernels(), tolerance=1e-6)
    assert list(check.kernels.values()) == ["acme-softclip"]


@pytest.mark.skipif(bool(missing_features(host_cpu().features)["acme_rcp"]), reason="this CPU has no vrcpps")
def test_a_cpu_with_the_instruction_set_gets_the_kernel_that_is_written_for_it():
    x = np.linspace(-50, 50, 4104, dtype=np.float32).reshape(3, 1368)
    check = check_kernel(_clipped, x, kernel="acme-softclip-rcp", tolerance=1e-6)
    assert check.errors["result"] < 1e-6
    assert ACME_RCP.name in CpuKernels.of(host_cpu().features).names()


@pytest.mark.parametrize(("shape", "dtype"), [((7,), np.float32), ((16,), np.float16)])
def test_sizes_and_dtypes_without_a_kernel_get_what_the_compiler_makes(shape, dtype):
    assert "acme-softclip" not in _kernels_of(np.ones(shape, dtype))
    assert "acme-softclip" in _kernels_of(np.ones(16, np.float32))


def _kernels_of(x):
    """Returns the kernels of a softclip of x beside a quantization, which has a kernel in any case."""

    def call(ctx, x, y):
        return {"clipped": softclip(ctx, x, 4), "scale": ctx.ops.block_quantize(y, 8)[1]}

    check = check_kernel(call, x, np.ones((1, 32), np.float32), kernel="vector", kernels=CpuKernels())
    return set(check.kernels.values())


@pytest.fixture(scope="module")
def bundle(checkpoint, tmp_path_factory):
    """A small bundle of the checkpoint, for a CPU."""
    path = tmp_path_factory.mktemp("bundle") / "bundle"
    tapeline.export(checkpoint, path, sequence=4, max_sequence=32, target=["llvm-cpu"])
    return path


def test_the_family_s_bundle_has_the_kernel_in_it(bundle):
    kernels = Bundle(bundle).config.targets["llvm-cpu"]["kernels"]
    assert any(name.startswith("acme-softclip") for name in kernels.values())
    assert "plugin acme" in Bundle(bundle).config.producer


def test_the_engine_says_what_ours_say(bundle):
    prompt = {"token_ids": [5, 6, 7, 8, 9, 10], "max_new_tokens": 6, "ignore_eos": True}
    with tapeline.load(bundle, engine="acme-numpy") as model, tapeline.load(bundle) as ours:
        assert model.target == "acme-numpy"
        assert model.generate(**prompt).token_ids == ours.generate(**prompt).token_ids
        again = {**prompt, "token_ids": [*prompt["token_ids"], 11]}  # takes up what is left in the caches
        assert model.generate(**again).token_ids == ours.generate(**again).token_ids
        scores = [one.score(token_ids=prompt["token_ids"]).log_probabilities for one in (model, ours)]
        np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-5)
    assert tapeline.compare_bundles(bundle, engine="acme-numpy", reference_engine="jax").first is None


def test_the_engine_s_session_counts_calls_and_refuses_what_is_dead(bundle):
    opened = Bundle(bundle)
    with open_session(opened, Place(ACME_NUMPY.name)) as session:
        assert isinstance(session, NumPySession)
        signature = opened.entry_point("decode")
        values = [
            0 if one.kind == "scalar" else np.zeros(one.spec.shape, one.spec.dtype.numpy) for one in signature.arguments
        ]
        tensors = session.function("decode")(*values)
        assert session.calls == {"decode": 1}
        with pytest.raises(DeviceError, match=r"has no entry point 'decod'; .*did you mean 'decode'"):
            session.function("decod")
        held = session.hold([tensors[0]])
        with pytest.raises(DeviceError, match="it was donated to held tensors"):
            tensors[0].numpy()
        assert held.numpy(0).shape == tensors[0].spec.shape
    with pytest.raises(DeviceError, match=r"is closed; open a new one"):
        session.zeros(tensors[0].spec)


def test_flags_take_the_engine_and_the_doctor_lists_what_is_registered(bundle, capsys):
    flags = (f"--bundle={bundle}", "--token_ids=5,6,7", "--max_new_tokens=4", "--ignore_eos")
    texts = []
    for engine in ("acme-numpy", "iree"):
        assert main(["generate", *flags, f"--backend={engine}"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert main(["generate", *flags, "--backend=acme-numpy", "--device=tpu"]) == 2
    assert "--device=tpu: not a device of --backend=acme-numpy; available: host" in capsys.readouterr().err
    assert main(["doctor", "--format=json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert {"name": "acme-numpy", "devices": ["host"]} in facts["engines"]
    assert facts["registered_kernels"] == ["acme_softclip: acme_rcp", "acme_softclip: any CPU"]
    assert "acme_rcp" in [kernel["name"] for kernel in facts["kernels"]]
    assert facts["plugins"]["acme"].startswith("acme")


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


if __name__ == "__main__":  # as Bazel starts it; pytest imports it
    os.environ.setdefault("XDG_CACHE_HOME", os.environ["TEST_TMPDIR"])
    sys.exit(pytest.main([__file__, "-p", "no:cacheprovider", "--import-mode=importlib"]))
