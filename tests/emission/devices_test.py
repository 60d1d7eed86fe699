"""Runs every op on every device against the eager context, and checks the table of what a device cannot run.

By default a device runs the sample of ``_device_cases``: each op, the cases of known faults, and drawn ones. With
TAPELINE_LONG=1 in the environment every case runs, also all that are said not to run there.
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_dag import record
from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters, InlineParameters
from compile_hlo.quirks import FAULTS
from lang_core import Argument, CompileError, DeviceError, EntryPoint, TensorSpec, as_dtype, f32, i8
from run_iree import DEVICES, Session, target_of_device
from run_iree._device_testing import compiled, device_params, sharing
from tests.emission._cases import Array, Case, small
from tests.emission._device_cases import DEVICE_CASES, LIMITS, SEED, TARGETS, is_sampled, limit_of
from tests.emission._support import EITHER_ZERO, assert_agrees, eager_results, graph_of, text_of

# vmvx rounds -0.5 to 0.0.
_EITHER_ZERO = (*EITHER_ZERO, "round")
# Cases of one module: a run of the compiler costs more than a function.
_BATCH = 64
_OF_A_LIMIT = 2
_SESSIONS = 3


def _compiled(cases: list[Case], device: str, folder: Path) -> Path:
    return compiled(text_of(map(graph_of, cases)), device, folder)


def _results(session: Session, case: Case) -> list[Array]:
    return [tensor.numpy() for tensor in session.function(case.name)(*case.inputs)]


class _Lost(Exception):
    """Loss of the device, as of Mesa's Vulkan while the machine is busy; nothing runs in that session then."""


def _failure(session: Session, case: Case) -> str | None:
    try:
        assert_agrees(_results(session, case), eager_results(case), case, _EITHER_ZERO)
    except (AssertionError, DeviceError) as error:
        if "VK_ERROR_DEVICE_LOST" in str(error):
            raise _Lost(f"{case.name} on its {_SESSIONS} devices: {error}") from error
        return f"{case.name}: {' '.join(str(error).split())[:300]}"
    return None


def _failures(cases: list[Case], output: Path, device: str) -> Iterator[str]:
    """Runs the cases in one session, or, where it loses its device, what is left of them in another one."""
    left = cases[::-1]
    for attempt in range(_SESSIONS):
        try:
            with Session(output, device) as session:
                while left:
                    if failure := _failure(session, left[-1]):
                        yield failure
                    left.pop()
        except _Lost:
            if attempt == _SESSIONS - 1:
                raise


def _compile_failures(cases: list[Case], device: str, folder: Path) -> list[str]:
    """Compiles cases one by one; returns what the compiler says of those that it refuses."""
    failures = []
    for case in cases:
        try:
            _compiled([case], device, folder)
        except CompileError as error:
            failures.append(f"{case.name}: {' '.join(str(error).split())[:300]}")
    return failures


def _batch_failures(cases: list[Case], device: str, folder: Path) -> list[str]:
    """Compiles cases into one module, and runs them on each device of its target."""
    try:
        output = _compiled(cases, device, folder)
    except CompileError as error:
        return _compile_failures(cases, device, folder) or [f"together: {error}"]
    return [f"{beside}: {failure}" for beside in sharing(device) for failure in _failures(cases, output, beside)]


@pytest.mark.parametrize("device", device_params(shared=True))
def test_ops_run_right(device: str, tmp_path: Path):
    """Modules of many cases; a case that the compiler refuses among others is found alone."""
    cases = [case for case in DEVICE_CASES if is_sampled(case, device) and limit_of(case, device) is None]
    print(f"{len(cases)} of {len(DEVICE_CASES)} cases on {device}, seed {SEED}; TAPELINE_LONG=1 runs all")
    assert cases
    failures: list[str] = []
    for begin in range(0, len(cases), _BATCH):
        failures += _batch_failures(cases[begin : begin + _BATCH], device, tmp_path)
    assert not failures, "\n".join(failures)


def _negated(case: Case) -> Case:
    """Returns a case of the same name that computes something else."""
    return dataclasses.replace(case, fn=lambda c, *given: c.ops.negate(case.fn(c, *given)))


def test_a_fault_among_many_cases_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One case of a module computes something else than its rule says; another one is refused by the compiler."""
    cases = [case for case in DEVICE_CASES if case.name in ("add_f32", "mul_f32", "concat_i32")]
    wrong = [_negated(case) if case.name == "mul_f32" else case for case in cases]
    output = _compiled(wrong, "local-sync", tmp_path)
    assert [failure.partition(":")[0] for failure in _failures(cases, output, "local-sync")] == ["mul_f32"]
    text = text_of(map(graph_of, cases[:1]))

    def refusing(cases: list[Case], device: str, folder: Path) -> Path:
        broken = any(case.name == "mul_f32" for case in cases)
        return compiled(text.replace("stablehlo.add", "stablehlo.none") if broken else text, device, folder)

    monkeypatch.setitem(globals(), "_compiled", refusing)
    (failure,) = _batch_failures(cases, "local-sync", tmp_path)
    assert failure.startswith("mul_f32: ")


def _limited(device: str) -> list[Case]:
    """Returns what the device cannot run: two cases of each limit, or all; each takes a run of the compiler."""
    limited = []
    for limit in LIMITS:
        cases = [case for case in DEVICE_CASES if limit_of(case, device) is limit]
        limited += cases if os.environ.get("TAPELINE_LONG") else cases[:: -(-len(cases) // _OF_A_LIMIT) or 1]
    return limited


def _running(cases: list[Case], device: str, folder: Path) -> list[str]:
    """Returns the names of the cases that the device runs right."""
    names = []
    for case in cases:
        try:
            path = _compiled([case], device, folder)
        except CompileError:
            continue
        with Session(path, device) as session:
            if _failure(session, case) is None:
                names.append(case.name)
    return names


@pytest.mark.parametrize("device", device_params(shared=True))
def test_what_the_table_leaves_out_cannot_run(device: str, tmp_path: Path):
    """A case that runs right is to leave the table."""
    assert not _running(_limited(device), device, tmp_path), "these limits are gone, remove them"


@pytest.mark.parametrize("device", device_params(shared=True))
def test_a_limit_that_is_none_is_found(device: str, tmp_path: Path):
    right = [case for case in DEVICE_CASES if case.name in ("add_f32", "concat_i32")]
    assert _running([*right[:1], *_limited(device)[:2], *right[1:]], device, tmp_path) == [case.name for case in right]
    assert len(right) == 2


def test_every_limit_leaves_something_out():
    for device in DEVICES:
        used = {limit_of(case, device) for case in DEVICE_CASES}
        for limit in LIMITS:
            assert device not in limit.devices or limit in used, (device, limit)


def _scaled_elsewhere(ctx: Any, x: Any, w: Any) -> dict[str, Any]:
    with ctx.block("layers.0"):
        wide = ctx.ops.mul(ctx.ops.cast(w, "f32"), 3.0)
    with ctx.block("layers.1"):
        return {"y": ctx.ops.dot_general(x, wide, ((1,), (0,)))}


@pytest.mark.parametrize("device", device_params(shared=True))
def test_products_of_what_another_function_converts(device: str, tmp_path: Path):
    """IREE inlines both functions and fuses them."""
    x, w = small(f32, 7, 33), small(i8, 33, 5)
    point = EntryPoint(
        "main", _scaled_elsewhere, (Argument("x", TensorSpec(x.shape, f32)), Argument("w", TensorSpec(w.shape, i8)))
    )
    lines: list[str] = []
    lower_module([point], lines.append, ExternalParameters())
    with Session(compiled("".join(lines), device, tmp_path), device) as session:
        np.testing.assert_allclose(session.function("main")(x, w)[0].numpy(), x @ (w * 3.0), rtol=1e-5)


def _constants() -> dict[str, Array]:
    every = np.arange(65536, dtype=np.uint16)
    random = np.random.default_rng(5).integers(0, 2**63, 999, np.uint64) * np.uint64(3)
    arrays = {"bf16": every.view(as_dtype("bf16").numpy), "f16": every.view(np.float16), "f64": random.view(np.float64)}
    arrays |= {"f32": random.astype(np.uint32).view(np.float32), "i64": random.view(np.int64)}
    arrays |= {"i32": random.astype(np.int32), "i8": random.astype(np.int8), "u8": random.astype(np.uint8)}
    arrays["bool"] = random.astype(np.uint8) > 99
    arrays["splat"] = np.full((3, 2), -0.0, np.float32)
    return arrays


@pytest.mark.parametrize("device", device_params(shared=True))
def test_constants_reach_the_device_bit_for_bit(device: str, tmp_path: Path):
    constants = _constants()
    graph = record(lambda ctx: {name: ctx.ops.constant(array) for name, array in constants.items()}, name="constants")
    text = text_of([graph], InlineParameters(lambda path, spec: [np.zeros(spec.shape, spec.dtype.numpy)]))
    with Session(compiled(text, device, tmp_path), device) as session:
        for (name, wanted), result in zip(constants.items(), session.function("constants")(), strict=True):
            assert result.numpy().tobytes() == wanted.tobytes(), name


@pytest.mark.parametrize("losses", [0, 1, 2, 3])
def test_what_a_lost_device_leaves_is_run_on_another(losses: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cases = [case for case in DEVICE_CASES if case.name in ("add_f32", "concat_i32")]
    seen: list[tuple[Session, str]] = []

    def losing(session: Session, case: Case) -> list[Array]:
        seen.append((session, case.name))
        if case is cases[1] and len(seen) <= losses + 1:
            raise DeviceError("failed on the device: VK_ERROR_DEVICE_LOST")
        return [result + (case is cases[0]) for result in eager_results(case)]

    monkeypatch.setitem(globals(), "_results", losing)
    output = _compiled(cases, "local-sync", tmp_path)
    with pytest.raises(_Lost, match="on its 3 devices") if losses == 3 else contextlib.nullcontext():
        (failure,) = _failures(cases, output, "local-sync")
        assert failure.startswith(f"{cases[0].name}: ")
    assert [name for _, name in seen] == [cases[0].name, *[cases[1].name] * min(losses + 1, _SESSIONS)]
    assert len({id(session) for session, _ in seen}) == min(losses + 1, _SESSIONS)


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_sampled_has_every_op(device: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TAPELINE_LONG", raising=False)
    sampled = [case for case in DEVICE_CASES if is_sampled(case, device)]
    able = [case for case in DEVICE_CASES if limit_of(case, device) is None]
    assert {case.op for case in sampled} == {case.op for case in able} == {case.op for case in DEVICE_CASES}
    target = target_of_device(device)
    assert target == TARGETS[device]
    faulty = {name for fault in FAULTS if target in fault.targets for name in fault.cases}
    assert {case.name for case in able if case.name in faulty} <= {case.name for case in sampled}
    assert {case.dtype for case in sampled} == {case.dtype for case in DEVICE_CASES}
    monkeypatch.setenv("TAPELINE_LONG", "1")
    assert len(sampled) < len(DEVICE_CASES) == sum(is_sampled(case, device) for case in DEVICE_CASES)
