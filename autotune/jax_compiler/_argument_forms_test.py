"""A kernel called, and compiled by each compiler, with arguments in every form in which a tensor may come."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from autotune import ConfigSelectorChain, Executor, Kernel
from lang_core import EagerExecutionContext, Tensor
from run_jax import JaxExecutionContext

X = np.arange(6, dtype=np.float32).reshape(2, 3)
EAGER, JAX = EagerExecutionContext(), JaxExecutionContext()
WANTED = (2 * X + 2).tolist()


class Shifted(Kernel[int, Tensor]):
    """``x + x + y`` in ops."""

    op_id = "tests.shifted"
    version = "1"

    def run(self, x: Any, y: Any, *, cfg: int, ctx: Any) -> Any:
        return ctx.ops.add(ctx.ops.add(x, ctx.ops.cast(x, x.dtype)), y)

    def heuristic_cfg(self, inv: Any) -> int:
        return 1


class Jitted(Kernel[int, Any]):
    """The same in jax.numpy."""

    op_id = "tests.jitted"
    version = "1"

    def run(self, x: Any, y: Any, *, cfg: int) -> Any:
        return jnp.add(x, x) + y

    def heuristic_cfg(self, inv: Any) -> int:
        return 1


TWO = np.full((2, 3), 2, np.float32)
FORMS: dict[str, tuple[Any, Any]] = {
    "arrays": (X, TWO),
    "eager tensors": (EAGER.constant(X), EAGER.constant(TWO)),
    "an array and a tensor": (X, EAGER.constant(TWO)),
    "admitted arrays": (EAGER.admit(X), EAGER.admit(TWO)),
    "arrays of JAX": (jnp.asarray(X), jnp.asarray(TWO)),
    "tensors of JAX": (JAX.constant(X), JAX.constant(TWO)),
    "a scalar of NumPy": (X, np.float32(2)),
    "a number": (X, 2.0),
}


@pytest.fixture
def executor() -> Executor[Any, Any]:
    return Executor(ConfigSelectorChain(policy="heuristics"))


@pytest.mark.parametrize("form", FORMS)
def test_called(form: str, executor: Executor[Any, Any]) -> None:
    assert np.asarray(executor(Shifted(), *FORMS[form])).tolist() == WANTED


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compiler", ["jax", "iree"])
def test_compiled(compiler: str, form: str, executor: Executor[Any, Any]) -> None:
    arguments = FORMS[form]
    compiled = executor.compile(Shifted(), *arguments, compiler=compiler)
    assert np.asarray(compiled(*arguments)).tolist() == WANTED


@pytest.mark.parametrize("compiler", ["jax", "iree"])
def test_compiled_once_for_every_form(compiler: str, executor: Executor[Any, Any]) -> None:
    compiled = executor.compile(Shifted(), *FORMS["arrays"], compiler=compiler)
    for form, arguments in FORMS.items():
        if form != "a number":  # a static argument of the call that it was compiled for
            assert np.asarray(compiled(*arguments)).tolist() == WANTED, form


@pytest.mark.parametrize("form", FORMS)
def test_a_kernel_of_jax_compiled(form: str, executor: Executor[Any, Any]) -> None:
    arguments = FORMS[form]
    compiled = executor.compile(Jitted(), *arguments, compiler="jax")
    assert np.asarray(compiled(*arguments)).tolist() == WANTED
