"""Recorded directions suffice to keep a caller's tensors unchanged, on every device.

By default the CPU runs every program, vmvx and the other devices one half each; with TAPELINE_LONG=1 in the environment
all run every program.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from iree import runtime

from compile_hlo import lower_module
from compile_hlo.directions._programs_testing import (
    KEPT,
    MAYBE,
    READ_BESIDE,
    ROW,
    SHARED,
    STATES,
    UPDATED,
    Body,
    X,
    entry_point,
    update,
)
from compile_hlo.directions._random_testing import Program
from compile_hlo.emit import ExternalParameters
from lang_core import DeviceError, EagerExecutionContext, EntryPoint, i32
from run_iree import Session
from run_iree._device_testing import compiled, device_params

_X = np.arange(24, 0, -1, dtype=np.float32).reshape(X.shape)
_ROW = np.linspace(-1, 1, 6, dtype=np.float32).reshape(ROW.shape)


@pytest.fixture(params=device_params())
def device(request: pytest.FixtureRequest) -> str:
    return request.param


def opened(points: Sequence[EntryPoint], device: str, folder: Path) -> Session:
    text: list[str] = []
    lowered = lower_module(points, text.append, ExternalParameters(), streaming=True)
    output = compiled("".join(text), device, folder)
    return Session(output, device, signatures=[function.signature for function in lowered.functions])


def eager(point: EntryPoint) -> list[np.ndarray]:
    ctx = EagerExecutionContext()
    values = (ctx.constant(_X), ctx.constant(_ROW), ctx.constant(2, i32))
    return [tensor.numpy() for tensor in point(ctx, *values).values()]


def points(programs: dict[str, Any], **x: Any) -> list[EntryPoint]:
    return [entry_point(body, f"f{i}", **x) for i, body in enumerate(programs.values())]


def like_x(body: Body) -> Body:
    """Returns the body with its result y in the shape of x, as a result that takes over must be."""

    def reshaped(ctx: Any, *values: Any) -> dict[str, Any]:
        results = body(ctx, *values)
        results = results if isinstance(results, dict) else {"y": results}
        return results | {"y": ctx.ops.reshape(results["y"], X.shape)}

    return reshaped


def test_a_loader_without_our_code_reads_the_directions(tmp_path: Path) -> None:
    """Reads them with json and IREE's runtime alone."""
    made = [entry_point(UPDATED["directly"], "kept"), entry_point(UPDATED["directly"], "donated", alias_result="y")]
    opened(made, "local-sync", tmp_path).close()
    instance = runtime.VmInstance()
    module = runtime.VmModule.mmap(instance, str(tmp_path / "m.local-sync.vmfb"))
    signatures = {}
    for name in ("kept", "donated"):
        function = module.lookup_function(name)
        assert function is not None
        signatures[name] = json.loads(function.reflection["tapeline.signature"])
        del function
    del module
    del instance
    x = {"name": "x", "kind": "tensor", "direction": "IN", "effective": "INOUT", "guarded": True}
    row = {"name": "row", "kind": "tensor", "direction": "IN", "effective": "IN", "guarded": False}
    others = [row, {"name": "position", "kind": "scalar"}]
    taken = {"direction": "INOUT", "guarded": False, "alias_result": "y", "in_place": True}
    assert signatures == {
        "kept": {"args": [x, *others], "results": [{"name": "y", "direction": "OUT"}]},
        "donated": {"args": [x | taken, *others], "results": [{"name": "y", "direction": "INOUT"}]},
    }


def _part(programs: dict[str, Any], device: str) -> dict[str, Any]:
    """Returns the programs that a device runs."""
    if device in ("local-task", "local-sync") or os.environ.get("TAPELINE_LONG"):
        return programs
    return dict(list(programs.items())[device == "vmvx" :: 2])


def test_what_is_not_donated_keeps_its_bytes(device: str, tmp_path: Path) -> None:
    programs = _part({**UPDATED, **KEPT, **MAYBE, **SHARED, **STATES}, device)
    made = points(programs)
    with opened(made, device, tmp_path) as session:
        for name, point in zip(programs, made, strict=True):
            x, row = session.upload(_X), session.upload(_ROW)
            before = session.counters.bytes_guarded
            results = [tensor.numpy() for tensor in session.function(point.name)(x, row, 2)]
            guarded = session.counters.bytes_guarded - before
            assert x.numpy().tobytes() == _X.tobytes(), name
            assert row.numpy().tobytes() == _ROW.tobytes(), name
            for mine, theirs in zip(results, eager(point), strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-5, err_msg=name)
            if name not in SHARED and name not in STATES:
                assert guarded == (0 if name in KEPT else X.nbytes), name


def test_results_beside_what_takes_over_are_right(device: str, tmp_path: Path) -> None:
    programs = _part({**UPDATED, **SHARED, **STATES, **READ_BESIDE}, device)
    made = points({name: like_x(body) for name, body in programs.items()}, alias_result="y")
    with opened(made, device, tmp_path) as session:
        for name, point in zip(programs, made, strict=True):
            x = session.upload(_X)
            results = session.function(point.name)(x, _ROW, 2)
            assert not x.alive
            for mine, theirs in zip(results, eager(point), strict=True):
                np.testing.assert_allclose(mine.numpy(), theirs, rtol=1e-5, err_msg=name)
            places = [tensor.address() for tensor in results]
            assert None in places or len(set(places)) == len(places), name
        assert session.counters.bytes_guarded == 0


def test_a_donated_cache_is_updated_without_a_copy(device: str, tmp_path: Path) -> None:
    def body(ctx: Any, x: Any, row: Any, position: Any) -> Any:
        with ctx.block("layers.0"):
            x = ctx.ops.reshape(update(ctx, ctx.ops.reshape(x, (4, 1, 6)), row, position), X.shape)
        return {"y": x, "sum": ctx.ops.sum(x)}

    with opened([entry_point(body, alias_result="y")], device, tmp_path) as session:
        step, expected = session.function("main"), _X.copy()
        cache = session.upload(_X)
        place = cache.address()
        for position in (2, 0, 3):
            before = session.counters.bytes_in
            old = cache
            cache, total = step(old, _ROW * position, position)
            expected[position] = _ROW[0] * position
            assert session.counters.bytes_in - before == ROW.nbytes
            assert cache.address() == place
            np.testing.assert_array_equal(cache.numpy(), expected)
            np.testing.assert_allclose(total.numpy(), expected.sum(), rtol=1e-5)
            with pytest.raises(DeviceError, match="it was donated to 'main' as argument 'x'; use the result"):
                old.numpy()
        assert session.counters.bytes_guarded == 0


def _drawn(count: int) -> list[Program]:
    """Programs, the same ones on every run, without scatters, behind which IREE does not compile everything."""
    rng = np.random.default_rng(11)
    numbers = [rng.integers(0, (6, 17, 17, 3), (5, 4)) * (3, 1, 1, 1) for _ in range(count)]
    return [Program(tuple(map(tuple, steps.tolist())), 0, int(rng.integers(0, 8))) for steps in numbers]


def test_random_programs_keep_what_is_not_donated(device: str, tmp_path: Path) -> None:
    made = [
        program.entry_point(f"f{i}")
        for i, program in enumerate(_drawn(12 if device in ("local-task", "local-sync") else 6))
    ]
    data = [np.random.default_rng(i).standard_normal(X.shape).astype(np.float32) for i in range(3)]
    ctx = EagerExecutionContext()
    with opened(made, device, tmp_path) as session:
        for point in made:
            given = [session.upload(array) for array in data]
            results = session.function(point.name)(*given, _ROW, 2)
            wanted = point(ctx, *map(ctx.constant, (*data, _ROW)), ctx.constant(2, i32))
            for name, mine in zip(wanted, results, strict=True):
                np.testing.assert_allclose(
                    mine.numpy(), wanted[name].numpy(), rtol=1e-4, err_msg=f"{point.name} {name}"
                )
            for argument, before, after in zip(point.arguments, data, given, strict=False):
                assert after.alive == (argument.alias_result is None)
                assert not after.alive or after.numpy().tobytes() == before.tobytes(), point.name
