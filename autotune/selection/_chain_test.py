import threading
from typing import Any

import numpy as np
import pytest

from autotune import (
    AutotunePolicy,
    CallbackWarning,
    ConfigCache,
    ConfigSelectionError,
    ConfigSelectorChain,
    Executor,
    Invocation,
    Kernel,
    KernelError,
    PersistentCache,
    Tuner,
    device_fingerprint,
    overlay_cache,
    policy_override,
)
from autotune._kernels_testing import Blocks, Matmul, chain, matrices


def _call(**options: Any) -> Invocation[Any, Any]:
    return Invocation("tests.matmul", matrices(), **options)


def _names(events: list[tuple[str, dict[str, Any]]]) -> list[str]:
    return [name for name, _ in events if name != "candidate"]


def test_a_call_is_tuned_once_and_then_remembered() -> None:
    made, events, clock = chain()
    first, second = made.select(_call(), Matmul()), made.select(_call(), Matmul())
    assert (first.cfg, first.tier) == (Blocks(3), "autotune")
    assert (second.cfg, second.tier) == (Blocks(3), "memory")
    assert _names(events) == ["autotune_start", "autotune_finish", "cache_hit"]
    assert clock.tuned == [Blocks(1), Blocks(2), Blocks(1, "broken"), Blocks(1, "wrong"), Blocks(3)]
    assert {"device", "op_id", "call_key"} <= events[0][1].keys()
    assert (events[-1][1]["level"], events[-1][1]["op_id"]) == ("memory", "tests.matmul@v3")


def test_the_entry_says_what_became_of_each_candidate() -> None:
    made, _, _ = chain()
    entry = made.select(_call(), Matmul()).entry
    assert entry is not None
    assert entry.provenance == "tuned"
    assert [(m.cfg.rows, m.cfg.mode, m.status) for m in entry.measurements] == [
        (1, "plain", "ok"),
        (2, "plain", "ok"),
        (1, "broken", "failed"),
        (1, "wrong", "rejected"),
        (3, "plain", "ok"),
    ]
    assert "no such mode" in entry.measurements[2].detail
    assert "differs by" in entry.measurements[3].detail
    assert any("numpy" in version for version in entry.environment["versions"])


def test_a_tie_goes_to_the_heuristic() -> None:
    made, _, _ = chain(lambda cfg: 1.0 if cfg == Blocks(1) else 0.98)
    assert made.choose(_call(), Matmul()) == Blocks(1)
    made, _, _ = chain(lambda cfg: 1.0 if cfg == Blocks(1) else 0.9 / cfg.rows)
    assert made.choose(_call(), Matmul()) == Blocks(3)


def test_an_override_wins_and_leaves_no_trace(tmp_path: Any) -> None:
    made, events, _ = chain(persistent=PersistentCache(path=tmp_path / "k.json"))
    given = Blocks(7)
    assert made.choose(_call(override_cfg=given), Matmul()) is given
    assert _names(events) == ["override"]
    assert (made.cache.size(), list(tmp_path.iterdir())) == (0, [])
    key = (device_fingerprint(), "tests.matmul@v3", _call().call_key)
    with overlay_cache({key: Blocks(9)}):
        assert made.choose(_call(override_cfg=given), Matmul()) is given
    assert made.choose(_call(), Matmul()) == Blocks(3)
    assert made.choose(_call(override_cfg=given), Matmul()) is given
    assert made.choose(_call(), Matmul()) == Blocks(3)


def test_the_innermost_overlay_counts_and_goes_with_its_block() -> None:
    made, events, _ = chain(policy="heuristics")
    key = (device_fingerprint(), "tests.matmul@v3", _call().call_key)
    made.cache.put(*key, Blocks(5))
    with overlay_cache({key: Blocks(8)}):
        with overlay_cache({key: Blocks(9)}), overlay_cache({}):
            assert made.choose(_call(), Matmul()) == Blocks(9)
        assert made.choose(_call(), Matmul()) == Blocks(8)
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.append(made.choose(_call(), Matmul())))
        thread.start()
        thread.join()
        assert seen == [Blocks(5)], "another thread is not concerned"
    with pytest.raises(ZeroDivisionError), overlay_cache({key: Blocks(8)}):
        raise ZeroDivisionError
    assert made.choose(_call(), Matmul()) == Blocks(5)
    assert _names(events) == ["overlay_hit", "overlay_hit", "cache_hit", "cache_hit"]


def test_what_is_put_by_hand_is_found_and_outlives_a_change_of_the_source() -> None:
    made, _, _ = chain(policy="cached-only")
    made.cache.put(device_fingerprint(), "tests.matmul@v3", _call().call_key, Blocks(5))
    assert made.choose(_call(), Matmul()) == Blocks(5)
    assert made.cache.get(device_fingerprint(), "tests.matmul@v3", _call().call_key) == Blocks(5)
    with pytest.raises(KernelError, match=r"cannot store None for 'tests.matmul@v3'"):
        made.cache.put(device_fingerprint(), "tests.matmul@v3", _call().call_key, None)


def test_heuristics_are_never_stored_as_tuned(tmp_path: Any) -> None:
    file = tmp_path / "k.json"
    made, events, clock = chain(policy="heuristics", persistent=PersistentCache(path=file))
    assert made.select(_call(), Matmul()).tier == "heuristics"
    again = made.select(_call(), Matmul())
    assert again.entry is not None
    assert (again.tier, again.entry.provenance) == ("memory", "heuristic")
    assert not file.exists()
    assert _names(events) == ["heuristics", "cache_hit"]
    made.policy = "autotune"
    tuned = made.select(_call(), Matmul())
    assert (tuned.tier, tuned.cfg, len(clock.tuned)) == ("autotune", Blocks(3), 5)
    assert file.exists()


def test_the_persistent_tier_serves_another_process(tmp_path: Any) -> None:
    file = tmp_path / "k.json"
    chain(persistent=PersistentCache(path=file))[0].choose(_call(), Matmul())
    made, events, clock = chain(persistent=PersistentCache(path=file))
    selection = made.select(_call(), Matmul())
    assert (selection.tier, selection.cfg, clock.tuned) == ("persistent", Blocks(3), [])
    assert selection.entry is not None
    assert [m.seconds for m in selection.entry.measurements][:2] == [1.0, 0.5]
    assert made.select(_call(), Matmul()).tier == "memory"
    assert [data["level"] for _, data in events] == ["persistent", "memory"]
    made, _, _ = chain(persistent=PersistentCache(path=file), persist_autotune=False)
    made.choose(Invocation("tests.matmul", matrices(6)), Matmul())
    assert PersistentCache(path=file).size() == 1


def test_cached_only_says_of_each_tier_why_it_has_nothing(tmp_path: Any) -> None:
    file = PersistentCache(path=tmp_path / "k.json")
    made, events, _ = chain(policy="cached-only", persistent=file)
    file.put("another machine", "tests.matmul@v3", _call().call_key, Blocks(2))
    wanted = (
        r"(?s)no configuration for tests.matmul@v3 with .*float32\[4,5\], float32\[5,3\].*override: no cfg= was given.*"
        r"overlay: none is active.*memory: nothing under the key.*persistent: .*k.json has the call of another device.*"
        r"autotune: the policy does not allow it.*heuristics: the policy does not allow them.*pass cfg="
    )
    with pytest.raises(ConfigSelectionError, match=wanted):
        made.choose(_call(), Matmul())
    assert _names(events) == ["error"]
    with pytest.raises(RuntimeError):
        made.choose(_call(), Matmul())


def test_to_tune_again_is_forbidden_unless_allowed() -> None:
    made, events, clock = chain(policy="forbid_reautotune")
    made.choose(_call(), Matmul())
    made.cache.clear()
    with pytest.raises(ConfigSelectionError, match=r"re-autotune of tests.matmul@v3 \(call \w{16}\) is forbidden"):
        made.choose(_call(), Matmul())
    assert _names(events)[-1] == "error"
    made.forbid_reautotune = False
    assert made.choose(_call(), Matmul()) == Blocks(3)
    made.forbid_reautotune = True
    assert made.clear() == 1
    before = len(clock.tuned)
    assert made.choose(_call(), Matmul()) == Blocks(3)
    assert len(clock.tuned) == before + 5, "clear forgets that candidates failed, too"


def test_what_failed_is_not_tried_again(tmp_path: Any) -> None:
    file = tmp_path / "k.json"
    made, _, clock = chain(persistent=PersistentCache(path=file), forbid_reautotune=False)
    made.choose(_call(), Matmul())
    key = made.key(_call(), Matmul())
    assert len(PersistentCache(path=file).failures(key)) == 2
    made.cache._entries.clear()
    made.persistent = None
    clock.tuned.clear()
    entry = made.select(_call(), Matmul()).entry
    assert clock.tuned == [Blocks(1), Blocks(2), Blocks(3)]
    assert entry is not None
    assert [m.status for m in entry.measurements] == ["ok", "ok", "skipped", "skipped", "ok"]


class _Hopeless(Kernel[Blocks, np.ndarray]):
    op_id = "tests.hopeless"

    def run(self, a: Any, *, cfg: Blocks) -> Any:
        raise ValueError("never")

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> Blocks:
        return Blocks(4)


class _Without(Kernel[Blocks, np.ndarray]):
    def run(self, a: Any, *, cfg: Blocks) -> Any:
        return a * cfg.rows


def test_where_no_candidate_is_good_the_heuristic_remains() -> None:
    made, _, _ = chain()
    selection = made.select(Invocation("tests.hopeless", matrices()[:1]), _Hopeless())
    assert (selection.cfg, selection.tier) == (Blocks(4), "heuristics")
    assert dict(selection.passed)["autotune"].startswith("none of 1 candidates is good: Blocks(rows=4")
    made, _, _ = chain(policy=AutotunePolicy(allow_heuristics=False))
    with pytest.raises(ConfigSelectionError, match="ValueError: never"):
        made.choose(Invocation("tests.hopeless", matrices()[:1]), _Hopeless())


def test_a_kernel_without_a_heuristic() -> None:
    made, _, _ = chain(policy="heuristics")
    with pytest.raises(ConfigSelectionError, match=r"heuristics: _Without has no heuristic_cfg\(inv\)"):
        made.choose(Invocation("x", matrices()[:1]), _Without())


def test_policies_by_name_and_for_a_while() -> None:
    with pytest.raises(
        KernelError, match=r"unknown policy 'autotun'; available: autotune, .*; did you mean 'autotune'"
    ):
        ConfigSelectorChain(policy="autotun")
    made, _, _ = chain()
    with policy_override(made, "cached-only") as inside:
        assert made.policy is inside
        with pytest.raises(ConfigSelectionError, match="the policy does not allow it"):
            made.choose(_call(), Matmul())
        with policy_override(made, allow_heuristics=True, cache_miss_fallback="heuristics"):
            assert made.choose(_call(), Matmul()) == Blocks(1)
    assert made.choose(_call(), Matmul()) == Blocks(3)
    unknown = policy_override(made, allow_autotun=False)
    with (
        pytest.raises(KernelError, match=r"a policy has no field 'allow_autotun'; did you mean 'allow_autotune'"),
        unknown,
    ):
        made.choose(_call(), Matmul())


def test_threads_that_want_the_same_call_tune_it_once() -> None:
    made, _, clock = chain()
    result: list[Any] = []
    threads = [threading.Thread(target=lambda: result.append(made.choose(_call(), Matmul()))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert result == [Blocks(3)] * 6
    assert len(clock.tuned) == 5


def test_a_tuner_of_ones_own_needs_autotune_alone() -> None:
    class Last:
        def autotune(self, make_fn: Any, args: Any, kwargs: Any, candidates: Any) -> Any:
            chosen = list(candidates)[-2]
            assert make_fn(chosen)(*args, **kwargs).shape == (4, 3)
            return chosen

    made: ConfigSelectorChain[Any, Any] = ConfigSelectorChain(ConfigCache(), tuner=Last())  # pyright: ignore[reportArgumentType]
    assert made.choose(_call(), Matmul()) == Blocks(3)


def test_clear_of_one_op_leaves_the_others(tmp_path: Any) -> None:
    made, _, _ = chain(persistent=PersistentCache(path=tmp_path / "k.json"))
    executor = Executor(made)
    executor(Matmul(), *matrices())
    executor(Matmul("tests.other"), *matrices())
    assert made.clear("tests.matmul") == 1
    assert [entry.key.op for entry in made.cache.entries()] == ["tests.other@v3"]
    assert made.persistent is not None
    assert [entry.key.op for entry in made.persistent.entries()] == ["tests.other@v3"]
    assert made.select(Invocation("tests.matmul", matrices()), Matmul()).tier == "autotune"


def test_a_callback_that_raises_is_reported_once_and_fails_no_call() -> None:
    def fails(name: str, **data: Any) -> None:
        raise ValueError(f"lost {name}")

    made: ConfigSelectorChain[Any, Any] = ConfigSelectorChain(
        on_event=fails, tuner=Tuner(rounds=1, on_measured=lambda done, total, measurement: fails("measurement"))
    )
    with pytest.warns(CallbackWarning) as caught:
        product = Executor(made)(Matmul(), *matrices())
    np.testing.assert_allclose(product, matrices()[0] @ matrices()[1], rtol=1e-6)
    Executor(made)(Matmul(), *matrices())
    assert [str(warning.message).partition(":")[0] for warning in caught] == [
        "on_event raised ValueError",
        "on_measured raised ValueError",
    ]
    assert "lost autotune_start: the call goes on, and further failures of it are not reported" in str(
        caught[0].message
    )
    assert made.on_event is fails
