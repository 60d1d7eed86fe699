"""Programs that update tensors in place compute on every engine what they compute with NumPy.

A sample of the drawn programs runs by default. With TAPELINE_LONG=1 in the environment, TAPELINE_PROGRAMS programs run
on the cheap engines, and every tenth of them on IREE's devices (docs/lab/2026-11-28-updates-in-place.md).
"""

import os
from pathlib import Path
from typing import Final

import pytest

from tests.differential._shrink import shrunk
from tests.differential._update_engines import Engine, differences, engines_of
from tests.differential._updates import UPDATES, Step, UpdateProgram, drawn_program

_LONG: Final = bool(os.environ.get("TAPELINE_LONG"))
_PROGRAMS: Final = int(os.environ.get("TAPELINE_PROGRAMS", "100000")) if _LONG else 24
_FIRST: Final = int(os.environ.get("TAPELINE_FIRST_PROGRAM", "0"))
_BATCH: Final = 24
# IREE compiles for a second what others compute in a hundredth of it.
_DEVICES: Final = {"local-task": 10, "local-sync": 10, "vmvx": 10}
_SAMPLED: Final = {"local-task": 2, "local-sync": 4, "vmvx": 4}
_CHEAP: Final = ("graph", "interpreter", "xla", "jax")


def _share(name: str) -> int:
    return 1 if name in _CHEAP else (_DEVICES if _LONG else _SAMPLED)[name]


@pytest.mark.parametrize("name", [*_CHEAP, *_DEVICES])
def test_drawn_updates_agree_with_numpy(name: str, tmp_path: Path) -> None:
    engine = engines_of()[name]
    seeds = range(_FIRST, _FIRST + _PROGRAMS, _share(name))
    for begin in range(0, len(seeds), _BATCH):
        batch = seeds[begin : begin + _BATCH]
        programs = [drawn_program(seed) for seed in batch]
        wrong = differences(name, engine, programs, tmp_path)
        if wrong:
            first = wrong[0]
            smaller = shrunk(programs[first.place], lambda program: _fails(name, engine, program, tmp_path), 40)
            message = "".join(one.message for one in differences(name, engine, [smaller], tmp_path))
            pytest.fail(f"{name}: {len(wrong)} programs, the first of seed {batch[first.place]}:\n{smaller}\n{message}")


def _fails(name: str, engine: Engine, program: UpdateProgram, folder: Path) -> bool:
    return bool(differences(name, engine, [program], folder))


def _ops(steps: tuple[Step, ...]) -> set[str]:
    return {step.op for step in steps} | {op for step in steps for body in step.bodies for op in _ops(body.steps)}


def test_the_sample_has_every_kind_of_update_region_and_donation() -> None:
    programs = [drawn_program(seed) for seed in range(24)]
    drawn = {op for program in programs for op in _ops(program.body.steps)}
    assert drawn >= {*UPDATES, "loop", "branch", "block", "slice", "dynamic_slice", "reshape"}
    assert any(program.donated for program in programs)


def test_a_program_is_shrunk_to_what_fails() -> None:
    program = next(
        p for p in map(drawn_program, range(100)) if "loop" in _ops(p.body.steps) and "put" in _ops(p.body.steps)
    )
    smaller = shrunk(program, lambda one: "put" in _ops(one.body.steps))
    assert "put" in _ops(smaller.body.steps)
    assert len(_ops(smaller.body.steps)) < len(_ops(program.body.steps))
