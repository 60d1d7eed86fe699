"""Threads that share contexts, executors, kernels and overlays."""

import ast
import contextlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from autotune import (
    AutotuningResult,
    ConfigSelectorChain,
    Entry,
    Executor,
    Invocation,
    Kernel,
    Key,
    Tuner,
    get_invocations,
    host_environment,
    overlay_cache,
    record_invocation,
)
from autotune.kernel._source import source_hash
from lang_core import EagerExecutionContext

_THREADS = 8


@pytest.fixture(autouse=True)
def switching_often() -> Iterator[None]:
    """Makes threads take turns often, so that what they share is used by several at a time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def _together(*functions: Callable[[], None]) -> None:
    """Runs functions in threads that begin at one time; raises what any of them raised."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(functions))

    def run(function: Callable[[], None]) -> None:
        try:
            barrier.wait()
            function()
        except BaseException as error:  # noqa: BLE001 - the test fails with it
            errors.append(error)

    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class Tagged(Kernel[int, Any]):
    """-x, with a tag of its own."""

    op_id = "tests.tagged"

    def run(self, x: Any, *, cfg: int, ctx: Any) -> Any:
        for _ in range(cfg):
            ctx.tag(x, "candidate")
        return ctx.ops.negate(x)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        return 1

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[int]:
        return [1, 2, 3]


def test_tuning_in_some_threads_drops_no_tags_of_the_others() -> None:
    tags: list[str] = []
    ctx = EagerExecutionContext(tag_sink=lambda name, tensor: tags.append(name))
    many, rounds = 400, 20

    def tagging(thread: int) -> Callable[[], None]:
        def run() -> None:
            x = ctx.constant(1.0)
            for number in range(many):
                assert ctx.tag(x, f"{thread}.{number}") is x
                assert ctx.shows("x")

        return run

    def tuning() -> None:
        tuner: Tuner[Any] = Tuner(warmup=0, iters=1, rounds=1)
        for size in range(1, rounds + 1):
            x = ctx.constant(np.ones(size, np.float32))
            chosen = Executor(ConfigSelectorChain(tuner=tuner)).explain(Tagged(), x, ctx=ctx)
            assert chosen.entry is not None
            assert [one.status for one in chosen.entry.measurements] == ["ok"] * 3

    _together(*[tagging(thread) for thread in range(_THREADS)], *[tuning] * 3)
    assert sorted(tags) == sorted(f"{thread}.{number}" for thread in range(_THREADS) for number in range(many))
    assert not {"tag", "shows"} & vars(ctx).keys()


def test_a_thread_is_untagged_by_itself() -> None:
    tags: list[str] = []
    ctx = EagerExecutionContext(tag_sink=lambda name, tensor: tags.append(name))
    x, inside, tagged = ctx.constant(1.0), threading.Event(), threading.Event()

    def untagged() -> None:
        with ctx.untagged():
            ctx.tag(x, "dropped")
            inside.set()
            assert tagged.wait(60)
            assert not ctx.shows("x")
        ctx.tag(x, "after")

    def other() -> None:
        assert inside.wait(60)
        assert ctx.shows("x")
        ctx.tag(x, "kept")
        tagged.set()

    _together(untagged, other)
    assert tags == ["kept", "after"]


def _class_of(number: int) -> type[Kernel[int, Any]]:
    class Numbered(Kernel[int, Any]):
        """A kernel of a number."""

        op_id = "tests.numbered"
        of = number

        def run(self, x: Any, *, cfg: int) -> Any:
            return x

    return Numbered


def test_keys_of_kernels_are_made_by_many_threads() -> None:
    """``inspect.getsource`` of a class raises SystemError where another thread parses Python (cpython#106905)."""
    kinds = [_class_of(number) for number in range(60)]
    text = inspect.getsource(sys.modules[__name__])
    hashes: list[list[str]] = []

    def hashing() -> None:
        hashes.append([source_hash(kind, Kernel) for kind in kinds])

    def parsing() -> None:
        for _ in range(20):
            with contextlib.suppress(SystemError):  # the interpreter's fault, which hashes must not meet
                ast.parse(text)

    _together(*[hashing] * _THREADS, *[parsing] * 2)
    assert len(hashes) == _THREADS
    assert all(row == hashes[0] for row in hashes)
    assert len(set(hashes[0])) == len(kinds)


class Doubled(Kernel[int, Any]):
    """2 x, and the configuration."""

    op_id = "tests.doubled"

    def run(self, x: Any, *, cfg: int) -> Any:
        return x * 2 + 0 * cfg

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        return 1

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[int]:
        return [1, 2, 3]


def test_one_executor_serves_many_threads() -> None:
    chain: ConfigSelectorChain[Any, Any] = ConfigSelectorChain(tuner=Tuner(warmup=0, iters=1, rounds=1))
    executor = Executor(chain)

    def calling() -> None:
        for size in [*range(1, 12), *range(1, 12)]:
            x = np.arange(size, dtype=np.float32)
            np.testing.assert_array_equal(executor(Doubled(), x), 2 * x)

    def clearing() -> None:
        for _ in range(50):
            chain.cache.entries()
            chain.cache.keys()
            chain.cache.get("x", "y", "z")

    _together(*[calling] * _THREADS, clearing)
    assert chain.cache.size() == 11


def test_one_overlay_serves_many_threads() -> None:
    inv = Invocation("tests.doubled", (np.ones(3, np.float32),))
    device = host_environment().fingerprint
    result = AutotuningResult(device, (Entry("tests.doubled@v0", inv.call_key, 7),))
    overlay = overlay_cache({(device, "tests.doubled@v0", inv.call_key): 9})
    executor = Executor(ConfigSelectorChain(policy="heuristics"))

    def entering() -> None:
        for _ in range(50):
            assert executor.choose_config(Doubled(), *inv.args) == 1
            with result:
                assert executor.choose_config(Doubled(), *inv.args) == 7
                with overlay, result, overlay:
                    assert executor.choose_config(Doubled(), *inv.args) == 9
                assert executor.choose_config(Doubled(), *inv.args) == 7
            assert executor.choose_config(Doubled(), *inv.args) == 1

    _together(*[entering] * _THREADS)


def test_calls_are_recorded_and_read_by_many_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("TAPELINE_OPS_RECORD_FILE", str(tmp_path / "calls.jsonl"))
    many = 60

    def recording(thread: int) -> Callable[[], None]:
        def run() -> None:
            for number in range(many):
                key = Key("device", "tests.threads@v0", f"{thread}.{number}")
                record_invocation(*key[:3], Doubled(), (np.ones(2),), {})
                get_invocations("device")

        return run

    _together(*[recording(thread) for thread in range(_THREADS)])
    assert len(get_invocations("device")["tests.threads@v0"]) == many * _THREADS
    assert len((tmp_path / "calls.jsonl").read_text().splitlines()) == many * _THREADS
