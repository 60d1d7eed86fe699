"""Recorded calls and labels: in the process, in a file that outlives it, and from text back to what is tuned."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autotune import (
    CacheWarning,
    ConfigSelectorChain,
    Executor,
    Invocation,
    Kernel,
    KernelError,
    PersistentCache,
    autotune_lowered,
    autotune_recorded,
    device_fingerprint,
    extract_labels_from_hlo_text,
    find_labels_in_lowered,
    forget_invocations,
    get_invocations,
    label,
    labels_to_configs,
    read_record,
    record_file,
    recorded_calls,
)
from autotune._kernels_testing import Blocks, Matmul, chain, matrices
from autotune.kernel import ArraySpec
from lang_core import InputError, f32


@pytest.fixture(autouse=True)
def record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    forget_invocations()
    monkeypatch.setenv("TAPELINE_OPS_RECORD", "1")
    monkeypatch.setenv("TAPELINE_KERNEL_CACHE", str(tmp_path))
    yield tmp_path / "invocations.jsonl"
    forget_invocations()


class Scale(Kernel[int, Any]):
    op_id = "tests.scale"

    def prepare(self, x: Any, by: float = 2.0, **kwargs: Any) -> Any:
        return (x[None], by), kwargs

    def run(self, x: Any, by: float, *, cfg: int, **kwargs: Any) -> Any:
        return x * by

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        return 1

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[int]:
        return [1, 4]


def test_calls_are_noted_once_as_specs_after_prepare(record: Path) -> None:
    executor = Executor(ConfigSelectorChain(policy="heuristics"))
    for size in (3, 3, 5):
        executor(Scale(), np.ones(size, np.float32), by=0.5, dtype=f32, pair=(1, "a"))
    assert record_file() == record
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [line["op_id"] for line in lines] == ["tests.scale"] * 2
    assert "array" in json.dumps(lines[0]["args"])
    calls = list(read_record())
    assert [call.args for call in calls] == [(ArraySpec((1, n), "float32"), 0.5) for n in (3, 5)]
    assert calls[0].kwargs == {"dtype": f32, "pair": (1, "a")}
    assert [call._replace(live=None) for call in recorded_calls()] == calls
    assert get_invocations("another device") == {}
    assert get_invocations() == get_invocations(device_fingerprint())
    by_op = get_invocations(device_fingerprint())["tests.scale@v0"]
    assert [(args, kwargs["pair"]) for _, args, kwargs in by_op.values()] == [(call.args, (1, "a")) for call in calls]
    inv = Invocation("tests.scale", (np.ones((1, 3), np.float32), 0.5), {"dtype": f32, "pair": (1, "a")})
    assert next(iter(by_op)) == inv.call_key


def test_nothing_is_noted_unless_asked(monkeypatch: pytest.MonkeyPatch, record: Path) -> None:
    executor = Executor(ConfigSelectorChain(policy="heuristics"))
    for value in ("0", ""):
        monkeypatch.setenv("TAPELINE_OPS_RECORD", value)
        executor(Scale(), np.ones(3))
    assert not record.exists()
    with pytest.raises(
        InputError, match=r"invocations\.jsonl: no calls were recorded there: run a model with TAPELINE"
    ):
        list(read_record())


def test_processes_append_and_a_broken_line_costs_itself_alone(record: Path) -> None:
    program = (
        "import sys, numpy as np; from autotune import *\n"
        "from autotune._kernels_testing import Matmul\n"
        "for n in range(int(sys.argv[1]), int(sys.argv[1]) + 5):\n"
        "    Executor(ConfigSelectorChain(policy='heuristics'))(Matmul(), np.ones((n, 2)), np.ones((2, 3)))"
    )
    root = str(Path(__file__).parents[2])
    record.write_text('{"schema": 1, "key": ["cut')
    env = {
        "PYTHONPATH": ":".join([root, *sys.path]),
        "TAPELINE_OPS_RECORD": "1",
        "TAPELINE_OPS_RECORD_FILE": str(record),
    }
    running = [subprocess.Popen([sys.executable, "-c", program, str(n)], cwd=root, env=env) for n in (1, 6, 3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    with pytest.warns(CacheWarning, match=r"invocations\.jsonl:1: not a recorded call .*: skipped"):
        calls = list(read_record())
    assert sorted(call.args[0].shape[0] for call in calls) == list(range(1, 11))
    record.write_text('{"schema": 2}\n')
    with pytest.raises(InputError, match=r"invocations\.jsonl:1: has schema 2, this Tapeline reads 1: remove the file"):
        list(read_record())


def test_a_file_is_tuned_by_another_process_than_recorded_it(record: Path) -> None:
    Executor(ConfigSelectorChain(policy="heuristics"))(Matmul(), *matrices())
    forget_invocations()
    made, _, _ = chain(persistent=PersistentCache(), policy="cached-only")
    told: list[tuple[int, int, str]] = []
    tuned = autotune_recorded(made, read_record(), progress=lambda *progress: told.append(progress))
    assert [(entry.op_id_v, entry.cfg) for entry in tuned.entries] == [("tests.matmul@v3", Blocks(3))]
    assert [progress[:2] for progress in told] == [(0, 1), (1, 1)]
    assert Executor(made).choose_config(Matmul(), *matrices()) == Blocks(3)
    fresh: ConfigSelectorChain[Any, Any] = ConfigSelectorChain(persistent=PersistentCache(), policy="cached-only")
    assert Executor(fresh).explain(Matmul(), *matrices()).tier == "persistent"


def test_tuning_does_not_prepare_twice() -> None:
    executor = Executor(ConfigSelectorChain(policy="heuristics"))
    executor(Scale(), np.ones((3, 2), np.float32))
    made, _, _ = chain(lambda cfg: 1.0 / cfg)
    with autotune_recorded(made) as result:
        assert (
            Executor(ConfigSelectorChain(policy="cached-only")).choose_config(Scale(), np.ones((3, 2), np.float32)) == 4
        )
    assert result.device == device_fingerprint()
    with pytest.raises(RuntimeError):
        Executor(ConfigSelectorChain(policy="cached-only")).choose_config(Scale(), np.ones((3, 2), np.float32))
    assert made.cache.size() == 1


def test_a_call_that_cannot_be_tuned_is_named(record: Path) -> None:
    class Hidden(Kernel[int, Any]):
        op_id = "tests.hidden"

        def __init__(self, size: int) -> None:
            super().__init__()

        def run(self, x: Any, *, cfg: int) -> Any:
            return x

        def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
            return 1

    Executor(ConfigSelectorChain(policy="heuristics"))(Hidden(3), np.ones(2))
    text = record.read_text()
    tuned = autotune_recorded(chain(lambda cfg: 1.0)[0], read_record())
    assert tuned.entries == ()
    assert "cannot be made without arguments" in tuned.skipped[0][1]
    record.write_text(text.replace("Hidden", "Gone"))
    (_, why), = autotune_recorded(chain()[0], read_record()).skipped  # fmt: skip
    assert "which is not loaded: import its module " in why


def test_a_label_and_back() -> None:
    text = label("tests.matmul@v3", "0123456789abcdef")
    assert text == "tapeline_ops#tests.matmul@v3:0123456789abcdef"
    noise = (
        f'loc("a/{text}/dot" {text}) x{text}0 tapeline_ops#a@v1:123 // model.{label("b@v2-rc.1", "f" * 16)} {{"x":1}}'
    )
    assert extract_labels_from_hlo_text(noise) == [text, label("b@v2-rc.1", "f" * 16)]
    assert label("mod.<locals>.K@v0", "my own key").startswith("tapeline_ops#mod._locals_.K@v0:")
    assert len(extract_labels_from_hlo_text(label("a@v0", "my own key"))) == 1
    with pytest.raises(KernelError, match="expected text, a path, or a lowered function of JAX; found 3"):
        find_labels_in_lowered(3)


def test_labels_are_found_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(f"// {label('a@v1', '0' * 16)}\n")
    assert find_labels_in_lowered(tmp_path / "m.mlir") == [label("a@v1", "0" * 16)]


class OnJax(Matmul):
    op_id = "tests.on_jax"

    def run(self, a: Any, b: Any, *, cfg: Blocks) -> Any:
        return jnp.concatenate([part @ b for part in jnp.array_split(a, cfg.rows)])

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[Blocks]:
        return [Blocks(1), Blocks(2)]


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("mode", ["hash", "json"])
def test_what_a_lowered_module_uses_is_tuned(monkeypatch: pytest.MonkeyPatch, mode: str, swapped: bool) -> None:
    monkeypatch.setenv("TAPELINE_OPS_STAMP", mode)
    made, events, clock = chain()
    executor = Executor(made)
    arrays = [jnp.asarray(array) for array in matrices()]
    executor(Matmul(), *matrices(7), cfg=Blocks(1))  # recorded, and not in the module
    lowered = jax.jit(lambda a, b: executor(OnJax(), a, b)).lower(*arrays)
    assert clock.tuned == []
    result = autotune_lowered(made, lowered) if swapped else autotune_lowered(lowered, made)
    assert [(entry.op_id_v, entry.cfg) for entry in result.entries] == [("tests.on_jax@v3", Blocks(2))]
    assert labels_to_configs(lowered, made) == [(find_labels_in_lowered(lowered)[0], Blocks(2))]
    assert executor.explain(OnJax(), *arrays).tier == "memory"
    seen: list[Any] = []
    jax.jit(lambda a, b: seen.append(executor.choose_config(OnJax(), a, b)) or a).lower(*arrays)
    assert seen == [Blocks(2)]
    assert "autotune_finish" in [name for name, _ in events]


def test_the_users_own_cache_by_default(tmp_path: Path) -> None:
    Executor(ConfigSelectorChain(policy="heuristics"))(Scale(), np.ones(3, np.float32))
    (entry,) = autotune_recorded().entries
    assert entry.cfg in (1, 4)
    assert PersistentCache().path == tmp_path / "v1" / "kernels.json"
    assert PersistentCache().size() == 1
