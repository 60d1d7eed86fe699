"""Writes docs/status.md, what works where, from tables of rules and tests: ``bazel run //tools/docs:status_doc``."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from compile_dag.gradient import NOT_DIFFERENTIABLE
from compile_dag.gradient import RULES as GRADIENT_RULES
from compile_hlo.emit import RULES
from compile_hlo.passes import LOWERED
from lang_core import DTYPES, OPS, Op
from run_iree import DEVICES
from tests.emission._all_cases import ALL_CASES
from tests.emission._device_cases import DEVICE_CASES, LIMITS, Limit, limit_of
from tests.values._differences import CONVENTIONS, DIFFERENCES

# Written where they are used rather than by a rule of their own.
_LEAVES: Final = ("constant",)

_HEADER: Final = """\
# Status

This page is generated, and a test keeps it up to date: run `bazel run //tools/docs:status_doc`. What each op does is in
[ops.md](ops.md); what else the project promises, with the test of each promise, is in [behaviours.md](behaviours.md).

- **eager**: the op has a NumPy rule. Recording needs none: every op of the table can be recorded.
- **StableHLO**: the op has an emission rule in `compile_hlo/emit`; a leaf is written where it is used.
- **interpreter**: dtypes of the operands with which `tests/emission/interpreter_test.py` runs it in StableHLO's
  reference interpreter against the eager rule.
- **gradient**: the op has a gradient rule in `compile_dag/gradient`, held to jax and to differences by the tests there;
  else why none flows through it.
- **devices**: how many cases `tests/emission/devices_test.py` runs against the eager rule if `TAPELINE_LONG=1` is in
  its environment; by default one of each op, those of known faults, and a drawn sample. Cases that IREE 3.13 cannot
  run or gets wrong there are left out, with the number of the reason below; a test fails when one of them begins to
  work. Tests on `vulkan` and `cuda` are skipped, with the reason, on a machine that has no such device.

"""


def render() -> str:
    """The page."""
    head = ["op", "eager", "StableHLO", "interpreter", *DEVICES, "gradient"]
    rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    rows += ["| " + " | ".join(_cells(op)) + " |" for op in OPS.values()]
    parts = ("\n".join(rows), "\n".join(_reasons()), "\n".join(_values()), "\n".join(_slopes()))
    return _HEADER + "\n\n".join(parts) + "\n"


def _cells(op: Op) -> Iterator[str]:
    yield f"`{op.name}`"
    yield "yes" if callable(op.eager_rule) else "no"
    yield "yes" if op.name in RULES or op.name in LOWERED else "leaf" if op.name in _LEAVES else "no"
    yield _dtypes({case.dtype.name for case in ALL_CASES if case.op == op.name})
    for device in DEVICES:
        yield _on_device(op, device)
    yield "yes" if op.name in GRADIENT_RULES else NOT_DIFFERENTIABLE.get(op.name, "no")


def _dtypes(supported: set[str]) -> str:
    """The dtypes, or which are left out where that is shorter."""
    names = [dtype.name for dtype in DTYPES]
    rest = [name for name in names if name not in supported]
    if not supported:
        return "none"
    if not rest:
        return "all"
    return f"all but {', '.join(rest)}" if len(rest) < len(supported) else ", ".join(n for n in names if n in supported)


def _on_device(op: Op, device: str) -> str:
    cases = [case for case in DEVICE_CASES if case.op == op.name]
    limits = [limit for case in cases if (limit := limit_of(case, device)) is not None]
    if not limits:
        return str(len(cases))
    return f"{len(cases) - len(limits)} of {len(cases)} ({', '.join(map(str, _numbers(limits)))})"


def _numbers(limits: list[Limit]) -> list[int]:
    return sorted({LIMITS.index(limit) + 1 for limit in limits})


def _reasons() -> Iterator[str]:
    yield "Reasons:\n"
    for number, limit in enumerate(LIMITS, 1):
        yield f"{number}. {', '.join(limit.devices)}: {limit.why} (cases `{limit.cases}`)."


_VALUES: Final = """\
## Special values

`tests/values` runs every op of numbers at zeros of both signs, infinities, NaN, the largest and smallest numbers, ties,
powers and integers beyond 2^24, in each dtype, on each engine. The differences that are left are listed here; a test
fails where a result is wrong that no row names, and where a row names what is right.

| engines | probes | difference |
|---|---|---|"""
_ZEROS: Final = """
The sign of a zero that is a sum of products, and of what `maximum`, `minimum`, `clamp` and `sort` choose between 0.0
and -0.0, is open. In the JAX context the sum of x and `ops.zeros` that JAX traces is x, so that -0.0 stays; beside a
constant it is 0.0."""
_SLOPES: Final = """\
## Gradients where there is none, or several

The gradients of `compile_dag` and of the JAX context are the same there (`tests/values/gradients_test.py`).

| where | gradient | elsewhere |
|---|---|---|"""

_UPDATES: Final = """
## Updates in place

Programs that update a tensor by what is computed from it are right on every engine: those that
`tests/differential/updates_test.py` draws ([figures](lab/2026-11-28-updates-in-place.md)). What is left:

| program | error |
|---|---|"""
_UPDATE_ERRORS: Final = (
    (
        "`dynamic_update_slice(x, dynamic_slice(x, [i, ..]), [j, ..])` of one row of an argument, i and j arguments, "
        "when i and j are the same row",
        "DeviceError at the call: skip the call, as `copy_row` of a bundle's slots does",
    ),
    (
        "a branch whose two results are the same update, carried by a loop (seed 100106)",
        "DeviceError `OUT_OF_RANGE` at the call",
    ),
)


def _values() -> Iterator[str]:
    yield _VALUES
    for row in DIFFERENCES:
        probes = row.probes.replace("|", "\\|")
        yield f"| {', '.join(row.engines)} | `{probes}` | {row.what} |"
    yield _ZEROS


def _slopes() -> Iterator[str]:
    yield _SLOPES
    for where, slope, others in CONVENTIONS:
        yield f"| {where} | {slope} | {others} |"
    yield _UPDATES
    for program, error in _UPDATE_ERRORS:
        yield f"| {program} | {error} |"


def main() -> None:
    """Writes the page into the workspace that Bazel was started in, else into the current folder."""
    root = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."))
    (root / "docs" / "status.md").write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
