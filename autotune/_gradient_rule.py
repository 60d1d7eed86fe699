"""The gradient of a kernel that brings its own (``autotune``)."""

from collections.abc import Callable, Sequence
from typing import Any

from autotune._gradient import COMPOSITE, KernelCall
from compile_dag.gradient import Step, composite_gradient
from lang_core import Tensor


@composite_gradient(COMPOSITE)
def kernel(step: Step, *cotangents: Tensor | None) -> Sequence[Callable[[], Tensor | None]]:
    """What the kernel's ``vjp`` says; what it keeps of the forward pass is computed again."""
    call: KernelCall = step.attributes[0]
    found: list[tuple[Any, ...]] = []

    def gradients() -> tuple[Any, ...]:
        if not found:
            output, residuals = call.forward(*step.inputs, ctx=step.ctx)
            given = [
                step.zeros_like(result) if each is None else each
                for each, result in zip(cotangents, step.results, strict=True)
            ]
            d_output = tuple(given) if isinstance(output, tuple) else given[0]
            found.append(call.backward(residuals, output, d_output, *step.inputs, ctx=step.ctx))
        return found[0]

    return [lambda i=i: gradients()[i] for i in range(len(step.inputs))]
