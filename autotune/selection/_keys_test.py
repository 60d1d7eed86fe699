"""Keys of calls (buckets, meshes, batch axes), and configurations of any class."""

from typing import Any

import numpy as np
import pytest

from autotune import Executor, Invocation, Kernel, KernelError, PersistentCache, cfg_name, powers_of_two, profile
from autotune._kernels_testing import Blocks, Matmul, chain, matrices


class Bucketed(Matmul):
    """Shapes above 16 share a configuration with those up to the next power of two."""

    op_id = "tests.bucketed"
    bucket = powers_of_two


def test_shapes_of_a_bucket_share_what_one_of_them_was_tuned_to(tmp_path: Any) -> None:
    made, events, clock = chain(persistent=PersistentCache(path=tmp_path / "k.json"))
    executor = Executor(made)
    assert executor.explain(Bucketed(), *matrices(100, 20, 3)).tier == "autotune"
    tuned = len(clock.tuned)
    for rows, tier in ((128, "memory"), (65, "memory"), (100, "memory"), (129, "autotune"), (15, "autotune")):
        a, b = matrices(rows, 20, 3)
        assert executor.explain(Bucketed(), a, b).tier == tier, rows
        np.testing.assert_allclose(executor(Bucketed(), a, b), a @ b, rtol=1e-4, atol=1e-5)
    assert len(clock.tuned) == 3 * tuned
    assert made.cache.size() == 3
    assert executor.explain(Matmul(), *matrices(100, 20, 3)).tier == "autotune"
    assert executor.explain(Matmul(), *matrices(128, 20, 3)).tier == "autotune", (
        "without a bucket each shape is its own"
    )
    again, _, _ = chain(persistent=PersistentCache(path=tmp_path / "k.json"), policy="cached-only")
    assert Executor(again).choose_config(Bucketed(), *matrices(70, 25, 3)) == Blocks(3)
    assert events[0][0] == "autotune_start"


def test_the_label_is_that_of_the_bucket() -> None:
    made, _, _ = chain(policy="heuristics")
    with profile() as calls:
        for rows in (100, 128, 129):
            Executor(made)(Bucketed(), *matrices(rows, 20, 3))
    assert calls[0].label == calls[1].label != calls[2].label


def test_an_invocations_own_bucket_counts_in_place_of_the_kernels() -> None:
    made, _, _ = chain(policy="heuristics")

    def tens(shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(-(-dim // 10) * 10 for dim in shape)

    def key(rows: int, **more: Any) -> str:
        return made.key(Invocation("tests.bucketed", matrices(rows, 20, 3), **more), Bucketed()).call

    assert key(91) == key(100) == key(128)
    assert key(91, bucket=tens) == key(100, bucket=tens) != key(101, bucket=tens)


def test_a_choice_may_be_asked_for_with_a_mesh_and_batch_axes() -> None:
    made, _, _ = chain(policy="heuristics")
    executor = Executor(made)
    calls: list[dict[str, Any]] = [{}, {"mesh": "2x2"}, {"mesh": "4"}, {"batch_axes": {"a": 0}}]
    keys = {executor.explain(Matmul(), *matrices(), **call).key.call for call in calls}
    assert len(keys) == len(calls)
    made.cache.clear()
    for call in calls:
        executor(Matmul(), *matrices(), **call)
        assert executor.explain(Matmul(), *matrices(), **call).tier == "memory", "the choice is the call's"
        assert executor.choose_config(Matmul(), *matrices(), **call) == Blocks()


class _Loose:
    """Configuration that JSON cannot hold."""

    def __init__(self, factor: int) -> None:
        self.factor = factor


def test_configurations_of_any_class_are_tuned_and_kept_in_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    class Times(Kernel[Any, np.ndarray]):
        op_id = "tests.times"

        def run(self, a: Any, *, cfg: Any) -> Any:
            return a * (cfg.factor > 0)

        def heuristic_cfg(self, inv: Any) -> Any:
            return _Loose(1)

        def candidate_cfgs(self, inv: Any) -> list[Any]:
            return [_Loose(1), _Loose(2), _Loose(2)]

    made, _, clock = chain(lambda cfg: 1.0 / cfg.factor)
    monkeypatch.setenv("TAPELINE_OPS_STAMP", "json")
    a = matrices()[0]
    np.testing.assert_array_equal(Executor(made)(Times(), a), a)
    assert Executor(made).choose_config(Times(), a).factor == 2
    assert [cfg.factor for cfg in clock.tuned] == [1, 2]
    made, _, _ = chain(lambda cfg: 1.0, persistent=PersistentCache(path=tmp_path / "k.json"))
    with pytest.raises(KernelError, match=r"_Loose in it, which cannot be remembered: use a dataclass of numbers"):
        Executor(made)(Times(), a)


class _Slotted:
    """Configuration without attributes that a text shows."""

    __slots__ = ("rows",)

    def __init__(self, rows: int) -> None:
        self.rows = rows


def test_configurations_without_a_text_are_not_taken_for_each_other() -> None:
    rows = 3
    cfgs: list[Any] = [lambda: 1, lambda: 2, lambda: rows, _Slotted(1), _Slotted(2), {1: "a"}, {True: "a"}, {1, 2}]
    cfgs += [0.0, -0.0, 0, False, 1, True, 1.0]
    assert len({cfg_name(cfg) for cfg in cfgs}) == len(cfgs)
    assert cfg_name({1, 2}) == cfg_name({2, 1})
