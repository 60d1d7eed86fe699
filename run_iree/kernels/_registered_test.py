"""Instruction sets and kernels that other packages register."""

import pytest

from lang_core import ENCODINGS, ConfigError
from run_iree.kernels import (
    Buffer,
    CpuKernel,
    CpuKernels,
    _instruction_sets,
    _registered,
    missing_features,
    register_instruction_set,
    register_kernel,
    registered_kernels,
)
from run_iree.kernels._spelled_testing import packed_linear

_PRODUCT = packed_linear(ENCODINGS["q8_0"], (1, 32, 64))


@pytest.fixture(autouse=True)
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a test register what the next one does not see."""
    monkeypatch.setattr(_instruction_sets, "_REGISTERED", dict(_instruction_sets._REGISTERED))
    monkeypatch.setattr(_registered, "_KERNELS", {})


def _named(name: str) -> CpuKernel:
    return CpuKernel(name, (Buffer("x", 4, "f32"), Buffer("y", 4, "f32")), 1, "")


def _chosen(kernels: CpuKernels) -> str | None:
    kernel = kernels.kernel(_PRODUCT)
    return None if kernel is None else kernel.name


def test_a_cpu_gets_an_instruction_set_by_its_features() -> None:
    register_instruction_set("acme_dot", ["avx2", "acme"])
    assert CpuKernels.of(["avx2", "fma", "f16c"]) == CpuKernels(fma=True)
    kernels = CpuKernels.of(["avx2", "fma", "f16c", "acme"])
    assert kernels == CpuKernels(fma=True, registered=("acme_dot",))
    assert kernels.names() == ("fma", "acme_dot")
    assert missing_features(["avx2"])["acme_dot"] == ("acme",)
    assert CpuKernels(fma=True) in [candidate for candidate in kernels.candidates() if candidate.ahead == kernels.ahead]


def test_registered_kernels_come_first_those_with_most_features_before_the_others() -> None:
    register_instruction_set("acme_dot", ["avx2", "acme"])
    register_kernel("packed_linear", lambda function: _named("any"))
    register_kernel("packed_linear", lambda function: _named("dot"), instruction_set="acme_dot")
    register_kernel("silu_quantize", lambda function: None)
    assert _chosen(CpuKernels(registered=("acme_dot",))) == "dot"
    assert _chosen(CpuKernels(fma=True)) == "any"
    assert [kernel.instruction_set for kernel in registered_kernels("packed_linear")] == ["acme_dot", None]
    assert len(list(registered_kernels())) == 3


def test_what_a_builder_declines_gets_the_next_kernel() -> None:
    register_kernel("packed_linear", lambda function: None)
    register_kernel("packed_linear", lambda function: _named("fma"), instruction_set="fma")
    assert _chosen(CpuKernels(fma=True)) == "fma"
    assert _chosen(CpuKernels()) == "vector"


def test_what_is_malformed_unknown_or_taken_is_refused() -> None:
    for name in ("", "Acme", "acme set"):
        with pytest.raises(ConfigError, match="the name begins with a lower-case letter"):
            register_instruction_set(name, ["avx2"])
    with pytest.raises(ConfigError, match="instruction set 'acme': name the features that a CPU must have"):
        register_instruction_set("acme", [])
    register_instruction_set("acme", ["avx2"])
    for name in ("acme", "vnni"):
        with pytest.raises(ConfigError, match=f"instruction set '{name}' is registered already"):
            register_instruction_set(name, ["avx2"])
    with pytest.raises(ConfigError, match=r"kind of helper function 'packed_line' not found; .*mean 'packed_linear'"):
        register_kernel("packed_line", lambda function: None)
    with pytest.raises(ConfigError, match=r"instruction set 'acne' not found; available: vnni, .*acme; did you mean"):
        register_kernel("packed_linear", lambda function: None, instruction_set="acne")
    register_kernel("packed_linear", lambda function: None)
    register_kernel("packed_linear", lambda function: None, instruction_set="acme")
    with pytest.raises(ConfigError, match="CPU kernel of 'packed_linear' for acme is registered already"):
        register_kernel("packed_linear", lambda function: None, instruction_set="acme")
    with pytest.raises(ConfigError, match="CPU kernel of 'packed_linear' for any CPU is registered already"):
        register_kernel("packed_linear", lambda function: None)
