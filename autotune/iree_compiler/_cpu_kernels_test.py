"""The products that CPU kernels are chosen by."""

from pathlib import Path

import numpy as np
import pytest

from autotune import PINNED, ConfigSelectorChain, KernelError, PersistentCache, TuningError
from autotune.iree_compiler import CpuKernelsKernel, _cpu_kernels, remembered_kernels, tune_kernels
from lang_core import EagerExecutionContext
from run_iree.kernels import CpuKernels


def test_the_products_are_what_the_ops_give() -> None:
    kernel, ctx = CpuKernelsKernel(rows=64), EagerExecutionContext()
    arrays = kernel.arrays()
    products = kernel.run(*map(ctx.constant, arrays), cfg=CpuKernels(), ctx=ctx)
    assert [tuple(product.shape) for product in products] == [(1, 64)] * 3 + [(32, 64)] * 3
    wide = arrays[0].astype(np.float32) @ arrays[4].astype(np.float32).T
    np.testing.assert_allclose(products[2].numpy().astype(np.float32), wide, rtol=0.02, atol=0.3)
    assert all(np.isfinite(product.numpy().astype(np.float32)).all() for product in products)


def test_other_kernels_or_products_are_another_op(monkeypatch: pytest.MonkeyPatch) -> None:
    version = CpuKernelsKernel(rows=64).version
    assert CpuKernelsKernel(rows=64).version == version
    assert CpuKernelsKernel(rows=128).version != version
    monkeypatch.setattr(_cpu_kernels, "table_kernels", lambda: CpuKernels(fma=True, ahead=64))
    assert CpuKernelsKernel(rows=64).version != version


def test_kernels_that_the_cpu_cannot_run_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_cpu_kernels, "table_kernels", lambda: CpuKernels(ahead=0))
    cache: PersistentCache[CpuKernels] = PersistentCache(path=tmp_path / "k.json")
    key = remembered_kernels(cache).key
    cache.put(*key[:3], CpuKernels(vnni=True, fma=True), PINNED)
    with pytest.raises(
        KernelError, match="pinned CPU kernels need vnni, fma, which this CPU lacks: pin others, or clear"
    ):
        remembered_kernels(cache)
    with pytest.raises(TuningError, match="this CPU has no kernels to choose between: they need AVX2, FMA and F16C"):
        tune_kernels(ConfigSelectorChain())
