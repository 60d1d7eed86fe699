"""Refusals of ``tapeline launch``, before it starts anything."""

import pytest

from tapeline.command import main

_DEMO = "--bundle=no-such --backend=jax"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--processes=2", "launch: no command to run: give one behind --, such as launch --processes=2 -- generate"),
        ("--processes=2 -- generat", "launch: command 'generat' not found; available: generate, chat, run, serve"),
        ("--processes=2 -- export --model=demo", "launch: export runs in one process; available: generate, chat, run"),
        ("--processes=2 -- generate --bundle=b", "launch: generate with --backend=iree: give it --backend=jax"),
        (
            f"--processes=4 -- generate {_DEMO} --mesh=tp=2",
            "--processes=4 with --mesh=tp=2, which is of 2 devices: each process has one: give as many",
        ),
        (f"--processes=2 -- generate {_DEMO} --mesh=pp=2", "mesh: axis 'pp' not found; available: dp, tp, ep, fsdp"),
        (f"--processes=2 -- generate {_DEMO} --mesh=tp=0", "mesh: "),
        (
            f"--processes=2 -- generate {_DEMO}",
            "--processes=2 without --mesh, which is of 1 devices:",
        ),
        (f"--coordinator=a:1 -- generate {_DEMO}", "--num_processes, --process_id: not given; they go together"),
        (f"-- generate {_DEMO}", "no cluster found (JAX knows SLURM, Open MPI 4, Kubernetes and Cloud TPU): give "),
        ("--processes=2 -- generate --no_such_flag", "unknown flag --no_such_flag"),
    ],
)
def test_refusals(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) if "no_such_flag" in arguments else pytest.MonkeyPatch.context():
        assert main(["launch", *arguments.split()]) == 2
    assert message in capsys.readouterr().err
