"""Differences that remain: values at which an engine gives something else than the op table says, and why.

The tests beside this file fail where a probe is wrong that no row names, and where a row names a probe that is right.
docs/status.md shows the rows.
"""

import dataclasses
import re
from typing import Final

from tests.values._grid import Probe


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """Values at which engines differ from the op table.

    Attributes:
        engines: names as in the tests: engines of the host, or devices of IREE.
        probes: matches the entries of all probes that show it, whole.
        what: values, and results there.
    """

    engines: tuple[str, ...]
    probes: str
    what: str


_XLA: Final = ("XLA", "JAX context")
_IREE: Final = ("local-task", "vmvx")

DIFFERENCES: Final = (
    Difference(
        (*_XLA, *_IREE),
        "(add|mul|maximum|greater)_subnormal_f32",
        "subnormal numbers are 0, as operands and as results (jax-ml/jax issue 37762)",
    ),
    Difference(
        _XLA,
        "(add|mul|maximum|greater)_subnormal_f64",
        "subnormal numbers are 0, as operands and as results (jax-ml/jax issue 37762)",
    ),
    Difference(
        _XLA,
        "div_f32",
        "a broadcast divisor beyond 2^126 becomes its reciprocal, which is subnormal: the quotient is 0",
    ),
    Difference(
        ("local-task",),
        "(add|mul|maximum|greater)_subnormal_f64",
        "subnormal numbers are 0, as operands and as results",
    ),
    Difference(
        ("local-task",),
        "(expm1|log1p|tanh|softplus)_f64",
        "near 0 the error is relative to 1, not to the result: exp(x) - 1 and log(1 + x) are computed",
    ),
    Difference(
        ("local-task",),
        "pow(_by_numbers|_of_numbers)?_f64",
        "in f64 the error is that of exp(y log x): 1e-13 relative to results such as 1e57 and 1e-302",
    ),
    Difference(("vmvx",), "round_(f32|bf16)", "-0.5 rounds to 0.0, not to -0.0"),
    Difference(("vmvx",), "rem_f32", "0.001 rem 1.2e-38 is -0.0: the remainder lies just above the subnormal numbers"),
)
"""Differences of engines from the op table."""

CONVENTIONS: Final = (
    ("`abs` at 0", "0", "0, as in PyTorch; 1 in `jax.numpy`"),
    ("`relu` at 0", "0", "0, as in PyTorch and `jax.nn`"),
    ("`softplus` at 0", "1/2", "the derivative, which is smooth there"),
    ("`maximum`, `minimum` of equal operands", "1/2 each", "as in `jax.numpy` and PyTorch"),
    ("`maximum`, `minimum` with a NaN", "the right operand's", "`jax.numpy` gives it to neither"),
    ("`max`, `min` with ties", "equal shares", "as in `jax.numpy` and `torch.amax`"),
    ("`max`, `min` with NaN", "equal shares of the NaN", "`jax.numpy` gives NaN everywhere"),
    ("`clamp` on a bound", "0", "as `jax.lax.clamp`; 1/2 in `jax.numpy.clip`, 1 in PyTorch"),
    ("`pow` by x where y = 0", "0", "as in PyTorch; NaN in `jax.numpy` at x = 0"),
    ("`pow` by y where x = 0", "0 or infinity times log(1)", "as in `jax.numpy`"),
    ("`prod` of finite numbers with a 0", "the product of the others", "NaN in `jax.numpy` if that overflows"),
    ("`sign`, `floor`, `ceil`, `round`", "0", "as in PyTorch and JAX"),
    ("`sqrt` at 0", "infinity", "as in PyTorch and JAX"),
    ("`select` beside a value that is not chosen", "0", "0 * infinity is NaN in what computes that value, as in JAX"),
)
"""Derivatives where an op has none, or several: what, which, and what others do."""


def difference_of(engine: str, probe: Probe) -> Difference | None:
    """Returns the row that names a probe on an engine; None where there is none."""
    return next((d for d in DIFFERENCES if engine in d.engines and re.fullmatch(d.probes, probe.entry)), None)


def disagreements(engine: str, probes: list[Probe], verdicts: list[str | None]) -> list[str]:
    """Returns what is wrong and in no row, and what is right and in a row."""
    lines: list[str] = []
    for probe, verdict in zip(probes, verdicts, strict=True):
        row = difference_of(engine, probe)
        if verdict is not None and row is None:
            lines.append(f"{engine}: {probe.entry}: {verdict}")
        if verdict is None and row is not None:
            lines.append(f"{engine}: {probe.entry} is right: remove it from the row {row.what!r}")
    return lines
