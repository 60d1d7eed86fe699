"""Ranks on one machine: the tokens of one process, half of the bytes each; they end together."""

import json
import os
import shutil
import signal
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

import openai
import pytest

import tapeline
from lang_core import MeshShape, TensorSpec
from tapeline.demo import write_demo_checkpoint
from tests.processes._running import ENDS_WITHIN, GENERATE, PROMPT, Launch, apart, is_alive, launched, until

_FIRST: Final = 0 if os.environ.get("TAPELINE_LONG") else 3
_PAGES: Final = 2 * 4096
"""First and last page of a part, which it may share with others."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the demo model's bundle for two devices, with room for a long answer."""
    folder = tmp_path_factory.mktemp("home")
    tapeline.export("demo", folder / "demo", mesh="tp=2", target=[], max_sequence=512)
    return folder


def _planned(bundle: tapeline.Bundle, devices: int) -> tuple[int, int]:
    """Returns the bytes of parameters that a device reads, and their number."""
    table, total = bundle.config.mesh, 0
    assert table is not None
    for name, fields in bundle.config.parameters.items():
        spec = TensorSpec(tuple(fields["shape"]), fields["dtype"])
        local = MeshShape.parse(f"tp={devices}").local_shape(spec.shape, table.parameters[name])
        total += TensorSpec(local, spec.dtype).nbytes
    return total, len(bundle.config.parameters)


def test_tokens_are_those_of_one_process_and_each_rank_reads_its_part(home: Path) -> None:
    bundle = tapeline.Bundle(home / "demo")
    with tapeline.load(bundle, engine="jax") as model:
        alone = model.generate(PROMPT, max_new_tokens=40).text
    flags = (*GENERATE, "--max_new_tokens=40", "--stats=stats.json")
    with launched(home, "--figures=figures.json", "--", *flags) as launch:
        code, out, errors = launch.ended()
    assert (code, out) == (0, alone + "\n"), errors
    assert json.loads((home / "stats.json").read_text())["new_tokens"] == 40  # rank 0 alone has written it
    ranks = json.loads((home / "figures.json").read_text())["ranks"]
    planned, parts = _planned(bundle, 2)
    assert planned < 0.55 * (home / "demo/weights.irpa").stat().st_size
    assert [rank["parameter_bytes"] for rank in ranks] == [planned, planned]
    for rank in ranks:
        assert rank["touched_bytes"] <= planned + parts * _PAGES


@pytest.mark.parametrize(("phase", "rank"), [("prefill", 0), ("prefill", 1), ("decode", 0), ("decode", 1)][_FIRST:])
def test_a_rank_that_is_killed_ends_all(home: Path, phase: str, rank: int) -> None:
    with launched(home, "--", *GENERATE, "--max_new_tokens=480", "--ignore_eos") as launch:
        if phase == "prefill":
            launch.until_it_says("[Gloo] Rank 1 is connected")  # the first exchange, of the first call of prefill
        else:
            launch.until_it_prints(8)
        ranks = launch.ranks()
        os.kill(ranks[rank], signal.SIGKILL)
        began = time.monotonic()
        launch.ended_by_a_kill(rank, began, ranks.values())


@pytest.mark.skipif(not os.environ.get("TAPELINE_LONG"), reason="one more launch: TAPELINE_LONG=1")
def test_ranks_end_with_a_launcher_that_is_killed(home: Path) -> None:
    """Until then threads of a rank's devices take turns, gloo's among them."""
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))  # ranks begin with this thread's; sessions change it
    with launched(home, "--", *GENERATE, "--max_new_tokens=480", "--ignore_eos") as launch:
        launch.until_it_prints(8)
        ranks = launch.ranks()
        threads = [int(path.name) for path in Path(f"/proc/{ranks[1]}/task").iterdir()]
        policies = {thread: os.sched_getscheduler(thread) for thread in threads}
        assert policies[ranks[1]] == os.SCHED_OTHER  # it follows rank 0, and computes nothing
        assert os.SCHED_BATCH in policies.values()
        launch.process.kill()
        until(lambda: not any(map(is_alive, ranks.values())), ENDS_WITHIN)


def test_what_the_user_did_wrong_is_said_once_with_its_exit_code(home: Path) -> None:
    with launched(home, "--", *GENERATE, "--max_new_tokens=9000") as launch:
        code, out, errors = launch.ended()
    assert (code, out) == (2, "")
    said = [line for line in errors.splitlines() if "error: " in line]
    assert len(said) == 1
    assert said[0].startswith("[0] error: a prompt of 15 tokens and 9000 new ones need 9014 positions")


@pytest.fixture
def two_homes(home: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Directories of two ranks, each with its own copy of the bundle."""
    for name in ("0", "1"):
        shutil.copytree(home / "demo", tmp_path / name / "demo")
    return tmp_path / "0", tmp_path / "1"


def test_ranks_without_a_launcher(two_homes: tuple[Path, Path]) -> None:
    (code, out, errors), (other, nothing, _) = apart(two_homes, (*GENERATE, "--max_new_tokens=12"))
    assert (code, out, other, nothing) == (0, " it was the worst of times\n", 0, ""), errors


@pytest.mark.skipif(not os.environ.get("TAPELINE_LONG"), reason="one more launch: TAPELINE_LONG=1")
def test_a_rank_with_another_bundle(two_homes: tuple[Path, Path]) -> None:
    tapeline.export("demo", two_homes[1] / "other", mesh="tp=2", target=[], max_sequence=128)
    shutil.rmtree(two_homes[1] / "demo")
    (two_homes[1] / "other").rename(two_homes[1] / "demo")
    (code, _, errors), _ = apart(two_homes)
    assert code == 2
    assert "error: ranks disagree: sha256 of module.mlir of demo is '" in errors
    assert "on rank 0, and '" in errors
    assert "on rank 1: give every rank the same bundle" in errors


def test_a_rank_with_other_flags(two_homes: tuple[Path, Path]) -> None:
    outcomes = apart(two_homes, (*GENERATE, "--seed=3"), (*GENERATE, "--seed=4"))
    for code, _, errors in outcomes:
        assert code == 2
        assert "error: ranks disagree: flags has '--seed=3' on rank 0, and '--seed=4' on rank 1: start all" in errors


@pytest.mark.skipif(not os.environ.get("TAPELINE_LONG"), reason="one more launch: TAPELINE_LONG=1")
def test_a_rank_with_another_version(two_homes: tuple[Path, Path]) -> None:
    program = (
        "import sys\nimport tapeline.command._rank as rank\nrank.VERSION = '0.0.7'\n"
        "from tapeline.command import main\nsys.exit(main())"
    )
    for code, _, errors in apart(two_homes, program=program):
        assert code == 2
        assert f"error: ranks disagree: tapeline is '{tapeline.VERSION}' on rank 0, and '0.0.7' on rank 1" in errors


@pytest.mark.skipif(not os.environ.get("TAPELINE_LONG"), reason="one more launch: TAPELINE_LONG=1")
def test_a_rank_whose_weights_are_cut_off(two_homes: tuple[Path, Path]) -> None:
    archive = two_homes[1] / "demo/weights.irpa"
    archive.write_bytes(archive.read_bytes()[:-20_000])
    (code, _, errors), _ = apart(two_homes)
    assert code == 2
    assert "error: rank 1: demo/weights.irpa is not the file that kernel_config.json describes" in errors


@pytest.mark.skipif(not os.environ.get("TAPELINE_LONG"), reason="one more launch: TAPELINE_LONG=1")
def test_a_rank_whose_shard_is_cut_off(two_homes: tuple[Path, Path]) -> None:
    """Ranks that read the checkpoint itself: the second one has less of it."""
    for folder in two_homes:
        write_demo_checkpoint(folder / "model")
        tapeline.export(
            folder / "model", folder / "model/bare", weights="none", mesh="tp=2", target=[], max_sequence=64
        )
    shard = two_homes[1] / "model/model.safetensors"
    shard.write_bytes(shard.read_bytes()[:-20_000])
    flags = ("generate", "--bundle=model/bare", "--backend=jax", "--mesh=tp=2", f"--prompt={PROMPT}")
    (code, _, errors), _ = apart(two_homes, flags)
    assert code == 2
    assert f"error: rank 1: {shard}: tensor 'lm_head.weight' ends at byte " in errors


@pytest.mark.skipif(not os.environ.get("TAPELINE_LONG"), reason="one more launch: TAPELINE_LONG=1")
def test_a_mesh_that_does_not_divide_the_model(home: Path) -> None:
    flags = [flag.replace("tp=2", "tp=3") for flag in GENERATE]
    code, out, errors = Launch(home, "launch", "--processes=3", "--", *flags).ended()
    assert (code, out) == (2, "")
    assert "error: --mesh=tp=3: parameter" in errors


@pytest.mark.skipif(not os.environ.get("TAPELINE_LONG"), reason="one more launch: TAPELINE_LONG=1")
def test_a_coordinator_that_is_not_there(home: Path) -> None:
    place = ("--coordinator=localhost:9", "--num_processes=2", "--process_id=1", "--timeout=1")
    code, _, errors = Launch(home, "launch", *place, "--", *GENERATE).ended()
    assert code == 2
    assert "error: --coordinator=localhost:9: nobody answers there (Connection refused) within 1 s:" in errors


def test_a_rank_that_does_not_come(home: Path) -> None:
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    place = (f"--coordinator=localhost:{port}", "--num_processes=2", "--process_id=0", "--timeout=1")
    code, _, errors = Launch(home, "launch", *place, "--", *GENERATE).ended()
    assert code == 1
    assert f"error: rank 1 of 2 not found at localhost:{port} in time" in errors


@pytest.mark.skipif(not os.environ.get("TAPELINE_LONG"), reason="a server of two ranks: TAPELINE_LONG=1")
def test_a_server_of_two_ranks_ends_well(home: Path) -> None:
    tapeline.export("demo", home / "slots", mesh="tp=2", target=[], slots=2, max_sequence=64)
    flags = ("serve", "--bundle=slots", "--backend=jax", "--mesh=tp=2", "--port=0")
    with launched(home, "--", *flags) as launch:
        assert launch.process.stdout is not None
        address = launch.process.stdout.readline().decode().strip()
        until(lambda: _is_ready(address))
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        answer = client.completions.create(model="slots", prompt=PROMPT, max_tokens=8)
        assert answer.choices[0].text.startswith(" it was the worst")
        client.close()
        launch.process.send_signal(signal.SIGTERM)
        code, _, errors = launch.ended()
        assert code == 0, errors


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=60) as answer:
            return answer.status == 200
    except urllib.error.HTTPError as error:
        error.close()
        return False
