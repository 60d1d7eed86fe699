"""Writes docs/onnx.md, what becomes of ONNX's operator cases: ``bazel run //tools/docs:onnx_doc``."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import onnx

from tests.conformance._onnx_cases import Case, onnx_cases
from tests.conformance._onnx_kinds import TRANSFORMER_OPS
from tests.conformance._onnx_selection import LIMITS, limit_of

_DEVICES: Final = ("local-task", "local-sync", "vmvx", "vulkan")
_HEADER: Final = """\
# ONNX operator cases

This page is generated, and a test keeps it up to date: run `bazel run //tools/docs:onnx_doc`.

`onnx.backend.test.case.node` of onnx {version} holds {count} cases: a model of one node (`_expanded`: the same op
written out in simpler ones), inputs, and the outputs that ONNX's own reference computed. `tests/conformance` says each
model with `ctx.ops`, by an adapter per ONNX op that reads attributes and operands and knows no case, and compares
dtype, shape and values: floating ones within the case's tolerance (rtol 1e-3 as a rule; f16 2e-3, bf16 2e-2: ONNX's
reference rounds after each step, ours once), all others exactly.

- **pass**: right eagerly, recorded and evaluated, and in StableHLO's reference interpreter.
- **not expressible**: the op table cannot say it, or nobody has adapted it; the reason stands beside it. Inputs that
  decide a result's shape (`shape`, `axes`, `k`, ...) are compile-time values; other inputs are arguments.

A case that is expressible and wrong in one of these modes fails a test: there is none. On IREE's devices
`tests/conformance:device_tests` runs some cases of each op that a transformer uses, and with `TAPELINE_LONG=1` in its
environment every case, and each that is said not to run there; what IREE 3.13's compiler refuses stands below. Models
of your own, in ONNX's form on disk: `bazel run //tests/conformance:onnx_model -- --model DIR`.

"""


def render() -> str:
    """The page."""
    cases = onnx_cases()
    lines = [_HEADER.format(version=onnx.__version__, count=len(cases))]
    lines += [
        "## In short\n",
        *_summary(cases),
        "",
        "## On devices\n",
        *_devices(cases),
        "",
        "## What devices cannot run\n",
        *_limits(cases),
        "",
        "## By op\n",
        *_by_op(cases),
        "",
        "## Every case\n",
    ]
    return "\n".join([*lines, *_each(cases)]) + "\n"


def _summary(cases: tuple[Case, ...]) -> Iterator[str]:
    yield "| cases | all | pass | not expressible |"
    yield "|---|---|---|---|"
    for title, chosen in (
        ("of ops that a transformer uses", [case for case in cases if case.kind in TRANSFORMER_OPS]),
        ("all", cases),
    ):
        right = sum(case.reason is None for case in chosen)
        yield f"| {title} | {len(chosen)} | {right} ({right / len(chosen):.1%}) | {len(chosen) - right} |"
    yield "\nWhy not:\n"
    reasons = Counter(case.reason for case in cases if case.reason)
    for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        yield f"- {count}: {reason}"


def _devices(cases: tuple[Case, ...]) -> Iterator[str]:
    yield "Of the cases that are expressible, those that pass: all but what the next table has.\n"
    yield f"| cases | {' | '.join(_DEVICES)} | on all of them |"
    yield "|---|" + "---|" * (len(_DEVICES) + 1)
    for title, chosen in (
        ("of ops that a transformer uses", [case for case in cases if case.kind in TRANSFORMER_OPS]),
        ("all", cases),
    ):
        right = [case for case in chosen if case.reason is None]
        passed = [{case.name for case in right if limit_of(case, device) is None} for device in _DEVICES]
        columns = [f"{len(names)} of {len(right)} ({len(names) / len(right):.1%})" for names in passed]
        both = set.intersection(*passed)
        yield f"| {title} | {' | '.join(columns)} | {len(both)} ({len(both) / len(right):.1%}) |"


def _limits(cases: tuple[Case, ...]) -> Iterator[str]:
    yield "| devices | cases | why |"
    yield "|---|---|---|"
    for limit in LIMITS:
        count = sum(case.reason is None and limit_of(case, limit.devices[0]) is limit for case in cases)
        text = limit.cases.replace("|", "\\|")
        yield f"| {', '.join(limit.devices)} | {count}: `{text}` | {limit.why} |"


def _by_op(cases: tuple[Case, ...]) -> Iterator[str]:
    yield "In *italics*: not an op that a transformer uses.\n"
    yield "| op | cases | pass | not expressible |"
    yield "|---|---|---|---|"
    kinds = sorted({case.kind for case in cases}, key=str.lower)
    for kind in kinds:
        chosen = [case for case in cases if case.kind == kind]
        reasons = Counter(case.reason for case in chosen if case.reason)
        text = "; ".join(f"{count}: {reason}" for reason, count in sorted(reasons.items()))
        name = kind if kind in TRANSFORMER_OPS else f"*{kind}*"
        yield f"| {name} | {len(chosen)} | {len(chosen) - sum(reasons.values())} | {text} |"


def _each(cases: tuple[Case, ...]) -> Iterator[str]:
    yield "| case | |"
    yield "|---|---|"
    for case in cases:
        yield f"| {case.name.removeprefix('test_')} | {'pass' if case.reason is None else case.reason} |"


def main() -> None:
    """Writes the page into the workspace that Bazel was started in, else into the current folder."""
    root = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."))
    (root / "docs" / "onnx.md").write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
