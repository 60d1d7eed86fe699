"""Types of calls, as a type checker sees them: pyright reads this file with the tree; here it only has to run."""

from typing import Any, assert_type

import numpy as np

from autotune import (
    CompiledKernel,
    ConfigSelectorChain,
    Executor,
    Invocation,
    Kernel,
    Selection,
)
from autotune._kernels_testing import Blocks, Matmul, matrices

Array = np.ndarray[tuple[Any, ...], np.dtype[Any]]


class Name(Kernel[int, str]):
    """Returns a text; its configurations are integers."""

    op_id = "tests.name"

    def run(self, x: Any, *, cfg: int) -> str:
        return str(cfg)

    def heuristic_cfg(self, inv: Invocation[int, str]) -> int:
        return 1


def test_an_executor_of_any_kernel_has_the_kernels_types() -> None:
    executor, (a, b) = Executor(ConfigSelectorChain(policy="heuristics")), matrices()
    assert_type(executor(Matmul(), a, b), Array)
    assert_type(executor(Name(), a, cfg=3), str)
    assert_type(executor.choose_config(Matmul(), a, b), Blocks)
    assert_type(executor.explain(Name(), a), Selection[int])
    assert_type(executor.explain(Name(), a).cfg, int)
    assert_type(executor.compile(Name(), a, compiler=_Theirs()), CompiledKernel[int, str])
    assert executor(Name(), a, cfg=3) == "3"


def test_an_executor_of_one_kind_of_kernel_takes_no_other() -> None:
    chain = ConfigSelectorChain[Blocks, Array](policy="heuristics")
    executor, (a, b) = Executor(chain), matrices()
    assert_type(executor, Executor[Blocks, Array])
    assert_type(executor(Matmul(), a, b), Array)
    assert_type(chain.choose(Invocation("tests.matmul", (a, b)), Matmul()), Blocks)
    executor(Name(), a)  # pyright: ignore[reportArgumentType]
    executor(Matmul(), a, b, cfg=Blocks(2))
    executor.choose_config(Name(), a)  # pyright: ignore[reportArgumentType]
    executor.compile(Name(), a, compiler=_Theirs())  # pyright: ignore[reportArgumentType]
    chain.select(Invocation("tests.name", (a,)), Name())  # pyright: ignore[reportArgumentType]


def test_an_executor_of_one_kind_is_one_of_any_kind_to_a_function() -> None:
    def name(executor: Executor[Any, Any]) -> str:
        return executor(Name(), np.ones(2))

    def product(executor: Executor[Blocks, Array]) -> Array:
        return executor(Matmul(), *matrices())

    mine: Executor[int, str] = Executor(ConfigSelectorChain(policy="heuristics"))
    assert name(mine) == "1"
    product(mine)  # pyright: ignore[reportArgumentType]
    assert product(Executor()).shape == (4, 3)


class _Theirs:
    name = "theirs"

    def environment(self, arrays: Any) -> Any:
        return Invocation("x", tuple(arrays)).where()

    def compile(self, request: Any) -> Any:
        return request.run
